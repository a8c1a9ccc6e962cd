/* control.h - what one abx-control consists of. Owned by main.c; the parts see each other here. */
#pragma once

#include <uv.h>

#include "control/create_request.h"
#include "control/driver.h"
#include "control/keyring.h"
#include "control/lifecycle.h"
#include "control/logs.h"
#include "control/templates.h"
#include "e2b/tokens.h"
#include "net/counters.h"
#include "store/store.h"

#define TEAM_SLUG "default"

struct table;
struct usage;
struct snapshots;

struct control_opts {
    const char *domain; /* NULL = none */
    const char *origin; /* http://HOST:PORT of the service */
    const char *instance;
    struct create_limits limits;
    size_t max_sandboxes;    /* per team, 0 = no limit */
    size_t max_snapshots;    /* as that */
    size_t max_key_requests; /* of one API key at a time */
    int64_t metrics_keep_s;  /* samples of what sandboxes used */
    /* Of all sandboxes, about; the oldest go. */
    uint32_t max_log_lines;
    uint32_t max_idempotency_keys;
    /* Of the gateways: n_gateways blocks, see counters.h; NULL = none. */
    const uint8_t *gateway_counters;
    size_t n_gateways;
    const struct egress_counters *egress_counters; /* NULL = none */
};

struct control {
    uv_loop_t *loop;
    struct control_opts opts;
    struct store *store;
    struct driver *driver;
    struct lifecycle *lifecycle;
    struct keyring *keys;
    struct templates *templates;
    struct table *table;
    struct usage *usage; /* NULL without a driver */
    struct snapshots *snapshots;
    struct control_counters *counters; /* set before control_open */
    uint8_t seed[TOKEN_SEED_SIZE];
    char team[UUID_SIZE];
    char client_id[16];
    char domain[272]; /* never empty */
    uv_timer_t prune_timer;
    uv_timer_t compare_timer;
    struct logs_budget logs_budget;
    uv_timer_t down_timer;
};

/* Opens the database in `dir`, loads it, and starts the driver for the engine's socket (NULL: none,
 * for operations without a service). Everything in *c but opts and loop is set here. */
int control_open(struct control *c, const char *dir, const char *engine_sock, struct abx_err *err);
/* Ends what was opened; the loop has to run out afterwards, then control_free. */
void control_close(struct control *c);
void control_free(struct control *c);
