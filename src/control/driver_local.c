/* driver_local.c - this machine's engine behind the driver interface: one IPC connection that is
 * made again whenever it ends. Creates that come while it is away wait; everything else fails at
 * once and is tried again by its caller when the engine is up.
 */
#include <stdio.h>
#include <string.h>

#include "control/driver.h"
#include "net/ipc.h"

#define CREATE_TIMEOUT_MS 30000
#define KILL_TIMEOUT_MS 30000
#define LIST_TIMEOUT_MS 10000
#define AUDIT_TIMEOUT_MS 60000
#define INFO_TIMEOUT_MS 2000
#define FREEZE_TIMEOUT_MS 30000 /* with a sync; the freeze itself has 5 s in the engine */
#define PAGE_MAX 1024u
#define MEASURED_MAX 256u

struct local {
    struct driver base;
    uv_loop_t *loop;
    struct driver_events events;
    struct ipc_client *client; /* NULL: closed */
    struct parked *parked;     /* creates that wait for the engine, oldest first */
    struct parked **parked_end;
    uv_timer_t timer; /* the oldest one's deadline */
};

/* A create while the engine is away: the packed frame and its completion. */
struct parked {
    struct parked *next;
    uint64_t deadline_ms; /* loop time */
    driver_created_fn done;
    void *user;
    size_t n;
    uint8_t frame[];
};

/* A request in flight; the union of what the completions take. */
struct call {
    struct local *local;
    void *user;
    driver_created_fn created;
    driver_killed_fn killed;
    driver_done_fn done;
    driver_listed_fn listed;
    driver_templates_fn templates;
    driver_audited_fn audited;
    driver_info_fn info;
    driver_measured_fn measured;
};

static struct local *local_of(struct driver *d)
{
    return container_of(d, struct local, base);
}

/* Protobuf's strings are not const; nothing writes to them. */
static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

/* NULL while the engine is away. */
static struct ipc_conn *conn_of(const struct local *l)
{
    return l->client ? ipc_client_conn(l->client) : NULL;
}

static struct call *call_new(struct local *l, void *user)
{
    struct call *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->local = l;
    c->user = user;
    return c;
}

static int send_call(struct call *c, Abx__Ipc__Frame *frame, int timeout_ms, ipc_done_fn done,
                     struct abx_err *err)
{
    struct ipc_conn *conn = conn_of(c->local);
    int r = conn ? ipc_conn_request(conn, frame, timeout_ms, done, c, err)
                 : err_set(err, ABX_UNAVAILABLE, "the engine is not there");

    if (r < 0)
        free(c);
    return r;
}

/* The failure of a request: its own, or an answer of the wrong kind. NULL = none. */
static const struct abx_err *judge(const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                                   Abx__Ipc__Frame__BodyCase want, struct abx_err *mem)
{
    if (failure)
        return failure;
    if (reply->body_case == want)
        return NULL;
    (void)err_set(mem, ABX_INTERNAL, "the engine answers with another message (%d)",
                  (int)reply->body_case);
    return mem;
}

/* --- create ------------------------------------------------------------------------------------ */

static void on_created(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct call *c = user;
    struct driver_created created = { 0 };
    struct driver_stage stages[32];
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_CREATE_REPLY, &mem);
    if (!failure) {
        const Abx__Ipc__CreateReply *r = reply->create_reply;

        created.cpu_count = r->cpu_count;
        created.memory_mb = r->memory_mb;
        created.disk_mb = r->disk_mb;
        created.is_warm = r->warm;
        created.execution_id = r->execution_id;
        created.stages = stages;
        created.n_stages = MIN(r->n_stages, ARRAY_SIZE(stages));
        for (size_t i = 0; i < created.n_stages; i++)
            stages[i] = (struct driver_stage){ r->stages[i]->name, r->stages[i]->us };
    }
    c->created(c->user, failure ? NULL : &created, failure, true);
    free(c);
}

static int send_create(struct local *l, Abx__Ipc__Frame *frame, driver_created_fn done, void *user,
                       struct abx_err *err)
{
    struct call *c = call_new(l, user);

    if (!c)
        return err_oom(err);
    c->created = done;
    return send_call(c, frame, CREATE_TIMEOUT_MS, on_created, err);
}

static void parked_fail(struct parked *p, const char *why)
{
    struct abx_err err;

    (void)err_reason(&err, ABX_REASON_BUSY, "%s", why);
    p->done(p->user, NULL, &err, false);
    free(p);
}

static struct parked *parked_take(struct local *l)
{
    struct parked *p = l->parked;

