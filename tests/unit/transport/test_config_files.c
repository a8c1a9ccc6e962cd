/* test_config_files.c - layers of files, profiles, and the service on this machine. */
#include "config_kit.h"

#include "transport/auth.h"
#include "transport/local_service.h"

struct file {
    const char *path, *text;
};

struct layer_case {
    const char *what;
    struct file files[4];
    const char *env[2][2];
    const char *option; /* sandbox_domain */
    const char *key, *value;
    const char *origin; /* %s = the scratch folder */
};

#define WORK "work/.env"

static const struct layer_case layers[] = {
    { "an option is before all",
      { { WORK, "ABX_SANDBOX_DOMAIN=cwd" } },
      { { "ABX_SANDBOX_DOMAIN", "env" } },
      "opt",
      "sandbox_domain",
      "opt",
      "option" },
    { "the environment is before ./.env",
      { { WORK, "ABX_SANDBOX_DOMAIN=cwd" } },
      { { "E2B_DOMAIN", "env" } },
      NULL,
      "sandbox_domain",
      "env",
      "environment E2B_DOMAIN" },
    { "./.env is before ~/.abx/.env",
      { { WORK, "ABX_SANDBOX_DOMAIN=cwd" }, { "home/.abx/.env", "ABX_SANDBOX_DOMAIN=home" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "cwd",
      "file %s/work/.env" },
    { "a blank value is no value",
      { { WORK, "ABX_SANDBOX_DOMAIN=' '" }, { "home/.abx/.env", "ABX_SANDBOX_DOMAIN=home" } },
      { { "ABX_SANDBOX_DOMAIN", "" } },
      NULL,
      "sandbox_domain",
      "home",
      "file %s/home/.abx/.env" },
    { "~/.abx/.env is before config.toml",
      { { "home/.abx/.env", "ABX_SANDBOX_DOMAIN=home" },
        { "home/.abx/config.toml", "[transport]\nsandbox_domain='toml'\n" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "home",
      "file %s/home/.abx/.env" },
    { "a lower layer's scoped name is behind a higher one's plain name",
      { { WORK, "ABX_ALICLOUD_EXPRESS_SANDBOX_DOMAIN=scoped\nABX_SANDBOX_DOMAIN=plain" } },
      { { "ABX_SANDBOX_DOMAIN", "env" } },
      NULL,
      "sandbox_domain",
      "env",
      "environment ABX_SANDBOX_DOMAIN" },
    { "within a layer the scoped name is first",
      { { WORK, "ABX_SANDBOX_DOMAIN=plain\nABX_ALICLOUD_EXPRESS_SANDBOX_DOMAIN=scoped" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "scoped",
      "file %s/work/.env" },
    { "config.toml is before the default",
      { { "home/.abx/config.toml", "[transport]\nhttp2 = false\n" } },
      { { NULL } },
      NULL,
      "http2",
      "false",
      "file %s/home/.abx/config.toml" },
    { "a number of config.toml",
      { { "home/.abx/config.toml", "[transport]\nhttp_timeout = 1_0.5\n" } },
      { { NULL } },
      NULL,
      "http_timeout",
      "10.5",
      "file %s/home/.abx/config.toml" },
    { "a list of config.toml",
      { { "home/.abx/config.toml",
          "[transport]\nmcp_allowed_origins = ['http://a', 'http://b']\n" } },
      { { NULL } },
      NULL,
      "mcp_allowed_origins",
      "http://a,http://b",
      "file %s/home/.abx/config.toml" },
    { "the provider's table is before [transport]",
      { { "home/.abx/config.toml",
          "[transport]\nsandbox_domain='t'\n[providers.alicloud-express]\nsandbox_domain='p'\n" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "p",
      "file %s/home/.abx/config.toml [providers.alicloud-express]" },
    { "a profile is before both",
      { { "home/.abx/config.toml",
          "[transport]\nsandbox_domain='t'\n[profiles.work]\nsandbox_domain='w'\n" } },
      { { "ABX_PROFILE", "work" } },
      NULL,
      "sandbox_domain",
      "w",
      "file %s/home/.abx/config.toml [profiles.work]" },
    { "a profile does not come before a higher layer",
      { { "home/.abx/config.toml", "[profiles.work]\nsandbox_domain='w'\n" },
        { WORK, "ABX_SANDBOX_DOMAIN=cwd" } },
      { { "ABX_PROFILE", "work" } },
      NULL,
      "sandbox_domain",
      "cwd",
      "file %s/work/.env" },
    { "[core] names the profile",
      { { "home/.abx/config.toml",
          "[core]\nprofile='work'\n[profiles.work]\nsandbox_domain='w'\n" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "w",
      "file %s/home/.abx/config.toml [profiles.work]" },
    { "what a profile lacks comes from [transport]",
      { { "home/.abx/config.toml",
          "[transport]\nsandbox_domain='t'\n[profiles.work]\nhttp2=false\n" } },
      { { "ABX_PROFILE", "work" } },
      NULL,
      "sandbox_domain",
      "t",
      "file %s/home/.abx/config.toml" },
    { "a profile's secrets are before the common ones",
      { { "home/.abx/config.toml", "[core]\nprofile='work'\n[profiles.work]\nhttp2=false\n" },
        { "home/.abx/.env", "ABX_SANDBOX_API_KEY=common" },
        { "home/.abx/.env.work", "ABX_SANDBOX_API_KEY=own" } },
      { { NULL } },
      NULL,
      "sandbox_api_key",
      "own",
      "file %s/home/.abx/.env.work" },
    { "a file of secrets alone makes a profile",
      { { "home/.abx/.env", "ABX_PROFILE=work" },
        { "home/.abx/.env.work", "ABX_SANDBOX_DOMAIN=own" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "own",
      "file %s/home/.abx/.env.work" },
    { "E2B's names are not read from files",
      { { WORK, "E2B_DOMAIN=cwd" }, { "home/.abx/.env", "E2B_DOMAIN=home" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "cn-hangzhou.e2b.fc.aliyuncs.com",
      "default" },
    { "lines of ./.env that are not understood are somebody else's",
      { { WORK, "%%% what is this\nX='\nABX_SANDBOX_DOMAIN=cwd\n" } },
      { { NULL } },
      NULL,
      "sandbox_domain",
      "cwd",
      "file %s/work/.env" },
    { "tables and keys of others are left alone",
      { { "home/.abx/config.toml",
          "top=1\n[shortcuts]\na=['b']\n[transport]\nother=1\nregion='cn-beijing'\n" } },
      { { NULL } },
      NULL,
      "region",
      "cn-beijing",
      "file %s/home/.abx/config.toml" },
};

static void layers_come_in_order(void **state)
{
    struct test_dir *d = *state;

    for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
        const struct layer_case *t = &layers[i];
        struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
        char origin[256];
        const char *mark = strstr(t->origin, "%s");
        abx_config *c;

        for (size_t j = 0; j < ARRAY_SIZE(t->files) && t->files[j].path; j++)
            config_write(d, t->files[j].path, t->files[j].text, 0600);
        for (size_t j = 0; j < ARRAY_SIZE(t->env) && t->env[j][0]; j++)
            assert_int_equal(setenv(t->env[j][0], t->env[j][1], 1), 0);
        (void)snprintf(origin, sizeof origin, "%.*s%s%s",
                       mark ? (int)(mark - t->origin) : (int)strlen(t->origin), t->origin,
                       mark ? d->path : "", mark ? mark + 2 : "");
        o.domain = t->option;
        c = config_load(&o);
        config_expect(t->what, c, t->key, t->value, origin);
        abx_config_unref(c);
        for (size_t j = 0; j < ARRAY_SIZE(t->files) && t->files[j].path; j++)
            assert_int_equal(unlinkat(d->fd, t->files[j].path, 0), 0);
        for (size_t j = 0; j < ARRAY_SIZE(t->env) && t->env[j][0]; j++)
            assert_int_equal(unsetenv(t->env[j][0]), 0);
    }
}

static void bad_files_are_refused_with_line_and_key(void **state)
{
    static const struct {
        const char *path, *text, *profile, *message;
    } cases[] = {
        { "home/.abx/config.toml", "[transport]\nhttp2 = maybe\n", NULL,
          "config.toml: line 2: 'maybe' is neither string nor bool nor number" },
        { "home/.abx/config.toml", "[transport]\n\nhttp2 = 'maybe'\n", NULL,
          "config.toml: line 3: http2: 'maybe' is neither true nor false" },
        { "home/.abx/config.toml", "[transport]\nsandbox_domain = 5\n", NULL,
          "config.toml: line 2: sandbox_domain is not a string" },
        { "home/.abx/config.toml", "[transport]\nsandbox_api_key = 'hunter2'\n", NULL,
          "config.toml: line 2: sandbox_api_key is a secret: it belongs into ~/.abx/.env, as "
          "ABX_SANDBOX_API_KEY" },
        { "home/.abx/config.toml", "[profiles.w]\nsandbox_api_key = 'hunter2'\n", "w",
          "config.toml: line 2: sandbox_api_key is a secret" },
        { "home/.abx/config.toml", "[profiles.w]\nsandbox_domian = 'x'\n", "w",
          "config.toml: line 2: [profiles.w] has no key 'sandbox_domian'" },
        { "home/.abx/config.toml", "[profiles.w]\nprofile = 'x'\n", "w",
          "config.toml: line 2: [profiles.w] has no key 'profile'" },
        { "home/.abx/config.toml", "", "w", "profile 'w' (option): " },
        { "home/.abx/other", "", "w", "config.toml has no [profiles.w]" },
        { "home/.abx/.env", "A=1\nABX_SANDBOX_API_KEY='hunter2\n", NULL,
          ".abx/.env: line 2 is not NAME=value" },
        { "home/.abx/.env", "A=1\nABX_HTTP2=x\n", NULL,
          ".abx/.env: line 2: http2: 'x' is neither true nor false" },
        { "work/.env", "ABX_SANDBOX_API_KEY='hunter2 x'\n", NULL,
          "work/.env: line 1: sandbox_api_key: has a space" },
    };
    struct test_dir *d = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
        struct abx_error err = { 0 };
        abx_config *c = NULL;

        config_write(d, cases[i].path, cases[i].text, 0600);
        o.profile = cases[i].profile;
        assert_int_equal(abx_config_load(&o, &c, &err), ABX_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        assert_null(strstr(err.message, "hunter2"));
        assert_int_equal(unlinkat(d->fd, cases[i].path, 0), 0);
    }
}

static void what_is_no_file_is_no_layer(void **state)
{
    struct test_dir *d = *state;
    abx_config *c;

    assert_int_equal(mkdirat(d->fd, "work/.env", 0700), 0); /* a virtual environment */
    assert_int_equal(mkfifoat(d->fd, "home/.abx/.env", 0600), 0);
    c = config_load(NULL);
    assert_null(c->api_key);
    abx_config_unref(c);
    (void)setenv("HOME", "/dev/null", 1);
    c = config_load(NULL);
    abx_config_unref(c);
}

static void too_large_a_file_is_refused(void **state)
{
    struct test_dir *d = *state;
    struct abx_error err = { 0 };
    abx_config *c = NULL;
    int fd;

    config_write(d, "work/.env", "A=1\n", 0600);
    fd = openat(d->fd, "work/.env", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 512 * 1024), 0);
    (void)close(fd);
    assert_int_equal(abx_config_load(NULL, &c, &err), ABX_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "work/.env: has more than 262144 bytes"));
}

/* ---- the service on this machine ---- */

static void local_write(struct test_dir *d, const char *text, mode_t mode)
{
    char name[64];

    (void)snprintf(name, sizeof name, "local/%u.env", (unsigned)geteuid());
    config_write(d, name, text, mode);
}

#define LOCAL                                                                                      \
    "ABX_SANDBOX_API_KEY=e2b_local\nABX_SANDBOX_BASE_URL=http://127.0.0.1:1\n"                     \
    "ABX_SANDBOX_DOMAIN=localhost:1\n"

/* The folder has to be root's: the unit tests of another user see every file refused. */
static bool is_root(void)
{
    return geteuid() == 0;
}

static void the_local_service_is_the_last_source(void **state)
{
    struct test_dir *d = *state;
    char origin[128];
    abx_config *c;

    local_write(d, LOCAL, 0600);
    c = config_load(NULL);
    if (is_root()) {
        (void)snprintf(origin, sizeof origin, "local service %s/local/0.env", d->path);
        config_expect("local", c, "sandbox_api_key", "e2b_local", origin);
        config_expect("local", c, "sandbox_base_url", "http://127.0.0.1:1", origin);
        config_expect("local", c, "sandbox_domain", "localhost:1", origin);
        assert_true(c->api_url_is_explicit);
        assert_non_null(c->local_service);
    } else {
        assert_null(c->api_key);
        assert_non_null(strstr(c->hint, "does not belong to root"));
    }
    abx_config_unref(c);
}

static void key_url_and_domain_come_from_one_source(void **state)
{
    static const char *const names[] = { "ABX_SANDBOX_DOMAIN", "E2B_API_URL", "E2B_API_KEY",
                                         "E2B_DEBUG" };
    static const char *const values[] = { "example.com", "http://example.com", "other", "true" };
    struct test_dir *d = *state;

    local_write(d, LOCAL, 0600);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        abx_config *c;

        (void)setenv(names[i], values[i], 1);
        c = config_load(NULL);
        assert_null(c->local_service);
        assert_true(!c->api_key || strcmp(c->api_key, "e2b_local") != 0);
        assert_string_not_equal(c->api_url, "http://127.0.0.1:1");
        assert_string_not_equal(c->domain, "localhost:1");
        abx_config_unref(c);
        (void)unsetenv(names[i]);
    }
}

static void the_error_says_why_there_is_no_key(void **state)
{
    struct test_dir *d = *state;
    struct auth_headers h;
    struct abx_err err = { 0 };
    abx_config *c;

    local_write(d, LOCAL, 0600);
    (void)setenv("ABX_SANDBOX_DOMAIN", "example.com", 1);
    c = config_load(NULL);
    assert_int_equal(auth_headers_make(c, "GET", c->api_url, NULL, SLICE_LIT(""), "X", &h, &err),
                     ABX_UNAUTHENTICATED);
    assert_non_null(strstr(err.msg, "the service on this machine is not asked: sandbox_domain "
                                    "(environment ABX_SANDBOX_DOMAIN)"));
    auth_headers_done(&h);
    abx_config_unref(c);
}

static void a_file_that_others_could_read_or_make_is_not_used(void **state)
{
    static const struct {
        mode_t folder, file;
        const char *message;
    } cases[] = {
        { 0711, 0640, "group or others have access to it" },
        { 0711, 0604, "group or others have access to it" },
        { 0713, 0600, "others than root may write to its folder" },
        { 0731, 0600, "others than root may write to its folder" },
    };
    struct test_dir *d = *state;
    struct local_service s;
    char path[128], name[128];

    if (!is_root())
        return; /* everything is refused for another reason */
    (void)snprintf(path, sizeof path, "%s/local", d->path);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        local_write(d, LOCAL, cases[i].file);
        assert_int_equal(chmod(path, cases[i].folder), 0);
        assert_int_equal(local_service_find(&s, NULL), 0);
        assert_null(s.api_key);
        assert_non_null(s.refusal);
        assert_non_null(strstr(s.refusal, cases[i].message));
        local_service_done(&s);
    }
    assert_int_equal(chmod(path, 0711), 0);
    local_write(d, LOCAL, 0600);
    assert_int_equal(fchownat(d->fd, "local/0.env", 12345, 12345, 0), 0);
    assert_int_equal(local_service_find(&s, NULL), 0);
    assert_non_null(strstr(s.refusal, "it belongs to somebody else"));
    local_service_done(&s);
    (void)snprintf(name, sizeof name, "%s/target.env", d->path);
    config_write(d, "target.env", LOCAL, 0600);
    assert_int_equal(unlinkat(d->fd, "local/0.env", 0), 0);
    assert_int_equal(symlinkat(name, d->fd, "local/0.env"), 0);
    assert_int_equal(local_service_find(&s, NULL), 0);
    assert_non_null(s.refusal);
    assert_null(s.api_key);
    local_service_done(&s);
    assert_int_equal(unlinkat(d->fd, "local/0.env", 0), 0);
    assert_int_equal(mkfifoat(d->fd, "local/0.env", 0600), 0);
    assert_int_equal(local_service_find(&s, NULL), 0);
    assert_non_null(strstr(s.refusal, "no regular file"));
    local_service_done(&s);
}

static void a_file_without_all_three_is_an_error(void **state)
{
    struct test_dir *d = *state;
    struct local_service s;
    struct abx_err err = { 0 };

    if (!is_root())
        return;
    local_write(d, "ABX_SANDBOX_API_KEY=k\nABX_SANDBOX_BASE_URL=http://x\n", 0600);
    assert_int_equal(local_service_find(&s, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "ABX_SANDBOX_DOMAIN is missing"));
    local_service_done(&s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, config_setup, config_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(layers_come_in_order),
        T(bad_files_are_refused_with_line_and_key),
        T(what_is_no_file_is_no_layer),
        T(too_large_a_file_is_refused),
        T(the_local_service_is_the_last_source),
        T(key_url_and_domain_come_from_one_source),
        T(the_error_says_why_there_is_no_key),
        T(a_file_that_others_could_read_or_make_is_not_used),
        T(a_file_without_all_three_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
