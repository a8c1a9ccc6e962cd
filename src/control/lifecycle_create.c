/* lifecycle_create.c - how sandboxes are made: row, driver, row; idempotency keys. See machine.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"
#include "e2b/errors.h"
#include "e2b/tokens.h"

#define START_AGAIN_MS 200

static const struct change no_change;

/* --- answers ----------------------------------------------------------------------------------- */

void lifecycle_answer_creators(struct sandbox *sb, int status, const char *body,
                               const struct abx_err *failure, bool is_clean)
{
    struct create_waiter *w = sb->creators;

    sb->creators = NULL;
    sb->is_answered = true;
    while (w) {
        struct create_waiter *next = w->next;

        w->done(w->user, status, body, failure, is_clean);
        free(w);
        w = next;
    }
}

static int add_creator(struct sandbox *sb, sandbox_created_fn done, void *user, struct abx_err *err)
{
    struct create_waiter *w = calloc(1, sizeof(*w)), **end = &sb->creators;

    if (!w)
        return err_oom(err);
    w->done = done;
    w->user = user;
    while (*end)
        end = &(*end)->next;
    *end = w;
    return 0;
}

void lifecycle_count_create(const struct sandbox *sb, const struct abx_err *failure)
{
    const struct lifecycle_opts *o = &sb->lifecycle->opts;

    if (o->on_create_end)
        o->on_create_end(o->user, failure, time_mono_ns() - sb->t_begin_ns);
}

/* --- creating ---------------------------------------------------------------------------------- */

static void on_started(void *user, const struct driver_created *created,
                       const struct abx_err *failure, bool was_sent);
static void on_committed(void *user, const struct abx_err *failure);

/* Which step it was belongs to every failure. */
static void name_step(struct abx_err *err, enum sandbox_state state)
{
    (void)err_wrap(err, err->code, "Failed to create sandbox while %s", machine_state(state)->name);
}

/* Creators hear of the failure at once; what may be left of the sandbox is killed behind them. An
 * idempotency key is kept only for answers that another try would get again. */
static void fail_create(struct sandbox *sb, enum sandbox_state from, const struct abx_err *failure,
                        bool is_clean)
{
    int status = err_http_status(failure);
    bool is_final = status >= 400 && status < 500 && status != 404 && status != 429;
    _cleanup_(buf_done) struct buf body = BUF_INIT(65536);
    struct store_answer answer = { 0, NULL };

    if (is_final && e2b_error_body_from(&body, failure) == BUF_OK && buf_cstr(&body))
        answer = (struct store_answer){ status, buf_cstr(&body) };
    sb->is_killed |= is_clean;
    lifecycle_count_create(sb, failure);
    /* The row first: what answers the creators may start the same create again. */
    lifecycle_end(sb, from, "failed", &answer);
    lifecycle_answer_creators(sb, 0, NULL, failure, is_clean);
}

int lifecycle_check_limit(const struct sandbox *sb, size_t others, size_t max_active,
                          struct abx_err *err)
{
    (void)sb;
    if (max_active == 0 || others < max_active)
        return 0;
    return err_reason(err, ABX_REASON_RATE_LIMITED,
                      "you have reached the maximum number of concurrent E2B sandboxes (%zu). If "
                      "you need more, please visit 'https://e2b.dev/docs/billing'",
                      max_active);
}

/* The limit counts here, behind the idempotency key: a repeated request gets its first answer. */
static int may_start(struct sandbox *sb, struct abx_err *err)
{
    if (sb->wants_kill)
        return err_set(err, ABX_ABORTED, "Sandbox '%s' was killed while it was created", sb->id);
    return lifecycle_check_limit(sb, lifecycle_count_active(sb->lifecycle, sb->team, sb),
                                 sb->max_active, err);
}