    if (!p)
        return NULL;
    l->parked = p->next;
    if (!l->parked)
        l->parked_end = &l->parked;
    return p;
}

static void on_deadline(uv_timer_t *t);

static void arm(struct local *l)
{
    uint64_t now = uv_now(l->loop);

    if (l->parked)
        (void)uv_timer_start(&l->timer, on_deadline,
                             l->parked->deadline_ms > now ? l->parked->deadline_ms - now : 0, 0);
    else
        (void)uv_timer_stop(&l->timer);
}

static void on_deadline(uv_timer_t *t)
{
    struct local *l = container_of(t, struct local, timer);

    while (l->parked && l->parked->deadline_ms <= uv_now(l->loop))
        parked_fail(parked_take(l), "the engine is being restarted, try again");
    arm(l);
}

static int park(struct local *l, Abx__Ipc__Frame *frame, driver_created_fn done, void *user,
                struct abx_err *err)
{
    struct parked *p = malloc(sizeof(*p) + IPC_FRAME_MAX);

    if (!p)
        return err_oom(err);
    p->n = ipc_frame_encode(frame, p->frame);
    if (p->n == 0) {
        free(p);
        return err_reason(err, ABX_REASON_TOO_LARGE, "environment variables are too large");
    }
    p->next = NULL;
    p->deadline_ms = uv_now(l->loop) + DRIVER_WAIT_MS;
    p->done = done;
    p->user = user;
    *l->parked_end = p;
    l->parked_end = &p->next;
    arm(l);
    return 0;
}

static void unpark_all(struct local *l)
{
    struct parked *p;

    while (conn_of(l) && (p = parked_take(l)) != NULL) {
        Abx__Ipc__Frame *frame = ipc_frame_decode(p->frame, p->n);
        struct abx_err err = { 0 };

        if (!frame) {
            parked_fail(p, "out of memory");
            continue;
        }
        if (send_create(l, frame, p->done, p->user, &err) < 0)
            p->done(p->user, NULL, &err, false);
        abx__ipc__frame__free_unpacked(frame, NULL);
        free(p);
    }
    arm(l);
}

static int env_entries(const struct driver_create *req, Abx__Ipc__Identity *identity)
{
    Abx__Ipc__Identity__EnvsEntry *rows = calloc(req->n_envs + 1, sizeof(*rows));
    Abx__Ipc__Identity__EnvsEntry **list = calloc(req->n_envs + 1, sizeof(*list));

    if (!rows || !list) {
        free(rows);
        free(list);
        return -1;
    }
    list[0] = rows; /* freed through it, also when there are none */
    for (size_t i = 0; i < req->n_envs; i++) {
        abx__ipc__identity__envs_entry__init(&rows[i]);
        rows[i].key = text(req->envs[i].name);
        rows[i].value = text(req->envs[i].value);
        list[i] = &rows[i];
    }
    identity->envs = list;
    identity->n_envs = req->n_envs;
    return 0;
}

static int local_create(struct driver *d, const struct driver_create *req, driver_created_fn done,
                        void *user, struct abx_err *err)
{
    struct local *l = local_of(d);
    Abx__Ipc__Identity identity = ABX__IPC__IDENTITY__INIT;
    Abx__Ipc__Create create = ABX__IPC__CREATE__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    int r;

    if (!l->client)
        return err_set(err, ABX_UNAVAILABLE, "the service is stopping");
    if (env_entries(req, &identity) < 0)
        return err_oom(err);
    identity.sandbox_id = text(req->sandbox_id);
    identity.template_id = text(req->template_id);
    identity.access_token = text(req->access_token);
    identity.hostname = text(req->sandbox_id);
    create.sandbox_id = text(req->sandbox_id);
    create.template_ = text(req->digest);
    create.cpu_count = req->cpu_count;
    create.memory_mb = req->memory_mb;
    create.disk_mb = req->disk_mb;
    create.identity = &identity;
    create.resume = req->is_resume;
    frame.version = IPC_VERSION;
    frame.request_id = text(req->request_id);
    frame.body_case = ABX__IPC__FRAME__BODY_CREATE;
    frame.create = &create;
    r = conn_of(l) ? send_create(l, &frame, done, user, err) : park(l, &frame, done, user, err);
    free(identity.envs[0]);
    free(identity.envs);
    return r;
}

/* --- the rest ---------------------------------------------------------------------------------- */

static void on_killed(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                      int *fds, size_t n_fds)
{
    struct call *c = user;
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_KILL_REPLY, &mem);
    c->killed(c->user, !failure && reply->kill_reply->existed, failure);
    free(c);
}

