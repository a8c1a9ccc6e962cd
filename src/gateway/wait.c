/* wait.c - see wait.h. */
#include "gateway/wait.h"

static void on_timer(uv_timer_t *timer);

static void timer_set(struct wait_list *l, uint64_t due)
{
    uint64_t now = uv_now(l->timer.loop);

    if (l->timer_due != 0 && l->timer_due <= due)
        return;
    l->timer_due = due;
    (void)uv_timer_start(&l->timer, on_timer, due > now ? due - now : 0, 0);
}

/* Callbacks may change the ring: after each one the walk begins anew. */
static bool run_one(struct wait_list *l, uint64_t now)
{
    for (struct wait *w = l->head.next; w != &l->head; w = w->next)
        if (w->due <= now) {
            wait_stop(w);
            w->fn(w);
            return true;
        }
    return false;
}

static void on_timer(uv_timer_t *timer)
{
    struct wait_list *l = container_of(timer, struct wait_list, timer);
    uint64_t next = UINT64_MAX;

    l->timer_due = 0;
    while (run_one(l, uv_now(timer->loop)))
        ;
    for (struct wait *w = l->head.next; w != &l->head; w = w->next)
        next = MIN(next, w->due);
    if (next != UINT64_MAX)
        timer_set(l, next);
}

void wait_list_init(struct wait_list *l, uv_loop_t *loop)
{
    *l = (struct wait_list){ .head = { .prev = &l->head, .next = &l->head } };
    (void)uv_timer_init(loop, &l->timer);
}

void wait_list_close(struct wait_list *l, uv_close_cb on_closed)
{
    while (l->head.next != &l->head)
        wait_stop(l->head.next);
    uv_close((uv_handle_t *)&l->timer, on_closed);
}

void wait_start(struct wait_list *l, struct wait *w, uint64_t ms, void (*fn)(struct wait *w))
{
    uint64_t due = uv_now(l->timer.loop) + ms;

    wait_stop(w);
    w->due = (due / WAIT_GRAIN_MS + 1) * WAIT_GRAIN_MS;
    w->fn = fn;
    w->next = &l->head;
    w->prev = l->head.prev;
    w->prev->next = w->next->prev = w;
    timer_set(l, w->due);
}

void wait_stop(struct wait *w)
{
    if (w->due == 0)
        return;
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->prev = w->next = NULL;
    w->due = 0;
}
