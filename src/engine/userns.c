/* userns.c - uid range leases and idmap user namespaces. See userns.h.
 *
 * The lease file is a table of fixed slots, one per range, mapped by every process that uses it.
 * Each change is made under flock of a descriptor opened for it (a descriptor kept open would share
 * its lock with forked workers). A slot's state is stored last, so that a process killed in between
 * leaves a free slot. Released slots become free again only by a look at the uids of all processes,
 * done once for all of them when no free slot is left; slots of dead instances as well.
 *
 * An instance shows that it lives by a lock on one byte far behind the table, at a place computed from
 * its name, shared between its processes. Two instances at the same place only keep each other's
 * ranges alive.
 */
#include "engine/userns.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define LEASE_MAGIC "abx-uid-ranges 1\n"
#define INSTANCE_MAX 56
#define SUBID_FILE_MAX (1024 * 1024)
#define ALIVE_FIRST (INT64_C(1) << 40) /* where the locks of living instances begin */

enum slot_state { SLOT_FREE = 0, SLOT_LEASED = 1, SLOT_RELEASED = 2 };

struct lease_slot {
    char instance[INSTANCE_MAX];
    uint32_t state;
    uint32_t spare;
};

struct lease_file {
    char magic[32];
    uint32_t next; /* where the search for a free slot begins */
    uint32_t spare[7];
    struct lease_slot slots[UID_RANGE_COUNT];
};

struct uid_leases {
    char *path;
    int alive_fd; /* holds the lock of the instance */
    char instance[INSTANCE_MAX];
    struct lease_file *map;
    dev_t dev;
    ino_t ino;
    bool taken[UID_RANGE_COUNT]; /* by /etc/subuid or /etc/subgid */
};

/* The byte that the processes of an instance lock (FNV-1a of its name). */
static struct flock alive_lock(const char instance[INSTANCE_MAX], short type)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < INSTANCE_MAX && instance[i]; i++)
        hash = (hash ^ (uint8_t)instance[i]) * 16777619u;
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = ALIVE_FIRST + hash, .l_len = 1
    };
}

static uid_t slot_base(uint32_t slot)
{
    return UID_RANGE_FIRST + slot * UID_RANGE_SIZE;
}

static bool slot_of_uid(uint64_t uid, uint32_t *ret)
{
    if (uid < UID_RANGE_FIRST || uid > UID_RANGE_LAST)
        return false;
    *ret = (uint32_t)((uid - UID_RANGE_FIRST) / UID_RANGE_SIZE);
    return true;
}

/* Cuts `s` at the first `sep`; false when there is none. */
static bool cut(struct slice s, char sep, struct slice *ret_head, struct slice *ret_tail)
{
    const uint8_t *at = s.n > 0 ? memchr(s.p, sep, s.n) : NULL;

    if (!at)
        return false;
    *ret_head = slice_of(s.p, (size_t)(at - s.p));
    *ret_tail = slice_of(at + 1, s.n - ret_head->n - 1);
    return true;
}

static void mark_subid_line(struct slice line, bool taken[UID_RANGE_COUNT])
{
    struct slice name, rest, start_text, count_text;
    uint64_t start, count, end;

    if (!cut(line, ':', &name, &rest) || !cut(rest, ':', &start_text, &count_text))
        return;
    if (!str_parse_u64(start_text, UINT32_MAX, &start) ||
        !str_parse_u64(count_text, UINT32_MAX, &count) || count == 0)
        return;
    end = start + count - 1;
    for (uint32_t i = 0; i < UID_RANGE_COUNT; i++)
        if (start <= (uint64_t)slot_base(i) + UID_RANGE_SIZE - 1 && end >= slot_base(i))
            taken[i] = true;
}

void uid_ranges_mark_subids(struct slice text, bool taken[UID_RANGE_COUNT])
{
    while (text.n > 0) {
        struct slice line, rest;

        if (!cut(text, '\n', &line, &rest)) {
            line = text;
            rest = slice_of(NULL, 0);
        }
        mark_subid_line(line, taken);
        text = rest;
    }
}

