/* limits_tool.c - cgroup.h and disk.h by hand, for test_cgroups.py, test_disk_pool.py and test_probe.py in tests/system
 * and for the QEMU test.
 *
 * usage: limits_tool INSTANCE [v1]
 *        limits_tool --probe [--data-dir D] [--text]     as abx-engine does
 * Reads one command per line, answers each with one line: "ok US VALUE..." (US = microseconds the
 * library call took) or "err CODE TEXT". Ends at end of input.
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/disk.h"
#include "engine/probe.h"

#define WORDS_MAX 16

struct tool {
    const char *instance;
    struct cgroup_tree *tree;
    struct disk_pool *pool;
    int64_t us;
    char value[4096]; /* what the command has to say */
};

struct command {
    const char *name;
    int n_args; /* at least */
    int (*run)(struct tool *t, char **arg, struct abx_err *err);
};

static uint64_t number(const char *s)
{
    uint64_t n = 0;

    (void)str_parse_u64(slice_str(s), UINT64_MAX, &n);
    return n;
}

/* Times one library call. */
#define TIMED(t, call)                                                                             \
    ({                                                                                             \
        int64_t timed_from_ = time_mono_ns();                                                      \
        int timed_r_ = (call);                                                                     \
        (t)->us = (time_mono_ns() - timed_from_) / 1000;                                           \
        timed_r_;                                                                                  \
    })

static int cmd_mode(struct tool *t, char **arg, struct abx_err *err)
{
    static const char *const names[] = { "v1", "hybrid", "v2" };
    struct cgroup_enforced e = cgroup_tree_enforced(t->tree);

    (void)snprintf(t->value, sizeof t->value, "%s memory=%d cpu=%d pids=%d",
                   names[cgroup_tree_mode(t->tree)], e.memory, e.cpu, e.pids);
    return 0;
}

static struct cgroup_limits limits_of(char **arg)
{
    return (struct cgroup_limits){ .cpu_count = (uint32_t)number(arg[1]),
                                   .memory_bytes = number(arg[2]) << 20,
                                   .pids = (uint32_t)number(arg[3]) };
}

/* create ID CPUS MEMORY_MB PIDS UID */
static int cmd_create(struct tool *t, char **arg, struct abx_err *err)
{
    struct cgroup_limits limits = limits_of(arg);

    return TIMED(t, cgroup_create(t->tree, arg[0], &limits, (uid_t)number(arg[4]), err));
}

/* limits ID CPUS MEMORY_MB PIDS */
static int cmd_limits(struct tool *t, char **arg, struct abx_err *err)
{
    struct cgroup_limits limits = limits_of(arg);

    return TIMED(t, cgroup_set_limits(t->tree, arg[0], &limits, err));
}

static enum cgroup_part part_of(const char *s)
{
    return strcmp(s, "guest") == 0 ? CGROUP_GUEST : CGROUP_USER;
}

/* Becomes the program `arg`; dies with the tool, and leaves its input and output alone. */
static _Noreturn void become(char **arg)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null, 0);
    (void)dup2(2, 1);
    (void)execvp(arg[0], arg);
    _exit(127);
}

