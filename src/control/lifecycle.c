/* lifecycle.c - the state machine of sandboxes: one table, state x event -> action. See lifecycle.h. */
#include "control/lifecycle.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"
#include "e2b/errors.h"
#include "e2b/tokens.h"

#define KILL_RETRY_MS 500

static const struct change no_change;

/* --- answers ----------------------------------------------------------------------------------- */

static void answer_creators(struct sandbox *sb, int status, const char *body,
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

/* The end: out of the table, killers hear of it. */
static void finish(struct sandbox *sb)
{
    struct kill_waiter *w = sb->killers;

    sb->killers = NULL;
    table_remove(sb->lifecycle, sb);
    if (sb->started_ms > 0)
        log_info("sandbox ended", "id", sb->id, "reason", sb->kill_reason, NULL);
    sandbox_free_later(sb);
    while (w) {
        struct kill_waiter *next = w->next;

        w->done(w->user, w->is_first);
        free(w);
        w = next;
    }
}

/* --- killing ----------------------------------------------------------------------------------- */

static void on_removed(void *user, const struct abx_err *failure);
static void on_killed(void *user, bool existed, const struct abx_err *failure);

static void submit_remove(struct sandbox *sb)
{
    struct store_sandbox row = sandbox_row(sb, "killing");
    char id[UUID_SIZE], data[64];
    struct store_event event = { id, "sandbox.lifecycle.killed", data, time_wall_ms() };
    struct abx_err err = { 0 };

    uuid_new(id);
    (void)snprintf(data, sizeof data, "{\"reason\":\"%s\"}", sb->kill_reason);
    if (store_sandbox_remove(sb->lifecycle->opts.store, &row, sb->started_ms > 0 ? &event : NULL,
                             on_removed, sb, &err) == 0)
        sb->is_removing = true;
    else
        (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

static void check_killed(struct sandbox *sb)
{
    if (!sb->is_killed || !sb->is_told || sb->is_starting)
        return;
    sb->state = SANDBOX_REMOVING;
    (void)uv_timer_stop(&sb->timer);
    submit_remove(sb);
}

/* One kill at a time; a failed one is tried again by timer, or when the driver is back. */
static void send_kill(struct sandbox *sb)
{
    struct driver *d = sb->lifecycle->opts.driver;
    struct abx_err err = { 0 };

    if (sb->is_killing) {
        sb->must_kill = true;
        return;
    }
    if (d && d->ops->kill(d, sb->id, sb->request_id, on_killed, sb, &err) == 0)
        sb->is_killing = true;
    else
        (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

void lifecycle_enter_killing(struct sandbox *sb, const char *reason,
                             const struct store_answer *answer)
{
    struct lifecycle *l = sb->lifecycle;
    struct store_sandbox row = sandbox_row(sb, "killing");
    bool was_visible = sandbox_is_visible(sb) || sb->is_known;

    sb->state = SANDBOX_KILLING;
    sb->kill_reason = reason;
    (void)uv_timer_stop(&sb->timer);
    sandbox_forget_envs(sb);
    /* Not needed for safety (after a crash the row still says running, and so does the sandbox), so
     * that a full disk does not stop a kill. */
    (void)store_sandbox_killing(l->opts.store, &row, answer, NULL);
    sb->is_told = !was_visible || !l->opts.on_drop(l->opts.user, sb);
    if (!sb->is_killed)
        send_kill(sb);
    check_killed(sb);
}

static void kill_running(struct sandbox *sb, const struct change *c)
{
    lifecycle_enter_killing(sb, c->reason, NULL);
}

static void kill_starting(struct sandbox *sb, const struct change *c)
{
    struct store_answer forget = { 0, NULL };
    struct abx_err err;

    (void)err_set(&err, ABX_ABORTED, "Sandbox '%s' was killed while it was created", sb->id);
    sb->is_starting = true;
    answer_creators(sb, 0, NULL, &err, false);
    lifecycle_enter_killing(sb, c->reason, &forget);
}

/* While a write is on its way: first its end, then the kill. */
static void kill_later(struct sandbox *sb, const struct change *c)
{
    sb->wants_kill = true;
    sb->kill_reason = c->reason;
}

static void killed(struct sandbox *sb, const struct change *c)
{
    (void)c;
    sb->is_killing = false;
    if (sb->is_starting)
        return; /* the driver may still be making it: the kill after its answer counts */
    if (sb->must_kill) {
        sb->must_kill = false;
        send_kill(sb);
        return;
    }
    sb->is_killed = true;
    check_killed(sb);
}

static void kill_failed(struct sandbox *sb, const struct change *c)
{
    if (c->failure->code != ABX_UNAVAILABLE)
        log_warn("kill failed, trying again", "id", sb->id, "error", c->failure->msg, NULL);
    sb->is_killing = false;
    sb->must_kill = false;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, KILL_RETRY_MS, 0);
}

static void kill_again(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->is_killing && !sb->is_killed)
        send_kill(sb);
}

/* Killing, and the driver's answer to create came: whatever it is, one kill has to follow. */
static void start_ended(struct sandbox *sb, const struct change *c)
{
    sb->is_starting = false;
    if (c->failure && !c->was_sent && !sb->is_killing) {
        sb->is_killed = true;
        check_killed(sb);
        return;
    }
    send_kill(sb);
}

static void told(struct sandbox *sb, const struct change *c)
{
    (void)c;
    sb->is_told = true;
    check_killed(sb);
}

static void died_running(struct sandbox *sb, const struct change *c)
{
    sb->has_died = true;
    sb->is_killed = true;
    lifecycle_enter_killing(sb, c->reason, NULL);
}

static void died_early(struct sandbox *sb, const struct change *c)
{
    sb->has_died = true;
    sb->kill_reason = c->reason;
}

static void removed(struct sandbox *sb, const struct change *c)
{
    if (c->failure)
        /* The sandbox is gone all the same; after a restart the row means one more kill. */
        log_err("row of a dead sandbox cannot be deleted", c->failure);
    finish(sb);
}

static void remove_again(struct sandbox *sb, const struct change *c)
{
    (void)c;
    if (!sb->is_removing)
        submit_remove(sb);
}

/* --- creating ---------------------------------------------------------------------------------- */

static void on_started(void *user, const struct driver_created *created,
                       const struct abx_err *failure, bool was_sent);
static void on_committed(void *user, const struct abx_err *failure);

/* Creators hear of the failure at once; what may be left of the sandbox is killed behind them. An
 * idempotency key is kept only for answers that another try would get again. */
static void fail_create(struct sandbox *sb, const struct abx_err *failure, bool is_clean)
{
    int status = err_http_status(failure);
    bool is_final = status >= 400 && status < 500 && status != 404 && status != 429;
    _cleanup_(buf_done) struct buf body = BUF_INIT(65536);
    struct store_answer answer = { 0, NULL };

    if (is_final && e2b_error_body_from(&body, failure) == BUF_OK && buf_cstr(&body))
        answer = (struct store_answer){ status, buf_cstr(&body) };
    sb->is_killed |= is_clean;
    /* The row first: what answers the creators may start the same create again. */
    lifecycle_enter_killing(sb, "failed", &answer);
    answer_creators(sb, 0, NULL, failure, is_clean);
}

/* The limit counts here, behind the idempotency key: a repeated request gets its first answer. */
static int may_start(struct sandbox *sb, struct abx_err *err)
{
    if (sb->wants_kill)
        return err_set(err, ABX_ABORTED, "Sandbox '%s' was killed while it was created", sb->id);
    if (sb->max_active == 0 || lifecycle_count_active(sb->lifecycle, sb->team, sb) < sb->max_active)
        return 0;
    return err_reason(err, ABX_REASON_RATE_LIMITED,
                      "you have reached the maximum number of concurrent E2B sandboxes (%zu). If "
                      "you need more, please visit 'https://e2b.dev/docs/billing'",
                      sb->max_active);
}

static void written(struct sandbox *sb, const struct change *c)
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
    };
    struct abx_err err = { 0 };

    (void)c;
    sb->t_written_ns = time_mono_ns();
    if (may_start(sb, &err) < 0) {
        fail_create(sb, &err, true);
        return;
    }
    if (sb->is_secure)
        access_token_make(sb->lifecycle->opts.seed, sb->id, token);
    sb->state = SANDBOX_STARTING;
    if (d->ops->create(d, &req, on_started, sb, &err) < 0)
        lifecycle_fire(sb, EV_START_FAILED, &(struct change){ .failure = &err });
    else
        sandbox_forget_envs(sb);
}

static void write_failed(struct sandbox *sb, const struct change *c)
{
    sb->kill_reason = "failed";
    answer_creators(sb, 0, NULL, c->failure, true);
    finish(sb);
}

static char *stages_json(const struct sandbox *sb, const struct driver_created *created)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(8192);
    const char *text;

    (void)buf_printf(&b, "{\"warm\":%s,\"stages\":[{\"name\":\"row\",\"us\":%" PRId64 "}",
                     created->is_warm ? "true" : "false",
                     (sb->t_written_ns - sb->t_begin_ns) / 1000);
    (void)buf_printf(&b, ",{\"name\":\"driver\",\"us\":%" PRId64 "}",
                     (sb->t_started_ns - sb->t_written_ns) / 1000);
    for (size_t i = 0; i < created->n_stages; i++) {
        (void)buf_append_str(&b, ",{\"name\":");
        (void)json_string_put(&b, slice_str(created->stages[i].name));
        (void)buf_printf(&b, ",\"us\":%" PRIu32 "}", created->stages[i].us);
    }
    if (buf_append_str(&b, "]}") != BUF_OK)
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

    uuid_new(id);
    return store_sandbox_run(l->opts.store, &row, &answer, &event, on_committed, sb, err);
}

