/* test_auth.c - the fields that say who asks. Signatures are recomputed from what was made. */
#include "config_kit.h"

#include "base/str.h"
#include "e2b/acs3.h"
#include "transport/auth.h"

#define URL "https://api.example.com:443/sandboxes?a=1"

static const char *field(const struct auth_headers *h, const char *name)
{
    const char *found = NULL;

    for (size_t i = 0; i < h->count; i++) {
        if (strcasecmp(h->pairs[i].key, name) != 0)
            continue;
        if (found)
            fail_msg("two fields %s", name);
        found = h->pairs[i].value;
    }
    return found;
}

static void make(const struct abx_config_opts *o, struct auth_headers *h)
{
    struct abx_err err = { 0 };
    abx_config *c = config_load(o);

    if (auth_headers_make(c, "POST", URL, "application/json", SLICE_LIT("{}"), "CreateSandbox", h,
                          &err) < 0)
        fail_msg("%s", err.msg);
    abx_config_unref(c);
}

static void a_key_goes_as_x_api_key(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h;

    o.api_key = "the-key";
    make(&o, &h);
    assert_int_equal(h.count, 1);
    assert_string_equal(field(&h, "X-API-Key"), "the-key");
    auth_headers_done(&h);
    o.access_token = "the-token";
    make(&o, &h);
    assert_int_equal(h.count, 2);
    assert_string_equal(field(&h, "X-API-Key"), "the-key");
    assert_string_equal(field(&h, "Authorization"), "Bearer the-token");
    auth_headers_done(&h);
}

static void a_key_goes_as_bearer_when_asked(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h;

    o.api_key = "the-key";
    o.bearer = 1;
    make(&o, &h);
    assert_int_equal(h.count, 1);
    assert_string_equal(field(&h, "Authorization"), "Bearer the-key");
    auth_headers_done(&h);
}

static void an_own_header_is_left_alone(void **state)
{
    struct abx_pair own = { "x-api-key", "mine" };
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h;

    o.headers = &own;
    o.header_count = 1;
    make(&o, &h); /* it is a credential too */
    assert_int_equal(h.count, 0);
    auth_headers_done(&h);
    o.api_key = "the-key";
    make(&o, &h);
    assert_int_equal(h.count, 0);
    auth_headers_done(&h);
}

static void an_access_key_signs(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h, again;
    struct buf want = BUF_INIT(4096);
    struct acs3_request q = {
        .method = "POST",
        .host = SLICE_LIT("api.example.com"),
        .path = SLICE_LIT("/sandboxes"),
        .query = SLICE_LIT("a=1"),
        .content_type = "application/json",
        .body = SLICE_LIT("{}"),
        .action = "CreateSandbox",
        .security_token = "sts",
    };
    int64_t sent_ns;

    o.access_key_id = "the-id";
    o.access_key_secret = "the-secret";
    o.security_token = "sts";
    make(&o, &h);
    assert_null(field(&h, "X-API-Key"));
    assert_string_equal(field(&h, "x-acs-action"), "CreateSandbox");
    assert_string_equal(field(&h, "x-acs-security-token"), "sts");
    q.version = field(&h, "x-acs-version");
    q.date = field(&h, "x-acs-date");
    q.nonce = field(&h, "x-acs-signature-nonce");
    assert_true(time_parse_rfc3339(slice_str(q.date), &sent_ns));
    assert_true(llabs(sent_ns / 1000000 - time_wall_ms()) < 60000);
    assert_int_equal(acs3_authorization(&q, "the-id", "the-secret", &want, NULL), 0);
    assert_string_equal(field(&h, "Authorization"), buf_cstr(&want));
    for (size_t i = 0; i < h.count; i++)
        assert_null(strstr(h.pairs[i].value, "the-secret"));
    make(&o, &again);
    assert_string_not_equal(field(&again, "x-acs-signature-nonce"), q.nonce);
    auth_headers_done(&again);
    auth_headers_done(&h);
    buf_done(&want);
}

static void the_longest_credentials_fit(void **state)
{
    static char id[8001], token[8001];
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h;

    memset(id, 'i', sizeof id - 1);
    memset(token, 't', sizeof token - 1);
    o.access_key_id = id;
    o.access_key_secret = token;
    o.security_token = token;
    make(&o, &h);
    assert_string_equal(field(&h, "x-acs-security-token"), token);
    assert_non_null(strstr(field(&h, "Authorization"), id));
    auth_headers_done(&h);
}

static void what_cannot_be_is_refused(void **state)
{
    struct abx_pair own = { "Authorization", "mine" }, date = { "X-Acs-Date", "mine" };
    struct abx_config_opts cases[] = { ABX_CONFIG_OPTS_INIT, ABX_CONFIG_OPTS_INIT,
                                       ABX_CONFIG_OPTS_INIT, ABX_CONFIG_OPTS_INIT };

    cases[0].api_key = "k";
    cases[0].bearer = 1;
    cases[0].access_token = "t";
    cases[1].access_key_id = "i";
    cases[1].access_key_secret = "s";
    cases[1].access_token = "t";
    cases[2].access_key_id = "i";
    cases[2].access_key_secret = "s";
    cases[2].headers = &own;
    cases[2].header_count = 1;
    cases[3] = cases[2];
    cases[3].headers = &date;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        abx_config *c = config_load(&cases[i]);
        struct auth_headers h;
        struct abx_err err = { 0 };

        assert_int_equal(
            auth_headers_make(c, "GET", URL, NULL, SLICE_LIT(""), "ListSandboxes", &h, &err),
            ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.msg, "set one of them"));
        auth_headers_done(&h);
        abx_config_unref(c);
    }
}

static void without_credentials_it_says_what_to_do(void **state)
{
    abx_config *c = config_load(NULL);
    struct auth_headers h;
    struct abx_err err = { 0 };

    assert_int_equal(
        auth_headers_make(c, "GET", URL, NULL, SLICE_LIT(""), "ListSandboxes", &h, &err),
        ABX_UNAUTHENTICATED);
    assert_int_equal(err.reason, ABX_REASON_NO_CREDENTIALS);
    assert_non_null(strstr(err.msg, "'sudo abx key local --user $USER' while 'abx serve' runs"));
    assert_non_null(strstr(err.msg, "ABX_SANDBOX_API_KEY"));
    auth_headers_done(&h);
    abx_config_unref(c);
}

static void a_key_is_validated_when_asked(void **state)
{
    static const char *const bad[] = { "k", "e2b_", "e2b_XY" };
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    struct auth_headers h;
    struct abx_err err = { 0 };

    (void)setenv("E2B_VALIDATE_API_KEY", "true", 1);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        abx_config *c;

        o.api_key = bad[i];
        c = config_load(&o);
        assert_int_equal(auth_headers_make(c, "GET", URL, NULL, SLICE_LIT(""), "X", &h, &err),
                         ABX_UNAUTHENTICATED);
        auth_headers_done(&h);
        abx_config_unref(c);
    }
    o.api_key = "e2b_0123abcd";
    make(&o, &h);
    assert_string_equal(field(&h, "X-API-Key"), "e2b_0123abcd");
    auth_headers_done(&h);
}

#define T(f) cmocka_unit_test_setup_teardown(f, config_setup, config_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_key_goes_as_x_api_key),
        T(a_key_goes_as_bearer_when_asked),
        T(an_own_header_is_left_alone),
        T(an_access_key_signs),
        T(the_longest_credentials_fit),
        T(what_cannot_be_is_refused),
        T(without_credentials_it_says_what_to_do),
        T(a_key_is_validated_when_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
