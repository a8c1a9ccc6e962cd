/* cmd_config.c - `abx config list|get|set|unset|path`. */
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/client/tty.h"
#include "cli/json_out.h"

static const char help[] =
    "usage: abx config list [--show-origin] [--reveal] [OPTION...]\n"
    "       abx config get KEY [--show-origin] [--reveal] [OPTION...]\n"
    "       abx config set KEY [VALUE] [OPTION...]\n"
    "       abx config unset KEY [OPTION...]\n"
    "       abx config path [OPTION...]\n"
    "\n"
    "What clients on this machine connect to, and as whom. Values come from options, the\n"
    "environment, ./.env, ~/.abx/.env, ~/.abx/config.toml, the service on this machine and\n"
    "defaults, in this order. `set` writes to ~/.abx: secrets to .env, others to config.toml.\n"
    "Without VALUE it reads one line from standard input, so that a secret need not be an\n"
    "argument. `path` prints the files that `set` writes to.\n"
    "\n"
    "  --show-origin        print where each value comes from\n"
    "  --reveal             print secrets as they are\n"
    "  --profile NAME       profile to read or to change (ABX_PROFILE)\n"
    "  --json               print JSON\n"
    "  -h, --help           print this\n";

enum { OPT_ORIGIN = 256, OPT_REVEAL, OPT_PROFILE, OPT_JSON };

