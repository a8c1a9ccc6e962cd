/* metrics_text.h - the counters of a service in Prometheus' text format, version 0.0.4. Pure.
 *
 * Each gateway process has its own series, with the label `process`, under abx_gateway_*; the sums over
 * all of them have names of their own (abx_requests_total ...), so that nothing is added twice.
 * docs/metrics.md has the table of all of them.
 */
#pragma once

#include "base/buf.h"
#include "net/counters.h"

#define METRICS_TEXT_MAX (4u << 20)
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_state {
    const char *name;
    uint64_t n;
};

struct metrics_input {
    const char *release, *instance;
    const uint8_t *gateways; /* n_gateways blocks of COUNTERS_BLOCK bytes; may be NULL */
    size_t n_gateways;
    const struct control_counters *control;
    const struct egress_counters *egress; /* may be NULL */
    const struct metrics_state *states;   /* of sandboxes */
    size_t n_states;
    bool is_engine_up; /* it answered: the rest is set */
    uint64_t engine_sandboxes, engine_pooled, engine_slots;
};

/* Appends the text. RESOURCE_EXHAUSTED when it does not fit. */
int metrics_text(const struct metrics_input *in, struct buf *b, struct abx_err *err);
