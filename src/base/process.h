/* process.h - which process it was: a pid alone may be another one's by now.
 *
 * A mark is text that one process writes down about itself and others compare later, "<pid>:<start>:<name space>": start
 * time in clock ticks since the boot (proc(5), stat), and the inode of the pid name space in which the pid counts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_MARK_SIZE 64

/* Start time of a process in clock ticks since boot; 0 when there is none, or when that cannot be seen. */
uint64_t process_start_ticks(pid_t pid);
/* The calling process's own; "" where the system does not tell. */
void process_mark(char to[PROCESS_MARK_SIZE]);
/* Has the process certainly ended? A zombie has. False for what is no mark, for one of another pid name space, and
 * where the system does not tell. */
bool process_mark_is_gone(const char *mark);
/* Has it certainly ended, or is it about to: killed by SIGKILL, or closing what it had? False as above. */
bool process_mark_is_ending(const char *mark);
/* The same by the number alone. What is not ending is looked at twice, a millisecond apart. */
bool process_is_ending(pid_t pid);
