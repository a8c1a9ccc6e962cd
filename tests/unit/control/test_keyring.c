/* Keys: texts of refusals, scopes, expiry, revocation, and that the database has no key's text. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "control/keyring.h"

static char dir[64];
static uv_loop_t loop;
static struct store *store;
static struct keyring *keys;
static char team[UUID_SIZE];

static void open_all(void)
{
    struct abx_err err = { 0 };

    assert_int_equal(store_open(&loop, dir, &store, &err), 0);
    assert_int_equal(store_team_ensure(store, "default", "t1", team, sizeof team, &err), 0);
    assert_int_equal(keyring_new(store, &keys, &err), 0);
}

static void close_all(void)
{
    keyring_free(keys);
    store_close(store);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/abx-keyring-XXXXXX");
    if (!mkdtemp(dir) || uv_loop_init(&loop) < 0)
        return -1;
    open_all();
    return 0;
}

static int teardown(void **state)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    (void)state;
    close_all();
    if (uv_loop_close(&loop) < 0)
        return -1;
    return path_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
}

static void on_done(void *user, const struct abx_err *failure)
{
    assert_null(failure);
    (*(int *)user)++;
}

static void wait_for(const int *n)
{
    while (*n == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static const struct key *add(unsigned scopes, int64_t expires_ms, char text[API_KEY_SIZE])
{
    const struct key *key;
    struct abx_err err = { 0 };
    int n = 0;

    assert_int_equal(
        keyring_add(keys, team, "name", scopes, expires_ms, text, &key, on_done, &n, &err), 0);
    assert_int_equal(n, 0);
    wait_for(&n);
    return key;
}

/* Code and text of a check. */
static int check(const char *api_key, const char *authorization, struct abx_err *err)
{
    const struct key *key;

    err->msg[0] = '\0';
    return keyring_check(keys, slice_str(api_key), slice_str(authorization), &key, err);
}

static void refusals_have_the_documented_texts(void **state)
{
    static const struct {
        const char *api_key, *authorization, *message;
    } rows[] = {
        { "", "", "authorization header is missing" },
        { "", "Basic eDo=", "authorization header is missing" },
        { "", "Bearer", "authorization header is missing" },
        { "", "Bearer ", "authorization header is missing" },
        { "sk_00", "", "Invalid API key format" },
        { "e2b_xyz", "", "Invalid API key format" },
        { "", "Bearer abc", "Invalid API key format" },
        { "e2b_00", "", "Cannot get the team for the given API key" },
    };
    struct abx_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(check(rows[i].api_key, rows[i].authorization, &err), ABX_UNAUTHENTICATED);
        assert_string_equal(err.msg, rows[i].message);
    }
}

static void a_key_works_in_both_headers(void **state)
{
    char text[API_KEY_SIZE], bearer[64];
    struct abx_err err;

    (void)state;
    (void)add(SCOPES_ALL, 0, text);
    (void)snprintf(bearer, sizeof bearer, "bEaReR  %s", text);
    assert_int_equal(check(text, "", &err), 0);
    assert_int_equal(check("", bearer, &err), 0);
    /* X-API-Key counts when both are there. */
    assert_int_equal(check("e2b_00", bearer, &err), ABX_UNAUTHENTICATED);
}

static void expired_and_revoked_keys_are_unknown(void **state)
{
    const struct timespec pause = { .tv_nsec = 30 * NSEC_PER_MSEC };
    char short_text[API_KEY_SIZE], text[API_KEY_SIZE], other[API_KEY_SIZE], id[16];
    const struct key *key;
    struct abx_err err;
    int n = 0;

    (void)state;
    (void)add(SCOPES_ALL, time_wall_ms() + 20, short_text);
    (void)nanosleep(&pause, NULL);
    assert_int_equal(check(short_text, "", &err), ABX_UNAUTHENTICATED);
    assert_string_equal(err.msg, "Cannot get the team for the given API key");
    key = add(SCOPES_ALL, 0, text);
    (void)snprintf(id, sizeof id, "%s", key->id);
    (void)add(SCOPES_ALL, 0, other);
    assert_int_equal(keyring_revoke(keys, text, id, on_done, &n, &err), 0);
    assert_int_equal(check(text, "", &err), ABX_UNAUTHENTICATED);
    assert_int_equal(check(other, "", &err), 0);
    wait_for(&n);
    n = 0;
    assert_int_equal(keyring_revoke(keys, id, id, on_done, &n, &err), 0);
    wait_for(&n);
    assert_int_equal(keyring_revoke(keys, "nope", id, on_done, &n, &err), ABX_NOT_FOUND);
}

static void keys_survive_a_restart_but_not_their_text(void **state)
{
    _cleanup_(buf_done) struct buf bytes = BUF_INIT(16u << 20);
    _cleanup_(closep) int fd = open(dir, O_DIRECTORY | O_CLOEXEC);
    char text[API_KEY_SIZE];
    struct abx_err err = { 0 };
    const struct key *key;

    (void)state;
    (void)add(SCOPE_SANDBOX_READ, 0, text);
    close_all();
    open_all();
    assert_int_equal(check(text, "", &err), 0);
    assert_int_equal(keyring_count(keys), 1);
    key = keyring_at(keys, 0);
    assert_int_equal(key->scopes, SCOPE_SANDBOX_READ);
    assert_string_equal(key->name, "name");
    assert_memory_equal(key->mask, text, 8);
    assert_string_equal(key->mask + 11, text + 40);
    assert_int_equal(file_read(fd, "abx.db", &bytes, &err), 0);
    (void)file_read(fd, "abx.db-wal", &bytes, &err);
    assert_null(memmem(buf_data(&bytes), bytes.len, text, strlen(text)));
    assert_non_null(memmem(buf_data(&bytes), bytes.len, key->hash, strlen(key->hash)));
}

static void the_last_use_is_written_down(void **state)
{
    char text[API_KEY_SIZE];
    struct abx_err err = { 0 };

    (void)state;
    (void)add(SCOPES_ALL, 0, text);
    assert_int_equal(check(text, "", &err), 0);
    close_all();
    open_all();
    assert_true(keyring_at(keys, 0)->last_used_ms > time_wall_ms() - 60000);
}

static void scopes_are_names(void **state)
{
    unsigned scopes;
    char text[96];

    (void)state;
    assert_true(scopes_parse(slice_str("sandbox:write  sandbox:read"), &scopes));
    assert_int_equal(scopes, SCOPE_SANDBOX_READ | SCOPE_SANDBOX_WRITE);
    assert_true(scopes_parse(slice_str("*"), &scopes));
    assert_int_equal(scopes, SCOPES_ALL);
    assert_false(scopes_parse(slice_str("sandbox:read everything"), &scopes));
    scopes_format(SCOPES_ALL, text);
    assert_string_equal(text, "sandbox:read sandbox:write template:read template:write");
    assert_true(scopes_parse(slice_str(text), &scopes));
    assert_int_equal(scopes, SCOPES_ALL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(refusals_have_the_documented_texts),   TEST(a_key_works_in_both_headers),
        TEST(expired_and_revoked_keys_are_unknown), TEST(keys_survive_a_restart_but_not_their_text),
        TEST(the_last_use_is_written_down),         cmocka_unit_test(scopes_are_names),
    };

    return cmocka_run_group_tests_name("control_keyring", tests, NULL, NULL);
}
