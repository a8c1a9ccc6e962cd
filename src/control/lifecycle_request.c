/* lifecycle_request.c - what clients ask of a sandbox, one request after the other, in the order they
 * came: queue, refusals, another time for its end, and copies. See lifecycle.h; a kill does not queue.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/str.h"
#include "control/lifecycle_internal.h"

static const struct change no_change;

/* --- the queue ---------------------------------------------------------------------------------- */

void operation_free(struct operation *op)
{
    json_decref(op->request.config);
    json_decref(op->config);
    free(op);
}

void operation_end(struct sandbox *sb, int status, const struct abx_err *failure)
{
    struct operation *op = TAKE_PTR(sb->operation);

    if (!op)
        return;
    op->done(op->user, failure ? 0 : status, failure);
    operation_free(op);
}

/* Whether it ends before this one has its turn. Else who asks without a pause would keep it: each turn begins as soon as the
 * one before has ended, and leaves no time for a timer. By the clock that counts: the other one may have been set. */
static bool is_too_late(const struct sandbox *sb, const struct operation *op)
{
    return sb->state == SANDBOX_RUNNING && sb->t_over_ns > 0 && !op->request.is_timeout &&
           op->t_asked_ns >= sb->t_over_ns;
}

void lifecycle_go_on(struct sandbox *sb)
{
    while (!sb->operation && sb->waiting) {
        struct operation *op = sb->waiting;

        if (machine_cell(sb->state, op->request.what)->action == ACT_WAIT)
            return;
        if (is_too_late(sb, op)) {
            lifecycle_fire(sb, EV_EXPIRED, &no_change);
            continue;
        }

        sb->waiting = op->next;
        sb->n_waiting--;
        sb->operation = op;
        lifecycle_fire(sb, op->request.what, &no_change);
    }
}

void lifecycle_refuse_all(struct sandbox *sb)
{
    struct abx_err err;

    if (sb->operation) { /* under way: it may have had an effect, of which nothing is left */
        (void)err_reason(&err, ABX_REASON_CONFLICT, "Sandbox \"%s\" was killed meanwhile", sb->id);
        operation_end(sb, 0, &err);
    }
    (void)err_set(&err, ABX_NOT_FOUND,
                  "Sandbox \"%s\" doesn't exist or you don't have access to it", sb->id);
    while (sb->operation || sb->waiting) {
        if (!sb->operation) {
            sb->operation = sb->waiting;
            sb->waiting = sb->waiting->next;
            sb->n_waiting--;
        }
        operation_end(sb, 0, &err);
    }
}

/* What it does is tried until it goes well, and is no answer to the request that is under way. */
static bool is_lasting(enum sandbox_state state)
{
    return state == SANDBOX_EXCHANGING || state == SANDBOX_EXCHANGING_PAUSED ||
           state == SANDBOX_PARKING;
}

void lifecycle_tell_waiting(struct sandbox *sb, const struct abx_err *why)
{
    int64_t before = time_mono_ns() - LIFECYCLE_WAIT_NS;
    const char *state = machine_state(sb->state)->name;
    struct abx_err err;

    if (is_lasting(sb->state) && sb->operation && sb->operation->t_asked_ns < before) {
        (void)err_set(&err, ABX_UNAVAILABLE,
                      "Sandbox '%s' is not through with this yet, and goes on with it while %s: %s",
                      sb->id, state, why->msg);
        log_err("a request ends before what it asked for", &err);
        operation_end(sb, 0, &err);
    }
    (void)err_reason(&err, ABX_REASON_BUSY, "Sandbox '%s' is busy %s, which does not go well: %s",
                     sb->id, state, why->msg);
    /* Oldest first; what an answer leads to is younger. */
    while (sb->waiting && sb->waiting->t_asked_ns < before) {
        struct operation *op = sb->waiting;

        sb->waiting = op->next;
        sb->n_waiting--;
        op->done(op->user, 0, &err);
        operation_free(op);
    }
}

