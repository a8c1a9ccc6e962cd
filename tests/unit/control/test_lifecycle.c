/* The state machine with a real store and a driver whose answers the test gives: every outside event in
 * every state, then failures, idempotency, expiry, restarts and the comparison with the driver.
 */
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

static struct fake *fake_of(struct driver *d)
{
    return container_of(d, struct fake, base);
}

static int fake_create(struct driver *d, const struct driver_create *req, driver_created_fn done,
                       void *user, struct abx_err *err)
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

static int fake_kill(struct driver *d, const char *id, const char *request_id,
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

static int fake_list(struct driver *d, const char *after, driver_listed_fn done, void *user,
                     struct abx_err *err)
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

static bool fake_is_up(const struct driver *d)
{
    return ((const struct fake *)(const void *)d)->is_up;
}

static const struct driver_ops fake_ops = {
    .create = fake_create, .kill = fake_kill, .list = fake_list, .is_up = fake_is_up
};

static void end_create(const struct abx_err *failure)
{
    static const struct driver_stage stages[] = { { "clone", 100 } };
    struct driver_created made = { 2, 512, 1024, false, "x1", stages, 1 };
    driver_created_fn done = w.fake.created;

    assert_non_null(done);
    w.fake.created = NULL;
    done(w.fake.created_user, failure ? NULL : &made, failure, true);
}

/* Answers every open kill. */
static bool end_kills(const struct abx_err *failure)
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

static void end_list(const char *const *ids, size_t n, bool has_more)
{
    driver_listed_fn done = w.fake.listed;

    assert_non_null(done);
    w.fake.listed = NULL;
    done(w.fake.listed_user, ids, n, has_more, NULL);
}

/* --- world -------------------------------------------------------------------------------------- */

static void on_visible(void *user, struct sandbox *sb)
{
    (void)user;
    assert_true(sandbox_is_visible(sb));
    w.n_visible++;
}

static bool on_drop(void *user, struct sandbox *sb)
{
    (void)user;
    (void)sb;
    w.n_drops++;
    return w.has_gateway;
}

static int render(void *user, const struct sandbox *sb, struct buf *body)
{
    (void)user;
    return buf_printf(body, "{\"id\":\"%s\",\"memory\":%u}", sb->id, sb->memory_mb) == BUF_OK ? 0
                                                                                              : -1;
}

static void open_all(void)
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
static void close_all(void)
{
    store_close(w.store);
    w.store = NULL;
    lifecycle_free(w.lifecycle);
    w.lifecycle = NULL;
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
}

static int setup(void **state)
{
    (void)state;
    w = (struct world){ .dir = "/tmp/abx-lifecycle-XXXXXX" };
    if (!mkdtemp(w.dir) || uv_loop_init(&w.loop) < 0)
        return -1;
    open_all();
    return 0;
}

static int teardown(void **state)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    (void)state;
    close_all();
    if (uv_loop_close(&w.loop) < 0)
        return -1;
    return path_remove_tree(tmp, w.dir + strlen("/tmp/"), NULL);
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* Runs the loop until `done` is true, for 5 s at most. */
static bool run_until(bool (*done)(void *user), void *user)
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

static void on_created(void *user, int status, const char *body, const struct abx_err *failure,
                       bool is_clean)
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

static void on_killed(void *user, bool existed)
{
    struct kill_answer *a = user;

    a->n++;
    a->existed = existed;
}

static bool is_answered(void *user)
{
    return ((struct answer *)user)->n > 0;
}

static bool is_asked(void *user)
{
    (void)user;
    return w.fake.created != NULL;
}

static bool is_empty(void *user)
{
    (void)user;
    return lifecycle_count(w.lifecycle) == 0;
}

static void create(const char *key, int64_t timeout_ms, struct answer *a, char id[SANDBOX_ID_SIZE])
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

static enum sandbox_state state_of(const char *id)
{
    struct sandbox *sb = lifecycle_find(w.lifecycle, id);

    return sb ? sb->state : SANDBOX_STATES_;
}

/* Brings a new sandbox into a state. */
static void reach(enum sandbox_state want, struct answer *a, char id[SANDBOX_ID_SIZE])
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
static bool settle(void *user)
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

/* --- every event in every state ------------------------------------------------------------------ */

enum outside { KILL, DIED, UP, TOLD, ABANDON, OUTSIDE_COUNT };

struct cell {
    bool lives;           /* in the end */
    int status;           /* of the create's answer; 0 = a failure */
    bool existed;         /* for KILL: this one ended it */
    bool is_killed_there; /* the driver was asked to kill */
};

static const struct cell cells[SANDBOX_STATES_][OUTSIDE_COUNT] = {
    [SANDBOX_WRITING] = { [KILL] = { false, 0, true, false },
                          [DIED] = { true, 201, false, false },
                          [UP] = { true, 201, false, false },
                          [TOLD] = { true, 201, false, false },
                          [ABANDON] = { false, 0, false, false } },
    [SANDBOX_STARTING] = { [KILL] = { false, 0, true, true },
                           [DIED] = { false, 201, false, false },
                           [UP] = { true, 201, false, false },
                           [TOLD] = { true, 201, false, false },
                           [ABANDON] = { false, 0, false, true } },
    [SANDBOX_COMMITTING] = { [KILL] = { false, 201, true, true },
                             [DIED] = { false, 201, false, false },
                             [UP] = { true, 201, false, false },
                             [TOLD] = { true, 201, false, false },
                             [ABANDON] = { false, 201, false, true } },
    [SANDBOX_RUNNING] = { [KILL] = { false, 201, true, true },
                          [DIED] = { false, 201, false, false },
                          [UP] = { true, 201, false, false },
                          [TOLD] = { true, 201, false, false },
                          [ABANDON] = { false, 201, false, true } },
    [SANDBOX_KILLING] = { [KILL] = { false, 201, false, true },
                          [DIED] = { false, 201, false, true },
                          [UP] = { false, 201, false, true },
                          [TOLD] = { false, 201, false, true },
                          [ABANDON] = { false, 201, false, true } },
    [SANDBOX_REMOVING] = { [KILL] = { false, 201, false, true },
                           [DIED] = { false, 201, false, true },
                           [UP] = { false, 201, false, true },
                           [TOLD] = { false, 201, false, true },
                           [ABANDON] = { false, 201, false, true } },
};

static void fire_outside(enum outside ev, const char *id, struct kill_answer *killed)
{
    struct abx_err err = { 0 };

    switch (ev) {
    case KILL:
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, killed, &err), 0);
        assert_int_equal(killed->n, 0);
        break;
    case DIED:
        lifecycle_died(w.lifecycle, id, "exit");
        break;
    case UP:
        lifecycle_driver_up(w.lifecycle);
        break;
    case TOLD:
        lifecycle_told(w.lifecycle, id);
        break;
    case ABANDON:
        lifecycle_abandon(w.lifecycle, id);
        break;
    case OUTSIDE_COUNT:
        break;
    }
}