static pid_t clone_into(int cgroup_fd)
{
    struct clone_args args = { .exit_signal = SIGCHLD };

    if (cgroup_fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* run ID guest|user [uid=N] PROGRAM ARG...: the child joins by itself; the time is that of joining. */
static int cmd_run(struct tool *t, char **arg, struct abx_err *err)
{
    _cleanup_(closep) int cgroup_fd = -EBADF;
    int join[CGROUP_JOIN_MAX], sync[2];
    uid_t uid = 0;
    int64_t us = -1;
    size_t n = 0;
    pid_t pid;
    int r = cgroup_open_v2(t->tree, arg[0], part_of(arg[1]), &cgroup_fd, err);

    if (r == 0)
        r = cgroup_open_join(t->tree, arg[0], part_of(arg[1]), join, &n, err);
    if (r < 0)
        return r;
    if (strncmp(arg[2], "uid=", 4) == 0) {
        uid = (uid_t)number(arg[2] + 4);
        arg++;
    }
    if (pipe(sync) < 0)
        return err_sys(err, errno, "pipe");
    pid = clone_into(cgroup_fd);
    if (pid == 0) {
        int64_t from = time_mono_ns();

        for (size_t i = 0; i < n; i++)
            if (write(join[i], "0", 1) != 1)
                _exit(126);
        us = (time_mono_ns() - from) / 1000;
        if (write(sync[1], &us, sizeof us) != sizeof us || (uid && setuid(uid) < 0))
            _exit(126);
        become(arg + 2);
    }
    for (size_t i = 0; i < n; i++)
        fd_close(join[i]);
    fd_close(sync[1]);
    (void)fd_read_all(sync[0], &us, sizeof us);
    fd_close(sync[0]);
    if (pid < 0)
        return err_sys(err, errno, "clone3");
    t->us = us;
    (void)snprintf(t->value, sizeof t->value, "%d", (int)pid);
    return us < 0 ? err_set(err, ABX_INTERNAL, "the child could not join") : 0;
}

/* attach ID INIT_PID DAEMON_PID */
static int cmd_attach(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t,
                 cgroup_attach(t->tree, arg[0], (pid_t)number(arg[1]), (pid_t)number(arg[2]), err));
}

/* fork PROGRAM ARG...: outside of any group. */
static int cmd_fork(struct tool *t, char **arg, struct abx_err *err)
{
    pid_t pid = fork();

    if (pid == 0)
        become(arg);
    (void)snprintf(t->value, sizeof t->value, "%d", (int)pid);
    return pid < 0 ? err_sys(err, errno, "fork") : 0;
}

/* wait PID TIMEOUT_MS: exit status, or 128 + signal. */
static int cmd_wait(struct tool *t, char **arg, struct abx_err *err)
{
    int64_t deadline = time_mono_ns() + (int64_t)number(arg[1]) * NSEC_PER_MSEC;
    int status;

    for (;;) {
        pid_t got = waitpid((pid_t)number(arg[0]), &status, WNOHANG);

        if (got < 0)
            return err_sys(err, errno, "wait for %s", arg[0]);
        if (got > 0)
            break;
        if (time_mono_ns() >= deadline)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "process %s still runs", arg[0]);
        (void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
    (void)snprintf(t->value, sizeof t->value, "%d",
                   WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    return 0;
}

/* freeze ID 0|1 TIMEOUT_MS */
static int cmd_freeze(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_freeze(t->tree, arg[0], arg[1][0] == '1', (int)number(arg[2]), err));
}

static int cmd_kill(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_kill(t->tree, arg[0], (int)number(arg[1]), err));
}

static int cmd_remove(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_remove(t->tree, arg[0], err));
}

static int cmd_usage(struct tool *t, char **arg, struct abx_err *err)
{
    struct cgroup_usage u;
    int r = TIMED(t, cgroup_usage_read(t->tree, arg[0], &u, err));

    if (r == 0)
        (void)snprintf(t->value, sizeof t->value,
                       "cpu_us=%llu memory=%llu cache=%llu processes=%u oom_kills=%llu",
                       (unsigned long long)u.cpu_us, (unsigned long long)u.memory_bytes,
                       (unsigned long long)u.cache_bytes, u.processes,
                       (unsigned long long)u.oom_kills);
    return r;
}

static int cmd_has(struct tool *t, char **arg, struct abx_err *err)
{
    (void)snprintf(t->value, sizeof t->value, "%d",
                   cgroup_has_process(t->tree, arg[0], (pid_t)number(arg[1])));
    return 0;
}

static int cmd_adopt(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_tree_adopt_host(t->tree, (pid_t)number(arg[0]), err));
}

static int add_id(void *user, const char *id)
{
    struct tool *t = user;
    size_t n = strlen(t->value);

    (void)snprintf(t->value + n, sizeof t->value - n, "%s%s", n ? " " : "", id);
    return 0;
}

static int cmd_each(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_each(t->tree, add_id, t, err));
}

static int cmd_remove_tree(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, cgroup_tree_remove(t->tree, err));
}

/* pool DATA_DIR SIZE_MB: opens it; kind, path and why it is plain. */
static int cmd_pool(struct tool *t, char **arg, struct abx_err *err)
{
    struct disk_opts opts = { .data_dir = arg[0],
                              .instance = t->instance,
                              .size_bytes = number(arg[1]) << 20 };
    int r;

    if (t->pool)
        disk_pool_free(TAKE_PTR(t->pool));
    r = TIMED(t, disk_pool_open(&opts, &t->pool, err));
    if (r == 0)
        (void)snprintf(t->value, sizeof t->value, "%s %s %s",
                       disk_kind_name(disk_pool_kind(t->pool)), disk_pool_path(t->pool),
                       disk_pool_why_plain(t->pool));
    return r;
}

