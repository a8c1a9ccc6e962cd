/* datadir.c - see datadir.h. */
#include "cli/datadir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"

#define FORMAT_FILE_MAX 4096

/* Value of the line "<key> <value>"; the empty slice if there is none. */
static struct slice line_value(struct slice text, const char *key)
{
    size_t n = strlen(key);

    while (text.n > 0) {
        const uint8_t *end = memchr(text.p, '\n', text.n);
        size_t len = end ? (size_t)(end - text.p) : text.n;

        if (len > n && memcmp(text.p, key, n) == 0 && text.p[n] == ' ')
            return slice_of(text.p + n + 1, len - n - 1);
        text = end ? slice_of(end + 1, text.n - len - 1) : slice_of(NULL, 0);
    }
    return slice_of(NULL, 0);
}

static int format_parse(struct slice text, char ret[DATADIR_INSTANCE_SIZE], struct abx_err *err)
{
    struct slice instance = line_value(text, "instance");
    uint8_t id[(DATADIR_INSTANCE_SIZE - 1) / 2];
    uint64_t version;

    if (!str_parse_u64(line_value(text, "version"), UINT32_MAX, &version) || version == 0)
        return err_set(err, ABX_DATA_LOSS, "'format' has no version: not a data dir of abx?");
    if (version > DATADIR_FORMAT)
        return err_set(err, ABX_FAILED_PRECONDITION,
                       "data dir has format %llu, this release knows up to %d: use a newer release",
                       (unsigned long long)version, DATADIR_FORMAT);
    if (!hex_decode(instance, id, sizeof id))
        return err_set(err, ABX_DATA_LOSS, "'format' has no valid instance id");
    hex_encode(id, sizeof id, ret);
    return 0;
}

static int format_read(int dirfd, char ret[DATADIR_INSTANCE_SIZE], struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(FORMAT_FILE_MAX);
    int r = file_read(dirfd, "format", &b, err);

    return r < 0 ? r : format_parse(buf_slice(&b), ret, err);
}

/* `instance` stays what it is unless it is empty. */
static int format_write(int dirfd, char instance[DATADIR_INSTANCE_SIZE], struct abx_err *err)
{
    uint8_t id[(DATADIR_INSTANCE_SIZE - 1) / 2];
    char text[128];
    int n;

    if (!instance[0]) {
        random_bytes(id, sizeof id);
        hex_encode(id, sizeof id, instance);
    }
    n = snprintf(text, sizeof text, "version %d\ninstance %s\nrelease %s\n", DATADIR_FORMAT,
                 instance, ABX_VERSION);
    return file_replace(dirfd, "format", text, (size_t)n, 0644, true, err);
}

/* ---- who has a lock ---- */

/* What a supervisor writes of itself into a file that it locks; releases before wrote the pid alone. */
struct keeper {
    char pid[16], mark[PROCESS_MARK_SIZE];
};

static void keeper_own(struct keeper *k)
{
    (void)snprintf(k->pid, sizeof k->pid, "%ld", (long)getpid());
    process_mark(k->mark);
}

static void keeper_set(struct keeper *k, struct slice pid, struct slice mark)
{
    (void)snprintf(k->pid, sizeof k->pid, "%.*s", (int)pid.n, (const char *)pid.p);
    (void)snprintf(k->mark, sizeof k->mark, "%.*s", (int)mark.n, (const char *)mark.p);
}

/* Nobody: one that has just got the lock, and has still to say so or was killed before it could; or one that signs off. */
static bool keeper_is_ending(const struct keeper *k)
{
    uint64_t pid;

    if (!k->pid[0])
        return true;
    if (k->mark[0])
        return process_mark_is_ending(k->mark);
    return str_parse_u64(slice_str(k->pid), INT32_MAX, &pid) && pid > 0 &&
           process_is_ending((pid_t)pid);
}

/* Is a lock, which the kernel has refused, one of a killed supervisor, and is there time left to wait for it? A child that it was just
 * starting has it, too. */
static bool lock_wait(const struct keeper *k, struct predecessor *p, const char *what)
{
    if (!keeper_is_ending(k))
        return false;
    p->was_killed = true;
    return predecessor_wait(p, what);
}

/* ---- lock: "PID\nmark MARK\n", empty when the last supervisor came to its end ---- */

static int lock_read(int fd, struct keeper *ret)
{
    char text[128];
    ssize_t n = pread(fd, text, sizeof text, 0);
    struct slice s = slice_of((const uint8_t *)text, (size_t)MAX(n, 0));
    const uint8_t *end = memchr(text, '\n', s.n);

    keeper_set(ret, slice_of(s.p, end ? (size_t)(end - s.p) : s.n), line_value(s, "mark"));
    return n < 0 ? -1 : 0;
}

