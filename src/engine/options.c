/* options.c - see options.h. */
#include "engine/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define POOL_SIZE_MAX 1000
#define INSTANCE_MAX 32

const char options_usage[] =
    "usage: abx-engine --data-dir D --run-dir R --instance I --guest IMAGE --templates DIR[:DIR]\n"
    "  --pool TEMPLATE=N        keep N sandboxes of a template ready (repeatable)\n"
    "  --slots N                keep N empty sandboxes prepared (default 16)\n"
    "  --workers N              processes that create (default 2)\n"
    "  --disk SIZE              size of the pool's image, with K, M, G or T\n"
    "  --sandbox-cpu N, --sandbox-memory-mb N, --sandbox-disk-mb N   sizes unless asked for\n"
    "  --max-cpu N, --max-memory-mb N, --max-disk-mb N               most that is given\n"
    "  --control-fd N, --gateway-fd N, --egress-fd N     listening sockets that are inherited\n"
    "                           (default: engine.sock, engine-gateway.sock, engine-egress.sock in "
    "R)\n"
    "  --control-uid U, --gateway-uid U, --egress-uid U  who may connect besides root (nobody)\n"
    "  --heartbeat-fd N         eventfd on which the loop beats (default: none)\n"
    "  --sockets-heartbeat-fd N the same for the thread that makes sockets\n"
    "  --uid-leases FILE        the machine's leases (default /run/abx/uid-ranges)\n"
    "  --mount-path auto|fd|string\n"
    "  --on-exit kill|keep      sandboxes at the end (default: SIGTERM keeps, SIGINT kills)\n"
    "abx-engine --probe [--data-dir D] [--text]: tries what sandboxes need, prints the result\n";

enum {
    OPT_DATA_DIR = 256,
    OPT_RUN_DIR,
    OPT_INSTANCE,
    OPT_GUEST,
    OPT_TEMPLATES,
    OPT_POOL,
    OPT_SLOTS,
    OPT_WORKERS,
    OPT_DISK,
    OPT_CPU,
    OPT_MEMORY,
    OPT_SANDBOX_DISK,
    OPT_MAX_CPU,
    OPT_MAX_MEMORY,
    OPT_MAX_DISK,
    OPT_CONTROL_FD,
    OPT_GATEWAY_FD,
    OPT_EGRESS_FD,
    OPT_HEARTBEAT_FD,
    OPT_SOCKETS_HEARTBEAT_FD,
    OPT_CONTROL_UID,
    OPT_GATEWAY_UID,
    OPT_EGRESS_UID,
    OPT_UID_LEASES,
    OPT_MOUNT_PATH,
    OPT_ON_EXIT,
    OPT_WORKER,
    OPT_HELP,
};

#define WITH_ARG(name, value) { name, required_argument, NULL, value }