int lifecycle_request(struct lifecycle *l, const char *id, const struct sandbox_request *request,
                      sandbox_requested_fn done, void *user, struct abx_err *err)
{
    struct sandbox *sb = lifecycle_find(l, id);
    struct operation *op, **end;

    if (!sb)
        return err_set(err, ABX_NOT_FOUND,
                       "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    if (sb->n_waiting >= LIFECYCLE_WAITING_MAX && !request->is_timeout)
        return err_reason(err, ABX_REASON_BUSY, "over %u requests wait for sandbox \"%s\"",
                          LIFECYCLE_WAITING_MAX, id);
    op = calloc(1, sizeof(*op));
    if (!op)
        return err_oom(err);
    op->request = *request;
    json_incref(op->request.config);
    op->done = done;
    op->user = user;
    op->t_asked_ns = time_mono_ns();
    end = &sb->waiting;
    while (*end && !request->is_timeout) /* its end comes before all that waits */
        end = &(*end)->next;
    op->next = *end;
    *end = op;
    sb->n_waiting++;
    lifecycle_go_on(sb);
    return 0;
}

/* --- refusals ----------------------------------------------------------------------------------- */

/* Never: the queue asks the table first. */
void act_wait(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    (void)c;
    (void)err_set(&err, ABX_INTERNAL, "a request came out of turn");
    operation_end(sb, 0, &err);
}

void act_refuse(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    if (c->event == EV_PAUSE && c->http == 409)
        (void)err_reason(&err, ABX_REASON_CONFLICT,
                         "Error pausing sandbox - sandbox '%s' is already paused", sb->id);
    else if (c->event == EV_COPY && c->http == 409 && sb->operation->request.is_snapshot)
        (void)err_reason(&err, ABX_REASON_CONFLICT,
                         "Sandbox '%s' cannot be snapshotted while in 'paused' state", sb->id);
    else if (c->event == EV_COPY && c->http == 409)
        (void)err_reason(&err, ABX_REASON_CONFLICT,
                         "Sandbox '%s' is paused and cannot be forked; resume it first", sb->id);
    else if (c->event == EV_RESUME && c->http == 409)
        (void)err_reason(&err, ABX_REASON_CONFLICT, "Sandbox %s is already running", sb->id);
    else if (sb->state == SANDBOX_PAUSED)
        (void)err_set(&err, ABX_NOT_FOUND,
                      "Sandbox \"%s\" is paused: its time begins when it is resumed", sb->id);
    else if (c->http == 409)
        (void)err_reason(&err, ABX_REASON_CONFLICT, "Sandbox \"%s\" is being killed", sb->id);
    else
        (void)err_set(&err, ABX_NOT_FOUND,
                      "Sandbox \"%s\" doesn't exist or you don't have access to it", sb->id);
    operation_end(sb, 0, &err);
}

/* --- another time for its end ------------------------------------------------------------------- */

/* A new deadline on its way to disk; the sandbox may be gone when it gets there. */
struct extension {
    struct lifecycle *lifecycle;
    char id[SANDBOX_ID_SIZE];
    int64_t end_ms, end_before_ms;
    uint64_t due_before_ms; /* by the loop's clock */
    struct operation *op;
    int status;
};

static void set_end(struct sandbox *sb, int64_t end_ms, uint64_t left_ms)
{
    sb->end_ms = end_ms;
    sb->t_over_ns = 0;
    (void)uv_timer_start(&sb->timer, lifecycle_on_timer, left_ms, 0);
}

/* What could not be written has no effect, unless a later one has had its own. */
static void extension_undo(const struct extension *x)
{
    struct sandbox *sb = lifecycle_find(x->lifecycle, x->id);
    uint64_t now = sb ? uv_now(sb->timer.loop) : 0;

    if (sb && sb->state == SANDBOX_RUNNING && sb->end_ms == x->end_ms &&
        sb->end_ms != x->end_before_ms)
        set_end(sb, x->end_before_ms, MAX(x->due_before_ms, now) - now);
}

static void on_extended(void *user, const struct abx_err *failure)
{
    struct extension *x = user;

    if (failure)
        extension_undo(x);
    x->op->done(x->op->user, failure ? 0 : x->status, failure);
    operation_free(x->op);
    free(x);
}

static int submit(struct sandbox *sb, struct extension *x, bool is_told, struct abx_err *err)
{
    struct store_sandbox row = sandbox_row(sb, "running");
    char id[UUID_SIZE], time[RFC3339_SIZE], data[RFC3339_SIZE + 32];
    struct store_event event = {
        .id = id, .type = "sandbox.lifecycle.updated", .data = data, .time_ms = time_wall_ms()
    };

    row.end_ms = x->end_ms;
    uuid_new(id);
    time_format_rfc3339(x->end_ms, time);
    (void)snprintf(data, sizeof data, "{\"set_timeout\":\"%s\"}", time);
    return store_sandbox_extend(sb->lifecycle->opts.store, &row, is_told ? &event : NULL,
                                on_extended, x, err);
}

void act_extend(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) struct extension *x = calloc(1, sizeof(*x));
    int64_t timeout_ms = sb->operation->request.timeout_ms;
    /* What is left by the clock that counts: the wall clock may have been set meanwhile. */
    int64_t left_ms = (int64_t)uv_timer_get_due_in(&sb->timer);
    bool is_kept = c->event != EV_EXTEND && left_ms >= timeout_ms;
    struct abx_err err;

    if (!x) {
        (void)err_oom(&err);
        operation_end(sb, 0, &err);
        return;
    }
    *x = (struct extension){ .lifecycle = sb->lifecycle,
                             .end_ms = is_kept ? sb->end_ms : time_wall_ms() + timeout_ms,
                             .end_before_ms = sb->end_ms,
                             .due_before_ms = uv_now(sb->timer.loop) + (uint64_t)left_ms,
                             .op = sb->operation,
                             .status = c->http };
    memcpy(x->id, sb->id, sizeof(x->id));
    if (submit(sb, x, c->event == EV_EXTEND, &err) < 0) {
        operation_end(sb, 0, &err);
        return;
    }
    /* The next one need not wait for the disk: writes keep their order. */
    (void)TAKE_PTR(sb->operation);
    if (!is_kept)
        set_end(sb, x->end_ms, (uint64_t)MAX(timeout_ms, INT64_C(0)));
    (void)TAKE_PTR(x);
}