static void check_cell(enum sandbox_state s, enum outside ev)
{
    const struct cell *want = &cells[s][ev];
    struct kill_answer killed = { 0 };
    struct answer made = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };
    bool goes;

    reach(s, &made, id);
    fire_outside(ev, id, &killed);
    if (w.fake.listed)
        end_list(ids, 1, false);
    goes = run_until(settle, id);
    if (goes && want->lives)
        goes = run_until(is_answered, &made);
    else if (goes)
        goes = run_until(is_empty, NULL);
    if (!goes || (state_of(id) == SANDBOX_RUNNING) != want->lives || made.n != 1 ||
        made.status != want->status || (made.code == 0) != (want->status != 0) ||
        killed.n != (ev == KILL) || killed.existed != want->existed ||
        (w.fake.n_kills > 0) != want->is_killed_there)
        fail_msg("state %d, event %d: ended %d, lives %d, answers %u, status %d, killers %u, "
                 "existed %d, kills %u",
                 (int)s, (int)ev, goes, state_of(id) == SANDBOX_RUNNING, made.n, made.status,
                 killed.n, killed.existed, w.fake.n_kills);
}

static void check_all_cells(bool has_gateway)
{
    for (int s = 0; s < SANDBOX_STATES_; s++)
        for (int ev = 0; ev < OUTSIDE_COUNT; ev++) {
            w.has_gateway = has_gateway;
            check_cell((enum sandbox_state)s, (enum outside)ev);
            assert_int_equal(teardown(NULL), 0);
            assert_int_equal(setup(NULL), 0);
        }
}

