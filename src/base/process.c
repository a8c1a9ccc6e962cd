/* process.c - see process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define STAT_MAX 4096
#define FIELD_STATE 3
#define FIELD_START 22

/* Field `number` (from 3 on) of /proc/<pid>/stat, "" when there is none. */
static struct slice stat_field(struct buf *b, pid_t pid, int number)
{
    char path[32];
    const char *p, *end;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (file_read(AT_FDCWD, path, b, NULL) < 0)
        return slice_of("", 0);
    p = buf_cstr(b);
    p = p ? strrchr(p, ')') : NULL; /* the name before it may hold anything */
    for (int field = 2; p && field < number; field++)
        p = strchr(p + 1, ' ');
    end = p ? strchr(p + 1, ' ') : NULL;
    return end ? slice_of(p + 1, (size_t)(end - p - 1)) : slice_of("", 0);
}

uint64_t process_start_ticks(pid_t pid)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(STAT_MAX);
    uint64_t ticks = 0;

    return str_parse_u64(stat_field(&b, pid, FIELD_START), UINT64_MAX, &ticks) ? ticks : 0;
}

static bool is_zombie(pid_t pid)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(STAT_MAX);
    struct slice state = stat_field(&b, pid, FIELD_STATE);

    return state.n == 1 && (state.p[0] == 'Z' || state.p[0] == 'X');
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

bool process_mark_is_gone(const char *mark)
{
    char text[PROCESS_MARK_SIZE], *at = text;
    uint64_t numbers[3], ticks;

    if (strlen(mark) >= sizeof text)
        return false;
    memcpy(text, mark, strlen(mark) + 1);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        const char *word = strsep(&at, ":");

        if (!word || !str_parse_u64(slice_str(word), UINT64_MAX, &numbers[i]))
            return false;
    }
    if (at || numbers[0] == 0 || numbers[0] > INT32_MAX || numbers[2] != own_name_space())
        return false;
    if (kill((pid_t)numbers[0], 0) < 0 && errno == ESRCH)
        return true;
    ticks = process_start_ticks((pid_t)numbers[0]); /* 0: others' processes are hidden here */
    return ticks != 0 && (ticks != numbers[1] || is_zombie((pid_t)numbers[0]));
}
