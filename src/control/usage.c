/* usage.c - see usage.h. */
#include "control/usage.h"

#include <string.h>

#include "base/str.h"

#define ASKED_MAX 8u /* at a time */
#define GROW 32u

struct usage_log {
    struct usage_sample *list; /* ring once it is full */
    size_t n, first, size;
    uint64_t last_cpu_us;
    int64_t last_ms;
};

struct usage {
    uv_timer_t timer;
    struct lifecycle *lifecycle;
    struct driver *driver;
    uint64_t at;       /* number of the last sandbox of this round that was asked for */
    bool is_under_way; /* a round */
    bool is_closed, is_timer_closed;
    unsigned n_asked;
};

/* One question; the sandbox may be gone by its answer. */
struct question {
    struct usage *usage;
    char id[SANDBOX_ID_SIZE];
};

/* --- logs ---------------------------------------------------------------------------------------- */

void usage_log_free(struct usage_log *u)
{
    if (u)
        free(u->list);
    free(u);
}

static struct usage_sample *next_place(struct usage_log *u, struct abx_err *err)
{
    if (u->n == USAGE_KEPT) {
        struct usage_sample *oldest = &u->list[u->first];

        u->first = (u->first + 1) % USAGE_KEPT;
        return oldest;
    }
    if (u->n == u->size) {
        size_t more = MIN(u->size * 2 + GROW, (size_t)USAGE_KEPT);
        struct usage_sample *list = reallocarray(u->list, more, sizeof(*list));

        if (!list) {
            (void)err_oom(err);
            return NULL;
        }
        u->list = list;
        u->size = more;
    }
    return &u->list[u->n++];
}

static double cpu_pct(const struct usage_log *u, const struct sandbox *sb, uint64_t cpu_us,
                      int64_t now_ms)
{
    uint64_t before = cpu_us < u->last_cpu_us ? 0 : u->last_cpu_us;
    int64_t since_ms = u->last_ms ? u->last_ms : sb->started_ms;
    double span_us = (double)MAX(now_ms - since_ms, INT64_C(1)) * 1000.0 *
                     (double)MAX(sb->cpu_count, UINT32_C(1));

    return MIN((double)(cpu_us - before) * 100.0 / span_us, 100.0);
}

static uint64_t at_most(uint64_t v, uint32_t mb)
{
    uint64_t max = (uint64_t)mb << 20;

    return max > 0 && v > max ? max : v;
}

int usage_log_add(struct usage_log **log, const struct sandbox *sb, const struct driver_usage *now,
                  int64_t now_ms, struct abx_err *err)
{
    struct usage_log *u = *log ? *log : calloc(1, sizeof(*u));
    struct usage_sample *s;

    if (!u)
        return err_oom(err);
    *log = u;
    s = next_place(u, err);
    if (!s)
        return ABX_RESOURCE_EXHAUSTED;
    *s = (struct usage_sample){
        .time_ms = now_ms,
        .cpu_pct = cpu_pct(u, sb, now->cpu_us, now_ms),
        .memory_bytes =
            at_most(now->memory_bytes - MIN(now->cache_bytes, now->memory_bytes), sb->memory_mb),
        .cache_bytes = at_most(now->cache_bytes, sb->memory_mb),
        .disk_bytes = at_most(now->disk_bytes, sb->disk_mb),
    };
    u->last_cpu_us = now->cpu_us;
    u->last_ms = now_ms;
    return 0;
}

void usage_log_each(const struct usage_log *u, int64_t start_ms, int64_t end_ms,
                    void (*each)(void *user, const struct usage_sample *s), void *user)
{
    for (size_t i = 0; u && i < u->n; i++) {
        const struct usage_sample *s = &u->list[(u->first + i) % u->n];

        if (s->time_ms >= start_ms && s->time_ms <= end_ms)
            each(user, s);
    }
}

const struct usage_sample *usage_log_newest(const struct usage_log *u)
{
    return u && u->n > 0 ? &u->list[(u->first + u->n - 1) % u->n] : NULL;
}

/* --- asking -------------------------------------------------------------------------------------- */

static void unuse(struct usage *u)
{
    if (u->is_timer_closed && u->n_asked == 0)
        free(u);
}

static void go_on(struct usage *u);

static void on_usage(void *user, const struct driver_usage *now, const struct abx_err *failure)
{
    struct question *q = user;
    struct usage *u = q->usage;
    struct sandbox *sb = u->is_closed ? NULL : lifecycle_find(u->lifecycle, q->id);

    /* One that ends meanwhile has no sample; what the driver lacks is told elsewhere. */
    if (sb && !failure)
        (void)usage_log_add(&sb->usage, sb, now, time_wall_ms(), NULL);
    free(q);
    u->n_asked--;
    if (u->is_closed)
        unuse(u);
    else
        go_on(u);
}

static bool ask(struct usage *u, const struct sandbox *sb)
{
    struct question *q = calloc(1, sizeof(*q));

    if (!q)
        return false;
    q->usage = u;
    memcpy(q->id, sb->id, sizeof(q->id));
    if (u->driver->ops->usage(u->driver, sb->id, on_usage, q, NULL) < 0) {
        free(q);
        return false;
    }
    u->n_asked++;
    return true;
}

/* The next ones of this round. */
static void go_on(struct usage *u)
{
    struct sandbox *sb = u->is_under_way ? lifecycle_after(u->lifecycle, u->at) : NULL;

    while (sb && u->n_asked < ASKED_MAX) {
        u->at = sb->number;
        if (sb->state == SANDBOX_RUNNING && !ask(u, sb))
            sb = NULL; /* the driver is away: the next round */
        else
            sb = lifecycle_next(u->lifecycle, sb);
    }
    if (!sb)
        u->is_under_way = false;
}

static void on_tick(uv_timer_t *t)
{
    struct usage *u = container_of(t, struct usage, timer);

    if (u->is_under_way || u->n_asked > 0)
        return; /* a slow driver has fewer samples, not a longer queue */
    u->at = 0;
    u->is_under_way = true;
    go_on(u);
}

int usage_new(uv_loop_t *loop, struct lifecycle *l, struct driver *d, struct usage **ret,
              struct abx_err *err)
{
    struct usage *u = calloc(1, sizeof(*u));

    if (!u)
        return err_oom(err);
    u->lifecycle = l;
    u->driver = d;
    (void)uv_timer_init(loop, &u->timer);
    (void)uv_timer_start(&u->timer, on_tick, USAGE_EVERY_MS, USAGE_EVERY_MS);
    *ret = u;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct usage *u = container_of((uv_timer_t *)(void *)h, struct usage, timer);

    u->is_timer_closed = true;
    unuse(u);
}

void usage_close(struct usage *u)
{
    if (!u)
        return;
    u->is_closed = true;
    uv_close((uv_handle_t *)&u->timer, on_closed);
}
