/* spec.h - what the client commands of `abx` are: names, arguments, options, texts.
 *
 * Data only. The parser and --help (client/args.c), the shell completions (completion.c) and the manual page
 * (man/sandbox_man.c) are made from these two tables, so that none of them knows less than the others. A command is in
 * the group `sandbox` ("sandbox exec") or stands alone ("run"); its aliases stand alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum spec_kind {
    SPEC_FLAG,     /* no value */
    SPEC_TEXT,     /* any */
    SPEC_FILE,     /* a file of this machine */
    SPEC_DURATION, /* seconds, or a number with s, m, h, d */
    SPEC_NUMBER,   /* whole number within the option's limits */
    SPEC_SIZE,     /* MiB, or a number with K, M, G, T */
    SPEC_PAIR      /* KEY=VALUE, repeatable */
};

/* The order is that of --help. */
enum spec_id {
    OPT_TEMPLATE,
    OPT_TIMEOUT,         /* of a sandbox */
    OPT_COMMAND_TIMEOUT, /* of a command: the same name */
    OPT_ENV,
    OPT_METADATA,
    OPT_CPU,
    OPT_MEMORY,
    OPT_DISK,
    OPT_NO_INTERNET,
    OPT_USER,
    OPT_CWD,
    OPT_TTY,
    OPT_DETACH,
    OPT_KEEP,
    OPT_STATE,
    OPT_OF_TEMPLATE,   /* the same name as OPT_TEMPLATE */
    OPT_WITH_METADATA, /* and as OPT_METADATA: what a list is made of */
    OPT_LIMIT,
    OPT_QUIET,
    OPT_PORT,
    OPT_ALL,
    OPT_YES,
    OPT_FOLLOW,
    OPT_LEVEL,
    OPT_SEARCH,
    OPT_COUNT_COPIES,
    OPT_NAME,
    OPT_LIST,
    OPT_DELETE,
    OPT_NO_MEMORY,
    OPT_STRICT,
    OPT_NO_PROGRESS,
    OPT_JSON,
    OPT_PROFILE,
    OPT_API_URL,
    OPT_DOMAIN,
    OPT_SANDBOX_URL,
    OPT_API_KEY_FILE,
    OPT_API_KEY,
    OPT_CA_FILE,
    OPT_REQUEST_TIMEOUT,
    OPT_HELP,
    OPT_COUNT
};
#define SPEC_BIT(id) (UINT64_C(1) << (id))
_Static_assert(OPT_COUNT <= 64, "options are a set of bits");

struct spec_option {
    const char *name; /* "template" */
    char letter;      /* 't', 0 = none */
    enum spec_kind kind;
    const char *value;  /* "TEMPLATE"; NULL for a flag */
    const char *help;   /* one sentence, no full stop */
    uint64_t min, max;  /* of SPEC_NUMBER */
    bool is_connection; /* one of those that every command has */
};
extern const struct spec_option spec_options[OPT_COUNT];

#define SPEC_ARGS_MANY SIZE_MAX
struct spec_command {
    const char *name;      /* "sandbox exec" */
    const char *alias[3];  /* "exec": `abx exec` is the same; NULL = no more */
    const char *arguments; /* "ID [COMMAND [ARG...]]", "" = none */
    size_t min_args, max_args;
    size_t command_at; /* that many arguments, then a command whose options are its own; 0 with
                          has_command: at once */
    bool has_command;
    const char *summary;
    const char *text; /* paragraphs, separated by an empty line */
    uint64_t options; /* SPEC_BIT; those of connections, --json and --help come by themselves */
};
/* The `i`-th command, NULL behind the last. */
const struct spec_command *spec_at(size_t i);
/* The command that the words begin with, and how many words name it; NULL = none. */
const struct spec_command *spec_find(int argc, char *const *argv, int *ret_words);
/* Is it the first word of a command? */
bool spec_has_word(const char *word);
/* All options of a command. */
uint64_t spec_options_of(const struct spec_command *command);

/* One line per command, for `abx help`: those of the group, then the others. */
void spec_print_commands(FILE *to);