static void started(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;
    _cleanup_(buf_done) struct buf body = BUF_INIT(2u << 20);
    struct abx_err err = { 0 };
    const char *text = NULL;

    sb->t_started_ns = time_mono_ns();
    sb->cpu_count = c->created->cpu_count;
    sb->memory_mb = c->created->memory_mb;
    sb->disk_mb = c->created->disk_mb;
    (void)snprintf(sb->execution_id, sizeof sb->execution_id, "%.63s", c->created->execution_id);
    sb->started_ms = time_wall_ms();
    sb->end_ms = sb->started_ms + sb->timeout_ms;
    sb->state = SANDBOX_COMMITTING;
    sb->data = stages_json(sb, c->created);
    if (l->opts.render(l->opts.user, sb, &body) == 0)
        text = buf_cstr(&body);
    sb->answer = text ? strdup(text) : NULL;
    if (!sb->answer || !sb->data)
        (void)err_oom(&err);
    else if (submit_run(sb, &err) == 0)
        return;
    lifecycle_fire(sb, EV_COMMIT_FAILED, &(struct change){ .failure = &err });
}

/* The driver's own troubles are no fault of the client's request, whatever their code. */
static void start_failed(struct sandbox *sb, const struct change *c)
{
    struct abx_err err = *c->failure;

    switch (err.code) {
    case ABX_NOT_FOUND: /* the build */
    case ABX_RESOURCE_EXHAUSTED:
    case ABX_UNAVAILABLE:
    case ABX_DEADLINE_EXCEEDED:
        break;
    default:
        log_err("driver cannot create a sandbox", &err);
        (void)err_set(&err, ABX_INTERNAL, "Failed to create sandbox");
        break;
    }
    fail_create(sb, &err, !c->was_sent);
}

