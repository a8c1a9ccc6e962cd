/* envd_stream.c - server streams of envd (e2b.md 3.2, client.md 2.6). See envd.h.
 *
 * How a stream ended, first match: its end-of-stream message's error; success when the END message or
 * an end-of-stream message came; DATA_LOSS when the answer ended cleanly without; what broke the
 * connection, after the sandbox's health was asked for. Every phase has a deadline: the start event, the
 * command's time and a grace, silence for two keepalive intervals, the end of the answer.
 */
#include <stdio.h>

#include "base/str.h"
#include "protocol/envd_rpc.h"

#define SILENCE_MS (2 * ENVD_KEEPALIVE_S * 1000)
/* The transport's own deadline for the head says more about what was slow: it goes first. */
#define START_LATER_MS 50
#define FINISH_MS 2000

static void stream_clear(struct envd_stream *s)
{
    if (s->x.client)
        client_timer_clear(s->x.client, &s->timer);
    connect_decoder_done(&s->decoder);
    buf_done(&s->request);
}

static void timer_in(struct envd_stream *s, int64_t ms)
{
    client_timer_set(s->x.client, &s->timer, time_mono_ns() + ms * NSEC_PER_MSEC);
}

/* The reason of a time that the sandbox says is over. */
static void judge_end(struct envd_stream *s, struct abx_err *err)
{
    *err = s->end_err;
    if (err->code == ABX_DEADLINE_EXCEEDED)
        err->reason = ABX_REASON_COMMAND_TIMEOUT;
    s->x.wants_check = err->code == ABX_UNAVAILABLE;
}

static void on_judge(void *user, struct abx_err *err)
{
    struct envd_stream *s = user;
    const char *noun = s->ops->noun ? s->ops->noun : "The stream";

    if (s->end_err.code != 0) {
        judge_end(s, err);
    } else if (s->has_end_message || (s->is_ended && s->has_start && !s->ops->noun)) {
        *err = (struct abx_err){ 0 };
    } else if (s->is_ended && !s->has_start) {
        (void)envd_protocol_error(&s->x, err, "the stream ended before its start event");
    } else if (s->is_ended || err->code == 0) {
        if (connect_decoder_is_partial(&s->decoder))
            (void)err_set(err, ABX_DATA_LOSS, "%s ended inside a message", noun);
        else
            (void)err_set(err, ABX_DATA_LOSS, "%s ended without an end event", noun);
    } else if (s->has_start && err->reason == ABX_REASON_REQUEST_TIMEOUT) {
        (void)envd_protocol_error(&s->x, err, "no byte for %d s", SILENCE_MS / 1000);
        err->code = ABX_UNAVAILABLE;
        err->reason = ABX_REASON_DISCONNECTED;
    }
}

static void on_timer(void *user)
{
    struct envd_stream *s = user;
    struct abx_err err = { 0 };

    if (s->has_end_message || s->is_ended) {
        on_judge(s, &err);
    } else if (!s->has_start) {
        (void)envd_protocol_error(&s->x, &err, "no start event within the request timeout");
        err.code = ABX_DEADLINE_EXCEEDED;
        err.reason = ABX_REASON_REQUEST_TIMEOUT;
    } else if (s->is_full) { /* what the sandbox says about it may wait behind what is not taken */
        timer_in(s, ENVD_GRACE_MS);
        return;
    } else {
        (void)envd_protocol_error(&s->x, &err, "not ended %d ms after its timeout of %lld ms",
                                  ENVD_GRACE_MS, (long long)s->timeout_ms);
        err.code = ABX_DEADLINE_EXCEEDED;
        err.reason = ABX_REASON_REQUEST_TIMEOUT;
    }
    envd_exchange_fail(&s->x, &err);
}

static int on_head(void *user, const struct http_head *head, struct abx_err *err)
{
    struct envd_stream *s = user;
    const char *offset = http_head_get(head, "abx-output-offset");

    s->has_output_offset =
        offset && str_parse_u64(slice_str(offset), UINT64_MAX, &s->output_offset);
    return envd_rpc_check_head(&s->x, head, s->is_protobuf, true, err);
}

/* The end-of-stream message: JSON with both codecs. Some servers send nothing in it. */
static int end_take(struct envd_stream *s, struct slice message, struct abx_err *err)
{
    bool is_malformed = false;

    s->is_ended = true;
    timer_in(s, FINISH_MS);
    if (message.n > 0)
        (void)envd_error_from_end(message, &is_malformed, &s->end_err);
    if (!is_malformed)
        return 0;
    *err = s->end_err;
    return envd_protocol_error(&s->x, err, "%s", s->end_err.msg);
}

/* Start first and once, nothing behind the end: before the owner hears of it. */
static int order_check(const struct envd_stream *s, enum envd_message kind, struct abx_err *err)
{
    if (kind == ENVD_MESSAGE_OTHER)
        return 0;
    if (s->has_end_message)
        return envd_protocol_error(&s->x, err, "an event behind the end event");
    if (s->has_start == (kind == ENVD_MESSAGE_START))
        return envd_protocol_error(&s->x, err,
                                   s->has_start ? "a second start event"
                                                : "the first event is no start event");
    return 0;
}

