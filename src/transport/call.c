/* call.c - see call.h. What an owner is told is told from a task of the client, never inside the call
 * that started or ended the operation; done is told after the last event was taken. */
#include "transport/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abx/files.h"
#include "base/str.h"

struct call_block {
    struct call_block *next;
    size_t used, size;
    max_align_t mem[];
};

struct call_event {
    struct call_event *next;
    struct abx_event event;
    struct abx_fs_event fs;
    struct abx_entry entry;
    size_t size; /* bytes counted in the queue */
    char mem[];  /* texts and data */
};

#define BLOCK_BYTES 4000u

/* What is known of a call that a starting function could not make. */
static const struct abx_error no_call = { .code = ABX_RESOURCE_EXHAUSTED,
                                          .message = "there is no call: out of memory" };

/* ---- memory ---- */

void *call_alloc(abx_call *call, size_t size)
{
    size_t need = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct call_block *b = call->blocks;
    void *p;

    if (need < size)
        return NULL;
    if (!b || b->size - b->used < need) {
        size_t room = MAX(need, (size_t)BLOCK_BYTES);

        b = calloc(1, sizeof *b + room);
        if (!b)
            return NULL;
        b->size = room;
        b->next = call->blocks;
        call->blocks = b;
    }
    p = (char *)b->mem + b->used;
    b->used += need;
    return p;
}

void *call_alloc_array(abx_call *call, size_t n, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    return call_alloc(call, total);
}

char *call_dup(abx_call *call, struct slice text)
{
    char *to = call_alloc(call, text.n + 1);

    if (to && text.n > 0)
        memcpy(to, text.p, text.n);
    return to;
}

char *call_strdup(abx_call *call, const char *text)
{
    return text ? call_dup(call, slice_str(text)) : NULL;
}

/* ---- life ---- */

static void call_tell(void *user);

abx_call *call_new(abx_client *client, const struct call_ops *ops, size_t state_size)
{
    abx_call *call = client ? calloc(1, sizeof *call) : NULL;

    if (!call)
        return NULL;
    call->state = calloc(1, state_size ? state_size : 1);
    if (!call->state) {
        free(call);
        return NULL;
    }
    call->client = client;
    call->ops = ops;
    call->task = (struct client_task){ .fn = call_tell, .user = call };
    buf_init(&call->bytes, SIZE_MAX / 2);
    buf_init(&call->more, SIZE_MAX / 2);
    client_call_add(client, &call->link);
    return call;
}

abx_call *call_new_failed(abx_client *client, const struct abx_err *err)
{
    static const struct call_ops none = { 0 };
    abx_call *call = call_new(client, &none, 0);

    if (call)
        call_fail(call, err);
    return call;
}

/* Events first, then the end; the owner may free the call in either callback, which ends this. */
static void call_tell(void *user)
{
    abx_call *call = user;

    if (call->is_cancel_wanted) {
        call->is_cancel_wanted = false;
        abx_call_cancel(call);
    }
    if (call->is_freed && call->waiting == 0) {
        abx_call_free(call);
        return;
    }
    if (call->first && call->on_event) {
        abx_call_fn fn = call->on_event;

        fn(call->on_event_user, call);
        return; /* abx_call_next schedules the end */
    }
    if (call->is_finished && !call->first && !call->is_done) {
        call->is_done = true;
        client_call_completed(call->client);
    }
    if (call->is_done && !call->is_told && call->on_done) {
        call->is_told = true;
        call->on_done(call->on_done_user, call);
    }
}

static void call_schedule(abx_call *call)
{
    if (call->client)
        client_task_add(call->client, &call->task);
}

/* abx_call_bytes and abx_call_command promise a NUL behind the bytes. */
static void bytes_close(abx_call *call)
{
    struct abx_err err;

    if ((!call->bytes.mem || buf_cstr(&call->bytes)) && (!call->more.mem || buf_cstr(&call->more)))
        return;
    (void)err_oom(&err);
    error_export(&err, 0, &call->error);
    buf_done(&call->bytes);
    buf_done(&call->more);
}

static void call_end(abx_call *call)
{
    bytes_close(call);
    call->is_finished = true;
    if (call->ops->done)
        call->ops->done(call);
    call_schedule(call);
}

void call_finish(abx_call *call, enum abx_result result)
{
    struct abx_err err;

    if (call->is_finished)
        return;
    if (call->is_cancel_wanted) { /* before it was complete */
        (void)err_set(&err, ABX_CANCELED, "canceled");
        error_export(&err, 0, &call->error);
    }
    call->result = result;
    call_end(call);
}

static void word_copy(const char *word, char to[ABX_ERROR_WORD_SIZE])
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t n = strlen(word);

    if (n < ABX_ERROR_WORD_SIZE && strspn(word, allowed) == n)
        memcpy(to, word, n + 1);
}

void call_fail_said(abx_call *call, const struct abx_err *err, int http_status, const char *word)
{
    if (call->is_finished)
        return;
    error_export(err, http_status, &call->error);
    if (call->error.code == 0)
        call->error.code = ABX_INTERNAL;
    if (word)
        word_copy(word, call->error.error_code);
    call_end(call);
}