static const struct option options[] = {
    { "show-origin", no_argument, NULL, OPT_ORIGIN },
    { "reveal", no_argument, NULL, OPT_REVEAL },
    { "profile", required_argument, NULL, OPT_PROFILE },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct config_opts {
    const char *profile;
    bool shows_origin, reveals, is_json;
};

static void unref(abx_config **c)
{
    abx_config_unref(*c);
}

static void json_freep(json_t **j)
{
    json_decref(*j);
}

static int usage(const char *text)
{
    return cli_usage("config", "%s", text);
}

static const struct abx_config_key *find_key(const char *name)
{
    const struct abx_config_key *key = NULL;

    for (size_t i = 0; (key = abx_config_key_at(i)) != NULL; i++)
        if (strcmp(key->name, name) == 0)
            return key;
    return NULL;
}

static int load(const struct config_opts *o, abx_config **ret)
{
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_error err = { 0 };

    opts.profile = o->profile;
    return abx_config_load(&opts, ret, &err) < 0 ? client_fail(&err) : 0;
}

static int print_done(int failed)
{
    return cli_end(failed ? 1 : 0);
}

static int print_json(const json_t *j)
{
    int failed = !j || json_put(j, stdout, JSON_INDENT(2)) < 0;

    (void)putchar('\n');
    return print_done(failed);
}

/* {"value": text or null, "origin": text or null, "type": ..., "secret": bool} */
static json_t *value_json(const struct config_opts *o, const abx_config *c,
                          const struct abx_config_key *key)
{
    const char *origin = NULL;
    const char *value = abx_config_get(c, key->name, o->reveals, &origin);

    return json_pack("{s:s?,s:s?,s:s,s:b}", "value", value, "origin", value ? origin : NULL, "type",
                     key->type, "secret", key->is_secret);
}

/* One line on standard error, so that what scripts read stays a table: whom a client would talk to now. */
static void print_outlook(const abx_config *c)
{
    static const char *const credentials[] = { "sandbox_api_key", "access_key_id", "access_token" };
    const char *url = abx_config_get(c, "sandbox_base_url", 0, NULL);
    const char *debug = abx_config_get(c, "debug", 0, NULL);
    const struct passwd *user = getpwuid(geteuid());

    if (debug && strcmp(debug, "true") == 0) {
        (void)fputs(
            "abx: debug is set: a client asks no service and takes localhost for a sandbox\n",
            stderr);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(credentials); i++) {
        const char *origin = NULL;

        if (!abx_config_get(c, credentials[i], 0, &origin))
            continue;
        (void)fprintf(stderr, "abx: a client uses %s with the %s from: %s\n", url ? url : "-",
                      credentials[i], origin);
        return;
    }
    if (geteuid() == 0)
        (void)fprintf(stderr,
                      "abx: a client has no key, and no service runs here: start one with 'abx "
                      "serve', or set E2B_API_KEY and E2B_API_URL\n");
    else
        (void)fprintf(stderr,
                      "abx: a client has no key: 'sudo abx key local --user %s' gives one for a "
                      "service that runs here, or set E2B_API_KEY and E2B_API_URL\n",
                      user ? user->pw_name : "$USER");
}

static int config_list(const struct config_opts *o, int argc, char **argv)
{
    _cleanup_(unref) abx_config *c = NULL;
    _cleanup_(json_freep) json_t *all = json_object();
    const struct abx_config_key *key;
    int status = load(o, &c);

    if (argc > 0)
        return usage("list takes no argument");
    if (status != 0)
        return status;
    for (size_t i = 0; (key = abx_config_key_at(i)) != NULL; i++) {
        const char *origin = NULL;
        const char *value = abx_config_get(c, key->name, o->reveals, &origin);

        if (o->is_json)
            (void)json_object_set_new(all, key->name, value_json(o, c, key));
        else if (o->shows_origin && value)
            (void)printf("%-26s %-44s %s\n", key->name, value, origin);
        else
            (void)printf("%-26s %s\n", key->name, value ? value : "-");
    }
    if (o->is_json)
        return print_json(all);
    status = print_done(0);
    if (status == 0)
        print_outlook(c);
    return status;
}

static int fail_unknown_key(const char *name)
{
    return cli_usage("config", "there is no key '%s'; 'abx config list' names them", name);
}

static int config_get(const struct config_opts *o, int argc, char **argv)
{
    _cleanup_(unref) abx_config *c = NULL;
    const struct abx_config_key *key;
    const char *value, *origin = NULL;
    int status;

    if (argc != 1)
        return usage("get takes one KEY");
    key = find_key(argv[0]);
    if (!key)
        return fail_unknown_key(argv[0]);
    status = load(o, &c);
    if (status != 0)
        return status;
    value = abx_config_get(c, key->name, o->reveals, &origin);
    if (o->is_json) {
        _cleanup_(json_freep) json_t *j = value_json(o, c, key);

        return print_json(j);
    }
    if (!value) {
        (void)fprintf(stderr, "abx: %s is not set\n", key->name);
        return 4;
    }
    if (o->shows_origin)
        (void)printf("%s\t%s\n", value, origin);
    else
        (void)printf("%s\n", value);
    return print_done(0);
}

/* One line of standard input, not shown while it is typed. */
static int read_line(const char *key, char *to, int size)
{
    bool is_terminal = isatty(STDIN_FILENO);
    struct abx_error err = { 0 };
    size_t n;
    bool is_good;

    if (is_terminal) {
        (void)fprintf(stderr, "%s: ", key);
        if (tty_quiet(STDIN_FILENO, &err) < 0)
            return client_fail(&err);
    }
    is_good = fgets(to, size, stdin) != NULL;
    if (is_terminal) {
        tty_restore();
        (void)fputc('\n', stderr);
    }
    if (!is_good)
        return usage("there is no line on standard input");
    n = strcspn(to, "\r\n");
    if (to[n] == '\0' && n == (size_t)size - 1)
        return usage("the line on standard input is too long");
    to[n] = '\0';
    return 0;
}

/* What was stored counts only when no layer above it says otherwise. */
static void warn_hidden(const struct config_opts *o, const char *key, const char *value)
{
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    _cleanup_(unref) abx_config *c = NULL;
    const char *origin = NULL, *now;

    opts.profile = o->profile;
    if (abx_config_load(&opts, &c, NULL) < 0)
        return; /* the next command says why */
    now = abx_config_get(c, key, 1, &origin);
    if (now && strcmp(now, value) != 0)
        (void)fprintf(stderr, "abx: stored, but another value comes first: %s\n", origin);
}

static int config_set(const struct config_opts *o, int argc, char **argv)
{
    char line[8193];
    const char *value = argc > 1 ? argv[1] : line;
    struct abx_error err = { 0 };
    int status;

    if (argc < 1 || argc > 2)
        return usage("set takes KEY and VALUE");
    if (!find_key(argv[0]))
        return fail_unknown_key(argv[0]);
    if (argc == 1) {
        status = read_line(argv[0], line, sizeof line);
        if (status != 0)
            return status;
    }
    status = 0;
    if (abx_config_store(o->profile, argv[0], value, &err) < 0)
        status = client_fail(&err);
    else
        warn_hidden(o, argv[0], value);
    explicit_bzero(line, sizeof line);
    return status;
}

static int config_unset(const struct config_opts *o, int argc, char **argv)
{
    struct abx_error err = { 0 };

    if (argc != 1)
        return usage("unset takes one KEY");
    if (!find_key(argv[0]))
        return fail_unknown_key(argv[0]);
    return abx_config_store(o->profile, argv[0], NULL, &err) < 0 ? client_fail(&err) : 0;
}

static int config_path(const struct config_opts *o, int argc, char **argv)
{
    char config[PATH_MAX], secrets[PATH_MAX];
    struct abx_error err = { 0 };

    if (argc > 0)
        return usage("path takes no argument");
    if (abx_config_path(o->profile, 0, config, sizeof config, &err) < 0 ||
        abx_config_path(o->profile, 1, secrets, sizeof secrets, &err) < 0)
        return client_fail(&err);
    if (o->is_json) {
        _cleanup_(json_freep) json_t *j =
            json_pack("{s:s,s:s}", "config", config, "secrets", secrets);

        return print_json(j);
    }
    (void)printf("%s\n%s\n", config, secrets);
    return print_done(0);
}

static const struct {
    const char *name;
    int (*run)(const struct config_opts *o, int argc, char **argv);
} verbs[] = {
    { "list", config_list },   { "get", config_get },   { "set", config_set },
    { "unset", config_unset }, { "path", config_path },
};

int cmd_config(int argc, char **argv)
{
    struct config_opts o = { 0 };
    int c;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case OPT_ORIGIN:
            o.shows_origin = true;
            break;
        case OPT_REVEAL:
            o.reveals = true;
            break;
        case OPT_PROFILE:
            o.profile = optarg;
            break;
        case OPT_JSON:
            o.is_json = true;
            break;
        case 'h':
            return fputs(help, stdout) < 0;
        default:
            return usage("see the message above");
        }
    }
    if (optind == argc)
        return usage("needs list, get, set, unset or path");
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (strcmp(argv[optind], verbs[i].name) == 0)
            return verbs[i].run(&o, argc - optind - 1, argv + optind + 1);
    return cli_usage("config", "unknown verb '%s'", argv[optind]);
}
