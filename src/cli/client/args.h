/* args.h - the words of a client command, parsed by its row of the table in cli/spec.h. */
#pragma once

#include "abx/config.h"
#include "cli/spec.h"

#define ARGS_PAIRS_MAX 256u

struct args {
    const struct spec_command *command;
    const char *shown;           /* how messages call it: "sandbox exec" */
    const char *text[OPT_COUNT]; /* borrowed from argv; NULL = not given */
    int64_t number[OPT_COUNT];   /* value of a duration (seconds), number or size (MiB); 1 of a flag
                                   that is set; 0 = not given */
    struct abx_pair envs[ARGS_PAIRS_MAX], metadata[ARGS_PAIRS_MAX];
    size_t env_count, metadata_count;
    char *mem[2 * ARGS_PAIRS_MAX]; /* names of the pairs, owned */
    size_t mem_count;
    size_t count; /* arguments that are no options */
    char **values;
    bool wants_help;
};

/* `argv` begins behind the command's name; permuted by getopt. 0, or 2 with a message on standard error. args_done in any
 * case. */
int args_parse(struct args *a, const struct spec_command *command, int argc, char **argv);
void args_done(struct args *a);

static inline bool args_has(const struct args *a, enum spec_id id)
{
    return a->number[id] != 0 || a->text[id];
}

/* --help of a command. */
void args_print_help(const struct spec_command *command, FILE *to);
/* "abx sandbox exec: <message>" and a hint to --help; returns 2. */
int args_usage(const struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
