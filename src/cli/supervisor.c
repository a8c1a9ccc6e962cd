/* supervisor.c - the life of a service: listeners, roles, signals. See supervisor.h.
 *
 * Folders: <run> = /run/abx/<instance>, 0711, holds admin.sock for the CLI, gateway/ (the gateways'
 * root folder with the three sockets they connect to) and egress/ (the same with two); the engine's socket for control lies in
 * <data-dir>/control, control's root folder.
 */
#include "cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/datadir.h"
#include "cli/supervisor_counters.h"
#include "cli/supervisor_local.h"
#include "cli/supervisor_ready.h"
#include "cli/supervisor_resolv.h"
#include "cli/supervisor_role.h"
#include "cli/supervisor_watch.h"

#define READY_TIMEOUT_NS (60 * NSEC_PER_SEC)
#define STOP_TIMEOUT_NS (8 * NSEC_PER_SEC)
#define KILL_ALL_TIMEOUT_NS (40 * NSEC_PER_SEC)
#define KILL_RETRY_TIMEOUT_NS (15 * NSEC_PER_SEC)
#define KILL_ALL_TRIES 3
#define PUBLISH_TRIES 4
#define PUBLISH_PAUSE_NS (200 * NSEC_PER_MSEC)
/* Just below the sandboxes' uid ranges (userns.h), four uids for each of 16,384 instances. */
#define ROLE_UID_FIRST (1879048192u - 65536u)

struct supervisor {
    const struct supervisor_opts *opts;
    struct datadir dir;
    char run_dir[64];
    int public_fds[LISTEN_GATEWAYS_MAX];
    int engine_control_fd, engine_gateway_fd, engine_egress_fd, http_fd, table_fd, egress_table_fd,
        admin_fd;
    int signal_fd;
    uid_t control_uid, gateway_uid, egress_uid;
    struct listen_address listen;
    struct supervisor_tls tls;
    char origin[96]; /* http://HOST:PORT as a local client reaches it */
    struct supervisor_local local;
    struct supervisor_counters counters;
    struct resolv_copy resolv; /* for egress */
    int proxy_fd;              /* the same: URL of the proxy, -EBADF without */
    struct role engine, control, egress, gateways[LISTEN_GATEWAYS_MAX];
    struct role *roles[LISTEN_GATEWAYS_MAX + 3]; /* engine, control, the others */
    size_t n_roles;
    bool is_ready, is_stopping;
    int64_t looked_ns;                /* at the roles' heartbeats */
    int64_t notify_ns, notify_due_ns; /* systemd's watchdog: period, 0 = none; the next time */
};

/* The root folder of a role. */
static int open_role_dir(const struct supervisor *s, int run, const char *name, int *ret_fd,
                         struct abx_err *err)
{
    if (mkdirat(run, name, 0711) < 0 && errno != EEXIST)
        return err_sys(err, errno, "folder '%s/%s'", s->run_dir, name);
    *ret_fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(err, errno, "open '%s/%s'", s->run_dir, name) : 0;
}

