/* lifecycle_test.h - the state machine with a real store and a driver whose answers the test gives. */
#pragma once

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "control/lifecycle.h"
#include "e2b/tokens.h"

#define CALLS_MAX 64

struct kill_call {
    driver_killed_fn done;
    void *user;
    char id[SANDBOX_ID_SIZE];
    bool is_open;
};

struct fake {
    struct driver base;
    bool is_up;
    driver_created_fn created; /* open create */
    void *created_user;
    char created_id[SANDBOX_ID_SIZE];
    unsigned n_creates;
    struct kill_call kills[CALLS_MAX];
    unsigned n_kills;
    driver_listed_fn listed; /* open list */
    void *listed_user;
    char list_after[SANDBOX_ID_SIZE];
    unsigned n_lists;
};

struct world {
    char dir[64];
    uv_loop_t loop;
    struct store *store;
    struct lifecycle *lifecycle;
    struct fake fake;
    uint8_t seed[TOKEN_SEED_SIZE];
    bool has_gateway; /* then drops wait for lifecycle_told */
    unsigned n_visible, n_drops;
};

static struct world w;

/* --- the fake driver ---------------------------------------------------------------------------- */

static _unused_ struct fake *fake_of(struct driver *d)
{
    return container_of(d, struct fake, base);
}

static _unused_ int fake_create(struct driver *d, const struct driver_create *req,
                                driver_created_fn done, void *user, struct abx_err *err)
{
    struct fake *f = fake_of(d);

    if (!f->is_up)
        return err_set(err, ABX_UNAVAILABLE, "away");
    assert_null(f->created);
    f->created = done;
    f->created_user = user;
    (void)snprintf(f->created_id, sizeof f->created_id, "%s", req->sandbox_id);
    f->n_creates++;
    return 0;
}

static _unused_ int fake_kill(struct driver *d, const char *id, const char *request_id,
                              driver_killed_fn done, void *user, struct abx_err *err)
{
    struct fake *f = fake_of(d);

    (void)request_id;
    if (!f->is_up)
        return err_set(err, ABX_UNAVAILABLE, "away");
    assert_true(f->n_kills < CALLS_MAX);
    f->kills[f->n_kills] = (struct kill_call){ .done = done, .user = user, .is_open = true };
    (void)snprintf(f->kills[f->n_kills++].id, SANDBOX_ID_SIZE, "%s", id);
    return 0;
}

static _unused_ int fake_list(struct driver *d, const char *after, driver_listed_fn done,
                              void *user, struct abx_err *err)
{
    struct fake *f = fake_of(d);

    if (!f->is_up)
        return err_set(err, ABX_UNAVAILABLE, "away");
    f->listed = done;
    f->listed_user = user;
    (void)snprintf(f->list_after, sizeof f->list_after, "%s", after);
    f->n_lists++;
    return 0;
}

static _unused_ bool fake_is_up(const struct driver *d)
{
    return ((const struct fake *)(const void *)d)->is_up;
}

static const struct driver_ops fake_ops = {
    .create = fake_create, .kill = fake_kill, .list = fake_list, .is_up = fake_is_up
};

static _unused_ void end_create(const struct abx_err *failure)
{
    static const struct driver_stage stages[] = { { "clone", 100 } };
    struct driver_created made = { 2, 512, 1024, false, "x1", stages, 1 };
    driver_created_fn done = w.fake.created;

    assert_non_null(done);
    w.fake.created = NULL;
    done(w.fake.created_user, failure ? NULL : &made, failure, true);
}

/* Answers every open kill. */
static _unused_ bool end_kills(const struct abx_err *failure)
{
    unsigned n = w.fake.n_kills; /* an answer may lead to another kill */
    bool any = false;

    for (unsigned i = 0; i < n; i++) {
        struct kill_call *k = &w.fake.kills[i];

        if (!k->is_open)
            continue;
        k->is_open = false;
        any = true;
        k->done(k->user, true, failure);
    }
    return any;
}

static _unused_ void end_list(const char *const *ids, size_t n, bool has_more)
{
    driver_listed_fn done = w.fake.listed;

    assert_non_null(done);
    w.fake.listed = NULL;
    done(w.fake.listed_user, ids, n, has_more, NULL);
}

/* --- world -------------------------------------------------------------------------------------- */

static _unused_ void on_visible(void *user, struct sandbox *sb)
{
    (void)user;
    assert_true(sandbox_is_visible(sb));
    w.n_visible++;
}

static _unused_ bool on_drop(void *user, struct sandbox *sb)
{
    (void)user;
    (void)sb;
    w.n_drops++;
    return w.has_gateway;
}

static _unused_ int render(void *user, const struct sandbox *sb, struct buf *body)
{
    (void)user;
    return buf_printf(body, "{\"id\":\"%s\",\"memory\":%u}", sb->id, sb->memory_mb) == BUF_OK ? 0
                                                                                              : -1;
}