static void every_event_in_every_state_without_gateways(void **state)
{
    (void)state;
    check_all_cells(false);
}

static void every_event_in_every_state_with_a_gateway(void **state)
{
    (void)state;
    check_all_cells(true);
}

/* --- creating ------------------------------------------------------------------------------------ */

static void a_created_sandbox_reports_what_was_enforced(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE], want[128];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    (void)snprintf(want, sizeof want, "{\"id\":\"%s\",\"memory\":512}", id);
    assert_string_equal(a.body, want);
    assert_int_equal(w.n_visible, 1);
    assert_null(lifecycle_find(w.lifecycle, id)->envs);
}

static void a_failed_start_is_answered_at_once_and_killed_behind(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    (void)err_set(&failure, ABX_PERMISSION_DENIED, "read-only file system");
    end_create(&failure);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.code, ABX_INTERNAL); /* not 403: no fault of the request's */
    assert_false(a.is_clean);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.n_visible, 0);
    assert_int_equal(w.n_drops, 0);
}

/* A gateway that asked about it while it was made has a row of it. */
static void a_failed_start_is_told_to_those_who_asked(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    lifecycle_find(w.lifecycle, id)->is_known = true;
    (void)err_set(&failure, ABX_UNAVAILABLE, "gone");
    end_create(&failure);
    assert_int_equal(w.n_drops, 1);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
}

static void a_driver_that_was_never_asked_need_not_kill(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    w.fake.is_up = false;
    create("", 60000, &a, id);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.code, ABX_UNAVAILABLE);
    assert_true(a.is_clean);
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.fake.n_kills, 0);
}

static void a_kill_before_the_start_ends_is_repeated_after_it(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(end_kills(NULL));
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    end_create(NULL);
    assert_int_equal(w.fake.n_kills, 2);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_true(end_kills(NULL));
    assert_int_equal(state_of(id), SANDBOX_REMOVING);
}

static void the_start_ends_while_the_first_kill_is_open(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), 0);
    end_create(NULL);
    assert_int_equal(w.fake.n_kills, 1);
    assert_true(end_kills(NULL));
    assert_int_equal(w.fake.n_kills, 2);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
}

static void a_failed_kill_is_tried_again_by_itself(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    reach(SANDBOX_KILLING, &a, id);
    (void)err_set(&failure, ABX_INTERNAL, "stuck");
    assert_true(end_kills(&failure));
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(w.fake.n_kills, 2);
}

static void only_the_first_of_many_killers_ended_it(void **state)
{
    struct kill_answer k[5] = { 0 };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    for (int i = 0; i < 5; i++)
        assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k[i], &err), 0);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k[i].n, 1);
        assert_int_equal(k[i].existed, i == 0);
    }
    assert_int_equal(w.fake.n_kills, 1);
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), ABX_NOT_FOUND);
}

/* --- idempotency --------------------------------------------------------------------------------- */

static bool both_answered(void *user)
{
    struct answer *a = user;

    return a[0].n > 0 && a[1].n > 0;
}

static void two_creates_with_one_key_get_one_sandbox(void **state)
{
    struct answer a[2] = { 0 };
    char id[2][SANDBOX_ID_SIZE];

    (void)state;
    create("key", 60000, &a[0], id[0]);
    create("key", 60000, &a[1], id[1]);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(both_answered, a));
    assert_string_equal(a[0].body, a[1].body);
    assert_int_equal(a[1].status, 201);
    assert_int_equal(w.fake.n_creates, 1);
    assert_int_equal(lifecycle_count(w.lifecycle), 1);
    /* With a key someone may ask again: going away does not undo it. */
    lifecycle_abandon(w.lifecycle, id[0]);
    assert_int_equal(state_of(id[0]), SANDBOX_RUNNING);
}