static int local_kill(struct driver *d, const char *sandbox_id, const char *request_id,
                      driver_killed_fn done, void *user, struct abx_err *err)
{
    Abx__Ipc__Kill kill = ABX__IPC__KILL__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->killed = done;
    kill.sandbox_id = text(sandbox_id);
    frame.request_id = text(request_id);
    frame.body_case = ABX__IPC__FRAME__BODY_KILL;
    frame.kill = &kill;
    return send_call(c, &frame, KILL_TIMEOUT_MS, on_killed, err);
}

static void on_frozen(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                      int *fds, size_t n_fds)
{
    struct call *c = user;
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_FREEZE_REPLY, &mem);
    c->done(c->user, failure ? 0 : reply->freeze_reply->us, failure);
    free(c);
}

static int send_freeze(struct driver *d, Abx__Ipc__Freeze *freeze, driver_done_fn done, void *user,
                       struct abx_err *err)
{
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->done = done;
    frame.body_case = ABX__IPC__FRAME__BODY_FREEZE;
    frame.freeze = freeze;
    return send_call(c, &frame, FREEZE_TIMEOUT_MS, on_frozen, err);
}

static int local_freeze(struct driver *d, const char *sandbox_id, enum driver_freeze what,
                        driver_done_fn done, void *user, struct abx_err *err)
{
    Abx__Ipc__Freeze freeze = ABX__IPC__FREEZE__INIT;

    freeze.sandbox_id = text(sandbox_id);
    freeze.keep = true;
    freeze.sync = what == DRIVER_FREEZE_FILES;
    freeze.brief = what == DRIVER_FREEZE_BRIEF;
    return send_freeze(d, &freeze, done, user, err);
}

static int local_thaw(struct driver *d, const char *sandbox_id, bool is_resume, driver_done_fn done,
                      void *user, struct abx_err *err)
{
    Abx__Ipc__Freeze freeze = ABX__IPC__FREEZE__INIT;

    freeze.sandbox_id = text(sandbox_id);
    freeze.thaw = true;
    freeze.keep = is_resume;
    return send_freeze(d, &freeze, done, user, err);
}

static void on_stopped(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct call *c = user;
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    c->done(c->user, 0, judge(failure, reply, ABX__IPC__FRAME__BODY_STOP_REPLY, &mem));
    free(c);
}

static int local_stop(struct driver *d, const char *sandbox_id, driver_done_fn done, void *user,
                      struct abx_err *err)
{
    Abx__Ipc__Stop stop = ABX__IPC__STOP__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->done = done;
    stop.sandbox_id = text(sandbox_id);
    frame.body_case = ABX__IPC__FRAME__BODY_STOP;
    frame.stop = &stop;
    return send_call(c, &frame, KILL_TIMEOUT_MS, on_stopped, err);
}

static void on_cloned(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                      int *fds, size_t n_fds)
{
    struct call *c = user;
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_CLONE_REPLY, &mem);
    c->done(c->user, failure ? 0 : reply->clone_reply->us, failure);
    free(c);
}

static int local_clone(struct driver *d, const char *sandbox_id, const char *new_id,
                       driver_done_fn done, void *user, struct abx_err *err)
{
    Abx__Ipc__Clone clone = ABX__IPC__CLONE__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->done = done;
    clone.sandbox_id = text(sandbox_id);
    clone.new_id = text(new_id);
    frame.body_case = ABX__IPC__FRAME__BODY_CLONE;
    frame.clone = &clone;
    return send_call(c, &frame, FREEZE_TIMEOUT_MS, on_cloned, err);
}

static void on_exchanged(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                         int *fds, size_t n_fds)
{
    struct call *c = user;
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_EXCHANGE_REPLY, &mem);
    c->done(c->user, failure ? 0 : reply->exchange_reply->us, failure);
    free(c);
}

static int local_exchange(struct driver *d, const char *sandbox_id, const char *copy_id,
                          bool is_synced, driver_done_fn done, void *user, struct abx_err *err)
{
    Abx__Ipc__Exchange exchange = ABX__IPC__EXCHANGE__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->done = done;
    exchange.sandbox_id = text(sandbox_id);
    exchange.copy_id = text(copy_id);
    exchange.sync = is_synced;
    frame.body_case = ABX__IPC__FRAME__BODY_EXCHANGE;
    frame.exchange = &exchange;
    return send_call(c, &frame, FREEZE_TIMEOUT_MS, on_exchanged, err);
}