static const struct option long_options[] = {
    WITH_ARG("data-dir", OPT_DATA_DIR),
    WITH_ARG("run-dir", OPT_RUN_DIR),
    WITH_ARG("instance", OPT_INSTANCE),
    WITH_ARG("guest", OPT_GUEST),
    WITH_ARG("templates", OPT_TEMPLATES),
    WITH_ARG("pool", OPT_POOL),
    WITH_ARG("slots", OPT_SLOTS),
    WITH_ARG("workers", OPT_WORKERS),
    WITH_ARG("disk", OPT_DISK),
    WITH_ARG("sandbox-cpu", OPT_CPU),
    WITH_ARG("sandbox-memory-mb", OPT_MEMORY),
    WITH_ARG("sandbox-disk-mb", OPT_SANDBOX_DISK),
    WITH_ARG("max-cpu", OPT_MAX_CPU),
    WITH_ARG("max-memory-mb", OPT_MAX_MEMORY),
    WITH_ARG("max-disk-mb", OPT_MAX_DISK),
    WITH_ARG("control-fd", OPT_CONTROL_FD),
    WITH_ARG("heartbeat-fd", OPT_HEARTBEAT_FD),
    WITH_ARG("sockets-heartbeat-fd", OPT_SOCKETS_HEARTBEAT_FD),
    WITH_ARG("gateway-fd", OPT_GATEWAY_FD),
    WITH_ARG("control-uid", OPT_CONTROL_UID),
    WITH_ARG("gateway-uid", OPT_GATEWAY_UID),
    WITH_ARG("egress-fd", OPT_EGRESS_FD),
    WITH_ARG("egress-uid", OPT_EGRESS_UID),
    WITH_ARG("uid-leases", OPT_UID_LEASES),
    WITH_ARG("mount-path", OPT_MOUNT_PATH),
    WITH_ARG("on-exit", OPT_ON_EXIT),
    WITH_ARG("worker", OPT_WORKER),
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

/* --- values ------------------------------------------------------------------------------------- */

static bool parse_number(const char *s, uint64_t min, uint64_t max, uint32_t *ret)
{
    uint64_t n;

    if (!str_parse_u64(slice_str(s), max, &n) || n < min)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool parse_int(const char *s, int *ret)
{
    uint32_t n;

    if (!parse_number(s, 0, INT32_MAX, &n))
        return false;
    *ret = (int)n;
    return true;
}

static bool parse_size(const char *s, uint64_t *ret)
{
    static const char units[] = "KMGT";
    size_t n = strlen(s);
    const char *unit = n > 0 ? strchr(units, s[n - 1]) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    uint64_t v;

    if (!str_parse_u64(slice_of(s, n - (unit ? 1 : 0)), UINT64_MAX >> shift, &v) || v == 0)
        return false;
    *ret = v << shift;
    return true;
}

static bool parse_pool(const char *s, struct options *o)
{
    const char *eq = strrchr(s, '=');
    struct pool_option *p = &o->pools[o->n_pools];
    uint32_t n;

    if (!eq || eq == s || (size_t)(eq - s) >= sizeof p->template ||
        o->n_pools == OPTIONS_POOLS_MAX || !parse_number(eq + 1, 0, POOL_SIZE_MAX, &n))
        return false;
    memcpy(p->template, s, (size_t)(eq - s));
    p->template[eq - s] = '\0';
    p->n = n;
    o->n_pools++;
    return true;
}

static bool parse_word(const char *s, const char *const *words, size_t n, int *ret)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s, words[i]) == 0) {
            *ret = (int)i;
            return true;
        }
    return false;
}

static bool is_absolute(const char *s, const char **to)
{
    *to = s;
    return s[0] == '/';
}

