/* probe.c - runs the checks in children with a deadline; formats the result. See probe.h. */
#include "engine/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/probe_internal.h"

#define DEADLINE_MS 3000
#define OUTPUT_MAX ((size_t)1 << 20)
#define DATA_DIR "/var/lib/abx"

struct entry {
    const char *name;
    probe_fn *run;
    enum probe_status if_stuck; /* status when it crashes or does not end */
    bool is_of_root;            /* what another user finds says nothing about the service */
};

static const struct entry entries[] = {
    { "root", probe_root, PROBE_MISSING },
    { "kernel", probe_kernel, PROBE_MISSING },
    { "user-namespaces", probe_userns, PROBE_MISSING, true },
    { "proc-mount", probe_proc, PROBE_MISSING, true },
    { "seccomp", probe_seccomp, PROBE_MISSING, true },
    { "idmapped-mounts", probe_idmap, PROBE_MISSING, true },
    { "overlay", probe_overlay, PROBE_MISSING, true },
    { "cgroup-limits", probe_cgroup, PROBE_MISSING, true },
    { "freeze-and-kill", probe_freeze, PROBE_MISSING, true },
    { "clone-into-cgroup", probe_clone3, PROBE_DEGRADED, true },
    { "network-namespaces", probe_netns, PROBE_MISSING, true },
    { "network-steering", probe_steering, PROBE_DEGRADED, true },
    { "disk-limits", probe_disk, PROBE_DEGRADED, true },
    { "disk-space", probe_space, PROBE_DEGRADED, true },
    { "runtime-dir", probe_runtime_dir, PROBE_DEGRADED },
    { "memory", probe_memory, PROBE_DEGRADED },
    { "process-ids", probe_pids, PROBE_DEGRADED },
    { "open-files", probe_nofile, PROBE_DEGRADED, true },
    { "open-files-machine", probe_file_max, PROBE_DEGRADED },
    { "inotify", probe_inotify, PROBE_INFO },
    { "port", probe_port, PROBE_INFO },
    { "base-template-tools", probe_tools, PROBE_DEGRADED },
    { "security-module", probe_lsm, PROBE_INFO },
    { "swap", probe_swap, PROBE_INFO, true },
    { "kvm", probe_kvm, PROBE_INFO, true },
    { "criu", probe_criu, PROBE_INFO, true },
};
_Static_assert(ARRAY_SIZE(entries) <= PROBE_CHECKS_MAX, "make PROBE_CHECKS_MAX larger");

void probe_set(struct probe_check *c, enum probe_status status, const char *meaning,
               const char *fix, const char *value_fmt, ...)
{
    va_list ap;

    c->status = status;
    va_start(ap, value_fmt);
    (void)vsnprintf(c->value, sizeof c->value, value_fmt, ap);
    va_end(ap);
    (void)snprintf(c->meaning, sizeof c->meaning, "%s", meaning);
    (void)snprintf(c->fix, sizeof c->fix, "%s", fix);
}

/* The folder itself or the nearest one above it that exists. */
static void existing_dir(const char *data_dir, char *to, size_t size)
{
    struct stat st;

    (void)snprintf(to, size, "%s", data_dir);
    while (to[1] && (stat(to, &st) < 0 || !S_ISDIR(st.st_mode))) {
        char *slash = strrchr(to, '/');

        if (!slash)
            break;
        slash[slash == to ? 1 : 0] = '\0';
    }
}

/* Removes a folder directly below `base` with all that is in it. */
static void remove_scratch(const char *base, const char *scratch)
{
    _cleanup_(closep) int dirfd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dirfd >= 0)
        (void)path_remove_tree(dirfd, strrchr(scratch, '/') + 1, NULL);
}

/* In the child: runs the check and sends its result. */
static _Noreturn void run_child(const struct entry *e, const struct probe_env *env, int fd)
{
    struct probe_check c = { 0 };

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(c.name, sizeof c.name, "%s", e->name);
    probe_set(&c, e->if_stuck, "", "", "the check said nothing");
    e->run(env, &c);
    _exit(fd_write_all(fd, &c, sizeof c) < 0);
}

/* Waits for the result until the deadline. */
static bool receive(int fd, struct probe_check *ret)
{
    int64_t deadline = time_mono_ns() + DEADLINE_MS * NSEC_PER_MSEC;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int64_t left;

    while ((left = deadline - time_mono_ns()) > 0) {
        int n = poll(&p, 1, (int)(left / NSEC_PER_MSEC) + 1);

        if (n < 0 && errno == EINTR)
            continue;
        /* One write below PIPE_BUF arrives whole. */
        return n == 1 && read(fd, ret, sizeof *ret) == sizeof *ret;
    }
    return false;
}
_Static_assert(sizeof(struct probe_check) <= 4096, "a check must fit into one pipe write");

static int run_one(const struct entry *e, const struct probe_env *env, struct probe_check *ret,
                   struct abx_err *err)
{
    int64_t start = time_mono_ns();
    int pipe_fds[2];
    pid_t pid;
    bool ok;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    pid = fork();
    if (pid == 0)
        run_child(e, env, pipe_fds[1]);
    fd_close(pipe_fds[1]);
    ok = pid > 0 && receive(pipe_fds[0], ret);
    fd_close(pipe_fds[0]);
    if (pid < 0)
        return err_sys(err, errno, "fork");
    (void)kill(pid, SIGKILL);
    /* What hangs in the kernel can't be waited for. */
    (void)waitpid(pid, NULL, ok ? 0 : WNOHANG);
    if (ok)
        return 0;
    *ret = (struct probe_check){ 0 };
    (void)snprintf(ret->name, sizeof ret->name, "%s", e->name);
    probe_set(ret, e->if_stuck, "the check did not come to an end; this machine does something odd",
              "", "no result after %lld ms", (long long)((time_mono_ns() - start) / NSEC_PER_MSEC));
    return 0;
}

