/* watch.c - see watch.h.
 *
 * One piece of work per watcher at a time takes what the kernel has, then packs what a client waits
 * for; while it runs the watcher belongs to the pool, and what the loop wants is written down. inotify's
 * descriptor is polled only between two pieces. At the end, when nothing polls it any more, the
 * descriptor is closed in the pool too: the kernel takes its time for that.
 */
#include "guest/envd/watch.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "guest/daemon/entry.h"
#include "guest/daemon/paths.h"
#include "guest/daemon/watcher.h"
#include "guest/daemon/work.h"

#define RUN_NS (20 * NSEC_PER_MSEC) /* of a thread of the pool before others get it */
#define OUT_FULL (64u << 10)        /* of a stream, encoded ahead */
#define OUT_MAX (OUT_FULL + (256u << 10))
#define ENTRIES_MAX 4096 /* events with entries in one answer */
#define ID_BYTES 12
#define LARGE 1000 /* events or folders: their memory is given back to the kernel */

struct watches {
    struct watch *first;
    size_t n;
    struct watch_budget budget;
};

struct watch {
    struct work work;
    struct watches *all;
    struct watch *next, **link; /* link NULL: not in the list any more */
    uv_loop_t *loop;
    struct user user;
    char path[PATH_MAX];
    char id[2 * ID_BYTES + 1];
    bool wants_entries;
    struct watcher watcher;
    uv_poll_t poll;
    uv_timer_t timer;    /* keepalive of a stream, else the end of patience */
    uv_timer_t deadline; /* of a stream */
    unsigned n_handles;
    uint64_t idle_ms;
    struct call *call;    /* the stream; of the others the creation, until answered */
    struct call *waiting; /* GetWatcherEvents; chained by call->data */
    struct call *removal;
    void (*finish)(struct call *c); /* how the stream ends; NULL: its client went away */
    struct buf out;                 /* of a stream: encoded, not yet taken by the connection */
    struct buf packed;              /* the pool's next part of it */
    Filesystem__GetWatcherEventsResponse events;
    bool is_stream;
    bool is_polled;  /* `poll` is a handle */
    bool is_working; /* in the pool */
    bool is_opened;
    bool is_started; /* answered; the client has its start event or its id */
    bool wants_pack; /* for the pool: pack what is in the queue. Set while it is not at work */
    bool wants_shut; /* for the pool: inotify is not needed any more */
    bool has_events; /* `events` is an answer */
    bool is_drained; /* by the last piece of work: the queue is empty */
    bool has_more;
    uint64_t
        target; /* of inotify's bytes: what had happened when events were asked for; 0 = not asked */
    bool is_late;   /* the stream's time was over before it began */
    bool is_ending; /* `out` holds the last of the stream */
    bool is_closing;
    bool is_closed;
};

int watches_new(struct watches **ret, struct abx_err *err)
{
    struct watches *all = calloc(1, sizeof(*all));

    if (!all)
        return err_oom(err);
    watch_budget_init(&all->budget);
    *ret = all;
    return 0;
}

/* --- in the pool -------------------------------------------------------------------------------- */

static Filesystem__EntryInfo *entry_of(struct watch *t, const struct user_names *names,
                                       enum watch_op op, const char *name)
{
    Filesystem__EntryInfo *e = NULL;
    char path[PATH_MAX];

    if (!t->wants_entries || (op != WATCH_CREATE && op != WATCH_WRITE && op != WATCH_CHMOD))
        return NULL;
    if (!path_join(path, sizeof(path), t->path, strcmp(name, ".") == 0 ? "" : name))
        return NULL;
    guest_path_clean(path);
    (void)entry_make(names, path, &e, NULL); /* gone again: an event without */
    return e;
}

static bool pack_one(struct watch *t, const struct user_names *names, enum watch_op op,
                     const char *name)
{
    Filesystem__FilesystemEvent event = FILESYSTEM__FILESYSTEM_EVENT__INIT;
    Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
    char *text = entry_text(name);
    bool ok = text != NULL;

    if (ok) {
        event.name = text;
        event.type = (Filesystem__EventType)op;
        event.entry = entry_of(t, names, op, name);
        if (event.entry)
            event.entry_opt_case = FILESYSTEM__FILESYSTEM_EVENT__ENTRY_OPT_ENTRY;
        m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM;
        m.filesystem = &event;
        ok = call_stream_encode(t->call, &m.base, &t->packed, NULL) == 0;
        entry_free(event.entry);
    }
    free(text);
    return ok;
}