int lifecycle_start(struct sandbox *sb, struct abx_err *err)
{
    struct driver *d = sb->lifecycle->opts.driver;
    char token[TOKEN_SIZE] = "";
    struct driver_create req = {
        .sandbox_id = sb->id,
        .digest = sb->digest,
        .template_id = sb->template_id,
        .access_token = token,
        .cpu_count = sb->cpu_count,
        .memory_mb = sb->memory_mb,
        .disk_mb = sb->disk_mb,
        .envs = sb->envs,
        .n_envs = sb->n_envs,
        .request_id = sb->request_id,
        .is_resume = sb->state == SANDBOX_WAKING || sb->state == SANDBOX_RESTARTING ||
                     sb->clone_of[0] != '\0',
    };
    int r;

    if (sb->is_secure)
        access_token_make(sb->lifecycle->opts.seed, sb->id, token);
    r = fault_at(sb->state == SANDBOX_WAKING       ? "resume.start"
                 : sb->state == SANDBOX_RESTARTING ? "rollback.start"
                                                   : "create.start",
                 err);
    if (r == 0)
        r = d->ops->create(d, &req, on_started, sb, err);
    sb->has_start = r == 0;
    return r;
}

/* The files are there by now: it starts like one that is resumed. */
static void on_cloned(void *user, uint32_t us, const struct abx_err *failure)
{
    struct sandbox *sb = user;
    struct abx_err err;

    (void)us;
    sb->has_start = false;
    if (sb->state == SANDBOX_KILLING)
        lifecycle_fire(sb, EV_START_ENDED,
                       &(struct change){ .failure = failure, .was_sent = true });
    else if (failure)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = failure, .was_sent = true });
    else if (lifecycle_start(sb, &err) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err, .was_sent = true });
}

/* While the driver is away it is waited for, as the driver itself does with a create. */
static int start_clone(struct sandbox *sb, struct abx_err *err)
{
    struct driver *d = sb->lifecycle->opts.driver;
    int r = fault_at("fork.files", err);

    if (r == 0)
        r = d->ops->clone(d, sb->clone_of, sb->id, on_cloned, sb, err);
    sb->has_start = r == 0;
    if (r != ABX_UNAVAILABLE ||
        time_mono_ns() - sb->t_written_ns > (int64_t)DRIVER_WAIT_MS * NSEC_PER_MSEC)
        return r;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, START_AGAIN_MS, 0);
    return 0;
}

void act_start_again(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    (void)c;
    if (sb->clone_of[0] && !sb->has_start && start_clone(sb, &err) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err });
}

void act_start(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = { 0 };

    (void)c;
    sb->t_written_ns = time_mono_ns();
    if (may_start(sb, &err) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err, .is_ours = true });
    else if ((sb->clone_of[0] ? start_clone(sb, &err) : lifecycle_start(sb, &err)) < 0)
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err });
}

void act_refuse_create(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    sb->kill_reason = "failed";
    if (c->failure) { /* else it has joined another one */
        err = *c->failure;
        if (!c->is_ours)
            name_step(&err, c->from);
        lifecycle_count_create(sb, &err);
    }
    lifecycle_answer_creators(sb, 0, NULL, c->failure ? &err : NULL, true);
    lifecycle_finish(sb);
}

static char *stages_json(const struct sandbox *sb, const struct driver_created *created)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(8192);
    struct driver_stage all[2 + 32] = {
        { "row", (uint32_t)((sb->t_written_ns - sb->t_begin_ns) / 1000) },
        { "driver", (uint32_t)((sb->t_started_ns - sb->t_written_ns) / 1000) },
    };
    size_t n = MIN(created->n_stages, ARRAY_SIZE(all) - 2);
    const char *text;

    memcpy(&all[2], created->stages, n * sizeof(*all));
    (void)buf_printf(&b, "{\"warm\":%s,", created->is_warm ? "true" : "false");
    if (sb->fork_of[0])
        (void)buf_printf(&b, "\"forkOf\":\"%s\",", sb->fork_of);
    if (sb->clone_of[0]) /* of a fork or a snapshot: the files alone */
        (void)buf_append_str(&b, "\"mode\":\"filesystem\",");
    (void)lifecycle_stages_put(&b, all, n + 2);
    if (buf_append_str(&b, "}") != BUF_OK)
        return NULL;
    text = buf_cstr(&b);
    return text ? strdup(text) : NULL;
}

