/* sandbox_run.c - starts sandboxes with userns, netns and spawn directly, for the system tests.
 *
 *     sandbox_run --layer DIR... --work DIR [OPTION...] -- CMD ARG...   runs CMD inside one
 *     sandbox_run --layer DIR... --work DIR [OPTION...] --count N       makes and kills N, prints times
 *
 * --work is a folder for uppers (made when missing). Options: --mount auto|fd|string, --uid N (of CMD),
 * --hostname NAME, --cgroups INSTANCE (with a cgroup tree of that name), --init FILE, --leases DIR (of
 * the table of uid ranges), --hold (with --count: all at once, then kill all), --die (we die before the
 * child may go on). CMD's exit status becomes ours, 128 + n for a signal; 125 means that the sandbox
 * could not be started.
 */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "e2b/guest_abi.h"
#include "engine/cgroup.h"
#include "engine/netns.h"
#include "engine/spawn.h"
#include "engine/userns.h"

#define EXIT_START 125
#define COUNT_MAX 2000

struct options {
    const char *layers[SPAWN_LAYERS_MAX];
    size_t n_layers;
    const char *work, *init, *leases_dir, *hostname, *cgroups;
    enum mount_path mount;
    uint64_t uid, count;
    bool hold, die;
    char *const *command;
};

/* One sandbox and what belongs to it. */
struct box {
    char id[32];
    char upper[PATH_MAX];
    int netns;
    int fds[2]; /* envd, control */
    int cgroup_user, cgroup_guest, cgroup_root;
    int join_user[CGROUP_JOIN_MAX], join_guest[CGROUP_JOIN_MAX];
    size_t n_join_user, n_join_guest;
    bool has_groups;
    struct spawn_result result;
    int64_t spawn_ns, kill_ns;
};

struct tool {
    struct options o;
    struct uid_leases *leases;
    uid_t base;
    int userns, image;
    struct cgroup_tree *tree;
    struct spawner *spawner;
};

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static int box_groups(struct tool *t, struct box *b, struct abx_err *err)
{
    const struct cgroup_limits limits = { 0 };
    int r;

    if (!t->tree)
        return 0;
    r = cgroup_create(t->tree, b->id, &limits, t->base, err);
    if (r < 0)
        return r;
    b->has_groups = true;
    r = cgroup_open_v2(t->tree, b->id, CGROUP_USER, &b->cgroup_user, err);
    if (r == 0)
        r = cgroup_open_v2(t->tree, b->id, CGROUP_GUEST, &b->cgroup_guest, err);
    if (r == 0)
        r = cgroup_open_v2(t->tree, b->id, CGROUP_ROOT, &b->cgroup_root, err);
    if (r == 0)
        r = cgroup_open_join(t->tree, b->id, CGROUP_USER, b->join_user, &b->n_join_user, err);
    if (r == 0)
        r = cgroup_open_join(t->tree, b->id, CGROUP_GUEST, b->join_guest, &b->n_join_guest, err);
    return r;
}

/* All that can be made ahead: the folders, the network namespace, its sockets, the groups. */
static int box_prepare(struct tool *t, struct box *b, uint64_t i, struct abx_err *err)
{
    char part[PATH_MAX];
    int r;

    *b = (struct box){ .netns = -EBADF,
                       .fds = { -EBADF, -EBADF },
                       .cgroup_user = -EBADF,
                       .cgroup_guest = -EBADF,
                       .cgroup_root = -EBADF,
                       .result.pidfd = -EBADF };
    (void)snprintf(b->id, sizeof b->id, "t%u-%llu", (unsigned)getpid(), (unsigned long long)i);
    if (t->o.count > 0 ? !path_join(b->upper, sizeof b->upper, t->o.work, b->id)
                       : !path_join(b->upper, sizeof b->upper, t->o.work, ""))
        return err_set(err, ABX_INVALID_ARGUMENT, "path too long");
    for (const char *const *p = (const char *const[]){ "u", "w", NULL }; *p; p++) {
        if (!path_join(part, sizeof part, b->upper, *p))
            return err_set(err, ABX_INVALID_ARGUMENT, "path too long");
        r = path_mkdirs(AT_FDCWD, part, 0755, err);
        if (r < 0)
            return r;
    }
    r = netns_create(&b->netns, err);
    if (r == 0)
        r = netns_listen_tcp(b->netns, GUEST_ENVD_PORT, 16, &b->fds[0], err);
    if (r == 0)
        r = netns_listen_control(b->netns, GUEST_CONTROL_NAME, &b->fds[1], err);
    return r < 0 ? r : box_groups(t, b, err);
}

