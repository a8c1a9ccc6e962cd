/* route.c - see route.h. */
#include "gateway/route.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "e2b/errors.h"
#include "e2b/hosts.h"
#include "e2b/routes.h"
#include "e2b/tokens.h"

#define QUERY_VALUE_MAX 32768u

static const char *const reserved_paths[] = { "/init",     "/freeze", "/unfreeze", "/collapse",
                                              "/fsfreeze", "/fsthaw", "/upgrade" };
static const char *const envd_paths[] = { "/health", "/metrics",       "/envs",
                                          "/files",  "/files/compose", "/terminal" };
static const char *const envd_services[] = { "/process.Process/", "/filesystem.Filesystem/" };

/* What the gateway itself reads; what only control, envd or a server in a sandbox reads is theirs to
 * judge. */
static const char *const own_fields[] = { "E2b-Sandbox-Id", "E2b-Sandbox-Port",
                                          "E2b-Traffic-Access-Token" };
static const char *const token_field[] = { "X-Access-Token" };

static void set_bad(struct route *r, const char *message)
{
    r->kind = ROUTE_BAD;
    (void)snprintf(r->message, sizeof(r->message), "%s", message);
}

/* Two values of a field that decides would be two requests: which one is meant? */
static bool refuse_repeated(const struct http1_head *head, const char *const *names, size_t n,
                            struct route *r)
{
    const char *name = http1_head_find_repeated(head, names, n);

    if (!name)
        return false;
    r->kind = ROUTE_BAD;
    (void)snprintf(r->message, sizeof(r->message), E2B_TEXT_REPEATED, name);
    return true;
}

/* What a server would make of the path: decoded, without a '/' at the end. */
static bool is_reserved(struct slice path)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(64);
    struct slice plain;

    if (!percent_decode(&b, path, false)) /* longer than any of them, or malformed */
        return false;
    plain = buf_slice(&b);
    while (plain.n > 1 && plain.p[plain.n - 1] == '/')
        plain.n--;
    while (plain.n > 1 && plain.p[1] == '/') {
        plain.p++;
        plain.n--;
    }
    for (size_t i = 0; i < ARRAY_SIZE(reserved_paths); i++)
        if (slice_eq_str(plain, reserved_paths[i]))
            return true;
    return false;
}

static bool is_envd_path(struct slice path)
{
    for (size_t i = 0; i < ARRAY_SIZE(envd_paths); i++)
        if (slice_eq_str(path, envd_paths[i]))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(envd_services); i++)
        if (slice_starts_with(path, envd_services[i]))
            return true;
    return false;
}

static void to_sandbox(const struct http1_head *head, struct route *r)
{
    r->kind = ROUTE_TO_SANDBOX;
    if (r->port == ENVD_PORT && is_reserved(head->path))
        r->kind = ROUTE_RESERVED;
}

/* (1) Host names do not care for case, nor for the root's dot at their end. */
static enum host_kind parse_host(struct slice host, const char *domain, struct route *r)
{
    char text[256];
    struct slice name = host_name(host);

    if (name.n > 0 && name.p[name.n - 1] == '.')
        name.n--;
    if (name.n >= sizeof(text))
        return HOST_OTHER;
    for (size_t i = 0; i < name.n; i++)
        text[i] = (char)(name.p[i] >= 'A' && name.p[i] <= 'Z' ? name.p[i] + 32 : name.p[i]);
    return host_parse_sandbox(slice_of(text, name.n), domain, &r->port, r->id);
}

/* (2) and (4) */
static void by_headers(const struct http1_head *head, struct slice id, struct slice port,
                       struct route *r)
{
    uint64_t number;

    if (!str_parse_u64(port, UINT16_MAX, &number) || number == 0) {
        set_bad(r, "Invalid sandbox port");
        return;
    }
    r->port = (uint16_t)number;
    if (r->port == ENVD_PORT && route_is_control(head->path))
        return;
    if (!sandbox_id_parse(id, r->id))
        set_bad(r, "Invalid sandbox ID");
    else
        to_sandbox(head, r);
}

