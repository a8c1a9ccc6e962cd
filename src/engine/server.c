/* server.c - the socket of control: requests in, answers and Died events out. See engine.h.
 *
 * Who may connect was decided by uid at accept; what comes is still checked here, since ids and
 * names become file and group names.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/identity.h"

#define LIST_PAGE 250u
#define TEMPLATES_PAGE 64u
#define WARNINGS_MAX 6

/* --- answers ------------------------------------------------------------------------------------ */

static struct client *client_find(const struct engine *e, uint64_t id)
{
    struct client *k = e->clients;

    while (k && k->id != id)
        k = k->next;
    return k;
}

/* The point before a request is looked at, and, of its answer, when all is done and control does not know yet. */
static const char *point_of(const Abx__Ipc__Frame *f)
{
    switch (f->body_case) {
    case ABX__IPC__FRAME__BODY_CREATE:
        return "engine.create";
    case ABX__IPC__FRAME__BODY_CREATE_REPLY:
        return "engine.created";
    case ABX__IPC__FRAME__BODY_KILL:
        return "engine.kill";
    case ABX__IPC__FRAME__BODY_KILL_REPLY:
        return "engine.killed";
    case ABX__IPC__FRAME__BODY_FREEZE:
        return f->freeze->thaw ? "engine.thaw" : "engine.freeze";
    case ABX__IPC__FRAME__BODY_FREEZE_REPLY:
        return "engine.frozen";
    case ABX__IPC__FRAME__BODY_STOP:
        return "engine.stop";
    case ABX__IPC__FRAME__BODY_STOP_REPLY:
        return "engine.stopped";
    case ABX__IPC__FRAME__BODY_CLONE:
        return "engine.clone";
    case ABX__IPC__FRAME__BODY_CLONE_REPLY:
        return "engine.cloned";
    case ABX__IPC__FRAME__BODY_EXCHANGE:
        return "engine.exchange";
    case ABX__IPC__FRAME__BODY_EXCHANGE_REPLY:
        return "engine.exchanged";
    default: /* foreign */
        return NULL;
    }
}

void server_reply(struct engine *e, uint64_t conn, uint64_t seq, Abx__Ipc__Frame *frame)
{
    struct client *k = client_find(e, conn);
    const char *point = point_of(frame);
    struct abx_err err;

    if (point)
        (void)fault_at(point, NULL);
    if (k && ipc_conn_reply(k->conn, seq, frame, &err) < 0) {
        log_err("answer to control", &err);
        ipc_conn_close(k->conn); /* it asks again when it is back */
    }
}

/* What is asked for is looked up before anything is done. A file that is missing in a step, or is there already, says
 * nothing about the sandbox or the template of the request, however much its errno sounds like it. */
static void judge_step(struct abx_err *err)
{
    switch (err->sys ? err->code : 0) {
    case ABX_NOT_FOUND:
    case ABX_ALREADY_EXISTS:
    case ABX_INVALID_ARGUMENT:
    case ABX_PERMISSION_DENIED:
        err->code = ABX_INTERNAL;
        break;
    default:
        break;
    }
}

void server_reply_error(struct engine *e, uint64_t conn, uint64_t seq, const struct abx_err *err)
{
    struct client *k = client_find(e, conn);
    struct abx_err why = *err;

    judge_step(&why);
    if (k && ipc_conn_reply_error(k->conn, seq, &why, NULL) < 0)
        ipc_conn_close(k->conn);
}

void server_send_died(struct engine *e, const char *sandbox_id, const char *reason, int status)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Died body = ABX__IPC__DIED__INIT;

    body.sandbox_id = (char *)(uintptr_t)sandbox_id;
    body.reason = (char *)(uintptr_t)reason;
    body.status = status;
    f.body_case = ABX__IPC__FRAME__BODY_DIED;
    f.died = &body;
    for (struct client *k = e->clients; k; k = k->next)
        if (ipc_conn_send(k->conn, &f, NULL, 0, NULL) < 0)
            ipc_conn_close(k->conn);
}

/* --- create ------------------------------------------------------------------------------------- */

static bool id_is_valid(const char *id)
{
    size_t n = strlen(id);

    return n > 0 && n < RECORD_ID_SIZE &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

static int take_limit(const char *what, uint32_t asked, uint32_t normal, uint32_t max,
                      uint32_t *ret, struct abx_err *err)
{
    if (asked > max)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s of %u is over this machine's most, %u", what,
                       asked, max);
    *ret = asked ? asked : normal;
    return 0;
}

