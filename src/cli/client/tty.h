/* tty.h - the local terminal in raw mode, and back again however this process ends.
 *
 * Restored by tty_restore, at exit, and by handlers of every signal that ends a process (SIGKILL cannot be caught).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "abx/error.h"

/* No echo for `fd`, a terminal, while a secret is typed; SIGINT, SIGTERM and SIGHUP restore it too, SIGTSTP is
 * ignored from then on. 0, or a code with `err`. */
int tty_quiet(int fd, struct abx_error *err);
/* Raw mode for `fd`, a terminal; again after tty_restore. 0, or a code with `err`. */
int tty_raw(int fd, struct abx_error *err);
/* Does nothing when the terminal is not raw. Async-signal-safe. */
void tty_restore(void);
/* Size of the terminal; 80 x 24 when it does not say. */
void tty_size(int fd, uint16_t *ret_cols, uint16_t *ret_rows);
