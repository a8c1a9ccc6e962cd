/* cmd_template.c - `abx template list|build-base`. */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/datadir.h"
#include "cli/json_out.h"
#include "cli/template_base.h"

#define TEMPLATE_JSON_MAX (1u << 20)

static const char help[] =
    "usage: abx template list [--data-dir DIR] [--json]\n"
    "       abx template build-base [--suite S] [--with PKG,...]\n"
    "\n"
    "Templates are what sandboxes start from. build-base makes the template `base` from the\n"
    "machine's own Debian or Ubuntu archive (as root, about two minutes; at once when it is\n"
    "there already). All services of a machine share it. Of several templates of one name a "
    "create\n"
    "takes the newest, which list marks as current; the older ones are found by their digest.\n"
    "\n"
    "  --suite S        release to build (the machine's)\n"
    "  --with PKG,...   more packages of the archive\n"
    "  --data-dir DIR   of the service whose templates to list (/var/lib/abx)\n"
    "  --json           print JSON\n"
    "  -h, --help       print this\n";

const struct option template_options[] = {
    { "suite", required_argument, NULL, 's' },    { "with", required_argument, NULL, 'w' },
    { "data-dir", required_argument, NULL, 'd' }, { "json", no_argument, NULL, 'j' },
    { "help", no_argument, NULL, 'h' },           { 0 },
};

struct template_cmd {
    char data_dir[PATH_MAX];
    bool has_data_dir; /* given, so it has to be one */
    const char *suite;
    const char *with[TEMPLATE_WITH_MAX];
    size_t with_count;
    bool is_json;
};

/* template.json of one folder with its "path", NULL when there is none or it cannot be read, or when it is not one that the
 * engine takes for a template: without a tree. */
static json_t *template_load(const char *dir, const char *name)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(TEMPLATE_JSON_MAX);
    char path[PATH_MAX], file[PATH_MAX], rootfs[PATH_MAX];
    struct stat st;
    json_t *j;

    if (!path_join(path, sizeof path, dir, name) ||
        !path_join(file, sizeof file, path, "template.json") ||
        !path_join(rootfs, sizeof rootfs, path, "rootfs") || stat(rootfs, &st) < 0 ||
        !S_ISDIR(st.st_mode) || file_read(AT_FDCWD, file, &b, NULL) < 0)
        return NULL;
    j = json_loadb((const char *)buf_data(&b), b.len, 0, NULL);
    if (json_is_object(j))
        (void)json_object_set_new(j, "path", json_string(path));
    return j;
}

/* A folder that is not there has no templates. */
static int scan(const char *dir, json_t *list, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = opendir(dir);
    struct dirent *e;

    if (!d && errno != ENOENT)
        return err_sys(err, errno, "list '%s'", dir);
    while (d && (e = readdir(d)) != NULL) {
        json_t *j = e->d_name[0] == '.' ? NULL : template_load(dir, e->d_name);

        if (json_is_object(j))
            (void)json_array_append_new(list, j);
        else
            json_decref(j);
    }
    return 0;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "-";
}

static int64_t created_ns(const json_t *t)
{
    int64_t ns;

    return time_parse_rfc3339(slice_str(text_of(t, "created")), &ns) ? ns : 0;
}

/* By name, and of one name the newest first: the order in which control (templates.c) takes one. */
static int compare(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int c = strcmp(text_of(x, "name"), text_of(y, "name"));
    int64_t of_x = created_ns(x) / NSEC_PER_MSEC, of_y = created_ns(y) / NSEC_PER_MSEC;

    if (c != 0)
        return c;
    if (of_x != of_y)
        return of_x < of_y ? 1 : -1;
    return strcmp(text_of(y, "digest"), text_of(x, "digest"));
}

/* `list` in that order; "current" is true of the one that a create by name takes. NULL without memory. */
static json_t *in_order(const json_t *list)
{
    size_t n = json_array_size(list);
    _cleanup_(freep) json_t **rows = calloc(n + 1, sizeof *rows);
    json_t *to = json_array();

    for (size_t i = 0; rows && i < n; i++)
        rows[i] = json_array_get(list, i);
    if (rows && n > 0)
        qsort(rows, n, sizeof(*rows), compare);
    for (size_t i = 0; rows && i < n; i++) {
        bool is_first =
            i == 0 || strcmp(text_of(rows[i - 1], "name"), text_of(rows[i], "name")) != 0;

        (void)json_object_set_new(rows[i], "current", json_boolean(is_first));
        (void)json_array_append(to, rows[i]);
    }
    if (json_array_size(to) == n && rows)
        return to;
    json_decref(to);
    return NULL;
}

/* The service gives each name an id, which is what clients see: "id" of each template, null when the
 * service has not seen it yet. */
