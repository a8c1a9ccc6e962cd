/* test_confine.c - what the filter of roles lets them do with memory, in a process of its own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/confine.h"
#include "net/counters.h"

/* The first thing that is not as it has to be; 0 = all is. */
static int look(void)
{
    int fd = memfd_create("counters", MFD_CLOEXEC);
    size_t page = COUNTERS_BLOCK, n = 1u << 20;
    char *own, *grown;
    struct abx_err err;

    if (fd < 0 || ftruncate(fd, (off_t)(4 * page)) < 0)
        return 1;
    own = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (own == MAP_FAILED || confine_syscalls(CONFINE_NETWORK, &err) < 0)
        return 2;
#ifdef __SANITIZE_ADDRESS__ /* sanitizers need more than roles may: what is refused is a short list */
    return syscall(SYS_bpf, 0, NULL, 0) == -1 && errno == EPERM ? 0 : 7;
#endif
    if (mremap(own, page, 3 * page, MREMAP_MAYMOVE) != MAP_FAILED || errno != EPERM)
        return 3;
    if (mremap(own, 0, page, MREMAP_MAYMOVE) != MAP_FAILED)
        return 4;
    grown = malloc(n);
    if (!grown)
        return 5;
    memset(grown, 7, n);
    for (size_t i = 2; i < 32; i += 7) { /* one mapping of its own, and larger ones */
        char *larger = realloc(grown, i * n);

        if (!larger || larger[n - 1] != 7)
            return 6;
        grown = larger;
    }
    free(grown);
    return 0;
}

static void a_block_of_the_counters_does_not_grow(void **state)
{
    pid_t pid;
    int status;

    (void)state;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(look());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_the_counters_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
