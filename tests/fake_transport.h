/* fake_transport.h - the client's loop and HTTP layer for tests of what is above them: one exchange at a time, answered
 * by the test; no time passes. Included once in a program, whose definitions then come before the library's.
 */
#pragma once

#include <assert.h>

#include "base/str.h"
#include "transport/call.h"
#include "transport/http.h"

struct abx_client {
    struct client_task *tasks[16];
    size_t task_count;
    unsigned completed;
};

struct http_exchange {
    struct http_sink sink;
    void *user;
    bool is_running, is_upload;
    abx_source_fn source;
    void *source_user;
};

static struct http_exchange exchange; /* there is one at a time */

void client_timer_set(abx_client *c, struct client_timer *t, int64_t due_ns)
{
    t->due_ns = due_ns;
}

void client_timer_clear(abx_client *c, struct client_timer *t)
{
    t->due_ns = 0;
}

void client_task_add(abx_client *c, struct client_task *t)
{
    if (t->is_queued)
        return;
    assert(c->task_count < ARRAY_SIZE(c->tasks));
    c->tasks[c->task_count++] = t;
    t->is_queued = true;
}

void client_task_remove(abx_client *c, struct client_task *t)
{
    size_t n = 0;

    for (size_t i = 0; i < c->task_count; i++)
        if (c->tasks[i] != t)
            c->tasks[n++] = c->tasks[i];
    c->task_count = n;
    t->is_queued = false;
}

void client_call_add(abx_client *c, struct call_link *link)
{
}

void client_call_remove(abx_client *c, struct call_link *link)
{
}

void client_call_completed(abx_client *c)
{
    c->completed++;
}

int abx_client_wait(abx_client *c, int64_t timeout_ms)
{
    return ABX_CANCELED;
}

bool client_is_closing(const abx_client *c)
{
    return false;
}

const char *http_head_get(const struct http_head *head, const char *name)
{
    return NULL;
}

int http_start(abx_client *c, const struct http_spec *spec, const struct http_sink *sink,
               void *user, struct http_exchange **ret, struct abx_err *err)
{
    assert(!exchange.is_running);
    exchange = (struct http_exchange){ *sink,        user,
                                       true,         spec->source != NULL,
                                       spec->source, spec->source_user };
    *ret = &exchange;
    return 0;
}

void http_cancel(struct http_exchange *x)
{
    assert(x->is_running);
    x->is_running = false;
}

void http_resume(struct http_exchange *x)
{
}

void http_resume_source(struct http_exchange *x)
{
}

static inline void tasks_run(abx_client *c)
{
    while (c->task_count > 0) {
        struct client_task *t = c->tasks[0];

        client_task_remove(c, t);
        t->fn(t->user);
    }
}
