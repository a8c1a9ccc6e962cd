/* supervisor_counters.h - the memory in which the roles count (net/counters.h). The supervisor keeps it, so
 * that a role's successor goes on where it ended.
 */
#pragma once

#include "base/err.h"
#include "cli/supervisor_role.h"

struct supervisor_counters {
    int control_fd, gateways_fd, egress_fd; /* closed with the process */
};

int supervisor_counters_open(struct supervisor_counters *c, size_t n_gateways, struct abx_err *err);
/* Adds the arguments of control, of gateway number `i`, and of egress. */
void supervisor_counters_control(const struct supervisor_counters *c, size_t n_gateways,
                                 struct role *control);
void supervisor_counters_gateway(const struct supervisor_counters *c, size_t i,
                                 struct role *gateway);
void supervisor_counters_egress(const struct supervisor_counters *c, struct role *egress);