static int take_limits(const struct options *o, const Abx__Ipc__Create *q,
                       struct record_limits *ret, struct abx_err *err)
{
    int r = take_limit("cpu count", q->cpu_count, o->defaults.cpu_count, o->max.cpu_count,
                       &ret->cpu_count, err);

    if (r == 0)
        r = take_limit("memory in MiB", q->memory_mb, o->defaults.memory_mb, o->max.memory_mb,
                       &ret->memory_mb, err);
    if (r == 0)
        r = take_limit("disk in MiB", q->disk_mb, o->defaults.disk_mb, o->max.disk_mb,
                       &ret->disk_mb, err);
    return r;
}

static int take_template(struct engine *e, const char *name, struct creation *c,
                         const struct template **ret, struct abx_err *err)
{
    const struct template *t = templates_find(&e->templates, name);
    int r;

    if (!t) { /* it may be new */
        r = templates_refresh(e, err);
        if (r < 0)
            return r;
        t = templates_find(&e->templates, name);
    }
    if (!t)
        return err_set(err, ABX_NOT_FOUND, "template '%.100s' not found", name);
    (void)snprintf(c->folder, sizeof c->folder, "%s", t->folder);
    (void)snprintf(c->rootfs, sizeof c->rootfs, "%s", t->rootfs);
    *ret = t;
    return 0;
}

/* Where the request leaves the user or the folder open, the template's count. */
static int take_identity(const Abx__Ipc__Identity *from, const struct template *t,
                         struct creation *c, struct abx_err *err)
{
    Abx__Ipc__Identity id = ABX__IPC__IDENTITY__INIT;

    if (from)
        id = *from;
    if (id.default_user[0] == '\0')
        id.default_user = (char *)(uintptr_t)t->default_user;
    if (id.default_workdir[0] == '\0')
        id.default_workdir = (char *)(uintptr_t)t->default_workdir;
    return identity_encode(&id, c->sandbox_id, &c->identity, err);
}

static int fill_creation(struct engine *e, const Abx__Ipc__Create *q, struct creation *c,
                         struct abx_err *err)
{
    const char *hostname = q->identity ? q->identity->hostname : "";
    const struct template *t = NULL;
    int r;

    if (!id_is_valid(q->sandbox_id))
        return err_set(err, ABX_INVALID_ARGUMENT, "bad sandbox id '%.100s'", q->sandbox_id);
    if (hostname[0] == '\0')
        hostname = q->sandbox_id;
    if (!hostname_is_valid(hostname))
        return err_set(err, ABX_INVALID_ARGUMENT, "bad host name '%.100s'", hostname);
    (void)snprintf(c->sandbox_id, sizeof c->sandbox_id, "%s", q->sandbox_id);
    (void)snprintf(c->hostname, sizeof c->hostname, "%s", hostname);
    r = take_limits(e->o, q, &c->limits, err);
    if (r == 0)
        r = take_template(e, q->template_, c, &t, err);
    return r < 0 ? r : take_identity(q->identity, t, c, err);
}

static int take_create(struct client *k, const Abx__Ipc__Frame *f, struct abx_err *err)
{
    struct creation *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return err_oom(err);
    c->engine = k->engine;
    c->conn = k->id;
    c->seq = f->seq;
    c->begin_ns = time_mono_ns();
    buf_init(&c->identity, IDENTITY_BYTES_MAX);
    (void)snprintf(c->request_id, sizeof c->request_id, "%.63s", f->request_id);
    c->is_resume = f->create->resume;
    r = fill_creation(k->engine, f->create, c, err);
    if (r < 0) {
        creation_free(c);
        return r;
    }
    creation_begin(c);
    return 0;
}

/* --- the other requests ------------------------------------------------------------------------- */

static int find_sandbox(struct engine *e, const char *id, struct sandbox **ret, struct abx_err *err)
{
    struct sandbox *sb = table_find_id(e->table, id);

    if (!sb)
        return err_set(err, ABX_NOT_FOUND, "no sandbox '%.64s'", id);
    *ret = sb;
    return 0;
}