static void a_key_whose_create_failed_makes_a_new_one(void **state)
{
    struct answer a[2] = { 0 };
    char id[2][SANDBOX_ID_SIZE];
    struct abx_err failure;

    (void)state;
    create("key", 60000, &a[0], id[0]);
    assert_true(run_until(is_asked, NULL));
    (void)err_set(&failure, ABX_UNAVAILABLE, "the engine went away");
    end_create(&failure);
    create("key", 60000, &a[1], id[1]);
    assert_true(run_until(is_asked, NULL));
    assert_string_equal(w.fake.created_id, id[1]);
    end_create(NULL);
    assert_true(run_until(both_answered, a));
    assert_int_equal(a[1].status, 201);
}

/* --- time ---------------------------------------------------------------------------------------- */

static bool has_kill(void *user)
{
    (void)user;
    return w.fake.n_kills > 0;
}

static void time_runs_from_the_answer_and_can_be_moved(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;
    int64_t begin;

    (void)state;
    create("", 150, &a, id);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(is_answered, &a));
    begin = time_mono_ns();
    assert_true(run_until(has_kill, NULL));
    assert_true(time_mono_ns() - begin > 100 * NSEC_PER_MSEC);
    assert_true(run_until(settle, id));
    assert_true(run_until(is_empty, NULL));
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", NULL, NULL, &err), ABX_NOT_FOUND);
}

static void on_extended(void *user, const struct abx_err *failure)
{
    assert_null(failure);
    (*(unsigned *)user)++;
}

static bool is_counted(void *user)
{
    return *(unsigned *)user > 0;
}

