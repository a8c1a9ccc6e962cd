/* http.c - the life of an exchange: attempts, the answer, retries, deadlines, the end.
 *
 * A request is never sent a second time unless its spec allows it. libcurl by itself sends again on a new connection
 * when a kept one dies without an answer; it asks exchange_on_send before each time, which lets the first one through
 * and a second one only when not one byte of the first went out. Whether something may have reached the server is
 * known by the same call: before it, nothing did. A stream of HTTP/2 that the server refused had no effect
 * (RFC 9113 8.7) and goes out again where libcurl says so, which is on connections that were never shared. So that
 * few are refused, the first request on a connection goes alone (pool_hold_ms).
 *
 * One timer for each exchange stands for all its deadlines and for the pause before a retry; bytes only move a
 * number, and the timer looks again when it fires.
 */
#include "transport/http.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/http_internal.h"

static int exchange_attempt(struct http_exchange *x, struct abx_err *err);

/* ---- the end ---- */

void exchange_release(struct http_exchange *x)
{
    struct http_pool *pool = x->pool;

    pool_dequeue(pool, x);
    client_timer_clear(pool->client, &x->timer);
    client_task_remove(pool->client, &x->resume_task);
    if (x->prev_live)
        x->prev_live->next_live = x->next_live;
    else
        pool->live = x->next_live;
    if (x->next_live)
        x->next_live->prev_live = x->prev_live;
    x->prev_live = x->next_live = NULL;
    abx_config_unref(TAKE_PTR(x->config));
    gzip_stop(x);
    pool_give(pool, x);
}

static void exchange_end(struct http_exchange *x, const struct abx_err *err)
{
    if (x->state == EXCHANGE_RUNNING)
        pool_remove(x->pool, x);
    client_timer_clear(x->pool->client, &x->timer);
    x->state = EXCHANGE_OVER;
    exchange_trace_end(x, err);
    x->sink.done(x->user, err);
    exchange_release(x);
}

void http_cancel(struct http_exchange *x)
{
    struct http_pool *pool = x->pool;
    struct abx_err err;

    if (x->is_canceled || x->state == EXCHANGE_OVER || x->state == EXCHANGE_FREE)
        return;
    x->is_canceled = true;
    client_timer_clear(pool->client, &x->timer);
    client_task_remove(pool->client, &x->resume_task);
    if (client_is_forked(pool->client))
        return;
    (void)err_set(&err, ABX_CANCELED, "%s: canceled", x->host);
    exchange_trace_end(x, &err);
    client_watch_clear(pool->client, &x->tunnel_watch);
    if (x->state == EXCHANGE_TUNNEL)
        x->state = EXCHANGE_RUNNING;
    if (x->state == EXCHANGE_RUNNING && pool->in_curl) {
        x->next = pool->doomed;
        pool->doomed = x;
        return;
    }
    if (x->state == EXCHANGE_RUNNING)
        pool_remove(pool, x);
    exchange_release(x);
}

/* ---- time ---- */

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    if (a_ns == 0 || b_ns == 0)
        return a_ns ? a_ns : b_ns;
    return MIN(a_ns, b_ns);
}

static int64_t idle_due(const struct http_exchange *x)
{
    if (x->idle_ns == 0 || !x->has_head || x->recv_paused)
        return 0;
    return x->last_byte_ns + x->idle_ns;
}

/* The deadline of what it is waiting for, 0 = none. */
static int64_t exchange_limit(const struct http_exchange *x)
{
    int64_t limit_ns = x->deadline_ns;

    return x->has_head ? limit_ns : earlier(limit_ns, x->head_deadline_ns);
}

static void exchange_arm(struct http_exchange *x)
{
    int64_t due_ns = earlier(exchange_limit(x), idle_due(x));

    if (x->state == EXCHANGE_WAITING && !x->is_queued)
        due_ns = earlier(due_ns, x->retry_at_ns);
    if (due_ns == 0 || (x->timer.due_ns != 0 && x->timer.due_ns <= due_ns))
        return;
    client_timer_set(x->pool->client, &x->timer, due_ns);
}