static void take_kill(struct client *k, const Abx__Ipc__Frame *f)
{
    struct engine *e = k->engine;
    struct sandbox *sb = table_find_id(e->table, f->kill->sandbox_id);
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__KillReply body = ABX__IPC__KILL_REPLY__INIT;

    if (sb) {
        sandbox_remove(e, sb, k->id, f->seq);
        return;
    }
    body.existed = creation_cancel(e, f->kill->sandbox_id);
    reply.body_case = ABX__IPC__FRAME__BODY_KILL_REPLY;
    reply.kill_reply = &body;
    server_reply(e, k->id, f->seq, &reply);
}

static void take_list(struct client *k, const Abx__Ipc__Frame *f)
{
    const struct sandbox *page[LIST_PAGE];
    Abx__Ipc__EngineSandbox rows[LIST_PAGE], *list[LIST_PAGE];
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__ListReply body = ABX__IPC__LIST_REPLY__INIT;
    bool has_more;
    size_t n = table_page(k->engine->table, f->list->after, page, LIST_PAGE, &has_more);

    for (size_t i = 0; i < n; i++) {
        const struct record *r = &page[i]->record;

        abx__ipc__engine_sandbox__init(&rows[i]);
        rows[i].sandbox_id = (char *)(uintptr_t)r->sandbox_id;
        rows[i].template_ = (char *)(uintptr_t)r->template;
        rows[i].frozen = page[i]->state == SANDBOX_FROZEN;
        rows[i].stopped = page[i]->state == SANDBOX_STOPPED || page[i]->keeps_upper;
        rows[i].pid = (uint32_t)r->pid;
        rows[i].started_ms = r->started_ms;
        list[i] = &rows[i];
    }
    body.n_sandboxes = n;
    body.sandboxes = list;
    body.more = has_more;
    body.without_stopped = disk_pool_why_dead(k->engine->pool)[0] != '\0';
    reply.body_case = ABX__IPC__FRAME__BODY_LIST_REPLY;
    reply.list_reply = &body;
    server_reply(k->engine, k->id, f->seq, &reply);
}

static void fill_template(Abx__Ipc__TemplateEntry *row, const struct template *t)
{
    abx__ipc__template_entry__init(row);
    row->name = (char *)(uintptr_t)t->name;
    row->digest = (char *)(uintptr_t)t->digest;
    row->created_ms = t->created_ms;
    row->size_bytes = t->size_bytes;
    row->default_user = (char *)(uintptr_t)t->default_user;
    row->default_workdir = (char *)(uintptr_t)t->default_workdir;
    row->suite = (char *)(uintptr_t)t->suite;
}

/* Pages by digest, in its order. */
static int take_templates(struct client *k, const Abx__Ipc__Frame *f, struct abx_err *err)
{
    struct engine *e = k->engine;
    Abx__Ipc__TemplateEntry rows[TEMPLATES_PAGE], *list[TEMPLATES_PAGE];
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__TemplatesReply body = ABX__IPC__TEMPLATES_REPLY__INIT;
    const char *after = f->templates->after;
    int r = templates_refresh(e, err);

    if (r < 0)
        return r;
    slots_refill(e); /* a pool may be of another template now */
    body.templates = list;
    for (;;) {
        const struct template *next = NULL;

        for (size_t i = 0; i < e->templates.n; i++) {
            const struct template *t = &e->templates.list[i];

            if (strcmp(t->digest, after) > 0 && (!next || strcmp(t->digest, next->digest) < 0))
                next = t;
        }
        body.more = next && body.n_templates == TEMPLATES_PAGE;
        if (!next || body.more)
            break;
        list[body.n_templates] = &rows[body.n_templates];
        fill_template(&rows[body.n_templates++], next);
        after = next->digest;
    }
    reply.body_case = ABX__IPC__FRAME__BODY_TEMPLATES_REPLY;
    reply.templates_reply = &body;
    server_reply(e, k->id, f->seq, &reply);
    return 0;
}

/* The sandbox that a request is about, and the id of a second one, NULL = none. */
static const char *ids_of(const Abx__Ipc__Frame *f, const char **ret_other)
{
    *ret_other = NULL;
    switch (f->body_case) {
    case ABX__IPC__FRAME__BODY_USAGE:
        return f->usage->sandbox_id;
    case ABX__IPC__FRAME__BODY_STOP:
        return f->stop->sandbox_id;
    case ABX__IPC__FRAME__BODY_CLONE:
        *ret_other = f->clone->new_id;
        return f->clone->sandbox_id;
    case ABX__IPC__FRAME__BODY_EXCHANGE:
        *ret_other = f->exchange->copy_id;
        return f->exchange->sandbox_id;
    default: /* foreign */
        return f->freeze->sandbox_id;
    }
}

