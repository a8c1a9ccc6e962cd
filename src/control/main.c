/* main.c - abx-control: options, privileges, sockets, the loop.
 *
 * Started by the supervisor with listening sockets (--http-fd, --table-fd, --admin-fd), or by the CLI
 * with --admin for one operation on the database while the service does not run. Crash-only: SIGTERM
 * finishes what is queued, SIGINT does so too and says that all sandboxes were ended on purpose, anything
 * else may happen at any moment.
 */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "control/admin.h"
#include "control/api.h"
#include "control/table.h"
#include "net/confine.h"
#include "net/heartbeat.h"
#include "net/ipc.h"

#define LOCK_WAIT_MS 10000 /* a predecessor that was killed may still be dying */

struct options {
    const char *data_dir, *engine_sock, *domain, *origin, *instance;
    uint64_t http_fd, table_fd, egress_fd, admin_fd, heartbeat_fd, store_heartbeat_fd,
        checkpoint_heartbeat_fd, uid, gid, gateway_uid, egress_uid;
    bool has_http, has_table, has_admin_fd, has_heartbeat, has_store_heartbeat,
        has_checkpoint_heartbeat, has_uid, has_gid, has_gateway, has_egress_fd, has_egress,
        is_admin;
    pid_t parent; /* who started us */
    uint64_t max_timeout_s, cpu, memory, disk, max_cpu, max_memory, max_disk, max_sandboxes,
        max_snapshots;
    uint64_t max_key, metrics_keep_s, counters_fd, gateway_counters_fd, n_gateways;
    uint64_t egress_counters_fd, max_log_lines, max_idempotency_keys;
    bool has_counters, has_gateway_counters, has_egress_counters;
};

struct service {
    struct control control;
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct heartbeat heartbeat;
    struct http_server *http;
    struct ipc_listener *admin;
    char dir[4096];
    char engine_sock[4096];
    int lock_fd;
};

enum {
    OPT_FIRST_ = 256,
    OPT_DATA_DIR,
    OPT_HTTP,
    OPT_TABLE,
    OPT_EGRESS_FD,
    OPT_ADMIN_FD,
    OPT_HEARTBEAT,
    OPT_STORE_HEARTBEAT,
    OPT_CHECKPOINT_HEARTBEAT,
    OPT_ENGINE,
    OPT_UID,
    OPT_GID,
    OPT_GATEWAY,
    OPT_EGRESS,
    OPT_DOMAIN,
    OPT_ORIGIN,
    OPT_INSTANCE,
    OPT_MAX_TIMEOUT,
    OPT_CPU,
    OPT_MEMORY,
    OPT_DISK,
    OPT_MAX_CPU,
    OPT_MAX_MEMORY,
    OPT_MAX_DISK,
    OPT_MAX_SANDBOXES,
    OPT_MAX_SNAPSHOTS,
    OPT_MAX_KEY,
    OPT_METRICS_KEEP,
    OPT_MAX_LOG_LINES,
    OPT_MAX_IDEMPOTENCY_KEYS,
    OPT_COUNTERS,
    OPT_GATEWAY_COUNTERS,
    OPT_EGRESS_COUNTERS,
    OPT_GATEWAYS,
    OPT_ADMIN,

    OPT_HELP
};