static void pack_stream(struct watch *t, const struct user_names *names)
{
    enum watch_op op;
    const char *name;

    while (t->packed.len < OUT_FULL && watch_queue_peek(&t->watcher.queue, &op, &name)) {
        if (!pack_one(t, names, op, name)) {
            (void)err_oom(&t->work.err);
            return;
        }
        watch_queue_pop(&t->watcher.queue);
    }
}

static Filesystem__FilesystemEvent *event_new(struct watch *t, const struct user_names *names,
                                              enum watch_op op, const char *name)
{
    Filesystem__FilesystemEvent *e = malloc(sizeof(*e));

    if (!e)
        return NULL;
    filesystem__filesystem_event__init(e);
    e->name = entry_text(name);
    if (!e->name) {
        free(e);
        return NULL;
    }
    e->type = (Filesystem__EventType)op;
    e->entry = entry_of(t, names, op, name);
    if (e->entry)
        e->entry_opt_case = FILESYSTEM__FILESYSTEM_EVENT__ENTRY_OPT_ENTRY;
    return e;
}

static void pack_events(struct watch *t, const struct user_names *names)
{
    size_t n = t->watcher.queue.n;
    enum watch_op op;
    const char *name;

    if (t->wants_entries)
        n = MIN(n, (size_t)ENTRIES_MAX);
    t->has_events = true;
    filesystem__get_watcher_events_response__init(&t->events);
    if (n == 0)
        return;
    t->events.events = calloc(n, sizeof(t->events.events[0]));
    while (t->events.events && t->events.n_events < n &&
           watch_queue_peek(&t->watcher.queue, &op, &name)) {
        Filesystem__FilesystemEvent *e = event_new(t, names, op, name);
        if (!e)
            break;
        t->events.events[t->events.n_events++] = e;
        watch_queue_pop(&t->watcher.queue);
    }
    if (t->events.n_events == 0)
        (void)err_oom(&t->work.err);
}

static void watch_run(struct work *w)
{
    struct watch *t = container_of(w, struct watch, work);
    struct user_names names = { 0 };

    if (!t->is_opened && watcher_open(&t->watcher, &w->err) < 0)
        return;
    t->is_opened = true;
    /* Who asks for events gets all that have happened until then. */
    if (t->wants_pack && !t->is_stream && t->target == 0)
        t->target = watcher_queued(&t->watcher);
    t->has_more = watcher_run(&t->watcher, RUN_NS);
    if (t->wants_shut)
        watcher_shut(&t->watcher);
    t->wants_shut = false;
    if (t->wants_pack &&
        (t->is_stream || !t->has_more || watcher_has_done(&t->watcher, t->target))) {
        t->wants_pack = false;
        t->target = 0;
        if (t->wants_entries)
            user_names_init(&names);
        if (t->is_stream)
            pack_stream(t, &names);
        else
            pack_events(t, &names);
        user_names_done(&names);
    }
    t->is_drained = t->watcher.queue.n == 0;
}

static void close_run(struct work *w)
{
    struct watcher *watcher = &container_of(w, struct watch, work)->watcher;
    bool was_large = watcher->tree.n > LARGE || watcher->queue.n > LARGE || watcher->err.code;

    watcher_close(watcher);
    if (was_large)
        (void)malloc_trim(0); /* memory of a sandbox counts */
}

/* --- the end ------------------------------------------------------------------------------------ */

static void events_free(struct watch *t)
{
    for (size_t i = 0; i < t->events.n_events; i++)
        protobuf_c_message_free_unpacked(&t->events.events[i]->base, NULL);
    free(t->events.events);
    if (t->events.n_events > LARGE)
        (void)malloc_trim(0);
    filesystem__get_watcher_events_response__init(&t->events);
    t->has_events = false;
}

static void close_done(struct work *w)
{
    struct watch *t = container_of(w, struct watch, work);
    Filesystem__RemoveWatcherResponse none = FILESYSTEM__REMOVE_WATCHER_RESPONSE__INIT;

    if (t->removal)
        call_reply(t->removal, &none.base);
    events_free(t);
    buf_done(&t->out);
    buf_done(&t->packed);
    free(t);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct watch *t = h->data;

    if (--t->n_handles > 0)
        return;
    if (work_start(t->loop, &t->work, NULL, close_run, close_done) < 0) {
        close_run(&t->work);
        close_done(&t->work);
    }
}

