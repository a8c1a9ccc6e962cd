/* routes.c - see routes.h. */
#include "e2b/routes.h"

#include <stdio.h>

#define SEGMENTS_MAX 8

struct row {
    const char *method;
    const char *path; /* "*" stands for one segment */
    enum e2b_route route;
};

static const struct row rows[] = {
    { "GET", "/health", ROUTE_HEALTH },
    { "GET", "/abx/v1/info", ROUTE_INFO },
    { "GET", "/abx/v1/metrics", ROUTE_SERVICE_METRICS },
    { "POST", "/sandboxes", ROUTE_SANDBOX_CREATE },
    { "GET", "/sandboxes", ROUTE_SANDBOX_LIST },
    { "POST", "/v2/sandboxes", ROUTE_SANDBOX_CREATE_V2 },
    { "GET", "/v2/sandboxes", ROUTE_SANDBOX_LIST_V2 },
    { "GET", "/sandboxes/metrics", ROUTE_SANDBOXES_METRICS },
    { "GET", "/sandboxes/*", ROUTE_SANDBOX_GET },
    { "DELETE", "/sandboxes/*", ROUTE_SANDBOX_KILL },
    { "POST", "/sandboxes/*/connect", ROUTE_SANDBOX_CONNECT },
    { "POST", "/v2/sandboxes/*/connect", ROUTE_SANDBOX_CONNECT_V2 },
    { "POST", "/sandboxes/*/timeout", ROUTE_SANDBOX_TIMEOUT },
    { "POST", "/sandboxes/*/refreshes", ROUTE_SANDBOX_REFRESH },
    { "PUT", "/sandboxes/*/network", ROUTE_SANDBOX_NETWORK },
    { "POST", "/sandboxes/*/pause", ROUTE_SANDBOX_PAUSE },
    { "POST", "/sandboxes/*/resume", ROUTE_SANDBOX_RESUME },
    { "POST", "/sandboxes/*/snapshots", ROUTE_SANDBOX_SNAPSHOT },
    { "POST", "/sandboxes/*/fork", ROUTE_SANDBOX_FORK },
    { "POST", "/sandboxes/*/rollback", ROUTE_SANDBOX_ROLLBACK },
    { "GET", "/sandboxes/*/metrics", ROUTE_SANDBOX_METRICS },
    { "GET", "/sandboxes/*/logs", ROUTE_SANDBOX_LOGS },
    { "GET", "/v2/sandboxes/*/logs", ROUTE_SANDBOX_LOGS_V2 },
    { "GET", "/snapshots", ROUTE_SNAPSHOTS },
    { "GET", "/templates", ROUTE_UNBUILT },
    { "POST", "/templates", ROUTE_UNBUILT },
    { "GET", "/v2/templates", ROUTE_UNBUILT },
    { "POST", "/v2/templates", ROUTE_UNBUILT },
    { "POST", "/v3/templates", ROUTE_UNBUILT },
    { "GET", "/default-templates", ROUTE_UNBUILT },
    { "POST", "/templates/tags", ROUTE_UNBUILT },
    { "DELETE", "/templates/tags", ROUTE_UNBUILT },
    { "GET", "/templates/aliases/*", ROUTE_UNBUILT },
    { "GET", "/templates/*", ROUTE_UNBUILT },
    { "POST", "/templates/*", ROUTE_UNBUILT },
    { "PATCH", "/templates/*", ROUTE_UNBUILT },
    { "DELETE", "/templates/*", ROUTE_TEMPLATE_DELETE },
    { "PATCH", "/v2/templates/*", ROUTE_UNBUILT },
    { "GET", "/templates/*/tags", ROUTE_UNBUILT },
    { "GET", "/templates/*/tags/groups", ROUTE_UNBUILT },
    { "GET", "/templates/*/tags/count", ROUTE_UNBUILT },
    { "GET", "/templates/*/tags/exists", ROUTE_UNBUILT },
    { "GET", "/templates/*/tags/*/assignments", ROUTE_UNBUILT },
    { "GET", "/templates/*/files/*", ROUTE_UNBUILT },
    { "POST", "/templates/*/builds/*", ROUTE_UNBUILT },
    { "POST", "/v2/templates/*/builds/*", ROUTE_UNBUILT },
    { "GET", "/templates/*/builds/*/status", ROUTE_UNBUILT },
    { "GET", "/templates/*/builds/*/logs", ROUTE_UNBUILT },
    { "GET", "/volumes", ROUTE_UNBUILT },
    { "POST", "/volumes", ROUTE_UNBUILT },
    { "GET", "/volumes/*", ROUTE_UNBUILT },
    { "DELETE", "/volumes/*", ROUTE_UNBUILT },
    { "GET", "/volumecontent/*/path", ROUTE_UNBUILT },
    { "PATCH", "/volumecontent/*/path", ROUTE_UNBUILT },
    { "DELETE", "/volumecontent/*/path", ROUTE_UNBUILT },
    { "GET", "/volumecontent/*/dir", ROUTE_UNBUILT },
    { "POST", "/volumecontent/*/dir", ROUTE_UNBUILT },
    { "GET", "/volumecontent/*/file", ROUTE_UNBUILT },
    { "PUT", "/volumecontent/*/file", ROUTE_UNBUILT },
    { "GET", "/secrets", ROUTE_UNBUILT },
    { "POST", "/secrets", ROUTE_UNBUILT },
    { "GET", "/secrets/*", ROUTE_UNBUILT },
    { "POST", "/secrets/*", ROUTE_UNBUILT },
    { "DELETE", "/secrets/*", ROUTE_UNBUILT },
    { "GET", "/teams", ROUTE_UNBUILT },
    { "GET", "/teams/*/metrics", ROUTE_UNBUILT },
    { "GET", "/teams/*/metrics/max", ROUTE_UNBUILT },
    { "GET", "/api-keys", ROUTE_UNBUILT },
    { "POST", "/api-keys", ROUTE_UNBUILT },
    { "PATCH", "/api-keys/*", ROUTE_UNBUILT },
    { "DELETE", "/api-keys/*", ROUTE_UNBUILT },
    { "POST", "/access-tokens", ROUTE_UNBUILT },
    { "DELETE", "/access-tokens/*", ROUTE_UNBUILT },
    { "GET", "/events/sandboxes", ROUTE_EVENTS },
    { "GET", "/events/sandboxes/*", ROUTE_SANDBOX_EVENTS },
    { "GET", "/events/webhooks", ROUTE_UNBUILT },
    { "POST", "/events/webhooks", ROUTE_UNBUILT },
    { "GET", "/events/webhooks/*", ROUTE_UNBUILT },
    { "PATCH", "/events/webhooks/*", ROUTE_UNBUILT },
    { "DELETE", "/events/webhooks/*", ROUTE_UNBUILT },
};

