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

/* A freeze, thaw, stop, clone or exchange; one at a time is open. */
struct change_call {
    driver_done_fn done;
    void *user;
    enum driver_state leads_to;
};

struct fake {
    struct driver base;
    struct change_call change;
    enum driver_state state; /* of all sandboxes */
    unsigned n_freezes, n_thaws, n_stops, n_clones;
    unsigned n_exchanges;
    char cloned_id[SANDBOX_ID_SIZE];
    char clone_of[SANDBOX_ID_SIZE];
    char exchanged_id[SANDBOX_ID_SIZE]; /* the copy of the last exchange */
    bool is_synced;                     /* as the last freeze or exchange was asked */
    bool is_brief;                      /* as the last freeze was */
    bool is_resume;                     /* as the last create was */
    char env[64];                       /* of the last create */
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
    bool hides_stopped;
};

struct world {
    char dir[64];
    uv_loop_t loop;
    struct store *store;
    struct lifecycle *lifecycle;
    struct fake fake;
    uint8_t seed[TOKEN_SEED_SIZE];
    bool has_gateway; /* then drops wait for lifecycle_told */
    unsigned n_visible, n_drops, n_holds;
    store_done_fn checked; /* open check of a guest's health */
    void *checked_user;
    unsigned n_checks;
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
    f->is_resume = req->is_resume;
    (void)snprintf(f->env, sizeof f->env, "%s=%s", req->n_envs ? req->envs[0].name : "",
                   req->n_envs ? req->envs[0].value : "");
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

static _unused_ int fake_change(struct driver *d, enum driver_state to, driver_done_fn done,
                                void *user, struct abx_err *err)
{
    struct fake *f = fake_of(d);

    if (!f->is_up)
        return err_set(err, ABX_UNAVAILABLE, "away");
    f->change = (struct change_call){ done, user, to };
    return 0;
}

static _unused_ int fake_freeze(struct driver *d, const char *id, enum driver_freeze what,
                                driver_done_fn done, void *user, struct abx_err *err)
{
    (void)id;
    fake_of(d)->n_freezes++;
    fake_of(d)->is_synced = what == DRIVER_FREEZE_FILES;
    fake_of(d)->is_brief = what == DRIVER_FREEZE_BRIEF;
    return fake_change(d, DRIVER_FROZEN, done, user, err);
}

static _unused_ int fake_thaw(struct driver *d, const char *id, bool is_resume, driver_done_fn done,
                              void *user, struct abx_err *err)
{
    (void)id;
    fake_of(d)->n_thaws++;
    fake_of(d)->is_resume = is_resume;
    return fake_change(d, DRIVER_RUNS, done, user, err);
}

static _unused_ int fake_stop(struct driver *d, const char *id, driver_done_fn done, void *user,
                              struct abx_err *err)
{
    (void)id;
    fake_of(d)->n_stops++;
    return fake_change(d, DRIVER_STOPPED, done, user, err);
}

static _unused_ int fake_clone(struct driver *d, const char *id, const char *new_id,
                               driver_done_fn done, void *user, struct abx_err *err)
{
    struct fake *f = fake_of(d);

    f->n_clones++;
    (void)snprintf(f->clone_of, sizeof f->clone_of, "%s", id);
    (void)snprintf(f->cloned_id, sizeof f->cloned_id, "%s", new_id);
    return fake_change(d, f->state, done, user, err);
}

static _unused_ int fake_exchange(struct driver *d, const char *id, const char *copy_id,
                                  bool is_synced, driver_done_fn done, void *user,
                                  struct abx_err *err)
{
    struct fake *f = fake_of(d);

