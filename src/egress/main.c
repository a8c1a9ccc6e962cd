/* main.c - abx-egress: arguments, giving up rights, signals. Everything else is in the library. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "egress/egress.h"
#include "net/confine.h"
#include "net/heartbeat.h"
#include "net/role_args.h"

#define PROXY_TEXT_MAX 2048u
/* Where Debian and Ubuntu (ca-certificates) keep whom the host trusts. */
#define ROOTS_PATH "/etc/ssl/certs/ca-certificates.crt"

static const char usage[] =
    "usage: abx-egress --table-sock PATH --engine-sock PATH\n" ROLE_ARGS_USAGE
    "  --resolv-conf FILE         where the servers of names are told; read again when it changes\n"
    "  --dns ADDRESS[:PORT]       servers of names instead; repeatable\n"
    "  --proxy-fd N               file with the URL of the proxy that everything goes through\n"
    "  --allow CIDR               reserved addresses that sandboxes may reach; repeatable\n"
    "  --max-sandbox-connections N  of one sandbox (2500)\n"
    "  --counters-fd N            memory to count in\n"
    "Started by abx serve.\n";

struct arguments {
    struct egress_opts egress;
    struct role_args role;
    int proxy_fd, counters_fd; /* -1: none */
};

struct process {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct heartbeat heartbeat;
    struct egress *egress;
};

static int parse_server(void *own, const char *value, struct abx_err *err)
{
    struct egress_opts *o = &((struct arguments *)own)->egress;

    if (o->n_servers == EGRESS_SERVERS_MAX || !address_parse(value, 53, &o->servers[o->n_servers]))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--egress-dns: '%s' is not ADDRESS or ADDRESS:PORT (IPv6 in brackets), or "
                       "there are over %d",
                       value, EGRESS_SERVERS_MAX);
    o->n_servers++;
    return 0;
}

static int parse_allow(void *own, const char *value, struct abx_err *err)
{
    struct egress_opts *o = &((struct arguments *)own)->egress;

    if (o->n_allow == EGRESS_ALLOW_MAX || !range_parse(value, &o->allow[o->n_allow]))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--egress-allow: '%s' is no address and no CIDR, or there are over %d",
                       value, EGRESS_ALLOW_MAX);
    o->n_allow++;
    return 0;
}

static int parse_arguments(int argc, char **argv, struct arguments *a, struct abx_err *err)
{
    static const struct role_option options[] = {
        { "resolv-conf", ROLE_ARG_TEXT, offsetof(struct arguments, egress.resolv_path), NULL },
        { "dns", ROLE_ARG_PARSE, 0, parse_server },
        { "proxy-fd", ROLE_ARG_FD, offsetof(struct arguments, proxy_fd), NULL },
        { "counters-fd", ROLE_ARG_FD, offsetof(struct arguments, counters_fd), NULL },
        { "allow", ROLE_ARG_PARSE, 0, parse_allow },
        { "max-sandbox-connections", ROLE_ARG_SIZE,
          offsetof(struct arguments, egress.max_sandbox_connections), NULL },
    };
    int r;

    *a = (struct arguments){ .egress = { .max_sandbox_connections = 2500 },
                             .proxy_fd = -1,
                             .counters_fd = -1 };
    r = role_args_parse(argc, argv, options, ARRAY_SIZE(options), a, &a->role, err);
    a->egress.table_path = a->role.table_path;
    a->egress.engine_path = a->role.engine_path;
    return r;
}

/* Its name is looked up while everything can still be read for that. The file is one because users of the machine see
 * command lines, and it may hold a password. */
