/* cmd_serve.c - `abx serve`: options of the service, and the systemd unit. */
#include <getopt.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/supervisor.h"

#define DISK_MIN (UINT64_C(256) << 20) /* the engine's least */
#define DISK_MAX (UINT64_C(1) << 60)
#define DEFAULT_LISTEN "127.0.0.1:8490"

static const char help[] =
    "usage: abx serve [OPTION...]\n"
    "\n"
    "Runs the sandbox service on this machine (root). Prints the variables that a client\n"
    "needs, then one line `ready http://HOST:PORT`.\n"
    "\n"
    "  --listen HOST:PORT       public address (127.0.0.1:8490); port 0 takes a free one\n"
    "  --tls-cert FILE          certificate with its chain (PEM): serves TLS besides; repeatable, "
    "each\n"
    "                           with its --tls-key; clients that name a host (SNI) get its own;\n"
    "                           SIGHUP reads the files again\n"
    "  --tls-key FILE           the certificate's private key (PEM)\n"
    "  --tls-listen HOST:PORT   address for TLS (the host of --listen, port 8443)\n"
    "  --data-dir DIR           state of the service (/var/lib/abx)\n"
    "  --domain NAME            domain of sandbox hosts `<port>-<id>.NAME` (localhost:PORT)\n"
    "  --pool TEMPLATE=N        keep N sandboxes of TEMPLATE ready; repeatable (none)\n"
    "  --disk SIZE              size of the disk image when one is made (80 % of free space)\n"
    "  --on-exit kill|keep      what happens to running sandboxes at the end (SIGTERM keeps\n"
    "                           them, SIGINT kills them)\n"
    "  --run-as USER            user of the unprivileged roles (uids of the service's own)\n"
    "  --gateways N             gateway processes (one per CPU)\n"
    "  --sandbox-cpu N          CPUs of a sandbox (2)\n"
    "  --sandbox-memory SIZE    memory of a sandbox (1G)\n"
    "  --sandbox-disk SIZE      disk of a sandbox (10G)\n"
    "  --max-cpu N              most CPUs that a create may ask for (the machine's)\n"
    "  --max-memory SIZE        most memory that a create may ask for (the machine's)\n"
    "  --max-disk SIZE          most disk that a create may ask for (100G)\n"
    "  --max-timeout DURATION   longest timeout that a client may ask for (24h)\n"
    "  --max-sandboxes N        most sandboxes at a time (no limit)\n"
    "  --max-snapshots N        most snapshots that are kept, 0 for no limit (100)\n"
    "  --max-client-connections N  most connections of one address into one gateway process;\n"
    "                           loopback is not counted (half of all)\n"
    "  --max-sandbox-connections N  most connections into one sandbox through one gateway process\n"
    "                           (1000)\n"
    "  --max-key-connections N  most connections into all sandboxes that one API key made, "
    "through\n"
    "                           one gateway process, and most requests of it to the control plane\n"
    "                           at a time (half of all; 5000)\n"
    "  --metrics-keep DURATION  how long the metrics of sandboxes can be asked for, up to 24h "
    "(6h)\n"
    "  --max-log-lines N        most lines in the logs of all sandboxes together, the oldest go\n"
    "                           (1000000)\n"
    "  --max-idempotency-keys N most keys of creates that are remembered, the oldest go (100000)\n"
    "  --egress-allow CIDR      reserved addresses (private, link-local, the host's own ...) that\n"
    "                           sandboxes may reach all the same; repeatable (none)\n"
    "  --egress-dns ADDRESS[:PORT]  server that sandboxes' questions for names go to; repeatable\n"
    "                           (those of /etc/resolv.conf)\n"
    "  --egress-proxy URL       proxy that sandboxes' connections go through: http://HOST:PORT or\n"
    "                           socks5://HOST:PORT, USER:PASSWORD@ before the host; better in the\n"
    "                           variable ABX_EGRESS_PROXY, because all users see command lines\n"
    "  --access-log             a line in the log for each request\n"
    "  --local-user NAME        user whose clients find this service by themselves, besides root\n"
    "                           and who runs sudo; repeatable\n"
    "  --print-unit             print a systemd unit with these options, do nothing\n"
    "  -h, --help               print this\n"
    "\n"
    "SIZE is in bytes, or with K, M, G or T (powers of 1024; Ki, Mi, Gi, Ti are the same): 10G.\n"
    "DURATION is in seconds, or with s, m, h or d: 24h.\n";

