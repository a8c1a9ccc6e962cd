/* supervisors.h - which supervisors PID 1 has, and which of them have been heard of. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct supervisors {
    pid_t *list;
    size_t n;
};

/* Those that exist now, by /proc: children of PID 1 other than this process that bear a name of our
 * image. Someone may bear it without being one; he is only waited for. Fewer when memory is short. */
void supervisors_find(struct supervisors *s);
void supervisors_done(struct supervisors *s);

void supervisors_heard(struct supervisors *s, pid_t pid);
/* Drops those that do not exist any more. True when some are left. */
bool supervisors_left(struct supervisors *s);
