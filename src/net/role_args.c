/* role_args.c - see role_args.h. */
#include "net/role_args.h"

#include <assert.h>
#include <getopt.h>

#include "base/str.h"

static const struct role_option common[] = {
    { "table-sock", ROLE_ARG_TEXT, offsetof(struct role_args, table_path), NULL },
    { "engine-sock", ROLE_ARG_TEXT, offsetof(struct role_args, engine_path), NULL },
    { "root", ROLE_ARG_TEXT, offsetof(struct role_args, confine.root), NULL },
    { "uid", ROLE_ARG_U32, offsetof(struct role_args, confine.uid), NULL },
    { "gid", ROLE_ARG_U32, offsetof(struct role_args, confine.gid), NULL },
    { "heartbeat-fd", ROLE_ARG_FD, offsetof(struct role_args, heartbeat_fd), NULL },
};

static int take_number(const struct role_option *o, void *at, const char *value,
                       struct abx_err *err)
{
    uint64_t n;

    if (!str_parse_u64(slice_str(value), INT32_MAX, &n))
        return err_set(err, ABX_INVALID_ARGUMENT, "--%s: '%s' is no number", o->name, value);
    if (o->kind == ROLE_ARG_FD)
        *(int *)at = (int)n;
    else if (o->kind == ROLE_ARG_U32)
        *(uint32_t *)at = (uint32_t)n;
    else
        *(size_t *)at = n;
    return 0;
}

static int take(const struct role_option *o, void *args, const char *value, struct abx_err *err)
{
    void *at = (uint8_t *)args + o->at;

    switch (o->kind) {
    case ROLE_ARG_TEXT:
        *(const char **)at = value;
        return 0;
    case ROLE_ARG_FLAG:
        *(bool *)at = true;
        return 0;
    case ROLE_ARG_PARSE:
        return o->parse(args, value, err);
    case ROLE_ARG_FD:
    case ROLE_ARG_U32:
    case ROLE_ARG_SIZE:
        break;
    }
    return take_number(o, at, value, err);
}

int role_args_parse(int argc, char **argv, const struct role_option *own, size_t n, void *ret_own,
                    struct role_args *ret, struct abx_err *err)
{
    struct option options[ROLE_OPTIONS_MAX + 1] = { 0 };
    size_t n_all = ARRAY_SIZE(common) + n;
    int i = 0;

    assert(n_all <= ROLE_OPTIONS_MAX);
    for (size_t k = 0; k < n_all; k++) {
        const struct role_option *o = k < n ? &own[k] : &common[k - n];

        options[k].name = o->name;
        options[k].has_arg = o->kind == ROLE_ARG_FLAG ? no_argument : required_argument;
    }
    *ret = (struct role_args){ .heartbeat_fd = -1 };
    optind = 0; /* anew */
    for (;;) {
        int c = getopt_long(argc, argv, "", options, &i), r;

        if (c < 0)
            break;
        if (c == '?')
            return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
        r = (size_t)i < n ? take(&own[i], ret_own, optarg, err)
                          : take(&common[(size_t)i - n], ret, optarg, err);
        if (r < 0)
            return r;
    }
    if (optind < argc || !ret->table_path || !ret->engine_path)
        return err_set(err, ABX_INVALID_ARGUMENT, "see --help");
    return 0;
}
