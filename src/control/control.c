/* control.c - putting the parts together. See control.h. */
#include "control/control.h"

#include <stdio.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "control/render.h"
#include "control/snapshots.h"
#include "control/table.h"
#include "control/usage.h"

#define PRUNE_EVERY_MS 5000u
#define PRUNE_STEP 2500u /* rows of each kind: more than may come meanwhile */
#define COMPARE_EVERY_MS 30000u
#define DOWN_TOLD_MS 5000u                     /* requests wait so long for the driver */
#define KEYS_KEPT_MS INT64_C(86400000)         /* idempotency: 24 h */
#define EVENTS_KEPT_MS (7 * INT64_C(86400000)) /* a week */
#define EVENTS_KEPT_MAX 1000000u

/* --- driver's events ---------------------------------------------------------------------------- */

static void on_up(void *user)
{
    struct control *c = user;
    struct abx_err err = { 0 };

    (void)uv_timer_stop(&c->down_timer);
    log_info("driver is up", NULL);
    lifecycle_driver_up(c->lifecycle);
    if (templates_refresh(c->templates, NULL, NULL, &err) < 0)
        log_err("cannot ask for templates", &err);
}

static void on_still_down(uv_timer_t *t)
{
    (void)t;
    log_warn("driver does not come back: requests fail", NULL);
}

/* Its end is the supervisor's to tell, and part of every stop that ends sandboxes. */
static void on_down(void *user)
{
    struct control *c = user;

    log_info("driver is down", NULL);
    (void)uv_timer_start(&c->down_timer, on_still_down, DOWN_TOLD_MS, 0);
}

static void on_died(void *user, const char *sandbox_id, const char *reason)
{
    struct control *c = user;

    lifecycle_died(c->lifecycle, sandbox_id, reason);
}

/* --- lifecycle's hooks -------------------------------------------------------------------------- */

static void on_visible(void *user, struct sandbox *sb)
{
    struct control *c = user;

    if (c->table)
        table_put(c->table, sb);
}

static bool on_drop(void *user, struct sandbox *sb)
{
    struct control *c = user;

    usage_flush(c->usage, sb);
    return c->table && table_drop(c->table, sb->id);
}

static int on_check(void *user, struct sandbox *sb, store_done_fn done, void *done_user,
                    struct abx_err *err)
{
    struct control *c = user;

    return c->table ? table_check(c->table, sb->id, done, done_user, err)
                    : err_set(err, ABX_UNAVAILABLE, "there is no gateway");
}

static bool on_hold(void *user, struct sandbox *sb)
{
    struct control *c = user;

    usage_flush(c->usage, sb);
    return c->table && table_hold(c->table, sb->id);
}

static int render_created(void *user, const struct sandbox *sb, struct buf *body)
{
    struct control *c = user;
    struct render_context context = { c->seed, c->client_id, c->domain,
                                      sb->origin[0] ? sb->origin : c->opts.origin };

    return render_text(render_sandbox(&context, sb), body, NULL);
}

static void on_create_end(void *user, const struct abx_err *failure, int64_t ns)
{
    struct control_counters *n = ((struct control *)user)->counters;
    size_t result = failure ? (size_t)(-1000 - failure->code) : 0;

    count_add(&n->creates[result < COUNT_RESULTS ? result : (size_t)(-1000 - ABX_UNKNOWN)], 1);
    if (!failure)
        histogram_add(&n->create_seconds, ns);
}

static void on_kill_end(void *user, const char *reason, int64_t ns)
{
    static const struct {
        const char *reason;
        enum count_kill kind;
    } kinds[] = {
        { "request", COUNT_KILL_REQUEST }, { "timeout", COUNT_KILL_TIMEOUT },
        { "failed", COUNT_KILL_FAILED },   { "abandoned", COUNT_KILL_FAILED },
        { "exit", COUNT_KILL_DIED },       { "oom", COUNT_KILL_DIED },
        { "signal", COUNT_KILL_DIED },     { "lost", COUNT_KILL_DIED },
        { "died", COUNT_KILL_DIED },
    };
    struct control_counters *n = ((struct control *)user)->counters;
    enum count_kill kind = COUNT_KILL_OTHER;

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i].reason, reason) == 0)
            kind = kinds[i].kind;
    count_add(&n->kills[kind], 1);
    histogram_add(&n->kill_seconds, ns);
}

/* --- life --------------------------------------------------------------------------------------- */

static void on_prune(uv_timer_t *t)
{
    struct control *c = container_of(t, struct control, prune_timer);
    int64_t now = time_wall_ms();
    const struct store_pruning what = {
        .of = { [STORE_PRUNED_KEYS] = { now - KEYS_KEPT_MS, c->opts.max_idempotency_keys },
                [STORE_PRUNED_EVENTS] = { now - EVENTS_KEPT_MS, EVENTS_KEPT_MAX },
                [STORE_PRUNED_LOGS] = { now - LOGS_KEPT_MS, c->opts.max_log_lines },
                [STORE_PRUNED_METRICS] = { .before_ms = now - c->opts.metrics_keep_s * 1000 } },
        .step = PRUNE_STEP,
    };
    struct abx_err err = { 0 };

    if (store_prune(c->store, &what, NULL, NULL, &err) < 0)
        log_debug("old rows stay for now", "why", err.msg, NULL);
}

