/* port_holder.h - which process listens on a TCP port: for messages, read from /proc. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PORT_HOLDER_SIZE 96

/* Writes "process 12 (nginx)" for whoever listens in this network namespace where it keeps others from the address `host`
 * (numeric, of either kind) and `port`, into `to` of `size` bytes (PORT_HOLDER_SIZE is enough); "another process" when nobody
 * is found or may be looked at. Returns its pid, 0 for nobody. */
pid_t port_holder_find(const char *host, uint16_t port, char *to, size_t size);