static const struct option longopts[] = {
    { "data-dir", required_argument, NULL, OPT_DATA_DIR },
    { "http-fd", required_argument, NULL, OPT_HTTP },
    { "table-fd", required_argument, NULL, OPT_TABLE },
    { "egress-fd", required_argument, NULL, OPT_EGRESS_FD },
    { "admin-fd", required_argument, NULL, OPT_ADMIN_FD },
    { "heartbeat-fd", required_argument, NULL, OPT_HEARTBEAT },
    { "store-heartbeat-fd", required_argument, NULL, OPT_STORE_HEARTBEAT },
    { "checkpoint-heartbeat-fd", required_argument, NULL, OPT_CHECKPOINT_HEARTBEAT },
    { "engine-sock", required_argument, NULL, OPT_ENGINE },
    { "uid", required_argument, NULL, OPT_UID },
    { "gid", required_argument, NULL, OPT_GID },
    { "gateway-uid", required_argument, NULL, OPT_GATEWAY },
    { "egress-uid", required_argument, NULL, OPT_EGRESS },
    { "domain", required_argument, NULL, OPT_DOMAIN },
    { "listen-origin", required_argument, NULL, OPT_ORIGIN },
    { "instance", required_argument, NULL, OPT_INSTANCE },
    { "max-timeout", required_argument, NULL, OPT_MAX_TIMEOUT },
    { "sandbox-cpu", required_argument, NULL, OPT_CPU },
    { "sandbox-memory", required_argument, NULL, OPT_MEMORY },
    { "sandbox-disk", required_argument, NULL, OPT_DISK },
    { "max-cpu", required_argument, NULL, OPT_MAX_CPU },
    { "max-memory", required_argument, NULL, OPT_MAX_MEMORY },
    { "max-disk", required_argument, NULL, OPT_MAX_DISK },
    { "max-sandboxes", required_argument, NULL, OPT_MAX_SANDBOXES },
    { "max-snapshots", required_argument, NULL, OPT_MAX_SNAPSHOTS },
    { "max-key-connections", required_argument, NULL, OPT_MAX_KEY },
    { "metrics-keep", required_argument, NULL, OPT_METRICS_KEEP },
    { "max-log-lines", required_argument, NULL, OPT_MAX_LOG_LINES },
    { "max-idempotency-keys", required_argument, NULL, OPT_MAX_IDEMPOTENCY_KEYS },
    { "counters-fd", required_argument, NULL, OPT_COUNTERS },
    { "gateway-counters-fd", required_argument, NULL, OPT_GATEWAY_COUNTERS },
    { "egress-counters-fd", required_argument, NULL, OPT_EGRESS_COUNTERS },
    { "gateways", required_argument, NULL, OPT_GATEWAYS },
    { "admin", no_argument, NULL, OPT_ADMIN },
    { "help", no_argument, NULL, OPT_HELP },
    { 0 },
};

static const char help[] =
    "usage: abx-control --data-dir DIR --http-fd N --table-fd N --admin-fd N --engine-sock PATH\n"
    "                   --instance ID --listen-origin URL [OPTION...]\n"
    "       abx-control --data-dir DIR --admin < request.json\n"
    "\n"
    "The control plane's process; started by `abx serve`.\n"
    "\n"
    "  --heartbeat-fd N         eventfd on which the loop beats\n"
    "  --store-heartbeat-fd N   the same for the thread that writes to the database\n"
    "  --checkpoint-heartbeat-fd N   the same for the one that makes its checkpoints\n"
    "  --uid N, --gid N         become this user (from root)\n"
    "  --gateway-uid N          who may connect to --table-fd, besides root and itself\n"
    "  --egress-fd N            the table for egress, --egress-uid N: who may connect to it\n"
    "  --domain NAME            of the sandboxes' host names (localhost:PORT)\n"
    "  --max-timeout SECONDS    longest life that can be asked for (86400)\n"
    "  --sandbox-cpu N, --sandbox-memory MB, --sandbox-disk MB   sizes by default (2, 1024, "
    "10240)\n"
    "  --max-cpu N, --max-memory MB, --max-disk MB   most that can be asked for (8, 8192, 51200)\n"
    "  --max-sandboxes N        at the same time per team (no limit)\n"
    "  --max-snapshots N        kept per team, 0 = no limit (100)\n"
    "  --max-key-connections N  requests of one API key at a time (5000)\n"
    "  --metrics-keep SECONDS   how long what sandboxes used can be asked for (21600)\n"
    "  --max-log-lines N        of all sandboxes, about, 0 = no limit (1000000)\n"
    "  --max-idempotency-keys N of all creates, about, 0 = no limit (100000)\n"
    "  --counters-fd N          memory to count in\n"
    "  --gateway-counters-fd N --gateways N   the gateways' memory, and how many they are\n"
    "  --egress-counters-fd N   that of egress\n"
    "  --admin                  run one operation of the admin socket on the database\n";

static int parse_number(const char *text, uint64_t max, uint64_t *ret, struct abx_err *err)
{
    if (!str_parse_u64(slice_str(text), max, ret))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is not a number up to %llu", text,
                       (unsigned long long)max);
    return 0;
}