enum {
    OPT_LISTEN = 256,
    OPT_TLS_CERT,
    OPT_TLS_KEY,
    OPT_TLS_LISTEN,
    OPT_DATA_DIR,
    OPT_DOMAIN,
    OPT_POOL,
    OPT_DISK,
    OPT_ON_EXIT,
    OPT_RUN_AS,
    OPT_GATEWAYS,
    OPT_CPU,
    OPT_MEMORY,
    OPT_SANDBOX_DISK,
    OPT_MAX_CPU,
    OPT_MAX_MEMORY,
    OPT_MAX_DISK,
    OPT_MAX_TIMEOUT,
    OPT_MAX_SANDBOXES,
    OPT_MAX_SNAPSHOTS,
    OPT_MAX_CLIENT,
    OPT_MAX_SANDBOX,
    OPT_MAX_KEY,
    OPT_METRICS_KEEP,
    OPT_MAX_LOG_LINES,
    OPT_MAX_IDEMPOTENCY_KEYS,
    OPT_EGRESS_ALLOW,
    OPT_EGRESS_DNS,
    OPT_EGRESS_PROXY,
    OPT_ACCESS_LOG,

    OPT_LOCAL_USER,
    OPT_PRINT_UNIT,
};

const struct option serve_options[] = {
    { "listen", required_argument, NULL, OPT_LISTEN },
    { "tls-cert", required_argument, NULL, OPT_TLS_CERT },
    { "tls-key", required_argument, NULL, OPT_TLS_KEY },
    { "tls-listen", required_argument, NULL, OPT_TLS_LISTEN },
    { "data-dir", required_argument, NULL, OPT_DATA_DIR },
    { "domain", required_argument, NULL, OPT_DOMAIN },
    { "pool", required_argument, NULL, OPT_POOL },
    { "disk", required_argument, NULL, OPT_DISK },
    { "on-exit", required_argument, NULL, OPT_ON_EXIT },
    { "run-as", required_argument, NULL, OPT_RUN_AS },
    { "gateways", required_argument, NULL, OPT_GATEWAYS },
    { "sandbox-cpu", required_argument, NULL, OPT_CPU },
    { "sandbox-memory", required_argument, NULL, OPT_MEMORY },
    { "sandbox-disk", required_argument, NULL, OPT_SANDBOX_DISK },
    { "max-cpu", required_argument, NULL, OPT_MAX_CPU },
    { "max-memory", required_argument, NULL, OPT_MAX_MEMORY },
    { "max-disk", required_argument, NULL, OPT_MAX_DISK },
    { "max-timeout", required_argument, NULL, OPT_MAX_TIMEOUT },
    { "max-sandboxes", required_argument, NULL, OPT_MAX_SANDBOXES },
    { "max-snapshots", required_argument, NULL, OPT_MAX_SNAPSHOTS },
    { "max-client-connections", required_argument, NULL, OPT_MAX_CLIENT },
    { "max-sandbox-connections", required_argument, NULL, OPT_MAX_SANDBOX },
    { "max-key-connections", required_argument, NULL, OPT_MAX_KEY },
    { "metrics-keep", required_argument, NULL, OPT_METRICS_KEEP },
    { "max-log-lines", required_argument, NULL, OPT_MAX_LOG_LINES },
    { "max-idempotency-keys", required_argument, NULL, OPT_MAX_IDEMPOTENCY_KEYS },
    { "egress-allow", required_argument, NULL, OPT_EGRESS_ALLOW },
    { "egress-dns", required_argument, NULL, OPT_EGRESS_DNS },
    { "egress-proxy", required_argument, NULL, OPT_EGRESS_PROXY },
    { "access-log", no_argument, NULL, OPT_ACCESS_LOG },
    { "local-user", required_argument, NULL, OPT_LOCAL_USER },
    { "print-unit", no_argument, NULL, OPT_PRINT_UNIT },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct serve {
    struct supervisor_opts opts;
    char data_dir[PATH_MAX];
    size_t n_pools;
    bool is_unit;
};

static int parse_mb(const char *option, const char *text, uint64_t *ret_mb, struct abx_err *err)
{
    static const struct cli_size size = { 1, UINT64_C(16) << 20, UINT64_C(4095) << 40 };
    uint64_t bytes;
    int r = cli_parse_size(option, text, &size, &bytes, err);

    if (r == 0)
        *ret_mb = bytes >> 20;
    return r;
}

static int parse_user(const char *text, uid_t *ret, struct abx_err *err)
{
    const struct passwd *pw = getpwnam(text);
    uint64_t uid;

    if (pw)
        uid = pw->pw_uid;
    else if (!str_parse_u64(slice_str(text), INT32_MAX, &uid))
        return err_set(err, ABX_NOT_FOUND, "--run-as: there is no user '%s'", text);
    if (uid == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "--run-as: the roles may not run as root");
    *ret = (uid_t)uid;
    return 0;
}

static int parse_pool(struct serve *s, const char *text, struct abx_err *err)
{
    const char *eq = strrchr(text, '=');
    uint64_t n;

    if (!eq || eq == text || !str_parse_u64(slice_str(eq + 1), 10000, &n))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--pool '%s' is not TEMPLATE=N with N from 0 to 10000", text);
    if (s->n_pools == SUPERVISOR_POOLS_MAX - 1)
        return err_set(err, ABX_INVALID_ARGUMENT, "more than %d --pool options",
                       SUPERVISOR_POOLS_MAX - 1);
    s->opts.pools[s->n_pools++] = text;
    return 0;
}

static int parse_domain(const char *text, struct abx_err *err)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:", text[i]))
            return err_set(err, ABX_INVALID_ARGUMENT, "--domain '%s' is not NAME or NAME:PORT",
                           text);
    return n > 0 && n <= 200
               ? 0
               : err_set(err, ABX_INVALID_ARGUMENT, "--domain has 1 to 200 characters");
}

