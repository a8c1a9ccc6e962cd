/* main.c - abx: one table, one file per command. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/client_commands.h"
#include "cli/spec.h"

static const struct command commands[] = {
    { "serve", "run the sandbox service on this machine", cmd_serve },
    { "key", "create, list and revoke API keys", cmd_key },
    { "template", "list templates, build the base template", cmd_template },
    { "doctor", "check what this machine can do; audit a service", cmd_doctor },
#define ROW(name, summary, run) { name, summary, cmd_client },
    CLIENT_COMMANDS(ROW)
#undef ROW
        { "completion", "print the completion script of a shell", cmd_completion },
};

static void print_help(FILE *to)
{
    (void)fprintf(to, "usage: abx COMMAND [OPTION...]\n\n"
                      "Sandboxes for AI agents on one plain Linux machine.\n\ncommands:\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        (void)fprintf(to, "  %-18s %s\n", commands[i].name, commands[i].summary);
    (void)fprintf(to, "  %-18s %s\n  %-18s %s\n\nsandboxes:\n", "help",
                  "print this, or the help of a command", "version", "print the version");
    spec_print_commands(to);
    (void)fprintf(to, "\n'abx COMMAND --help' describes one command; the manuals are abx(1) and "
                      "abx-sandbox(1).\n");
}

/* Says what stands in the way, and what was probably meant. */
static int fail_unknown(char *word)
{
    char *words[] = { (char[]){ "sandbox" }, word };
    int n;

    if (*word == '-')
        (void)fprintf(stderr, "abx: '%s' belongs behind the command: abx COMMAND %s\n", word, word);
    else
        (void)fprintf(stderr, "abx: unknown command '%s'\n", word);
    if (spec_find(ARRAY_SIZE(words), words, &n))
        (void)fprintf(stderr, "Did you mean 'abx sandbox %s'?\n", word);
    else
        (void)fprintf(stderr, "Try 'abx help'.\n");
    return 2;
}

/* argv[0] is the command's name. */
static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc, argv);
    if (spec_has_word(argv[0]))
        return cmd_client(argc, argv);
    return fail_unknown(argv[0]);
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* `help COMMAND` is `COMMAND --help`. What stands behind the words of a command is left out: for `run` and `exec`
 * it would be a command in a sandbox, with --help as its own. `to` has room for one more. */
static int run_help(int n, char **words, char **to)
{
    int n_command = n;

    (void)spec_find(n, words, &n_command);
    memmove(to, words, (size_t)n_command * sizeof *to);
    to[n_command] = (char[]){ "--help" };
    to[n_command + 1] = NULL;
    return run_command(n_command + 1, to);
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name) {
        print_help(stderr);
        return 2;
    }
    if (is_help(name) || (argc == 3 && is_help(argv[2]) && strcmp(name, "version") == 0)) {
        if (argc > 2 && !is_help(argv[2]))
            return run_help(argc - 2, argv + 2, argv + 1);
        print_help(stdout);
        return 0;
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        if (argc > 2) {
            (void)fprintf(stderr, "abx: %s takes no argument '%s'\nTry 'abx help'.\n", name,
                          argv[2]);
            return 2;
        }
        (void)puts("abx " ABX_VERSION);
        return 0;
    }
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    cli_keep_standard_places();
    log_init("abx");
    return cli_end(run(argc, argv));
}