static bool parse_one(int opt, const char *v, struct options *o)
{
    static const char *const exits[] = { "", "keep", "kill" };
    static const char *const paths[] = { "auto", "fd", "string" };
    int i = 0;

    switch (opt) {
    case OPT_DATA_DIR:
        return is_absolute(v, &o->data_dir);
    case OPT_RUN_DIR:
        return is_absolute(v, &o->run_dir);
    case OPT_GUEST:
        return is_absolute(v, &o->guest);
    case OPT_TEMPLATES:
        return is_absolute(v, &o->templates);
    case OPT_UID_LEASES:
        return is_absolute(v, &o->uid_leases);
    case OPT_INSTANCE:
        o->instance = v;
        return v[0] != '\0' && strlen(v) <= INSTANCE_MAX &&
               strspn(v, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(v);
    case OPT_POOL:
        return parse_pool(v, o);
    case OPT_SLOTS:
        return parse_number(v, 0, POOL_SIZE_MAX, &o->slots);
    case OPT_WORKERS:
        return parse_number(v, 1, 16, &o->workers);
    case OPT_DISK:
        return parse_size(v, &o->disk_bytes);
    case OPT_CPU:
        return parse_number(v, 1, 1024, &o->defaults.cpu_count);
    case OPT_MEMORY:
        return parse_number(v, 16, 1 << 24, &o->defaults.memory_mb);
    case OPT_SANDBOX_DISK:
        return parse_number(v, 16, 1 << 30, &o->defaults.disk_mb);
    case OPT_MAX_CPU:
        return parse_number(v, 1, 1024, &o->max.cpu_count);
    case OPT_MAX_MEMORY:
        return parse_number(v, 16, 1 << 24, &o->max.memory_mb);
    case OPT_MAX_DISK:
        return parse_number(v, 16, 1 << 30, &o->max.disk_mb);
    case OPT_HEARTBEAT_FD:
        return parse_int(v, &o->heartbeat_fd);
    case OPT_SOCKETS_HEARTBEAT_FD:
        return parse_int(v, &o->sockets_heartbeat_fd);
    case OPT_CONTROL_FD:
        return parse_int(v, &o->control_fd);
    case OPT_GATEWAY_FD:
        return parse_int(v, &o->gateway_fd);
    case OPT_EGRESS_FD:
        return parse_int(v, &o->egress_fd);
    case OPT_EGRESS_UID:
        return parse_number(v, 0, UINT32_MAX - 1, &o->egress_uid);
    case OPT_CONTROL_UID:
        return parse_number(v, 0, UINT32_MAX - 1, &o->control_uid);
    case OPT_GATEWAY_UID:
        return parse_number(v, 0, UINT32_MAX - 1, &o->gateway_uid);
    case OPT_MOUNT_PATH:
        if (!parse_word(v, paths, ARRAY_SIZE(paths), &i))
            return false;
        o->mount_path = (enum mount_path)i;
        return true;
    case OPT_ON_EXIT:
        if (!parse_word(v, exits, ARRAY_SIZE(exits), &i) || i == 0)
            return false;
        o->on_exit = (enum on_exit)i;
        return true;
    case OPT_WORKER:
        o->is_worker = true;
        return worker_class_from_name(v, &o->worker);
    default:
        return false;
    }
}

static int check(const struct options *o, struct abx_err *err)
{
    const struct {
        const char *name, *value;
    } needed[] = {
        { "data-dir", o->data_dir }, { "run-dir", o->run_dir },     { "instance", o->instance },
        { "guest", o->guest },       { "templates", o->templates },
    };

    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (!needed[i].value)
            return err_set(err, ABX_INVALID_ARGUMENT, "--%s is needed", needed[i].name);
    if (o->defaults.cpu_count > o->max.cpu_count || o->defaults.memory_mb > o->max.memory_mb ||
        o->defaults.disk_mb > o->max.disk_mb)
        return err_set(err, ABX_INVALID_ARGUMENT, "a size of --sandbox-* is over its --max-*");
    return 0;
}

int options_parse(int argc, char *const *argv, struct options *ret, bool *ret_is_help,
                  struct abx_err *err)
{
    struct options o = {
        .uid_leases = "/run/abx/uid-ranges",
        .defaults = { 2, 1024, 10240 },
        .max = { 64, 1 << 20, 1 << 20 },
        .slots = 16,
        .workers = 2,
        .control_fd = -1,
        .heartbeat_fd = -1,
        .sockets_heartbeat_fd = -1,
        .gateway_fd = -1,
        .egress_fd = -1,
    };
    int opt, i = 0;

    *ret_is_help = false;
    optind = 0; /* glibc: start over, also in tests */
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "", long_options, &i)) != -1) {
        if (opt == OPT_HELP) {
            *ret_is_help = true;
            return 0;
        }
        if (opt == '?')
            return err_set(err, ABX_INVALID_ARGUMENT, "unknown option or no value: %s",
                           argv[optind - 1]);
        if (!parse_one(opt, optarg, &o))
            return err_set(err, ABX_INVALID_ARGUMENT, "--%s: bad value '%.100s'",
                           long_options[i].name, optarg ? optarg : "");
    }
    if (optind != argc)
        return err_set(err, ABX_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
    if (check(&o, err) < 0)
        return ABX_INVALID_ARGUMENT;
    *ret = o;
    return 0;
}
