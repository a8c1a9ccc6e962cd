/* queue.c - see queue.h and store.h. */
#include "store/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "store/schema.h"

#define BATCH_MAX 256u
#define BEAT_NS UINT64_C(1000000000)
#define WAL_PAGES_SOFT 2000  /* then the checkpoint thread works, beside the writer */
#define WAL_PAGES_HARD 50000 /* 200 MB: the writer waits for a whole checkpoint */

struct store {
    uv_async_t async; /* first: handle and store share their end */
    uv_thread_t writer;
    uv_thread_t checkpointer;
    uv_mutex_t lock;
    uv_cond_t work;
    uv_cond_t grown;
    struct op *head, **tail; /* waiting */
    size_t n_waiting;
    struct op *done_head, **done_tail;
    bool is_stopping;
    bool wants_checkpoint;
    atomic_int beat_fd, checkpoint_beat_fd; /* -1: none */
    struct db normal;                       /* the writer's */
    struct db full;                         /* the writer's, synced commits */
    struct db third;                        /* the checkpointer's */
};

struct op_chunk {
    struct op_chunk *next;
    char text[];
};

struct op *op_new(void)
{
    return calloc(1, sizeof(struct op));
}

void op_free(struct op *op)
{
    if (!op)
        return;
    while (op->chunks) {
        struct op_chunk *c = op->chunks;

        op->chunks = c->next;
        free(c);
    }
    free(op->events);
    free(op->logs);
    free(op->metrics_rows);
    free(op);
}

bool op_keep(struct op *op, const char **text)
{
    size_t n = *text ? strlen(*text) : 0;
    struct op_chunk *c = malloc(sizeof(*c) + n + 1);

    if (!c)
        return false;
    if (n > 0)
        memcpy(c->text, *text, n);
    c->text[n] = '\0';
    c->next = op->chunks;
    op->chunks = c;
    *text = c->text;
    return true;
}

struct op *op_about(const char *id, int (*run)(struct op *op, struct db *d, struct abx_err *err))
{
    _cleanup_(op_freep) struct op *op = op_new();

    if (!op)
        return NULL;
    op->text = id;
    op->run = run;
    return op_keep(op, &op->text) ? TAKE_PTR(op) : NULL;
}

struct db *queue_db(struct store *s)
{
    return &s->normal;
}

int queue_push(struct store *s, struct op *op, bool is_bounded, struct abx_err *err)
{
    bool is_full, is_stopping;

    uv_mutex_lock(&s->lock);
    is_full = is_bounded && s->n_waiting >= STORE_QUEUE_MAX;
    is_stopping = s->is_stopping;
    if (!is_full && !is_stopping) {
        op->next = NULL;
        *s->tail = op;
        s->tail = &op->next;
        s->n_waiting++;
        uv_cond_signal(&s->work);
    }
    uv_mutex_unlock(&s->lock);
    if (!is_full && !is_stopping)
        return 0;
    op_free(op);
    return is_stopping ? err_set(err, ABX_UNAVAILABLE, "the store is closing")
                       : err_reason(err, ABX_REASON_BUSY, "too many writes are waiting");
}

int queue_push_durable(struct store *s, struct op *op, store_done_fn done, void *user,
                       struct abx_err *err)
{
    op->is_durable = true;
    op->done = done;
    op->user = user;
    return queue_push(s, op, true, err);
}

/* --- writer ------------------------------------------------------------------------------------ */

static void beat_on(atomic_int *to)
{
    const uint64_t one = 1;
    int fd = atomic_load(to);

    if (fd >= 0)
        (void)!write(fd, &one, sizeof one); /* fails after 2^64 beats that nobody read */
}

static void beat(struct store *s)
{
    beat_on(&s->beat_fd);
}

void store_beat(struct store *s, int fd, int checkpoint_fd)
{
    atomic_store(&s->beat_fd, fd);
    atomic_store(&s->checkpoint_beat_fd, checkpoint_fd);
    uv_mutex_lock(&s->lock);
    uv_cond_signal(&s->grown); /* the first beat at once: a silence before counts as a long start */
    uv_mutex_unlock(&s->lock);
}

/* Takes up to BATCH_MAX waiting ops of the same durability; NULL when stopping and empty. */
static struct op *take_batch(struct store *s, size_t *ret_n)
{
    struct op *batch, **end;
    size_t n = 0;

