/* test_config.c - options, environment, defaults and what follows from them. */
#include "config_kit.h"

#include "base/str.h"

static void defaults_are_those_of_the_table(void **state)
{
    abx_config *c = config_load(NULL);

    for (size_t i = 0; abx_config_key_at(i); i++)
        config_expect("default", c, abx_config_key_at(i)->name, abx_config_key_at(i)->fallback,
                      "default");
    assert_string_equal(c->api_url, "https://api.cn-hangzhou.e2b.fc.aliyuncs.com");
    assert_string_equal(c->domain, "cn-hangzhou.e2b.fc.aliyuncs.com");
    assert_false(c->api_url_is_explicit);
    assert_null(c->api_key);
    assert_false(c->is_signed);
    assert_int_equal(c->request_timeout_ms, 60000);
    assert_int_equal(c->ws_ping_interval_ms, 30000);
    assert_int_equal(c->max_connections, 100);
    assert_int_equal(c->max_idle_connections, 20);
    assert_int_equal(c->idle_timeout_ms, 30000);
    assert_int_equal(c->connect_retries, 3);
    assert_true(c->http2);
    assert_false(c->bearer);
    assert_false(c->debug);
    assert_int_equal(c->protobuf, ABX_UNSET);
    assert_string_equal(c->default_template, "base");
    assert_string_equal(c->user_agent, "abx/" ABX_VERSION);
    abx_config_unref(c);
}

struct env_case {
    const char *what;
    const char *env[4][2];
    const char *want[3][3]; /* key, value, origin */
};

static const struct env_case env_cases[] = {
    { "a name of ours comes before E2B's",
      { { "ABX_SANDBOX_API_KEY", "ours" }, { "E2B_API_KEY", "theirs" } },
      { { "sandbox_api_key", "ours", "environment ABX_SANDBOX_API_KEY" } } },
    { "the scoped name comes first",
      { { "ABX_ALICLOUD_EXPRESS_SANDBOX_API_KEY", "scoped" }, { "ABX_SANDBOX_API_KEY", "plain" } },
      { { "sandbox_api_key", "scoped", "environment ABX_ALICLOUD_EXPRESS_SANDBOX_API_KEY" } } },
    { "E2B's names",
      { { "E2B_API_KEY", "k" }, { "E2B_DOMAIN", "e2b.test" }, { "E2B_SANDBOX_URL", "http://s:1" } },
      { { "sandbox_api_key", "k", "environment E2B_API_KEY" },
        { "sandbox_base_url", "https://api.e2b.test", "from sandbox_domain" },
        { "sandbox_url", "http://s:1", "environment E2B_SANDBOX_URL" } } },
    { "blank is unset",
      { { "ABX_SANDBOX_API_KEY", " \t" }, { "E2B_API_KEY", " k\n" } },
      { { "sandbox_api_key", "k", "environment E2B_API_KEY" } } },
    { "a domain makes the base URL",
      { { "ABX_SANDBOX_DOMAIN", "sbx.test:18443" } },
      { { "sandbox_base_url", "https://api.sbx.test:18443", "from sandbox_domain" },
        { "sandbox_domain", "sbx.test:18443", "environment ABX_SANDBOX_DOMAIN" } } },
    { "a base URL alone makes the domain",
      { { "ABX_SANDBOX_BASE_URL", "https://api.sbx.test:18443/v1//" } },
      { { "sandbox_base_url", "https://api.sbx.test:18443/v1", "environment ABX_SANDBOX_BASE_URL" },
        { "sandbox_domain", "sbx.test:18443", "from sandbox_base_url" } } },
    { "a base URL without api. too",
      { { "E2B_API_URL", "http://127.0.0.1:8490" } },
      { { "sandbox_domain", "127.0.0.1:8490", "from sandbox_base_url" } } },
    { "a region makes the domain and the base URL",
      { { "ALIBABA_CLOUD_REGION_ID", "cn-beijing" } },
      { { "sandbox_domain", "cn-beijing.e2b.fc.aliyuncs.com", "from region" },
        { "sandbox_base_url", "https://api.cn-beijing.e2b.fc.aliyuncs.com",
          "from sandbox_domain" } } },
    { "a region does not touch an explicit domain",
      { { "ALIBABA_CLOUD_REGION_ID", "cn-beijing" }, { "ABX_SANDBOX_DOMAIN", "own.test" } },
      { { "sandbox_domain", "own.test", "environment ABX_SANDBOX_DOMAIN" },
        { "sandbox_base_url", "https://api.own.test", "from sandbox_domain" } } },
    { "debug has a control plane of its own",
      { { "E2B_DEBUG", "true" }, { "ABX_SANDBOX_BASE_URL", "https://api.own.test" } },
      { { "sandbox_base_url", "http://localhost:3000", "from debug" } } },
    { "debug with E2B_API_URL",
      { { "E2B_DEBUG", "true" }, { "E2B_API_URL", "http://localhost:4000/" } },
      { { "sandbox_base_url", "http://localhost:4000", "environment E2B_API_URL" } } },
};

