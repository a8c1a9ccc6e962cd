/* table_network.c - see table_network.h. */
#include "control/table_network.h"

#include <stdio.h>
#include <string.h>

#include "base/macro.h"

static int fill_list(const json_t *list, char ***ret, size_t *ret_n, struct abx_err *err)
{
    size_t n = json_array_size(list);

    *ret_n = 0;
    if (n == 0)
        return 0;
    *ret = calloc(n, sizeof(char *));
    if (!*ret)
        return err_oom(err);
    for (size_t i = 0; i < n; i++)
        (*ret)[i] = (char *)(uintptr_t)json_string_value(json_array_get(list, i));
    *ret_n = n;
    return 0;
}

static char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return (char *)(uintptr_t)(text ? text : "");
}

/* Without a name of its own the certificate has to be for the host of the address. */
static void fill_tls(struct network_message *m, const json_t *tls)
{
    const char *host = m->proxy.address, *end = strrchr(host, ':');

    if (!json_is_true(json_object_get(tls, "enabled")))
        return;
    if (*host == '[') {
        host++;
        end = strchr(host, ']');
    }
    (void)snprintf(m->host, sizeof m->host, "%.*s", end ? (int)(end - host) : 0, host);
    abx__ipc__egress_proxy_tls__init(&m->tls);
    m->tls.server_name = text_of(tls, "serverName");
    if (!*m->tls.server_name)
        m->tls.server_name = m->host;
    m->tls.ca_cert = text_of(tls, "caCert");
    m->proxy.tls = &m->tls;
}

static void fill_proxy(struct network_message *m, const json_t *proxy)
{
    if (!json_is_object(proxy))
        return;
    abx__ipc__egress_proxy__init(&m->proxy);
    m->proxy.address = text_of(proxy, "address");
    m->proxy.username = text_of(proxy, "username");
    m->proxy.password = text_of(proxy, "password");
    fill_tls(m, json_object_get(proxy, "tls"));
    m->body.egress_proxy = &m->proxy;
}

int network_message_init(struct network_message *m, const json_t *config, struct abx_err *err)
{
    const json_t *network = json_object_get(config, "network");
    int r;

    *m = (struct network_message){ .body = ABX__IPC__NETWORK__INIT };
    m->body.no_internet = json_is_false(json_object_get(config, "allowInternetAccess"));
    r = fill_list(json_object_get(network, "allowOut"), &m->lists[0], &m->body.n_allow_out, err);
    if (r == 0)
        r = fill_list(json_object_get(network, "denyOut"), &m->lists[1], &m->body.n_deny_out, err);
    if (r == 0)
        r = fill_list(json_object_get(network, "dnsServers"), &m->lists[2], &m->body.n_dns_servers,
                      err);
    fill_proxy(m, json_object_get(network, "egressProxy"));
    m->body.allow_out = m->lists[0];
    m->body.deny_out = m->lists[1];
    m->body.dns_servers = m->lists[2];
    return r;
}

void network_message_done(struct network_message *m)
{
    for (size_t i = 0; i < ARRAY_SIZE(m->lists); i++)
        free(m->lists[i]);
}