/* As if the spawner crashed: what it has started must end by itself. */
static int die(void *user, pid_t init_pid, pid_t daemon_pid, int init_pidfd, struct abx_err *err)
{
    (void)printf("%d %d\n", (int)init_pid, (int)daemon_pid);
    (void)fflush(stdout);
    (void)raise(SIGKILL);
    return err_set(err, ABX_INTERNAL, "outlived SIGKILL");
}

static int box_start(struct tool *t, struct box *b, struct abx_err *err)
{
    uint8_t random[16];
    char hex[33], boot_id[37];
    struct spawn_spec spec = {
        .id = b->id,
        .hostname = t->o.hostname,
        .boot_id = boot_id,
        .layers = t->o.layers,
        .n_layers = t->o.n_layers,
        .upper = b->upper,
        .uid_base = t->base,
        .userns_fd = t->userns,
        .netns_fd = b->netns,
        .cgroup_fd = b->cgroup_user,
        .cgroup_guest_fd = b->cgroup_guest,
        .cgroup_root_fd = b->cgroup_root,
        .join_user_fds = b->join_user,
        .n_join_user = b->n_join_user,
        .join_guest_fds = b->join_guest,
        .n_join_guest = b->n_join_guest,
        .before_go = t->o.die ? die : NULL,
        .guest_fd = t->image,
        .envd_fd = b->fds[0],
        .control_fd = b->fds[1],
    };
    int64_t began;
    int r;

    random_bytes(random, sizeof random);
    hex_encode(random, sizeof random, hex);
    (void)snprintf(boot_id, sizeof boot_id, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
                   hex + 16, hex + 20);
    began = now_ns();
    r = spawn_sandbox(t->spawner, &spec, &b->result, err);
    b->spawn_ns = now_ns() - began;
    return r;
}

static void box_kill(struct tool *t, struct box *b)
{
    siginfo_t si;
    int64_t began = now_ns();
    int *fds[] = { &b->netns,       &b->fds[0],       &b->fds[1],
                   &b->cgroup_user, &b->cgroup_guest, &b->cgroup_root };

    if (b->result.pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, b->result.pidfd, SIGKILL, NULL, 0);
        (void)waitid(P_PIDFD, (id_t)b->result.pidfd, &si, WEXITED);
        fd_close(TAKE_FD(b->result.pidfd));
    }
    b->kill_ns = now_ns() - began;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fd_close(TAKE_FD(*fds[i]));
    for (size_t i = 0; i < b->n_join_user; i++)
        fd_close(b->join_user[i]);
    for (size_t i = 0; i < b->n_join_guest; i++)
        fd_close(b->join_guest[i]);
    b->n_join_user = b->n_join_guest = 0;
    if (b->has_groups) {
        struct abx_err err = { 0 };

        if (cgroup_kill(t->tree, b->id, 5000, &err) < 0 || cgroup_remove(t->tree, b->id, &err) < 0)
            (void)fprintf(stderr, "sandbox_run: %s\n", err.msg);
        b->has_groups = false;
    }
}

/* ---- one command ---- */

static int send_command(int sock, const struct options *o, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(60000);
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec iov;
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    const int fds[3] = { 0, 1, 2 };

    if (buf_printf(&text, "%llu", (unsigned long long)o->uid) != BUF_OK ||
        buf_append_byte(&text, 0) != BUF_OK)
        return err_oom(err);
    for (char *const *p = o->command; *p; p++)
        if (buf_append(&text, *p, strlen(*p) + 1) != BUF_OK)
            return err_set(err, ABX_INVALID_ARGUMENT, "command over 60000 bytes");
    iov = (struct iovec){ buf_data(&text), text.len };
    control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fds),
                                     .cmsg_level = SOL_SOCKET,
                                     .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.head), fds, sizeof fds);
    if (sendmsg(sock, &m, MSG_NOSIGNAL) != (ssize_t)text.len)
        return err_sys(err, errno, "send the command");
    return 0;
}

