/* macro.h - cleanup attributes and small helpers used everywhere.
 *
 * A local that owns something is declared with _cleanup_(fn) and leaves its scope by TAKE_PTR or
 * TAKE_FD. The cleanup functions get a pointer to the variable.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/param.h> /* before ours: uv.h brings its MIN and MAX */

#define _cleanup_(f) __attribute__((__cleanup__(f)))
#define _printf_(fmt, args) __attribute__((__format__(__printf__, fmt, args)))
#define _nodiscard_ __attribute__((__warn_unused_result__))
#define _unused_ __attribute__((__unused__))

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) *take_p_ = &(p);                                                             \
        __typeof__(p) take_v_ = *take_p_;                                                          \
        *take_p_ = NULL;                                                                           \
        take_v_;                                                                                   \
    })

#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int *take_fd_ = &(fd);                                                                     \
        int take_v_ = *take_fd_;                                                                   \
        *take_fd_ = -EBADF;                                                                        \
        take_v_;                                                                                   \
    })

/* Defines fnp(), the cleanup form of a free function. */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline _unused_ void fn##p(type *p)                                                     \
    {                                                                                              \
        if (*p)                                                                                    \
            fn(*p);                                                                                \
    }

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#undef MIN
#undef MAX
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* Cleanup for memory from malloc: `_cleanup_(freep) char *s = NULL;`. */
static inline _unused_ void freep(void *p)
{
    free(*(void **)p);
}

#define NSEC_PER_SEC INT64_C(1000000000)
#define NSEC_PER_MSEC INT64_C(1000000)
