/* route.h - where a request goes (architecture.md 2, e2b.md 2.4). Pure: looks at the head only.
 *
 * Order: (1) host `<port>-<id>.<domain>`; (2) the headers E2b-Sandbox-Id and E2b-Sandbox-Port, except
 * that port 49983 with a path of the control plane is the control plane's; (3) without headers, a
 * path of envd with an access token or a signature: the sandbox that it belongs to, if it is one;
 * (4) one header alone: 400; (5) everything else: control plane.
 */
#pragma once

#include "e2b/ids.h"
#include "wire/http1.h"

#define ENVD_PORT 49983

enum route_kind {
    ROUTE_TO_CONTROL,
    ROUTE_TO_SANDBOX, /* id and port are set */
    ROUTE_BY_TOKEN, /* ask each sandbox's token with route_matches_token; none or several: control */
    ROUTE_RESERVED, /* id is set: envd's endpoint that only the control plane may use, 404 */
    ROUTE_BAD,      /* 400 with message */
};

struct route {
    enum route_kind kind;
    char id[SANDBOX_ID_SIZE];
    uint16_t port;
    const char *message; /* static */
};

/* `domain` as in hosts.h. */
void route_decide(const struct http1_head *head, const char *domain, struct route *ret);

/* Was the request of a ROUTE_BY_TOKEN made with this access token: in X-Access-Token, or by a URL
 * signature over it (expired ones count, envd judges them)? */
bool route_matches_token(const struct http1_head *head, struct slice access_token);
