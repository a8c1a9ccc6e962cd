/* main.c - abx-gateway: arguments, giving up rights, signals. Everything else is in the library. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "net/confine.h"
#include "net/counters.h"
#include "net/heartbeat.h"
#include "net/role_args.h"
#include "net/tls.h"

#define DRAIN_MS 5000u /* what running requests get at a stop */
#define DRAIN_LOOK_MS 50u
#define FDS_RESERVED 256u
#define FDS_PER_CLIENT 3u /* its own, one into its sandbox, a share of those idle and kept ready */

static const char usage[] =
    "usage: abx-gateway --listen-fd N --control-sock PATH --table-sock PATH --engine-sock "
    "PATH\n" ROLE_ARGS_USAGE
    "  --domain NAME              sandboxes are <port>-<id>.NAME (localhost)\n"
    "  --max-connections N        clients at once (10000, and what the descriptors allow)\n"
    "  --max-client-connections N  of one address; loopback is not counted (half of the above)\n"
    "  --max-sandbox-connections N  into one sandbox (1000)\n"
    "  --max-key-connections N  into all sandboxes of one API key (half of --max-connections)\n"
    "  --counters-fd N --counters-block N  memory and block to count in\n"
    "  --wait-ms N                wait for a restarting role (5000)\n"
    "  --drain-ms N               what running requests get at a stop (5000)\n"
    "  --access-log               a line for each request\n"
    "  --tls-listen-fd N          a second listener, with TLS\n"
    "  --tls-fd N                 memory with its certificates, read again at SIGHUP\n"
    "Started by abx serve.\n";

struct arguments {
    struct gateway_opts gateway;
    struct role_args role;
    int tls_fd;      /* -1: none */
    int counters_fd; /* the same */
    size_t counters_block;
    uint32_t drain_ms;
};

struct process {
    uv_loop_t loop;
    uv_signal_t term, interrupt, hangup;
    struct tls_share *certificates; /* NULL: no TLS */
    struct tls_server *tls;
    uv_timer_t drain;
    struct heartbeat heartbeat;
    uint32_t drain_ms;
    uint64_t drain_until; /* 0: serving */
    bool ends_streams;
    struct gateway *gateway;
};

#define AT(field) offsetof(struct arguments, field)

static int parse_arguments(int argc, char **argv, struct arguments *a, struct abx_err *err)
{
    static const struct role_option options[] = {
        { "listen-fd", ROLE_ARG_FD, AT(gateway.listen_fd), NULL },
        { "control-sock", ROLE_ARG_TEXT, AT(gateway.control_path), NULL },
        { "domain", ROLE_ARG_TEXT, AT(gateway.domain), NULL },
        { "max-connections", ROLE_ARG_SIZE, AT(gateway.max_connections), NULL },
        { "max-client-connections", ROLE_ARG_SIZE, AT(gateway.max_client_connections), NULL },
        { "max-sandbox-connections", ROLE_ARG_SIZE, AT(gateway.max_sandbox_connections), NULL },
        { "max-key-connections", ROLE_ARG_SIZE, AT(gateway.max_key_connections), NULL },
        { "counters-fd", ROLE_ARG_FD, AT(counters_fd), NULL },
        { "counters-block", ROLE_ARG_SIZE, AT(counters_block), NULL },
        { "wait-ms", ROLE_ARG_U32, AT(gateway.wait_ms), NULL },
        { "drain-ms", ROLE_ARG_U32, AT(drain_ms), NULL },
        { "access-log", ROLE_ARG_FLAG, AT(gateway.has_access_log), NULL },
        { "tls-listen-fd", ROLE_ARG_FD, AT(gateway.tls_listen_fd), NULL },
        { "tls-fd", ROLE_ARG_FD, AT(tls_fd), NULL },
    };
    int r;

    *a = (struct arguments){
        .gateway = { .listen_fd = -EBADF, .tls_listen_fd = -EBADF, .domain = "localhost" },
        .tls_fd = -1,
        .counters_fd = -1,
        .drain_ms = DRAIN_MS
    };
    r = role_args_parse(argc, argv, options, ARRAY_SIZE(options), a, &a->role, err);
    if (r < 0)
        return r;
    a->gateway.table_path = a->role.table_path;
    a->gateway.engine_path = a->role.engine_path;
    if (a->gateway.listen_fd < 0 || !a->gateway.control_path ||
        (a->gateway.tls_listen_fd < 0) != (a->tls_fd < 0))
        return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
    return 0;
}

/* All descriptors that may be had, and no more clients than they suffice for. */
static void fit_descriptors(struct gateway_opts *opts)
{
    struct rlimit limit;
    size_t most = 10000;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur != RLIM_INFINITY)
            most = limit.rlim_cur > 2 * FDS_RESERVED
                       ? (limit.rlim_cur - FDS_RESERVED) / FDS_PER_CLIENT
                       : FDS_RESERVED / 4;
    }
    if (opts->max_connections == 0)
        opts->max_connections = 10000;
    opts->max_connections = MIN(opts->max_connections, most);
}

static void process_close(struct process *p)
{
    heartbeat_stop(&p->heartbeat);
    gateway_close(p->gateway);
    uv_close((uv_handle_t *)&p->term, NULL);
    uv_close((uv_handle_t *)&p->interrupt, NULL);
    uv_close((uv_handle_t *)&p->hangup, NULL);
    uv_close((uv_handle_t *)&p->drain, NULL);
}

