/* disk.c - choice of the pool's kind, its checks, uppers and trash; see disk.h.
 *
 * Two engines never open one pool at once (they hold a lock of the data dir), but opening takes a lock
 * of its own all the same, because mounting an image twice destroys it.
 */
#include "engine/disk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/disk_internal.h"

#define XFS_MAGIC 0x58465342
#define COPY_TIMEOUT_MS 20000
#define UNMOUNT_TIMEOUT_NS (2 * NSEC_PER_SEC)
#define NEARLY_FULL_MAX ((uint64_t)10 << 30)

static const char *const tool_dirs[] = { "/usr/sbin", "/sbin", "/usr/bin", "/bin" };

static bool find_tool(const char *name, char *to, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(tool_dirs); i++)
        if (path_join(to, size, tool_dirs[i], name) && access(to, X_OK) == 0)
            return true;
    return false;
}

bool disk_has_tool(const char *name)
{
    char path[PATH_MAX];

    return find_tool(name, path, sizeof path);
}

/* Waits for the child with a deadline, or until `stop_fd` is readable; its wait status. */
static int wait_child(pid_t pid, int timeout_ms, int stop_fd, int *ret_status, struct abx_err *err)
{
    _cleanup_(closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[] = { { pidfd, POLLIN, 0 }, { stop_fd, POLLIN, 0 } };
    int64_t until = time_mono_ns() + timeout_ms * NSEC_PER_MSEC, left = 1;
    bool ended;

    while (pidfd >= 0 && left > 0 && poll(p, 2, timeout_ms) < 0 && errno == EINTR) {
        left = until - time_mono_ns();
        timeout_ms = (int)MAX(left / NSEC_PER_MSEC, INT64_C(0));
    }
    ended = (p[0].revents & POLLIN) != 0;
    if (!ended)
        (void)kill(pid, SIGKILL);
    if (waitpid(pid, ret_status, 0) < 0)
        return err_sys(err, errno, "wait for a tool");
    if (!ended && p[1].revents)
        return err_set(err, ABX_ABORTED, "it was stopped");
    if (!ended)
        return err_set(err, ABX_DEADLINE_EXCEEDED, "not done within %d ms", timeout_ms);
    return 0;
}

/* In the child: only what is async-signal-safe. Does not return. */
static void exec_tool(const char *path, const char *const *argv, int null_fd, int output_fd,
                      pid_t parent)
{
    char *const env[] = { (char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, (char[]){ "LC_ALL=C" },
                          NULL };

    /* What it makes is undone when we are gone: it must not go on at it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && dup2(null_fd, 0) == 0 &&
        dup2(output_fd, 1) == 1 && dup2(output_fd, 2) == 2)
        /* argv is char *const * for historical reasons; nothing writes there. */
        (void)execve(path, (char *const *)(uintptr_t)argv, env);
    _exit(127);
}

/* Its words go to `output_fd`. */
static int spawn_tool(const char *path, const char *const *argv, int output_fd, pid_t *ret_pid,
                      struct abx_err *err)
{
    _cleanup_(closep) int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t parent = getpid(), pid;

    if (null_fd < 0)
        return err_sys(err, errno, "open /dev/null");
    pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "start %s", path);
    if (pid == 0)
        exec_tool(path, argv, null_fd, output_fd, parent);
    *ret_pid = pid;
    return 0;
}

/* `words`: the first line of its output, also when it failed. */
static int run_tool(const char *const *argv, int timeout_ms, int stop_fd, char *words, size_t size,
                    struct abx_err *err)
{
    _cleanup_(closep) int output = memfd_create("tool", MFD_CLOEXEC);
    char path[PATH_MAX];
    int status = 0, r;
    pid_t pid = -1;
    ssize_t n;

    if (output < 0)
        return err_sys(err, errno, "memfd_create");
    if (!find_tool(argv[0], path, sizeof path))
        return err_set(err, ABX_UNIMPLEMENTED, "%s is not installed", argv[0]);
    r = spawn_tool(path, argv, output, &pid, err);
    if (r < 0)
        return r;
    r = wait_child(pid, timeout_ms, stop_fd, &status, err);
    if (r < 0)
        return err_wrap(err, r, "%s", path);
    n = pread(output, words, size - 1, 0);
    words[MAX(n, 0)] = '\0';
    words[strcspn(words, "\n")] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(err, ABX_INTERNAL, "%s failed: %s", path, words);
}

int disk_run_tool(const char *const *argv, int timeout_ms, int stop_fd, struct abx_err *err)
{
    char words[256];

    return run_tool(argv, timeout_ms, stop_fd, words, sizeof words, err);
}

int disk_ask_tool(const char *const *argv, int timeout_ms, char *words, size_t size,
                  struct abx_err *err)
{
    return run_tool(argv, timeout_ms, -EBADF, words, size, err);
}

/* Refuses what someone other than root could enter or exchange. */
static int check_private(int fd, const char *path, mode_t forbidden, struct abx_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "look at '%s'", path);
    if (st.st_uid != 0 || (st.st_mode & forbidden))
        return err_set(
            err, ABX_FAILED_PRECONDITION,
            "'%s' is open to others (owner %u, mode %04o): chown root and chmod %04o it, "
            "after a look at who was there",
            path, st.st_uid, st.st_mode & 07777, 0777 & ~forbidden);
    return 0;
}