static void exchange_time_over(struct http_exchange *x, bool is_idle)
{
    struct abx_err err = { 0 };
    const char *phase = x->is_queued                   ? "wait for a connection"
                        : x->state == EXCHANGE_WAITING ? "wait to try again"
                                                       : fail_phase(x);

    if (is_idle)
        (void)err_reason(&err, ABX_REASON_REQUEST_TIMEOUT, "%s: %s: no bytes for %lld ms", x->host,
                         phase, (long long)(x->idle_ns / NSEC_PER_MSEC));
    else
        (void)err_reason(
            &err, ABX_REASON_REQUEST_TIMEOUT, "%s: %s: not done within %lld ms", x->host, phase,
            (long long)((exchange_limit(x) - x->start_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC));
    exchange_end(x, &err);
}

static void exchange_due(void *user)
{
    struct http_exchange *x = user;
    int64_t now_ns = time_mono_ns(), limit_ns = exchange_limit(x), idle_ns = idle_due(x);
    struct abx_err err = { 0 };

    if (limit_ns != 0 && limit_ns <= now_ns) {
        exchange_time_over(x, false);
        return;
    }
    if (idle_ns != 0 && idle_ns <= now_ns) {
        exchange_time_over(x, true);
        return;
    }
    if (x->state == EXCHANGE_WAITING && !x->is_queued && x->retry_at_ns <= now_ns &&
        exchange_attempt(x, &err) < 0) {
        exchange_end(x, &err);
        return;
    }
    exchange_arm(x);
}

/* ---- retries ---- */

/* Would a new attempt after `delay_ms` still have time? */
static bool has_time(const struct http_exchange *x, int64_t delay_ms)
{
    int64_t limit_ns = exchange_limit(x);

    return limit_ns == 0 || time_mono_ns() + delay_ms * NSEC_PER_MSEC < limit_ns;
}

static void exchange_wait(struct http_exchange *x, int64_t delay_ms)
{
    x->state = EXCHANGE_WAITING;
    x->retry_at_ns = time_mono_ns() + delay_ms * NSEC_PER_MSEC;
    exchange_arm(x);
}

void exchange_hold_end(struct http_exchange *x)
{
    if (!x->is_early)
        return;
    x->retry_after_ms = 0;
    if (x->state == EXCHANGE_WAITING && !x->is_queued)
        exchange_wait(x, 0);
}

/* 0.5, 1, 2 s, and up to a quarter more, so that many clients do not come back at once. */
static int64_t backoff_ms(int n)
{
    int64_t base = INT64_C(500) << n;
    uint16_t random;

    random_bytes(&random, sizeof random);
    return base + base * random / (4 * UINT16_MAX);
}

/* Decides at the head whether this answer is worth another try; sets the pause. */
static bool answer_is_retried(struct http_exchange *x, const struct http_head *head)
{
    const char *should = http_head_get(head, "should-retry");
    const char *after = http_head_get(head, "retry-after");
    int64_t delay_ms = -1;
    bool is_busy =
        head->status == 429 || head->status == 502 || head->status == 503 || head->status == 504;

    if (x->retry == HTTP_RETRY_CONNECT || x->source || x->answer_retries >= HTTP_RETRIES)
        return false;
    if (should && slice_ieq_str(slice_str(should), "false"))
        return false;
    if (head->status == 502 && x->skip_502_retry &&
        !(should && slice_ieq_str(slice_str(should), "true")))
        return false;
    if (!is_busy && !(head->status >= 400 && should && slice_ieq_str(slice_str(should), "true")))
        return false;
    if (after)
        delay_ms = head_retry_after_ms(after, time_wall_ms());
    if (delay_ms < 0)
        delay_ms = backoff_ms(x->answer_retries);
    if (delay_ms > HTTP_RETRY_AFTER_MAX_MS || !has_time(x, delay_ms))
        return false;
    x->retry_after_ms = delay_ms;
    return true;
}

/* 0, 0.5, 1, 2, 4, 8, 8 s ... before the n-th further try to connect. */
static int64_t connect_delay_ms(int n)
{
    return n == 0 ? 0 : INT64_C(500) << MIN(n - 1, 4);
}

/* Is a failed attempt made again? Then it waits. */
static bool failure_is_retried(struct http_exchange *x, CURLcode result, const struct abx_err *err)
{
    int connect_retries = x->config ? x->config->connect_retries : HTTP_RETRIES;
    int64_t delay_ms;

    if (fail_is_connect_retry(x, result) && x->connect_retries < connect_retries) {
        delay_ms = connect_delay_ms(x->connect_retries);
        if (!has_time(x, delay_ms))
            return false;
        x->connect_retries++;
    } else if (fail_is_lost(x, result) && x->retry != HTTP_RETRY_CONNECT && !x->source &&
               x->answer_retries < HTTP_RETRIES) {
        delay_ms = x->answer_retries == 0 ? 0 : backoff_ms(x->answer_retries - 1);
        if (!has_time(x, delay_ms))
            return false;
        x->answer_retries++;
    } else {
        return false;
    }
    exchange_trace(x, ABX_TRACE_FAILED, 0, err);
    x->is_traced = false;
    exchange_wait(x, delay_ms);
    return true;
}

void exchange_finished(struct http_exchange *x, CURLcode result)
{
    struct abx_err err = { 0 };

    if (x->is_early) {
        pool_remove(x->pool, x);
        exchange_wait(x, x->retry_after_ms);
        return;
    }
    if (x->is_discarding) {
        pool_remove(x->pool, x);
        x->answer_retries++;
        exchange_wait(x, x->retry_after_ms);
        return;
    }
    if (result == CURLE_OK && x->is_tunnel) {
        tunnel_opened(x);
        return;
    }
    if (result != CURLE_OK || !x->has_head) {
        if (result == CURLE_OK)
            (void)err_reason(&err, ABX_REASON_DISCONNECTED,
                             "%s: wait for the answer: the connection ended in its head", x->host);
        else
            fail_make(x, result, &err);
        pool_remove(x->pool, x);
        if (failure_is_retried(x, result, &err))
            return;
        x->state = EXCHANGE_WAITING; /* no longer with libcurl */
    }
    if (err.code == 0 && x->gzip && !gzip_is_complete(x->gzip))
        (void)err_reason(&err, ABX_REASON_PROTOCOL, "%s: answer: its gzip stream ends early",
                         x->host);
    exchange_end(x, &err);
}

/* ---- libcurl's callbacks ---- */

static bool answer_bad(struct http_exchange *x, const char *why)
{
    (void)snprintf(x->head.why, sizeof x->head.why, "%s", why);
    x->is_bad_head = true;
    return false;
}

/* Where the answer is packed as was asked for. */
static bool answer_unpack(struct http_exchange *x, const struct http_head *head)
{
    const char *coding = http_head_get(head, "content-encoding");
    struct slice c = slice_str(coding);

    if (!coding || slice_ieq_str(c, "identity"))
        return true;
    if (!slice_ieq_str(c, "gzip") && !slice_ieq_str(c, "x-gzip"))
        return answer_bad(x, "its content-encoding was not asked for");
    return gzip_start(x) || answer_bad(x, "out of memory for unpacking it");
}

static bool exchange_headed(struct http_exchange *x)
{
    struct http_head head = { x->head.status, x->head.version, x->head.pairs, x->head.count };

    pool_answered(x);
    if (answer_is_retried(x, &head)) {
        exchange_trace(x, ABX_TRACE_RESPONSE, head.status, NULL);
        x->is_traced = false; /* the next try is another request */
        x->is_discarding = true;
        return true;
    }
    if (x->accept_gzip && !answer_unpack(x, &head))
        return false;
    x->has_head = true;
    x->last_byte_ns = time_mono_ns();
    exchange_arm(x);
    if (x->is_stream)
        exchange_trace(x, ABX_TRACE_RESPONSE, head.status, NULL);
    x->sink.head(x->user, &head);
    return !x->is_canceled;
}

size_t exchange_on_header(char *p, size_t size, size_t n, void *user)
{
    struct http_exchange *x = user;

    n *= size;
    if (x->is_canceled)
        return 0;
    x->field_bytes += n;
    if (x->field_bytes > HTTP_FIELDS_BYTES)
        return answer_bad(x, "its heads and trailers are over 256 KiB");
    if (x->has_head || x->is_discarding) /* trailers */
        return n;
    switch (head_line(&x->head, slice_of(p, n))) {
    case HEAD_MORE:
        return n;
    case HEAD_DONE:
        return exchange_headed(x) ? n : 0;
    case HEAD_BAD:
        break;
    }
    x->is_bad_head = true;
    return 0;
}

size_t exchange_on_body(char *p, size_t size, size_t n, void *user)
{
    struct http_exchange *x = user;
    bool is_taken;

    n *= size;
    if (x->is_canceled)
        return 0;
    if (x->is_discarding) {
        x->discarded += n;
        return x->discarded > HTTP_DISCARD_BYTES ? 0 : n;
    }
    if (n == 0)
        return 0;
    if (x->idle_ns > 0)
        x->last_byte_ns = time_mono_ns();
    if (x->gzip) {
        enum gzip_result r = gzip_body(x, slice_of(p, n));

        if (r == GZIP_BAD)
            return answer_bad(x, "its body is no gzip");
        is_taken = r == GZIP_TAKEN;
    } else {
        is_taken = x->sink.body(x->user, slice_of(p, n));
    }
    if (x->is_canceled)
        return 0;
    if (is_taken)
        return n;
    x->recv_paused = true;
    return CURL_WRITEFUNC_PAUSE;
}

int exchange_on_send(void *user, char *ip, char *own_ip, int port, int own_port)
{
    struct http_exchange *x = user;
    long sent = 0;

    (void)ip;
    (void)own_ip;
    (void)port;
    if (x->is_canceled)
        return CURL_PREREQFUNC_ABORT;
    if (x->is_sent) {
        (void)curl_easy_getinfo(x->easy, CURLINFO_REQUEST_SIZE, &sent);
        if (sent > 0 && !x->is_refused) {
            x->is_resend = true;
            return CURL_PREREQFUNC_ABORT;
        }
    }
    x->send_fd = -1; /* of this connection it is told behind the first piece */
    x->retry_after_ms = x->is_https ? pool_hold_ms(x, own_port) : 0;
    if (x->retry_after_ms > 0) {
        x->is_early = true;
        return CURL_PREREQFUNC_ABORT;
    }
    x->is_sent = true;
    x->is_refused = false;
    pool_sends(x, own_port);
    return CURL_PREREQFUNC_OK;
}

/* libcurl tells only here why it is going to send again; set for HTTP/2 alone. */
int exchange_on_debug(CURL *easy, curl_infotype type, char *text, size_t n, void *user)
{
    struct http_exchange *x = user;

    (void)easy;
    if (type == CURLINFO_TEXT && slice_starts_with(slice_of(text, n), "REFUSED_STREAM, retrying"))
        x->is_refused = true;
    return 0;
}

/* ---- pauses ---- */

static void exchange_resume(void *user)
{
    struct http_exchange *x = user;
    bool is_recv = x->resume_recv && x->recv_paused, is_send = x->resume_send && x->send_paused;

    x->resume_recv = x->resume_send = false;
    if (x->state != EXCHANGE_RUNNING || (!is_recv && !is_send))
        return;
    if (is_recv) {
        x->recv_paused = false;
        x->last_byte_ns = time_mono_ns();
        exchange_arm(x);
    }
    if (is_send)
        x->send_paused = false;
    pool_unpause(x->pool, x);
}

void http_resume(struct http_exchange *x)
{
    x->resume_recv = true;
    client_task_add(x->pool->client, &x->resume_task);
}

void http_resume_source(struct http_exchange *x)
{
    x->resume_send = true;
    client_task_add(x->pool->client, &x->resume_task);
}

/* ---- the start ---- */

bool exchange_spends(const struct http_exchange *x)
{
    return x->is_https && x->is_sent && !x->has_head && !x->is_discarding;
}

static int exchange_attempt(struct http_exchange *x, struct abx_err *err)
{
    int r;

    x->is_spent = x->is_spent || exchange_spends(x);
    x->fd = x->send_fd = -1;
    x->is_sent = x->is_resend = x->is_refused = x->has_head = x->is_discarding = false;
    x->is_bad_head = x->is_early = false;
    x->recv_paused = x->send_paused = x->resume_recv = x->resume_send = false;
    x->discarded = x->field_bytes = 0;
    x->body_at = 0;
    x->body_given = 0;
    head_reset(&x->head);
    if (pool_enqueue(x->pool, x)) {
        x->state = EXCHANGE_WAITING;
        return 0;
    }
    r = x->renew && x->answer_retries > 0 ? setup_renew(x, err) : 0;
    if (r == 0)
        r = setup_attempt(x, err);
    if (r == 0)
        r = pool_add(x->pool, x, err);
    if (r == 0)
        exchange_trace(x, ABX_TRACE_REQUEST, 0, NULL);
    return r;
}

void exchange_admit(struct http_exchange *x)
{
    struct abx_err err = { 0 };

    if (exchange_attempt(x, &err) < 0)
        exchange_end(x, &err);
    else
        exchange_arm(x);
}

static void exchange_clear(struct http_exchange *x)
{
    x->is_canceled = x->is_traced = false;
    x->connect_retries = x->answer_retries = 0;
    x->source_given = 0;
    x->source_error = 0;
    x->timer = (struct client_timer){ .fn = exchange_due, .user = x };
    x->resume_task = (struct client_task){ .fn = exchange_resume, .user = x };
    x->has_head = x->is_sent = x->recv_paused = x->is_tunnel = false;
    x->tunnel_watch = (struct client_watch){ .fd = -EBADF };
    x->start_ns = time_mono_ns();
}

static int exchange_begin(struct http_exchange *x, const struct http_spec *spec,
                          struct abx_err *err)
{
    int r = setup_spec(x, spec, err);

    if (r < 0)
        return r;
    x->config = spec->config ? abx_config_ref(spec->config) : NULL;
    if (!x->pool->in_curl)
        return exchange_attempt(x, err);
    exchange_wait(x, 0);
    return 0;
}

static int start(abx_client *c, const struct http_spec *spec, bool is_tunnel,
                 const struct http_sink *sink, void *user, struct http_exchange **ret,
                 struct abx_err *err)
{
    struct http_pool *pool = client_http_pool(c);
    struct http_exchange *x;
    int r;

    if (client_is_forked(c))
        return err_set(err, ABX_FAILED_PRECONDITION, "the client belongs to the parent process");
    if (client_is_closing(c))
        return err_set(err, ABX_CANCELED, "the client is being freed");
    x = pool_take(pool);
    if (!x)
        return err_oom(err);
    exchange_clear(x);
    x->is_tunnel = is_tunnel;
    x->sink = *sink;
    x->user = user;
    x->next_live = pool->live;
    if (pool->live)
        pool->live->prev_live = x;
    pool->live = x;
    r = exchange_begin(x, spec, err);
    if (r < 0) {
        exchange_release(x);
        return r;
    }
    exchange_arm(x);
    *ret = x;
    return 0;
}

int http_start(abx_client *c, const struct http_spec *spec, const struct http_sink *sink,
               void *user, struct http_exchange **ret, struct abx_err *err)
{
    return start(c, spec, false, sink, user, ret, err);
}

int http_tunnel_start(abx_client *c, const struct http_spec *spec, const struct http_sink *sink,
                      void *user, struct http_exchange **ret, struct abx_err *err)
{
    return start(c, spec, true, sink, user, ret, err);
}
