/* test_config_store.c - one key changes, every other byte stays. */
#include "config_kit.h"

struct store_case {
    const char *what;
    const char *path;   /* below home/.abx */
    const char *before; /* NULL = there is no file */
    const char *profile, *key, *value;
    const char *after; /* NULL = there is no file */
};

static const struct store_case cases[] = {
    { "a first key makes the file", "config.toml", NULL, NULL, "http2", "false",
      "[transport]\nhttp2 = false\n" },
    { "a value is replaced, its comment stays", "config.toml",
      "# mine\n[transport] # t\nhttp2 =   true   # why\nother = 1\n", NULL, "http2", "false",
      "# mine\n[transport] # t\nhttp2 =   false   # why\nother = 1\n" },
    { "a key goes to the end of its table", "config.toml",
      "[transport]\nother = 1\n\n# next\n[z]\nx=1\n", NULL, "sandbox_domain", "a.test",
      "[transport]\nother = 1\nsandbox_domain = \"a.test\"\n\n# next\n[z]\nx=1\n" },
    { "a table that ends without newline", "config.toml", "[transport]\nother = 1", NULL, "http2",
      "off", "[transport]\nother = 1\nhttp2 = \"off\"\n" },
    { "a table is added at the end", "config.toml", "[z]\nx=1", NULL, "http_timeout", "1.5",
      "[z]\nx=1\n\n[transport]\nhttp_timeout = 1.5\n" },
    { "core has tables of its own", "config.toml", "[transport]\n", NULL, "profile", "work",
      "[transport]\n\n[core]\nprofile = \"work\"\n" },
    { "a profile", "config.toml", "[transport]\nhttp2=true\n", "work", "http2", "false",
      "[transport]\nhttp2=true\n\n[profiles.work]\nhttp2 = false\n" },
    { "a profile with a dot", "config.toml", "", "a.b", "http2", "false",
      "[profiles.\"a.b\"]\nhttp2 = false\n" },
    { "a super table", "config.toml", "[transport.x]\na=1\n", NULL, "http2", "false",
      "[transport.x]\na=1\n\n[transport]\nhttp2 = false\n" },
    { "a dotted key's value", "config.toml", "transport.http2 = true\n", NULL, "http2", "false",
      "transport.http2 = false\n" },
    { "quotes and backslashes", "config.toml", "", NULL, "template_dir", "/a \"b\" \\c",
      "[transport]\ntemplate_dir = \"/a \\\"b\\\" \\\\c\"\n" },
    { "a number that TOML does not know", "config.toml", "", NULL, "max_connections", "007",
      "[transport]\nmax_connections = \"007\"\n" },
    { "a line is removed", "config.toml", "[transport]\nhttp2 = true # x\nother=1\n", NULL, "http2",
      NULL, "[transport]\nother=1\n" },
    { "several lines are removed", "config.toml",
      "[transport]\r\nmcp_allowed_origins = [\r\n 'a',\r\n]\r\nother=1\r\n", NULL,
      "mcp_allowed_origins", NULL, "[transport]\r\nother=1\r\n" },
    { "what is not there is removed", "config.toml", "[z]\nx=1", NULL, "http2", NULL, "[z]\nx=1" },
    { "nothing is removed from nothing", "config.toml", NULL, NULL, "http2", NULL, NULL },
    { "a secret", ".env", NULL, NULL, "sandbox_api_key", "e2b_1", "ABX_SANDBOX_API_KEY=e2b_1\n" },
    { "a secret is replaced where it stands", ".env",
      "# top\nA=1\nexport ABX_SANDBOX_API_KEY=old # c\nB='x\ny'", NULL, "sandbox_api_key", "new",
      "# top\nA=1\nexport ABX_SANDBOX_API_KEY=new\nB='x\ny'" },
    { "a secret is added", ".env", "A=1", NULL, "sandbox_api_key", "new",
      "A=1\nABX_SANDBOX_API_KEY=new\n" },
    { "a name that would come first goes", ".env",
      "ABX_SANDBOX_API_KEY=1\nA=1\nABX_ALICLOUD_EXPRESS_SANDBOX_API_KEY=2\n", NULL,
      "sandbox_api_key", "new", "ABX_SANDBOX_API_KEY=new\nA=1\n" },
    { "a secret with quotes", ".env", "", NULL, "access_token", "a'b\\c\"#d$",
      "ABX_ACCESS_TOKEN='a\\'b\\\\c\"#d$'\n" },
    { "all lines of a secret are removed", ".env",
      "ABX_SANDBOX_API_KEY=1\nA=1\nABX_SANDBOX_API_KEY='2'\n", NULL, "sandbox_api_key", NULL,
      "A=1\n" },
    { "a secret of a profile", ".env.work", NULL, "work", "sandbox_api_key", "own",
      "ABX_SANDBOX_API_KEY=own\n" },
};