/* Splits "/a/b" into its segments; 0 when there are none or too many. */
static size_t split(struct slice path, struct slice to[SEGMENTS_MAX])
{
    size_t n = 0, i = 1;

    if (path.n == 0 || path.p[0] != '/')
        return 0;
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    while (i <= path.n) {
        size_t start = i;

        while (i < path.n && path.p[i] != '/')
            i++;
        if (n == SEGMENTS_MAX)
            return 0;
        to[n++] = slice_of(path.p + start, i - start);
        i++;
    }
    return n;
}

static bool row_matches(const struct row *row, const struct slice *segments, size_t n,
                        struct route_match *ret)
{
    struct slice want[SEGMENTS_MAX];
    size_t k = split(slice_str(row->path), want);

    ret->n_params = 0;
    if (k != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!slice_eq_str(want[i], "*")) {
            if (!slice_eq(want[i], segments[i]))
                return false;
        } else if (segments[i].n == 0) {
            return false;
        } else {
            ret->params[ret->n_params++] = segments[i];
        }
    }
    return true;
}

static void allow_add(struct route_match *m, const char *method)
{
    size_t n = strlen(m->allow);

    if (strstr(m->allow, method))
        return;
    (void)snprintf(m->allow + n, sizeof m->allow - n, "%s%s", n ? ", " : "", method);
}

void route_find(struct slice method, struct slice path, struct route_match *ret)
{
    struct slice segments[SEGMENTS_MAX];
    size_t n = split(path, segments);

    *ret = (struct route_match){ .route = ROUTE_NONE };
    for (size_t i = 0; n > 0 && i < ARRAY_SIZE(rows); i++) {
        if (!row_matches(&rows[i], segments, n, ret))
            continue;
        if (slice_eq_str(method, rows[i].method)) {
            ret->route = rows[i].route;
            return;
        }
        ret->route = ROUTE_METHOD;
        allow_add(ret, rows[i].method);
    }
    ret->n_params = 0;
}

bool route_is_control(struct slice path)
{
    static const char *const first[] = { "sandboxes", "v2",      "v3",      "snapshots",
                                         "templates", "volumes", "secrets", "volumecontent" };
    struct slice segments[SEGMENTS_MAX];
    size_t n = 1;

    if (path.n < 2 || path.p[0] != '/')
        return false;
    while (n < path.n && path.p[n] != '/')
        n++;
    segments[0] = slice_of(path.p + 1, n - 1);
    for (size_t i = 0; i < ARRAY_SIZE(first); i++)
        if (slice_eq_str(segments[0], first[i]))
            return true;
    return false;
}