/* Takes the watcher out of the list and lets go of it, now or when the pool is done with it. */
static void watch_close(struct watch *t)
{
    if (t->link) {
        *t->link = t->next;
        if (t->next)
            t->next->link = t->link;
        t->link = NULL;
        t->all->n--;
    }
    t->is_closing = true;
    if (t->is_working || t->is_closed)
        return;
    t->is_closed = true;
    if (t->call)
        (t->finish ? t->finish : call_stream_abort)(TAKE_PTR(t->call));
    if (t->is_polled)
        uv_close((uv_handle_t *)&t->poll, on_handle_closed);
    uv_close((uv_handle_t *)&t->timer, on_handle_closed);
    uv_close((uv_handle_t *)&t->deadline, on_handle_closed);
}

static void waiting_fail(struct watch *t, const struct abx_err *err)
{
    struct call *c;

    while ((c = t->waiting)) {
        t->waiting = c->data;
        call_fail(c, err);
    }
}

/* --- streams ------------------------------------------------------------------------------------ */

static void stream_finish(struct watch *t, void (*finish)(struct call *c))
{
    t->finish = finish;
    watch_close(t);
}

static void want_pack(struct watch *t);

static void stream_pump(struct watch *t)
{
    struct buf swap;
    size_t n;

    for (;;) {
        if (t->out.len > 0) {
            n = http_exchange_write(t->call->ex, buf_slice(&t->out));
            buf_consume(&t->out, n);
            if (n > 0 && !t->is_ending)
                (void)uv_timer_again(&t->timer);
            if (t->out.len > 0)
                return; /* on writable again */
            buf_done(&t->out);
        }
        if (t->is_ending) {
            stream_finish(t, call_stream_end);
            return;
        }
        if (t->is_working)
            return;
        if (t->packed.len == 0)
            break;
        swap = t->out;
        t->out = t->packed;
        t->packed = swap;
    }
    if (!t->is_drained) {
        want_pack(t);
    } else if (t->watcher.is_over) {
        t->is_ending = true;
        if (connect_end_stream(&t->out, t->watcher.err.code ? &t->watcher.err : NULL))
            stream_finish(t, call_stream_abort);
        else
            stream_pump(t);
    }
}

/* Ends the stream with an error behind what is encoded. The watcher may be at work: it is not asked. */
static void stream_fail(struct watch *t, const struct abx_err *err)
{
    if (t->is_ending || t->is_closing)
        return;
    t->is_ending = true;
    if (connect_end_stream(&t->out, err))
        stream_finish(t, call_stream_abort);
    else
        stream_pump(t);
}

static void on_writable(struct call *c)
{
    struct watch *t = c->data;

    if (t->is_started && !t->is_closing)
        stream_pump(t);
}

static void on_gone(struct call *c)
{
    watch_close(c->data);
}

static bool put_plain(struct watch *t, bool is_start)
{
    Filesystem__WatchDirResponse__StartEvent start =
        FILESYSTEM__WATCH_DIR_RESPONSE__START_EVENT__INIT;
    Filesystem__WatchDirResponse__KeepAlive alive =
        FILESYSTEM__WATCH_DIR_RESPONSE__KEEP_ALIVE__INIT;
    Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;

    if (is_start) {
        m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START;
        m.start = &start;
    } else {
        m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE;
        m.keepalive = &alive;
    }
    return call_stream_encode(t->call, &m.base, &t->out, NULL) == 0;
}

static void on_deadline(uv_timer_t *timer)
{
    struct watch *t = timer->data;
    struct abx_err err = { 0 };

    (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "the time for this stream is over");
    if (t->is_started)
        stream_fail(t, &err);
    else
        t->is_late = true; /* the pool is at work */
}

static void on_timer(uv_timer_t *timer)
{
    struct watch *t = timer->data;

    if (t->is_closing || !t->is_started)
        return;
    if (!t->is_stream && t->waiting)
        (void)uv_timer_start(timer, on_timer, t->idle_ms, 0);
    else if (!t->is_stream)
        watch_close(t); /* nobody asks any more */
    else if (t->is_stream && t->out.len == 0 && !t->is_ending && put_plain(t, false))
        stream_pump(t);
}

/* --- the others --------------------------------------------------------------------------------- */

/* What the pool has packed, or the end, for the one that has waited longest. */
static void events_reply(struct watch *t)
{
    struct call *c = t->waiting;

    if (!c || !t->has_events)
        return;
    t->waiting = c->data;
    c->data = NULL;
    if (t->events.n_events == 0 && t->watcher.is_over && t->watcher.err.code)
        call_fail(c, &t->watcher.err);
    else
        call_reply(c, &t->events.base);
    events_free(t);
    (void)uv_timer_start(&t->timer, on_timer, t->idle_ms, 0);
}