static int parse_option(struct options *o, int c, struct abx_err *err)
{
    switch (c) {
    case OPT_DATA_DIR:
        o->data_dir = optarg;
        return 0;
    case OPT_HTTP:
        o->has_http = true;
        return parse_number(optarg, INT32_MAX, &o->http_fd, err);
    case OPT_TABLE:
        o->has_table = true;
        return parse_number(optarg, INT32_MAX, &o->table_fd, err);
    case OPT_EGRESS_FD:
        o->has_egress_fd = true;
        return parse_number(optarg, INT32_MAX, &o->egress_fd, err);
    case OPT_ADMIN_FD:
        o->has_admin_fd = true;
        return parse_number(optarg, INT32_MAX, &o->admin_fd, err);
    case OPT_HEARTBEAT:
        o->has_heartbeat = true;
        return parse_number(optarg, INT32_MAX, &o->heartbeat_fd, err);
    case OPT_STORE_HEARTBEAT:
        o->has_store_heartbeat = true;
        return parse_number(optarg, INT32_MAX, &o->store_heartbeat_fd, err);
    case OPT_CHECKPOINT_HEARTBEAT:
        o->has_checkpoint_heartbeat = true;
        return parse_number(optarg, INT32_MAX, &o->checkpoint_heartbeat_fd, err);
    case OPT_ENGINE:
        o->engine_sock = optarg;
        return 0;
    case OPT_UID:
        o->has_uid = true;
        return parse_number(optarg, UINT32_MAX - 1, &o->uid, err);
    case OPT_GID:
        o->has_gid = true;
        return parse_number(optarg, UINT32_MAX - 1, &o->gid, err);
    case OPT_GATEWAY:
        o->has_gateway = true;
        return parse_number(optarg, UINT32_MAX - 1, &o->gateway_uid, err);
    case OPT_EGRESS:
        o->has_egress = true;
        return parse_number(optarg, UINT32_MAX - 1, &o->egress_uid, err);
    case OPT_DOMAIN:
        o->domain = optarg;
        return 0;
    case OPT_ORIGIN:
        o->origin = optarg;
        return 0;
    case OPT_INSTANCE:
        o->instance = optarg;
        return 0;
    case OPT_MAX_TIMEOUT:
        return parse_number(optarg, 10 * 366 * 86400ull, &o->max_timeout_s, err);
    case OPT_CPU:
        return parse_number(optarg, 4096, &o->cpu, err);
    case OPT_MEMORY:
        return parse_number(optarg, INT32_MAX, &o->memory, err);
    case OPT_DISK:
        return parse_number(optarg, INT32_MAX, &o->disk, err);
    case OPT_MAX_CPU:
        return parse_number(optarg, 4096, &o->max_cpu, err);
    case OPT_MAX_MEMORY:
        return parse_number(optarg, INT32_MAX, &o->max_memory, err);
    case OPT_MAX_DISK:
        return parse_number(optarg, INT32_MAX, &o->max_disk, err);
    case OPT_MAX_SANDBOXES:
        return parse_number(optarg, INT32_MAX, &o->max_sandboxes, err);
    case OPT_MAX_SNAPSHOTS:
        return parse_number(optarg, INT32_MAX, &o->max_snapshots, err);
    case OPT_MAX_KEY:
        return parse_number(optarg, INT32_MAX, &o->max_key, err);
    case OPT_METRICS_KEEP:
        return parse_number(optarg, 86400, &o->metrics_keep_s, err);
    case OPT_MAX_LOG_LINES:
        return parse_number(optarg, INT32_MAX, &o->max_log_lines, err);
    case OPT_MAX_IDEMPOTENCY_KEYS:
        return parse_number(optarg, INT32_MAX, &o->max_idempotency_keys, err);
    case OPT_COUNTERS:
        o->has_counters = true;
        return parse_number(optarg, INT32_MAX, &o->counters_fd, err);
    case OPT_GATEWAY_COUNTERS:
        o->has_gateway_counters = true;
        return parse_number(optarg, INT32_MAX, &o->gateway_counters_fd, err);
    case OPT_EGRESS_COUNTERS:
        o->has_egress_counters = true;
        return parse_number(optarg, INT32_MAX, &o->egress_counters_fd, err);
    case OPT_GATEWAYS:
        return parse_number(optarg, 4096, &o->n_gateways, err);
    case OPT_ADMIN:
        o->is_admin = true;
        return 0;
    default:
        return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
    }
}