/* --- copies --------------------------------------------------------------------------------------- */

void act_copy(struct sandbox *sb, const struct change *c)
{
    (void)c;
    call_driver(sb, CALL_COPY);
}

void act_copied(struct sandbox *sb, const struct change *c)
{
    struct abx_err err;

    if (!c->failure) {
        operation_end(sb, 201, NULL);
        return;
    }
    err = *c->failure;
    (void)err_wrap(&err, err.code, "Sandbox \"%s\" cannot be copied", sb->id);
    log_err("copy", &err);
    driver_trouble(&err);
    operation_end(sb, 0, &err);
}

/* --- its configuration --------------------------------------------------------------------------- */

int operation_configure(struct sandbox *sb, struct operation *op, char **ret_text,
                        struct abx_err *err)
{
    json_t *config = json_copy(sb->config_next ? sb->config_next : sb->config), *value;
    const char *name;
    char *text;
    int r = config ? 0 : -1;

    json_object_foreach(op->request.config, name, value)
    {
        if (r == 0 && json_is_null(value))
            (void)json_object_del(config, name);
        else if (r == 0)
            r = json_object_set(config, name, value);
    }
    text = r == 0 ? json_dumps(config, JSON_COMPACT) : NULL;
    if (!text) {
        json_decref(config);
        return err_oom(err);
    }
    json_decref(sb->config_next);
    sb->config_next = json_incref(config);
    op->config = config;
    *ret_text = text;
    return 0;
}

int operation_configured(struct sandbox *sb, struct operation *op, const struct abx_err *failure,
                         struct abx_err *err)
{
    if (sb->config_next == op->config) {
        json_decref(sb->config_next);
        sb->config_next = NULL;
    }
    return failure ? 0 : sandbox_set_config(sb, op->config, err);
}

/* Rules on their way to disk; the sandbox may be gone when they get there. */
struct configuration {
    struct lifecycle *lifecycle;
    char id[SANDBOX_ID_SIZE];
    struct operation *op;
    int status;
};

static void on_configured(void *user, const struct abx_err *failure)
{
    struct configuration *x = user;
    struct sandbox *sb = lifecycle_find(x->lifecycle, x->id);
    struct abx_err err = { 0 };
    int r = 0;

    if (sb)
        r = operation_configured(sb, x->op, failure, &err);
    if (!failure && sb && r == 0 && sandbox_is_visible(sb))
        x->lifecycle->opts.on_visible(x->lifecycle->opts.user, sb);
    failure = r < 0 ? &err : failure;
    x->op->done(x->op->user, failure ? 0 : x->status, failure);
    operation_free(x->op);
    free(x);
}

void act_configure(struct sandbox *sb, const struct change *c)
{
    _cleanup_(freep) struct configuration *x = calloc(1, sizeof(*x));
    _cleanup_(freep) char *text = NULL;
    struct store_sandbox row = sandbox_row(sb, "running");
    struct abx_err err;

    if (!x || operation_configure(sb, sb->operation, &text, &err) < 0) {
        (void)err_oom(&err);
        operation_end(sb, 0, &err);
        return;
    }
    *x = (struct configuration){ sb->lifecycle, "", sb->operation, c->http };
    memcpy(x->id, sb->id, sizeof(x->id));
    row.config = text;
    if (store_sandbox_configure(sb->lifecycle->opts.store, &row, on_configured, x, &err) < 0) {
        (void)operation_configured(sb, sb->operation, &err, NULL);
        operation_end(sb, 0, &err);
        return;
    }
    (void)TAKE_PTR(sb->operation);
    (void)TAKE_PTR(x);
}