static int submit_run(struct sandbox *sb, struct abx_err *err)
{
    struct lifecycle *l = sb->lifecycle;
    struct store_sandbox row = sandbox_row(sb, "running");
    char id[UUID_SIZE];
    struct store_event event = { id, "sandbox.lifecycle.created", sb->data, sb->started_ms };
    struct store_answer answer = { 201, sb->answer };
    int r = fault_at("create.commit", err);

    uuid_new(id);
    return r < 0 ? r
                 : store_sandbox_run(l->opts.store, &row, &answer, &event, on_committed, sb, err);
}

void lifecycle_take_created(struct sandbox *sb, const struct driver_created *created)
{
    sb->cpu_count = created->cpu_count;
    sb->memory_mb = created->memory_mb;
    sb->disk_mb = created->disk_mb;
    (void)snprintf(sb->execution_id, sizeof sb->execution_id, "%.63s", created->execution_id);
}

void act_commit(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;
    _cleanup_(buf_done) struct buf body = BUF_INIT(2u << 20);
    struct abx_err err = { 0 };
    const char *text = NULL;

    sb->t_started_ns = time_mono_ns();
    lifecycle_take_created(sb, c->created);
    sb->started_ms = time_wall_ms();
    sb->end_ms = sb->started_ms + sb->timeout_ms;
    sb->data = stages_json(sb, c->created);
    if (l->opts.render(l->opts.user, sb, &body) == 0)
        text = buf_cstr(&body);
    sb->answer = text ? strdup(text) : NULL;
    if (!sb->answer || !sb->data)
        (void)err_oom(&err);
    else if (submit_run(sb, &err) == 0)
        return;
    lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err });
}

/* The driver's own troubles are no fault of the client's request, whatever their code. */
static void judge_driver(struct abx_err *err)
{
    switch (err->code) {
    case ABX_DATA_LOSS: /* files of the snapshot that it begins with */
        err->reason = ABX_REASON_SAVED_STATE;
        break;
    case ABX_NOT_FOUND: /* the build */
    case ABX_RESOURCE_EXHAUSTED:
    case ABX_UNAVAILABLE:
    case ABX_DEADLINE_EXCEEDED:
        break;
    default:
        log_err("driver cannot create a sandbox", err);
        err->code = ABX_INTERNAL;
        err->reason = ABX_REASON_NONE;
        break;
    }
}

void act_fail_create(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;
    bool is_start = c->from == SANDBOX_STARTING;

    if (is_start && !c->is_ours)
        judge_driver(&err);
    if (!c->is_ours)
        name_step(&err, c->from);
    fail_create(sb, c->from, &err, is_start && !c->was_sent);
}

static void log_created(const struct sandbox *sb)
{
    char ms[24];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(time_mono_ns() - sb->t_begin_ns) / 1e6);
    log_info("sandbox created", "id", sb->id, "template", sb->alias, "ms", ms, "request",
             sb->request_id, NULL);
}

void act_open(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;
    char *body = TAKE_PTR(sb->answer);

    (void)c;
    (void)fault_at("create.answer", NULL);
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)sb->timeout_ms, 0);
    log_created(sb);
    lifecycle_count_create(sb, NULL);
    l->opts.on_visible(l->opts.user, sb);
    lifecycle_answer_creators(sb, 201, body, NULL, false);
    free(body);
    if (sb->state != SANDBOX_RUNNING)
        return;
    if (sb->has_died)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = sb->kill_reason });
    else if (sb->wants_kill)
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = sb->kill_reason });
}

/* --- completions ------------------------------------------------------------------------------- */

static void on_started(void *user, const struct driver_created *created,
                       const struct abx_err *failure, bool was_sent)
{
    struct sandbox *sb = user;
    struct change c = { .failure = failure, .created = created, .was_sent = was_sent };

    sb->has_start = false;
    if (sb->state == SANDBOX_KILLING)
        lifecycle_fire(sb, EV_START_ENDED, &c);
    else
        lifecycle_fire(sb, lifecycle_outcome(sb, failure), &c);
}

