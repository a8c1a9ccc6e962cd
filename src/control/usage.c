/* usage.c - see usage.h. */
#include "control/usage.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#define SANDBOXES_PER_WRITE 32u /* so many for each sample that a row has */
#define ROW_MAX (USAGE_KEPT_MAX * 128u)

struct usage {
    uv_timer_t timer;
    uv_loop_t *loop;
    struct lifecycle *lifecycle;
    struct driver *driver;
    struct store *store;
    int64_t bucket_s; /* of the pass that is under way */
    uint64_t passes;
    bool is_asking;
    bool is_closing, is_closed;
    uint32_t machine_cpus, machine_memory_mb; /* where a sandbox has no limit of its own */
};

/* --- samples ------------------------------------------------------------------------------------ */

void usage_flush(struct usage *u, struct sandbox *sb)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(ROW_MAX);
    struct sandbox_usage *s = &sb->usage;
    struct store_metrics row = {
        .sandbox_id = sb->id,
        .team = sb->team,
        .cpu_count = s->total.cpu_count,
        .memory_mb = s->total.memory_mb,
        .disk_mb = s->total.disk_mb,
    };
    struct abx_err err;
    enum buf_status status = BUF_OK;

    if (!u || s->n_kept == 0)
        return;
    for (size_t i = 0; i < s->n_kept && status == BUF_OK; i++)
        status = usage_encode(&text, &s->kept[i]);
    row.samples = status == BUF_OK ? buf_cstr(&text) : NULL;
    row.first_ms = s->kept[0].time_s * 1000;
    row.last_ms = s->kept[s->n_kept - 1].time_s * 1000;
    /* Tried again with the next sample. */
    if (!row.samples)
        return;
    if (store_metrics_add(u->store, &row, &err) < 0)
        log_debug("samples wait", "id", sb->id, "why", err.msg, NULL);
    else
        s->n_kept = 0;
}

static struct usage_total total_of(const struct usage *u, const struct sandbox *sb)
{
    return (struct usage_total){
        .cpu_count = sb->cpu_count ? sb->cpu_count : u->machine_cpus,
        .memory_mb = sb->memory_mb ? sb->memory_mb : u->machine_memory_mb,
        .disk_mb = sb->disk_mb,
    };
}

static void keep(struct usage *u, struct sandbox *sb, const struct usage_total *total,
                 const struct usage_sample *sample)
{
    struct sandbox_usage *s = &sb->usage;
    size_t per_row = lifecycle_count(u->lifecycle) / SANDBOXES_PER_WRITE;

    per_row = MAX(MIN(per_row, (size_t)USAGE_KEPT_MAX), (size_t)1);
    if (memcmp(&s->total, total, sizeof *total) != 0) { /* a row has one size */
        usage_flush(u, sb);
        s->n_kept = 0;
        s->total = *total;
    }
    if (s->n_kept == USAGE_KEPT_MAX) { /* the store is behind */
        memmove(s->kept, s->kept + 1, (USAGE_KEPT_MAX - 1) * sizeof s->kept[0]);
        s->n_kept--;
    }
    s->kept[s->n_kept++] = s->last = *sample;
    /* Not all of them in the same pass. */
    if ((u->passes + sb->number) % per_row == 0 || s->n_kept == USAGE_KEPT_MAX)
        usage_flush(u, sb);
}

/* --- passes ------------------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *h)
{
    struct usage *u = container_of((uv_timer_t *)(void *)h, struct usage, timer);

    u->is_closed = true;
    if (!u->is_asking)
        free(u);
}

static void on_page(void *user, const struct driver_usage *list, size_t n, bool has_more,
                    const char *last, const struct abx_err *failure);

static void ask(struct usage *u, const char *after)
{
    struct abx_err err;

    u->is_asking = true;
    if (u->driver->ops->measure(u->driver, after, on_page, u, &err) == 0)
        return;
    u->is_asking = false; /* the driver is away, which is told elsewhere */
    log_debug("sandboxes cannot be measured", "why", err.msg, NULL);
}

static void take_page(struct usage *u, const struct driver_usage *list, size_t n)
{
    int64_t now = time_wall_ms();

    for (size_t i = 0; i < n; i++) {
        struct sandbox *sb = lifecycle_find(u->lifecycle, list[i].id);
        struct usage_sample sample;
        struct usage_total total;

        if (!sb || !sandbox_is_visible(sb))
            continue;
        total = total_of(u, sb);
        if (usage_take(&sb->usage, &list[i], &total, now, u->bucket_s, &sample))
            keep(u, sb, &total, &sample);
    }
}

static void on_page(void *user, const struct driver_usage *list, size_t n, bool has_more,
                    const char *last, const struct abx_err *failure)
{
    struct usage *u = user;

    u->is_asking = false;
    if (u->is_closing) {
        if (u->is_closed)
            free(u);
        return;
    }
    if (failure) {
        log_debug("sandboxes cannot be measured", "why", failure->msg, NULL);
        return;
    }
    take_page(u, list, n);
    if (has_more && last[0])
        ask(u, last);
}

static void on_time(uv_timer_t *t);

static void arm(struct usage *u)
{
    uv_update_time(u->loop); /* the delay counts from now */
    (void)uv_timer_start(&u->timer, on_time,
                         (uint64_t)(USAGE_EVERY_MS - time_wall_ms() % USAGE_EVERY_MS), 0);
}

/* A pass that is not through in its five seconds takes the next ones. */
static void on_time(uv_timer_t *t)
{
    struct usage *u = container_of(t, struct usage, timer);
    int64_t now = time_wall_ms();
    /* The timer may be a millisecond early. */
    int64_t bucket_s = (now + USAGE_EVERY_MS / 2) / USAGE_EVERY_MS * (USAGE_EVERY_MS / 1000);

    if (!u->is_asking && bucket_s > u->bucket_s) {
        u->bucket_s = bucket_s;
        u->passes++;
        ask(u, "");
    } else if (bucket_s < u->bucket_s - 60) {
        u->bucket_s = bucket_s; /* the clock was set back */
    }
    arm(u);
}

int usage_new(uv_loop_t *loop, struct lifecycle *lifecycle, struct driver *driver,
              struct store *store, struct usage **ret, struct abx_err *err)
{
    struct usage *u = calloc(1, sizeof *u);

    if (!u)
        return err_oom(err);
    u->loop = loop;
    u->lifecycle = lifecycle;
    u->driver = driver;
    u->store = store;
    u->machine_cpus = MAX(uv_available_parallelism(), 1u);
    u->machine_memory_mb = (uint32_t)(uv_get_total_memory() >> 20);
    (void)uv_timer_init(loop, &u->timer);
    arm(u);
    *ret = u;
    return 0;
}

void usage_close(struct usage *u)
{
    struct sandbox *sb = NULL;

    if (!u)
        return;
    while ((sb = lifecycle_next(u->lifecycle, sb)) != NULL)
        usage_flush(u, sb);
    u->is_closing = true;
    uv_close((uv_handle_t *)&u->timer, on_timer_closed);
}