    uv_mutex_lock(&s->lock);
    beat(s);
    while (!s->head && !s->is_stopping) {
        (void)uv_cond_timedwait(&s->work, &s->lock, BEAT_NS);
        beat(s);
    }
    batch = s->head;
    end = &batch;
    while (*end && n < BATCH_MAX && (*end)->is_durable == batch->is_durable) {
        end = &(*end)->next;
        n++;
    }
    s->head = *end;
    if (!s->head)
        s->tail = &s->head;
    *end = NULL;
    s->n_waiting -= n;
    uv_mutex_unlock(&s->lock);
    *ret_n = n;
    return batch;
}

/* Each op is whole or not at all: a savepoint per op when there are several. Each is a beat: a database that somebody else
 * has locked lets every one of them wait for its time. */
static void run_batch(struct store *s, struct db *d, struct op *batch, size_t n)
{
    struct abx_err err = { 0 };
    int r = db_script(d, "BEGIN", &err);

    for (struct op *op = batch; op && r == 0; op = op->next) {
        beat(s);
        if (n > 1)
            r = db_script(d, "SAVEPOINT one", &err);
        if (r < 0)
            break;
        if (op->run(op, d, &op->err) < 0) {
            r = db_script(d, n > 1 ? "ROLLBACK TO SAVEPOINT one" : "ROLLBACK", NULL);
            if (r < 0) /* such a failure, a full disk, has ended the transaction already */
                err = op->err;
        } else if (n == 1) {
            r = db_script(d, "COMMIT", &err);
        }
        if (r == 0 && n > 1)
            r = db_script(d, "RELEASE SAVEPOINT one", &err);
    }
    if (r == 0 && n > 1)
        r = db_script(d, "COMMIT", &err);
    if (r == 0)
        return;
    (void)db_script(d, "ROLLBACK", NULL);
    for (struct op *op = batch; op; op = op->next)
        if (op->err.code == 0)
            op->err = err;
}

static void give_back(struct store *s, struct op *batch)
{
    struct op *last = batch;

    while (last->next)
        last = last->next;
    uv_mutex_lock(&s->lock);
    *s->done_tail = batch;
    s->done_tail = &last->next;
    uv_mutex_unlock(&s->lock);
    (void)uv_async_send(&s->async);
}