static _unused_ void open_all(void)
{
    struct lifecycle_opts opts = {
        .loop = &w.loop,
        .driver = &w.fake.base,
        .seed = w.seed,
        .on_visible = on_visible,
        .on_drop = on_drop,
        .render = render,
    };
    struct abx_err err = { 0 };

    assert_int_equal(store_open(&w.loop, w.dir, &w.store, &err), 0);
    opts.store = w.store;
    w.fake = (struct fake){ .base = { &fake_ops }, .is_up = true };
    assert_int_equal(lifecycle_new(&opts, &w.lifecycle, &err), 0);
    assert_int_equal(lifecycle_load(w.lifecycle, &err), 0);
}

/* As if the process had been killed: what was written stays, what was not answered never is. */
static _unused_ void close_all(void)
{
    store_close(w.store);
    w.store = NULL;
    lifecycle_free(w.lifecycle);
    w.lifecycle = NULL;
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
}

static _unused_ int setup(void **state)
{
    (void)state;
    w = (struct world){ .dir = "/tmp/abx-lifecycle-XXXXXX" };
    if (!mkdtemp(w.dir) || uv_loop_init(&w.loop) < 0)
        return -1;
    open_all();
    return 0;
}

static _unused_ int teardown(void **state)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    (void)state;
    close_all();
    if (uv_loop_close(&w.loop) < 0)
        return -1;
    return path_remove_tree(tmp, w.dir + strlen("/tmp/"), NULL);
}

static _unused_ void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* Runs the loop until `done` is true, for 5 s at most. */
static _unused_ bool run_until(bool (*done)(void *user), void *user)
{
    int64_t deadline = time_mono_ns() + 5 * NSEC_PER_SEC;
    uv_timer_t tick;
    bool is_done;

    (void)uv_timer_init(&w.loop, &tick);
    (void)uv_timer_start(&tick, on_tick, 1, 1);
    while (!(is_done = done(user)) && time_mono_ns() < deadline)
        (void)uv_run(&w.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    return is_done;
}

struct answer {
    unsigned n;
    int status;
    int code;
    bool is_clean;
    char body[128];
};

static _unused_ void on_created(void *user, int status, const char *body,
                                const struct abx_err *failure, bool is_clean)
{
    struct answer *a = user;

    a->n++;
    a->status = status;
    a->code = failure ? failure->code : 0;
    a->is_clean = is_clean;
    (void)snprintf(a->body, sizeof a->body, "%s", body ? body : "");
}

struct kill_answer {
    unsigned n;
    bool existed;
};

static _unused_ void on_killed(void *user, bool existed)
{
    struct kill_answer *a = user;

    a->n++;
    a->existed = existed;
}

static _unused_ bool is_answered(void *user)
{
    return ((struct answer *)user)->n > 0;
}

static _unused_ bool is_asked(void *user)
{
    (void)user;
    return w.fake.created != NULL;
}

static _unused_ bool is_empty(void *user)
{
    (void)user;
    return lifecycle_count(w.lifecycle) == 0;
}

static _unused_ void create(const char *key, int64_t timeout_ms, struct answer *a,
                            char id[SANDBOX_ID_SIZE])
{
    json_t *config = json_pack("{s:{s:s}}", "metadata", "k", "v");
    struct driver_env env = { "NAME", "value" };
    struct sandbox_spec spec = {
        .team = "t",
        .template_id = "tpl",
        .build_id = "b",
        .digest = "d",
        .alias = "base",
        .is_secure = true,
        .timeout_ms = timeout_ms,
        .cpu_count = 1,
        .memory_mb = 2,
        .disk_mb = 3,
        .config = config,
        .envs = &env,
        .n_envs = 1,
        .idempotency_key = key,
        .request_hash = "h",
        .request_id = "r",
    };
    struct abx_err err = { 0 };

    assert_int_equal(lifecycle_create(w.lifecycle, &spec, on_created, a, id, &err), 0);
    json_decref(config);
    assert_int_equal(a->n, 0);
}

static _unused_ enum sandbox_state state_of(const char *id)
{
    struct sandbox *sb = lifecycle_find(w.lifecycle, id);

    return sb ? sb->state : SANDBOX_STATES_;
}

/* Brings a new sandbox into a state. */
static _unused_ void reach(enum sandbox_state want, struct answer *a, char id[SANDBOX_ID_SIZE])
{
    struct abx_err err = { 0 };

    create("", 60000, a, id);
    if (want >= SANDBOX_STARTING)
        assert_true(run_until(is_asked, NULL));
    if (want >= SANDBOX_COMMITTING)
        end_create(NULL);
    if (want >= SANDBOX_RUNNING)
        assert_true(run_until(is_answered, a));
    if (want >= SANDBOX_KILLING)
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    if (want >= SANDBOX_REMOVING) {
        if (w.has_gateway)
            lifecycle_told(w.lifecycle, id);
        assert_true(end_kills(NULL));
    }
    assert_int_equal(state_of(id), want);
}

/* Gives every answer that is waited for until nothing is left to answer. */
static _unused_ bool settle(void *user)
{
    const char *id = user;
    enum sandbox_state s;

    if (w.fake.created)
        end_create(NULL);
    (void)end_kills(NULL);
    s = state_of(id);
    if (s == SANDBOX_KILLING && w.has_gateway)
        lifecycle_told(w.lifecycle, id);
    return s == SANDBOX_STATES_ || s == SANDBOX_RUNNING;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