static int64_t extend(const char *id, int64_t timeout_ms, bool only_longer)
{
    struct sandbox *sb = lifecycle_find(w.lifecycle, id);
    struct abx_err err = { 0 };
    unsigned n = 0;

    assert_int_equal(
        lifecycle_extend(w.lifecycle, sb, timeout_ms, only_longer, on_extended, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_true(run_until(is_counted, &n));
    return sb->end_ms - time_wall_ms();
}

static void extensions_move_the_end_and_only_longer_never_shortens(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    assert_true(extend(id, 100000, true) > 95000);
    assert_true(extend(id, 1000, true) > 95000);
    assert_in_range(extend(id, 20000, false), 15000, 20000);
    assert_true(extend(id, 50, false) <= 50);
    assert_true(run_until(has_kill, NULL));
}

/* --- restarts ------------------------------------------------------------------------------------ */

static bool is_alone(void *user)
{
    (void)settle(user);
    return lifecycle_count(w.lifecycle) == 1;
}

static void rows_of_a_killed_process_are_judged(void **state)
{
    struct answer a[5] = { 0 };
    char running[SANDBOX_ID_SIZE], creating[SANDBOX_ID_SIZE], killing[SANDBOX_ID_SIZE],
        overdue[SANDBOX_ID_SIZE], again[SANDBOX_ID_SIZE];
    const struct timespec pause = { .tv_nsec = 400 * NSEC_PER_MSEC };
    const char *ids[] = { running };

    (void)state;
    reach(SANDBOX_RUNNING, &a[0], running);
    reach(SANDBOX_KILLING, &a[1], killing);
    create("", 400, &a[2], overdue);
    assert_true(run_until(is_asked, NULL));
    end_create(NULL);
    assert_true(run_until(is_answered, &a[2]));
    create("key", 60000, &a[3], creating);
    assert_true(run_until(is_asked, NULL));
    close_all();
    (void)nanosleep(&pause, NULL);
    open_all();
    assert_int_equal(state_of(running), SANDBOX_RUNNING);
    assert_int_equal(state_of(overdue), SANDBOX_RUNNING);
    assert_int_equal(state_of(creating), SANDBOX_KILLING);
    assert_int_equal(state_of(killing), SANDBOX_KILLING);
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_true(run_until(is_alone, running));
    assert_int_equal(state_of(running), SANDBOX_RUNNING);
    /* The key of the create that was cut off is free. */
    create("key", 60000, &a[4], again);
    assert_true(run_until(is_asked, NULL));
    assert_string_equal(w.fake.created_id, again);
}

static void what_the_driver_does_not_know_has_died(void **state)
{
    struct answer a[3] = { 0 };
    char id[3][SANDBOX_ID_SIZE], stranger[] = "zstranger";
    const char *first[] = { id[0] }, *second[] = { stranger };

    (void)state;
    for (int i = 0; i < 2; i++)
        reach(SANDBOX_RUNNING, &a[i], id[i]);
    lifecycle_driver_up(w.lifecycle);
    assert_string_equal(w.fake.list_after, "");
    /* Made after the question: it may rightly be missing in the answer. */
    reach(SANDBOX_RUNNING, &a[2], id[2]);
    end_list(first, 1, true);
    assert_string_equal(w.fake.list_after, id[0]);
    assert_int_equal(w.fake.n_kills, 0);
    end_list(second, 1, false);
    assert_int_equal(w.fake.n_kills, 1);
    assert_string_equal(w.fake.kills[0].id, stranger);
    assert_int_equal(state_of(id[0]), SANDBOX_RUNNING);
    assert_int_equal(state_of(id[2]), SANDBOX_RUNNING);
    assert_int_not_equal(state_of(id[1]), SANDBOX_RUNNING);
    assert_true(end_kills(NULL));
    assert_true(run_until(settle, id[1]));
}

static void what_is_being_made_is_no_stranger(void **state)
{
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    const char *ids[] = { id };

    (void)state;
    reach(SANDBOX_STARTING, &a, id);
    lifecycle_driver_up(w.lifecycle);
    end_list(ids, 1, false);
    assert_int_equal(w.fake.n_kills, 0);
    end_create(NULL);
    assert_true(run_until(is_answered, &a));
    assert_int_equal(a.status, 201);
}

static void kills_wait_for_the_driver(void **state)
{
    struct kill_answer k = { 0 };
    struct answer a = { 0 };
    char id[SANDBOX_ID_SIZE];
    struct abx_err err;

    (void)state;
    reach(SANDBOX_RUNNING, &a, id);
    w.fake.is_up = false;
    assert_int_equal(lifecycle_kill(w.lifecycle, id, "request", on_killed, &k, &err), 0);
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    assert_int_equal(k.n, 0);
    assert_int_equal(state_of(id), SANDBOX_KILLING);
    w.fake.is_up = true;
    lifecycle_driver_up(w.lifecycle);
    assert_int_equal(w.fake.n_kills, 1);
    end_list(NULL, 0, false);
    assert_true(run_until(settle, id));
    assert_int_equal(k.n, 1);
    assert_true(k.existed);
}

static void active_sandboxes_are_counted_per_team(void **state)
{
    struct answer a[3] = { 0 };
    char id[SANDBOX_ID_SIZE];

    (void)state;
    reach(SANDBOX_RUNNING, &a[0], id);
    reach(SANDBOX_KILLING, &a[1], id);
    reach(SANDBOX_STARTING, &a[2], id);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "t", NULL), 2);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "u", NULL), 0);
    assert_int_equal(lifecycle_count_active(w.lifecycle, "t", lifecycle_find(w.lifecycle, id)), 1);
    assert_int_equal(lifecycle_count(w.lifecycle), 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(every_event_in_every_state_without_gateways),
        TEST(every_event_in_every_state_with_a_gateway),
        TEST(a_created_sandbox_reports_what_was_enforced),
        TEST(a_failed_start_is_answered_at_once_and_killed_behind),
        TEST(a_failed_start_is_told_to_those_who_asked),
        TEST(a_driver_that_was_never_asked_need_not_kill),
        TEST(a_kill_before_the_start_ends_is_repeated_after_it),
        TEST(the_start_ends_while_the_first_kill_is_open),
        TEST(a_failed_kill_is_tried_again_by_itself),
        TEST(only_the_first_of_many_killers_ended_it),
        TEST(two_creates_with_one_key_get_one_sandbox),
        TEST(a_key_whose_create_failed_makes_a_new_one),
        TEST(time_runs_from_the_answer_and_can_be_moved),
        TEST(extensions_move_the_end_and_only_longer_never_shortens),
        TEST(rows_of_a_killed_process_are_judged),
        TEST(what_the_driver_does_not_know_has_died),
        TEST(what_is_being_made_is_no_stranger),
        TEST(kills_wait_for_the_driver),
        TEST(active_sandboxes_are_counted_per_team),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("control_lifecycle", tests, NULL, NULL);
}
