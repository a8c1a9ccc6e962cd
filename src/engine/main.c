/* main.c - abx-engine: the only privileged role. Reads its command line and becomes the engine, one of
 * its workers, or the probe.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/probe.h"
#include "engine/worker.h"

int main(int argc, char **argv)
{
    static struct options o;
    struct abx_err err;
    bool is_help;

    log_init("engine");
    if (argc > 1 && strcmp(argv[1], "--probe") == 0)
        return probe_main(argc, argv);
    if (options_parse(argc, argv, &o, &is_help, &err) < 0) {
        log_start_failure("bad command line", &err);
        return 2;
    }
    if (is_help)
        return fputs(options_usage, stdout) < 0;
    if (fault_init(&err) < 0) {
        log_start_failure("the engine cannot start", &err);
        return 1;
    }
    (void)umask(022);
    return o.is_worker ? worker_main(&o) : engine_run(&o, argv);
}