static int take_for_sandbox(struct client *k, const Abx__Ipc__Frame *f, struct abx_err *err)
{
    struct engine *e = k->engine;
    const char *other, *id = ids_of(f, &other);
    struct sandbox *sb = NULL;
    int r = find_sandbox(e, id, &sb, err);

    if (r == 0 && other && !id_is_valid(other))
        r = err_set(err, ABX_INVALID_ARGUMENT, "bad sandbox id '%.100s'", other);
    if (r < 0)
        return r;
    if (f->body_case == ABX__IPC__FRAME__BODY_USAGE)
        sandbox_usage(e, sb, k->id, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_CLONE)
        sandbox_clone(e, sb, other, k->id, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_EXCHANGE)
        sandbox_exchange(e, sb, other, f->exchange->sync, k->id, f->seq);
    else if (f->body_case == ABX__IPC__FRAME__BODY_STOP)
        sandbox_stop(e, sb, k->id, f->seq);
    else if (f->freeze->thaw)
        sandbox_thaw(e, sb, f->freeze->keep, k->id, f->seq);
    else
        sandbox_freeze(e, sb, f->freeze->keep, f->freeze->sync, f->freeze->brief, k->id, f->seq);
    return 0;
}

static void count_listed(void *user, struct sandbox *sb)
{
    uint32_t *n = user;

    *n += sb->record.sandbox_id[0] != '\0';
}

/* What people should know about limits that do not hold here. Returns how many. */
static size_t find_warnings(const struct engine *e, char text[WARNINGS_MAX][256],
                            char *list[WARNINGS_MAX])
{
    struct cgroup_enforced is = cgroup_tree_enforced(e->cgroups);
    size_t n = 0;

    if (disk_pool_why_dead(e->pool)[0])
        (void)snprintf(text[n++], sizeof *text, "the pool cannot be used: %.200s",
                       disk_pool_why_dead(e->pool));
    else if (!disk_pool_is_limited(e->pool))
        (void)snprintf(text[n++], sizeof *text, "sandboxes have no disk limit: %.200s",
                       disk_pool_why_plain(e->pool));
    if (!is.memory)
        (void)snprintf(text[n++], sizeof *text, "sandboxes have no memory limit on this host");
    if (!is.cpu)
        (void)snprintf(text[n++], sizeof *text, "sandboxes have no CPU limit on this host");
    if (!is.pids)
        (void)snprintf(text[n++], sizeof *text, "sandboxes have no process limit on this host");
    if (e->no_steering[0])
        (void)snprintf(text[n++], sizeof *text, "sandboxes have no network: %.200s",
                       e->no_steering);
    for (size_t i = 0; i < n; i++)
        list[i] = text[i];
    return n;
}

void server_log_limits(const struct engine *e)
{
    char text[WARNINGS_MAX][256], *list[WARNINGS_MAX];
    size_t n = find_warnings(e, text, list);

    for (size_t i = 0; i < n; i++)
        log_warn(list[i], "more", "abx doctor", NULL);
}

static void take_info(struct client *k, const Abx__Ipc__Frame *f)
{
    static const char *const modes[] = {
        [CGROUP_V1] = "v1",
        [CGROUP_HYBRID] = "hybrid",
        [CGROUP_V2] = "v2",
    };
    struct engine *e = k->engine;
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__EngineInfoReply body = ABX__IPC__ENGINE_INFO_REPLY__INIT;
    char text[WARNINGS_MAX][256], *warnings[WARNINGS_MAX];
    const char *path = e->mount_path == MOUNT_BY_STRING ? "string" : "fd";

    body.cgroup_mode = (char *)(uintptr_t)modes[cgroup_tree_mode(e->cgroups)];
    body.mount_path = (char *)(uintptr_t)path;
    body.pool_kind = (char *)(uintptr_t)disk_kind_name(disk_pool_kind(e->pool));
    body.disk_limited = disk_pool_is_limited(e->pool);
    table_each(e->table, count_listed, &body.sandboxes);
    pools_count(e, &body.pooled);
    body.slots = e->n_slots;
    body.n_warnings = find_warnings(e, text, warnings);
    body.warnings = warnings;
    body.can_checkpoint = e->checkpoint.is_possible;
    body.checkpoint = e->checkpoint.text;
    reply.body_case = ABX__IPC__FRAME__BODY_ENGINE_INFO_REPLY;
    reply.engine_info_reply = &body;
    server_reply(e, k->id, f->seq, &reply);
}

