/* tree.h - killing all of a command: every process below its supervisor (init/supervisor.h). */
#pragma once

#include <sys/types.h>

/* Stops, then kills every descendant of `supervisor`, new ones included, and returns when only
 * zombies are left or after `timeout_ms`. Blocking: for the worker pool. Returns how many processes
 * were signalled in the last pass (0 = all gone). */
int tree_kill(pid_t supervisor, int timeout_ms);
