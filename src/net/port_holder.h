/* port_holder.h - which process listens on a TCP port: for messages, read from /proc. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PORT_HOLDER_SIZE 96

/* Writes "process 12 (nginx)" for whoever listens on `port` in this network namespace, whatever the
 * address, into `to` of `size` bytes (PORT_HOLDER_SIZE is enough); "another process" when nobody is
 * found or may be looked at. */
void port_holder_find(uint16_t port, char *to, size_t size);