static void commit_failed(struct sandbox *sb, const struct change *c)
{
    fail_create(sb, c->failure, false);
}

static void log_created(const struct sandbox *sb)
{
    char ms[24];

    (void)snprintf(ms, sizeof ms, "%.2f", (double)(time_mono_ns() - sb->t_begin_ns) / 1e6);
    log_info("sandbox created", "id", sb->id, "template", sb->alias, "ms", ms, "request",
             sb->request_id, NULL);
}

static void committed(struct sandbox *sb, const struct change *c)
{
    struct lifecycle *l = sb->lifecycle;
    char *body = TAKE_PTR(sb->answer);

    (void)c;
    sb->state = SANDBOX_RUNNING;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, (uint64_t)sb->timeout_ms, 0);
    log_created(sb);
    l->opts.on_visible(l->opts.user, sb);
    answer_creators(sb, 201, body, NULL, false);
    free(body);
    if (sb->state != SANDBOX_RUNNING)
        return;
    if (sb->has_died)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = sb->kill_reason });
    else if (sb->wants_kill)
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = sb->kill_reason });
}

/* --- the table --------------------------------------------------------------------------------- */

static void ignore(struct sandbox *sb, const struct change *c)
{
    (void)sb;
    (void)c;
}

typedef void (*action_fn)(struct sandbox *sb, const struct change *c);

