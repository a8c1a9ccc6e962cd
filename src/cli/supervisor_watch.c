/* supervisor_watch.c - see supervisor_watch.h. */
#include "cli/supervisor_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define TOLD_S 5 /* longer silences of roles that live are in the log */
/* Of one processor since its silence was noticed; below that it was starved rather than busy. */
#define BUSY_PERCENT 10

struct thread_stat {
    char state; /* as in proc_pid_stat(5); 0 = not known */
    int64_t cpu_ns;
};

int watch_init(struct role *role, struct abx_err *err)
{
    role->beat_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (role->beat_fd < 0)
        return err_sys(err, errno, "heartbeat of %s", role->name);
    role_arg_fd(role, "--heartbeat-fd", role->beat_fd);
    return 0;
}

void watch_done(struct role *role)
{
    fd_close(TAKE_FD(role->beat_fd));
}

static bool take_beats(const struct role *role)
{
    uint64_t n;

    return read(role->beat_fd, &n, sizeof n) == (ssize_t)sizeof n;
}

void watch_reset(struct role *role)
{
    (void)take_beats(role);
    role->silent_ns = 0;
    role->cpu_ns = -1;
    role->has_beaten = role->is_hung = false;
}

/* Of the thread that has the loop. The name in parentheses may hold anything: fields are counted from
 * the last parenthesis. */
static struct thread_stat thread_stat_read(pid_t pid)
{
    struct thread_stat s = { 0, 0 };
    char path[64], text[1024];
    uint64_t ticks = 0, part;
    _cleanup_(closep) int fd = -EBADF;
    const char *p;
    ssize_t n;
    int field;

    (void)snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", (long)pid, (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return s;
    text[n] = '\0';
    p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return s;
    p += 2;
    s.state = *p;
    /* state is field 3, utime 14, stime 15 */
    for (field = 3; field < 16 && *p; field++) {
        size_t width = strcspn(p, " ");

        if (field >= 14 && str_parse_u64(slice_of(p, width), INT64_MAX / 2, &part))
            ticks += part;
        p += width + (p[width] == ' ' ? 1 : 0);
    }
    s.cpu_ns = (int64_t)ticks * (NSEC_PER_SEC / sysconf(_SC_CLK_TCK));
    return s;
}

/* Silent for longer than WATCH_HUNG_S and not to blame: the machine lets it wait. */
static bool is_starved(const struct role *role, const struct thread_stat *s)
{
    if (s->state == 'D')
        return true;
    return s->state == 'R' && role->cpu_ns >= 0 &&
           (s->cpu_ns - role->cpu_ns) * 100 < (role->silent_ns - role->sampled_ns) * BUSY_PERCENT;
}

static void tell_silence(const struct role *role)
{
    char pid[16], seconds[24];

    if (role->silent_ns < TOLD_S * NSEC_PER_SEC || !role->has_beaten)
        return;
    (void)snprintf(pid, sizeof pid, "%ld", (long)role->pid);
    (void)snprintf(seconds, sizeof seconds, "%.1f", (double)role->silent_ns / 1e9);
    log_warn("role was silent and goes on", "name", role->name, "pid", pid, "seconds", seconds,
             NULL);
}

bool watch_look(struct role *role, int64_t step_ns, char ret_why[96])
{
    struct thread_stat s;
    int64_t limit;

    if (role->pid == 0 || role->is_hung)
        return false;
    if (take_beats(role)) {
        tell_silence(role);
        role->has_beaten = true;
        role->silent_ns = 0;
        role->cpu_ns = -1;
        return false;
    }
    role->silent_ns += MIN(step_ns, WATCH_STEP_MAX_NS);
    limit = (role->has_beaten ? WATCH_HUNG_S : WATCH_START_S) * NSEC_PER_SEC;
    if (role->silent_ns < limit / 2)
        return false;
    s = thread_stat_read(role->pid);
    if (role->cpu_ns < 0) {
        role->cpu_ns = s.cpu_ns;
        role->sampled_ns = role->silent_ns;
    }
    if (role->silent_ns < limit || s.state == 't' ||
        (role->silent_ns < WATCH_STARVED_S * NSEC_PER_SEC && is_starved(role, &s)))
        return false;
    role->is_hung = true;
    (void)snprintf(ret_why, 96, "no heartbeat for %.0f s, state %c, %.1f s of processor",
                   (double)role->silent_ns / 1e9, s.state ? s.state : '?',
                   (double)(s.cpu_ns - role->cpu_ns) / 1e9);
    return true;
}