static int run_command(struct tool *t, int *ret_status, struct abx_err *err)
{
    struct box b;
    _cleanup_(closep) int sock = -EBADF;
    int r = box_prepare(t, &b, 0, err);

    if (r == 0)
        r = box_start(t, &b, err);
    if (r == 0)
        r = netns_connect_control(b.netns, GUEST_CONTROL_NAME, &sock, err);
    if (r == 0 && fd_set_nonblock(sock, false) < 0)
        r = err_sys(err, errno, "socket");
    if (r == 0)
        r = send_command(sock, &t->o, err);
    if (r == 0 && recv(sock, ret_status, sizeof *ret_status, 0) != (ssize_t)sizeof *ret_status)
        r = err_set(err, ABX_INTERNAL, "the sandbox ended before its command");
    box_kill(t, &b);
    return r;
}

/* ---- many ---- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void print_row(const char *name, int64_t *ns, size_t n)
{
    qsort(ns, n, sizeof *ns, compare);
    (void)printf("%-10s %8lld %8lld %8lld %8lld\n", name, (long long)ns[0] / 1000,
                 (long long)ns[n / 10] / 1000, (long long)ns[n / 2] / 1000,
                 (long long)ns[n * 95 / 100] / 1000);
}

static void print_table(const struct box *boxes, size_t n)
{
    static int64_t ns[COUNT_MAX];

    (void)printf("%-10s %8s %8s %8s %8s  us, n=%zu\n", "stage", "min", "p10", "median", "p95", n);
    for (size_t s = 0; s < boxes[0].result.n_stages; s++) {
        for (size_t i = 0; i < n; i++)
            ns[i] = (int64_t)boxes[i].result.stages[s].us * 1000;
        print_row(boxes[0].result.stages[s].name, ns, n);
    }
    for (size_t i = 0; i < n; i++)
        ns[i] = boxes[i].spawn_ns;
    print_row("= spawn", ns, n);
    for (size_t i = 0; i < n; i++)
        ns[i] = boxes[i].kill_ns;
    print_row("= kill", ns, n);
}

static int run_many(struct tool *t, struct abx_err *err)
{
    _cleanup_(freep) struct box *boxes = calloc(t->o.count, sizeof *boxes);
    _cleanup_(closep) int work = open(t->o.work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t n = 0;
    int r = 0;

    if (!boxes)
        return err_oom(err);
    if (work < 0)
        return err_sys(err, errno, "open '%s'", t->o.work);
    for (; n < t->o.count && r == 0; n++) {
        r = box_prepare(t, &boxes[n], n, err);
        if (r == 0)
            r = box_start(t, &boxes[n], err);
        if (!t->o.hold || r < 0)
            box_kill(t, &boxes[n]);
    }
    for (size_t i = 0; t->o.hold && i < n; i++)
        box_kill(t, &boxes[i]);
    for (size_t i = 0; i < n && r == 0; i++)
        r = path_remove_tree(work, boxes[i].id, err);
    (void)printf("base %u\n", (unsigned)t->base);
    if (r == 0)
        print_table(boxes, n);
    return r;
}

/* ---- start ---- */

static bool parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        { "layer", 1, NULL, 'l' },    { "work", 1, NULL, 'w' },    { "mount", 1, NULL, 'm' },
        { "uid", 1, NULL, 'u' },      { "init", 1, NULL, 'i' },    { "leases", 1, NULL, 'L' },
        { "hostname", 1, NULL, 'n' }, { "cgroups", 1, NULL, 'c' }, { "count", 1, NULL, 'N' },
        { "hold", 0, NULL, 'h' },     { "die", 0, NULL, 'd' },     { NULL, 0, NULL, 0 },
    };
    static const char *const mounts[] = { "auto", "fd", "string" };
    int c;

    while ((c = getopt_long(argc, argv, "+", longs, NULL)) >= 0) {
        bool ok = true;

        if (c == 'l' && o->n_layers < SPAWN_LAYERS_MAX)
            o->layers[o->n_layers++] = optarg;
        else if (c == 'w')
            o->work = optarg;
        else if (c == 'i')
            o->init = optarg;
        else if (c == 'L')
            o->leases_dir = optarg;
        else if (c == 'n')
            o->hostname = optarg;
        else if (c == 'c')
            o->cgroups = optarg;
        else if (c == 'h')
            o->hold = true;
        else if (c == 'd')
            o->die = true;
        else if (c == 'u')
            ok = str_parse_u64(slice_str(optarg), 65535, &o->uid);
        else if (c == 'N')
            ok = str_parse_u64(slice_str(optarg), COUNT_MAX, &o->count);
        else if (c == 'm') {
            ok = false;
            for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
                if (strcmp(optarg, mounts[i]) == 0) {
                    o->mount = (enum mount_path)i;
                    ok = true;
                }
        } else
            ok = false;
        if (!ok)
            return false;
    }
    o->command = argv + optind;
    return o->n_layers > 0 && o->work && (o->count > 0) == (optind == argc);
}

