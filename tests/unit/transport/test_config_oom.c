/* test_config_oom.c - out of memory at every allocation in turn while a config is loaded, used and
 * stored: an error, no half-made config, no changed file, no leak (the ASan build looks). Linked with --wrap. */
#include "config_kit.h"

#include "transport/auth.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

static long countdown = -1; /* allocations that still succeed, -1 = all */
static bool has_failed;

static bool fails(void)
{
    if (countdown < 0)
        return false;
    if (countdown-- > 0)
        return false;
    countdown = 0; /* memory stays short */
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return fails() ? NULL : __real_reallocarray(p, n, size);
}

/* Calls `once` (0 or its error) with the first, second, ... allocation failing until none fails. */
static void torture(int (*once)(void), long at_least)
{
    long n = 0;

    for (;; n++) {
        int r;

        countdown = n;
        has_failed = false;
        r = once();
        countdown = -1;
        if (!has_failed) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, ABX_RESOURCE_EXHAUSTED);
    }
    assert_true(n >= at_least);
}

static int load_once(void)
{
    struct abx_pair headers[] = { { "A", "1" }, { "B", "2" } };
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    abx_config *c = NULL;
    int r;

    o.headers = headers;
    o.header_count = 2;
    o.integration = "x/1";
    o.proxy = "http://a:b@proxy.test:1";
    r = abx_config_load(&o, &c, NULL);
    assert_true((r == 0) == (c != NULL));
    abx_config_unref(c);
    return r;
}

static void loading(void **state)
{
    struct test_dir *d = *state;

    config_write(d, "work/.env", "A=1\nexport B='x ${A}'\nABX_HTTP2=no\n", 0600);
    config_write(d, "home/.abx/.env.w", "ABX_SANDBOX_API_KEY=e2b_0123456789\n", 0600);
    config_write(d, "home/.abx/.env", "ABX_ACCESS_TOKEN=\"a\\\\b\"\n", 0600);
    config_write(d, "home/.abx/config.toml",
                 "[core]\nprofile='w'\n[profiles.w]\nsandbox_domain='w.test'\n"
                 "[transport]\nhttp_timeout=1.5\nmcp_allowed_origins=['a','b']\n\"c d\".e=0x1f\n",
                 0600);
    torture(load_once, 50);
}

static int local_once(void)
{
    abx_config *c = NULL;
    int r = abx_config_load(NULL, &c, NULL);

    abx_config_unref(c);
    return r;
}

static void loading_from_the_local_service(void **state)
{
    struct test_dir *d = *state;
    char name[64];

    (void)snprintf(name, sizeof name, "local/%u.env", (unsigned)geteuid());
    config_write(d, name,
                 "ABX_SANDBOX_API_KEY=k\nABX_SANDBOX_BASE_URL=http://x:1\n"
                 "ABX_SANDBOX_DOMAIN=x:1\n",
                 0600);
    torture(local_once, 2);
}

static const abx_config *signer;

static int sign_once(void)
{
    struct auth_headers h;
    struct abx_err err = { 0 };
    int r = auth_headers_make(signer, "POST", "http://x/a%20b?c=d&e=%C3%BC", "application/json",
                              SLICE_LIT("{}"), "X", &h, &err);

    auth_headers_done(&h);
    return r;
}

static void signing(void **state)
{
    struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
    abx_config *c;

    o.access_key_id = "id";
    o.access_key_secret = "secret";
    c = config_load(&o);
    signer = c;
    torture(sign_once, 8);
    abx_config_unref(c);
}

static int store_toml_once(void)
{
    return abx_config_store("w", "sandbox_domain", "new.test", NULL);
}

static int store_secret_once(void)
{
    return abx_config_store(NULL, "sandbox_api_key", "new", NULL);
}

static void storing(void **state)
{
    struct test_dir *d = *state;

    config_write(d, "home/.abx/config.toml", "[transport]\nhttp2=true\n", 0600);
    torture(store_toml_once, 10);
    config_write(d, "home/.abx/.env", "A=1\nABX_SANDBOX_API_KEY=old\n", 0600);
    torture(store_secret_once, 5);
}

#define T(f) cmocka_unit_test_setup_teardown(f, config_setup, config_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(loading),
        T(loading_from_the_local_service),
        T(signing),
        T(storing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
