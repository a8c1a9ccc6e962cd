/* worker.h - a worker process: receives jobs on WORKER_FD, does them one after the other, answers
 * each. It holds the cgroup tree, the pool and the folder of records; a create worker also a
 * spawner, the prepare worker the uid leases. Ends when the engine does.
 */
#pragma once

#include "engine/options.h"

/* Runs until the engine closes its end. The process's exit status. */
int worker_main(const struct options *o);
