/* A sandbox's address: URLs, versions, headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/sandbox.h"
#include "transport/config.h"

/* Lives on the stack: its own reference is never given back. */
static abx_config config_make(void)
{
    return (abx_config){
        .refs = 1, .domain = "sbx.test", .api_url = "https://api.sbx.test", .protobuf = ABX_UNSET
    };
}

static abx_sandbox *make(abx_config *config, const char *version, const char *domain,
                         const char *envd_url)
{
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    struct abx_error err = { 0 };
    abx_sandbox *sb = NULL;

    parts.sandbox_id = "iabc";
    parts.envd_version = version;
    parts.domain = domain;
    parts.envd_url = envd_url;
    assert_int_equal(abx_sandbox_new(config, &parts, &sb, &err), 0);
    return sb;
}

static void urls_follow_the_order_of_their_sources(void **state)
{
    static const struct {
        const char *sandbox_url, *api_url; /* of the config; api_url: explicit */
        bool debug;
        const char *domain, *envd_url; /* of the answer */
        const char *url, *direct, *code, *host;
    } rows[] = {
        { NULL, NULL, false, NULL, NULL, "https://49983-iabc.sbx.test",
          "https://49983-iabc.sbx.test", "https://49999-iabc.sbx.test", "3000-iabc.sbx.test" },
        { NULL, NULL, false, "x.test:8443", NULL, "https://49983-iabc.x.test:8443",
          "https://49983-iabc.x.test:8443", "https://49999-iabc.x.test:8443",
          "3000-iabc.x.test:8443" },
        { NULL, NULL, false, "e2b.app", NULL, "https://sandbox.e2b.app",
          "https://49983-iabc.e2b.app", "https://sandbox.e2b.app", "3000-iabc.e2b.app" },
        { NULL, "http://h:1/", false, NULL, NULL, "http://h:1", "http://h:1", "http://h:1",
          "3000-iabc.sbx.test" },
        { NULL, "https://h:1", false, NULL, NULL, "https://49983-iabc.sbx.test",
          "https://49983-iabc.sbx.test", "https://49999-iabc.sbx.test", "3000-iabc.sbx.test" },
        { NULL, "http://h:1", false, "", "http://g:2//", "http://g:2", "http://g:2", "http://g:2",
          "3000-iabc.sbx.test" },
        { NULL, NULL, false, NULL, "https://49983-iabc.other.test/",
          "https://49983-iabc.other.test", "https://49983-iabc.other.test",
          "https://49999-iabc.other.test", "3000-iabc.sbx.test" },
        { "http://s:3/p/", "http://h:1", false, NULL, "http://g:2", "http://s:3/p", "http://s:3/p",
          "http://s:3/p", "3000-iabc.sbx.test" },
        { NULL, "http://h:1", true, NULL, "http://g:2", "http://localhost:49983",
          "http://localhost:49983", "http://localhost:49999", "localhost:3000" },
        { "http://s:3", NULL, true, NULL, NULL, "http://s:3", "http://s:3", "http://s:3",
          "localhost:3000" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        abx_config config = config_make();
        abx_sandbox *sb;
        char *code = NULL, *host;

        config.sandbox_url = rows[i].sandbox_url;
        config.debug = rows[i].debug;
        if (rows[i].api_url) {
            config.api_url = rows[i].api_url;
            config.api_url_is_explicit = true;
        }
        sb = make(&config, "0.6.13", rows[i].domain, rows[i].envd_url);
        assert_string_equal(abx_sandbox_envd_url(sb, 0), rows[i].url);
        assert_string_equal(abx_sandbox_envd_url(sb, 1), rows[i].direct);
        assert_int_equal(sandbox_port_url(sb, 49999, &code, NULL), 0);
        assert_string_equal(code, rows[i].code);
        host = abx_sandbox_host(sb, 3000);
        assert_string_equal(host, rows[i].host);
        free(code);
        free(host);
        abx_sandbox_unref(sb);
        assert_int_equal(config.refs, 1);
    }
}

static void a_base_url_that_was_derived_is_not_used(void **state)
{
    abx_config config = config_make();
    abx_sandbox *sb;

    (void)state;
    config.api_url = "http://localhost:3000";
    sb = make(&config, NULL, NULL, NULL);
    assert_string_equal(abx_sandbox_envd_url(sb, 0), "https://49983-iabc.sbx.test");
    abx_sandbox_unref(sb);
}

static void versions_compare_by_number(void **state)
{
    static const struct {
        const char *version;
        unsigned at_least[3], below[3]; /* it is at least the one and not the other */
    } rows[] = {
        { "0.6.13", { 0, 6, 13 }, { 0, 6, 14 } },
        { "v0.6.2", { 0, 6, 2 }, { 0, 6, 10 } },
        { "0.6", { 0, 6, 0 }, { 0, 6, 1 } },
        { "1", { 1, 0, 0 }, { 1, 0, 1 } },
        { "0.5.2.9", { 0, 5, 2 }, { 0, 5, 3 } },
        { "0.5.2rc1", { 0, 5, 1 }, { 0, 5, 2 } },
        { "0.5.0.dev3", { 0, 4, 999 }, { 0, 5, 0 } },
        { "0.5.2-beta.1", { 0, 5, 1 }, { 0, 5, 2 } },
        { "0.5.2.post1", { 0, 5, 2 }, { 0, 5, 3 } },
        { "0.5.2-1", { 0, 5, 2 }, { 0, 5, 3 } },
        { "0.5.2+abc.1", { 0, 5, 2 }, { 0, 5, 3 } },
        { "99.99.99", { 99, 99, 99 }, { 100, 0, 0 } },
        { "nonsense", { 99, 99, 99 }, { 100, 0, 0 } },
        { "0.5.2x", { 99, 99, 99 }, { 100, 0, 0 } },
        { "0.5.2-", { 99, 99, 99 }, { 100, 0, 0 } },
        { "99999999999.1", { 99, 99, 99 }, { 100, 0, 0 } },
        { "", { 99, 99, 99 }, { 100, 0, 0 } },
        { NULL, { 99, 99, 99 }, { 100, 0, 0 } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        abx_config config = config_make();
        abx_sandbox *sb = make(&config, rows[i].version, NULL, NULL);
        const unsigned *a = rows[i].at_least, *b = rows[i].below;

        assert_true(sandbox_has_envd(sb, a[0], a[1], a[2]));
        assert_false(sandbox_has_envd(sb, b[0], b[1], b[2]));
        abx_sandbox_unref(sb);
    }
}

static void what_envd_lacks_is_named(void **state)
{
    abx_config config = config_make();
    abx_sandbox *sb = make(&config, "0.6.1", NULL, NULL);
    struct abx_err err = { 0 };

    (void)state;
    assert_int_equal(sandbox_need_envd(sb, 0, 6, 1, "metadata", &err), 0);
    assert_int_equal(sandbox_need_envd(sb, 0, 6, 2, "metadata", &err), ABX_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ABX_REASON_TEMPLATE_TOO_OLD);
    assert_string_equal(err.msg,
                        "metadata needs envd 0.6.2, the sandbox has 0.6.1: rebuild its template");
    abx_sandbox_unref(sb);
}

static void wrong_parts_are_named(void **state)
{
    static const struct {
        struct abx_sandbox_parts parts;
        const char *part;
    } rows[] = {
        { { .sandbox_id = NULL }, "sandbox id" },
        { { .sandbox_id = "" }, "sandbox id" },
        { { .sandbox_id = "a/b" }, "sandbox id" },
        { { .sandbox_id = "a\r\nX: y" }, "sandbox id" },
        { { .sandbox_id = "a", .envd_access_token = "x y" }, "access token" },
        { { .sandbox_id = "a", .traffic_access_token = "x\n" }, "access token" },
        { { .sandbox_id = "a", .domain = "x/y" }, "domain" },
        { { .sandbox_id = "a", .envd_url = "ftp://x" }, "envd URL" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        abx_config config = config_make();
        struct abx_sandbox_parts parts = rows[i].parts;
        struct abx_error err = { 0 };
        abx_sandbox *sb = NULL;

        parts.size = sizeof parts;
        assert_int_equal(abx_sandbox_new(&config, &parts, &sb, &err), ABX_INVALID_ARGUMENT);
        assert_null(sb);
        assert_non_null(strstr(err.message, rows[i].part));
        assert_int_equal(config.refs, 1);
    }
}

static void an_older_callers_parts_are_shorter(void **state)
{
    abx_config config = config_make();
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    struct abx_error err = { 0 };
    abx_sandbox *sb = NULL;

    (void)state;
    parts.sandbox_id = "iabc";
    parts.protobuf = 1;
    parts.size = offsetof(struct abx_sandbox_parts, protobuf);
    assert_int_equal(abx_sandbox_new(&config, &parts, &sb, &err), 0);
    assert_false(sb->protobuf);
    abx_sandbox_unref(sb);
    parts.size = 0;
    assert_int_equal(abx_sandbox_new(&config, &parts, &sb, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "size"));
}

static void the_codec_is_the_configs_or_the_servers(void **state)
{
    static const struct {
        int config, server;
        bool protobuf;
    } rows[] = { { ABX_UNSET, 0, false }, { ABX_UNSET, 1, true }, { 0, 1, false }, { 1, 0, true } };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        abx_config config = config_make();
        struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
        abx_sandbox *sb = NULL;

        config.protobuf = rows[i].config;
        parts.sandbox_id = "iabc";
        parts.protobuf = rows[i].server;
        assert_int_equal(abx_sandbox_new(&config, &parts, &sb, NULL), 0);
        assert_int_equal(sb->protobuf, rows[i].protobuf);
        abx_sandbox_unref(sb);
    }
}

/* The headers as "name=value;" in their order. */
static void headers_are(const abx_sandbox *sb, uint16_t port, const char *user, const char *want)
{
    struct buf mem = BUF_INIT(4096), text = BUF_INIT(4096);
    struct abx_pair pairs[SANDBOX_HEADERS_MAX];
    int n = sandbox_headers(sb, port, user, &mem, pairs, NULL);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(buf_printf(&text, "%s=%s;", pairs[i].key, pairs[i].value), BUF_OK);
    assert_string_equal(buf_cstr(&text), want);
    buf_done(&mem);
    buf_done(&text);
}

static void headers_name_sandbox_port_tokens_and_user(void **state)
{
    static struct abx_pair own[] = { { "x-access-token", "mine" }, { "A", "b" } };
    abx_config config = config_make();
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    abx_sandbox *sb = NULL;

    (void)state;
    parts.sandbox_id = "iabc";
    parts.envd_access_token = "tok";
    parts.traffic_access_token = "traffic";
    assert_int_equal(abx_sandbox_new(&config, &parts, &sb, NULL), 0);
    headers_are(sb, 49983, NULL, "E2b-Sandbox-Id=iabc;E2b-Sandbox-Port=49983;X-Access-Token=tok;");
    headers_are(sb, 49983, "root",
                "E2b-Sandbox-Id=iabc;E2b-Sandbox-Port=49983;X-Access-Token=tok;"
                "Authorization=Basic cm9vdDo=;");
    headers_are(sb, 49999, NULL,
                "E2b-Sandbox-Id=iabc;E2b-Sandbox-Port=49999;X-Access-Token=tok;"
                "E2B-Traffic-Access-Token=traffic;");
    headers_are(sb, 65535, NULL,
                "E2b-Sandbox-Id=iabc;E2b-Sandbox-Port=65535;E2B-Traffic-Access-Token=traffic;");
    config.sandbox_headers = own;
    config.sandbox_header_count = 2;
    headers_are(sb, 49983, NULL,
                "E2b-Sandbox-Id=iabc;E2b-Sandbox-Port=49983;x-access-token=mine;A=b;");
    config.sandbox_header_count = 0;
    abx_sandbox_unref(sb);
}

static void too_many_headers_are_refused(void **state)
{
    struct abx_pair many[SANDBOX_HEADERS_MAX], to[SANDBOX_HEADERS_MAX];
    abx_config config = config_make();
    struct buf mem = BUF_INIT(4096);
    struct abx_err err = { 0 };
    abx_sandbox *sb;

    (void)state;
    for (size_t i = 0; i < SANDBOX_HEADERS_MAX; i++)
        many[i] = (struct abx_pair){ "a", "b" };
    config.sandbox_headers = many;
    config.sandbox_header_count = SANDBOX_HEADERS_MAX;
    sb = make(&config, NULL, NULL, NULL);
    assert_int_equal(sandbox_headers(sb, 80, NULL, &mem, to, &err), ABX_INVALID_ARGUMENT);
    config.sandbox_header_count = SANDBOX_HEADERS_MAX - 5;
    assert_int_equal(sandbox_headers(sb, 80, "root", &mem, to, &err), SANDBOX_HEADERS_MAX - 2);
    buf_done(&mem);
    abx_sandbox_unref(sb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_follow_the_order_of_their_sources),
        cmocka_unit_test(a_base_url_that_was_derived_is_not_used),
        cmocka_unit_test(versions_compare_by_number),
        cmocka_unit_test(what_envd_lacks_is_named),
        cmocka_unit_test(wrong_parts_are_named),
        cmocka_unit_test(an_older_callers_parts_are_shorter),
        cmocka_unit_test(the_codec_is_the_configs_or_the_servers),
        cmocka_unit_test(headers_name_sandbox_port_tokens_and_user),
        cmocka_unit_test(too_many_headers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