/* --- work --------------------------------------------------------------------------------------- */

static void watch_work(struct watch *t);

/* The watcher could not begin, or not go on for lack of memory. */
static void watch_fail(struct watch *t, const struct abx_err *err)
{
    struct call *c;

    if (t->is_stream && t->is_started) {
        stream_fail(t, err);
        return;
    }
    waiting_fail(t, err);
    c = TAKE_PTR(t->call);
    watch_close(t);
    if (c)
        call_fail(c, err);
}

static void watch_fail_oom(struct watch *t)
{
    struct abx_err err = { 0 };

    (void)err_oom(&err);
    watch_fail(t, &err);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct watch *t = poll->data;

    (void)uv_poll_stop(poll);
    t->wants_pack = t->wants_pack || (t->is_stream && t->out.len == 0 && t->packed.len == 0);
    watch_work(t);
}

/* The client is told that everything from now on is seen. False when it is gone. */
static bool watch_begin(struct watch *t)
{
    Filesystem__CreateWatcherResponse m = FILESYSTEM__CREATE_WATCHER_RESPONSE__INIT;
    struct call *c = t->call;
    struct abx_err err = { 0 };

    if (!c->ex) {
        watch_close(t);
        return false;
    }
    t->is_started = true;
    (void)uv_timer_start(&t->timer, on_timer, t->idle_ms, t->is_stream ? t->idle_ms : 0);
    if (!t->is_stream) {
        m.watcher_id = t->id;
        t->call = NULL;
        call_reply(c, &m.base);
        return true;
    }
    if (call_stream_begin(c, NULL, 0, &err) < 0 || !put_plain(t, true)) {
        stream_finish(t, call_stream_abort);
        return false;
    }
    return true;
}

/* Has a handle for inotify's descriptor as long as there is something to wait for. False when it
 * cannot be had. */
static bool watch_poll(struct watch *t)
{
    if (t->watcher.is_over && t->is_polled) {
        uv_close((uv_handle_t *)&t->poll, on_handle_closed);
        t->is_polled = false;
        t->wants_shut = true;
    }
    if (t->watcher.is_over || t->is_polled)
        return true;
    if (uv_poll_init(t->loop, &t->poll, t->watcher.fd) < 0) {
        watch_fail_oom(t);
        return false;
    }
    t->poll.data = t;
    t->is_polled = true;
    t->n_handles++;
    return true;
}

static void watch_done(struct work *w)
{
    struct watch *t = container_of(w, struct watch, work);
    struct abx_err err;

    t->is_working = false;
    if (t->is_closing) {
        watch_close(t);
        return;
    }
    err = w->err;
    if (t->is_late)
        (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "the time for this stream is over");
    if (!err.code && !t->is_started)
        err = t->watcher.err;
    if (err.code) {
        watch_fail(t, &err);
        return;
    }
    if (!t->is_started && t->watcher.is_ready && !watch_begin(t))
        return;
    if (!watch_poll(t))
        return;
    if (t->is_started && t->is_stream)
        stream_pump(t);
    else
        events_reply(t);
    if (t->is_closing || t->is_working)
        return;
    t->wants_pack = t->wants_pack || t->waiting;
    if (t->has_more || t->waiting || t->wants_shut)
        watch_work(t);
    else if (t->is_polled)
        (void)uv_poll_start(&t->poll, UV_READABLE, on_readable);
}

static void watch_work(struct watch *t)
{
    if (t->is_working || t->is_closing)
        return;
    if (t->is_polled)
        (void)uv_poll_stop(&t->poll);
    t->is_working = work_start(t->loop, &t->work, &t->user, watch_run, watch_done) == 0;
    if (!t->is_working)
        watch_fail_oom(t);
}

static void want_pack(struct watch *t)
{
    t->wants_pack = true;
    watch_work(t);
}

/* --- requests ----------------------------------------------------------------------------------- */

static int watch_new(struct call *c, const Filesystem__WatchDirRequest *req, bool is_stream,
                     struct watch **ret, struct abx_err *err)
{
    struct watches *all = c->envd->watches;
    _cleanup_(freep) struct watch *t = calloc(1, sizeof(*t));
    uint8_t random[ID_BYTES];
    int r;