static int open_run_dir(struct supervisor *s, int *ret_run, struct abx_err *err)
{
    _cleanup_(closep) int run = -EBADF;
    int r;

    if (mkdir(CLI_RUN_DIR, 0711) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", CLI_RUN_DIR);
    (void)snprintf(s->run_dir, sizeof s->run_dir, "%s/%s", CLI_RUN_DIR, s->dir.instance);
    if (mkdir(s->run_dir, 0711) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", s->run_dir);
    run = open(s->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run < 0)
        return err_sys(err, errno, "folder '%s'", s->run_dir);
    r = datadir_claim(&s->dir, run, err);
    if (r < 0) {
        s->run_dir[0] = '\0'; /* another one's: nothing in it is to be removed */
        return r;
    }
    *ret_run = TAKE_FD(run);
    return 0;
}

static int open_sockets(struct supervisor *s, struct abx_err *err)
{
    _cleanup_(closep) int run = -EBADF;
    _cleanup_(closep) int gateway = -EBADF;
    _cleanup_(closep) int egress = -EBADF;
    _cleanup_(closep) int control = -EBADF;
    char path[4096];
    int r = open_run_dir(s, &run, err);

    if (r == 0)
        r = open_role_dir(s, run, "gateway", &gateway, err);
    if (r == 0)
        r = open_role_dir(s, run, "egress", &egress, err);
    if (r < 0)
        return r;
    if (!path_join(path, sizeof path, s->dir.path, "control"))
        return err_set(err, ABX_INVALID_ARGUMENT, "--data-dir is too long");
    control = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (control < 0)
        return err_sys(err, errno, "open '%s'", path);
    const struct {
        int dirfd;
        const char *name;
        int type;
        uid_t uid;
        int *ret;
    } sockets[] = {
        { control, "engine.sock", SOCK_SEQPACKET, s->control_uid, &s->engine_control_fd },
        { gateway, "engine.sock", SOCK_SEQPACKET, s->gateway_uid, &s->engine_gateway_fd },
        { gateway, "control.sock", SOCK_STREAM, s->gateway_uid, &s->http_fd },
        { gateway, "table.sock", SOCK_SEQPACKET, s->gateway_uid, &s->table_fd },
        { egress, "engine.sock", SOCK_SEQPACKET, s->egress_uid, &s->engine_egress_fd },
        { egress, "table.sock", SOCK_SEQPACKET, s->egress_uid, &s->egress_table_fd },
        { run, "admin.sock", SOCK_SEQPACKET, 0, &s->admin_fd },
    };
    for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
        r = listen_unix(sockets[i].dirfd, sockets[i].name, sockets[i].type, sockets[i].uid,
                        sockets[i].ret, err);
        if (r < 0)
            return r;
    }
    s->listen = s->opts->listen;
    r = resolv_copy_open(&s->resolv, egress, err);
    if (r < 0)
        return r;
    r = listen_public(&s->listen, s->opts->n_gateways, &s->dir.predecessor, s->public_fds, err);
    if (r < 0)
        return r;
    r = supervisor_counters_open(&s->counters, s->opts->n_gateways, err);
    if (r < 0)
        return r;
    return supervisor_tls_open(&s->tls, &s->opts->tls, &s->listen, s->opts->n_gateways,
                               &s->dir.predecessor, err);
}

/* Not in arguments or environment: it may hold a password, which is no business of the other roles and users. */
static int open_proxy(struct supervisor *s, struct abx_err *err)
{
    const char *url = s->opts->egress_proxy;

    if (!url || !url[0])
        return 0;
    s->proxy_fd = memfd_create("abx-proxy", MFD_CLOEXEC);
    if (s->proxy_fd < 0 || fd_write_all(s->proxy_fd, url, strlen(url)) < 0)
        return err_sys(err, errno, "keep the proxy's address");
    (void)unsetenv("ABX_EGRESS_PROXY");
    return 0;
}

static int engine_args(struct supervisor *s, struct abx_err *err)
{
    const struct supervisor_opts *o = s->opts;
    struct role *e = &s->engine;
    char guest[4096];
    int r = cli_libexec("abx-guest", guest, sizeof guest, err);

    if (r < 0)
        return r;
    role_arg(e, "--data-dir", "%s", s->dir.path);
    role_arg(e, "--run-dir", "%s", s->run_dir);
    role_arg(e, "--instance", "%s", s->dir.instance);
    role_arg(e, "--guest", "%s", guest);
    role_arg(e, "--templates", "%s/templates:%s/templates", s->dir.path, CLI_CACHE_DIR);
    for (size_t i = 0; o->pools[i]; i++)
        role_arg(e, "--pool", "%s", o->pools[i]);
    if (o->disk_bytes)
        role_arg(e, "--disk", "%llu", (unsigned long long)o->disk_bytes);
    role_arg(e, "--sandbox-cpu", "%llu", (unsigned long long)o->cpu);
    role_arg(e, "--sandbox-memory-mb", "%llu", (unsigned long long)o->memory_mb);
    role_arg(e, "--sandbox-disk-mb", "%llu", (unsigned long long)o->disk_mb);
    role_arg(e, "--max-cpu", "%llu", (unsigned long long)o->max_cpu);
    role_arg(e, "--max-memory-mb", "%llu", (unsigned long long)o->max_memory_mb);
    role_arg(e, "--max-disk-mb", "%llu", (unsigned long long)o->max_disk_mb);
    role_arg_fd(e, "--control-fd", s->engine_control_fd);
    role_arg_fd(e, "--gateway-fd", s->engine_gateway_fd);
    role_arg_fd(e, "--egress-fd", s->engine_egress_fd);
    role_arg(e, "--control-uid", "%u", s->control_uid);
    role_arg(e, "--gateway-uid", "%u", s->gateway_uid);
    role_arg(e, "--egress-uid", "%u", s->egress_uid);
    r = watch_add(e, SOCKETS_THREAD, "--sockets-heartbeat-fd", false, err);
    return r < 0 ? r : role_finish(e, err);
}

static int control_args(struct supervisor *s, struct abx_err *err)
{
    const struct supervisor_opts *o = s->opts;
    struct role *c = &s->control;
    int r;

    role_arg(c, "--data-dir", "%s", s->dir.path);
    role_arg(c, "--instance", "%s", s->dir.instance);
    role_arg_fd(c, "--http-fd", s->http_fd);
    role_arg_fd(c, "--table-fd", s->table_fd);
    role_arg_fd(c, "--egress-fd", s->egress_table_fd);
    role_arg_fd(c, "--admin-fd", s->admin_fd);
    role_arg(c, "--engine-sock", "%s/control/engine.sock", s->dir.path);
    role_arg(c, "--uid", "%u", s->control_uid);
    role_arg(c, "--gid", "%u", s->control_uid);
    role_arg(c, "--gateway-uid", "%u", s->gateway_uid);
    role_arg(c, "--egress-uid", "%u", s->egress_uid);
    role_arg(c, "--listen-origin", "%s", s->origin);
    if (o->domain)
        role_arg(c, "--domain", "%s", o->domain);
    role_arg(c, "--max-timeout", "%llu", (unsigned long long)o->max_timeout_s);
    role_arg(c, "--sandbox-cpu", "%llu", (unsigned long long)o->cpu);
    role_arg(c, "--sandbox-memory", "%llu", (unsigned long long)o->memory_mb);
    role_arg(c, "--sandbox-disk", "%llu", (unsigned long long)o->disk_mb);
    role_arg(c, "--max-cpu", "%llu", (unsigned long long)o->max_cpu);
    role_arg(c, "--max-memory", "%llu", (unsigned long long)o->max_memory_mb);
    role_arg(c, "--max-disk", "%llu", (unsigned long long)o->max_disk_mb);
    if (o->max_sandboxes)
        role_arg(c, "--max-sandboxes", "%llu", (unsigned long long)o->max_sandboxes);
    role_arg(c, "--max-snapshots", "%llu", (unsigned long long)o->max_snapshots);
    if (o->max_key_connections)
        role_arg(c, "--max-key-connections", "%llu", (unsigned long long)o->max_key_connections);
    if (o->metrics_keep_s)
        role_arg(c, "--metrics-keep", "%llu", (unsigned long long)o->metrics_keep_s);
    if (o->max_log_lines)
        role_arg(c, "--max-log-lines", "%llu", (unsigned long long)o->max_log_lines);
    if (o->max_idempotency_keys)
        role_arg(c, "--max-idempotency-keys", "%llu", (unsigned long long)o->max_idempotency_keys);
    supervisor_counters_control(&s->counters, o->n_gateways, c);
    r = watch_add(c, STORE_THREAD, "--store-heartbeat-fd", false, err);
    if (r == 0) /* 200 MB may be written before anybody waits for it */
        r = watch_add(c, CHECKPOINT_THREAD, "--checkpoint-heartbeat-fd", true, err);
    return r < 0 ? r : role_finish(c, err);
}

static int gateway_args(struct supervisor *s, struct role *g, size_t i, struct abx_err *err)
{
    g->ignores_hangup = true;
    role_arg_fd(g, "--listen-fd", s->public_fds[i]);
    if (s->tls.share) {
        role_arg_fd(g, "--tls-listen-fd", s->tls.listen_fds[i]);
        role_arg_fd(g, "--tls-fd", s->tls.share_fd);
    }
    role_arg(g, "--root", "%s/gateway", s->run_dir);
    role_arg(g, "--control-sock", "/control.sock");
    role_arg(g, "--table-sock", "/table.sock");
    role_arg(g, "--engine-sock", "/engine.sock");
    role_arg(g, "--uid", "%u", s->gateway_uid);
    role_arg(g, "--gid", "%u", s->gateway_uid);
    if (s->opts->domain)
        role_arg(g, "--domain", "%s", s->opts->domain);
    if (s->opts->has_access_log)
        role_flag(g, "--access-log");
    if (s->opts->max_client_connections)
        role_arg(g, "--max-client-connections", "%llu",
                 (unsigned long long)s->opts->max_client_connections);
    if (s->opts->max_sandbox_connections)
        role_arg(g, "--max-sandbox-connections", "%llu",
                 (unsigned long long)s->opts->max_sandbox_connections);
    if (s->opts->max_key_connections)
        role_arg(g, "--max-key-connections", "%llu",
                 (unsigned long long)s->opts->max_key_connections);
    supervisor_counters_gateway(&s->counters, i, g);
    return role_finish(g, err);
}

static int egress_args(struct supervisor *s, struct abx_err *err)
{
    const struct supervisor_opts *o = s->opts;
    struct role *e = &s->egress;

    e->ignores_hangup = true;
    role_arg(e, "--root", "%s/egress", s->run_dir);
    role_arg(e, "--table-sock", "/table.sock");
    role_arg(e, "--engine-sock", "/engine.sock");
    role_arg(e, "--uid", "%u", s->egress_uid);
    role_arg(e, "--gid", "%u", s->egress_uid);
    if (s->proxy_fd >= 0)
        role_arg_fd(e, "--proxy-fd", s->proxy_fd);
    for (size_t i = 0; i < o->n_egress_dns; i++)
        role_arg(e, "--dns", "%s", o->egress_dns[i]);
    if (o->n_egress_dns == 0)
        role_arg(e, "--resolv-conf", "/resolv.conf");
    for (size_t i = 0; i < o->n_egress_allow; i++)
        role_arg(e, "--allow", "%s", o->egress_allow[i]);
    supervisor_counters_egress(&s->counters, e);
    return role_finish(e, err);
}

static int prepare_roles(struct supervisor *s, struct abx_err *err)
{
    int r = role_init(&s->engine, "abx-engine", err);

    s->engine.unblocks_signals = true;
    if (r == 0)
        r = engine_args(s, err);
    if (r == 0)
        r = role_init(&s->control, "abx-control", err);
    if (r == 0)
        r = control_args(s, err);
    s->roles[s->n_roles++] = &s->engine;
    s->roles[s->n_roles++] = &s->control;
    for (size_t i = 0; r == 0 && i < s->opts->n_gateways; i++) {
        r = role_init(&s->gateways[i], "abx-gateway", err);
        if (r == 0)
            r = gateway_args(s, &s->gateways[i], i, err);
        s->roles[s->n_roles++] = &s->gateways[i];
    }
    if (r == 0)
        r = role_init(&s->egress, "abx-egress", err);
    if (r == 0)
        r = egress_args(s, err);
    s->roles[s->n_roles++] = &s->egress;
    return r;
}

static int open_signals(struct supervisor *s, struct abx_err *err)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, errno, "block signals");
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd < 0 ? err_sys(err, errno, "signalfd") : 0;
}