static void on_listed(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                      int *fds, size_t n_fds)
{
    struct call *c = user;
    struct driver_sandbox page[PAGE_MAX];
    struct abx_err mem;
    bool has_more = false, is_whole = false;
    size_t n = 0;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_LIST_REPLY, &mem);
    if (!failure && reply->list_reply->n_sandboxes > PAGE_MAX) {
        (void)err_set(&mem, ABX_INTERNAL, "a page of more than %u sandboxes", PAGE_MAX);
        failure = &mem;
    }
    if (!failure) {
        has_more = reply->list_reply->more;
        is_whole = !reply->list_reply->without_stopped;
        for (; n < reply->list_reply->n_sandboxes; n++) {
            const Abx__Ipc__EngineSandbox *sb = reply->list_reply->sandboxes[n];

            page[n] = (struct driver_sandbox){ sb->sandbox_id, sb->stopped  ? DRIVER_STOPPED
                                                               : sb->frozen ? DRIVER_FROZEN
                                                                            : DRIVER_RUNS };
        }
    }
    c->listed(c->user, page, n, has_more, is_whole, failure);
    free(c);
}

static int local_list(struct driver *d, const char *after, driver_listed_fn done, void *user,
                      struct abx_err *err)
{
    Abx__Ipc__List list = ABX__IPC__LIST__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->listed = done;
    list.after = text(after);
    frame.body_case = ABX__IPC__FRAME__BODY_LIST;
    frame.list = &list;
    return send_call(c, &frame, LIST_TIMEOUT_MS, on_listed, err);
}

static void on_templates(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                         int *fds, size_t n_fds)
{
    struct call *c = user;
    struct driver_template rows[PAGE_MAX];
    struct abx_err mem;
    bool has_more = false;
    size_t n = 0;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_TEMPLATES_REPLY, &mem);
    if (!failure) {
        const Abx__Ipc__TemplatesReply *r = reply->templates_reply;

        has_more = r->more;
        for (; n < MIN(r->n_templates, (size_t)PAGE_MAX); n++)
            rows[n] =
                (struct driver_template){ r->templates[n]->name, r->templates[n]->digest,
                                          r->templates[n]->created_ms, r->templates[n]->size_bytes,
                                          r->templates[n]->suite };
    }
    c->templates(c->user, rows, n, has_more, failure);
    free(c);
}

static int local_templates(struct driver *d, const char *after, driver_templates_fn done,
                           void *user, struct abx_err *err)
{
    Abx__Ipc__Templates templates = ABX__IPC__TEMPLATES__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->templates = done;
    templates.after = text(after);
    frame.body_case = ABX__IPC__FRAME__BODY_TEMPLATES;
    frame.templates = &templates;
    return send_call(c, &frame, LIST_TIMEOUT_MS, on_templates, err);
}

static void on_audited(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                       int *fds, size_t n_fds)
{
    struct call *c = user;
    const char *findings[PAGE_MAX];
    struct abx_err mem;
    size_t n = 0;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_AUDIT_REPLY, &mem);
    if (!failure)
        for (; n < MIN(reply->audit_reply->n_findings, (size_t)PAGE_MAX); n++)
            findings[n] = reply->audit_reply->findings[n];
    c->audited(c->user, findings, n, failure ? 0 : reply->audit_reply->repaired, failure);
    free(c);
}

static int local_audit(struct driver *d, bool repair, driver_audited_fn done, void *user,
                       struct abx_err *err)
{
    Abx__Ipc__Audit audit = ABX__IPC__AUDIT__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->audited = done;
    audit.repair = repair;
    frame.body_case = ABX__IPC__FRAME__BODY_AUDIT;
    frame.audit = &audit;
    return send_call(c, &frame, AUDIT_TIMEOUT_MS, on_audited, err);
}

static void on_measured(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                        int *fds, size_t n_fds)
{
    struct call *c = user;
    struct driver_usage page[MEASURED_MAX];
    struct abx_err mem;
    bool has_more = false;
    const char *last = "";
    size_t n = 0;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_MEASURE_REPLY, &mem);
    if (!failure) {
        const Abx__Ipc__MeasureReply *r = reply->measure_reply;

        has_more = r->more;
        last = r->last;
        for (; n < MIN(r->n_list, (size_t)MEASURED_MAX); n++) {
            const Abx__Ipc__Measurement *m = r->list[n];

            page[n] = (struct driver_usage){
                .id = m->sandbox_id,
                .is_frozen = m->frozen,
                .has_disk = m->has_disk,
                .started_ms = m->started_ms,
                .at_us = m->at_us,
                .cpu_us = m->cpu_us,
                .memory_bytes = m->memory_bytes,
                .cache_bytes = m->cache_bytes,
                .disk_bytes = m->disk_bytes,
            };
        }
    }
    c->measured(c->user, page, n, has_more, last, failure);
    free(c);
}