static void on_drain(uv_timer_t *timer)
{
    struct process *p = timer->data;

    if (p->ends_streams) /* each time: a request may have become one */
        gateway_end_streams(p->gateway);
    if (gateway_connections(p->gateway) == 0 || uv_now(timer->loop) >= p->drain_until)
        process_close(p);
}

/* SIGINT says that the sandboxes are about to be killed: only answers that have an end are worth waiting for. Asked a second
 * time it ends at once. */
static void on_signal(uv_signal_t *handle, int signum)
{
    struct process *p = handle->data;

    if (p->drain_until != 0) {
        process_close(p);
        return;
    }
    gateway_stop(p->gateway);
    p->ends_streams = signum == SIGINT;
    p->drain_until = uv_now(handle->loop) + p->drain_ms;
    (void)uv_timer_start(&p->drain, on_drain, 0, DRAIN_LOOK_MS);
}

static int load_certificates(struct process *p, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(TLS_SHARE_SIZE);
    struct tls_pair pairs[TLS_PAIRS_MAX];
    uint8_t secret[TLS_SECRET_SIZE];
    size_t n;
    int r = tls_share_read(p->certificates, &text, pairs, &n, secret, err);

    if (r == 0)
        r = tls_server_load(p->tls, pairs, n, secret, err);
    if (text.len > 0)
        explicit_bzero(buf_data(&text), text.len);
    explicit_bzero(secret, sizeof(secret));
    return r;
}

static void on_hangup(uv_signal_t *handle, int signum)
{
    struct process *p = handle->data;
    struct abx_err err = { 0 };

    (void)signum;
    if (!p->certificates)
        return;
    if (load_certificates(p, &err) < 0)
        log_err("the certificates in use stay", &err);
    else
        log_info("new certificates are in use", NULL);
}

static int start_tls(struct process *p, struct arguments *a, struct abx_err *err)
{
    int r = tls_share_open(a->tls_fd, &p->certificates, err);

    fd_close(a->tls_fd);
    if (r == 0)
        r = tls_server_new(true, &p->tls, err);
    if (r == 0)
        r = load_certificates(p, err);
    a->gateway.tls = p->tls;
    return r;
}

static int start_counting(struct arguments *a, struct abx_err *err)
{
    static struct gateway_counters own;
    void *map = NULL;
    int r;

    if (a->counters_fd >= 0) {
        r = counters_map(a->counters_fd, a->counters_block, 1, true, &map, err);
        fd_close(a->counters_fd);
        if (r < 0)
            return r;
    }
    a->gateway.counters = gateway_counters_take(map, &own);
    if (map && a->gateway.counters == &own)
        log_warn("the counters are of another release: this process is not in the metrics", NULL);
    return 0;
}

static int process_start(struct process *p, struct arguments *a, struct abx_err *err)
{
    int r = uv_loop_init(&p->loop);

    if (r < 0)
        return err_sys(err, -r, "start the loop");
    (void)uv_signal_init(&p->loop, &p->term);
    (void)uv_signal_init(&p->loop, &p->interrupt);
    (void)uv_signal_init(&p->loop, &p->hangup);
    (void)uv_timer_init(&p->loop, &p->drain);
    p->term.data = p->interrupt.data = p->hangup.data = p->drain.data = p;
    (void)uv_signal_start(&p->term, on_signal, SIGTERM);
    (void)uv_signal_start(&p->interrupt, on_signal, SIGINT);
    (void)uv_signal_start(&p->hangup, on_hangup, SIGHUP);
    r = heartbeat_start(&p->heartbeat, &p->loop, a->role.heartbeat_fd, err);
    if (r < 0)
        return r;
    if (a->tls_fd >= 0)
        r = start_tls(p, a, err);
    if (r < 0)
        return r;
    r = start_counting(a, err);
    if (r < 0)
        return r;
    a->gateway.loop = &p->loop;
    p->drain_ms = a->drain_ms;
    return gateway_new(&a->gateway, &p->gateway, err);
}

int main(int argc, char **argv)
{
    static struct process process;
    struct arguments arguments;
    struct abx_err err = { 0 };
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    pid_t parent = getppid();
    int r;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0;
    log_init("gateway");
    (void)sigaction(SIGPIPE, &ignore, NULL); /* OpenSSL writes without MSG_NOSIGNAL */
    r = parse_arguments(argc, argv, &arguments, &err);
    if (r == 0) {
        arguments.role.confine.parent = parent;
        fit_descriptors(&arguments.gateway);
        (void)fd_set_cloexec(arguments.gateway.listen_fd, true);
        if (arguments.tls_fd >= 0)
            (void)fd_set_cloexec(arguments.gateway.tls_listen_fd, true);
        r = confine_identity(&arguments.role.confine, &err);
    }
    if (r == 0)
        r = process_start(&process, &arguments, &err);
    if (r == 0)
        r = confine_syscalls(CONFINE_NETWORK, &err);
    if (r < 0) {
        log_start_failure("abx-gateway does not start", &err);
        return err_exit_status(&err);
    }
    log_info("serving", "domain", arguments.gateway.domain, NULL);
    (void)uv_run(&process.loop, UV_RUN_DEFAULT);
    gateway_free(process.gateway);
    (void)uv_loop_close(&process.loop);
    tls_server_free(process.tls);
    tls_share_free(process.certificates);
    return 0;
}