static int mark_subid_file(const char *path, bool taken[UID_RANGE_COUNT], struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(SUBID_FILE_MAX);
    struct abx_err why = { 0 };
    int r = file_read(AT_FDCWD, path, &text, &why);

    if (r < 0 && why.sys == ENOENT)
        return 0;
    if (r < 0) {
        if (err)
            *err = why;
        return r;
    }
    uid_ranges_mark_subids(buf_slice(&text), taken);
    return 0;
}

/* Opens the lease file and takes its lock; closing the result gives it back. */
static int lease_lock(const char *path, int *ret_fd, struct stat *ret_st, struct abx_err *err)
{
    _cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "lock '%s'", path);
    if (fstat(fd, ret_st) < 0)
        return err_sys(err, errno, "stat '%s'", path);
    if (!S_ISREG(ret_st->st_mode) || ret_st->st_uid != geteuid() || (ret_st->st_mode & 022) != 0)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "'%s' is not a file that only its owner, uid %u, may write", path,
                       (unsigned)geteuid());
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int leases_lock(const struct uid_leases *l, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct stat st;
    int r = lease_lock(l->path, &fd, &st, err);

    if (r < 0)
        return r;
    /* Another file under this name means two tables at once. */
    if (st.st_dev != l->dev || st.st_ino != l->ino)
        return err_set(err, ABX_FAILED_PRECONDITION, "'%s' was replaced while in use", l->path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int leases_map(struct uid_leases *l, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct stat st;
    void *map;
    int r = lease_lock(l->path, &fd, &st, err);

    if (r < 0)
        return r;
    if (st.st_size == 0 && ftruncate(fd, sizeof(struct lease_file)) < 0)
        return err_sys(err, errno, "grow '%s'", l->path);
    if (st.st_size != 0 && st.st_size != (off_t)sizeof(struct lease_file))
        return err_set(err, ABX_FAILED_PRECONDITION, "'%s' is not a table of uid ranges", l->path);
    map = mmap(NULL, sizeof(struct lease_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_sys(err, errno, "map '%s'", l->path);
    l->map = map;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if (l->map->magic[0] == '\0')
        memcpy(l->map->magic, LEASE_MAGIC, sizeof LEASE_MAGIC);
    if (memcmp(l->map->magic, LEASE_MAGIC, sizeof LEASE_MAGIC) != 0)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "'%s' is a table of uid ranges of another version", l->path);
    /* The mapping keeps the open file, and with it the lock, past close. */
    if (flock(fd, LOCK_UN) < 0)
        return err_sys(err, errno, "unlock '%s'", l->path);
    return 0;
}

static int show_alive(struct uid_leases *l, struct abx_err *err)
{
    struct flock lock = alive_lock(l->instance, F_RDLCK);
    struct stat st;

    l->alive_fd = open(l->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (l->alive_fd < 0 || fstat(l->alive_fd, &st) < 0)
        return err_sys(err, errno, "open '%s'", l->path);
    if (st.st_dev != l->dev || st.st_ino != l->ino)
        return err_set(err, ABX_FAILED_PRECONDITION, "'%s' was replaced while in use", l->path);
    if (fcntl(l->alive_fd, F_OFD_SETLK, &lock) < 0)
        return err_sys(err, errno, "lock '%s'", l->path);
    return 0;
}

/* Does a process hold the lock of that instance? Our own counts as well. */
static int is_alive(const struct uid_leases *l, const char instance[INSTANCE_MAX], bool *ret,
                    struct abx_err *err)
{
    struct flock lock = alive_lock(instance, F_WRLCK);

    if (memcmp(instance, l->instance, INSTANCE_MAX) == 0) {
        *ret = true;
        return 0;
    }
    if (fcntl(l->alive_fd, F_OFD_GETLK, &lock) < 0)
        return err_sys(err, errno, "look at the locks of '%s'", l->path);
    *ret = lock.l_type != F_UNLCK;
    return 0;
}

static int make_parent(const char *path, struct abx_err *err)
{
    _cleanup_(freep) char *dir = strdup(path);
    char *slash = dir ? strrchr(dir, '/') : NULL;

    if (!dir)
        return err_oom(err);
    if (!slash || slash == dir)
        return 0;
    *slash = '\0';
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", dir);
    return 0;
}

int uid_leases_open(const char *path, const char *instance, struct uid_leases **ret,
                    struct abx_err *err)
{
    _cleanup_(uid_leases_freep) struct uid_leases *l = NULL;
    size_t n = strlen(instance);
    int r;

    if (n == 0 || n >= INSTANCE_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "instance '%.64s' has not 1 to %d bytes",
                       instance, INSTANCE_MAX - 1);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_oom(err);
    l->alive_fd = -EBADF;
    memcpy(l->instance, instance, n);
    l->path = strdup(path);
    if (!l->path)
        return err_oom(err);
    r = mark_subid_file("/etc/subuid", l->taken, err);
    if (r == 0)
        r = mark_subid_file("/etc/subgid", l->taken, err);
    if (r == 0)
        r = make_parent(path, err);
    if (r == 0)
        r = leases_map(l, err);
    if (r == 0)
        r = show_alive(l, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

void uid_leases_free(struct uid_leases *l)
{
    if (!l)
        return;
    if (l->map)
        (void)munmap(l->map, sizeof *l->map);
    fd_close(l->alive_fd);
    free(l->path);
    free(l);
}

int process_status_head(int procfd, const char *pid, char to[PROCESS_STATUS_HEAD])
{
    _cleanup_(closep) int fd = -EBADF;
    char path[64];
    ssize_t n;

    (void)snprintf(path, sizeof path, "%.20s/status", pid);
    fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    do
        n = read(fd, to, PROCESS_STATUS_HEAD - 1);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    to[n] = '\0';
    return 0;
}

/* Marks the ranges of the four uids in a "Uid:" line of /proc/<pid>/status. */
static void mark_status(struct slice text, bool busy[UID_RANGE_COUNT])
{
    struct slice line, rest;

    while (cut(text, '\n', &line, &rest)) {
        if (slice_starts_with(line, "Uid:\t")) {
            struct slice left = slice_of(line.p + 5, line.n - 5);

            for (int i = 0; i < 4; i++) {
                struct slice word = left;
                uint64_t uid;
                uint32_t slot;

                if (i < 3 && !cut(left, '\t', &word, &left))
                    return;
                if (str_parse_u64(word, UINT32_MAX, &uid) && slot_of_uid(uid, &slot))
                    busy[slot] = true;
            }
            return;
        }
        text = rest;
    }
}

/* Which ranges a process on this host has a uid of. */
static int find_busy(bool busy[UID_RANGE_COUNT], struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = opendir("/proc");
    struct dirent *e;

    if (!d)
        return err_sys(err, errno, "open '/proc'");
    while ((errno = 0, e = readdir(d)) != NULL) {
        char text[PROCESS_STATUS_HEAD];

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        if (process_status_head(dirfd(d), e->d_name, text) == 0)
            mark_status(slice_str(text), busy);
        else if (errno != ENOENT && errno != ESRCH) /* else it has ended meanwhile */
            return err_sys(err, errno, "uids of process %.20s", e->d_name);
    }
    return errno ? err_sys(err, errno, "read '/proc'") : 0;
}

/* Released ranges, and those of dead instances, become free where no process has a uid of them. */
static int sweep(struct uid_leases *l, struct abx_err *err)
{
    _cleanup_(freep) bool *busy = calloc(UID_RANGE_COUNT, sizeof *busy);
    int r;

    if (!busy)
        return err_oom(err);
    r = find_busy(busy, err);
    for (uint32_t i = 0; i < UID_RANGE_COUNT && r == 0; i++) {
        struct lease_slot *s = &l->map->slots[i];
        bool is_held = false;

        if (busy[i] || s->state == SLOT_FREE)
            continue;
        if (s->state == SLOT_LEASED)
            r = is_alive(l, s->instance, &is_held, err);
        if (r == 0 && !is_held)
            s->state = SLOT_FREE;
    }
    return r;
}

static bool find_free(const struct uid_leases *l, uint32_t *ret)
{
    for (uint32_t i = 0; i < UID_RANGE_COUNT; i++) {
        uint32_t slot = (l->map->next % UID_RANGE_COUNT + i) % UID_RANGE_COUNT;

        if (l->map->slots[slot].state == SLOT_FREE && !l->taken[slot]) {
            *ret = slot;
            return true;
        }
    }
    return false;
}

int uid_lease_take(struct uid_leases *l, uid_t *ret_base, struct abx_err *err)
{
    _cleanup_(closep) int lock = -EBADF;
    struct lease_slot *s;
    uint32_t slot;
    int r = leases_lock(l, &lock, err);

    if (r < 0)
        return r;
    if (!find_free(l, &slot)) {
        r = sweep(l, err);
        if (r < 0)
            return r;
        if (!find_free(l, &slot))
            return err_set(err, ABX_RESOURCE_EXHAUSTED, "all %u uid ranges are held",
                           UID_RANGE_COUNT);
    }
    s = &l->map->slots[slot];
    memcpy(s->instance, l->instance, sizeof s->instance);
    __atomic_store_n(&s->state, SLOT_LEASED, __ATOMIC_RELEASE);
    l->map->next = (slot + 1) % UID_RANGE_COUNT;
    *ret_base = slot_base(slot);
    return 0;
}

static bool is_own(const struct uid_leases *l, uint32_t slot)
{
    const struct lease_slot *s = &l->map->slots[slot];

    return s->state == SLOT_LEASED && memcmp(s->instance, l->instance, sizeof s->instance) == 0;
}

int uid_lease_release(struct uid_leases *l, uid_t base, struct abx_err *err)
{
    _cleanup_(closep) int lock = -EBADF;
    uint32_t slot;
    int r = leases_lock(l, &lock, err);

    if (r < 0)
        return r;
    if (!slot_of_uid(base, &slot) || slot_base(slot) != base || !is_own(l, slot))
        return err_set(err, ABX_NOT_FOUND, "uid range %u is not held by '%s'", (unsigned)base,
                       l->instance);
    l->map->slots[slot].state = SLOT_RELEASED;
    return 0;
}

int uid_lease_each(struct uid_leases *l, int (*fn)(void *user, uid_t base), void *user,
                   struct abx_err *err)
{
    _cleanup_(freep) uid_t *found = calloc(UID_RANGE_COUNT, sizeof *found);
    size_t n = 0;

    if (!found)
        return err_oom(err);
    { /* `fn` may release: call it without the lock */
        _cleanup_(closep) int lock = -EBADF;
        int r = leases_lock(l, &lock, err);

        if (r < 0)
            return r;
        for (uint32_t i = 0; i < UID_RANGE_COUNT; i++)
            if (is_own(l, i))
                found[n++] = slot_base(i);
    }
    for (size_t i = 0; i < n; i++) {
        int r = fn(user, found[i]);

        if (r < 0)
            return err_set(err, r, "uid range %u", (unsigned)found[i]);
    }
    return 0;
}

/* A child in a new user namespace that waits to be killed. */
static int holder_start(int *ret_pidfd, pid_t *ret_pid, struct abx_err *err)
{
    int pidfd = -EBADF;
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
    };
    pid_t parent = getpid();
    long pid = syscall(SYS_clone3, &args, sizeof args);

    if (pid < 0)
        return err_sys(err, errno, "new user namespace");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        while (getppid() == parent) /* else it died before the line above */
            (void)syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
        _exit(0);
    }
    *ret_pidfd = pidfd;
    *ret_pid = (pid_t)pid;
    return 0;
}

static void holder_stop(int pidfd)
{
    siginfo_t si;

    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    while (waitid(P_PIDFD, (id_t)pidfd, &si, WEXITED | __WALL) < 0 && errno == EINTR)
        ;
    fd_close(pidfd);
}

static int holder_map(pid_t pid, uid_t base, int *ret_fd, struct abx_err *err)
{
    static const char *const maps[] = { "uid_map", "gid_map" };
    char path[64];
    int fd;

    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        int r;

        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, maps[i]);
        r = file_printf(AT_FDCWD, path, err, "0 %u %u", (unsigned)base, UID_RANGE_SIZE);
        if (r < 0)
            return r;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

int userns_open(uid_t base, int *ret_fd, struct abx_err *err)
{
    int pidfd = -EBADF;
    pid_t pid = 0;
    int r = holder_start(&pidfd, &pid, err);

    if (r < 0)
        return r;
    r = holder_map(pid, base, ret_fd, err);
    holder_stop(pidfd);
    return r;
}