static void environment_is_read_by_the_table(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(env_cases); i++) {
        const struct env_case *t = &env_cases[i];
        abx_config *c;

        for (size_t j = 0; j < ARRAY_SIZE(t->env) && t->env[j][0]; j++)
            assert_int_equal(setenv(t->env[j][0], t->env[j][1], 1), 0);
        c = config_load(NULL);
        for (size_t j = 0; j < ARRAY_SIZE(t->want) && t->want[j][0]; j++)
            config_expect(t->what, c, t->want[j][0], t->want[j][1], t->want[j][2]);
        abx_config_unref(c);
        for (size_t j = 0; j < ARRAY_SIZE(t->env) && t->env[j][0]; j++)
            assert_int_equal(unsetenv(t->env[j][0]), 0);
    }
}

static void every_name_of_the_table_is_read(void **state)
{
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        static const char *const samples[] = {
            [CONFIG_KIND_TEXT] = "some text",    [CONFIG_KIND_SECRET] = "s3cret",
            [CONFIG_KIND_NAME] = "name",         [CONFIG_KIND_DOMAIN] = "example.com",
            [CONFIG_KIND_URL] = "http://u.test", [CONFIG_KIND_PROXY] = "socks5://p.test:1",
            [CONFIG_KIND_BOOL] = "on",           [CONFIG_KIND_COUNT] = "7.0",
            [CONFIG_KIND_SECONDS] = "1.5",
        };
        const struct config_row *row = &config_rows[i];
        const char *names[] = { row->env_scoped, row->key.env, row->key.env_e2b };

        if (i == CONFIG_PROFILE || i == CONFIG_ACCESS_KEY_ID || i == CONFIG_ACCESS_KEY_SECRET)
            continue; /* say more than their own value; tested apart */
        for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
            char origin[128];
            abx_config *c;

            if (!names[j])
                continue;
            (void)snprintf(origin, sizeof origin, "environment %s", names[j]);
            assert_int_equal(setenv(names[j], samples[row->kind], 1), 0);
            c = config_load(NULL);
            if (i != CONFIG_DEBUG)
                config_expect(names[j], c, row->key.name, samples[row->kind], origin);
            else
                assert_true(c->debug);
            abx_config_unref(c);
            assert_int_equal(unsetenv(names[j]), 0);
        }
    }
}

