/* request_count.c - what the log and the counters hear of a request. */
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "gateway/internal.h"

void request_trouble(struct request *r, enum count_upstream what)
{
    r->has_trouble = true;
    r->trouble = what;
}

void request_set_route(struct request *r)
{
    switch (r->route.kind) {
    case ROUTE_TO_SANDBOX:
        r->count_route = r->route.port == ENVD_PORT ? COUNT_ROUTE_ENVD : COUNT_ROUTE_PORT;
        return;
    case ROUTE_RESERVED:
        r->count_route = COUNT_ROUTE_ENVD;
        return;
    case ROUTE_TO_CONTROL:
        r->count_route = COUNT_ROUTE_CONTROL;
        return;
    case ROUTE_BY_TOKEN: /* as it turns out to be */
    case ROUTE_BAD:
        r->count_route = COUNT_ROUTE_NONE;
        return;
    }
}

/* One line for each request: warnings for failures of ours, the rest only when asked for. That a
 * sandbox is gone or its port closed is an answer like any other. */
static void request_log(const struct request *r, const struct http1_head *head)
{
    bool is_bad = r->is_failure;
    char status[8], ms[24], method[16], path[256];

    if (!r->g->opts.has_access_log && !is_bad && !log_is_on(LOG_DEBUG))
        return;
    (void)snprintf(status, sizeof(status), "%d", r->status % 10000);
    (void)snprintf(ms, sizeof(ms), "%.1f", (double)(time_mono_ns() - r->began_ns) / 1e6);
    (void)snprintf(method, sizeof(method), "%.*s", (int)MIN(head->method.n, sizeof(method) - 1),
                   (const char *)head->method.p);
    (void)snprintf(path, sizeof(path), "%.*s", (int)MIN(head->path.n, sizeof(path) - 1),
                   (const char *)head->path.p);
    log_event(is_bad                      ? LOG_WARN
              : r->g->opts.has_access_log ? LOG_INFO
                                          : LOG_DEBUG,
              "request", "request_id", r->request_id, "method", method, "path", path, "sandbox",
              r->route.kind == ROUTE_TO_CONTROL ? "-" : r->route.id, "status", status, "ms", ms,
              NULL);
}

void request_tell(struct request *r, const struct http1_head *head)
{
    struct gateway_counters *c = r->g->opts.counters;

    if (head)
        request_log(r, head);
    count_add(&c->requests[r->count_route][count_class_of(r->status)], 1);
    if (r->answered_ns > 0)
        histogram_add(&c->seconds[r->count_route], r->answered_ns - r->began_ns);
    if (r->has_trouble)
        count_add(&c->upstream_errors[r->trouble], 1);
}