static int lock_write(int fd, const char *path, struct abx_err *err)
{
    struct keeper own;
    char text[128];
    int n;

    keeper_own(&own);
    n = snprintf(text, sizeof text, "%s\nmark %s\n", own.pid, own.mark);
    return pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) < 0
               ? err_sys(err, errno, "write '%s/lock'", path)
               : 0;
}

static int lock_take(int dirfd, const char *path, struct predecessor *p, int *ret,
                     struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct keeper k = { 0 };
    int r;

    if (fd < 0)
        return err_sys(err, errno, "open '%s/lock'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || lock_read(fd, &k) < 0)
            return err_sys(err, errno, "lock '%s/lock'", path);
        if (!lock_wait(&k, p, "the data dir"))
            return err_set(
                err, ABX_FAILED_PRECONDITION,
                "'%s' is served already, by process %s: stop it or choose another --data-dir", path,
                k.pid[0] ? k.pid : "?");
    }
    if (lock_read(fd, &k) < 0)
        return err_sys(err, errno, "read '%s/lock'", path);
    p->was_killed |= k.pid[0] != '\0';
    /* Its roles are killed by its very end, which comes after that of its locks. */
    while (process_mark_is_ending(k.mark) && !process_mark_is_gone(k.mark) &&
           predecessor_wait(p, "its process"))
        continue;
    r = lock_write(fd, path, err);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

/* ---- the run folder's file ---- */

#define CLAIM "data-dir"

static int refuse_held(const struct datadir *d, const struct keeper *k, struct abx_err *err)
{
    return err_set(err, ABX_FAILED_PRECONDITION,
                   "the service of '%s' runs already, process %s has its instance %s, although "
                   "the data dir was "
                   "emptied or copied meanwhile: stop that process first",
                   d->path, k->pid, d->instance);
}

struct dir_handle {
    struct file_handle head;
    uint8_t bytes[MAX_HANDLE_SZ];
};

/* What finds the folder as long as there is one, however its number is used later; "-" where the file system has no such
 * thing. */
static void handle_print(int dirfd, char to[HANDLE_TEXT_SIZE])
{
    struct dir_handle h = { .head.handle_bytes = sizeof h.bytes };
    int mount_id;

    if (name_to_handle_at(dirfd, "", &h.head, &mount_id, AT_EMPTY_PATH) < 0) {
        (void)snprintf(to, HANDLE_TEXT_SIZE, "-");
        return;
    }
    hex_encode((const uint8_t *)&h.head.handle_type, sizeof h.head.handle_type, to);
    hex_encode(h.bytes, h.head.handle_bytes, to + strlen(to));
}

/* ext4 answers ENOMEM while the number of a deleted folder is being given to a new one (measured, Linux 6.18). */
#define HANDLE_TRIES 100
#define HANDLE_PAUSE_NS (2 * NSEC_PER_MSEC)

/* Is the folder of that handle, in the file system of `dirfd`, deleted? False when that cannot be told. */
static bool handle_is_gone(int dirfd, struct slice text)
{
    struct dir_handle h = { 0 };
    size_t head = 2 * sizeof h.head.handle_type, n = text.n > head ? (text.n - head) / 2 : 0;
    _cleanup_(closep) int fd = -EBADF;
    struct stat st;

    if (n == 0 || n > sizeof h.bytes ||
        !hex_decode(slice_of(text.p + head, text.n - head), h.bytes, n) ||
        !hex_decode(slice_of(text.p, head), (uint8_t *)&h.head.handle_type,
                    sizeof h.head.handle_type))
        return false;
    h.head.handle_bytes = (unsigned)n;
    for (int tries = 0; tries < HANDLE_TRIES; tries++) {
        static const struct timespec pause = { .tv_nsec = HANDLE_PAUSE_NS };

        fd = open_by_handle_at(dirfd, &h.head, O_PATH | O_CLOEXEC);
        if (fd >= 0 || errno != ENOMEM)
            break;
        (void)nanosleep(&pause, NULL);
        errno = ENOMEM;
    }
    if (fd < 0)
        return errno == ESTALE;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* Was what the text tells of this folder, or one in its place that is deleted? A folder that was moved away is another
 * service's, with all it has. */
static bool is_same_place(struct slice text, int dirfd, const struct datadir *d)
{
    struct slice path = line_value(text, "path");
    uint64_t device, inode;

    if (!slice_eq_str(path, d->real) ||
        !str_parse_u64(line_value(text, "device"), UINT64_MAX, &device) ||
        !str_parse_u64(line_value(text, "inode"), UINT64_MAX, &inode) || device != d->device)
        return false;
    return inode == d->inode || handle_is_gone(dirfd, line_value(text, "handle"));
}

/* Looks at <top_fd>/<id>: 1 when it is of the folder `d`, last written at *ret_time. */
static int claim_is_of(int top_fd, const char *id, int dirfd, const struct datadir *d,
                       struct timespec *ret_time, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(FORMAT_FILE_MAX);
    char name[64];
    struct stat st;
    int r;

    (void)snprintf(name, sizeof name, "%s/%s", id, CLAIM);
    if (fstatat(top_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "look at '%s'", name);
    r = file_read(top_fd, name, &b, err);
    if (r < 0)
        return r;
    *ret_time = st.st_mtim;
    return is_same_place(buf_slice(&b), dirfd, d);
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* The instance that the folder had last; leaves d->instance empty when it had none. Run folders do not outlive a
 * reboot, as numbers of devices may not. */
static int find_instance(const char *run_top, int data_fd, struct datadir *d, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *top = opendir(run_top);
    struct timespec last = { 0 }, at = { 0 };
    struct dirent *e;

    if (!top)
        return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", run_top);
    while ((errno = 0, e = readdir(top)) != NULL) {
        uint8_t id[(DATADIR_INSTANCE_SIZE - 1) / 2];
        int r;

        if (!hex_decode(slice_str(e->d_name), id, sizeof id))
            continue;
        r = claim_is_of(dirfd(top), e->d_name, data_fd, d, &at, err);
        if (r < 0)
            return r;
        if (r == 0 || (d->was_emptied && !is_later(&at, &last)))
            continue;
        hex_encode(id, sizeof id, d->instance);
        d->was_emptied = true;
        last = at;
    }
    return errno ? err_sys(err, errno, "read '%s'", run_top) : 0;
}

static int claim_lock(struct datadir *d, int fd, struct abx_err *err)
{
    char text[FORMAT_FILE_MAX];
    struct keeper k = { 0 };

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        ssize_t n = errno == EWOULDBLOCK ? pread(fd, text, sizeof text, 0) : -1;
        struct slice s = slice_of((const uint8_t *)text, (size_t)MAX(n, 0));

        if (n < 0)
            return err_sys(err, errno, "lock '%s' of the run folder", CLAIM);
        keeper_set(&k, line_value(s, "process"), line_value(s, "mark"));
        if (!lock_wait(&k, &d->predecessor, "the run folder"))
            return refuse_held(d, &k, err);
    }
    return 0;
}

int datadir_claim(struct datadir *d, int run_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd =
        openat(run_fd, CLAIM, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[FORMAT_FILE_MAX] = "";
    struct keeper own;
    int n, r;

    if (fd < 0)
        return err_sys(err, errno, "open '%s' of the run folder", CLAIM);
    r = claim_lock(d, fd, err);
    if (r < 0)
        return r;
    keeper_own(&own);
    n = snprintf(text, sizeof text,
                 "device %llu\ninode %llu\nhandle %s\nprocess %s\nmark %s\npath %s\n",
                 (unsigned long long)d->device, (unsigned long long)d->inode, d->handle, own.pid,
                 own.mark, d->real);
    if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) < 0)
        return err_sys(err, errno, "write '%s' of the run folder", CLAIM);
    d->claim_fd = TAKE_FD(fd);
    return 0;
}

/* ---- the folder ---- */

/* The folders above an absolute path, as `mkdir -p` makes them. */
static int make_parents(const char *path, struct abx_err *err)
{
    char part[sizeof(((struct datadir *)NULL)->path)];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);

        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "mkdir '%s'", part);
    }
    return 0;
}