static void read_back(struct test_dir *d, const char *path, char to[1024], mode_t *mode)
{
    int fd = openat(d->fd, path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    *mode = 0;
    if (fd < 0)
        return;
    n = read(fd, to, 1023);
    assert_true(n >= 0);
    to[n] = '\0';
    assert_int_equal(fstat(fd, &st), 0);
    *mode = st.st_mode & 0777;
    (void)close(fd);
}

static void one_key_changes(void **state)
{
    struct test_dir *d = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct store_case *t = &cases[i];
        struct abx_error err = { 0 };
        char path[64], text[1024];
        mode_t mode;

        (void)snprintf(path, sizeof path, "home/.abx/%s", t->path);
        if (t->before)
            config_write(d, path, t->before, 0644);
        if (abx_config_store(t->profile, t->key, t->value, &err) != 0)
            fail_msg("%s: %s", t->what, err.message);
        read_back(d, path, text, &mode);
        assert_int_equal(mode != 0, t->after != NULL);
        if (t->after) {
            test_text(t->what, text, t->after);
            assert_int_equal(mode, t->path[0] == '.' || !t->before ? 0600 : 0644);
        }
        if (t->value) {
            struct abx_config_opts o = ABX_CONFIG_OPTS_INIT;
            abx_config *c;

            o.profile = t->profile;
            if (strcmp(t->key, "profile") == 0)
                assert_int_equal(abx_config_store("work", "http2", "true", NULL), 0);
            c = config_load(&o);
            assert_string_equal(abx_config_get(c, t->key, 1, NULL), t->value);
            abx_config_unref(c);
        }
        (void)unlinkat(d->fd, path, 0);
    }
}

static void what_cannot_be_stored_changes_nothing(void **state)
{
    static const struct {
        const char *path, *before, *profile, *key, *value, *message;
    } bad[] = {
        { "config.toml", "a=1\n", NULL, "no_such", "1", "there is no key 'no_such'" },
        { "config.toml", "a=1\n", NULL, "http2", "maybe", "http2: 'maybe' is neither true nor" },
        { "config.toml", "a=1\n", NULL, "http2", " ", "http2: a blank value is none" },
        { "config.toml", "a=1\n", NULL, "default_template", " x", "begins or ends with white" },
        { "config.toml", "a=1\n", "a b", "http2", "true", "profile: 'a b' is not 1 to 64" },
        { "config.toml", "a=1\n", "work", "profile", "x", "a profile does not name another" },
        { "config.toml", "a = 1 b\n", NULL, "http2", "true", "config.toml: line 1: something" },
        { "config.toml", "transport.other = 1\n", NULL, "http2", "true",
          "http2 cannot be added, do it by hand: line" },
        { ".env", "A='\n", NULL, "sandbox_api_key", "k", ".env: line 1 is not NAME=value" },
        { ".env", "A=1\n", NULL, "sandbox_api_key", "a${B}", "sandbox_api_key cannot be written" },
        { ".env", "A=1\n", NULL, "sandbox_api_key", "hunter2 x", "sandbox_api_key: has a space" },
    };
    struct test_dir *d = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct abx_error err = { 0 };
        char path[64], text[1024];
        mode_t mode;

        (void)snprintf(path, sizeof path, "home/.abx/%s", bad[i].path);
        config_write(d, path, bad[i].before, 0640);
        assert_int_equal(abx_config_store(bad[i].profile, bad[i].key, bad[i].value, &err),
                         ABX_INVALID_ARGUMENT);
        if (!strstr(err.message, bad[i].message))
            fail_msg("case %zu: %s", i, err.message);
        assert_null(strstr(err.message, "hunter2"));
        read_back(d, path, text, &mode);
        assert_string_equal(text, bad[i].before);
        assert_int_equal(mode, 0640);
        assert_int_equal(unlinkat(d->fd, path, 0), 0);
    }
}

static void a_link_stays_a_link(void **state)
{
    struct test_dir *d = *state;
    char text[1024];
    struct stat st;
    mode_t mode;

    config_write(d, "work/real.toml", "", 0644);
    assert_int_equal(symlinkat("../../work/real.toml", d->fd, "home/.abx/config.toml"), 0);
    assert_int_equal(abx_config_store(NULL, "http2", "true", NULL), 0);
    assert_int_equal(fstatat(d->fd, "home/.abx/config.toml", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
    read_back(d, "work/real.toml", text, &mode);
    assert_string_equal(text, "[transport]\nhttp2 = true\n");
}

static void the_folder_is_made_for_the_user_alone(void **state)
{
    struct test_dir *d = *state;
    struct stat st;

    assert_int_equal(unlinkat(d->fd, "home/.abx", AT_REMOVEDIR), 0);
    assert_int_equal(abx_config_store(NULL, "sandbox_api_key", "k", NULL), 0);
    assert_int_equal(fstatat(d->fd, "home/.abx", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

#define T(f) cmocka_unit_test_setup_teardown(f, config_setup, config_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_key_changes),
        T(what_cannot_be_stored_changes_nothing),
        T(a_link_stays_a_link),
        T(the_folder_is_made_for_the_user_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
