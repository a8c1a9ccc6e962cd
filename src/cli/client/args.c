/* args.c - see args.h. */
#include "cli/client/args.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/cli.h"

#define MIB (UINT64_C(1) << 20)
#define LONG_BASE 256 /* getopt's value of the option with id 0 */

int args_usage(const struct args *a, const char *fmt, ...)
{
    va_list ap;

    (void)fprintf(stderr, "abx %s: ", a->shown);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "\nTry 'abx %s --help'.\n", a->shown);
    return 2;
}

/* Prints words in lines of at most 78 columns, each line behind `indent` blanks. */
static void print_filled(FILE *to, const char *text, size_t indent, size_t column)
{
    while (*text) {
        size_t n = strcspn(text, " \n");

        if (column > indent && column + 1 + n > 78) {
            (void)fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            (void)fputc(' ', to);
            column++;
        }
        (void)fprintf(to, "%.*s", (int)n, text);
        column += n;
        text += n;
        if (strncmp(text, "\n\n", 2) == 0) {
            (void)fprintf(to, "\n\n%*s", (int)indent, "");
            column = indent;
        }
        text += strspn(text, " \n");
    }
    (void)fputc('\n', to);
}

static void print_options(uint64_t set, bool connection, FILE *to)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct spec_option *o = &spec_options[i];
        int n;

        if (!(set & SPEC_BIT(i)) || o->is_connection != connection)
            continue;
        if (o->letter)
            n = fprintf(to, "  -%c, ", o->letter);
        else
            n = fprintf(to, "      ");
        n += fprintf(to, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        if (n > 27)
            (void)fprintf(to, "\n%28s", "");
        else
            (void)fprintf(to, "%*s", 28 - n, "");
        print_filled(to, o->help, 28, 28);
    }
}

void args_print_help(const struct spec_command *c, FILE *to)
{
    uint64_t set = spec_options_of(c);

    (void)fprintf(to, "usage: abx %s [OPTION...]%s%s\n", c->name, *c->arguments ? " " : "",
                  c->arguments);
    for (size_t i = 0; i < ARRAY_SIZE(c->alias) && c->alias[i]; i++)
        (void)fprintf(to, "       abx %s [OPTION...]%s%s\n", c->alias[i], *c->arguments ? " " : "",
                      c->arguments);
    (void)fputc('\n', to);
    print_filled(to, c->summary, 0, 0);
    if (c->text) {
        (void)fputc('\n', to);
        print_filled(to, c->text, 0, 0);
    }
    if (c->options) {
        (void)fprintf(to, "\noptions:\n");
        print_options(set, false, to);
    }
    (void)fprintf(to, "\noptions of all commands:\n");
    print_options(set, true, to);
    (void)fprintf(to, "\nThe manual is abx-sandbox(1).\n");
}

static int add_pair(struct args *a, enum spec_id id, const char *given)
{
    bool is_env = id == OPT_ENV;
    struct abx_pair *pairs = is_env ? a->envs : a->metadata;
    size_t *count = is_env ? &a->env_count : &a->metadata_count;
    const char *equals = strchr(given, '=');
    const char *value = equals ? equals + 1 : is_env ? getenv(given) : NULL;
    char *key;

    if (equals == given || *given == '\0')
        return args_usage(a, "--%s '%s' has no name: write %s", spec_options[id].name, given,
                          spec_options[id].value);
    if (!value && is_env)
        return args_usage(a, "--env %s: there is no such variable here; write %s=VALUE", given,
                          given);
    if (!value)
        return args_usage(a, "--%s '%s' has no '=': write %s", spec_options[id].name, given,
                          spec_options[id].value);
    if (*count == ARGS_PAIRS_MAX)
        return args_usage(a, "more than %u times --%s", ARGS_PAIRS_MAX, spec_options[id].name);
    key = equals ? strndup(given, (size_t)(equals - given)) : strdup(given);
    if (!key) {
        (void)fputs("abx: out of memory\n", stderr);
        return 1;
    }
    a->mem[a->mem_count++] = key;
    pairs[*count].key = key;
    pairs[(*count)++].value = value;
    return 0;
}

static int set_option(struct args *a, enum spec_id id, const char *value)
{
    static const struct cli_size mib = { MIB, MIB, 2047 * MIB * MIB };
    const struct spec_option *o = &spec_options[id];
    char name[32];
    struct abx_err err = { 0 };
    uint64_t n = 1;

    (void)snprintf(name, sizeof name, "--%s", o->name);
    switch (o->kind) {
    case SPEC_FLAG:
        a->number[id] = 1;
        return 0;
    case SPEC_PAIR:
        return add_pair(a, id, value);
    case SPEC_TEXT:
    case SPEC_FILE:
        if (*value == '\0')
            return args_usage(a, "%s is empty: it needs %s", name, o->value);
        a->text[id] = value;
        return 0;
    case SPEC_SIZE:
        if (cli_parse_size(name, value, &mib, &n, &err) < 0)
            return args_usage(a, "%s", err.msg);
        n >>= 20;
        break;
    case SPEC_DURATION:
        if (cli_parse_duration(name, value, &n, &err) < 0)
            return args_usage(a, "%s", err.msg);
        break;
    case SPEC_NUMBER:
        if (cli_parse_number(name, value, o->min, o->max, &n, &err) < 0)
            return args_usage(a, "%s", err.msg);
        break;
    }
    a->number[id] = (int64_t)n;
    return 0;
}

