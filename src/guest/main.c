/* main.c - abx-guest: one static image, executed as PID 1 and as the daemon of a sandbox. */
#include <stdio.h>
#include <string.h>

#include "e2b/guest_abi.h"
#include "guest/guest.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        return init_main();
    if (argc == 2 && strcmp(argv[1], "daemon") == 0)
        return daemon_main();
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("abx-guest %s (envd %s)\n", ABX_VERSION, E2B_ENVD_VERSION);
        return 0;
    }
    fprintf(stderr, "abx-guest: started by the engine as 'init' and 'daemon', not by hand\n");
    return 2;
}