/* upper ID LIMIT_KB */
static int cmd_upper(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_create(t->pool, arg[0], number(arg[1]) << 10, err));
}

static int cmd_upper_limit(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_set_limit(t->pool, arg[0], number(arg[1]) << 10, err));
}

static int cmd_upper_usage(struct tool *t, char **arg, struct abx_err *err)
{
    uint64_t bytes = 0;
    int r = TIMED(t, disk_upper_usage(t->pool, arg[0], &bytes, err));

    (void)snprintf(t->value, sizeof t->value, "%llu", (unsigned long long)bytes);
    return r;
}

/* upper-clone FROM ID */
static int cmd_upper_clone(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_clone(t->pool, arg[0], arg[1], -EBADF, err));
}

/* upper-exchange ID OTHER MARK LOOK */
static int cmd_upper_exchange(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_exchange(t->pool, arg[0], arg[1], arg[2], number(arg[3]) != 0, err));
}

static int cmd_trash(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_trash(t->pool, arg[0], err));
}

static int cmd_empty(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_trash_empty(t->pool, err));
}

static int cmd_uppers(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_upper_each(t->pool, add_id, t, err));
}

static int cmd_unmount(struct tool *t, char **arg, struct abx_err *err)
{
    return TIMED(t, disk_pool_unmount(t->pool, err));
}

static const struct command commands[] = {
    { "mode", 0, cmd_mode },
    { "create", 5, cmd_create },
    { "limits", 4, cmd_limits },
    { "run", 3, cmd_run },
    { "fork", 1, cmd_fork },
    { "attach", 3, cmd_attach },
    { "wait", 2, cmd_wait },
    { "freeze", 3, cmd_freeze },
    { "kill", 2, cmd_kill },
    { "remove", 1, cmd_remove },
    { "usage", 1, cmd_usage },
    { "has", 2, cmd_has },
    { "adopt", 1, cmd_adopt },
    { "each", 0, cmd_each },
    { "remove-tree", 0, cmd_remove_tree },
    { "pool", 2, cmd_pool },
    { "upper", 2, cmd_upper },
    { "upper-limit", 2, cmd_upper_limit },
    { "upper-usage", 1, cmd_upper_usage },
    { "upper-clone", 2, cmd_upper_clone },
    { "upper-exchange", 4, cmd_upper_exchange },
    { "trash", 1, cmd_trash },
    { "empty", 0, cmd_empty },
    { "uppers", 0, cmd_uppers },
    { "unmount", 0, cmd_unmount },
};

#define FIRST_OF_POOL 16 /* these need `pool` before */
_Static_assert(ARRAY_SIZE(commands) == FIRST_OF_POOL + 9, "see above");

static int dispatch(struct tool *t, char *line, struct abx_err *err)
{
    char *word[WORDS_MAX + 1] = { NULL };
    int n = 0;

    for (char *s = line, *w; n < WORDS_MAX && (w = strsep(&s, " \n")) != NULL;)
        if (*w)
            word[n++] = w;
    if (n == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "empty line");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(word[0], commands[i].name) == 0 && n - 1 >= commands[i].n_args &&
            (t->pool || i < FIRST_OF_POOL))
            return commands[i].run(t, word + 1, err);
    return err_set(err, ABX_INVALID_ARGUMENT, "no such command: %s with %d words", word[0], n - 1);
}

static int run(int argc, char **argv)
{
    struct tool t = { .instance = argv[1] };
    struct abx_err err;
    char line[4096];
    struct cgroup_open_opts opts = { .without_v2 = argc > 2 && strcmp(argv[2], "v1") == 0 };

    if (argc < 2) {
        fprintf(stderr, "usage: limits_tool INSTANCE [v1]\n");
        return 2;
    }
    if (cgroup_tree_open_with(argv[1], &opts, &t.tree, &err) < 0) {
        printf("err %s %s\n", err_code_name(err.code), err.msg);
        return 1;
    }
    printf("ok 0 ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int r;

        t.us = 0;
        t.value[0] = '\0';
        r = dispatch(&t, line, &err);
        if (r < 0)
            printf("err %s %s\n", err_code_name(r), err.msg);
        else
            printf("ok %lld %s\n", (long long)t.us, t.value);
        (void)fflush(stdout);
    }
    disk_pool_free(t.pool);
    cgroup_tree_free(t.tree);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--probe") == 0)
        return probe_main(argc, argv);
    return run(argc, argv);
}