/* Not only after a restart: whatever went wrong between the two sides does not stay. */
static void on_compare(uv_timer_t *t)
{
    struct control *c = container_of(t, struct control, compare_timer);

    if (c->driver->ops->is_up(c->driver))
        lifecycle_driver_up(c->lifecycle);
}

/* "localhost:PORT" when no domain is given: a domain that is null would send SDKs to E2B's cloud. */
static void choose_domain(struct control *c)
{
    const char *port = strrchr(c->opts.origin, ':');

    if (c->opts.domain)
        (void)snprintf(c->domain, sizeof c->domain, "%s", c->opts.domain);
    else if (port && port[1] >= '0' && port[1] <= '9')
        (void)snprintf(c->domain, sizeof c->domain, "localhost%s", port);
    else
        (void)snprintf(c->domain, sizeof c->domain, "localhost");
}

static int load_identity(struct control *c, struct abx_err *err)
{
    uint8_t raw[TOKEN_SEED_SIZE];
    char fresh[2 * TOKEN_SEED_SIZE + 1], kept[2 * TOKEN_SEED_SIZE + 1], id[UUID_SIZE];
    int r;

    random_bytes(raw, sizeof raw);
    hex_encode(raw, sizeof raw, fresh);
    r = store_meta_ensure(c->store, "token_seed", fresh, kept, sizeof kept, err);
    if (r < 0)
        return r;
    if (!hex_decode(slice_str(kept), c->seed, sizeof c->seed))
        return err_set(err, ABX_DATA_LOSS, "the seed of the tokens is damaged");
    uuid_new(id);
    return store_team_ensure(c->store, TEAM_SLUG, id, c->team, sizeof c->team, err);
}

static int load_all(struct control *c, const char *engine_sock, struct abx_err *err)
{
    struct lifecycle_opts opts = {
        .loop = c->loop,
        .store = c->store,
        .seed = c->seed,
        .on_visible = on_visible,
        .on_check = on_check,
        .on_hold = on_hold,
        .on_drop = on_drop,
        .render = render_created,
        .on_create_end = on_create_end,
        .on_kill_end = on_kill_end,
        .user = c,
    };
    struct driver_events events = { on_up, on_down, on_died, c };
    int r = load_identity(c, err);

    if (r == 0)
        r = keyring_new(c->store, &c->keys, err);
    if (r == 0)
        r = templates_new(c->store, c->team, TEAM_SLUG, &c->templates, err);
    if (r == 0)
        r = lifecycle_new(&opts, &c->lifecycle, err);
    if (r == 0)
        r = table_new(c->loop, c->opts.instance, c->lifecycle, c->seed, c->opts.max_sandboxes,
                      &c->table, err);
    if (r == 0)
        r = snapshots_new(c->store, c->lifecycle, &c->snapshots, err);
    if (r == 0)
        table_set_log(c->table, logs_take, c);
    /* Without a driver the sandboxes are left alone. */
    if (r < 0 || !engine_sock)
        return r;
    /* Last of what reads: it queues the first writes. */
    r = lifecycle_load(c->lifecycle, err);
    if (r == 0)
        r = driver_local_new(c->loop, engine_sock, &events, &c->driver, err);
    if (r < 0)
        return r;
    lifecycle_set_driver(c->lifecycle, c->driver);
    templates_set_driver(c->templates, c->driver);
    return usage_new(c->loop, c->lifecycle, c->driver, c->store, &c->usage, err);
}

int control_open(struct control *c, const char *dir, const char *engine_sock, struct abx_err *err)
{
    int r;

    choose_domain(c);
    (void)snprintf(c->client_id, sizeof c->client_id, "%.8s", c->opts.instance);
    (void)uv_timer_init(c->loop, &c->prune_timer);
    (void)uv_timer_init(c->loop, &c->compare_timer);
    (void)uv_timer_init(c->loop, &c->down_timer);
    r = store_open(c->loop, dir, &c->store, err);
    if (r == 0)
        r = load_all(c, engine_sock, err);
    if (r < 0 || !engine_sock)
        return r;
    (void)uv_timer_start(&c->prune_timer, on_prune, 1000, PRUNE_EVERY_MS);
    (void)uv_timer_start(&c->compare_timer, on_compare, COMPARE_EVERY_MS, COMPARE_EVERY_MS);
    return 0;
}

void control_close(struct control *c)
{
    uv_close((uv_handle_t *)&c->prune_timer, NULL);
    uv_close((uv_handle_t *)&c->compare_timer, NULL);
    usage_close(TAKE_PTR(c->usage));
    if (c->driver)
        c->driver->ops->close(c->driver);
    uv_close((uv_handle_t *)&c->down_timer, NULL); /* what the driver says last may start it */
    /* What is in flight at the driver ends in the next turns and may still write. */
    for (int i = 0; i < 3; i++)
        (void)uv_run(c->loop, UV_RUN_NOWAIT);
    table_close(TAKE_PTR(c->table));
    store_close(TAKE_PTR(c->store));
}

void control_free(struct control *c)
{
    lifecycle_free(c->lifecycle);
    snapshots_free(c->snapshots);
    templates_free(c->templates);
    keyring_free(c->keys);
    if (c->driver)
        c->driver->ops->free(c->driver);
}