    (void)id;
    f->n_exchanges++;
    f->is_synced = is_synced;
    (void)snprintf(f->exchanged_id, sizeof f->exchanged_id, "%s", copy_id);
    return fake_change(d, f->state, done, user, err);
}

static _unused_ bool end_change(const struct abx_err *failure)
{
    struct change_call c = w.fake.change;

    if (!c.done)
        return false;
    w.fake.change.done = NULL;
    if (!failure)
        w.fake.state = c.leads_to;
    c.done(c.user, 7, failure);
    return true;
}

/* The open one fails. */
static _unused_ void fail_change(int code, const char *text)
{
    struct abx_err failure;

    (void)err_set(&failure, code, "%s", text);
    assert_true(end_change(&failure));
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

static const struct driver_ops fake_ops = { .create = fake_create,
                                            .kill = fake_kill,
                                            .freeze = fake_freeze,
                                            .thaw = fake_thaw,
                                            .stop = fake_stop,
                                            .clone = fake_clone,
                                            .exchange = fake_exchange,
                                            .list = fake_list,
                                            .is_up = fake_is_up };

static _unused_ void end_create(const struct abx_err *failure)
{
    static const struct driver_stage stages[] = { { "clone", 100 } };
    struct driver_created made = { 2, 512, 1024, false, "x1", stages, 1 };
    driver_created_fn done = w.fake.created;

    assert_non_null(done);
    w.fake.created = NULL;
    if (!failure)
        w.fake.state = DRIVER_RUNS;
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
    struct driver_sandbox page[4];

    assert_non_null(done);
    assert_true(n <= ARRAY_SIZE(page));
    w.fake.listed = NULL;
    for (size_t i = 0; i < n; i++)
        page[i] = (struct driver_sandbox){ ids[i], w.fake.state };
    done(w.fake.listed_user, page, n, has_more, !w.fake.hides_stopped, NULL);
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

static _unused_ int on_check(void *user, struct sandbox *sb, store_done_fn done, void *done_user,
                             struct abx_err *err)
{
    (void)user;
    (void)sb;
    (void)err;
    assert_null(w.checked);
    w.checked = done;
    w.checked_user = done_user;
    w.n_checks++;
    return 0;
}

static _unused_ bool end_check(const struct abx_err *failure)
{
    store_done_fn done = w.checked;

    w.checked = NULL;
    if (done)
        done(w.checked_user, failure);
    return done != NULL;
}

static _unused_ bool on_hold(void *user, struct sandbox *sb)
{
    (void)user;
    (void)sb;
    w.n_holds++;
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
        .on_check = on_check,
        .on_hold = on_hold,
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
    if (w.fake.change.done)
        free(w.fake.change.user); /* what a driver frees with its last answer */
    w.fake.change.done = NULL;
    if (w.checked)
        free(w.checked_user);
    w.checked = NULL;
    w.lifecycle = NULL;
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
}

static _unused_ int setup(void **state)
{
    (void)state;
    w = (struct world){ 0 };
    /* In memory if possible: hundreds of databases are made, and each write of them is synced. */
    (void)snprintf(w.dir, sizeof w.dir, "%s/abx-lifecycle-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(w.dir) || uv_loop_init(&w.loop) < 0)
        return -1;
    open_all();
    return 0;
}

static _unused_ int teardown(void **state)
{
    _cleanup_(closep) int above = -EBADF;
    char *name = strrchr(w.dir, '/');

    (void)state;
    close_all();
    if (uv_loop_close(&w.loop) < 0)
        return -1;
    *name++ = '\0';
    above = open(w.dir, O_DIRECTORY | O_CLOEXEC);
    return path_remove_tree(above, name, NULL);
}

static _unused_ void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* Runs the loop until `done` is true, for a minute at most. */
static _unused_ bool run_until(bool (*done)(void *user), void *user)
{
    int64_t deadline = time_mono_ns() + 60 * NSEC_PER_SEC;
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
    char body[ABX_ERR_MSG_MAX]; /* or the failure's text */
};

static _unused_ void on_created(void *user, int status, const char *body,
                                const struct abx_err *failure, bool is_clean)
{
    struct answer *a = user;

    a->n++;
    a->status = status;
    a->code = failure ? failure->code : 0;
    a->is_clean = is_clean;
    (void)snprintf(a->body, sizeof a->body, "%s", body ? body : failure ? failure->msg : "");
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

static _unused_ struct sandbox *find(const char *id)
{
    return lifecycle_find(w.lifecycle, id);
}

static _unused_ bool runs(void *user)
{
    return state_of(user) == SANDBOX_RUNNING;
}

static _unused_ bool is_paused(void *user)
{
    return state_of(user) == SANDBOX_PAUSED;
}

struct request_answer {
    unsigned n;
    int status; /* 0 = a failure */
    int http;   /* of the failure */
    char text[ABX_ERR_MSG_MAX];
};

static _unused_ void on_requested(void *user, int status, const struct abx_err *failure)
{
    struct request_answer *a = user;

    a->n++;
    a->status = status;
    a->http = failure ? err_http_status(failure) : 0;
    (void)snprintf(a->text, sizeof a->text, "%s", failure ? failure->msg : "");
}

static _unused_ bool is_requested(void *user)
{
    return ((struct request_answer *)user)->n > 0;
}

static _unused_ void request_as(const char *id, const struct sandbox_request *request,
                                struct request_answer *a)
{
    struct abx_err err = { 0 };

    *a = (struct request_answer){ 0 };
    assert_int_equal(lifecycle_request(w.lifecycle, id, request, on_requested, a, &err), 0);
}

static _unused_ void request(const char *id, enum lifecycle_event what, bool drops_memory,
                             struct request_answer *a)
{
    request_as(id, &(struct sandbox_request){ what, 60000, drops_memory, false, 0 }, a);
}

static _unused_ bool has_change(void *user)
{
    (void)user;
    return w.fake.change.done != NULL;
}

static struct request_answer reached; /* of the requests that `reach` made */

/* From running, on the way to a pause and back. */
static _unused_ void reach_paused(enum sandbox_state want, const char *id)
{
    bool drops_memory = want == SANDBOX_STOPPING;
    bool has_gateway = w.has_gateway;

    if (want == SANDBOX_CHECKING) {
        request_as(id, &(struct sandbox_request){ .what = EV_PAUSE, .must_be_healthy = true },
                   &reached);
        return;
    }
    w.has_gateway = want == SANDBOX_DRAINING; /* else it is over at once */
    request(id, EV_PAUSE, drops_memory, &reached);
    w.has_gateway = has_gateway;
    if (want == SANDBOX_DRAINING || want == SANDBOX_FREEZING)
        return;
    if (want == SANDBOX_THAWING) {
        fail_change(ABX_DEADLINE_EXCEEDED, "not frozen");
        return;
    }
    assert_true(end_change(NULL));
    if (want == SANDBOX_SAVING)
        return;
    if (want == SANDBOX_STOPPING) {
        assert_true(run_until(has_change, NULL));
        return;
    }
    assert_true(run_until(is_requested, &reached));
    assert_int_equal(reached.status, 204);
    if (want == SANDBOX_PAUSED)
        return;
    request(id, EV_RESUME, false, &reached);
    if (want == SANDBOX_RESUMING)
        assert_true(end_change(NULL));
}

#define SNAPSHOT_ID "isnapshotsnapshotsnap"

static _unused_ void request_rollback(const char *id, struct request_answer *a)
{
    struct sandbox_request rq = { .what = EV_ROLLBACK, .snapshot_id = SNAPSHOT_ID };

    if (!lifecycle_is_kept(w.lifecycle, SNAPSHOT_ID))
        assert_int_equal(lifecycle_keep(w.lifecycle, SNAPSHOT_ID, NULL), 0);
    request_as(id, &rq, a);
}

/* From running or paused, on the way to a snapshot's files. */
static _unused_ void reach_rollback(enum sandbox_state want, const char *id)
{
    bool has_gateway = w.has_gateway;
    struct abx_err failure;

    w.has_gateway = want == SANDBOX_CLEARING; /* else it is over at once */
    request_rollback(id, &reached);
    while (state_of(id) != want) {
        assert_int_equal(reached.n, 0);
        if (w.fake.created) {
            (void)err_set(&failure, ABX_INTERNAL, "no start");
            end_create(want == SANDBOX_PARKING ? &failure : NULL);
        } else if (!end_change(NULL)) {
            assert_true(run_until(has_change, NULL));
        }
    }
    w.has_gateway = has_gateway;
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
    if (want == SANDBOX_COPYING)
        request(id, EV_COPY, false, &reached);
    else if (want > SANDBOX_RUNNING && want < SANDBOX_FETCHING)
        reach_paused(want, id);
    if (want >= SANDBOX_FETCHING_PAUSED && want < SANDBOX_PARKING)
        reach_paused(SANDBOX_PAUSED, id);
    if (want >= SANDBOX_FETCHING && want < SANDBOX_KILLING)
        reach_rollback(want, id);
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
    (void)end_change(NULL);
    (void)end_check(NULL);
    (void)end_kills(NULL);
    s = state_of(id);
    if (s == SANDBOX_KILLING && w.has_gateway)
        lifecycle_told(w.lifecycle, id);
    if ((s == SANDBOX_DRAINING || s == SANDBOX_CLEARING) && w.has_gateway)
        lifecycle_held(w.lifecycle, id);
    return s == SANDBOX_STATES_ || machine_state(s)->exit == EXIT_REST;
}

struct way {
    const char *id;
    enum sandbox_state to;
};

/* Ends the state's call, if it has one at the driver. */
static _unused_ bool step(void *user)
{
    const struct way *way = user;

    if (state_of(way->id) == way->to)
        return true;
    if (w.fake.created)
        end_create(NULL);
    else
        (void)end_change(NULL);
    return state_of(way->id) == way->to;
}

static _unused_ void go_to(const char *id, enum sandbox_state want)
{
    struct way way = { id, want };

    assert_true(run_until(step, &way));
}

/* As if control had been killed; what was asked of the driver is not answered any more. */
static _unused_ void start_anew(const char *id, enum driver_state there)
{
    const char *ids[] = { id };

    close_all();
    open_all();
    w.fake.state = there;
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
}

struct event_count {
    const char *type;
    bool is_over;
    unsigned n;
};

static _unused_ void count_event(void *user, const struct store_event *events, size_t n,
                                 const struct abx_err *failure)
{
    struct event_count *c = user;

    assert_null(failure);
    for (size_t i = 0; i < n; i++)
        c->n += strcmp(events[i].type, c->type) == 0;
    c->is_over = true;
}

static _unused_ bool has_counted(void *user)
{
    return ((struct event_count *)user)->is_over;
}

/* Events of a sandbox, behind all that was written. */
static _unused_ unsigned events_of(const char *id, const char *type)
{
    struct store_event_filter filter = { .team = "t", .sandbox_id = id, .limit = STORE_EVENTS_MAX };
    struct event_count c = { .type = type };

    assert_int_equal(store_events(w.store, &filter, count_event, &c, NULL), 0);
    assert_true(run_until(has_counted, &c));
    return c.n;
}

static _unused_ unsigned kills_of(const char *id)
{
    unsigned n = 0;

    for (unsigned i = 0; i < w.fake.n_kills; i++)
        n += strcmp(w.fake.kills[i].id, id) == 0;
    return n;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