static int parse_on_exit(const char *text, enum exit_policy *ret, struct abx_err *err)
{
    if (strcmp(text, "kill") == 0)
        *ret = EXIT_KILL;
    else if (strcmp(text, "keep") == 0)
        *ret = EXIT_KEEP;
    else
        return err_set(err, ABX_INVALID_ARGUMENT, "--on-exit '%s' is neither kill nor keep", text);
    return 0;
}

static int add_local_user(struct supervisor_opts *o, const char *what, const char *text,
                          struct abx_err *err)
{
    struct local_user user;
    int r = local_user_find(what, text, &user, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < o->n_local_users; i++)
        if (o->local_users[i].uid == user.uid)
            return 0;
    if (o->n_local_users == LOCAL_USERS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "more than %d local users", LOCAL_USERS_MAX);
    o->local_users[o->n_local_users++] = user;
    return 0;
}

static int add_file(const char *option, const char **list, size_t *n, const char *path,
                    struct abx_err *err)
{
    if (*n == TLS_FILES_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "more than %d %s options", TLS_FILES_MAX, option);
    list[(*n)++] = path;
    return 0;
}

static int parse_option(struct serve *s, int option, const char *arg, struct abx_err *err)
{
    static const struct cli_size disk_size = { 1, DISK_MIN, DISK_MAX };
    struct supervisor_opts *o = &s->opts;
    uint64_t n;
    int r;

    switch (option) {
    case OPT_LISTEN:
        return listen_address_parse("--listen", arg, &o->listen, err);
    case OPT_TLS_CERT:
        return add_file("--tls-cert", o->tls.certificates, &o->tls.n_certificates, arg, err);
    case OPT_TLS_KEY:
        return add_file("--tls-key", o->tls.keys, &o->tls.n_keys, arg, err);
    case OPT_TLS_LISTEN:
        o->tls.has_listen = true;
        return listen_address_parse("--tls-listen", arg, &o->tls.listen, err);
    case OPT_DATA_DIR:
        return cli_absolute("--data-dir", arg, s->data_dir, sizeof s->data_dir, err);
    case OPT_DOMAIN:
        o->domain = arg;
        return parse_domain(arg, err);
    case OPT_POOL:
        return parse_pool(s, arg, err);
    case OPT_DISK:
        return cli_parse_size("--disk", arg, &disk_size, &o->disk_bytes, err);
    case OPT_ON_EXIT:
        return parse_on_exit(arg, &o->on_exit, err);
    case OPT_RUN_AS:
        return parse_user(arg, &o->role_uid, err);
    case OPT_GATEWAYS:
        r = cli_parse_number("--gateways", arg, 1, LISTEN_GATEWAYS_MAX, &n, err);
        o->n_gateways = r == 0 ? (size_t)n : o->n_gateways;
        return r;
    case OPT_CPU:
        return cli_parse_number("--sandbox-cpu", arg, 1, 1024, &o->cpu, err);
    case OPT_MEMORY:
        return parse_mb("--sandbox-memory", arg, &o->memory_mb, err);
    case OPT_SANDBOX_DISK:
        return parse_mb("--sandbox-disk", arg, &o->disk_mb, err);
    case OPT_MAX_CPU:
        return cli_parse_number("--max-cpu", arg, 1, 1024, &o->max_cpu, err);
    case OPT_MAX_MEMORY:
        return parse_mb("--max-memory", arg, &o->max_memory_mb, err);
    case OPT_MAX_DISK:
        return parse_mb("--max-disk", arg, &o->max_disk_mb, err);
    case OPT_MAX_TIMEOUT:
        return cli_parse_duration("--max-timeout", arg, &o->max_timeout_s, err);
    case OPT_MAX_SANDBOXES:
        return cli_parse_number("--max-sandboxes", arg, 1, 1000000, &o->max_sandboxes, err);
    case OPT_MAX_SNAPSHOTS:
        return cli_parse_number("--max-snapshots", arg, 0, 1000000, &o->max_snapshots, err);
    case OPT_MAX_CLIENT:
        return cli_parse_number("--max-client-connections", arg, 1, 1000000,
                                &o->max_client_connections, err);
    case OPT_MAX_SANDBOX:
        return cli_parse_number("--max-sandbox-connections", arg, 1, 1000000,
                                &o->max_sandbox_connections, err);
    case OPT_MAX_KEY:
        return cli_parse_number("--max-key-connections", arg, 1, 1000000, &o->max_key_connections,
                                err);
    case OPT_METRICS_KEEP:
        r = cli_parse_duration("--metrics-keep", arg, &o->metrics_keep_s, err);
        return r == 0 && (o->metrics_keep_s < 60 || o->metrics_keep_s > 86400)
                   ? err_set(err, ABX_INVALID_ARGUMENT, "--metrics-keep: '%s' is not 1m to 24h",
                             arg)
                   : r;
    case OPT_MAX_LOG_LINES:
        return cli_parse_number("--max-log-lines", arg, 1000, 100000000, &o->max_log_lines, err);
    case OPT_MAX_IDEMPOTENCY_KEYS:
        return cli_parse_number("--max-idempotency-keys", arg, 100, 10000000,
                                &o->max_idempotency_keys, err);
    case OPT_EGRESS_ALLOW:
        if (o->n_egress_allow == SUPERVISOR_EGRESS_ALLOW_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "more than %d --egress-allow options",
                           SUPERVISOR_EGRESS_ALLOW_MAX);
        o->egress_allow[o->n_egress_allow++] = arg;
        return 0;
    case OPT_EGRESS_DNS:
        if (o->n_egress_dns == SUPERVISOR_EGRESS_DNS_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "more than %d --egress-dns options",
                           SUPERVISOR_EGRESS_DNS_MAX);
        o->egress_dns[o->n_egress_dns++] = arg;
        return 0;
    case OPT_EGRESS_PROXY:
        o->egress_proxy = arg;
        return 0;
    case OPT_ACCESS_LOG:
        o->has_access_log = true;
        return 0;
    case OPT_LOCAL_USER:
        return add_local_user(o, "--local-user", arg, err);
    default:
        return err_set(err, ABX_INVALID_ARGUMENT, "unknown option");
    }
}

