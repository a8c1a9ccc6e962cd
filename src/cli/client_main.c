/* client_main.c - abx-client: the commands of `abx` that are a client's. Executed by `abx`, with the
 * command's name first. */
#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "cli/client/commands.h"
#include "cli/client_commands.h"

static const struct command commands[] = {
#define ROW(name, summary, run) { name, summary, run },
    CLIENT_COMMANDS(ROW)
#undef ROW
};

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int status;

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    status = client_run(argc - 1, argv + 1);
    if (status >= 0)
        return status;
    (void)fprintf(stderr, "abx-client: '%s' is no command of the client: it is run by abx(1)\n",
                  name);
    return 2;
}

int main(int argc, char **argv)
{
    cli_keep_standard_places();
    return cli_end(run(argc, argv));
}
