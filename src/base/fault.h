/* fault.h - named points at which a test lets a step fail, or its process die or hang.
 *
 * The variable ABX_FAULTS of a process that runs as root names a file of FAULT_FILE_BYTES bytes, which is
 * mapped once, at the start, and shared by all processes of a service: so a count outlives the process that it
 * ends, and a test changes what is to happen while the service runs. Its text are lines
 *
 *     NAME COUNT ACTION\n        (the rest of the file: newlines)
 *
 * with one space between. COUNT is a digit, how often yet ('0': not any more), or '*'. ACTION is
 *
 *     fail   the step fails with "injected fault" (ABX_INTERNAL)
 *     kill   the process dies as by kill -9
 *     stall  it does not go on while the line stands there, for FAULT_STALL_MS at most
 *
 * Points are compiled in always: a test is of the programs that people run, and without the variable a point
 * costs one comparison. Engine, its workers and control look at it; what a client sends or a sandbox does never
 * comes near it. The names of all points are in tests/system/test_fault_points.py, which has to know each.
 */
#pragma once

#include "base/err.h"

#define FAULT_FILE_BYTES 4096
#define FAULT_STALL_MS 120000

/* Maps the file that ABX_FAULTS names. Not root, or no such variable: does nothing. Fails when the file cannot be
 * used: not of this size, not of the caller's user, or others may write to it. To be called once, by main. */
int fault_init(struct abx_err *err);
/* The same with a path, for any user. */
int fault_open(const char *path, struct abx_err *err);

/* A point of this name (a literal without spaces). 0, or the code of the fault. Any thread. */
int fault_at(const char *name, struct abx_err *err);

/* Puts the step's name before the message of its failure; returns `r`. */
int fault_name_step(int r, const char *name, struct abx_err *err);

/* One step: its point, then `call` (an int, 0 or a code). A failure of either names the step. */
#define FAULT_STEP(name, err, call) fault_name_step(fault_at(name, err) ?: (call), name, err)
