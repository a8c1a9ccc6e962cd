/* route.h - where a request goes (architecture.md 2, e2b.md 2.4). Pure: looks at the head only.
 *
 * Order: (1) host `<port>-<id>.<domain>`; (2) the headers E2b-Sandbox-Id and E2b-Sandbox-Port, except
 * that port 49983 with a path of the control plane is the control plane's; (3) without headers, a
 * path of envd with an access token or a signature: the sandbox that it belongs to, if it is one (a
 * token of none is answered with 502: its sandbox was not found);
 * (4) one header alone: 400; (5) everything else: control plane.
 * A second field of a name that decides here (E2b-Sandbox-Id, E2b-Sandbox-Port, E2b-Traffic-Access-Token;
 * X-Access-Token in (3)) is refused whatever its value. Control and envd do the same with theirs.
 */
#pragma once

#include "e2b/hosts.h"
#include "e2b/ids.h"
#include "e2b/tokens.h"
#include "wire/http1.h"

enum route_kind {
    ROUTE_TO_CONTROL,
    ROUTE_TO_SANDBOX, /* id and port are set */
    ROUTE_BY_TOKEN,   /* ask for each sandbox with route_proof_matches; none or several: control */
    ROUTE_RESERVED,   /* id is set: envd's endpoint that only the control plane may use, 404 */
    ROUTE_BAD,        /* 400 with message */
};

struct route {
    enum route_kind kind;
    char id[SANDBOX_ID_SIZE];
    uint16_t port;
    char message[80]; /* with ROUTE_BAD */
};

/* `domain` as in hosts.h. */
void route_decide(const struct http1_head *head, const char *domain, struct route *ret);

/* What a request of a ROUTE_BY_TOKEN shows: an access token in X-Access-Token, or a URL signature over
 * it (expired ones count, envd judges them). Read once, then compared with each sandbox's token. */
struct route_proof {
    struct slice token; /* of the head, borrowed */
    bool is_signed;     /* there is a signature, maybe one that can be nobody's */
    bool has_signature; /* then the rest is set */
    char signature[SIGNATURE_SIZE];
    int64_t expiration_s;
    struct signature_base base;
};

void route_proof_read(const struct http1_head *head, struct route_proof *ret);
bool route_proof_matches(const struct route_proof *p, struct slice access_token);
/* A signature whose time is over, as envd judges it. */
bool route_proof_is_expired(const struct route_proof *p, int64_t now_s);