static int local_measure(struct driver *d, const char *after, driver_measured_fn done, void *user,
                         struct abx_err *err)
{
    Abx__Ipc__Measure measure = ABX__IPC__MEASURE__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->measured = done;
    measure.after = text(after);
    frame.body_case = ABX__IPC__FRAME__BODY_MEASURE;
    frame.measure = &measure;
    return send_call(c, &frame, LIST_TIMEOUT_MS, on_measured, err);
}

static void on_info(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                    int *fds, size_t n_fds)
{
    struct call *c = user;
    struct driver_info info = { 0 };
    struct abx_err mem;

    (void)fds;
    (void)n_fds;
    failure = judge(failure, reply, ABX__IPC__FRAME__BODY_ENGINE_INFO_REPLY, &mem);
    if (!failure)
        info = (struct driver_info){ .sandboxes = reply->engine_info_reply->sandboxes,
                                     .pooled = reply->engine_info_reply->pooled,
                                     .slots = reply->engine_info_reply->slots,
                                     .can_checkpoint = reply->engine_info_reply->can_checkpoint,
                                     .checkpoint = reply->engine_info_reply->checkpoint };
    c->info(c->user, &info, failure);
    free(c);
}

static int local_info(struct driver *d, driver_info_fn done, void *user, struct abx_err *err)
{
    Abx__Ipc__EngineInfo question = ABX__IPC__ENGINE_INFO__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    struct call *c = call_new(local_of(d), user);

    if (!c)
        return err_oom(err);
    c->info = done;
    frame.body_case = ABX__IPC__FRAME__BODY_ENGINE_INFO;
    frame.engine_info = &question;
    return send_call(c, &frame, INFO_TIMEOUT_MS, on_info, err);
}

static bool local_is_up(const struct driver *d)
{
    const struct local *l = (const struct local *)(const void *)d;

    return conn_of(l) != NULL;
}

/* --- connection -------------------------------------------------------------------------------- */

static void on_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    struct local *l = user;

    (void)c;
    (void)hello;
    l->events.on_up(l->events.user);
    unpark_all(l);
}

static void on_down(void *user, const struct abx_err *why)
{
    struct local *l = user;

    (void)why;
    l->events.on_down(l->events.user);
}

static void on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *frame, int *fds,
                     size_t n_fds)
{
    struct local *l = user;

    (void)c;
    (void)fds;
    (void)n_fds;
    if (frame->body_case == ABX__IPC__FRAME__BODY_DIED)
        l->events.on_died(l->events.user, frame->died->sandbox_id, frame->died->reason);
}

static void local_close(struct driver *d)
{
    struct local *l = local_of(d);
    struct ipc_client *client = TAKE_PTR(l->client);
    struct parked *p;

    while ((p = parked_take(l)) != NULL)
        parked_fail(p, "the service is stopping");
    ipc_client_free(client);
    uv_close((uv_handle_t *)&l->timer, NULL);
}

static void local_free(struct driver *d)
{
    free(local_of(d));
}

static const struct driver_ops local_ops = {
    .create = local_create,
    .kill = local_kill,
    .freeze = local_freeze,
    .thaw = local_thaw,
    .stop = local_stop,
    .clone = local_clone,
    .exchange = local_exchange,
    .list = local_list,
    .templates = local_templates,
    .audit = local_audit,
    .measure = local_measure,
    .info = local_info,
    .is_up = local_is_up,
    .close = local_close,
    .free = local_free,
};

int driver_local_new(struct uv_loop_s *loop, const char *path, const struct driver_events *events,
                     struct driver **ret, struct abx_err *err)
{
    _cleanup_(freep) struct local *l = calloc(1, sizeof(*l));
    struct ipc_client_handlers handlers = { on_up, on_frame, on_down, l };
    int r;

    if (!l)
        return err_oom(err);
    l->base.ops = &local_ops;
    l->loop = loop;
    l->events = *events;
    l->parked_end = &l->parked;
    r = ipc_client_new(loop, path, &handlers, &l->client, err);
    if (r < 0)
        return r;
    (void)uv_timer_init(loop, &l->timer);
    *ret = &l->base;
    (void)TAKE_PTR(l);
    return 0;
}