/* Opens a folder, made with `mode` when it is missing. */
static int open_private(int dirfd, const char *name, const char *path, mode_t mode,
                        mode_t forbidden, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r;

    if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make '%s'", path);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    r = check_private(fd, path, forbidden, err);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int open_dir(struct disk_pool *p, const char *data_dir, struct abx_err *err)
{
    _cleanup_(closep) int data_fd = -EBADF;
    _cleanup_(freep) char *real = NULL;
    int r = open_private(AT_FDCWD, data_dir, data_dir, 0711, 0022, &data_fd, err);

    if (r < 0)
        return r;
    /* As the kernel lists it in mountinfo. */
    real = realpath(data_dir, NULL);
    if (!real)
        return err_sys(err, errno, "resolve '%s'", data_dir);
    if (!path_join(p->dir, sizeof p->dir, real, "pool"))
        return err_set(err, ABX_INVALID_ARGUMENT, "the path of the data dir is too long");
    return open_private(data_fd, "pool", p->dir, 0700, 0077, &p->dir_fd, err);
}

static int stop_at_any(void *user, const char *name)
{
    (void)user;
    (void)name;
    return 1;
}

/* Only looked at: where the folder itself is the pool, other processes have it open. */
static bool has_content(int dirfd, const char *name)
{
    _cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 || path_each(fd, "a folder of the pool", stop_at_any, NULL, NULL) != 0;
}

static int stop_at_content(void *user, const char *name)
{
    static const char *const mine[] = { "lock", "fs", "uppers", "trash", "saved", "disk.img.new" };
    int dirfd = *(int *)user;

    for (size_t i = 0; i < ARRAY_SIZE(mine); i++) {
        if (strcmp(name, mine[i]) == 0)
            return i > 0 && i < 5 && has_content(dirfd, name);
    }
    return 1;
}

/* Is there something in the folder that an image mounted over it would hide? */
static bool is_in_use(struct disk_pool *p)
{
    return path_each(p->dir_fd, "a folder of the pool", stop_at_content, &p->dir_fd, NULL) != 0;
}

/* The folder itself is the pool. */
static void use_folder(struct disk_pool *p, enum disk_kind kind, const char *why)
{
    p->kind = kind;
    p->is_image = false;
    memcpy(p->path, p->dir, sizeof p->path);
    (void)snprintf(p->why_plain, sizeof p->why_plain, "%s", why);
}

static int choose_kind(struct disk_pool *p, uint64_t size_bytes, struct abx_err *err)
{
    struct abx_err why;
    struct statfs st;
    int r;

    if (faccessat(p->dir_fd, "disk.img", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return disk_image_open(p, size_bytes, err);
    r = disk_image_check_none(p, err);
    if (r < 0)
        return r;
    if (fstatfs(p->dir_fd, &st) < 0)
        return err_sys(err, errno, "look at the file system of '%s'", p->dir);
    if (st.f_type == BTRFS_SUPER_MAGIC) {
        use_folder(p, DISK_BTRFS, "");
        return 0;
    }
    if (st.f_type == XFS_MAGIC && disk_xfs_is_usable(p->dir_fd)) {
        use_folder(p, DISK_XFS, "");
        return 0;
    }
    if (is_in_use(p)) {
        use_folder(p, DISK_PLAIN, "it was one before and is in use");
        return 0;
    }
    r = disk_image_open(p, size_bytes, &why);
    if (r == 0 || r != ABX_UNIMPLEMENTED) {
        if (r < 0 && err)
            *err = why;
        return r;
    }
    use_folder(p, DISK_PLAIN, why.msg);
    return 0;
}

static int open_folders(struct disk_pool *p, struct abx_err *err)
{
    int r;

    p->fd = open(p->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->fd < 0)
        return err_sys(err, errno, "open '%s'", p->path);
    if (p->is_image && fchmod(p->fd, 0700) < 0)
        return err_sys(err, errno, "chmod '%s'", p->path);
    r = check_private(p->fd, p->path, 0077, err);
    if (r == 0 && (p->kind == DISK_BTRFS || p->kind == DISK_BTRFS_IMAGE))
        r = disk_btrfs_enable_quota(p->fd, p->is_image, err);
    if (r == 0)
        r = open_private(p->fd, "uppers", "uppers", 0700, 0077, &p->uppers_fd, err);
    if (r == 0)
        r = open_private(p->fd, "trash", "trash", 0700, 0077, &p->trash_fd, err);
    if (r == 0)
        r = open_private(p->fd, "saved", "saved", 0700, 0077, &p->saved_fd, err);
    return r;
}

static bool is_read_only(const struct disk_pool *p)
{
    struct statvfs st;

    return statvfs(p->path, &st) == 0 && (st.f_flag & ST_RDONLY);
}

static int open_pool(struct disk_pool *p, const struct disk_opts *opts, struct abx_err *err)
{
    _cleanup_(closep) int lock = -EBADF;
    int r = open_dir(p, opts->data_dir, err);

    if (r < 0)
        return r;
    lock = openat(p->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return err_sys(err, errno, "lock '%s'", p->dir);
    r = choose_kind(p, opts->size_bytes, err);
    if (r == 0 && p->is_image && opts->is_unused && is_read_only(p) &&
        disk_image_unmount(p, NULL) == 0)
        r = disk_image_open(p, opts->size_bytes, err);
    if (r == 0)
        r = open_folders(p, err);
    return r < 0 ? err_wrap(err, r, "pool '%s'", p->dir) : 0;
}

static void close_folders(struct disk_pool *p)
{
    int *fds[] = { &p->fd, &p->uppers_fd, &p->trash_fd, &p->saved_fd };

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fd_close(*fds[i]);
        *fds[i] = -EBADF;
    }
}

int disk_pool_open(const struct disk_opts *opts, struct disk_pool **ret, struct abx_err *err)
{
    _cleanup_(disk_pool_freep) struct disk_pool *p = calloc(1, sizeof *p);
    struct abx_err why;
    int r;

    if (!p)
        return err_oom(err);
    p->dir_fd = p->fd = p->uppers_fd = p->trash_fd = p->saved_fd = -EBADF;
    p->may_drop = opts->may_drop;
    r = open_pool(p, opts, &why);
    if (r < 0 && !opts->may_be_dead) {
        if (err)
            *err = why;
        return r;
    }
    if (r < 0) {
        close_folders(p);
        p->kind = DISK_PLAIN;
        (void)snprintf(p->why_dead, sizeof p->why_dead, "%.*s", (int)sizeof p->why_dead - 1,
                       why.msg);
    }
    *ret = TAKE_PTR(p);
    return 0;
}

void disk_pool_free(struct disk_pool *p)
{
    if (!p)
        return;
    close_folders(p);
    fd_close(p->dir_fd);
    free(p);
}

int disk_pool_unmount(struct disk_pool *p, struct abx_err *err)
{
    const struct timespec pause = { .tv_nsec = 2 * NSEC_PER_MSEC };
    int64_t end = time_mono_ns() + UNMOUNT_TIMEOUT_NS;
    struct abx_err why = { 0 };
    int r;

    if (!p->is_image)
        return 0;
    close_folders(p);
    /* What a worker has forked (to hold a user namespace) dies with it, but a moment after it, with its descriptors. */
    while ((r = disk_image_unmount(p, &why)) < 0 && why.sys == EBUSY && time_mono_ns() < end)
        (void)nanosleep(&pause, NULL);
    if (r == 0)
        return 0;
    if (err)
        *err = why;
    /* Still of use. */
    if (!p->why_dead[0] && open_folders(p, NULL) < 0)
        return err_wrap(err, ABX_INTERNAL, "the pool is lost");
    return r;
}

enum disk_kind disk_pool_kind(const struct disk_pool *p)
{
    return p->kind;
}

const char *disk_kind_name(enum disk_kind kind)
{
    switch (kind) {
    case DISK_PLAIN:
        return "plain";
    case DISK_BTRFS:
        return "btrfs";
    case DISK_BTRFS_IMAGE:
        return "btrfs-image";
    case DISK_XFS:
        return "xfs";
    case DISK_XFS_IMAGE:
        return "xfs-image";
    }
    return "unknown";
}

bool disk_pool_is_limited(const struct disk_pool *p)
{
    return p->kind != DISK_PLAIN;
}

const char *disk_pool_path(const struct disk_pool *p)
{
    return p->path;
}

const char *disk_pool_why_plain(const struct disk_pool *p)
{
    return p->why_plain;
}

const char *disk_pool_why_dead(const struct disk_pool *p)
{
    return p->why_dead;
}

static int check_alive(const struct disk_pool *p, struct abx_err *err)
{
    if (p->why_dead[0])
        return err_set(err, ABX_FAILED_PRECONDITION, "the pool cannot be used: %s", p->why_dead);
    return 0;
}

static bool is_btrfs(const struct disk_pool *p)
{
    return p->kind == DISK_BTRFS || p->kind == DISK_BTRFS_IMAGE;
}

int disk_check_id(const char *id, struct abx_err *err)
{
    size_t n = strlen(id);

    if (n == 0 || n > DISK_NAME_MAX || id[0] == '.' || strchr(id, '/'))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%.80s' can't be the name of an upper", id);
    return 0;
}

int disk_open_upper(struct disk_pool *p, const char *id, int *ret_fd, struct abx_err *err)
{
    int r = disk_check_id(id, err);
    int fd;

    if (r == 0)
        r = check_alive(p, err);
    if (r < 0)
        return r;
    fd = openat(p->uppers_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "upper '%s'", id);
    *ret_fd = fd;
    return 0;
}

static int set_limit(struct disk_pool *p, int fd, uint64_t limit_bytes, struct abx_err *err)
{
    switch (p->kind) {
    case DISK_BTRFS:
    case DISK_BTRFS_IMAGE:
        return disk_btrfs_set_limit(fd, limit_bytes, err);
    case DISK_XFS:
    case DISK_XFS_IMAGE:
        return disk_xfs_set_limit(fd, limit_bytes, err);
    case DISK_PLAIN:
        break;
    }
    return 0;
}

static int fill_upper(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                      struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_open_upper(p, id, &fd, err);

    /* The limit comes first: an xfs project holds for what is made after it. */
    if (r == 0)
        r = set_limit(p, fd, limit_bytes, err);
    if (r < 0)
        return r;
    if (fchmod(fd, 0700) < 0 || mkdirat(fd, "u", 0755) < 0 || fchmodat(fd, "u", 0755, 0) < 0 ||
        mkdirat(fd, "w", 0700) < 0)
        return err_sys(err, errno, "make the folders of upper '%s'", id);
    return 0;
}

int disk_upper_create(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                      struct abx_err *err)
{
    int r = disk_check_id(id, err);

    if (r == 0)
        r = check_alive(p, err);
    if (r < 0)
        return r;
    if (is_btrfs(p))
        r = disk_btrfs_create(p->uppers_fd, id, err);
    else if (mkdirat(p->uppers_fd, id, 0700) < 0)
        r = err_sys(err, errno, "make upper '%s'", id);
    if (r < 0)
        return r;
    r = fill_upper(p, id, limit_bytes, err);
    if (r < 0)
        (void)disk_upper_trash(p, id, NULL);
    return r;
}

int disk_upper_set_limit(struct disk_pool *p, const char *id, uint64_t limit_bytes,
                         struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_open_upper(p, id, &fd, err);

    return r < 0 ? r : set_limit(p, fd, limit_bytes, err);
}

int disk_upper_usage(struct disk_pool *p, const char *id, uint64_t *ret_bytes, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_open_upper(p, id, &fd, err);

    if (r < 0)
        return r;
    if (p->kind == DISK_PLAIN)
        return err_set(err, ABX_UNIMPLEMENTED, "a plain folder counts nothing");
    return is_btrfs(p) ? disk_btrfs_usage(fd, ret_bytes, err) : disk_xfs_usage(fd, ret_bytes, err);
}

int disk_upper_trash(struct disk_pool *p, const char *id, struct abx_err *err)
{
    uint8_t random[8];
    char name[17];
    int r = disk_check_id(id, err);

    if (r == 0)
        r = check_alive(p, err);
    if (r < 0)
        return r;
    random_bytes(random, sizeof random);
    hex_encode(random, sizeof random, name);
    if (renameat(p->uppers_fd, id, p->trash_fd, name) < 0 && errno != ENOENT)
        return err_sys(err, errno, "move upper '%s' to the trash", id);
    return 0;
}

static int remove_in(struct disk_pool *p, int dirfd, const char *name, struct abx_err *err)
{
    if (is_btrfs(p) && disk_btrfs_is_subvol(dirfd, name))
        return disk_btrfs_destroy(dirfd, name, err);
    return path_remove_tree(dirfd, name, err);
}

int disk_upper_destroy(struct disk_pool *p, const char *id, struct abx_err *err)
{
    int r = disk_check_id(id, err);

    if (r == 0)
        r = check_alive(p, err);
    return r < 0 ? r : remove_in(p, p->uppers_fd, id, err);
}

bool disk_pool_is_nearly_full(const struct disk_pool *p)
{
    struct statvfs st;

    return p->fd >= 0 && fstatvfs(p->fd, &st) == 0 &&
           st.f_bavail < MIN(st.f_blocks / 8, NEARLY_FULL_MAX / st.f_frsize);
}

static int copy_tree(struct disk_pool *p, const char *from, const char *id, int stop_fd,
                     struct abx_err *err)
{
    char source[PATH_MAX + 128], target[PATH_MAX + 128];

    (void)snprintf(source, sizeof source, "%s/uppers/%s", p->path, from);
    (void)snprintf(target, sizeof target, "%s/uppers/%s", p->path, id);
    return disk_run_tool(
        (const char *[]){ "cp", "-a", "--reflink=auto", "-T", source, target, NULL },
        COPY_TIMEOUT_MS, stop_fd, err);
}

int disk_upper_clone(struct disk_pool *p, const char *from, const char *id, int stop_fd,
                     struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_upper_check(p, from, err);

    if (r == 0)
        r = disk_check_id(id, err);
    if (r == 0)
        r = disk_open_upper(p, from, &fd, err);
    if (r < 0)
        return r;
    r = is_btrfs(p) ? disk_btrfs_snapshot(p->uppers_fd, fd, id, err)
                    : copy_tree(p, from, id, stop_fd, err);
    if (r < 0)
        (void)disk_upper_trash(p, id, NULL);
    return r;
}

int disk_pool_sync(struct disk_pool *p, struct abx_err *err)
{
    int r = check_alive(p, err);

    if (r == 0 && syncfs(p->fd) < 0)
        r = err_sys(err, errno, "write the pool to the disk");
    return r;
}

int disk_upper_check(struct disk_pool *p, const char *id, struct abx_err *err)
{
    static const char *const parts[] = { "u", "w" };
    _cleanup_(closep) int fd = -EBADF;
    int r = disk_check_id(id, err);
    struct stat st;

    if (r == 0)
        r = check_alive(p, err);
    if (r < 0)
        return r;
    fd = openat(p->uppers_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        r = err_sys(err, errno, "its kept files, folder '%s'", id);
    for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++)
        if (fstatat(fd, parts[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = err_sys(err, errno, "its kept files, folder '%s'", parts[i]);
        else if (!S_ISDIR(st.st_mode))
            r = err_sys(err, ENOTDIR, "its kept files, folder '%s'", parts[i]);
    /* A limit on it would be one on the whole pool. */
    if (r == 0 && is_btrfs(p) && !disk_btrfs_is_subvol(p->uppers_fd, id))
        return err_set(err, ABX_DATA_LOSS,
                       "its kept files, folder '%s', are in no btrfs subvolume of their own: "
                       "whoever puts them back has to make one",
                       id);
    if ((r == ABX_NOT_FOUND || r == ABX_INVALID_ARGUMENT) && err)
        err->code = ABX_DATA_LOSS;
    return r == ABX_NOT_FOUND || r == ABX_INVALID_ARGUMENT ? ABX_DATA_LOSS : r;
}

int disk_pool_reclaim(struct disk_pool *p, bool is_full, struct abx_err *err)
{
    uint64_t transaction;

    if (p->why_dead[0])
        return 0;
    if (p->kind == DISK_BTRFS_IMAGE)
        return disk_btrfs_reclaim(p->fd, is_full, err);
    return p->kind == DISK_BTRFS && is_full ? disk_btrfs_commit(p->fd, &transaction, err) : 0;
}

struct emptying {
    struct disk_pool *p;
    struct abx_err first; /* error of what could not be removed */
};

static int remove_one(void *user, const char *name)
{
    struct emptying *e = user;
    struct abx_err err;
    int r = remove_in(e->p, e->p->trash_fd, name, &err);

    if (r < 0 && e->first.code == 0)
        e->first = err;
    return 0; /* the others all the same */
}

int disk_trash_empty(struct disk_pool *p, struct abx_err *err)
{
    struct emptying e = { .p = p };
    int r = check_alive(p, err);

    if (r == 0)
        r = path_each(p->trash_fd, "a folder of the pool", remove_one, &e, err);
    if (r == 0 && e.first.code != 0) {
        r = e.first.code;
        if (err)
            *err = e.first;
    }
    /* Only in a file system of our own: elsewhere such groups may be someone's. */
    if (r == 0 && p->kind == DISK_BTRFS_IMAGE)
        r = disk_btrfs_prune(p->fd, err);
    return r;
}

int disk_upper_each(struct disk_pool *p, int (*fn)(void *user, const char *id), void *user,
                    struct abx_err *err)
{
    return p->why_dead[0] ? 0 : path_each(p->uppers_fd, "a folder of the pool", fn, user, err);
}
