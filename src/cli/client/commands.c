/* commands.c - from words to a command. See commands.h. */
#include "cli/client/commands.h"

#include <locale.h>
#include <string.h>

#include "cli/client/output.h"

static const struct {
    const char *name;
    int (*run)(struct session *s);
} runs[] = {
    { "run", cmd_run },
    { "sandbox create", cmd_sandbox_create },
    { "sandbox list", cmd_sandbox_list },
    { "sandbox info", cmd_sandbox_info },
    { "sandbox exec", cmd_sandbox_exec },
    { "sandbox shell", cmd_sandbox_shell },
    { "sandbox cp", cmd_sandbox_cp },
    { "sandbox cat", cmd_sandbox_cat },
    { "sandbox logs", cmd_sandbox_logs },
    { "sandbox metrics", cmd_sandbox_metrics },
    { "sandbox connect", cmd_sandbox_connect },
    { "sandbox timeout", cmd_sandbox_timeout },
    { "sandbox pause", cmd_sandbox_pause },
    { "sandbox resume", cmd_sandbox_resume },
    { "sandbox fork", cmd_sandbox_fork },
    { "sandbox snapshot", cmd_sandbox_snapshot },
    { "sandbox rollback", cmd_sandbox_rollback },
    { "sandbox kill", cmd_sandbox_kill },
    { "whoami", cmd_whoami },
};

static int run_command(const struct spec_command *command, int argc, char **argv)
{
    static struct session s; /* large for a stack */
    int status = args_parse(&s.args, command, argc, argv);

    if (status == 0 && s.args.wants_help) {
        args_print_help(command, stdout);
        status = output_end();
    } else if (status == 0) {
        status = session_open(&s);
        for (size_t i = 0; status == 0 && i < ARRAY_SIZE(runs); i++)
            if (strcmp(runs[i].name, command->name) == 0) {
                status = runs[i].run(&s);
                break;
            }
    }
    session_close(&s);
    return status;
}

int client_run(int argc, char **argv)
{
    int words = 0;
    const struct spec_command *command = spec_find(argc, argv, &words);

    (void)setlocale(LC_CTYPE, "");
    if (command)
        return run_command(command, argc - words + 1, argv + words - 1);
    if (argc == 0 || strcmp(argv[0], "sandbox") != 0)
        return -1;
    if (argc > 1 && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0 &&
        strcmp(argv[1], "help") != 0) {
        (void)fprintf(stderr, "abx sandbox: there is no command '%s'\nTry 'abx sandbox --help'.\n",
                      argv[1]);
        return 2;
    }
    (void)fprintf(argc > 1 ? stdout : stderr,
                  "usage: abx sandbox COMMAND [OPTION...] [ARG...]\n\ncommands:\n");
    spec_print_commands(argc > 1 ? stdout : stderr);
    return argc > 1 ? output_end() : 2;
}