static int read_proxy(struct arguments *a, struct abx_err *err)
{
    struct egress_opts *o = &a->egress;
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    struct sockaddr_storage ss = { 0 };
    char text[PROXY_TEXT_MAX], port[8];
    ssize_t n;
    int r;

    if (a->proxy_fd < 0)
        return 0;
    n = pread(a->proxy_fd, text, sizeof text - 1, 0);
    fd_close(a->proxy_fd);
    text[MAX(n, (ssize_t)0)] = '\0';
    if (!proxy_parse(text, PROXY_HTTP, &o->proxy))
        r = err_set(err, ABX_INVALID_ARGUMENT,
                    "--egress-proxy is not [http://|socks5://][USER:PASSWORD@]HOST:PORT");
    else
        r = 0;
    explicit_bzero(text, sizeof text);
    if (r < 0)
        return r;
    (void)snprintf(port, sizeof port, "%u", o->proxy.port);
    r = getaddrinfo(o->proxy.host, port, &hints, &found);
    if (r != 0)
        return err_set(err, ABX_UNAVAILABLE, "--egress-proxy: '%s': %s", o->proxy.host,
                       gai_strerror(r));
    memcpy(&ss, found->ai_addr, MIN((size_t)found->ai_addrlen, sizeof ss));
    freeaddrinfo(found);
    return address_from_kernel(&ss, &o->proxy_at)
               ? 0
               : err_set(err, ABX_UNAVAILABLE, "--egress-proxy: '%s' has no address",
                         o->proxy.host);
}

static int raise_descriptors(struct egress_opts *opts, struct abx_err *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_sys(err, errno, "descriptor limit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_sys(err, errno, "descriptor limit");
    opts->max_fds = limit.rlim_cur;
    return 0;
}

static int start_counting(struct arguments *a, struct abx_err *err)
{
    static struct egress_counters own;
    void *map = NULL;
    int r = 0;

    if (a->counters_fd >= 0) {
        r = counters_map(a->counters_fd, 0, 1, true, &map, err);
        fd_close(a->counters_fd);
    }
    a->egress.counters = egress_counters_take(map, &own);
    if (map && a->egress.counters == &own)
        log_warn("the counters are of another release: egress is not in the metrics", NULL);
    return r;
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct process *p = handle->data;

    (void)signum;
    if (uv_is_closing((uv_handle_t *)&p->term))
        return;
    heartbeat_stop(&p->heartbeat);
    egress_close(p->egress);
    uv_close((uv_handle_t *)&p->term, NULL);
    uv_close((uv_handle_t *)&p->interrupt, NULL);
}

static int process_start(struct process *p, struct arguments *a, struct abx_err *err)
{
    int r = uv_loop_init(&p->loop);

    if (r < 0)
        return err_sys(err, -r, "start the loop");
    (void)uv_signal_init(&p->loop, &p->term);
    (void)uv_signal_init(&p->loop, &p->interrupt);
    p->term.data = p->interrupt.data = p;
    (void)uv_signal_start(&p->term, on_signal, SIGTERM);
    (void)uv_signal_start(&p->interrupt, on_signal, SIGINT);
    r = heartbeat_start(&p->heartbeat, &p->loop, a->role.heartbeat_fd, err);
    if (r < 0)
        return r;
    a->egress.loop = &p->loop;
    return egress_new(&a->egress, &p->egress, err);
}

int main(int argc, char **argv)
{
    static struct process process;
    static struct arguments arguments;
    struct abx_err err = { 0 };
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    pid_t parent = getppid();
    int r;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0;
    log_init("egress");
    (void)sigaction(SIGPIPE, &ignore, NULL); /* splice knows no MSG_NOSIGNAL */
    r = parse_arguments(argc, argv, &arguments, &err);
    if (r == 0)
        r = raise_descriptors(&arguments.egress, &err);
    if (r == 0)
        r = read_proxy(&arguments, &err);
    if (r == 0)
        r = start_counting(&arguments, &err);
    /* Out of reach later; without it proxies with TLS need a certificate of their own in the rules. */
    arguments.egress.roots_fd = open(ROOTS_PATH, O_RDONLY | O_CLOEXEC);
    if (r == 0) {
        arguments.role.confine.parent = parent;
        r = confine_identity(&arguments.role.confine, &err);
    }
    if (r == 0)
        r = process_start(&process, &arguments, &err);
    if (r == 0)
        r = confine_syscalls(CONFINE_EGRESS, &err);
    if (r < 0) {
        log_start_failure("abx-egress does not start", &err);
        return err_exit_status(&err);
    }
    log_info("sandboxes have a way out", NULL);
    (void)uv_run(&process.loop, UV_RUN_DEFAULT);
    egress_free(process.egress);
    (void)uv_loop_close(&process.loop);
    return 0;
}