static void set_defaults(struct serve *s)
{
    struct supervisor_opts *o = &s->opts;
    const char *sudo_uid = getenv("SUDO_UID");
    uint64_t uid;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t ram_mb = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page >> 20 : 1024;

    (void)snprintf(s->data_dir, sizeof s->data_dir, "%s", CLI_DATA_DIR);
    (void)listen_address_parse("--listen", DEFAULT_LISTEN, &o->listen, NULL);
    local_user_of(0, &o->local_users[o->n_local_users++]);
    if (sudo_uid && str_parse_u64(slice_str(sudo_uid), UINT32_MAX - 1, &uid) && uid != 0)
        local_user_of((uid_t)uid, &o->local_users[o->n_local_users++]);
    o->n_gateways = (size_t)MAX(1L, MIN(cpus, (long)LISTEN_GATEWAYS_MAX));
    o->cpu = 2;
    o->memory_mb = 1024;
    o->disk_mb = 10240;
    o->max_cpu = (uint64_t)MAX(2L, cpus);
    o->max_memory_mb = MAX(ram_mb, UINT64_C(1024));
    o->max_disk_mb = 100 * 1024;
    o->max_timeout_s = 24 * 3600;
    o->max_snapshots = 100;
    o->egress_proxy = getenv("ABX_EGRESS_PROXY");
}