static int parse_options(int argc, char **argv, struct options *o, struct abx_err *err)
{
    int c, r;

    while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        if (c == OPT_HELP) {
            (void)fputs(help, stdout);
            exit(0);
        }
        r = parse_option(o, c, err);
        if (r < 0)
            return r;
    }
    if (optind < argc)
        return err_set(err, ABX_INVALID_ARGUMENT, "takes no argument '%s'", argv[optind]);
    if (!o->data_dir)
        return err_set(err, ABX_INVALID_ARGUMENT, "needs --data-dir");
    if (!o->is_admin && (!o->has_http || !o->has_table || !o->has_admin_fd || !o->engine_sock ||
                         !o->origin || !o->instance))
        return err_set(
            err, ABX_INVALID_ARGUMENT,
            "needs --http-fd, --table-fd, --admin-fd, --engine-sock, --listen-origin and "
            "--instance");
    return 0;
}

/* --- folder and privileges ---------------------------------------------------------------------- */

/* <data-dir>/control, made when it is missing; its owner is who we become when not told. */
static int open_folder(struct service *s, struct options *o, struct abx_err *err)
{
    struct stat st;

    if (!path_join(s->dir, sizeof s->dir, o->data_dir, "control"))
        return err_set(err, ABX_INVALID_ARGUMENT, "--data-dir is too long");
    if (mkdir(s->dir, 0700) == 0) {
        if (o->has_uid && geteuid() == 0 &&
            chown(s->dir, (uid_t)o->uid, (gid_t)(o->has_gid ? o->gid : o->uid)) < 0)
            return err_sys(err, errno, "owner of '%s'", s->dir);
    } else if (errno != EEXIST) {
        return err_sys(err, errno, "mkdir '%s'", s->dir);
    }
    if (lstat(s->dir, &st) < 0)
        return err_sys(err, errno, "stat '%s'", s->dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ABX_FAILED_PRECONDITION, "'%s' is not a folder", s->dir);
    if (!o->has_uid)
        o->uid = st.st_uid;
    if (!o->has_gid)
        o->gid = o->has_uid ? o->uid : st.st_gid;
    return 0;
}

