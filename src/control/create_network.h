/* create_network.h - the `network` object of a create: addresses, hosts, rules (e2b.md 1.3). Pure. */
#pragma once

#include <jansson.h>

#include "base/err.h"

#define HTTPS_PORTS_MAX 100u

/* Whether a body allows internet access at all: allow_internet_access, as requests spell it, or allowInternetAccess, as
 * answers do; who copies that must not get a sandbox that is open. Returns 1 and *ret, 0 when neither is there (or null), or
 * INVALID_ARGUMENT, also when they differ. */
int network_internet(const json_t *body, bool *ret, struct abx_err *err);
/* `network` of a create, or the whole body of an update. INVALID_ARGUMENT with E2B's text where it has one; also for a
 * member that is not known, because one misspelt would leave open what was meant to be closed. */
int network_check(const json_t *network, bool is_update, struct abx_err *err);
