/* cmd_client.c - hands a command of the client to libexec/abx-client, in place of this process. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int cmd_client(int argc, char **argv)
{
    char path[PATH_MAX];
    struct abx_err err = { 0 };
    _cleanup_(freep) char **args = calloc((size_t)argc + 2, sizeof *args);
    static char self[] = "abx"; /* what getopt and messages call it */

    if (!args) {
        (void)err_oom(&err);
        return cli_fail(&err);
    }
    if (cli_libexec("abx-client", path, sizeof path, &err) < 0)
        return cli_fail(&err);
    args[0] = self;
    memcpy(args + 1, argv, (size_t)argc * sizeof *args);
    (void)execv(path, args);
    (void)err_sys(&err, errno, "execute '%s'", path);
    return cli_fail(&err);
}