/* The owner has an event of this kind: what is waited for next. */
static void phase_move(struct envd_stream *s, enum envd_message kind)
{
    if (kind == ENVD_MESSAGE_END) {
        s->has_end_message = true;
        timer_in(s, FINISH_MS);
    } else if (kind == ENVD_MESSAGE_START) {
        s->has_start = true;
        if (s->timeout_ms > 0)
            timer_in(s, s->timeout_ms + ENVD_GRACE_MS);
        else
            client_timer_clear(s->x.client, &s->timer);
    }
}

static int message_take(struct envd_stream *s, struct slice bytes, struct abx_err *err)
{
    ProtobufCMessage *m = NULL;
    int r = envd_rpc_decode(&s->x, s->type, s->is_protobuf, bytes, &m, err);
    enum envd_message kind;

    if (r < 0)
        return r;
    kind = s->ops->kind(m);
    r = order_check(s, kind, err);
    if (r == 0 && kind != ENVD_MESSAGE_OTHER)
        r = s->ops->message(s->user, m, err);
    rpc_message_free(m);
    if (r == 0)
        phase_move(s, kind);
    return r;
}

static enum envd_taken on_body(void *user, struct slice data, struct abx_err *err)
{
    struct envd_stream *s = user;
    struct slice message;
    uint8_t flags;
    int r = 0;

    s->is_full = !s->is_ended && s->ops->is_full && s->ops->is_full(s->user);
    if (s->is_full)
        return ENVD_LATER;
    while (!s->is_ended && r == 0) {
        switch (connect_decoder_next(&s->decoder, &data, &flags, &message)) {
        case CONNECT_NEED_MORE:
            return ENVD_TAKEN;
        case CONNECT_MESSAGE:
            r = flags & CONNECT_FLAG_END ? end_take(s, message, err)
                                         : message_take(s, message, err);
            break;
        case CONNECT_TOO_LARGE:
            r = envd_protocol_error(&s->x, err, "a message is over %u MiB",
                                    CONNECT_MESSAGE_MAX >> 20);
            break;
        case CONNECT_BAD_FLAGS:
            r = envd_protocol_error(&s->x, err, "a message with flags other than end-of-stream");
            break;
        }
    }
    return r == 0 ? ENVD_TAKEN : ENVD_BROKEN;
}

static void on_done(void *user, const struct abx_err *err, int http_status)
{
    struct envd_stream *s = user;

    stream_clear(s);
    s->ops->done(s->user, err, http_status);
}

static int stream_send(struct envd_stream *s, abx_client *client, const abx_sandbox *sandbox,
                       const struct envd_rpc *rpc, struct abx_err *err)
{
    static const struct envd_exchange_ops ops = { on_head, on_body, on_judge, on_done };
    struct abx_pair headers[ENVD_RPC_HEADERS_MAX];
    struct envd_rpc_numbers mem;
    char path[128];
    struct envd_request q = {
        .what = rpc->procedure,
        .method = "POST",
        .path = path,
        .user = envd_user(sandbox, rpc->user),
        .headers = headers,
        .has_body = true,
        .retry = HTTP_RETRY_CONNECT,
        .head_deadline_ns = rpc->deadline_ns,
        .idle_ms = SILENCE_MS,
        .is_stream = true,
    };
    size_t mark;
    int r;

    if (!connect_envelope_begin(&s->request, 0, &mark))
        return err_oom(err);
    r = envd_rpc_encode(rpc->request, s->is_protobuf, &s->request, err);
    if (r < 0)
        return r;
    if (!connect_envelope_end(&s->request, mark))
        return err_reason(err, ABX_REASON_TOO_LARGE, "the request is over %u MiB",
                          CONNECT_MESSAGE_MAX >> 20);
    (void)snprintf(path, sizeof path, "/%s", rpc->procedure);
    q.header_count = envd_rpc_headers(rpc, s->is_protobuf, true, &mem, headers);
    q.body = buf_slice(&s->request);
    return envd_exchange_start(&s->x, client, sandbox, &q, &ops, s, err);
}

int envd_stream_start(struct envd_stream *s, abx_client *client, const abx_sandbox *sandbox,
                      const struct envd_rpc *rpc, const struct envd_stream_ops *ops, void *user,
                      struct abx_err *err)
{
    int r;

    *s = (struct envd_stream){
        .request = BUF_INIT(CONNECT_PREFIX_SIZE + CONNECT_MESSAGE_MAX),
        .type = rpc->response,
        .ops = ops,
        .user = user,
        .timer = { .fn = on_timer, .user = s },
        .timeout_ms = rpc->timeout_ms,
        .is_protobuf = sandbox->protobuf,
    };
    connect_decoder_init(&s->decoder);
    r = stream_send(s, client, sandbox, rpc, err);
    if (r == 0 && rpc->deadline_ns > 0)
        client_timer_set(client, &s->timer, rpc->deadline_ns + START_LATER_MS * NSEC_PER_MSEC);
    if (r < 0)
        stream_clear(s);
    return r;
}

void envd_stream_cancel(struct envd_stream *s)
{
    envd_exchange_cancel(&s->x);
    stream_clear(s);
}

void envd_stream_resume(struct envd_stream *s)
{
    envd_exchange_resume(&s->x);
}