/* The image beside this program, unless --init says otherwise. */
static int open_image(const char *given, int *ret_fd, struct abx_err *err)
{
    char own[PATH_MAX], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;
    int fd;

    if (n < 0)
        return err_sys(err, errno, "own path");
    own[n] = '\0';
    slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    if (!path_join(path, sizeof path, own, "test_init"))
        return err_set(err, ABX_INVALID_ARGUMENT, "path too long");
    fd = open(given ? given : path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", given ? given : path);
    *ret_fd = fd;
    return 0;
}

static int tool_open(struct tool *t, struct abx_err *err)
{
    const char *keep[SPAWN_LAYERS_MAX + 3] = { t->o.work, t->o.leases_dir };
    struct spawner_opts opts = { .mount_path = t->o.mount, .keep_paths = keep };
    char leases[PATH_MAX], instance[32];
    int r = path_mkdirs(AT_FDCWD, t->o.work, 0700, err);

    /* One per process, or what a killed one held would seem in use as long as another runs. */
    (void)snprintf(instance, sizeof instance, "sandbox-run-%d", (int)getpid());
    for (size_t i = 0; i < t->o.n_layers; i++)
        keep[i + 2] = t->o.layers[i];
    if (r == 0)
        r = path_join(leases, sizeof leases, t->o.leases_dir, "uid-ranges")
                ? uid_leases_open(leases, instance, &t->leases, err)
                : err_set(err, ABX_INVALID_ARGUMENT, "path too long");
    if (r == 0)
        r = uid_lease_take(t->leases, &t->base, err);
    if (r == 0)
        r = userns_open(t->base, &t->userns, err);
    if (r == 0)
        r = open_image(t->o.init, &t->image, err);
    if (r == 0 && t->o.cgroups)
        r = cgroup_tree_open(t->o.cgroups, &t->tree, err);
    return r < 0 ? r : spawner_new(&opts, &t->spawner, err);
}

int main(int argc, char **argv)
{
    struct tool t = { .o = { .leases_dir = "/run/abx", .hostname = "sandbox" },
                      .userns = -EBADF,
                      .image = -EBADF };
    struct abx_err err = { 0 };
    int status = 0, r;

    if (!parse_options(argc, argv, &t.o)) {
        (void)fprintf(stderr,
                      "usage: sandbox_run --layer DIR... --work DIR [--mount auto|fd|string] "
                      "[--uid N] [--hostname NAME] [--cgroups INSTANCE] [--init FILE] "
                      "[--leases DIR] (-- CMD ARG... | --count N [--hold])\n");
        return 2;
    }
    r = tool_open(&t, &err);
    if (r == 0)
        r = t.o.count > 0 ? run_many(&t, &err) : run_command(&t, &status, &err);
    if (t.base && uid_lease_release(t.leases, t.base, r == 0 ? &err : NULL) < 0 && r == 0)
        r = err.code;
    if (t.tree && cgroup_tree_remove(t.tree, r == 0 ? &err : NULL) < 0 && r == 0)
        r = err.code;
    spawner_free(t.spawner);
    cgroup_tree_free(t.tree);
    uid_leases_free(t.leases);
    if (r < 0) {
        (void)fprintf(stderr, "sandbox_run: %s\n", err.msg);
        return EXIT_START;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
