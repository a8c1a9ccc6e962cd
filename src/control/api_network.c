/* api_network.c - PUT /sandboxes/{id}/network: replaces what a sandbox may reach (e2b.md 1.4). What belongs to requests
 * into it (allowPublicTraffic, maskRequestHost, httpsPorts) stays. The answer comes when the rules are in force, also for
 * connections that are open.
 */
#include "control/api_internal.h"
#include "control/create_network.h"
#include "control/table.h"

static const char *const replaced[] = { "allowOut", "denyOut", "dnsServers", "egressProxy",
                                        "rules" };

/* `network` of the configuration with the body's rules in place of its own; NULL when out of memory. */
static json_t *merge(const json_t *network, const json_t *body)
{
    json_t *merged = network ? json_copy((json_t *)(uintptr_t)network) : json_object();
    int r = merged ? 0 : -1;

    for (size_t i = 0; i < ARRAY_SIZE(replaced) && r == 0; i++) {
        json_t *value = json_object_get(body, replaced[i]);

        if (value && !json_is_null(value))
            r = json_object_set(merged, replaced[i], value);
        else
            (void)json_object_del(merged, replaced[i]);
    }
    if (r == 0)
        return merged;
    json_decref(merged);
    return NULL;
}

/* The members of the configuration that the body replaces. */
static int make_config(const struct sandbox *sb, const json_t *body, json_t **ret,
                       struct abx_err *err)
{
    bool internet = true;
    int has_internet = network_internet(body, &internet, err);
    json_t *network;

    if (has_internet < 0)
        return has_internet;
    network = merge(json_object_get(sb->config, "network"), body);
    if (!network)
        return err_oom(err);
    *ret = json_pack("{s:o,s:o}", "network", network, "allowInternetAccess",
                     has_internet > 0 ? json_boolean(internet) : json_null());
    return *ret ? 0 : err_oom(err);
}

static void on_in_force(void *user)
{
    struct api_request *rq = user;

    api_reply_empty(rq, 204);
    api_request_unref(rq);
}

static void on_configured(void *user, int status, const struct abx_err *failure)
{
    struct api_request *rq = user;
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);

    (void)status;
    if (failure) {
        api_reply_error(rq, failure, failure->reason == ABX_REASON_BUSY ? RETRY_YES : RETRY_NO);
        api_request_unref(rq);
    } else if (sb && sandbox_is_visible(sb) && rq->c->table) {
        table_confirm(rq->c->table, sb, on_in_force, rq);
    } else { /* killed meanwhile, or we are stopping: nothing of it reaches anything */
        on_in_force(rq);
    }
}

void api_network(struct api_request *rq)
{
    struct sandbox *sb = lifecycle_find(rq->c->lifecycle, rq->id);
    struct sandbox_request request = { .what = EV_NETWORK };
    struct abx_err err;
    int r = rq->body ? network_check(rq->body, true, &err)
                     : err_set(&err, ABX_INVALID_ARGUMENT,
                               "there is no body: {} is what drops all rules of a sandbox");

    if (r == 0 && (!sb || strcmp(sb->team, rq->team) != 0)) {
        api_reply_not_found(rq, rq->id);
        return;
    }
    if (r == 0)
        r = make_config(sb, rq->body, &request.config, &err);
    if (r < 0) {
        api_reply_error(rq, &err, RETRY_UNSAID);
        return;
    }
    api_request_ref(rq);
    if (lifecycle_request(rq->c->lifecycle, rq->id, &request, on_configured, rq, &err) < 0)
        on_configured(rq, 0, &err);
    json_decref(request.config);
}