/* NULL = cannot happen: the completion of a call that this state has not made. */
static const action_fn actions[SANDBOX_STATES_][EV_COUNT_] = {
    [SANDBOX_WRITING] = {
        [EV_WRITTEN] = written,
        [EV_WRITE_FAILED] = write_failed,
        [EV_KILL] = kill_later,
        [EV_DIED] = ignore,
        [EV_RETRY] = ignore,
        [EV_TOLD] = ignore,
    },
    [SANDBOX_STARTING] = {
        [EV_STARTED] = started,
        [EV_START_FAILED] = start_failed,
        [EV_KILL] = kill_starting,
        [EV_DIED] = died_early,
        [EV_RETRY] = ignore,
        [EV_TOLD] = ignore,
    },
    [SANDBOX_COMMITTING] = {
        [EV_COMMITTED] = committed,
        [EV_COMMIT_FAILED] = commit_failed,
        [EV_KILL] = kill_later,
        [EV_DIED] = died_early,
        [EV_RETRY] = ignore,
        [EV_TOLD] = ignore,
    },
    [SANDBOX_RUNNING] = {
        [EV_KILL] = kill_running,
        [EV_DIED] = died_running,
        [EV_RETRY] = ignore,
        [EV_TOLD] = ignore,
    },
    [SANDBOX_KILLING] = {
        [EV_STARTED] = start_ended,
        [EV_START_FAILED] = start_ended,
        [EV_KILL] = ignore,
        [EV_DIED] = ignore,
        [EV_KILLED] = killed,
        [EV_KILL_FAILED] = kill_failed,
        [EV_RETRY] = kill_again,
        [EV_TOLD] = told,
    },
    [SANDBOX_REMOVING] = {
        [EV_KILL] = ignore,
        [EV_DIED] = ignore,
        [EV_RETRY] = remove_again,
        [EV_TOLD] = ignore,
        [EV_REMOVED] = removed,
    },
};

void lifecycle_fire(struct sandbox *sb, enum lifecycle_event ev, const struct change *c)
{
    action_fn action = actions[sb->state][ev];

    assert(action);
    action(sb, c);
}

/* --- completions ------------------------------------------------------------------------------- */

static void on_started(void *user, const struct driver_created *created,
                       const struct abx_err *failure, bool was_sent)
{
    struct change c = { .failure = failure, .created = created, .was_sent = was_sent };

    lifecycle_fire(user, failure ? EV_START_FAILED : EV_STARTED, &c);
}

static void on_committed(void *user, const struct abx_err *failure)
{
    lifecycle_fire(user, failure ? EV_COMMIT_FAILED : EV_COMMITTED,
                   &(struct change){ .failure = failure });
}

static void on_killed(void *user, bool existed, const struct abx_err *failure)
{
    (void)existed;
    lifecycle_fire(user, failure ? EV_KILL_FAILED : EV_KILLED,
                   &(struct change){ .failure = failure });
}

static void on_removed(void *user, const struct abx_err *failure)
{
    lifecycle_fire(user, EV_REMOVED, &(struct change){ .failure = failure });
}

/* Running: the time is over. Killing, removing: try again. */
void lifecycle_on_timer(uv_timer_t *t)
{
    struct sandbox *sb = container_of(t, struct sandbox, timer);

    if (sb->state == SANDBOX_RUNNING)
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "timeout" });
    else
        lifecycle_fire(sb, EV_RETRY, &no_change);
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

    claim->tries++;
    return store_sandbox_create(claim->sb->lifecycle->opts.store, &row, claim->request_hash,
                                on_claimed, claim, err);
}