static void options_come_first(void **state)
{
    struct abx_pair headers[] = { { "X-One", "1" }, { "X-Two", "2" } };
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    abx_config *c;

    o.api_key = "option-key-1234";
    o.api_url = "http://127.0.0.1:8490/";
    o.domain = "localhost:8490";
    o.headers = headers;
    o.header_count = 2;
    o.sandbox_headers = headers + 1;
    o.sandbox_header_count = 1;
    o.request_timeout_ms = 1500;
    o.bearer = 1;
    o.protobuf = 0;
    o.user_agent = "mine/1";
    o.integration = "part/2";
    (void)setenv("ABX_SANDBOX_API_KEY", "env", 1);
    (void)setenv("ABX_BEARER", "no", 1);
    (void)setenv("ABX_PROTOBUF", "yes", 1);
    (void)setenv("ABX_HTTP_TIMEOUT", "9", 1);
    c = config_load(&o);
    config_expect("option", c, "sandbox_api_key", "option-key-1234", "option");
    config_expect("option", c, "sandbox_base_url", "http://127.0.0.1:8490", "option");
    config_expect("option", c, "sandbox_domain", "localhost:8490", "option");
    assert_true(c->api_url_is_explicit);
    assert_true(c->bearer);
    assert_int_equal(c->protobuf, 0);
    assert_int_equal(c->request_timeout_ms, 1500);
    assert_int_equal(c->header_count, 2);
    assert_string_equal(c->headers[1].value, "2");
    assert_ptr_not_equal(c->headers[1].value, headers[1].value);
    assert_string_equal(c->sandbox_headers[0].key, "X-Two");
    assert_string_equal(c->user_agent, "mine/1 part/2");
    abx_config_unref(c);
    o.request_timeout_ms = 0;
    c = config_load(&o);
    assert_int_equal(c->request_timeout_ms, 0);
    assert_int_equal(config_deadline_ns(c, ABX_UNSET), 0);
    assert_true(config_deadline_ns(c, 60000) > time_mono_ns());
    abx_config_unref(c);
}

static void options_of_an_older_caller_are_taken(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    abx_config *c;

    o.size = offsetof(struct abx_config_opts, access_token);
    o.api_key = "old";
    o.access_token = "behind its end";
    c = config_load(&o);
    assert_string_equal(c->api_key, "old");
    assert_null(c->access_token);
    abx_config_unref(c);
}

static void bad_values_are_refused_with_their_place(void **state)
{
    static const struct {
        const char *name, *value, *message;
    } cases[] = {
        { "ABX_HTTP_TIMEOUT", "soon",
          "environment ABX_HTTP_TIMEOUT: http_timeout: 'soon' is not a number of seconds from 0 to "
          "2000000" },
        { "ABX_HTTP_TIMEOUT", "-1",
          "environment ABX_HTTP_TIMEOUT: http_timeout: '-1' is not a number of seconds from 0 to "
          "2000000" },
        { "E2B_MAX_CONNECTIONS", "0",
          "environment E2B_MAX_CONNECTIONS: max_connections: '0' is not a whole number from 1 to "
          "100000" },
        { "ABX_MAX_CONNECTIONS", "1.5",
          "environment ABX_MAX_CONNECTIONS: max_connections: '1.5' is not a whole number from 1 to "
          "100000" },
        { "ABX_HTTP2", "maybe", "environment ABX_HTTP2: http2: 'maybe' is neither true nor false" },
        { "ABX_SANDBOX_BASE_URL", "example.com",
          "environment ABX_SANDBOX_BASE_URL: sandbox_base_url: does not begin with http:// or "
          "https://" },
        { "ABX_SANDBOX_BASE_URL", "https://me:hunter2@example.com",
          "environment ABX_SANDBOX_BASE_URL: sandbox_base_url: has a user or a password" },
        { "ABX_SANDBOX_BASE_URL", "https://example.com:99999",
          "environment ABX_SANDBOX_BASE_URL: sandbox_base_url: has no valid host and port" },
        { "ABX_SANDBOX_BASE_URL", "https://example.com/?a=1",
          "environment ABX_SANDBOX_BASE_URL: sandbox_base_url: has a query or a fragment" },
        { "ABX_SANDBOX_DOMAIN", "exa mple",
          "environment ABX_SANDBOX_DOMAIN: sandbox_domain: 'exa mple' is not a host name with or "
          "without port" },
        { "E2B_API_KEY", "hunter2\nX-Evil: 1",
          "environment E2B_API_KEY: sandbox_api_key: has a space, a control character or one "
          "outside ASCII" },
        { "ABX_DEFAULT_TEMPLATE",
          "red\xc2\x9b"
          "31m",
          "environment ABX_DEFAULT_TEMPLATE: default_template: has a control character" },
        { "ALICLOUD_ACCESS_KEY_ID", "id",
          "environment ALICLOUD_ACCESS_KEY_ID: access_key_id is set without access_key_secret "
          "(ALICLOUD_ACCESS_KEY_SECRET)" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct abx_error err = { 0 };
        abx_config *c = NULL;

        (void)setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(abx_config_load(NULL, &c, &err), ABX_INVALID_ARGUMENT);
        assert_int_equal(err.code, ABX_INVALID_ARGUMENT);
        test_text(cases[i].name, err.message, cases[i].message);
        assert_null(strstr(err.message, "hunter2"));
        (void)unsetenv(cases[i].name);
    }
}

static void bad_options_are_refused(void **state)
{
    struct abx_pair bad[] = { { "X One", "1" }, { "X", "a\r\nb" }, { NULL, "1" }, { "X", NULL } };
    struct abx_error err = { 0 };
    abx_config *c = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;

        o.headers = &bad[i];
        o.header_count = 1;
        assert_int_equal(abx_config_load(&o, &c, &err), ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "option headers"));
    }
    for (size_t i = 0; i < 4; i++) {
        struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;

        o.size = i == 0 ? 0 : o.size;
        o.bearer = i == 1 ? 2 : ABX_UNSET;
        o.request_timeout_ms = i == 2 ? -5 : ABX_UNSET;
        o.user_agent = i == 3 ? "a\nb" : NULL;
        assert_int_equal(abx_config_load(&o, &c, &err), ABX_INVALID_ARGUMENT);
    }
    assert_null(c);
}