void call_fail_http(abx_call *call, const struct abx_err *err, int http_status)
{
    call_fail_said(call, err, http_status, NULL);
}

void call_fail(abx_call *call, const struct abx_err *err)
{
    call_fail_http(call, err, 0);
}

void abx_call_cancel(abx_call *call)
{
    struct abx_err err;

    if (!call || call->is_finished)
        return;
    if (call->inside > 0) { /* what the callback was given is in use */
        call->is_cancel_wanted = true;
        return;
    }
    if (call->ops->cancel)
        call->ops->cancel(call);
    (void)err_set(&err, ABX_CANCELED, "canceled");
    call_fail(call, &err);
}

static void events_drop(abx_call *call)
{
    while (call->first) {
        struct call_event *e = call->first;

        call->first = e->next;
        free(e);
    }
    call->last = NULL;
    call->queued_bytes = 0;
    free(TAKE_PTR(call->taken));
}

void abx_call_free(abx_call *call)
{
    if (!call)
        return;
    call->on_done = NULL;
    call->on_event = NULL;
    abx_call_cancel(call);
    if (call->waiting > 0 || call->inside > 0) { /* by a callback: freed behind it */
        call->is_freed = true;
        return;
    }
    if (call->client) {
        client_task_remove(call->client, &call->task);
        client_call_remove(call->client, &call->link);
    }
    events_drop(call);
    if (call->ops->release)
        call->ops->release(call);
    while (call->blocks) {
        struct call_block *b = call->blocks;

        call->blocks = b->next;
        free(b);
    }
    buf_done(&call->bytes);
    buf_done(&call->more);
    free(call->state);
    free(call);
}

void call_detach(abx_call *call)
{
    abx_call_cancel(call);
    events_drop(call);
    client_task_remove(call->client, &call->task);
    client_call_remove(call->client, &call->link);
    call->is_done = true;
    call->client = NULL;
    if (!call->is_told && call->on_done) {
        call->is_told = true;
        call->on_done(call->on_done_user, call);
    } else if (call->is_freed && call->waiting == 0) {
        abx_call_free(call);
    }
}

void call_enter(abx_call *call)
{
    call->inside++;
}

void call_leave(abx_call *call)
{
    call->inside--;
    if (call->inside == 0 && (call->is_cancel_wanted || call->is_freed))
        call_schedule(call);
}

/* ---- the owner's side ---- */

void abx_call_on_done(abx_call *call, abx_call_fn fn, void *user)
{
    if (!call)
        return;
    call->on_done = fn;
    call->on_done_user = user;
    call->is_told = false;
    if (fn && call->is_finished)
        call_schedule(call);
}

void abx_call_on_event(abx_call *call, abx_call_fn fn, void *user)
{
    if (!call)
        return;
    call->on_event = fn;
    call->on_event_user = user;
    if (fn && call->first)
        call_schedule(call);
}

int abx_call_is_done(const abx_call *call)
{
    return !call || (call->is_finished && !call->first);
}

const struct abx_error *abx_call_error(const abx_call *call)
{
    return call ? &call->error : &no_call;
}

void abx_call_resume(abx_call *call)
{
    if (call && !call->is_finished && call->ops->resume_source)
        call->ops->resume_source(call);
}

void abx_call_set_user(abx_call *call, void *user)
{
    if (call)
        call->user = user;
}

void *abx_call_user(const abx_call *call)
{
    return call ? call->user : NULL;
}

enum abx_result abx_call_result(const abx_call *call)
{
    return call && call->error.code == 0 ? call->result : ABX_RESULT_NONE;
}

const void *call_items(const abx_call *call, enum abx_result kind, size_t *ret_count)
{
    bool is_it = abx_call_result(call) == kind;

    if (ret_count)
        *ret_count = is_it ? call->item_count : 0;
    return is_it ? call->items : NULL;
}

int abx_call_bool(const abx_call *call)
{
    return call && call->bool_result;
}

const char *abx_call_next_token(const abx_call *call)
{
    return call ? call->next_token : NULL;
}

const void *abx_call_bytes(const abx_call *call, size_t *ret_size)
{
    if (call && call->room) {
        if (ret_size)
            *ret_size = call->room_used;
        return call->room;
    }
    if (ret_size)
        *ret_size = call ? call->bytes.len : 0;
    return call && call->bytes.mem ? call->bytes.mem + call->bytes.off : (const void *)"";
}

void *abx_call_take_bytes(abx_call *call, size_t *ret_size)
{
    uint8_t *mem;

    if (!call)
        return NULL;
    if (call->room && call->bytes.len == 0 &&
        buf_append(&call->bytes, call->room, call->room_used) != BUF_OK)
        return NULL;
    if (!buf_cstr(&call->bytes))
        return NULL;
    if (call->bytes.off > 0)
        memmove(call->bytes.mem, call->bytes.mem + call->bytes.off, call->bytes.len + 1);
    if (ret_size)
        *ret_size = call->bytes.len;
    mem = TAKE_PTR(call->bytes.mem);
    buf_init(&call->bytes, call->bytes.limit);
    return mem;
}

