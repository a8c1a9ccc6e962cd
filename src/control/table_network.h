/* table_network.h - what a sandbox may reach, as egress is told. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "schema/ipc.pb-c.h"

struct network_message {
    Abx__Ipc__Network body; /* its strings lie in the configuration */
    Abx__Ipc__EgressProxy proxy;
    Abx__Ipc__EgressProxyTls tls;
    char host[256]; /* of the proxy's address */
    char **lists[3];
};

/* From a sandbox's configuration (`network`, `allowInternetAccess`), which was checked by network_check and stays as
 * it is while the message is used. */
int network_message_init(struct network_message *m, const json_t *config, struct abx_err *err);
void network_message_done(struct network_message *m);