static void on_committed(void *user, const struct abx_err *failure)
{
    lifecycle_fire(user, failure ? EV_FAILED : EV_DONE, &(struct change){ .failure = failure });
}

/* --- calls ------------------------------------------------------------------------------------- */

/* A create that waits for its row; when its idempotency key is taken it becomes another one's. */
struct claim {
    struct sandbox *sb;
    unsigned tries;
    char request_hash[TOKEN_SIZE];
};

#define CLAIM_TRIES 8

static void on_claimed(void *user, const struct store_created *created,
                       const struct abx_err *failure);

static int submit_claim(struct claim *claim, struct abx_err *err)
{
    struct store_sandbox row = sandbox_row(claim->sb, "creating");
    int r = fault_at("create.row", err);

    claim->tries++;
    return r < 0 ? r
                 : store_sandbox_create(claim->sb->lifecycle->opts.store, &row, claim->request_hash,
                                        on_claimed, claim, err);
}

/* The first create with this key: its answer, when it has one, else its creators are joined. False:
 * it has just ended, the key is free again or about to be. */
static bool join(struct sandbox *mine, const struct store_created *created)
{
    struct sandbox *first = lifecycle_find(mine->lifecycle, created->sandbox_id);
    struct create_waiter **end;

    if (created->status != 0) {
        lifecycle_answer_creators(mine, created->status, created->body, NULL, false);
        return true;
    }
    if (!first || first == mine || first->state > SANDBOX_COMMITTING)
        return false;
    for (end = &first->creators; *end;)
        end = &(*end)->next;
    *end = TAKE_PTR(mine->creators);
    return true;
}

static void on_claimed(void *user, const struct store_created *created,
                       const struct abx_err *failure)
{
    _cleanup_(freep) struct claim *claim = user;
    struct sandbox *sb = claim->sb;
    struct abx_err err = { 0 };

    if (failure) {
        lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = failure });
        return;
    }
    switch (created->claim) {
    case STORE_NEW:
        lifecycle_fire(sb, EV_DONE, &no_change);
        return;
    case STORE_SAME:
        if (join(sb, created)) {
            lifecycle_fire(sb, EV_FAILED, &no_change); /* nobody waits for this one any more */
            return;
        }
        if (claim->tries < CLAIM_TRIES && submit_claim(claim, &err) == 0) {
            (void)TAKE_PTR(claim);
            return;
        }
        (void)err_reason(&err, ABX_REASON_BUSY,
                         "the first request with this Idempotency-Key is ending");
        break;
    case STORE_OTHER:
        (void)err_reason(&err, ABX_REASON_CONFLICT,
                         "Idempotency-Key was already used with a different request");
        break;
    }
    lifecycle_fire(sb, EV_FAILED, &(struct change){ .failure = &err, .is_ours = true });
}

int lifecycle_create(struct lifecycle *l, const struct sandbox_spec *spec, sandbox_created_fn done,
                     void *user, char ret_id[SANDBOX_ID_SIZE], struct abx_err *err)
{
    _cleanup_(freep) struct claim *claim = calloc(1, sizeof(*claim));
    struct sandbox *sb = sandbox_new(l, err);
    int r;

    if (!claim || !sb) {
        if (sb)
            sandbox_free_later(sb);
        return err_oom(err);
    }
    claim->sb = sb;
    (void)snprintf(claim->request_hash, sizeof claim->request_hash, "%s", spec->request_hash);
    sb->t_begin_ns = time_mono_ns();
    lifecycle_stages_begin(sb);
    r = sandbox_from_spec(sb, spec, err);
    if (r == 0)
        r = add_creator(sb, done, user, err);
    if (r == 0)
        r = table_add(l, sb, err);
    if (r == 0) {
        r = submit_claim(claim, err);
        if (r < 0) {
            table_remove(l, sb);
            if (err)
                name_step(err, SANDBOX_WRITING);
        }
    }
    if (r < 0) {
        free(sb->creators);
        sandbox_free_later(sb);
        return r;
    }
    memcpy(ret_id, sb->id, sizeof sb->id);
    (void)TAKE_PTR(claim);
    return 0;
}