static int on_commit(void *user, sqlite3 *h, const char *name, int pages)
{
    struct store *s = user;

    (void)name;
    if (pages > WAL_PAGES_HARD) {
        (void)sqlite3_wal_checkpoint_v2(h, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    } else if (pages > WAL_PAGES_SOFT) {
        uv_mutex_lock(&s->lock);
        s->wants_checkpoint = true;
        uv_cond_signal(&s->grown);
        uv_mutex_unlock(&s->lock);
    }
    return SQLITE_OK;
}

static void writer_main(void *user)
{
    struct store *s = user;
    struct op *batch;
    size_t n;

    (void)pthread_setname_np(pthread_self(), STORE_THREAD);
    while ((batch = take_batch(s, &n)) != NULL) {
        run_batch(s, batch->is_durable ? &s->full : &s->normal, batch, n);
        give_back(s, batch);
    }
}

static void checkpointer_main(void *user)
{
    struct store *s = user;

    (void)pthread_setname_np(pthread_self(), CHECKPOINT_THREAD);
    uv_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        beat_on(&s->checkpoint_beat_fd);
        if (!s->wants_checkpoint) {
            (void)uv_cond_timedwait(&s->grown, &s->lock, BEAT_NS);
            continue;
        }
        s->wants_checkpoint = false;
        uv_mutex_unlock(&s->lock);
        (void)sqlite3_wal_checkpoint_v2(s->third.h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        uv_mutex_lock(&s->lock);
    }
    uv_mutex_unlock(&s->lock);
}

/* --- loop's side ------------------------------------------------------------------------------- */

static void complete_all(struct store *s)
{
    struct op *list;

    uv_mutex_lock(&s->lock);
    list = s->done_head;
    s->done_head = NULL;
    s->done_tail = &s->done_head;
    uv_mutex_unlock(&s->lock);
    while (list) {
        struct op *op = list;
        const struct abx_err *failure = op->err.code ? &op->err : NULL;

        list = op->next;
        if (op->created)
            op->created(op->user, failure ? NULL : &op->result, failure);
        else if (op->listed)
            op->listed(op->user, op->events, failure ? 0 : op->n_events, failure);
        else if (op->logged)
            op->logged(op->user, op->logs, failure ? 0 : op->n_logs, failure);
        else if (op->measured)
            op->measured(op->user, op->metrics_rows, failure ? 0 : op->n_metrics_rows, failure);
        else if (op->done)
            op->done(op->user, failure);
        op_free(op);
    }
}

static void on_async(uv_async_t *handle)
{
    complete_all(container_of(handle, struct store, async));
}

static void on_closed(uv_handle_t *handle)
{
    struct store *s = container_of((uv_async_t *)(void *)handle, struct store, async);

    uv_cond_destroy(&s->grown);
    uv_cond_destroy(&s->work);
    uv_mutex_destroy(&s->lock);
    free(s);
}

static int open_all(struct store *s, const char *dir, struct abx_err *err)
{
    char path[4096];
    int r;

    if (snprintf(path, sizeof path, "%s/abx.db", dir) >= (int)sizeof path)
        return err_set(err, ABX_INVALID_ARGUMENT, "path of the data dir is too long");
    r = db_open(&s->normal, path, false, err);
    if (r == 0)
        r = schema_migrate(&s->normal, path, &schema_steps, err);
    if (r == 0)
        r = db_open(&s->full, path, true, err);
    if (r == 0)
        r = db_open(&s->third, path, true, err);
    if (r < 0) {
        db_done(&s->third);
        db_done(&s->full);
        db_done(&s->normal);
        return err_wrap(err, r, "'%s'", path);
    }
    (void)sqlite3_wal_hook(s->normal.h, on_commit, s);
    (void)sqlite3_wal_hook(s->full.h, on_commit, s);
    return 0;
}

/* No state of ours is left behind when one of the parts cannot be made: abort() would be the only
 * other way out of a half-made lock, and libuv itself aborts there. */
static int start_threads(struct store *s, struct abx_err *err)
{
    if (uv_thread_create(&s->writer, writer_main, s) < 0)
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "start the writer thread");
    if (uv_thread_create(&s->checkpointer, checkpointer_main, s) < 0) {
        uv_mutex_lock(&s->lock);
        s->is_stopping = true;
        uv_cond_signal(&s->work);
        uv_mutex_unlock(&s->lock);
        (void)uv_thread_join(&s->writer);
        return err_set(err, ABX_RESOURCE_EXHAUSTED, "start the checkpoint thread");
    }
    return 0;
}

int store_open(uv_loop_t *loop, const char *dir, struct store **ret, struct abx_err *err)
{
    _cleanup_(freep) struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(err);
    atomic_init(&s->beat_fd, -1);
    atomic_init(&s->checkpoint_beat_fd, -1);
    s->tail = &s->head;
    s->done_tail = &s->done_head;
    r = open_all(s, dir, err);
    if (r < 0)
        return r;
    if (uv_mutex_init(&s->lock) < 0 || uv_cond_init(&s->work) < 0 || uv_cond_init(&s->grown) < 0 ||
        uv_async_init(loop, &s->async, on_async) < 0) {
        r = err_set(err, ABX_RESOURCE_EXHAUSTED, "make the store's queue");
        goto close;
    }
    r = start_threads(s, err);
    if (r == 0) {
        *ret = TAKE_PTR(s);
        return 0;
    }
    uv_close((uv_handle_t *)&s->async, on_closed);
close:
    db_done(&s->third);
    db_done(&s->full);
    db_done(&s->normal);
    /* The loop still knows the handle: on_closed frees it all. */
    if (s->async.type == UV_ASYNC)
        (void)TAKE_PTR(s);
    return r;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    uv_mutex_lock(&s->lock);
    s->is_stopping = true;
    uv_cond_signal(&s->work);
    uv_cond_signal(&s->grown);
    uv_mutex_unlock(&s->lock);
    (void)uv_thread_join(&s->writer);
    (void)uv_thread_join(&s->checkpointer);
    complete_all(s);
    db_done(&s->third);
    db_done(&s->full);
    db_done(&s->normal);
    uv_close((uv_handle_t *)&s->async, on_closed);
}
