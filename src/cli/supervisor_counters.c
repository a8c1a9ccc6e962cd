/* supervisor_counters.c - see supervisor_counters.h. */
#include "cli/supervisor_counters.h"

#include "base/fd.h"
#include "net/counters.h"

int supervisor_counters_open(struct supervisor_counters *c, size_t n_gateways, struct abx_err *err)
{
    int r = counters_new(1, &c->control_fd, err);

    if (r == 0)
        r = counters_new(n_gateways, &c->gateways_fd, err);
    return r == 0 ? counters_new(1, &c->egress_fd, err) : r;
}

void supervisor_counters_control(const struct supervisor_counters *c, size_t n_gateways,
                                 struct role *control)
{
    role_arg_fd(control, "--counters-fd", c->control_fd);
    role_arg_fd(control, "--gateway-counters-fd", c->gateways_fd);
    role_arg_fd(control, "--egress-counters-fd", c->egress_fd);
    role_arg(control, "--gateways", "%zu", n_gateways);
}

void supervisor_counters_gateway(const struct supervisor_counters *c, size_t i,
                                 struct role *gateway)
{
    role_arg_fd(gateway, "--counters-fd", c->gateways_fd);
    role_arg(gateway, "--counters-block", "%zu", i);
}

void supervisor_counters_egress(const struct supervisor_counters *c, struct role *egress)
{
    role_arg_fd(egress, "--counters-fd", c->egress_fd);
}
