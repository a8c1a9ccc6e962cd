/* files_read.c - GET /files, whole or as a stream (abx/files.h). */
#include <string.h>

#include "api/entry.h"
#include "base/str.h"
#include "transport/opts.h"

#define READ_MAX (UINT64_C(2) << 30)
/* Of a length that the other side tells, no more is believed before the bytes are there. */
#define RESERVE_MAX (64u << 20)

struct read {
    struct envd_exchange x;
    bool is_stream, is_gzip;
    uint64_t max, got;
    abx_room_fn room;
    void *room_user;
    size_t room_size;
};

static void on_end(abx_call *call)
{
    struct read *rd = call->state;

    envd_exchange_cancel(&rd->x);
}

static void on_resume(abx_call *call)
{
    struct read *rd = call->state;

    envd_exchange_resume(&rd->x);
}

static int too_large(const struct read *rd, struct abx_err *err)
{
    return err_reason(err, ABX_REASON_TOO_LARGE, "the file is over max_bytes (%llu)",
                      (unsigned long long)rd->max);
}

static int on_head(void *user, const struct http_head *head, struct abx_err *err)
{
    abx_call *call = user;
    struct read *rd = call->state;
    const char *length = http_head_get(head, "content-length");
    uint64_t n;

    if (!length || rd->is_gzip || !str_parse_u64(slice_str(length), UINT64_MAX, &n))
        return 0;
    if (n > rd->max)
        return too_large(rd, err);
    if (!rd->is_stream && n > 0 && rd->room && n <= SIZE_MAX) {
        call_enter(call);
        call->room = rd->room(rd->room_user, (size_t)n);
        call_leave(call);
        rd->room_size = (size_t)n;
    }
    if (!rd->is_stream && n > 0 && !call->room &&
        !buf_reserve(&call->bytes, (size_t)MIN(n, (uint64_t)RESERVE_MAX), NULL))
        return err_oom(err);
    return 0;
}

/* Into the owner's memory; more than the length that was told does not come, and would not fit. */
static bool room_put(abx_call *call, struct slice data)
{
    const struct read *rd = call->state;

    if (data.n > rd->room_size - call->room_used)
        return false;
    memcpy(call->room + call->room_used, data.p, data.n);
    call->room_used += data.n;
    return true;
}

static bool result_put(abx_call *call, struct slice data)
{
    return call->room ? room_put(call, data) : buf_append_slice(&call->bytes, data) == BUF_OK;
}

static enum envd_taken on_body(void *user, struct slice data, struct abx_err *err)
{
    abx_call *call = user;
    struct read *rd = call->state;
    struct abx_event event = { .kind = ABX_EVENT_DATA, .data = data.p, .size = data.n };

    if (rd->is_stream && call_events_full(call))
        return ENVD_LATER;
    rd->got += data.n;
    if (rd->got > rd->max)
        (void)too_large(rd, err);
    else if (rd->is_stream ? !call_event_push(call, &event) : !result_put(call, data))
        (void)err_oom(err);
    else
        return ENVD_TAKEN;
    return ENVD_BROKEN;
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    abx_call *call = user;
    const struct read *rd = call->state;
    struct abx_err why = *err;

    if (why.code == 0) {
        call_finish(call, rd->is_stream ? ABX_RESULT_NONE : ABX_RESULT_BYTES);
        return;
    }
    files_error(&why);
    call_fail_http(call, &why, http_status);
}

static int start_read(abx_call *call, const abx_sandbox *sandbox, const char *path,
                      const struct abx_read_opts *given, struct abx_err *err)
{
    static const struct envd_exchange_ops ops = { on_head, on_body, NULL, on_done };
    struct abx_read_opts opts = ABX_READ_OPTS_INIT;
    _cleanup_(buf_done) struct buf b = BUF_INIT(65536);
    struct read *rd = call->state;
    struct envd_request q = { .what = "GET /files", .method = "GET", .retry = HTTP_RETRY_READ };
    int64_t deadline_ns = 0;
    int r = opts_copy(&opts, sizeof opts, given, "abx_read_opts", err);

    if (r == 0)
        r = text_check(path, "path", true, err);
    if (r == 0)
        r = text_check(opts.user, "user", false, err);
    if (r == 0)
        r = sandbox_deadline(sandbox, opts.request_timeout_ms, &deadline_ns, err);
    if (r == 0)
        r = timeout_check(opts.idle_timeout_ms, "idle_timeout_ms", err);
    if (r == 0)
        r = files_path(sandbox, path, opts.user, &b, &q.path, err);
    if (r < 0)
        return r;
    rd->room = opts.room;
    rd->room_user = opts.room_user;
    rd->is_stream = q.is_stream = opts.stream != 0;
    rd->is_gzip = q.accept_gzip = opts.gzip != 0;
    rd->max = opts.max_bytes ? opts.max_bytes : rd->is_stream ? UINT64_MAX : READ_MAX;
    if (!rd->is_stream) {
        q.deadline_ns = deadline_ns;
        call->bytes.limit = (size_t)MIN(rd->max, (uint64_t)SIZE_MAX / 2);
    } else {
        q.head_deadline_ns = deadline_ns;
        q.idle_ms = opts.idle_timeout_ms;
        if (q.idle_ms == ABX_UNSET)
            q.idle_ms = opts.request_timeout_ms == ABX_UNSET ? sandbox->config->request_timeout_ms
                                                             : opts.request_timeout_ms;
    }
    return envd_exchange_start(&rd->x, call->client, sandbox, &q, &ops, call, err);
}

abx_call *abx_files_read(abx_client *client, const abx_sandbox *sandbox, const char *path,
                         const struct abx_read_opts *opts)
{
    static const struct call_ops call_ops = { .cancel = on_end, .resume = on_resume };
    abx_call *call = call_new(client, &call_ops, sizeof(struct read));
    struct abx_err err = { 0 };

    if (call && start_read(call, sandbox, path, opts, &err) < 0)
        call_fail(call, &err);
    return call;
}