static int check_sizes(const struct supervisor_opts *o, struct abx_err *err)
{
    if (o->cpu > o->max_cpu)
        return err_set(err, ABX_INVALID_ARGUMENT, "--sandbox-cpu is over --max-cpu (%llu)",
                       (unsigned long long)o->max_cpu);
    if (o->memory_mb > o->max_memory_mb)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--sandbox-memory is over --max-memory (%llu MiB)",
                       (unsigned long long)o->max_memory_mb);
    if (o->disk_mb > o->max_disk_mb)
        return err_set(err, ABX_INVALID_ARGUMENT, "--sandbox-disk is over --max-disk (%llu MiB)",
                       (unsigned long long)o->max_disk_mb);
    return 0;
}

/* A word of ExecStart: quoted when needed, with systemd's own characters doubled. */
static void print_word(const char *word)
{
    (void)fputs(" \"", stdout);
    for (; *word; word++) {
        if (*word == '"' || *word == '\\')
            (void)putchar('\\');
        else if (*word == '%' || *word == '$')
            (void)putchar(*word);
        (void)putchar(*word);
    }
    (void)putchar('"');
}

static int print_unit(int argc, char **argv, struct abx_err *err)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n < 0)
        return err_sys(err, errno, "readlink '/proc/self/exe'");
    self[n] = '\0';
    (void)printf(
        "[Unit]\nDescription=Agent Sandbox\nAfter=network.target local-fs.target\n\n"
        "[Service]\nType=notify\nNotifyAccess=main\nDelegate=yes\nKillMode=process\n"
        "OOMPolicy=continue\nRestart=on-failure\nTimeoutStopSec=90\nLimitNOFILE=1048576\n"
        "TasksMax=infinity\nWatchdogSec=60\nWatchdogSignal=SIGKILL\nExecStart=\"%s\" serve",
        self);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--print-unit") != 0)
            print_word(argv[i]);
    (void)printf("\n\n[Install]\nWantedBy=multi-user.target\n");
    return 0;
}

int cmd_serve(int argc, char **argv)
{
    static struct serve s; /* PATH_MAX inside */
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    struct abx_err err = { 0 };
    int c, r;

    set_defaults(&s);
    argv[0] = (char[]){ "abx serve" }; /* what getopt calls it */
    while ((c = getopt_long(argc, argv, "h", serve_options, NULL)) != -1) {
        if (c == 'h')
            return fputs(help, stdout) < 0;
        if (c == '?')
            return cli_bad_option("serve");
        if (c == OPT_PRINT_UNIT) {
            s.is_unit = true;
            continue;
        }
        r = parse_option(&s, c, optarg, &err);
        if (r < 0)
            return cli_usage("serve", "%s", err.msg);
    }
    if (optind < argc)
        return cli_usage("serve", "unexpected argument '%s'", argv[optind]);
    r = check_sizes(&s.opts, &err);
    if (r == 0)
        r = tls_opts_check(&s.opts.tls, &err);
    if (r < 0)
        return cli_usage("serve", "%s", err.msg);
    if (s.is_unit)
        return print_unit(argc, argv, &err) < 0 ? cli_fail(&err) : 0;
    if (geteuid() != 0) {
        (void)err_set(&err, ABX_PERMISSION_DENIED,
                      "serve needs root: it makes namespaces, mounts and cgroups");
        return cli_fail(&err);
    }
    s.opts.data_dir = s.data_dir;
    (void)sigaction(SIGPIPE, &ignore, NULL); /* roles, too: the log's reader may be gone */
    /* The roles' users have to get into their folders; what is secret says so itself. */
    (void)umask(022);
    r = supervisor_run(&s.opts, &err);
    return r < 0 ? cli_fail(&err) : 0;
}