/* The value of a query parameter as it stands there; false when it is missing. */
static bool query_find(struct slice query, const char *name, struct slice *ret)
{
    size_t n = strlen(name), i = 0;

    while (i < query.n) {
        size_t end = i;

        while (end < query.n && query.p[end] != '&')
            end++;
        if (end - i > n && memcmp(query.p + i, name, n) == 0 && query.p[i + n] == '=') {
            *ret = slice_of(query.p + i + n + 1, end - i - n - 1);
            return true;
        }
        i = end + 1;
    }
    return false;
}

/* Decoded; nothing when it is missing. False when it is malformed. */
static bool query_get(struct slice query, const char *name, struct buf *value)
{
    struct slice raw;

    return !query_find(query, name, &raw) || percent_decode(value, raw, true);
}

static bool has_signature(const struct http1_head *head)
{
    struct slice raw;

    return slice_eq_str(head->path, "/files") && query_find(head->query, "signature", &raw);
}

void route_decide(const struct http1_head *head, const char *domain, struct route *ret)
{
    const struct http1_field *id = http1_head_find(head, "e2b-sandbox-id");
    const struct http1_field *port = http1_head_find(head, "e2b-sandbox-port");

    *ret = (struct route){ .kind = ROUTE_TO_CONTROL };
    if (refuse_repeated(head, own_fields, ARRAY_SIZE(own_fields), ret))
        return;
    switch (parse_host(head->host, domain, ret)) {
    case HOST_SANDBOX:
        to_sandbox(head, ret);
        return;
    case HOST_INVALID:
        set_bad(ret, "Invalid sandbox host");
        return;
    case HOST_OTHER:
        break;
    }
    if (id && port)
        by_headers(head, id->value, port->value, ret);
    else if (id || port)
        set_bad(ret, "E2b-Sandbox-Id and E2b-Sandbox-Port must be given together");
    else if (is_envd_path(head->path) &&
             !refuse_repeated(head, token_field, ARRAY_SIZE(token_field), ret) &&
             (http1_head_find(head, "x-access-token") || has_signature(head)))
        ret->kind = ROUTE_BY_TOKEN;
}

/* False when it is none that could match anything. */
static bool read_signature(const struct http1_head *head, struct route_proof *p)
{
    _cleanup_(buf_done) struct buf path = BUF_INIT(QUERY_VALUE_MAX);
    _cleanup_(buf_done) struct buf user = BUF_INIT(QUERY_VALUE_MAX);
    _cleanup_(buf_done) struct buf given = BUF_INIT(SIGNATURE_SIZE - 1);
    _cleanup_(buf_done) struct buf expires = BUF_INIT(64);
    const char *operation = slice_eq_str(head->method, "POST") ? "write" : "read";

    if (!query_get(head->query, "signature", &given) || !query_get(head->query, "path", &path) ||
        !query_get(head->query, "username", &user) ||
        !query_get(head->query, "signature_expiration", &expires))
        return false;
    if (expires.len > 0 &&
        !str_parse_i64(buf_slice(&expires), INT64_MIN + 1, INT64_MAX, &p->expiration_s))
        return false;
    if (given.len != sizeof(p->signature) - 1)
        return false;
    memcpy(p->signature, buf_data(&given), given.len);
    signature_begin(buf_slice(&path), operation, buf_slice(&user), &p->base);
    return true;
}

void route_proof_read(const struct http1_head *head, struct route_proof *ret)
{
    *ret = (struct route_proof){ .token = http1_head_value(head, "x-access-token"),
                                 .expiration_s = SIGNATURE_NO_EXPIRATION };
    ret->is_signed = ret->token.n == 0 && has_signature(head);
    ret->has_signature = ret->is_signed && read_signature(head, ret);
}

bool route_proof_matches(const struct route_proof *p, struct slice access_token)
{
    char want[SIGNATURE_SIZE];

    if (access_token.n == 0)
        return false;
    if (!p->has_signature)
        return p->token.n > 0 && token_equal(p->token, access_token);
    signature_finish(&p->base, access_token, p->expiration_s, want);
    return token_equal(slice_str(p->signature), slice_str(want));
}

bool route_proof_is_expired(const struct route_proof *p, int64_t now_s)
{
    return p->has_signature && p->expiration_s != SIGNATURE_NO_EXPIRATION &&
           p->expiration_s < now_s;
}