/* A folder below the data dir with exactly this owner and mode. */
static int subdir(int dirfd, const char *name, uid_t uid, mode_t mode, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;

    if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", name);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", name);
    if (fchown(fd, uid, uid) < 0 || fchmod(fd, mode) < 0)
        return err_sys(err, errno, "owner and mode of '%s'", name);
    return 0;
}

/* What `format` says, or what is to be said from now on. */
static int identify(int dirfd, const char *run_top, struct datadir *d, struct abx_err *err)
{
    char link[64];
    struct stat st;
    ssize_t n;
    int r;

    if (fstat(dirfd, &st) < 0)
        return err_sys(err, errno, "look at it");
    d->device = st.st_dev;
    d->inode = st.st_ino;
    handle_print(dirfd, d->handle);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    n = readlink(link, d->real, sizeof d->real - 1);
    if (n < 0)
        return err_sys(err, errno, "read '%s'", link);
    d->real[n] = '\0';
    if (faccessat(dirfd, "format", F_OK, 0) == 0)
        return format_read(dirfd, d->instance, err);
    r = run_top ? find_instance(run_top, dirfd, d, err) : 0;
    return r < 0 ? r : format_write(dirfd, d->instance, err);
}

/* What a supervisor that was killed had not finished writing: `format`, keys. */
static void sweep(int dirfd)
{
    _cleanup_(closep) int local = openat(dirfd, "local", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    file_replace_sweep(dirfd);
    if (local >= 0)
        file_replace_sweep(local);
}

int datadir_open(const char *path, const char *run_top, struct datadir *ret, struct abx_err *err)
{
    _cleanup_(closep) int dirfd = -EBADF;
    _cleanup_(closep) int lock_fd = -EBADF;
    struct datadir d = DATADIR_INIT;
    int r;

    if (strlen(path) >= sizeof d.path)
        return err_set(err, ABX_INVALID_ARGUMENT, "--data-dir is over %zu bytes",
                       sizeof d.path - 1);
    (void)snprintf(d.path, sizeof d.path, "%s", path);
    if (mkdir(path, 0711) < 0 && errno != EEXIST) {
        if (errno != ENOENT)
            return err_sys(err, errno, "mkdir '%s'", path);
        r = make_parents(path, err);
        if (r == 0 && mkdir(path, 0711) < 0 && errno != EEXIST)
            r = err_sys(err, errno, "mkdir '%s'", path);
        if (r < 0)
            return r;
    }
    dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return err_sys(err, errno, "open '%s'", path);
    if (fchmod(dirfd, 0711) < 0)
        return err_sys(err, errno, "mode of '%s'", path);
    r = lock_take(dirfd, path, &d.predecessor, &lock_fd, err);
    if (r < 0)
        return r;
    r = identify(dirfd, run_top, &d, err);
    if (r < 0)
        return err_wrap(err, r, "data dir '%s'", path);
    d.predecessor.was_killed |= d.was_emptied; /* it may have been: its `lock` is lost */
    r = subdir(dirfd, "pool", 0, 0700, err);
    if (r == 0)
        r = subdir(dirfd, "local", 0, 0700, err);
    if (r < 0)
        return err_wrap(err, r, "data dir '%s'", path);
    sweep(dirfd);
    d.lock_fd = TAKE_FD(lock_fd);
    *ret = d;
    return 0;
}

/* The database of a service that ran with other uids (--run-as) changes hands with the folder. */
static int chown_files(int dirfd, uid_t uid, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = NULL;
    struct dirent *e;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno, "open 'control'");
    d = fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return err_sys(err, errno, "read 'control'");
    }
    while ((e = readdir(d)) != NULL)
        if (e->d_type == DT_REG && fchownat(fd, e->d_name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, errno, "owner of 'control/%s'", e->d_name);
    return 0;
}

