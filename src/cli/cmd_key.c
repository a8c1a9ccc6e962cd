/* cmd_key.c - `abx key create|list|revoke|local`. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/cmd_key_local.h"
#include "cli/json_out.h"

#define SCOPES_MAX 8

static const char help[] =
    "usage: abx key create [--name NAME] [--expires DURATION] [OPTION...]\n"
    "       abx key list [OPTION...]\n"
    "       abx key revoke ID|KEY [OPTION...]\n"
    "       abx key local --user NAME [OPTION...]\n"
    "\n"
    "Manages the API keys of a service, running or not (as root). A key is shown once, by\n"
    "create; the database holds only its hash. `local` gives a user of this machine a key that\n"
    "clients find by themselves as long as the service runs.\n"
    "\n"
    "  --name NAME          what the key is for, up to 64 characters\n"
    "  --expires DURATION   lifetime, like 12h or 30d (no end)\n"
    "  --scope NAME         what it may do, repeatable: sandbox:read, sandbox:write, "
    "template:read,\n"
    "                       template:write, metrics:read, * for all but metrics (*)\n"
    "  --user NAME          user or uid that `local` is for\n"
    "  --data-dir DIR       of the service (/var/lib/abx; with `local` the one that users find)\n"
    "  --json               print JSON\n"
    "  -h, --help           print this\n";

const struct option key_options[] = {
    { "name", required_argument, NULL, 'n' },     { "expires", required_argument, NULL, 'e' },
    { "data-dir", required_argument, NULL, 'd' }, { "json", no_argument, NULL, 'j' },
    { "scope", required_argument, NULL, 's' },    { "user", required_argument, NULL, 'u' },
    { "help", no_argument, NULL, 'h' },           { 0 },
};

struct key_opts {
    char data_dir[PATH_MAX];
    const char *name;
    const char *user;
    uint64_t expires_s; /* 0 = never */
    const char *scopes[SCOPES_MAX];
    size_t n_scopes;
    bool has_data_dir;
    bool is_json;
};

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "-";
}

static int print_json(const json_t *j)
{
    int r = json_put(j, stdout, JSON_INDENT(2));

    (void)putchar('\n');
    return r < 0 && !ferror(stdout); /* what cannot be written, main says */
}

static int key_create(const struct key_opts *o, int argc, char **argv, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    json_t *request = json_pack("{s:s}", "op", "key.create");
    int r;

    if (argc > 0) {
        json_decref(request);
        return err_set(err, ABX_INVALID_ARGUMENT, "create takes no argument '%s': --name NAME",
                       argv[0]);
    }
    if (o->name)
        (void)json_object_set_new(request, "name", json_string(o->name));
    if (o->expires_s)
        (void)json_object_set_new(request, "expires_in_s", json_integer((json_int_t)o->expires_s));
    for (size_t i = 0; i < o->n_scopes; i++) {
        if (i == 0)
            (void)json_object_set_new(request, "scopes", json_array());
        (void)json_array_append_new(json_object_get(request, "scopes"), json_string(o->scopes[i]));
    }
    r = admin_op(o->data_dir, request, &reply, err);
    if (r < 0)
        return r;
    if (o->is_json)
        return print_json(reply) ? err_set(err, ABX_INTERNAL, "the answer is no JSON") : 0;
    (void)fprintf(stderr, "key %s; it is shown only now:\n", text_of(reply, "id"));
    (void)printf("%s\n", text_of(reply, "key"));
    return 0;
}

