/* main.c - abx-egress: arguments, giving up rights, signals. Everything else is in the library. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/egress.h"
#include "net/confine.h"
#include "net/heartbeat.h"

#define PROXY_TEXT_MAX 2048u

static const char usage[] =
    "usage: abx-egress --table-sock PATH --engine-sock PATH\n"
    "  --resolv-conf FILE         where the servers of names are told; read again when it changes\n"
    "  --dns ADDRESS[:PORT]       servers of names instead; repeatable\n"
    "  --proxy-fd N               file with the URL of the proxy that everything goes through\n"
    "  --allow CIDR               reserved addresses that sandboxes may reach; repeatable\n"
    "  --root DIR                 root folder; the paths above are as seen inside it\n"
    "  --uid N --gid N            user and group to become\n"
    "  --max-sandbox-connections N  of one sandbox (2500)\n"
    "  --counters-fd N            memory to count in\n"
    "  --heartbeat-fd N           eventfd on which the loop beats\n"
    "Started by abx serve.\n";

enum {
    OPT_TABLE = 256,
    OPT_ENGINE,
    OPT_RESOLV,
    OPT_DNS,
    OPT_PROXY_FD,
    OPT_ALLOW,
    OPT_ROOT,
    OPT_UID,
    OPT_GID,
    OPT_MAX_SANDBOX,
    OPT_COUNTERS_FD,
    OPT_HEARTBEAT_FD,
    OPT_HELP,
};

static const struct option options[] = {
    { "table-sock", required_argument, NULL, OPT_TABLE },
    { "engine-sock", required_argument, NULL, OPT_ENGINE },
    { "resolv-conf", required_argument, NULL, OPT_RESOLV },
    { "dns", required_argument, NULL, OPT_DNS },
    { "proxy-fd", required_argument, NULL, OPT_PROXY_FD },
    { "allow", required_argument, NULL, OPT_ALLOW },
    { "root", required_argument, NULL, OPT_ROOT },
    { "uid", required_argument, NULL, OPT_UID },
    { "gid", required_argument, NULL, OPT_GID },
    { "max-sandbox-connections", required_argument, NULL, OPT_MAX_SANDBOX },
    { "counters-fd", required_argument, NULL, OPT_COUNTERS_FD },
    { "heartbeat-fd", required_argument, NULL, OPT_HEARTBEAT_FD },
    { "help", no_argument, NULL, OPT_HELP },
    { 0 },
};

struct arguments {
    struct egress_opts egress;
    struct confine_opts confine;
    int heartbeat_fd, proxy_fd, counters_fd; /* -1: none */
};

struct process {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct heartbeat heartbeat;
    struct egress *egress;
};

static int parse_number(const char *name, uint64_t *ret, struct abx_err *err)
{
    if (!str_parse_u64(slice_str(optarg), INT32_MAX, ret))
        return err_set(err, ABX_INVALID_ARGUMENT, "--%s: '%s' is no number", name, optarg);
    return 0;
}

static int parse_server(struct egress_opts *o, struct abx_err *err)
{
    if (o->n_servers == EGRESS_SERVERS_MAX || !address_parse(optarg, 53, &o->servers[o->n_servers]))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--egress-dns: '%s' is not ADDRESS or ADDRESS:PORT (IPv6 in brackets), or "
                       "there are over %d",
                       optarg, EGRESS_SERVERS_MAX);
    o->n_servers++;
    return 0;
}

static int parse_one(struct arguments *a, int option, const char *name, struct abx_err *err)
{
    uint64_t n = 0;
    int r;

    switch (option) {
    case OPT_TABLE:
        a->egress.table_path = optarg;
        return 0;
    case OPT_ENGINE:
        a->egress.engine_path = optarg;
        return 0;
    case OPT_RESOLV:
        a->egress.resolv_path = optarg;
        return 0;
    case OPT_DNS:
        return parse_server(&a->egress, err);
    case OPT_ROOT:
        a->confine.root = optarg;
        return 0;
    case OPT_ALLOW:
        if (a->egress.n_allow == EGRESS_ALLOW_MAX ||
            !range_parse(optarg, &a->egress.allow[a->egress.n_allow]))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "--egress-allow: '%s' is no address and no CIDR", optarg);
        a->egress.n_allow++;
        return 0;
    default:
        r = parse_number(name, &n, err);
        break;
    }
    if (option == OPT_UID)
        a->confine.uid = (uid_t)n;
    else if (option == OPT_GID)
        a->confine.gid = (gid_t)n;
    else if (option == OPT_MAX_SANDBOX)
        a->egress.max_sandbox_connections = n;
    else if (option == OPT_PROXY_FD)
        a->proxy_fd = (int)n;
    else if (option == OPT_COUNTERS_FD)
        a->counters_fd = (int)n;
    else if (option == OPT_HEARTBEAT_FD)
        a->heartbeat_fd = (int)n;
    return r;
}

static int parse_arguments(int argc, char **argv, struct arguments *a, struct abx_err *err)
{
    int option, index = 0;

    *a = (struct arguments){ .egress = { .max_sandbox_connections = 2500 },
                             .heartbeat_fd = -1,
                             .proxy_fd = -1,
                             .counters_fd = -1 };
    while ((option = getopt_long(argc, argv, "", options, &index)) >= 0) {
        int r;

        if (option == OPT_HELP || option == '?')
            return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
        r = parse_one(a, option, options[index].name, err);
        if (r < 0)
            return r;
    }
    if (optind < argc || !a->egress.table_path || !a->egress.engine_path)
        return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
    return 0;
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
    r = heartbeat_start(&p->heartbeat, &p->loop, a->heartbeat_fd, err);
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
    if (r == 0) {
        arguments.confine.parent = parent;
        r = confine_identity(&arguments.confine, &err);
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