int datadir_control_folder(const struct datadir *d, uid_t uid, struct abx_err *err)
{
    _cleanup_(closep) int dirfd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(closep) int control = -EBADF;
    int r;

    if (dirfd < 0)
        return err_sys(err, errno, "open '%s'", d->path);
    r = subdir(dirfd, "control", uid, 0700, err);
    if (r < 0)
        return err_wrap(err, r, "data dir '%s'", d->path);
    control = openat(dirfd, "control", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (control < 0)
        return err_sys(err, errno, "open '%s/control'", d->path);
    return chown_files(control, uid, err);
}

void datadir_sign_off(const struct datadir *d)
{
    if (d->lock_fd >= 0 && ftruncate(d->lock_fd, 0) < 0)
        log_warn("the next start will look for what this service holds", "file", "lock", NULL);
}

void datadir_done(struct datadir *d)
{
    fd_close(d->lock_fd);
    fd_close(d->claim_fd);
    d->lock_fd = d->claim_fd = -EBADF;
}

int datadir_instance(const char *path, char ret[DATADIR_INSTANCE_SIZE], struct abx_err *err)
{
    _cleanup_(closep) int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (dirfd < 0)
        return err_sys(err, errno, "data dir '%s' (--data-dir names another)", path);
    if (faccessat(dirfd, "format", F_OK, 0) < 0 && errno == ENOENT)
        return err_set(err, ABX_NOT_FOUND, "'%s' is no data dir: no service was started with it",
                       path);
    r = format_read(dirfd, ret, err);
    return r < 0 ? err_wrap(err, r, "data dir '%s'", path) : 0;
}
