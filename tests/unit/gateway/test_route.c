/* test_route.c - the route order, by tables. */
#include "test.h"

#include "e2b/tokens.h"
#include "gateway/route.h"

#define DOMAIN "sbx.test:8490"
#define TOKEN "0123456789abcdef"

/* Parses a request of one line and fields; the head is borrowed from *parser. */
static const struct http1_head *parse(const char *line, const char *host, const char *fields,
                                      struct http1_parser **parser)
{
    char text[4096];
    struct slice in, data;

    (void)snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", line, host, fields);
    *parser = http1_parser_new(HTTP1_REQUEST);
    assert_non_null(*parser);
    in = slice_str(text);
    assert_int_equal(http1_parser_next(*parser, &in, &data), HTTP1_HEAD);
    return http1_parser_head(*parser);
}

#define ID "E2b-Sandbox-Id: iabc\r\n"
#define PORT(p) "E2b-Sandbox-Port: " p "\r\n"
#define TRAFFIC "E2b-Traffic-Access-Token: "
#define XTOKEN "X-Access-Token: " TOKEN "\r\n"

static void order(void **state)
{
    static const struct {
        const char *line, *host, *fields;
        enum route_kind kind;
        const char *id;
        unsigned port;
    } rows[] = {
        /* (1) the host wins over everything */
        { "GET /", "3000-iabc.sbx.test", "", ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /", "3000-iabc.sbx.test:99", "", ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /", "3000-iabc.sbx.test.", "", ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /", "3000-iABC.SBX.TEST", "", ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /sandboxes", "49983-iabc.sbx.test", "", ROUTE_TO_SANDBOX, "iabc", 49983 },
        { "GET /", "3000-iother.sbx.test", ID PORT("1"), ROUTE_TO_SANDBOX, "iother", 3000 },
        { "GET /", "3000-iother.sbx.test", ID, ROUTE_TO_SANDBOX, "iother", 3000 },
        { "GET /", "0-iabc.sbx.test", "", ROUTE_BAD, NULL, 0 },
        { "GET /", "99999-iabc.sbx.test", "", ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-.sbx.test", "", ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-a_b.sbx.test", "", ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-iabc.evil.test", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /", "3000-iabc.sbx.test.evil", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /", "api.sbx.test", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /", "sbx.test", "", ROUTE_TO_CONTROL, NULL, 0 },
        /* (2) both headers */
        { "GET /", "h", ID PORT("3000"), ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /", "h", "e2b-sandbox-ID: iabc-0f\r\n" PORT("1"), ROUTE_TO_SANDBOX, "iabc", 1 },
        { "POST /sandboxes", "h", ID PORT("3000"), ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "POST /sandboxes", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "POST /v2/sandboxes", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /v3/templates", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /snapshots", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /templates/x", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /volumes", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /secrets", "h", ID PORT("49983"), ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /sandboxesx", "h", ID PORT("49983"), ROUTE_TO_SANDBOX, "iabc", 49983 },
        { "GET /health", "h", ID PORT("49983"), ROUTE_TO_SANDBOX, "iabc", 49983 },
        { "GET /", "h", ID PORT("0"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", ID PORT("+1"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", ID PORT("65536"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", ID PORT(""), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", "E2b-Sandbox-Id: i/..\r\n" PORT("1"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", "E2b-Sandbox-Id:\r\n" PORT("1"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", ID ID PORT("1"), ROUTE_BAD, NULL, 0 },
        { "GET /", "h", ID PORT("1") PORT("1"), ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-iother.sbx.test", ID ID, ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-iother.sbx.test", TRAFFIC "a\r\n" TRAFFIC "b\r\n", ROUTE_BAD, NULL, 0 },
        { "GET /", "3000-iother.sbx.test", TRAFFIC "a\r\n", ROUTE_TO_SANDBOX, "iother", 3000 },
        /* these are for whoever answers */
        { "GET /", "h", ID PORT("3000") XTOKEN XTOKEN, ROUTE_TO_SANDBOX, "iabc", 3000 },
        { "GET /sandboxes", "h", XTOKEN XTOKEN, ROUTE_TO_CONTROL, NULL, 0 },
        /* (4) one header alone */
        { "GET /", "h", ID, ROUTE_BAD, NULL, 0 },
        { "GET /sandboxes", "h", PORT("49983"), ROUTE_BAD, NULL, 0 },
        { "GET /files?path=x&signature=v1_a", "h", ID, ROUTE_BAD, NULL, 0 },
        /* (3) token or signature on a path of envd */
        { "GET /health", "h", XTOKEN, ROUTE_BY_TOKEN, NULL, 0 },
        { "POST /process.Process/Start", "h", XTOKEN, ROUTE_BY_TOKEN, NULL, 0 },
        { "POST /filesystem.Filesystem/Stat", "h", XTOKEN, ROUTE_BY_TOKEN, NULL, 0 },
        { "GET /files?path=x&signature=v1_a", "h", "", ROUTE_BY_TOKEN, NULL, 0 },
        { "GET /files/compose?signature=v1_a", "h", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /files?path=x", "h", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /files?signature", "h", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /sandboxes", "h", XTOKEN, ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /health", "h", XTOKEN XTOKEN, ROUTE_BAD, NULL, 0 },
        { "GET /health", "h", XTOKEN "x-access-token: other\r\n", ROUTE_BAD, NULL, 0 },
        /* (5) */
        { "GET /health", "h", "", ROUTE_TO_CONTROL, NULL, 0 },
        { "GET /x", "127.0.0.1:8490", "", ROUTE_TO_CONTROL, NULL, 0 },
        /* what envd keeps for the control plane */
        { "POST /init", "h", ID PORT("49983"), ROUTE_RESERVED, "iabc", 49983 },
        { "POST /init/", "49983-iabc.sbx.test", "", ROUTE_RESERVED, "iabc", 49983 },
        { "POST /%66reeze?a=b", "h", ID PORT("49983"), ROUTE_RESERVED, "iabc", 49983 },
        { "GET //upgrade", "h", ID PORT("49983"), ROUTE_RESERVED, "iabc", 49983 },
        { "POST /init", "h", ID PORT("49984"), ROUTE_TO_SANDBOX, "iabc", 49984 },
        { "POST /initx", "h", ID PORT("49983"), ROUTE_TO_SANDBOX, "iabc", 49983 },
        { "POST /a/init", "h", ID PORT("49983"), ROUTE_TO_SANDBOX, "iabc", 49983 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(http1_parser_freep) struct http1_parser *p = NULL;
        struct route r;

        route_decide(parse(rows[i].line, rows[i].host, rows[i].fields, &p), DOMAIN, &r);
        if (r.kind != rows[i].kind)
            fail_msg("%s Host: %s %s: kind %d, not %d", rows[i].line, rows[i].host, rows[i].fields,
                     r.kind, rows[i].kind);
        if (rows[i].id) {
            test_text(rows[i].line, r.id, rows[i].id);
            assert_int_equal(r.port, rows[i].port);
        }
        assert_int_equal(r.kind == ROUTE_BAD, r.message[0] != '\0');
    }
}

static bool matches(const struct http1_head *head, struct slice access_token)
{
    struct route_proof proof;

    route_proof_read(head, &proof);
    return route_proof_matches(&proof, access_token);
}

static void tokens_match_in_the_header(void **state)
{
    _cleanup_(http1_parser_freep) struct http1_parser *p = NULL;
    const struct http1_head *head = parse("GET /health", "h", XTOKEN, &p);

    (void)state;
    assert_true(matches(head, SLICE_LIT(TOKEN)));
    assert_false(matches(head, SLICE_LIT(TOKEN "0")));
    assert_false(matches(head, SLICE_LIT("0123456789abcdeF")));
    assert_false(matches(head, SLICE_LIT("")));
}

static void signatures_match(void **state)
{
    static const struct {
        const char *method, *path, *encoded_path, *user, *operation;
        const char *expiration; /* as in the query, NULL = none */
        int64_t expiration_s;
        bool is_match;
    } rows[] = {
        { "GET", "/a b", "%2Fa%20b", "user", "read", NULL, SIGNATURE_NO_EXPIRATION, true },
        { "GET", "/a b", "/a+b", "user", "read", NULL, SIGNATURE_NO_EXPIRATION, true },
        { "POST", "x", "x", "", "write", "1700000000", 1700000000, true },
        { "HEAD", "x", "x", "", "read", NULL, SIGNATURE_NO_EXPIRATION, true },
        { "POST", "x", "x", "", "read", NULL, SIGNATURE_NO_EXPIRATION, false },
        { "GET", "x", "y", "", "read", NULL, SIGNATURE_NO_EXPIRATION, false },
        { "GET", "x", "x", "root", "read", "17", 18, false },
        { "GET", "x", "x", "root", "read", "1z", 1, false },
        { "GET", "x", "x%zz", "root", "read", NULL, SIGNATURE_NO_EXPIRATION, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(http1_parser_freep) struct http1_parser *p = NULL;
        _cleanup_(buf_done) struct buf line = BUF_INIT(2048);
        char signature[SIGNATURE_SIZE];
        bool is_match;

        signature_make(slice_str(rows[i].path), rows[i].operation, slice_str(rows[i].user),
                       SLICE_LIT(TOKEN), rows[i].expiration_s, signature);
        (void)buf_printf(&line, "%s /files?path=%s&username=%s&signature=", rows[i].method,
                         rows[i].encoded_path, rows[i].user);
        for (const char *c = signature; *c; c++)
            (void)buf_printf(&line, *c == '+' || *c == '/' ? "%%%02X" : "%c", *c);
        if (rows[i].expiration)
            (void)buf_printf(&line, "&signature_expiration=%s", rows[i].expiration);
        is_match = matches(parse(buf_cstr(&line), "h", "", &p), SLICE_LIT(TOKEN));
        if (is_match != rows[i].is_match)
            fail_msg("row %zu: %d", i, is_match);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(tokens_match_in_the_header),
        cmocka_unit_test(signatures_match),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
