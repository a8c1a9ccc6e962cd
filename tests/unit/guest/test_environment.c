/* The environment of a command, and the identity that feeds it. */
#include "test.h"

#include <string.h>

#include "guest/daemon/environment.h"
#include "schema/ipc.pb-c.h"
#include "wire/rpc.h"

static const struct user someone = { .name = "user", .home = "/home/user", .uid = 1000 };

/* GuestFrame with the given pairs as envs. */
static void frame_make(struct buf *b, uint32_t version, char **pairs, size_t n)
{
    Abx__Ipc__GuestFrame frame = ABX__IPC__GUEST_FRAME__INIT;
    Abx__Ipc__Identity id = ABX__IPC__IDENTITY__INIT;
    Abx__Ipc__Identity__EnvsEntry entries[4];
    Abx__Ipc__Identity__EnvsEntry *list[4];
    char sandbox[] = "isb", template_[] = "base", token[] = "secret";

    for (size_t i = 0; i < n; i++) {
        abx__ipc__identity__envs_entry__init(&entries[i]);
        entries[i].key = pairs[2 * i];
        entries[i].value = pairs[2 * i + 1];
        list[i] = &entries[i];
    }
    id.sandbox_id = sandbox;
    id.template_id = template_;
    id.access_token = token;
    id.n_envs = n;
    id.envs = list;
    frame.version = version;
    frame.body_case = ABX__IPC__GUEST_FRAME__BODY_IDENTITY;
    frame.identity = &id;
    assert_int_equal(rpc_proto_encode(&frame.base, b), BUF_OK);
}

static const char *find(char **envp, const char *key)
{
    const char *found = NULL;
    size_t n = strlen(key);

    for (size_t i = 0; envp[i]; i++) {
        if (strncmp(envp[i], key, n) != 0 || envp[i][n] != '=')
            continue;
        assert_null(found); /* each name once */
        found = envp[i] + n + 1;
    }
    return found;
}

static void later_wins(void **state)
{
    char k1[] = "A", v1[] = "sandbox", k2[] = "USER", v2[] = "sandbox=x", k3[] = "PATH",
         v3[] = "/p";
    char *pairs[] = { k1, v1, k2, v2 };
    Process__ProcessConfig__EnvsEntry path = PROCESS__PROCESS_CONFIG__ENVS_ENTRY__INIT;
    Process__ProcessConfig__EnvsEntry *list[] = { &path };
    Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
    struct buf b = BUF_INIT(1000);
    struct identity id = { 0 };
    char **envp = NULL;

    frame_make(&b, 1, pairs, 2);
    assert_int_equal(identity_decode(&id, buf_slice(&b), NULL), 0);
    path.key = k3;
    path.value = v3;
    config.envs = list;
    config.n_envs = 1;
    assert_int_equal(environment_make(&id, &someone, &config, &envp, NULL), 0);
    assert_string_equal(find(envp, "A"), "sandbox");
    assert_string_equal(find(envp, "USER"), "sandbox=x");
    assert_string_equal(find(envp, "LOGNAME"), "user");
    assert_string_equal(find(envp, "HOME"), "/home/user");
    assert_string_equal(find(envp, "PATH"), "/p");
    assert_string_equal(find(envp, "E2B_SANDBOX_ID"), "isb");
    environment_free(envp);
    identity_done(&id);
    buf_done(&b);
}

/* As many as a request may have over as many of the sandbox: each once, the request's. */
static void many_are_each_there_once(void **state)
{
    static Process__ProcessConfig__EnvsEntry entries[ENVIRONMENT_MAX], *list[ENVIRONMENT_MAX];
    static char own[ENVIRONMENT_MAX][16], names[ENVIRONMENT_MAX][16], *envs[ENVIRONMENT_MAX];
    static char empty[] = "", value[] = "request";
    Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
    struct identity id = { .sandbox_id = empty, .template_id = empty };
    char **envp = NULL;
    size_t n = 0;

    for (unsigned i = 0; i < ENVIRONMENT_MAX; i++) {
        (void)snprintf(own[i], sizeof(own[i]), "V%u=sandbox", i);
        envs[i] = own[i];
        (void)snprintf(names[i], sizeof(names[i]), "V%u", i * 2);
        process__process_config__envs_entry__init(&entries[i]);
        entries[i].key = names[i];
        entries[i].value = value;
        list[i] = &entries[i];
    }
    id.envs = envs;
    id.n_envs = config.n_envs = ENVIRONMENT_MAX;
    config.envs = list;
    assert_int_equal(environment_make(&id, &someone, &config, &envp, NULL), 0);
    assert_string_equal(find(envp, "V0"), "request");
    assert_string_equal(find(envp, "V1"), "sandbox");
    assert_string_equal(find(envp, "V2046"), "request");
    assert_string_equal(find(envp, "V4094"), "request");
    while (envp[n])
        n++;
    assert_int_equal(n, 7 + ENVIRONMENT_MAX + ENVIRONMENT_MAX / 2);
    environment_free(envp);
}

static void bad_names_are_refused(void **state)
{
    static char names[][4] = { "", "A=B", "=" };
    Process__ProcessConfig__EnvsEntry entry = PROCESS__PROCESS_CONFIG__ENVS_ENTRY__INIT;
    Process__ProcessConfig__EnvsEntry *list[] = { &entry };
    Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
    char empty[] = "";
    struct identity id = { .sandbox_id = empty, .template_id = empty };
    char **envp = NULL;

    config.envs = list;
    config.n_envs = 1;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        entry.key = names[i];
        assert_int_equal(environment_make(&id, &someone, &config, &envp, NULL),
                         ABX_INVALID_ARGUMENT);
    }
    config.n_envs = ENVIRONMENT_MAX + 1;
    assert_int_equal(environment_make(&id, &someone, &config, &envp, NULL), ABX_INVALID_ARGUMENT);
}

static void identity_without_a_valid_name_goes_on_without_it(void **state)
{
    char k1[] = "", v1[] = "x", k2[] = "A=B", k3[] = "OK";
    char *pairs[] = { k1, v1, k2, v1, k3, v1 };
    struct buf b = BUF_INIT(1000);
    struct identity id = { 0 };

    frame_make(&b, 1, pairs, 3);
    assert_int_equal(identity_decode(&id, buf_slice(&b), NULL), 0);
    assert_int_equal(id.n_envs, 1);
    assert_string_equal(id.envs[0], "OK=x");
    identity_done(&id);
    buf_done(&b);
}

static void refused_message_leaves_the_identity(void **state)
{
    struct buf b = BUF_INIT(1000);
    struct identity id = { 0 };

    frame_make(&b, 1, NULL, 0);
    assert_int_equal(identity_decode(&id, buf_slice(&b), NULL), 0);
    buf_reset(&b);
    frame_make(&b, 0, NULL, 0);
    assert_int_equal(identity_decode(&id, buf_slice(&b), NULL), ABX_UNIMPLEMENTED);
    assert_int_equal(identity_decode(&id, slice_of("\xff", 1), NULL), ABX_INVALID_ARGUMENT);
    assert_int_equal(identity_decode(&id, slice_of("\x08\x01", 2), NULL), ABX_UNIMPLEMENTED);
    assert_true(id.is_claimed);
    assert_string_equal(id.access_token, "secret");
    identity_done(&id);
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_wins),
        cmocka_unit_test(many_are_each_there_once),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(identity_without_a_valid_name_goes_on_without_it),
        cmocka_unit_test(refused_message_leaves_the_identity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