/* "exit 1" or "signal 9". */
static void print_status(int status, char *to, size_t size)
{
    if (WIFSIGNALED(status))
        (void)snprintf(to, size, "signal %d", WTERMSIG(status));
    else
        (void)snprintf(to, size, "exit %d", WEXITSTATUS(status));
}

static void log_death(const struct role *role, int status)
{
    char pid[16], how[32];

    (void)snprintf(pid, sizeof pid, "%ld", (long)role->pid);
    print_status(status, how, sizeof how);
    log_warn("role ended, it will be started again", "name", role->name, "pid", pid, "how", how,
             NULL);
}

/* In the role's own words if it had any. */
static int failed_start(const struct role *role, int status, struct abx_err *err)
{
    char why[sizeof err->msg], how[32];

    role_failure(role, why, sizeof why);
    print_status(status, how, sizeof how);
    return why[0] ? err_set(err, ABX_FAILED_PRECONDITION, "%s does not start: %s", role->name, why)
                  : err_set(err, ABX_FAILED_PRECONDITION,
                            "%s ended while the service was starting (%s): see its message above",
                            role->name, how);
}

/* Reaps everything: roles, and orphans of a dead engine. The first role that died before the service
 * was ready is an error. */
static int reap(struct supervisor *s, struct abx_err *err)
{
    int status, r = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < s->n_roles; i++) {
            struct role *role = s->roles[i];

            if (role->pid != pid)
                continue;
            if (!s->is_ready && !s->is_stopping)
                r = failed_start(role, status, err);
            else if (!s->is_stopping)
                log_death(role, status);
            role_ended(role, status);
        }
    }
    return r;
}