/* The first create with this key: its answer, when it has one, else its creators are joined. False:
 * it has just ended, the key is free again or about to be. */
static bool join(struct sandbox *mine, const struct store_created *created)
{
    struct sandbox *first = lifecycle_find(mine->lifecycle, created->sandbox_id);
    struct create_waiter **end;

    if (created->status != 0) {
        answer_creators(mine, created->status, created->body, NULL, false);
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
        lifecycle_fire(sb, EV_WRITE_FAILED, &(struct change){ .failure = failure });
        return;
    }
    switch (created->claim) {
    case STORE_NEW:
        lifecycle_fire(sb, EV_WRITTEN, &no_change);
        return;
    case STORE_SAME:
        if (join(sb, created)) {
            sb->kill_reason = "joined";
            finish(sb);
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
    lifecycle_fire(sb, EV_WRITE_FAILED, &(struct change){ .failure = &err });
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
    r = sandbox_from_spec(sb, spec, err);
    if (r == 0)
        r = add_creator(sb, done, user, err);
    if (r == 0)
        r = table_add(l, sb, err);
    if (r == 0) {
        r = submit_claim(claim, err);
        if (r < 0)
            table_remove(l, sb);
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

void lifecycle_abandon(struct lifecycle *l, const char *id)
{
    struct sandbox *sb = lifecycle_find(l, id);

    if (sb && !sb->idempotency_key[0])
        lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = "abandoned" });
}

int lifecycle_kill(struct lifecycle *l, const char *id, const char *reason, sandbox_killed_fn done,
                   void *user, struct abx_err *err)
{
    struct sandbox *sb = lifecycle_find(l, id);
    struct kill_waiter *w, **end;

    if (!sb)
        return err_set(err, ABX_NOT_FOUND,
                       "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    if (done) {
        w = calloc(1, sizeof(*w));
        if (!w)
            return err_oom(err);
        w->done = done;
        w->user = user;
        w->is_first = sb->state <= SANDBOX_RUNNING && !sb->wants_kill && !sb->has_died;
        for (end = &sb->killers; *end;)
            end = &(*end)->next;
        *end = w;
    }
    lifecycle_fire(sb, EV_KILL, &(struct change){ .reason = reason });
    return 0;
}

void lifecycle_told(struct lifecycle *l, const char *id)
{
    struct sandbox *sb = lifecycle_find(l, id);

    if (sb)
        lifecycle_fire(sb, EV_TOLD, &no_change);
}

void lifecycle_died(struct lifecycle *l, const char *id, const char *reason)
{
    static const char *const known[] = { "exit", "oom", "signal", "lost" };
    struct sandbox *sb = lifecycle_find(l, id);
    const char *kept = "died";

    /* The reason outlives the message that brought it. */
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], reason) == 0)
            kept = known[i];
    if (sb)
        lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = kept });
}

void lifecycle_stopped(struct lifecycle *l)
{
    struct sandbox *sb = l->first;

    while (sb) {
        struct sandbox *next = sb->next;

        if (sb->state == SANDBOX_RUNNING)
            lifecycle_fire(sb, EV_DIED, &(struct change){ .reason = "stopped" });
        sb = next;
    }
}

/* --- life -------------------------------------------------------------------------------------- */

int lifecycle_new(const struct lifecycle_opts *opts, struct lifecycle **ret, struct abx_err *err)
{
    _cleanup_(freep) struct lifecycle *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return err_oom(err);
    l->opts = *opts;
    r = table_init(l, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

void lifecycle_set_driver(struct lifecycle *l, struct driver *driver)
{
    l->opts.driver = driver;
}

void lifecycle_free(struct lifecycle *l)
{
    if (!l)
        return;
    while (l->first) {
        struct sandbox *sb = l->first;

        table_remove(l, sb);
        while (sb->creators) {
            struct create_waiter *w = sb->creators;

            sb->creators = w->next;
            free(w);
        }
        while (sb->killers) {
            struct kill_waiter *w = sb->killers;

            sb->killers = w->next;
            free(w);
        }
        sandbox_free_later(sb);
    }
    table_done(l);
    free(l);
}