static int wait_fail(struct abx_error *to, int code, const char *message)
{
    struct abx_err why;

    (void)err_set(&why, code, "%s", message);
    if (to)
        error_export(&why, 0, to);
    return code;
}

/* Until it is done, or freed by a callback; 0 or why the waiting ended before. */
static int wait_run(abx_call *call, int64_t timeout_ms, struct abx_error *err)
{
    int64_t end_ns = timeout_ms < 0 ? INT64_MAX : time_mono_after_ms(timeout_ms);

    while (!call->is_freed && !abx_call_is_done(call)) {
        int64_t left_ns = end_ns - time_mono_ns();
        char text[64];
        int r;

        if (left_ns <= 0) {
            (void)snprintf(text, sizeof text, "not done within %lld ms", (long long)timeout_ms);
            return wait_fail(err, ABX_DEADLINE_EXCEEDED, text);
        }
        if (call->first) /* somebody has to take them: that is the caller */
            return wait_fail(err, ABX_FAILED_PRECONDITION, "events wait for abx_call_next");
        r = abx_client_wait(call->client, end_ns == INT64_MAX ? -1 : (left_ns + 999999) / 1000000);
        if (r == ABX_FAILED_PRECONDITION)
            return wait_fail(err, r,
                             "cannot wait inside a callback, nor in a child made by fork()");
        if (r < 0)
            return wait_fail(err, r, "interrupted");
    }
    return 0;
}

int abx_call_wait(abx_call *call, int64_t timeout_ms, struct abx_error *err)
{
    struct abx_error why = *abx_call_error(call);
    int r;

    if (call) {
        call->waiting++;
        r = wait_run(call, timeout_ms, err);
        call->waiting--;
        why = call->error;
        if (call->is_freed && call->waiting == 0)
            abx_call_free(call);
        if (r < 0)
            return r;
    }
    if (err)
        *err = why;
    return why.code;
}

/* ---- events ---- */

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *text_put(char **at, const char *text)
{
    char *to = *at;
    size_t n = text_size(text);

    if (n == 0)
        return NULL;
    memcpy(to, text, n);
    *at += n;
    return to;
}

static size_t entry_size(const struct abx_entry *e)
{
    return text_size(e->name) + text_size(e->path) + text_size(e->permissions) +
           text_size(e->owner) + text_size(e->group) + text_size(e->symlink_target);
}

static void entry_put(char **at, struct abx_entry *e)
{
    e->name = text_put(at, e->name);
    e->path = text_put(at, e->path);
    e->permissions = text_put(at, e->permissions);
    e->owner = text_put(at, e->owner);
    e->group = text_put(at, e->group);
    e->symlink_target = text_put(at, e->symlink_target);
    e->metadata = NULL; /* events carry none (filesystem.proto: Stat has it) */
    e->metadata_count = 0;
}

bool call_event_push(abx_call *call, const struct abx_event *event)
{
    const struct abx_fs_event *fs = event->fs;
    size_t n = event->size + text_size(event->text);
    size_t size;
    struct call_event *e;
    char *at;

    if (fs)
        n += text_size(fs->name) + (fs->entry ? entry_size(fs->entry) : 0);
    size = sizeof *e + n;
    e = malloc(size);
    if (!e)
        return false;
    e->next = NULL;
    e->event = *event;
    e->size = size;
    at = e->mem;
    if (event->size > 0) {
        memcpy(at, event->data, event->size);
        e->event.data = at;
        at += event->size;
    }
    e->event.text = text_put(&at, event->text);
    if (fs) {
        e->fs = *fs;
        e->fs.name = text_put(&at, fs->name);
        e->event.fs = &e->fs;
        if (fs->entry) {
            e->entry = *fs->entry;
            entry_put(&at, &e->entry);
            e->fs.entry = &e->entry;
        }
    }
    if (call->last)
        call->last->next = e;
    else
        call->first = e;
    call->last = e;
    call->queued_bytes += e->size;
    call_schedule(call);
    return true;
}

bool call_events_full(abx_call *call)
{
    if (call->queued_bytes < ABX_EVENT_QUEUE_BYTES)
        return false;
    call->was_full = true;
    return true;
}

int abx_call_next(abx_call *call, struct abx_event *ret)
{
    struct call_event *e;

    if (!call)
        return 0;
    e = call->first;
    free(TAKE_PTR(call->taken));
    if (!e)
        return 0;
    call->first = e->next;
    if (!call->first)
        call->last = NULL;
    call->queued_bytes -= e->size;
    call->taken = e;
    if (call->was_full && call->queued_bytes < ABX_EVENT_QUEUE_BYTES / 2) {
        call->was_full = false;
        if (!call->is_finished && call->ops->resume)
            call->ops->resume(call);
    }
    if (call->first ? call->on_event != NULL : call->is_finished)
        call_schedule(call); /* more wait, or the end does */
    *ret = e->event;
    return 1;
}