static void credentials_follow_who_asked(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    abx_config *c;

    (void)setenv("ALICLOUD_ACCESS_KEY_ID", "env-id", 1);
    (void)setenv("ALICLOUD_ACCESS_KEY_SECRET", "env-secret", 1);
    c = config_load(NULL);
    assert_true(c->is_signed);
    abx_config_unref(c);
    (void)setenv("E2B_API_KEY", "key", 1); /* access keys for other programs do not disturb */
    c = config_load(NULL);
    assert_false(c->is_signed);
    abx_config_unref(c);
    (void)unsetenv("ALICLOUD_ACCESS_KEY_SECRET"); /* half a pair neither */
    c = config_load(NULL);
    assert_false(c->is_signed);
    abx_config_unref(c);
    o.access_key_id = "id";
    o.access_key_secret = "secret";
    c = config_load(&o);
    assert_true(c->is_signed);
    abx_config_unref(c);
    o.api_key = "key";
    c = config_load(&o);
    assert_false(c->is_signed);
    abx_config_unref(c);
}

static void secrets_are_masked(void **state)
{
    abx_config *c;

    (void)setenv("E2B_API_KEY", "e2b_0123456789abcdef", 1);
    (void)setenv("E2B_ACCESS_TOKEN", "short678", 1);
    (void)setenv("ABX_PROXY", "http://me:hunter2@proxy.test:3128", 1);
    c = config_load(NULL);
    assert_string_equal(abx_config_get(c, "sandbox_api_key", 0, NULL), "****cdef");
    assert_string_equal(abx_config_get(c, "sandbox_api_key", 1, NULL), "e2b_0123456789abcdef");
    assert_string_equal(abx_config_get(c, "access_token", 0, NULL), "****");
    assert_string_equal(abx_config_get(c, "proxy", 0, NULL), "http://****@proxy.test:3128");
    assert_null(abx_config_get(c, "no_such_key", 1, NULL));
    abx_config_unref(abx_config_ref(c));
    assert_string_equal(c->api_key, "e2b_0123456789abcdef");
    abx_config_unref(c);
    abx_config_unref(NULL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, config_setup, config_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(defaults_are_those_of_the_table),
        T(environment_is_read_by_the_table),
        T(every_name_of_the_table_is_read),
        T(options_come_first),
        T(options_of_an_older_caller_are_taken),
        T(bad_values_are_refused_with_their_place),
        T(bad_options_are_refused),
        T(credentials_follow_who_asked),
        T(secrets_are_masked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