/* One process per database. */
static int lock_folder(struct service *s, bool is_admin, struct abx_err *err)
{
    char path[4200];
    int64_t deadline = time_mono_ns() + (is_admin ? 0 : LOCK_WAIT_MS * NSEC_PER_MSEC);

    (void)snprintf(path, sizeof path, "%s/lock", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    while (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        const struct timespec pause = { .tv_nsec = 10 * NSEC_PER_MSEC };

        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", path);
        if (time_mono_ns() >= deadline)
            return err_set(err, ABX_FAILED_PRECONDITION,
                           "another abx-control holds '%s': the service runs", path);
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

/* Inside the root folder, the folder is "/" and the engine's socket lies below it. */
static int drop(struct service *s, const struct options *o, struct abx_err *err)
{
    size_t n = strlen(s->dir);
    const char *sock = o->engine_sock ? o->engine_sock : "";
    bool is_below = strncmp(sock, s->dir, n) == 0 && sock[n] == '/';
    bool is_chroot = geteuid() == 0 && o->uid != 0 && (is_below || o->is_admin);
    struct confine_opts confine;
    char root[4096];

    memcpy(root, s->dir, sizeof root);
    (void)snprintf(s->engine_sock, sizeof s->engine_sock, "%s",
                   is_chroot && is_below ? sock + n : sock);
    if (is_chroot)
        (void)snprintf(s->dir, sizeof s->dir, "/");
    if (geteuid() != 0 && geteuid() != (uid_t)o->uid)
        return err_set(err, ABX_PERMISSION_DENIED, "to run as uid %u it has to be started as root",
                       (unsigned)o->uid);
    confine = (struct confine_opts){ is_chroot ? root : NULL, geteuid() == 0 ? (uid_t)o->uid : 0,
                                     (gid_t)o->gid, o->parent };
    return confine_identity(&confine, err);
}

/* --- one operation ------------------------------------------------------------------------------ */

struct one_op {
    int status; /* -1 = not done */
};

static void on_reply(void *user, json_t *reply)
{
    struct one_op *op = user;

    op->status = reply && json_dumpf(reply, stdout, JSON_COMPACT) == 0 && fflush(stdout) == 0 &&
                         !json_object_get(reply, "error")
                     ? 0
                     : 1;
}

static int run_one(struct service *s, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf in = BUF_INIT(65536);
    struct one_op op = { -1 };
    json_t *request;
    ssize_t n;
    uint8_t *to = buf_reserve(&in, 65536, NULL);

    if (!to)
        return err_oom(err);
    n = fd_read_all(STDIN_FILENO, to, 65536);
    if (n < 0)
        return err_sys(err, errno, "read the request");
    request = json_loadb((const char *)to, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(request)) {
        json_decref(request);
        return err_set(err, ABX_INVALID_ARGUMENT, "standard input is not a JSON object");
    }
    admin_run(&s->control, request, on_reply, &op);
    while (op.status < 0)
        (void)uv_run(&s->loop, UV_RUN_ONCE);
    json_decref(request);
    return op.status;
}

/* --- service ------------------------------------------------------------------------------------ */

static void on_stop(uv_signal_t *h, int signo)
{
    struct service *s = h->data;

    log_debug("stopping", NULL);
    if (signo == SIGINT)
        lifecycle_stopped(s->control.lifecycle);
    http_server_stop(s->http);
    uv_stop(&s->loop);
}

static int serve(struct service *s, const struct options *o, struct abx_err *err)
{
    uid_t own = geteuid();
    uid_t uids[3] = { 0, own, o->has_gateway ? (uid_t)o->gateway_uid : own };
    uid_t egress[3] = { 0, own, o->has_egress ? (uid_t)o->egress_uid : own };
    struct http_server_opts opts = {
        .loop = &s->loop,
        .listen_fd = (int)o->http_fd,
        .on_request = api_on_request,
        .user = &s->control,
    };
    int r = http_server_new(&opts, &s->http, err);

    if (r == 0)
        r = table_listen(s->control.table, (int)o->table_fd, uids, ARRAY_SIZE(uids),
                         TABLE_FOR_GATEWAYS, err);
    if (r == 0 && o->has_egress_fd)
        r = table_listen(s->control.table, (int)o->egress_fd, egress, ARRAY_SIZE(egress),
                         TABLE_FOR_EGRESS, err);
    if (r == 0)
        r = admin_listen(&s->control, (int)o->admin_fd, uids, 2, &s->admin, err);
    if (r == 0)
        r = heartbeat_start(&s->heartbeat, &s->loop, o->has_heartbeat ? (int)o->heartbeat_fd : -1,
                            err);
    if (r == 0 && o->has_store_heartbeat)
        r = heartbeat_prepare((int)o->store_heartbeat_fd, err);
    if (r == 0 && o->has_checkpoint_heartbeat)
        r = heartbeat_prepare((int)o->checkpoint_heartbeat_fd, err);
    if (r == 0)
        store_beat(s->control.store, o->has_store_heartbeat ? (int)o->store_heartbeat_fd : -1,
                   o->has_checkpoint_heartbeat ? (int)o->checkpoint_heartbeat_fd : -1);
    if (r == 0)
        r = confine_syscalls(CONFINE_FILES, err);
    if (r < 0)
        return r;
    s->term.data = s->interrupt.data = s;
    (void)uv_signal_init(&s->loop, &s->term);
    (void)uv_signal_init(&s->loop, &s->interrupt);
    (void)uv_signal_start(&s->term, on_stop, SIGTERM);
    (void)uv_signal_start(&s->interrupt, on_stop, SIGINT);
    log_info("control is up", "instance", o->instance, "domain", s->control.domain, NULL);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    heartbeat_stop(&s->heartbeat);
    http_server_free(s->http);
    ipc_listener_free(s->admin);
    return 0;
}

static void take_options(struct control *c, const struct options *o)
{
    c->opts = (struct control_opts){
        .domain = o->domain,
        .origin = o->origin ? o->origin : "http://localhost",
        .instance = o->instance ? o->instance : "",
        .limits = {
            .max_timeout_s = (int64_t)o->max_timeout_s,
            .cpu_count = (uint32_t)o->cpu,
            .memory_mb = (uint32_t)o->memory,
            .disk_mb = (uint32_t)o->disk,
            .max_cpu_count = (uint32_t)MAX(o->max_cpu, o->cpu),
            .max_memory_mb = (uint32_t)MAX(o->max_memory, o->memory),
            .max_disk_mb = (uint32_t)MAX(o->max_disk, o->disk),
        },
        .max_sandboxes = (size_t)o->max_sandboxes,
        .max_snapshots = (size_t)o->max_snapshots,
        .max_key_requests = (size_t)o->max_key,
        .metrics_keep_s = (int64_t)o->metrics_keep_s,
        .max_log_lines = (uint32_t)o->max_log_lines,
        .max_idempotency_keys = (uint32_t)o->max_idempotency_keys,
    };
}

/* Never NULL afterwards: without the supervisor's memory it is of our own. */
static int take_counters(struct control *c, const struct options *o, struct abx_err *err)
{
    static struct control_counters own;
    void *mine = NULL, *theirs = NULL, *egress = NULL;
    int r = 0;

    if (o->has_counters) {
        r = counters_map((int)o->counters_fd, 0, 1, true, &mine, err);
        fd_close((int)o->counters_fd);
    }
    if (r == 0 && o->has_gateway_counters && o->n_gateways > 0) {
        r = counters_map((int)o->gateway_counters_fd, 0, (size_t)o->n_gateways, false, &theirs,
                         err);
        fd_close((int)o->gateway_counters_fd);
        c->opts.gateway_counters = theirs;
        c->opts.n_gateways = (size_t)o->n_gateways;
    }
    if (r == 0 && o->has_egress_counters) {
        r = counters_map((int)o->egress_counters_fd, 0, 1, false, &egress, err);
        fd_close((int)o->egress_counters_fd);
        c->opts.egress_counters = egress;
    }
    c->counters = control_counters_take(mine, &own);
    if (mine && c->counters == &own)
        log_warn("the counters are of another release: control is not in the metrics", NULL);
    return r;
}

static int run(struct service *s, struct options *o, struct abx_err *err)
{
    int r = fault_init(err); /* while the file can still be seen */

    if (r == 0)
        r = open_folder(s, o, err);
    if (r == 0)
        r = drop(s, o, err);
    if (r == 0)
        r = lock_folder(s, o->is_admin, err);
    if (r < 0)
        return r;
    (void)umask(0077);
    take_options(&s->control, o);
    s->control.loop = &s->loop;
    r = take_counters(&s->control, o, err);
    if (r == 0)
        r = control_open(&s->control, s->dir, o->is_admin ? NULL : s->engine_sock, err);
    if (r == 0)
        r = o->is_admin ? run_one(s, err) : serve(s, o, err);
    return r;
}

int main(int argc, char **argv)
{
    static struct service s = { .lock_fd = -EBADF };
    struct options o = {
        .parent = getppid(),
        .max_timeout_s = 86400,
        .max_snapshots = 100,
        .cpu = 2,
        .memory = 1024,
        .disk = 10240,
        .max_cpu = 8,
        .max_memory = 8192,
        .max_disk = 51200,
        .max_key = 5000,
        .metrics_keep_s = 21600,
        .max_log_lines = 1000000,
        .max_idempotency_keys = 100000,
    };
    struct abx_err err = { 0 };
    int r;

    log_init("control");
    (void)uv_loop_init(&s.loop);
    r = parse_options(argc, argv, &o, &err);
    if (r == 0)
        r = run(&s, &o, &err);
    if (r < 0) {
        if (o.is_admin)
            (void)fprintf(stderr, "abx-control: %s\n", err.msg);
        else
            log_start_failure("abx-control does not start", &err);
        return err_exit_status(&err);
    }
    control_close(&s.control);
    return r;
}
