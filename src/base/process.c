/* process.c - see process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define STAT_MAX 4096
#define FIELD_STATE 3
#define FIELD_FLAGS 9
#define FIELD_START 22
#define FIELD_PENDING 31
/* The kernel's PF_EXITING and PF_SIGNALED; a signal that kills is no more pending when the latter is set. */
#define FLAGS_ENDING (UINT64_C(0x4) | UINT64_C(0x400))

/* /proc/<pid>/stat; empty when there is none. */
static void stat_read(struct buf *b, pid_t pid)
{
    char path[32];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (file_read(AT_FDCWD, path, b, NULL) < 0)
        b->len = 0;
}

/* Field `number` (from 3 on), "" when there is none. */
static struct slice stat_field(struct buf *b, int number)
{
    const char *p = buf_cstr(b), *end;

    p = p ? strrchr(p, ')') : NULL; /* the name before it may hold anything */
    for (int field = 2; p && field < number; field++)
        p = strchr(p + 1, ' ');
    end = p ? strchr(p + 1, ' ') : NULL;
    return end ? slice_of(p + 1, (size_t)(end - p - 1)) : slice_of("", 0);
}

static uint64_t start_ticks(struct buf *b)
{
    uint64_t ticks = 0;

    return str_parse_u64(stat_field(b, FIELD_START), UINT64_MAX, &ticks) ? ticks : 0;
}

uint64_t process_start_ticks(pid_t pid)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(STAT_MAX);

    stat_read(&b, pid);
    return start_ticks(&b);
}

static bool is_zombie(struct buf *b)
{
    struct slice state = stat_field(b, FIELD_STATE);

    return state.n == 1 && (state.p[0] == 'Z' || state.p[0] == 'X');
}

static bool has_bit(struct buf *b, int field, uint64_t bit)
{
    uint64_t bits;

    return str_parse_u64(stat_field(b, field), UINT64_MAX, &bits) && (bits & bit);
}

static bool seems_to_end(pid_t pid)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(STAT_MAX);

    if (kill(pid, 0) < 0 && errno == ESRCH)
        return true;
    stat_read(&b, pid);
    return is_zombie(&b) || has_bit(&b, FIELD_FLAGS, FLAGS_ENDING) ||
           has_bit(&b, FIELD_PENDING, UINT64_C(1) << (SIGKILL - 1));
}

/* The kernel marks each thread of a process that gets SIGKILL at once, whenever it will run. It tells the flags before what
 * is pending, so one that takes its signal in between shows neither: a second look sees its flags. */
bool process_is_ending(pid_t pid)
{
    static const struct timespec pause = { .tv_nsec = NSEC_PER_MSEC };

    if (seems_to_end(pid))
        return true;
    (void)nanosleep(&pause, NULL);
    return seems_to_end(pid);
}

static uint64_t own_name_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

void process_mark(char to[PROCESS_MARK_SIZE])
{
    uint64_t ticks = process_start_ticks(getpid()), name_space = own_name_space();

    to[0] = '\0';
    if (ticks != 0 && name_space != 0)
        (void)snprintf(to, PROCESS_MARK_SIZE, "%d:%" PRIu64 ":%" PRIu64, (int)getpid(), ticks,
                       name_space);
}

struct mark {
    pid_t pid;
    uint64_t ticks;
};

/* False for what is no mark of this pid name space. */
static bool mark_parse(const char *text, struct mark *ret)
{
    char copy[PROCESS_MARK_SIZE], *at = copy;
    uint64_t numbers[3];

    if (strlen(text) >= sizeof copy)
        return false;
    memcpy(copy, text, strlen(text) + 1);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        const char *word = strsep(&at, ":");

        if (!word || !str_parse_u64(slice_str(word), UINT64_MAX, &numbers[i]))
            return false;
    }
    if (at || numbers[0] == 0 || numbers[0] > INT32_MAX || numbers[2] != own_name_space())
        return false;
    *ret = (struct mark){ (pid_t)numbers[0], numbers[1] };
    return true;
}

static bool mark_is_gone(const struct mark *m)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(STAT_MAX);
    uint64_t ticks;

    if (kill(m->pid, 0) < 0 && errno == ESRCH)
        return true;
    stat_read(&b, m->pid);
    ticks = start_ticks(&b); /* 0: others' processes are hidden here */
    return ticks != 0 && (ticks != m->ticks || is_zombie(&b));
}

bool process_mark_is_gone(const char *mark)
{
    struct mark m;

    return mark_parse(mark, &m) && mark_is_gone(&m);
}

bool process_mark_is_ending(const char *mark)
{
    struct mark m;

    return mark_parse(mark, &m) && (mark_is_gone(&m) || process_is_ending(m.pid));
}
