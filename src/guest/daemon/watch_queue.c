/* watch_queue.c - see watch_queue.h. */
#include "guest/daemon/watch_queue.h"

struct record {
    uint16_t size; /* with name, NUL and padding */
    uint8_t op;
    char name[];
};

#define HEAD offsetof(struct record, name)
#define ALIGN 2

void watch_budget_init(struct watch_budget *b)
{
    atomic_init(&b->bytes, WATCH_BUDGET_BYTES);
    atomic_init(&b->dirs, WATCH_BUDGET_DIRS);
}

bool watch_budget_take(atomic_long *left, size_t n)
{
    if (atomic_fetch_sub(left, (long)n) >= (long)n)
        return true;
    watch_budget_give(left, n);
    return false;
}

void watch_budget_give(atomic_long *left, size_t n)
{
    (void)atomic_fetch_add(left, (long)n);
}

void watch_queue_init(struct watch_queue *q, struct watch_budget *budget)
{
    memset(q, 0, sizeof(*q));
    q->budget = budget;
    buf_init(&q->records, WATCH_QUEUE_BYTES_MAX);
}

void watch_queue_done(struct watch_queue *q)
{
    watch_budget_give(&q->budget->bytes, q->records.len);
    buf_done(&q->records);
    q->n = q->last = 0;
}

static bool is_last(struct watch_queue *q, enum watch_op op, const char *name)
{
    const struct record *r;

    if (q->n == 0 || (op != WATCH_WRITE && op != WATCH_CHMOD))
        return false;
    r = (const struct record *)(const void *)(buf_data(&q->records) + q->records.len - q->last);
    return r->op == op && strcmp(r->name, name) == 0;
}

enum buf_status watch_queue_push(struct watch_queue *q, enum watch_op op, const char *name,
                                 size_t name_n)
{
    size_t size = (HEAD + name_n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    enum buf_status bad;
    struct record *r;

    if (is_last(q, op, name))
        return BUF_OK;
    if (size > UINT16_MAX || q->n >= WATCH_QUEUE_EVENTS_MAX ||
        !watch_budget_take(&q->budget->bytes, size))
        return BUF_LIMIT;
    r = (struct record *)(void *)buf_reserve(&q->records, size, &bad);
    if (!r) {
        watch_budget_give(&q->budget->bytes, size);
        return bad;
    }
    r->size = (uint16_t)size;
    r->op = (uint8_t)op;
    memcpy(r->name, name, name_n);
    memset(r->name + name_n, 0, size - HEAD - name_n);
    buf_commit(&q->records, size);
    q->last = size;
    q->n++;
    return BUF_OK;
}

bool watch_queue_peek(struct watch_queue *q, enum watch_op *ret_op, const char **ret_name)
{
    const struct record *r = (const struct record *)(const void *)buf_data(&q->records);

    if (q->n == 0 || !r)
        return false;
    *ret_op = (enum watch_op)r->op;
    *ret_name = r->name;
    return true;
}

void watch_queue_pop(struct watch_queue *q)
{
    const struct record *r = (const struct record *)(const void *)buf_data(&q->records);
    size_t size = r ? r->size : 0;

    if (q->n == 0)
        return;
    buf_consume(&q->records, size);
    watch_budget_give(&q->budget->bytes, size);
    if (--q->n == 0)
        buf_done(&q->records);
}
