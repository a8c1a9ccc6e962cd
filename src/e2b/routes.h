/* routes.h - which requests belong to the control plane, and which of them exist (e2b.md 1.2).
 *
 * One table for gateway and control. Segments are split at '/' before they are percent-decoded, so
 * that a name may contain an encoded '/'.
 */
#pragma once

#include "base/buf.h"

enum e2b_route {
    ROUTE_NONE,    /* 404 */
    ROUTE_METHOD,  /* the path exists with another method: 405 */
    ROUTE_UNBUILT, /* known to clients, not built here: 501 */
    ROUTE_HEALTH,
    ROUTE_INFO,
    ROUTE_SERVICE_METRICS,
    ROUTE_SANDBOX_CREATE,
    ROUTE_SANDBOX_CREATE_V2,
    ROUTE_SANDBOX_LIST,
    ROUTE_SANDBOX_LIST_V2,
    ROUTE_SANDBOX_GET,
    ROUTE_SANDBOX_KILL,
    ROUTE_SANDBOX_CONNECT,
    ROUTE_SANDBOX_CONNECT_V2,
    ROUTE_SANDBOX_TIMEOUT,
    ROUTE_SANDBOX_NETWORK,
    ROUTE_SANDBOX_REFRESH,
    ROUTE_SANDBOX_PAUSE,
    ROUTE_SANDBOX_FORK,
    ROUTE_SANDBOX_SNAPSHOT,
    ROUTE_SANDBOX_ROLLBACK, /* not E2B's */
    ROUTE_SNAPSHOTS,
    ROUTE_TEMPLATE_DELETE,
    ROUTE_SANDBOX_LOGS,
    ROUTE_SANDBOX_LOGS_V2,
    ROUTE_SANDBOX_METRICS,
    ROUTE_SANDBOXES_METRICS,
    ROUTE_SANDBOX_RESUME,
    ROUTE_EVENTS,
    ROUTE_SANDBOX_EVENTS,
};

#define ROUTE_PARAMS_MAX 3

struct route_match {
    enum e2b_route route;
    struct slice params[ROUTE_PARAMS_MAX]; /* still percent-encoded, borrowed from the path */
    size_t n_params;
    char allow[40]; /* for ROUTE_METHOD: value of the Allow field */
};

/* Finds the route of a request; `path` without query. One trailing '/' is ignored. */
void route_find(struct slice method, struct slice path, struct route_match *ret);

/* Does the path lie in the control plane's part of the name space (route order (2) of the gateway:
 * /sandboxes, /v2, /v3, /snapshots, /templates, /volumes, /secrets)? */
bool route_is_control(struct slice path);
