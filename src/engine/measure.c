/* measure.c - what sandboxes use: of one, and page by page of all. See engine.h.
 *
 * A worker of its own reads it, at a low priority, so that neither a create nor a pause waits for it. The page is
 * what was there when it was asked for; who has ended before the worker came to it is left out.
 */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

struct measured {
    char sandbox_id[RECORD_ID_SIZE];
    bool is_frozen;
    int64_t started_ms;
};

struct measuring {
    struct engine *engine;
    uint64_t conn, seq;
    bool has_more;
    char last[RECORD_ID_SIZE];
    size_t n;
    struct measured list[JOB_MEASURE_MAX];
};

static bool can_be_measured(const struct sandbox *sb)
{
    return sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN;
}

static int submit(struct measuring *m, struct job *j, job_done_fn done, struct abx_err *err)
{
    return crew_submit(m->engine->crew, WORKER_MEASURE, j, NULL, 0,
                       (struct job_owner){ done, free, m }, err);
}

static struct measuring *measuring_new(struct engine *e, uint64_t conn, uint64_t seq)
{
    struct measuring *m = calloc(1, sizeof *m);
    struct abx_err err;

    if (!m) {
        (void)err_oom(&err);
        server_reply_error(e, conn, seq, &err);
        return NULL;
    }
    m->engine = e;
    m->conn = conn;
    m->seq = seq;
    return m;
}

static void fail(struct measuring *m, const struct abx_err *why)
{
    server_reply_error(m->engine, m->conn, m->seq, why);
    free(m);
}

/* --- one ----------------------------------------------------------------------------------------- */

static void on_usage(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct measuring *m = user;
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__UsageReply body = ABX__IPC__USAGE_REPLY__INIT;

    (void)fds;
    (void)n_fds;
    if (r->err.code) {
        fail(m, &r->err);
        return;
    }
    body.cpu_us = r->u.usage.cpu_us;
    body.memory_bytes = r->u.usage.memory_bytes;
    body.cache_bytes = r->u.usage.cache_bytes;
    body.disk_bytes = r->u.usage.disk_bytes;
    body.processes = r->u.usage.processes;
    f.body_case = ABX__IPC__FRAME__BODY_USAGE_REPLY;
    f.usage_reply = &body;
    server_reply(m->engine, m->conn, m->seq, &f);
    free(m);
}

void sandbox_usage(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq)
{
    struct measuring *m = measuring_new(e, conn, seq);
    struct job j = { .kind = JOB_USAGE };
    struct abx_err err;
    int r = 0;

    if (!m)
        return;
    if (!can_be_measured(sb))
        r = err_set(&err, ABX_FAILED_PRECONDITION, "sandbox '%s' is starting, stopped or ending",
                    sb->record.sandbox_id);
    j.record = sb->record;
    if (r == 0)
        r = submit(m, &j, on_usage, &err);
    if (r < 0)
        fail(m, &err);
}

/* --- all ----------------------------------------------------------------------------------------- */

static void fill(Abx__Ipc__Measurement *to, const struct measured *sb, const struct job_usage *u)
{
    abx__ipc__measurement__init(to);
    to->sandbox_id = (char *)(uintptr_t)sb->sandbox_id;
    to->frozen = sb->is_frozen;
    to->started_ms = sb->started_ms;
    to->at_us = u->at_us;
    to->cpu_us = u->cpu_us;
    to->memory_bytes = u->memory_bytes;
    to->cache_bytes = u->cache_bytes;
    to->processes = u->processes;
    to->has_disk = u->has_disk;
    to->disk_bytes = u->disk_bytes;
}

static void reply_page(struct measuring *m, const struct job_usage *list, size_t n)
{
    Abx__Ipc__Measurement rows[JOB_MEASURE_MAX], *to[JOB_MEASURE_MAX];
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__MeasureReply body = ABX__IPC__MEASURE_REPLY__INIT;

    for (size_t i = 0; i < n; i++) {
        if (!list[i].is_there)
            continue;
        to[body.n_list] = &rows[body.n_list];
        fill(&rows[body.n_list++], &m->list[i], &list[i]);
    }
    body.list = to;
    body.more = m->has_more;
    body.last = m->last;
    f.body_case = ABX__IPC__FRAME__BODY_MEASURE_REPLY;
    f.measure_reply = &body;
    server_reply(m->engine, m->conn, m->seq, &f);
    free(m);
}

static void on_measured(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct measuring *m = user;

    (void)fds;
    (void)n_fds;
    if (r->err.code)
        fail(m, &r->err);
    else
        reply_page(m, r->u.measured.list, MIN((size_t)r->u.measured.n, m->n));
}

void measure_page(struct engine *e, const char *after, uint64_t conn, uint64_t seq)
{
    const struct sandbox *page[JOB_MEASURE_MAX];
    struct measuring *m = measuring_new(e, conn, seq);
    struct job j = { .kind = JOB_MEASURE };
    struct abx_err err;
    size_t n;

    if (!m)
        return;
    n = table_page(e->table, after, page, JOB_MEASURE_MAX, &m->has_more);
    for (size_t i = 0; i < n; i++) {
        const struct record *r = &page[i]->record;

        if (!can_be_measured(page[i]))
            continue;
        memcpy(j.measure.names[m->n], r->name, sizeof r->name);
        memcpy(m->list[m->n].sandbox_id, r->sandbox_id, sizeof r->sandbox_id);
        m->list[m->n].is_frozen = page[i]->state == SANDBOX_FROZEN;
        m->list[m->n++].started_ms = r->started_ms;
    }
    if (n > 0)
        memcpy(m->last, page[n - 1]->record.sandbox_id, sizeof m->last);
    j.measure.n = (uint32_t)m->n;
    if (m->n == 0)
        reply_page(m, NULL, 0);
    else if (submit(m, &j, on_measured, &err) < 0)
        fail(m, &err);
}