int probe_run(const char *data_dir, struct probe *ret, struct abx_err *err)
{
    char base[PATH_MAX], scratch[PATH_MAX];
    struct probe_env env = { .data_dir = data_dir, .scratch = scratch };
    bool is_root = geteuid() == 0;
    int r = 0;

    ret->n_checks = 0;
    existing_dir(data_dir, base, sizeof base);
    for (size_t i = 0; i < ARRAY_SIZE(entries) && r == 0; i++) {
        if (entries[i].is_of_root && !is_root)
            continue;
        if (snprintf(scratch, sizeof scratch, "%s/.abx-probe-XXXXXX", base[1] ? base : "") >=
            (int)sizeof scratch)
            return err_set(err, ABX_INVALID_ARGUMENT, "the path of the data dir is too long");
        /* Not to be had below a read-only folder, which the checks that need it say. */
        if (!mkdtemp(scratch))
            scratch[0] = '\0';
        r = run_one(&entries[i], &env, &ret->checks[ret->n_checks], err);
        ret->n_checks += r == 0;
        if (scratch[0])
            remove_scratch(base, scratch);
    }
    return r;
}

const char *probe_status_name(enum probe_status status)
{
    switch (status) {
    case PROBE_OK:
        return "ok";
    case PROBE_INFO:
        return "info";
    case PROBE_DEGRADED:
        return "degraded";
    case PROBE_MISSING:
        return "missing";
    }
    return "unknown";
}

bool probe_can_run(const struct probe *p)
{
    for (size_t i = 0; i < p->n_checks; i++)
        if (p->checks[i].status == PROBE_MISSING)
            return false;
    return true;
}

/* Text from the kernel or a tool may hold anything: what is no UTF-8 becomes '?'. */
static enum buf_status append_json_string(struct buf *b, const char *s)
{
    bool is_text = utf8_is_valid(slice_str(s));
    enum buf_status st = buf_append_byte(b, '"');

    for (; *s && st == BUF_OK; s++) {
        uint8_t c = (uint8_t)*s;

        if (c == '"' || c == '\\')
            st = buf_printf(b, "\\%c", c);
        else if (c < 0x20)
            st = buf_printf(b, "\\u%04x", c);
        else
            st = buf_append_byte(b, c >= 0x80 && !is_text ? '?' : c);
    }
    return st == BUF_OK ? buf_append_byte(b, '"') : st;
}

static enum buf_status append_member(struct buf *b, const char *key, const char *value)
{
    enum buf_status st = buf_printf(b, "%s\"%s\": ", strcmp(key, "name") == 0 ? "" : ", ", key);

    return st == BUF_OK ? append_json_string(b, value) : st;
}

enum buf_status probe_format_json(const struct probe *p, struct buf *b)
{
    enum buf_status st =
        buf_printf(b, "{\"can_run\": %s, \"checks\": [", probe_can_run(p) ? "true" : "false");

    for (size_t i = 0; i < p->n_checks && st == BUF_OK; i++) {
        const struct probe_check *c = &p->checks[i];

        st = buf_append_str(b, i ? ",\n  {" : "\n  {");
        if (st == BUF_OK)
            st = append_member(b, "name", c->name);
        if (st == BUF_OK)
            st = append_member(b, "status", probe_status_name(c->status));
        if (st == BUF_OK)
            st = append_member(b, "value", c->value);
        if (st == BUF_OK)
            st = append_member(b, "meaning", c->meaning);
        if (st == BUF_OK)
            st = append_member(b, "fix", c->fix);
        if (st == BUF_OK)
            st = buf_append_byte(b, '}');
    }
    return st == BUF_OK ? buf_append_str(b, "\n]}\n") : st;
}

enum buf_status probe_format_text(const struct probe *p, struct buf *b)
{
    enum buf_status st = BUF_OK;

    for (size_t i = 0; i < p->n_checks && st == BUF_OK; i++) {
        const struct probe_check *c = &p->checks[i];

        st = buf_printf(b, "%-9s %-20s %s\n", probe_status_name(c->status), c->name, c->value);
        if (st == BUF_OK && c->meaning[0])
            st = buf_printf(b, "%-9s %-20s   %s\n", "", "", c->meaning);
        if (st == BUF_OK && c->fix[0])
            st = buf_printf(b, "%-9s %-20s   to get it: %s\n", "", "", c->fix);
    }
    return st;
}

int probe_main(int argc, char **argv)
{
    _cleanup_(freep) struct probe *p = calloc(1, sizeof *p);
    _cleanup_(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
    const char *data_dir = DATA_DIR;
    bool is_text = false;
    struct abx_err err = { 0 };

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--text") == 0) {
            is_text = true;
        } else if (strcmp(argv[i], "--data-dir") == 0 && i + 1 < argc && argv[i + 1][0] == '/') {
            data_dir = argv[++i];
        } else {
            fprintf(stderr, "abx-engine --probe: unexpected '%s' (--data-dir /PATH, --text)\n",
                    argv[i]);
            return 2;
        }
    }
    if (!p || probe_run(data_dir, p, &err) < 0) {
        fprintf(stderr, "abx-engine --probe: %s\n", p ? err.msg : "out of memory");
        return 1;
    }
    if ((is_text ? probe_format_text(p, &out) : probe_format_json(p, &out)) != BUF_OK ||
        fd_write_all(STDOUT_FILENO, buf_data(&out), out.len) < 0) {
        fprintf(stderr, "abx-engine --probe: the result can't be written\n");
        return 1;
    }
    return probe_can_run(p) ? 0 : 1;
}
