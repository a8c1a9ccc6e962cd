/* supervisor_watch.c - see supervisor_watch.h. */
#include "cli/supervisor_watch.h"

#include <assert.h>
#include <dirent.h>
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

int watch_add(struct role *role, const char *thread, const char *option, bool may_wait,
              struct abx_err *err)
{
    int fd;

    assert(role->n_beats < ROLE_BEATS_MAX);
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, errno, "heartbeat of %s", role->name);
    role->beats[role->n_beats++] =
        (struct role_beat){ .fd = fd, .thread = thread, .may_wait = may_wait, .cpu_ns = -1 };
    role_arg_fd(role, option, fd);
    return 0;
}

void watch_done(struct role *role)
{
    while (role->n_beats > 0)
        fd_close(TAKE_FD(role->beats[--role->n_beats].fd));
}

static bool take_beats(const struct role_beat *b)
{
    uint64_t n;

    return read(b->fd, &n, sizeof n) == (ssize_t)sizeof n;
}

void watch_reset(struct role *role)
{
    for (struct role_beat *b = role->beats; b < role->beats + role->n_beats; b++) {
        (void)take_beats(b);
        b->silent_ns = 0;
        b->cpu_ns = -1;
        b->has_beaten = false;
    }
    role->is_hung = false;
}

/* Of /proc/<pid>/task/<tid>/<name>; "" when it cannot be read. */
static void read_of_thread(pid_t pid, const char *tid, const char *name, char *to, size_t size)
{
    char path[96];
    _cleanup_(closep) int fd = -EBADF;
    ssize_t n;

    (void)snprintf(path, sizeof path, "/proc/%ld/task/%.16s/%s", (long)pid, tid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, to, size - 1);
    to[MAX(n, (ssize_t)0)] = '\0';
}

/* Its number by its name; false when there is none (any more). */
static bool find_thread(pid_t pid, const char *thread, char tid[17])
{
    char path[64], name[32];
    struct dirent *entry;
    bool is_it = false;
    DIR *dir;

    (void)snprintf(tid, 17, "%ld", (long)pid);
    if (!thread)
        return true;
    (void)snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    dir = opendir(path);
    while (dir && !is_it && (entry = readdir(dir)) != NULL) {
        (void)snprintf(tid, 17, "%.16s", entry->d_name);
        read_of_thread(pid, tid, "comm", name, sizeof name);
        name[strcspn(name, "\n")] = '\0';
        is_it = strcmp(name, thread) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return is_it;
}

/* The name in parentheses may hold anything: fields are counted from the last parenthesis. */
static struct thread_stat thread_stat_read(pid_t pid, const char *thread)
{
    struct thread_stat s = { 0, 0 };
    char tid[17], text[1024];
    uint64_t ticks = 0, part;
    const char *p;
    int field;

    if (!find_thread(pid, thread, tid))
        return s;
    read_of_thread(pid, tid, "stat", text, sizeof text);
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
static bool is_starved(const struct role_beat *b, const struct thread_stat *s)
{
    if (s->state == 'D')
        return true;
    return s->state == 'R' && b->cpu_ns >= 0 &&
           (s->cpu_ns - b->cpu_ns) * 100 < (b->silent_ns - b->sampled_ns) * BUSY_PERCENT;
}

static void tell_silence(const struct role *role, const struct role_beat *b)
{
    char pid[16], seconds[24];

    if (b->silent_ns < TOLD_S * NSEC_PER_SEC || !b->has_beaten)
        return;
    (void)snprintf(pid, sizeof pid, "%ld", (long)role->pid);
    (void)snprintf(seconds, sizeof seconds, "%.1f", (double)b->silent_ns / 1e9);
    log_warn("role was silent and goes on", "name", role->name, "pid", pid, "seconds", seconds,
             b->thread ? "thread" : NULL, b->thread, NULL);
}

static bool is_hung(const struct role *role, struct role_beat *b, int64_t step_ns, char ret_why[96])
{
    struct thread_stat s;
    int64_t limit;

    if (take_beats(b)) {
        tell_silence(role, b);
        b->has_beaten = true;
        b->silent_ns = 0;
        b->cpu_ns = -1;
        return false;
    }
    b->silent_ns += MIN(step_ns, WATCH_STEP_MAX_NS);
    limit = (b->has_beaten ? WATCH_HUNG_S : WATCH_START_S) * NSEC_PER_SEC;
    if (b->silent_ns < limit / 2)
        return false;
    s = thread_stat_read(role->pid, b->thread);
    if (b->may_wait && s.state == 'D') {
        b->silent_ns = 0;
        b->cpu_ns = -1;
        return false;
    }
    if (b->cpu_ns < 0) {
        b->cpu_ns = s.cpu_ns;
        b->sampled_ns = b->silent_ns;
    }
    if (b->silent_ns < limit || s.state == 't' ||
        (b->silent_ns < WATCH_STARVED_S * NSEC_PER_SEC && is_starved(b, &s)))
        return false;
    (void)snprintf(ret_why, 96, "no heartbeat%s%.16s for %.0f s, state %c, %.1f s of processor",
                   b->thread ? " of " : "", b->thread ? b->thread : "", (double)b->silent_ns / 1e9,
                   s.state ? s.state : '?', (double)(s.cpu_ns - b->cpu_ns) / 1e9);
    return true;
}

bool watch_look(struct role *role, int64_t step_ns, char ret_why[96])
{
    if (role->pid == 0 || role->is_hung)
        return false;
    for (size_t i = 0; i < role->n_beats && !role->is_hung; i++)
        role->is_hung = is_hung(role, &role->beats[i], step_ns, ret_why);
    return role->is_hung;
}