static int add_ids(const char *data_dir, json_t *list, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    json_t *t;
    size_t i, k;
    int r = admin_op(data_dir, json_pack("{s:s}", "op", "template.list"), &reply, err);

    json_array_foreach(list, i, t)
    {
        const json_t *known;

        (void)json_object_set_new(t, "id", json_null());
        json_array_foreach(json_object_get(reply, "templates"), k, known)
        {
            if (json_equal(json_object_get(t, "name"), json_object_get(known, "name")))
                (void)json_object_set(t, "id", json_object_get(known, "id"));
        }
    }
    return r;
}

static int template_list(const struct template_cmd *o)
{
    _cleanup_(json_decrefp) json_t *found = json_array();
    _cleanup_(json_decrefp) json_t *list = NULL;
    char dir[PATH_MAX], instance[DATADIR_INSTANCE_SIZE];
    struct abx_err err = { 0 };
    const json_t *t;
    size_t i;

    if (o->has_data_dir && datadir_instance(o->data_dir, instance, &err) < 0)
        return cli_fail(&err);
    if (path_join(dir, sizeof dir, o->data_dir, "templates") && scan(dir, found, &err) < 0)
        return cli_fail(&err);
    if (scan(CLI_CACHE_DIR "/templates", found, &err) < 0)
        return cli_fail(&err);
    list = in_order(found);
    if (!list) {
        (void)err_oom(&err);
        return cli_fail(&err);
    }
    /* Where no service ever ran there are templates all the same. */
    if (add_ids(o->data_dir, list, &err) < 0 &&
        datadir_instance(o->data_dir, instance, NULL) != ABX_NOT_FOUND)
        (void)fprintf(stderr, "abx: the ids of the templates are not known: %s\n", err.msg);
    if (o->is_json) {
        int r = json_put(list, stdout, JSON_INDENT(2));

        (void)putchar('\n');
        return cli_end(r < 0);
    }
    (void)printf("%-16s %-20s %-8s %-12s %-26s %8s  %s\n", "NAME", "ID", "CURRENT", "SUITE",
                 "CREATED", "MIB", "PATH");
    json_array_foreach(list, i, t)
    {
        (void)printf("%-16s %-20s %-8s %-12s %-26s %8lld  %s\n", text_of(t, "name"),
                     text_of(t, "id"), json_is_true(json_object_get(t, "current")) ? "yes" : "no",
                     text_of(t, "suite"), text_of(t, "created"),
                     (long long)(json_integer_value(json_object_get(t, "size_bytes")) >> 20),
                     text_of(t, "path"));
    }
    if (json_array_size(list) == 0)
        (void)fprintf(stderr, "abx: no template yet: `abx template build-base` makes one\n");
    return 0;
}

static int template_build_base(const struct template_cmd *o)
{
    struct template_base_opts opts = {
        .suite = o->suite,
        .with = o->with,
        .with_count = o->with_count,
        .progress_fd = STDERR_FILENO,
    };
    struct abx_err err = { 0 };
    char dir[PATH_MAX];

    if (template_base_build(&opts, dir, &err) < 0)
        return cli_fail(&err);
    if (o->is_json)
        (void)printf("{\"path\":\"%s\"}\n", dir);
    else
        (void)printf("%s\n", dir);
    return 0;
}

/* Splits "a,b" in place. */
static int parse_with(struct template_cmd *o, char *text, struct abx_err *err)
{
    char *rest = text;

    while (rest) {
        char *word = strsep(&rest, ",");

        if (!*word)
            continue;
        if (o->with_count == TEMPLATE_WITH_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "--with names more than %d packages",
                           TEMPLATE_WITH_MAX);
        o->with[o->with_count++] = word;
    }
    return 0;
}

int cmd_template(int argc, char **argv)
{
    static struct template_cmd o = { .data_dir = CLI_DATA_DIR };
    struct abx_err err = { 0 };
    const char *verb;
    int c, r = 0;

    argv[0] = (char[]){ "abx template" }; /* what getopt calls it */
    while ((c = getopt_long(argc, argv, "h", template_options, NULL)) != -1) {
        switch (c) {
        case 's':
            o.suite = optarg;
            break;
        case 'w':
            r = parse_with(&o, optarg, &err);
            break;
        case 'd':
            o.has_data_dir = true;
            r = cli_absolute("--data-dir", optarg, o.data_dir, sizeof o.data_dir, &err);
            break;
        case 'j':
            o.is_json = true;
            break;
        case 'h':
            return fputs(help, stdout) < 0;
        default:
            return cli_bad_option("template");
        }
        if (r < 0)
            return cli_usage("template", "%s", err.msg);
    }
    if (optind == argc)
        return cli_usage("template", "needs list or build-base");
    verb = argv[optind];
    if (optind + 1 < argc)
        return cli_usage("template", "unexpected argument '%s'", argv[optind + 1]);
    if (strcmp(verb, "list") == 0)
        return template_list(&o);
    if (strcmp(verb, "build-base") == 0)
        return template_build_base(&o);
    return cli_usage("template", "unknown verb '%s'", verb);
}
