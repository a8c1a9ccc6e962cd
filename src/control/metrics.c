/* metrics.c - GET /abx/v1/metrics: counts what is there, asks the driver, answers in text. */
#include "control/api_internal.h"
#include "control/metrics_text.h"

static void count_states(const struct lifecycle *l, struct metrics_state to[SANDBOX_STATES_])
{
    for (size_t i = 0; i < SANDBOX_STATES_; i++)
        to[i] = (struct metrics_state){ .name = machine_state((enum sandbox_state)i)->name };
    for (const struct sandbox *sb = lifecycle_next(l, NULL); sb; sb = lifecycle_next(l, sb))
        to[sb->state].n++;
}

static void reply(struct api_request *rq, const struct driver_info *info)
{
    const struct control *c = rq->c;
    struct metrics_state states[SANDBOX_STATES_];
    _cleanup_(buf_done) struct buf text = BUF_INIT(METRICS_TEXT_MAX);
    struct metrics_input in = {
        .release = ABX_VERSION,
        .instance = c->opts.instance,
        .gateways = c->opts.gateway_counters,
        .n_gateways = c->opts.n_gateways,
        .control = c->counters,
        .egress = c->opts.egress_counters,
        .states = states,
        .n_states = SANDBOX_GONE, /* which is in no table */
        .is_engine_up = info != NULL,
    };
    struct abx_err err = { 0 };

    count_states(c->lifecycle, states);
    if (info) {
        in.engine_sandboxes = info->sandboxes;
        in.engine_pooled = info->pooled;
        in.engine_slots = info->slots;
    }
    if (metrics_text(&in, &text, &err) < 0)
        api_reply_error(rq, &err, RETRY_YES);
    else
        api_reply_as(rq, 200, SLICE_LIT(METRICS_TYPE), buf_slice(&text), NULL, 0);
}

static void on_info(void *user, const struct driver_info *info, const struct abx_err *failure)
{
    reply(user, failure ? NULL : info);
    api_request_unref(user);
}

void api_metrics(struct api_request *rq)
{
    struct driver *d = rq->c->driver;

    /* An engine that is away is a fact like the others, and no reason to tell none of them. */
    api_request_ref(rq);
    if (d && d->ops->info(d, on_info, rq, NULL) == 0)
        return;
    api_request_unref(rq);
    reply(rq, NULL);
}