static void signal_role(struct role *role, int signo)
{
    if (role->pid > 0)
        (void)kill(role->pid, signo);
}

/* New certificates for the gateways; one that is starting reads them by itself. The other roles ignore it. */
static void reload(struct supervisor *s)
{
    struct abx_err err = { 0 };

    if (!s->tls.share)
        return;
    if (supervisor_tls_reload(&s->tls, &err) < 0) {
        log_err("the certificates in use stay", &err);
        return;
    }
    for (size_t i = 2; i < s->n_roles; i++)
        signal_role(s->roles[i], SIGHUP);
}

/* Reads signals; *ret_signal gets SIGTERM or SIGINT when one came. */
static int read_signals(struct supervisor *s, int *ret_signal, struct abx_err *err)
{
    struct signalfd_siginfo si;
    int r = 0;

    while (read(s->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
            *ret_signal = (int)si.ssi_signo;
        else if (si.ssi_signo == SIGHUP)
            reload(s);
    }
    if (reap(s, err) < 0)
        r = err ? err->code : ABX_FAILED_PRECONDITION;
    return r;
}

/* While stopping, the roles' time is limited anyway, and the end of a loop is no fault. */
static void look_at_roles(struct supervisor *s)
{
    int64_t now = time_mono_ns(), step = now - s->looked_ns;
    char why[96], pid[16];

    s->looked_ns = now;
    resolv_copy_refresh(&s->resolv);
    for (size_t i = 0; i < s->n_roles && !s->is_stopping; i++) {
        struct role *role = s->roles[i];

        if (!watch_look(role, step, why))
            continue;
        (void)snprintf(pid, sizeof pid, "%ld", (long)role->pid);
        log_error("role hangs, killing it", "name", role->name, "pid", pid, "why", why, NULL);
        (void)kill(role->pid, SIGKILL);
    }
    if (s->notify_ns > 0 && s->is_ready && now >= s->notify_due_ns) {
        notify_systemd("WATCHDOG=1");
        s->notify_due_ns = now + s->notify_ns;
    }
}

/* One turn: waits for a signal until `deadline_ns`, the next restart or the next look at the roles,
 * whichever comes first. */
static int turn(struct supervisor *s, int64_t deadline_ns, int *ret_signal, struct abx_err *err)
{
    struct pollfd p = { .fd = s->signal_fd, .events = POLLIN };
    int64_t now = time_mono_ns(), until = MIN(deadline_ns, now + WATCH_PERIOD_MS * NSEC_PER_MSEC);
    int timeout_ms;

    for (size_t i = 0; i < s->n_roles && !s->is_stopping; i++)
        if (s->roles[i]->pid == 0 && s->roles[i]->restart_at_ns < until)
            until = s->roles[i]->restart_at_ns;
    if (s->notify_ns > 0 && s->is_ready)
        until = MIN(until, s->notify_due_ns);
    timeout_ms = until <= now ? 0 : (int)((until - now) / NSEC_PER_MSEC + 1);
    if (poll(&p, 1, timeout_ms) < 0 && errno != EINTR)
        return err_sys(err, errno, "poll");
    if (read_signals(s, ret_signal, err) < 0)
        return err ? err->code : ABX_FAILED_PRECONDITION;
    look_at_roles(s);
    now = time_mono_ns();
    for (size_t i = 0; i < s->n_roles && !s->is_stopping; i++) {
        struct role *role = s->roles[i];

        if (role->pid != 0 || role->restart_at_ns > now)
            continue;
        if (role_start(role, err) < 0) {
            if (!s->is_ready)
                return err ? err->code : ABX_INTERNAL;
            log_err("role cannot be started", err);
        }
    }
    return 0;
}

/* Waits until none of the roles runs; kills what is left at the deadline. Roles that hurry are told of another signal that comes
 * meanwhile. */
static void wait_roles(struct supervisor *s, struct role *const *roles, size_t n,
                       int64_t timeout_ns, bool hurries)
{
    int64_t deadline = time_mono_ns() + timeout_ns;
    bool was_killed = false;

    for (;;) {
        bool is_alive = false;
        int signo = 0;

        for (size_t i = 0; i < n; i++)
            is_alive |= roles[i]->pid > 0;
        if (!is_alive)
            return;
        if (time_mono_ns() >= deadline) {
            if (was_killed)
                return;
            for (size_t i = 0; i < n; i++) {
                if (roles[i]->pid > 0)
                    log_warn("role did not stop in time, killing it", "name", roles[i]->name, NULL);
                signal_role(roles[i], SIGKILL);
            }
            was_killed = true;
            deadline = time_mono_ns() + STOP_TIMEOUT_NS;
        }
        (void)turn(s, deadline, &signo, NULL);
        for (size_t i = 0; signo != 0 && hurries && i < n; i++)
            signal_role(roles[i], signo);
    }
}

/* The run folder goes with the service, unless the engine left records of sandboxes in it: only what
 * is known to lie there is removed, and `sandboxes` only when empty. */
static void remove_run_dir(const struct supervisor *s)
{
    static const struct {
        const char *name;
        int flags;
    } entries[] = {
        { "sandboxes", AT_REMOVEDIR },
        { "admin.sock", 0 },
        { "gateway/control.sock", 0 },
        { "gateway/engine.sock", 0 },
        { "gateway/table.sock", 0 },
        { "egress/resolv.conf", 0 },
        { "egress/engine.sock", 0 },
        { "egress/table.sock", 0 },
        { "gateway/proc", AT_REMOVEDIR },
        { "egress/proc", AT_REMOVEDIR }, /* see confine.c */
        { "gateway", AT_REMOVEDIR },
        { "egress", AT_REMOVEDIR },
        { "data-dir", 0 }, /* last: it says whose the rest is */
    };
    _cleanup_(closep) int run = open(s->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (run < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
        if (unlinkat(run, entries[i].name, entries[i].flags) < 0 && errno != ENOENT)
            return;
    (void)rmdir(s->run_dir);
}

/* An engine that is away or dies over it is started for this: without one nothing ends. */
static bool end_sandboxes(struct supervisor *s)
{
    struct abx_err err = { 0 };

    for (int i = 0; i < KILL_ALL_TRIES; i++) {
        if (s->engine.pid == 0 && role_start(&s->engine, &err) < 0)
            continue;
        signal_role(&s->engine, SIGINT);
        wait_roles(s, s->roles, 1, i == 0 ? KILL_ALL_TIMEOUT_NS : KILL_RETRY_TIMEOUT_NS, false);
        if (s->engine.pid == 0 && s->engine.status == 0)
            return true;
    }
    log_warn("the engine did not end well: sandboxes may be running", "error", err.msg, NULL);
    return false;
}

/* Gateways let requests in flight end first, for 5 s, unless a second signal comes; of streams, which may have no end, only where
 * their sandboxes go on (SIGINT tells them). Of the rest the engine is first when sandboxes are to be killed, so that control can
 * write down that they were; last when they are kept, so that no request fails for want of it. */
static void stop_all(struct supervisor *s, bool kill_sandboxes)
{
    bool are_killed = false;

    s->is_stopping = true;
    supervisor_local_give_up(&s->local); /* who looks from now on is told that nothing runs */
    if (s->is_ready)
        log_info("stopping", "sandboxes", kill_sandboxes ? "kill" : "keep", NULL);
    for (size_t i = 2; i < s->n_roles; i++)
        signal_role(s->roles[i], kill_sandboxes ? SIGINT : SIGTERM);
    wait_roles(s, s->roles + 2, s->n_roles - 2, STOP_TIMEOUT_NS, true);
    if (kill_sandboxes)
        are_killed = end_sandboxes(s);
    signal_role(&s->control, are_killed ? SIGINT : SIGTERM);
    wait_roles(s, s->roles + 1, 1, STOP_TIMEOUT_NS, false);
    signal_role(&s->engine, SIGTERM);
    wait_roles(s, s->roles, 1, STOP_TIMEOUT_NS, false);
    remove_run_dir(s);
}

/* Turns until the service answers, a role fails, a signal comes or the time is up. */
static int wait_ready(struct supervisor *s, int *ret_signal, struct abx_err *err)
{
    int64_t deadline = time_mono_ns() + READY_TIMEOUT_NS;
    struct abx_err last = { 0 };

    while (*ret_signal == 0) {
        int r = turn(s, time_mono_ns() + 20 * NSEC_PER_MSEC, ret_signal, err);

        if (r < 0)
            return r;
        if (*ret_signal != 0)
            return 0;
        r = ready_check(&s->listen, s->run_dir, s->dir.path, &last);
        if (r == 0) {
            s->is_ready = true;
            return 0;
        }
        if (time_mono_ns() >= deadline)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "the service is not ready after 60 s: %s",
                           last.msg);
    }
    return 0;
}

static void raise_nofile(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
}

/* The roles' uids follow from the instance id, unless --run-as names one for all. */
static void choose_uids(struct supervisor *s)
{
    uint8_t id[2] = { 0, 0 };

    if (s->opts->role_uid) {
        s->control_uid = s->gateway_uid = s->egress_uid = s->opts->role_uid;
        return;
    }
    (void)hex_decode(slice_of(s->dir.instance, 4), id, sizeof id);
    s->control_uid = ROLE_UID_FIRST + ((uid_t)id[0] << 8 | id[1]) / 4 * 4;
    s->gateway_uid = s->control_uid + 1;
    s->egress_uid = s->control_uid + 2;
}

static int set_up(struct supervisor *s, struct abx_err *err)
{
    const char *host;
    int r = datadir_open(s->opts->data_dir, CLI_RUN_DIR, &s->dir, err);

    if (r < 0)
        return r;
    if (s->dir.was_emptied)
        log_warn("the data dir was emptied since a service ran in it: its sandboxes that still run "
                 "are ended",
                 "data_dir", s->dir.path, "instance", s->dir.instance, NULL);
    choose_uids(s);
    r = datadir_control_folder(&s->dir, s->control_uid, err);
    if (r == 0)
        r = open_sockets(s, err);
    if (r < 0)
        return r;
    host = strcmp(s->listen.host, "0.0.0.0") == 0 ? "127.0.0.1"
           : strcmp(s->listen.host, "::") == 0    ? "::1"
                                                  : s->listen.host;
    (void)snprintf(s->origin, sizeof s->origin,
                   strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u", host, s->listen.port);
    raise_nofile();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_sys(err, errno, "child subreaper");
    r = open_proxy(s, err);
    if (r < 0)
        return r;
    r = open_signals(s, err);
    return r < 0 ? r : prepare_roles(s, err);
}

static void describe_service(struct supervisor *s)
{
    struct local_service_info *info = &s->local.info;

    (void)snprintf(info->instance, sizeof info->instance, "%s", s->dir.instance);
    (void)snprintf(info->data_dir, sizeof info->data_dir, "%s", s->dir.path);
    (void)snprintf(info->base_url, sizeof info->base_url, "%s", s->origin);
    if (s->opts->domain)
        (void)snprintf(info->domain, sizeof info->domain, "%s", s->opts->domain);
    else
        (void)snprintf(info->domain, sizeof info->domain, "localhost:%u", s->listen.port);
    process_mark(info->process);
    (void)snprintf(s->local.socket_path, sizeof s->local.socket_path, "%s/admin.sock", s->run_dir);
    s->local.users = s->opts->local_users;
    s->local.n_users = s->opts->n_local_users;
}

/* Clients of users on this machine find the service that has the folder. It works without too. A
 * control that dies meanwhile is started again between two tries. */
static void publish_locally(struct supervisor *s, int *ret_signal)
{
    struct abx_err err = { 0 };
    int r = ABX_UNAVAILABLE;

    describe_service(s);
    for (int i = 0; i < PUBLISH_TRIES && *ret_signal == 0; i++) {
        r = supervisor_local_publish(&s->local, &err);
        if (r != ABX_UNAVAILABLE && r != ABX_DEADLINE_EXCEEDED)
            break;
        if (turn(s, time_mono_ns() + PUBLISH_PAUSE_NS, ret_signal, &err) < 0)
            break;
    }
    if (r < 0 && *ret_signal == 0)
        log_warn("clients on this machine do not find this service by themselves", "error", err.msg,
                 NULL);
}

static void announce(const struct supervisor *s)
{
    char key[PATH_MAX + 16];

    if (s->tls.share) {
        char port[8];

        (void)snprintf(port, sizeof port, "%u", s->tls.listen.port);
        log_info("serving TLS", "host", s->tls.listen.host, "port", port, NULL);
    }
    (void)snprintf(key, sizeof key, "%s/admin.key", s->dir.path);
    (void)fputs("export E2B_API_KEY=\"$(cat ", stdout);
    cli_print_shell_word(key);
    (void)printf(")\"\nexport E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nready %s\n", s->origin,
                 s->origin, s->origin);
    (void)cli_end(0); /* serving goes on without a reader */
    notify_systemd("READY=1");
    log_info("ready", "origin", s->origin, "instance", s->dir.instance, NULL);
}

static void supervisor_done(struct supervisor *s)
{
    bool is_alone = true;

    for (size_t i = 0; i < s->n_roles; i++) {
        is_alone &= s->roles[i]->pid == 0;
        role_done(s->roles[i]);
    }
    /* After a start that failed what a killed predecessor holds may still be held. */
    if (is_alone && (s->is_ready || !s->dir.predecessor.was_killed))
        datadir_sign_off(&s->dir);
    supervisor_tls_done(&s->tls);
    resolv_copy_done(&s->resolv);
    fd_close(s->proxy_fd);
    datadir_done(&s->dir);
    fd_close(s->signal_fd);
}

int supervisor_run(const struct supervisor_opts *opts, struct abx_err *err)
{
    static struct supervisor s; /* one per process; large for a stack */
    int signo = 0, r;

    s = (struct supervisor){ .opts = opts,
                             .signal_fd = -EBADF,
                             .dir = DATADIR_INIT,
                             .local = SUPERVISOR_LOCAL_INIT,
                             .tls = SUPERVISOR_TLS_INIT,
                             .resolv = RESOLV_COPY_INIT,
                             .proxy_fd = -EBADF };
    r = set_up(&s, err);
    if (r < 0) {
        if (s.run_dir[0])
            remove_run_dir(&s);
        supervisor_done(&s);
        return r;
    }
    if (!listen_address_is_loopback(&s.listen))
        log_warn("listening beyond loopback without TLS: keys can be read on the way (--tls-cert, "
                 "or a TLS proxy in front)",
                 "host", s.listen.host, NULL);
    s.looked_ns = time_mono_ns();
    s.notify_ns = notify_watchdog_ns() / 4;
    r = wait_ready(&s, &signo, err);
    if (r == 0 && signo == 0) {
        publish_locally(&s, &signo);
        announce(&s);
    }
    while (r == 0 && signo == 0) {
        r = turn(&s, INT64_MAX, &signo, err);
        supervisor_local_look(&s.local);
    }
    stop_all(&s,
             opts->on_exit == EXIT_KILL || (opts->on_exit == EXIT_BY_SIGNAL && signo == SIGINT));
    supervisor_done(&s);
    return r;
}
