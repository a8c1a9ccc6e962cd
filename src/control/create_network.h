/* create_network.h - the `network` object of a create: addresses, hosts, rules (e2b.md 1.3). Pure. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* INVALID_ARGUMENT with E2B's text, PERMISSION_DENIED for an egress proxy. */
#define HTTPS_PORTS_MAX 100u

int network_check(const json_t *network, struct abx_err *err);
