/* cgroup.c - the tree of an instance over all hierarchies; see cgroup.h.
 *
 * A sandbox has one folder in the v2 tree and one in each v1 hierarchy in use. The v2 part is made
 * first and removed last, so that what has processes can be killed as long as any folder exists.
 */
#include "engine/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/cgroup_internal.h"
#include "engine/mountinfo.h"

#define SPIN_NS (2 * NSEC_PER_MSEC)
#define SLEEP_MAX_NS (2 * NSEC_PER_MSEC)
#define PID_MAX_DEFAULT 32768u /* of the kernel */
#define REMOVE_WAIT_MS 200
#define PROCS_MAX ((size_t)4 << 20)
#define PROC_CGROUP_MAX ((size_t)256 << 10)

int cgroup_check_name(const char *id, struct abx_err *err)
{
    size_t n = strlen(id);

    if (n == 0 || n > CGROUP_NAME_MAX || id[0] == '.' || strchr(id, '/') || strchr(id, '\n'))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%.80s' can't be the name of a cgroup", id);
    return 0;
}

int cgroup_open_dir(int dirfd, const char *name)
{
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int cgroup_make_dir(int dirfd, const char *name, int *ret_fd, struct abx_err *err)
{
    int fd;

    if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make cgroup '%s'", name);
    fd = cgroup_open_dir(dirfd, name);
    if (fd < 0)
        return err_sys(err, errno, "open cgroup '%s'", name);
    *ret_fd = fd;
    return 0;
}

int cgroup_read_text(int dirfd, const char *file, char *to, size_t size, struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return err_sys(err, errno, "open cgroup file '%s'", file);
    n = fd_read_all(fd, to, size - 1);
    if (n < 0)
        return err_sys(err, errno, "read cgroup file '%s'", file);
    to[n] = '\0';
    return 0;
}

int cgroup_read_u64(int dirfd, const char *file, uint64_t *ret, struct abx_err *err)
{
    char text[64];
    size_t n;
    int r = cgroup_read_text(dirfd, file, text, sizeof text, err);

    if (r < 0)
        return r;
    n = strcspn(text, "\n");
    if (slice_eq_str(slice_of(text, n), "max")) {
        *ret = UINT64_MAX;
        return 0;
    }
    if (!str_parse_u64(slice_of(text, n), UINT64_MAX, ret))
        return err_set(err, ABX_INTERNAL, "cgroup file '%s' holds no number", file);
    return 0;
}

int cgroup_read_value(int dirfd, const char *file, const char *key, uint64_t *ret,
                      struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(65536);
    int r = file_read(dirfd, file, &text, err);

    if (r < 0)
        return r;
    if (!cgroup_find_value(buf_slice(&text), key, ret))
        return err_set(err, ABX_INTERNAL, "cgroup file '%s' has no '%s'", file, key);
    return 0;
}

int cgroup_each_process(int dirfd, int (*fn)(void *user, struct slice pid, struct abx_err *err),
                        void *user, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(PROCS_MAX);
    struct slice rest;
    int count = 0;
    int r = file_read(dirfd, "cgroup.procs", &text, err);

    if (r < 0)
        return r;
    rest = buf_slice(&text);
    while (rest.n > 0) {
        const uint8_t *end = memchr(rest.p, '\n', rest.n);
        size_t n = end ? (size_t)(end - rest.p) : rest.n;

        r = fn(user, slice_of(rest.p, n), err);
        if (r < 0)
            return r;
        count += r;
        rest = end ? slice_of(end + 1, rest.n - n - 1) : slice_of(NULL, 0);
    }
    return count;
}

int cgroup_make_tree(int base_fd, const char *instance, int *ret_top_fd, int *ret_host_fd,
                     int *ret_sandboxes_fd, struct abx_err *err)
{
    char name[CGROUP_NAME_MAX + 8];
    int r;

    (void)snprintf(name, sizeof name, "abx-%s", instance);
    r = cgroup_make_dir(base_fd, name, ret_top_fd, err);
    if (r == 0)
        r = cgroup_make_dir(*ret_top_fd, "host", ret_host_fd, err);
    return r < 0 ? r : cgroup_make_dir(*ret_top_fd, "sandboxes", ret_sandboxes_fd, err);
}

int cgroup_set_pids(int fd, uint32_t pids, struct abx_err *err)
{
    return file_printf(fd, "pids.max", err, "%u", pids ? pids : CGROUP_PIDS_DEFAULT);
}

int cgroup_read_pids(int fd, uint32_t *ret, struct abx_err *err)
{
    uint64_t n;
    int r = cgroup_read_u64(fd, "pids.current", &n, err);

    if (r == 0)
        *ret = (uint32_t)n;
    return r;
}

int cgroup_remove_dir(int parent_fd, const char *name, struct abx_err *err)
{
    int64_t deadline = time_mono_ns() + REMOVE_WAIT_MS * NSEC_PER_MSEC;

    while (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0) {
        struct timespec pause = { 0, 500000 };

        if (errno == ENOENT)
            return 0;
        if (errno != EBUSY || time_mono_ns() >= deadline)
            return err_sys(err, errno, "remove cgroup '%s'", name);
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

uint64_t cgroup_total_memory(void)
{
    struct sysinfo info;

    if (sysinfo(&info) < 0)
        return 0;
    return (uint64_t)info.totalram * info.mem_unit;
}

uint32_t cgroup_total_pids(void)
{
    static const char *const files[] = { "/proc/sys/kernel/pid_max",
                                         "/proc/sys/kernel/threads-max" };
    uint64_t least = UINT64_MAX, n;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (cgroup_read_u64(AT_FDCWD, files[i], &n, NULL) == 0)
            least = MIN(least, n);
    return least <= UINT32_MAX ? (uint32_t)least : PID_MAX_DEFAULT;
}

int cgroup_wait(int (*ready)(int fd, struct abx_err *err), int fd, int timeout_ms,
                struct abx_err *err)
{
    int64_t start = time_mono_ns();
    int64_t deadline = start + timeout_ms * NSEC_PER_MSEC;
    struct timespec pause = { 0, 100000 };

    for (;;) {
        int64_t now;
        int r = ready(fd, err);

        if (r != 0)
            return MIN(r, 0);
        now = time_mono_ns();
        if (now >= deadline)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "not done within %d ms", timeout_ms);
        if (now - start < SPIN_NS) {
            (void)sched_yield();
            continue;
        }
        (void)nanosleep(&pause, NULL);
        pause.tv_nsec = MIN(pause.tv_nsec * 2, (long)SLEEP_MAX_NS);
    }
}

static struct cgroup_tree *tree_alloc(const char *instance)
{
    struct cgroup_tree *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    (void)snprintf(t->instance, sizeof t->instance, "%s", instance);
    t->v2_host_fd = t->v2_sandboxes_fd = -EBADF;
    for (size_t i = 0; i < CGROUP_V1_MAX; i++)
        t->v1[i].host_fd = t->v1[i].sandboxes_fd = -EBADF;
    return t;
}

/* The controllers of all v1 hierarchies that are mounted. */
static unsigned v1_offered(struct slice mounts)
{
    struct mountinfo m;
    unsigned set = 0;

    while (mountinfo_next(&mounts, &m)) {
        if (strcmp(m.fstype, "cgroup") != 0)
            continue;
        for (int c = 0; c < CGROUP_CONTROLLERS_; c++)
            if (mountinfo_has_word(m.super_options, cgroup_controller_name(c)))
                set |= CGROUP_BIT(c);
    }
    return set;
}

static int tree_find(struct cgroup_tree *t, const struct cgroup_open_opts *opts,
                     struct slice proc_cgroup, struct slice mounts, struct abx_err *err)
{
    _cleanup_(closep) int base_fd = -EBADF;
    struct cgroup_choice choice;
    unsigned v2 = 0;
    int r;

    if (!opts->without_v2) {
        r = cgroup_v2_find(t, proc_cgroup, mounts, &base_fd, &v2, err);
        if (r < 0)
            return r;
    }
    choice = cgroup_choose(t->has_v2, v2, v1_offered(mounts));
    if (choice.missing & CGROUP_BIT(CGROUP_FREEZER))
        return err_set(
            err, ABX_FAILED_PRECONDITION,
            "no cgroup v2 tree and no v1 freezer: nothing can kill a whole sandbox; in a "
            "container, give it a writable /sys/fs/cgroup");
    if (t->has_v2) {
        r = cgroup_v2_prepare(t, base_fd, choice.v2, !opts->without_move, err);
        if (r < 0)
            return r;
    }
    return cgroup_v1_open(t, proc_cgroup, mounts, choice.v1, err);
}

int cgroup_tree_open_with(const char *instance, const struct cgroup_open_opts *opts,
                          struct cgroup_tree **ret, struct abx_err *err)
{
    _cleanup_(cgroup_tree_freep) struct cgroup_tree *t = NULL;
    _cleanup_(buf_done) struct buf self = BUF_INIT(PROC_CGROUP_MAX);
    _cleanup_(buf_done) struct buf mounts = BUF_INIT(MOUNTINFO_MAX);
    int r = cgroup_check_name(instance, err);

    if (r < 0)
        return r;
    t = tree_alloc(instance);
    if (!t)
        return err_oom(err);
    r = file_read(AT_FDCWD, "/proc/self/cgroup", &self, err);
    if (r < 0)
        return r;
    r = mountinfo_read(&mounts, err);
    if (r < 0)
        return r;
    r = tree_find(t, opts, buf_slice(&self), buf_slice(&mounts), err);
    if (r < 0) {
        (void)cgroup_tree_remove(t, NULL); /* nothing that is in use goes with it */
        return r;
    }
    *ret = TAKE_PTR(t);
    return 0;
}

int cgroup_tree_open(const char *instance, struct cgroup_tree **ret, struct abx_err *err)
{
    return cgroup_tree_open_with(instance, &(struct cgroup_open_opts){ 0 }, ret, err);
}

void cgroup_tree_free(struct cgroup_tree *t)
{
    if (!t)
        return;
    fd_close(t->v2_host_fd);
    fd_close(t->v2_sandboxes_fd);
    for (size_t i = 0; i < CGROUP_V1_MAX; i++) {
        fd_close(t->v1[i].host_fd);
        fd_close(t->v1[i].sandboxes_fd);
    }
    free(t);
}

enum cgroup_mode cgroup_tree_mode(const struct cgroup_tree *t)
{
    if (!t->has_v2)
        return CGROUP_V1;
    return t->n_v1 > 0 ? CGROUP_HYBRID : CGROUP_V2;
}

struct cgroup_enforced cgroup_tree_enforced(const struct cgroup_tree *t)
{
    unsigned have = t->v2_controllers;

    for (size_t i = 0; i < t->n_v1; i++)
        have |= t->v1[i].controllers;
    return (struct cgroup_enforced){ .memory = have & CGROUP_BIT(CGROUP_MEMORY),
                                     .cpu = have & CGROUP_BIT(CGROUP_CPU),
                                     .pids = have & CGROUP_BIT(CGROUP_PIDS) };
}

static int remove_instance(const char *instance, int sandboxes_fd, struct abx_err *err)
{
    _cleanup_(closep) int top = cgroup_open_dir(sandboxes_fd, "..");
    _cleanup_(closep) int base = top < 0 ? -1 : cgroup_open_dir(top, "..");
    char name[CGROUP_NAME_MAX + 8];

    (void)snprintf(name, sizeof name, "abx-%s", instance);
    if (base < 0)
        return err_sys(err, errno, "open the groups around cgroup '%s'", name);
    if ((unlinkat(top, "sandboxes", AT_REMOVEDIR) < 0 && errno != ENOENT) ||
        (unlinkat(top, "host", AT_REMOVEDIR) < 0 && errno != ENOENT) ||
        (unlinkat(base, name, AT_REMOVEDIR) < 0 && errno != ENOENT))
        return err_sys(err, errno, "remove cgroup '%s'", name);
    return 0;
}

int cgroup_tree_remove(struct cgroup_tree *t, struct abx_err *err)
{
    int r = 0;

    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = remove_instance(t->instance, t->v1[i].sandboxes_fd, err);
    if (r == 0 && t->v2_sandboxes_fd >= 0)
        r = remove_instance(t->instance, t->v2_sandboxes_fd, err);
    return r;
}

int cgroup_tree_leave(struct cgroup_tree *t, pid_t pid, struct abx_err *err)
{
    static const char file[] = "../../cgroup.procs";
    int r = 0;

    if (t->has_v2)
        r = file_printf(t->v2_host_fd, file, err, "%d", (int)pid);
    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = file_printf(t->v1[i].host_fd, file, err, "%d", (int)pid);
    return r < 0 ? err_wrap(err, r, "leave the cgroup 'host'") : 0;
}

int cgroup_tree_adopt_host(struct cgroup_tree *t, pid_t pid, struct abx_err *err)
{
    int r = 0;

    if (t->has_v2)
        r = file_printf(t->v2_host_fd, "cgroup.procs", err, "%d", (int)pid);
    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = file_printf(t->v1[i].host_fd, "cgroup.procs", err, "%d", (int)pid);
    return r < 0 ? err_wrap(err, r, "move process %d into the host's cgroup", (int)pid) : 0;
}

/* The folder of `id` in the tree that freezes and kills. */
static int open_main(struct cgroup_tree *t, const char *id, int *ret_fd, struct abx_err *err)
{
    int dirfd = t->has_v2 ? t->v2_sandboxes_fd : cgroup_v1_with(t, CGROUP_FREEZER)->sandboxes_fd;
    int r = cgroup_check_name(id, err);
    int fd;

    if (r < 0)
        return r;
    fd = cgroup_open_dir(dirfd, id);
    if (fd < 0)
        return err_sys(err, errno, "cgroup of sandbox '%s'", id);
    *ret_fd = fd;
    return 0;
}

/* Makes the group in every hierarchy. *made counts the v2 tree (if any) and v1 hierarchies done. */
static int create_all(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                      uid_t uid_base, size_t *made, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = 0;

    if (t->has_v2) {
        r = cgroup_v2_create(t, id, uid_base, err);
        if (r < 0)
            return r;
        *made = 1;
        r = open_main(t, id, &fd, err);
        if (r == 0)
            r = cgroup_v2_set_limits(t, fd, limits, err);
    }
    for (size_t i = 0; i < t->n_v1 && r == 0; i++) {
        r = cgroup_v1_create(t, &t->v1[i], id, err);
        if (r < 0)
            return r;
        *made += 1;
        r = cgroup_v1_set_limits(t, &t->v1[i], id, limits, err);
    }
    return r;
}

int cgroup_create(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                  uid_t uid_base, struct abx_err *err)
{
    size_t made = 0, i = 0;
    int r = cgroup_check_name(id, err);

    if (r < 0)
        return r;
    r = create_all(t, id, limits, uid_base, &made, err);
    if (r == 0)
        return 0;
    /* Only what was made here: a group that existed before belongs to someone. */
    if (t->has_v2 && made > 0) {
        (void)cgroup_v2_remove(t->v2_sandboxes_fd, id, NULL);
        made--;
    }
    for (; i < made; i++)
        (void)cgroup_v1_remove(&t->v1[i], id, NULL);
    return err_wrap(err, r, "cgroup of sandbox '%s'", id);
}

int cgroup_set_limits(struct cgroup_tree *t, const char *id, const struct cgroup_limits *limits,
                      struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = open_main(t, id, &fd, err);

    if (r == 0 && t->has_v2)
        r = cgroup_v2_set_limits(t, fd, limits, err);
    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = cgroup_v1_set_limits(t, &t->v1[i], id, limits, err);
    return r;
}

int cgroup_open_v2(struct cgroup_tree *t, const char *id, enum cgroup_part part, int *ret_fd,
                   struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r;

    if (!t->has_v2) {
        *ret_fd = -EBADF;
        return 0;
    }
    r = open_main(t, id, &fd, err);
    if (r < 0)
        return r;
    if (part != CGROUP_ROOT) {
        const char *name = part == CGROUP_GUEST ? "guest" : "user";
        int sub = cgroup_open_dir(fd, name);

        if (sub < 0)
            return err_sys(err, errno, "cgroup '%s' of sandbox '%s'", name, id);
        fd_close(fd);
        fd = sub;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* File of one v1 hierarchy through which processes of `part` join. */
static bool v1_join_path(const struct cgroup_v1 *h, const char *id, enum cgroup_part part,
                         const char *file, char *to, size_t size)
{
    bool in_user = cgroup_v1_has_user(h) && part == CGROUP_USER;

    return snprintf(to, size, "%s/%s%s", id, in_user ? "user/" : "", file) < (int)size;
}

int cgroup_attach(struct cgroup_tree *t, const char *id, pid_t init_pid, pid_t daemon_pid,
                  struct abx_err *err)
{
    char path[CGROUP_NAME_MAX + 32];
    int r = cgroup_check_name(id, err);

    for (size_t i = 0; i < t->n_v1 && r == 0; i++) {
        int dirfd = t->v1[i].sandboxes_fd;

        (void)v1_join_path(&t->v1[i], id, CGROUP_USER, "cgroup.procs", path, sizeof path);
        r = file_printf(dirfd, path, err, "%d", (int)init_pid);
        if (r < 0 || daemon_pid == 0)
            continue;
        (void)v1_join_path(&t->v1[i], id, CGROUP_GUEST, "cgroup.procs", path, sizeof path);
        r = file_printf(dirfd, path, err, "%d", (int)daemon_pid);
    }
    return r;
}

int cgroup_open_join(struct cgroup_tree *t, const char *id, enum cgroup_part part,
                     int ret_fds[CGROUP_JOIN_MAX], size_t *ret_n, struct abx_err *err)
{
    char path[CGROUP_NAME_MAX + 32];
    int fds[CGROUP_V1_MAX];
    size_t n = 0;
    int r = cgroup_check_name(id, err);

    for (; n < t->n_v1 && r == 0; n++) {
        (void)v1_join_path(&t->v1[n], id, part, "tasks", path, sizeof path);
        fds[n] = openat(t->v1[n].sandboxes_fd, path, O_WRONLY | O_CLOEXEC);
        if (fds[n] < 0)
            r = err_sys(err, errno, "open cgroup file '%s'", path);
    }
    if (r < 0) {
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        return r;
    }
    memcpy(ret_fds, fds, n * sizeof fds[0]);
    *ret_n = n;
    return 0;
}

int cgroup_freeze(struct cgroup_tree *t, const char *id, bool on, int timeout_ms,
                  struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = open_main(t, id, &fd, err);

    if (r < 0)
        return r;
    r = t->has_v2 ? cgroup_v2_freeze(fd, on, timeout_ms, err)
                  : cgroup_v1_freeze(fd, on, timeout_ms, err);
    return r < 0 ? err_wrap(err, r, "%s sandbox '%s'", on ? "freeze" : "thaw", id) : 0;
}

int cgroup_kill(struct cgroup_tree *t, const char *id, int timeout_ms, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = open_main(t, id, &fd, err);

    if (r < 0)
        return r;
    r = t->has_v2 ? cgroup_v2_kill(fd, timeout_ms, err) : cgroup_v1_kill(fd, timeout_ms, err);
    return r < 0 ? err_wrap(err, r, "kill sandbox '%s'", id) : 0;
}

int cgroup_remove(struct cgroup_tree *t, const char *id, struct abx_err *err)
{
    int r = cgroup_check_name(id, err);

    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = cgroup_v1_remove(&t->v1[i], id, err);
    if (r == 0 && t->has_v2)
        r = cgroup_v2_remove(t->v2_sandboxes_fd, id, err);
    return r;
}

bool cgroup_has_process(struct cgroup_tree *t, const char *id, pid_t pid)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(PROC_CGROUP_MAX);
    char file[64], path[PATH_MAX], group[PATH_MAX];
    int n;

    (void)snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
    if (file_read(AT_FDCWD, file, &text, NULL) < 0)
        return false;
    if (!cgroup_self_path(buf_slice(&text), t->check_controller, path, sizeof path))
        return false;
    n = snprintf(group, sizeof group, "%s/%s", t->check_path, id);
    return n < (int)sizeof group && strncmp(path, group, (size_t)n) == 0 &&
           (path[n] == '\0' || path[n] == '/');
}

int cgroup_usage_read(struct cgroup_tree *t, const char *id, struct cgroup_usage *ret,
                      struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct cgroup_usage usage = { 0 };
    int r = open_main(t, id, &fd, err);

    if (r == 0 && t->has_v2)
        r = cgroup_v2_usage(t, fd, &usage, err);
    for (size_t i = 0; i < t->n_v1 && r == 0; i++)
        r = cgroup_v1_usage(&t->v1[i], id, &usage, err);
    if (r < 0)
        return r;
    *ret = usage;
    return 0;
}

/* Calls fn for the groups in `dirfd` that are in none of `n_before` earlier folders. */
static int each_in(int dirfd, const int *before, size_t n_before,
                   int (*fn)(void *user, const char *id), void *user, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = NULL;
    struct dirent *e;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno, "open the cgroup of sandboxes");
    d = fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return err_oom(err);
    }
    while ((errno = 0, e = readdir(d)) != NULL) {
        bool seen = e->d_type != DT_DIR || e->d_name[0] == '.';
        int r;

        for (size_t i = 0; i < n_before && !seen; i++)
            seen = faccessat(before[i], e->d_name, F_OK, 0) == 0;
        if (seen)
            continue;
        r = fn(user, e->d_name);
        if (r != 0)
            return r;
    }
    return errno ? err_sys(err, errno, "list the cgroup of sandboxes") : 0;
}

int cgroup_each(struct cgroup_tree *t, int (*fn)(void *user, const char *id), void *user,
                struct abx_err *err)
{
    int dirs[CGROUP_V1_MAX + 1];
    size_t n = 0;
    int r = 0;

    for (size_t i = 0; i < t->n_v1; i++)
        dirs[n++] = t->v1[i].sandboxes_fd;
    if (t->has_v2)
        dirs[n++] = t->v2_sandboxes_fd;
    /* In the order of removal: one half gone is still found where the rest of it is. */
    for (size_t i = 0; i < n && r == 0; i++)
        r = each_in(dirs[i], dirs, i, fn, user, err);
    return r;
}