static void take_hello(struct client *k, const Abx__Ipc__Frame *f)
{
    Abx__Ipc__Frame reply = ABX__IPC__FRAME__INIT;
    Abx__Ipc__HelloReply body = ABX__IPC__HELLO_REPLY__INIT;
    char release[] = ABX_VERSION;

    body.release = release;
    body.instance = (char *)(uintptr_t)k->engine->o->instance;
    body.boot_id = k->engine->boot_id;
    reply.body_case = ABX__IPC__FRAME__BODY_HELLO_REPLY;
    reply.hello_reply = &body;
    server_reply(k->engine, k->id, f->seq, &reply);
}

static int take_request(struct client *k, const Abx__Ipc__Frame *f, struct abx_err *err)
{
    const char *point = point_of(f);
    int r = point ? fault_name_step(fault_at(point, err), point, err) : 0;

    if (r < 0)
        return r;
    switch (f->body_case) {
    case ABX__IPC__FRAME__BODY_HELLO:
        take_hello(k, f);
        return 0;
    case ABX__IPC__FRAME__BODY_CREATE:
        return take_create(k, f, err);
    case ABX__IPC__FRAME__BODY_KILL:
        take_kill(k, f);
        return 0;
    case ABX__IPC__FRAME__BODY_LIST:
        take_list(k, f);
        return 0;
    case ABX__IPC__FRAME__BODY_TEMPLATES:
        return take_templates(k, f, err);
    case ABX__IPC__FRAME__BODY_FREEZE:
    case ABX__IPC__FRAME__BODY_STOP:
    case ABX__IPC__FRAME__BODY_CLONE:
    case ABX__IPC__FRAME__BODY_EXCHANGE:
    case ABX__IPC__FRAME__BODY_USAGE:
        return take_for_sandbox(k, f, err);
    case ABX__IPC__FRAME__BODY_MEASURE:
        measure_page(k->engine, f->measure->after, k->id, f->seq);
        return 0;
    case ABX__IPC__FRAME__BODY_AUDIT:
        audit_begin(k->engine, f->audit->repair, k->id, f->seq);
        return 0;
    case ABX__IPC__FRAME__BODY_ENGINE_INFO:
        take_info(k, f);
        return 0;
    default: /* foreign */
        return err_set(err, ABX_PERMISSION_DENIED, "control may not ask the engine for this");
    }
}

/* --- connections -------------------------------------------------------------------------------- */

static void on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                     size_t n_fds)
{
    struct client *k = user;
    struct abx_err err;

    (void)c;
    (void)fds;
    (void)n_fds;
    if (take_request(k, f, &err) < 0)
        server_reply_error(k->engine, k->id, f->seq, &err);
}

static void on_close(void *user, struct ipc_conn *c, const struct abx_err *why)
{
    struct client *k = user;

    (void)c;
    if (why->code)
        log_err("control connection ended", why);
    *k->at = k->next;
    if (k->next)
        k->next->at = k->at;
    free(k);
}

static void on_accept(void *user, int fd, const struct ucred *peer)
{
    struct engine *e = user;
    struct client *k = calloc(1, sizeof *k);
    const struct ipc_handlers h = { on_frame, on_close, k };
    struct abx_err err;

    (void)peer;
    if (!k) {
        fd_close(fd);
        return;
    }
    if (ipc_conn_new(&e->loop, fd, &h, &k->conn, &err) < 0) {
        log_err("control connection", &err);
        free(k);
        return;
    }
    k->engine = e;
    k->id = ++e->last_client;
    k->next = e->clients;
    k->at = &e->clients;
    if (k->next)
        k->next->at = &k->next;
    e->clients = k;
}

int server_start(struct engine *e, int listen_fd, struct abx_err *err)
{
    const uid_t uids[] = { 0, e->o->control_uid };

    return ipc_listener_new(&e->loop, listen_fd, uids, ARRAY_SIZE(uids), on_accept, e, &e->listener,
                            err);
}

void server_stop(struct engine *e)
{
    ipc_listener_free(e->listener);
    e->listener = NULL;
    for (struct client *k = e->clients; k; k = k->next)
        ipc_conn_close(k->conn);
}