static int key_list(const struct key_opts *o, int argc, char **argv, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    char now[RFC3339_SIZE];
    const json_t *keys, *k;
    size_t i;
    int r;

    if (argc > 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "list takes no argument '%s'", argv[0]);
    r = admin_op(o->data_dir, json_pack("{s:s}", "op", "key.list"), &reply, err);
    if (r < 0)
        return r;
    keys = json_object_get(reply, "keys");
    time_format_rfc3339((int64_t)time(NULL) * 1000, now);
    if (o->is_json)
        return print_json(keys) ? err_set(err, ABX_INTERNAL, "the answer is no JSON") : 0;
    (void)printf("%-14s %-20s %-10s %-25s %-25s %s\n", "ID", "NAME", "TEAM", "CREATED", "LAST USED",
                 "STATE");
    json_array_foreach(keys, i, k)
    {
        const char *revoked = json_string_value(json_object_get(k, "revoked_at"));
        const char *expires = json_string_value(json_object_get(k, "expires_at"));

        /* Times of one format and width: their order is that of the text. */
        (void)printf("%-14s %-20s %-10s %-25s %-25s %s%s\n", text_of(k, "id"), text_of(k, "name"),
                     text_of(k, "team"), text_of(k, "created_at"), text_of(k, "last_used_at"),
                     !revoked && !expires        ? "active"
                     : revoked                   ? "revoked "
                     : strcmp(expires, now) <= 0 ? "expired "
                                                 : "expires ",
                     revoked   ? revoked
                     : expires ? expires
                               : "");
    }
    return 0;
}

static int key_revoke(const struct key_opts *o, int argc, char **argv, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    int r;

    if (argc != 1)
        return err_set(err, ABX_INVALID_ARGUMENT, "revoke takes one ID or KEY");
    r = admin_op(o->data_dir, json_pack("{s:s,s:s}", "op", "key.revoke", "id", argv[0]), &reply,
                 err);
    if (r < 0)
        return r;
    if (o->is_json)
        return print_json(reply) ? err_set(err, ABX_INTERNAL, "the answer is no JSON") : 0;
    (void)printf("revoked %s\n", text_of(reply, "id"));
    return 0;
}

static int key_for_user(const struct key_opts *o, int argc, char **argv, struct abx_err *err)
{
    if (argc > 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "local takes no argument '%s': --user NAME",
                       argv[0]);
    if (!o->user)
        return err_set(err, ABX_INVALID_ARGUMENT, "local needs --user NAME");
    return key_local(o->has_data_dir ? o->data_dir : NULL, o->user, o->is_json, err);
}

static const struct {
    const char *name;
    int (*run)(const struct key_opts *o, int argc, char **argv, struct abx_err *err);
} verbs[] = {
    { "create", key_create },
    { "list", key_list },
    { "revoke", key_revoke },
    { "local", key_for_user },
};

static int parse_option(struct key_opts *o, int c, struct abx_err *err)
{
    switch (c) {
    case 'n':
        o->name = optarg;
        if (strlen(optarg) == 0 || strlen(optarg) > 64)
            return err_set(err, ABX_INVALID_ARGUMENT, "--name has 1 to 64 characters");
        return 0;
    case 'e':
        return cli_parse_duration("--expires", optarg, &o->expires_s, err);
    case 's':
        if (o->n_scopes == SCOPES_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "more than %d --scope options", SCOPES_MAX);
        o->scopes[o->n_scopes++] = optarg;
        return 0;
    case 'u':
        o->user = optarg;
        return 0;
    case 'd':
        o->has_data_dir = true;
        return cli_absolute("--data-dir", optarg, o->data_dir, sizeof o->data_dir, err);
    case 'j':
        o->is_json = true;
        return 0;
    default:
        return err_set(err, ABX_INTERNAL, "option %d is not handled", c);
    }
}

int cmd_key(int argc, char **argv)
{
    static struct key_opts o = { .data_dir = CLI_DATA_DIR };
    struct abx_err err = { 0 };
    int c, r;

    argv[0] = (char[]){ "abx key" }; /* what getopt calls it */
    while ((c = getopt_long(argc, argv, "h", key_options, NULL)) != -1) {
        if (c == 'h')
            return fputs(help, stdout) < 0;
        if (c == '?')
            return cli_bad_option("key");
        if (parse_option(&o, c, &err) < 0)
            return cli_usage("key", "%s", err.msg);
    }
    if (optind == argc)
        return cli_usage("key", "needs create, list, revoke or local");
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(argv[optind], verbs[i].name) != 0)
            continue;
        r = verbs[i].run(&o, argc - optind - 1, argv + optind + 1, &err);
        return r < 0 ? cli_fail(&err) : 0;
    }
    return cli_usage("key", "unknown verb '%s'", argv[optind]);
}