/* What getopt wants, made from the table. Two options of one name never meet in one command. */
struct getopt_tables {
    struct option longs[OPT_COUNT + 1];
    char shorts[2 * OPT_COUNT + 3];
};

static void make_tables(uint64_t set, bool stops, struct getopt_tables *t)
{
    size_t n = 0, k = 0;

    if (stops)
        t->shorts[k++] = '+';
    t->shorts[k++] = ':';
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct spec_option *o = &spec_options[i];

        if (!(set & SPEC_BIT(i)))
            continue;
        t->longs[n++] =
            (struct option){ o->name, o->kind == SPEC_FLAG ? 0 : 1, NULL, LONG_BASE + (int)i };
        if (!o->letter)
            continue;
        t->shorts[k++] = o->letter;
        if (o->kind != SPEC_FLAG)
            t->shorts[k++] = ':';
    }
    t->longs[n] = (struct option){ 0 };
    t->shorts[k] = '\0';
}

static enum spec_id id_of(int c, uint64_t set)
{
    if (c >= LONG_BASE)
        return (enum spec_id)(c - LONG_BASE);
    for (size_t i = 0; i < OPT_COUNT; i++)
        if ((set & SPEC_BIT(i)) && spec_options[i].letter == c)
            return (enum spec_id)i;
    return OPT_COUNT;
}

/* The word that getopt did not like. */
static int complain(const struct args *a, int c, char *const *argv)
{
    const char *word = argv[optind - 1];

    if (c == ':')
        return args_usage(a, "option '%s' needs a value", word);
    if (optopt >= LONG_BASE)
        return args_usage(a, "option '%s' takes no value", word);
    if (optopt)
        return args_usage(a, "there is no option '-%c'", optopt);
    return args_usage(a, "there is no option '%s'", word);
}

/* Parses options until the first other word when the command has a command behind it. `*ret_ended`: a "--" was there. */
static int parse_some(struct args *a, int argc, char **argv, bool *ret_ended)
{
    uint64_t set = spec_options_of(a->command);
    struct getopt_tables t;
    int c, r = 0;

    make_tables(set, a->command->has_command, &t);
    opterr = 0;
    while (r == 0 && (c = getopt_long(argc, argv, t.shorts, t.longs, NULL)) != -1) {
        if (c == '?' || c == ':')
            r = complain(a, c, argv);
        else
            r = set_option(a, id_of(c, set), optarg);
    }
    *ret_ended = optind > 1 && strcmp(argv[optind - 1], "--") == 0;
    return r;
}

int args_parse(struct args *a, const struct spec_command *command, int argc, char **argv)
{
    size_t front = command->command_at;
    bool has_ended = false;
    int r;

    *a = (struct args){ .command = command, .shown = command->name };
    optind = 0; /* glibc: begin anew */
    r = parse_some(a, argc, argv, &has_ended);
    /* Options may also stand between ID and COMMAND. */
    if (r == 0 && command->has_command && front > 0 && !has_ended &&
        (size_t)(argc - optind) >= front) {
        int at = optind, skip = optind + (int)front - 1;

        /* getopt takes argv[0] as the program's name. */
        optind = 0;
        r = parse_some(a, argc - skip, argv + skip, &has_ended);
        if (r == 0) {
            int first = skip + optind;

            /* ID next to COMMAND again. */
            memmove(argv + first - front, argv + at, front * sizeof *argv);
            optind = first - (int)front;
        }
    }
    if (r != 0)
        return r;
    a->wants_help = a->number[OPT_HELP] != 0;
    a->values = argv + optind;
    a->count = (size_t)(argc - optind);
    if (a->wants_help)
        return 0;
    if (a->count < command->min_args)
        return args_usage(a, "needs %s%s", command->arguments,
                          a->count > 0 && strchr(a->values[0], ':')
                              ? ": two words, ID:PATH is for cp alone"
                              : "");
    if (a->count > command->max_args)
        return args_usage(a, "unexpected argument '%s'", a->values[command->max_args]);
    return 0;
}

void args_done(struct args *a)
{
    for (size_t i = 0; i < a->mem_count; i++)
        free(a->mem[i]);
    a->mem_count = 0;
}
