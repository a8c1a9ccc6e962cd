/* http_trace.c - tells the owner of a config of its exchanges (abx/config.h: abx_trace_fn). */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "transport/call.h"
#include "transport/http_internal.h"

#define URL_MAX 1024

/* Without what may be secret: a user and password before the host, and everything from '?' on (signatures of files). */
static void put_url(char to[URL_MAX], const char *url)
{
    const char *host = strstr(url, "://");
    size_t scheme, authority, at;

    host = host ? host + 3 : url;
    scheme = (size_t)(host - url);
    authority = strcspn(host, "/?#");
    for (at = authority; at > 0 && host[at - 1] != '@'; at--) {
    }
    host += at;
    (void)snprintf(to, URL_MAX, "%.*s%.*s", (int)MIN(scheme, (size_t)16), url,
                   (int)MIN(strcspn(host, "?#"), (size_t)URL_MAX), host);
}

void exchange_trace(struct http_exchange *x, enum abx_trace_kind kind, int status,
                    const struct abx_err *err)
{
    struct abx_trace trace = { .size = sizeof trace, .kind = kind, .method = x->method };
    struct abx_error error;
    char url[URL_MAX];

    if (!x->config || !x->config->trace || x->is_tunnel)
        return;
    if (kind == ABX_TRACE_REQUEST) {
        if (x->is_traced)
            return;
        x->is_traced = true;
        x->traced_ns = time_mono_ns();
    }
    put_url(url, x->url);
    trace.url = url;
    trace.status = status;
    trace.duration_ms = (time_mono_ns() - x->traced_ns) / NSEC_PER_MSEC;
    trace.is_stream = x->is_stream;
    if (err && err->code != 0) {
        error_export(err, 0, &error);
        trace.error = &error;
    }
    x->config->trace(x->config->trace_user, &trace);
}

void exchange_trace_end(struct http_exchange *x, const struct abx_err *err)
{
    bool has_told = x->is_stream && x->has_head; /* its answer */

    if (x->is_traced)
        exchange_trace(x,
                       has_told         ? ABX_TRACE_END
                       : err->code != 0 ? ABX_TRACE_FAILED
                                        : ABX_TRACE_RESPONSE,
                       x->has_head ? x->head.status : 0, err);
    x->is_traced = false;
}