    if (!t)
        return err_oom(err);
    if (all->n >= WATCHES_MAX)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "%d watchers are the most in one sandbox",
                       WATCHES_MAX);
    t->user = c->user;
    r = guest_path(&t->user, c->envd->id->default_workdir, req->path, t->path, err);
    if (r < 0)
        return r;
    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), t->id);
    t->all = all;
    t->loop = c->envd->loop;
    t->is_stream = is_stream;
    t->wants_entries = req->include_entry;
    watcher_init(&t->watcher, t->path, &all->budget);
    t->watcher.is_recursive = req->recursive;
    t->watcher.allow_network = req->allow_network_mounts;
    buf_init(&t->out, OUT_MAX);
    buf_init(&t->packed, OUT_MAX);
    filesystem__get_watcher_events_response__init(&t->events);
    *ret = TAKE_PTR(t);
    return 0;
}

static void watch_start(struct call *c, const Filesystem__WatchDirRequest *req, bool is_stream,
                        uint64_t idle_ms)
{
    struct abx_err err = { 0 };
    struct watch *t = NULL;

    if (watch_new(c, req, is_stream, &t, &err) < 0 || !t) {
        call_fail(c, &err);
        return;
    }
    t->idle_ms = idle_ms;
    t->next = t->all->first;
    t->link = &t->all->first;
    if (t->next)
        t->next->link = &t->next;
    t->all->first = t;
    t->all->n++;
    (void)uv_timer_init(t->loop, &t->timer);
    (void)uv_timer_init(t->loop, &t->deadline);
    t->timer.data = t->deadline.data = t;
    t->n_handles = 2;
    t->call = c;
    c->data = t;
    if (is_stream) {
        c->on_writable = on_writable;
        c->on_gone = on_gone;
        if (c->timeout_ms > 0)
            (void)uv_timer_start(&t->deadline, on_deadline, c->timeout_ms, 0);
    }
    watch_work(t);
}

void watch_dir_handle(struct call *c)
{
    watch_start(c, (const Filesystem__WatchDirRequest *)c->request, true,
                (uint64_t)c->keepalive_s * 1000);
}

void watcher_create_handle(struct call *c)
{
    const Filesystem__CreateWatcherRequest *from = (Filesystem__CreateWatcherRequest *)c->request;
    Filesystem__WatchDirRequest req = FILESYSTEM__WATCH_DIR_REQUEST__INIT;
    const struct http1_field *f = http1_head_find(http_exchange_head(c->ex), "abx-watcher-idle");
    struct abx_err err = { 0 };
    uint64_t idle_s = WATCH_IDLE_S;

    if (f && (!str_parse_u64(f->value, WATCH_IDLE_MAX_S, &idle_s) || idle_s == 0)) {
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "Abx-Watcher-Idle is not 1 to %d seconds",
                      WATCH_IDLE_MAX_S);
        call_fail(c, &err);
        return;
    }
    req.path = from->path;
    req.recursive = from->recursive;
    req.include_entry = from->include_entry;
    req.allow_network_mounts = from->allow_network_mounts;
    watch_start(c, &req, false, idle_s * 1000);
}

/* NULL, and the call is answered, when there is none of this id. */
static struct watch *find(struct call *c, const char *id)
{
    struct abx_err err = { 0 };

    for (struct watch *t = c->envd->watches->first; t; t = t->next) {
        if (!t->is_stream && t->is_started && strcmp(t->id, id) == 0)
            return t;
    }
    (void)err_set(&err, ABX_NOT_FOUND, "watcher with id %.64s not found", id);
    call_fail(c, &err);
    return NULL;
}

void watcher_events_handle(struct call *c)
{
    struct watch *t = find(c, ((Filesystem__GetWatcherEventsRequest *)c->request)->watcher_id);
    struct call **at;

    if (!t)
        return;
    for (at = &t->waiting; *at; at = (struct call **)&(*at)->data) {
    }
    *at = c;
    c->data = NULL;
    (void)uv_timer_start(&t->timer, on_timer, t->idle_ms, 0);
    if (!t->is_working)
        want_pack(t);
}

void watcher_remove_handle(struct call *c)
{
    struct watch *t = find(c, ((Filesystem__RemoveWatcherRequest *)c->request)->watcher_id);
    struct abx_err err = { 0 };

    if (!t)
        return;
    t->removal = c;
    (void)err_set(&err, ABX_CANCELED, "the watcher was removed");
    waiting_fail(t, &err);
    watch_close(t);
}
