/* process_stream.c - see process_stream.h.
 *
 * Pulls: events are encoded, a few at a time, when the previous ones are with the connection, so a slow client
 * costs at most OUT_MAX here; the rest waits, shared, in the command's output log.
 */
#include "guest/envd/process_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define OUT_FULL (80u << 10) /* no further event is put behind so much */
#define OUT_MAX                                                                                    \
    (OUT_FULL + (64u << 10)) /* a 32 KiB chunk as base64 with its frame, and end events */

struct stream {
    struct call *call;
    struct command *command; /* NULL once detached */
    struct command_reader reader;
    uv_timer_t keepalive;
    uv_timer_t deadline; /* Connect only */
    struct buf out;      /* encoded, not yet taken by the connection */
    uint64_t progress_at;
    unsigned n_timers;
    bool is_start;  /* the stream that started the command, not a later Connect */
    bool is_ending; /* `out` holds the last of it */
    bool is_over;   /* the call is given back */
};

static void on_timer_closed(uv_handle_t *h)
{
    struct stream *s = h->data;

    if (--s->n_timers > 0)
        return;
    buf_done(&s->out);
    free(s);
}

static void detach(struct stream *s)
{
    if (s->command)
        command_detach(s->command, &s->reader);
    s->command = NULL;
}

static void stream_free(struct stream *s)
{
    s->is_over = true;
    uv_close((uv_handle_t *)&s->keepalive, on_timer_closed);
    uv_close((uv_handle_t *)&s->deadline, on_timer_closed);
}

/* Gives the call back and lets go of everything. */
static void stream_close(struct stream *s, void (*finish)(struct call *c))
{
    if (s->is_over)
        return;
    detach(s);
    stream_free(s);
    finish(s->call);
}

/* --- events ------------------------------------------------------------------------------------- */

/* Start and Connect answer with messages of the same form. */
static bool put_event(struct stream *s, Process__ProcessEvent *event)
{
    Process__StartResponse m = PROCESS__START_RESPONSE__INIT;

    m.event = event;
    return call_stream_encode(s->call, &m.base, &s->out, NULL) == 0;
}

static bool put_start(struct stream *s)
{
    Process__ProcessEvent__StartEvent start = PROCESS__PROCESS_EVENT__START_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;

    start.pid = (uint32_t)s->command->pid;
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
    event.start = &start;
    return put_event(s, &event);
}

static bool put_data(struct stream *s, enum output_stream stream, struct slice data)
{
    Process__ProcessEvent__DataEvent out = PROCESS__PROCESS_EVENT__DATA_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
    ProtobufCBinaryData bytes = { .len = data.n };

    memcpy(&bytes.data, &data.p, sizeof(bytes.data)); /* the encoder only reads */
    switch (stream) {
    case OUTPUT_STDOUT:
        out.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT;
        out.stdout = bytes;
        break;
    case OUTPUT_STDERR:
        out.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR;
        out.stderr = bytes;
        break;
    case OUTPUT_PTY:
        out.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY;
        out.pty = bytes;
        break;
    }
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
    event.data = &out;
    return put_event(s, &event);
}

static bool put_keepalive(struct stream *s)
{
    Process__ProcessEvent__KeepAlive keepalive = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;

    event.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
    event.keepalive = &keepalive;
    return put_event(s, &event);
}

/* What the stream that started a command says when the command's time was over: clients tell a
 * timeout by this code (older SDKs have no clock of their own for it). */
static bool put_timed_out(struct stream *s)
{
    struct abx_err err = { 0 };

    (void)err_set(&err, ABX_DEADLINE_EXCEEDED, "the command was killed: its time was over");
    return !connect_end_stream(&s->out, &err);
}

/* The end event and the end of the stream. */
static bool put_end(struct stream *s)
{
    Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
    struct command_end how;

    command_end_of(s->command->status, &how);
    end.exit_code = how.exit_code;
    end.exited = how.is_exited;
    end.status = how.status;
    if (how.exit_code != 0) {
        end.error_opt_case = PROCESS__PROCESS_EVENT__END_EVENT__ERROR_OPT_ERROR;
        end.error = how.status;
    }
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
    event.end = &end;
    return put_event(s, &event) && !connect_end_stream(&s->out, NULL);
}

/* --- pumping ------------------------------------------------------------------------------------ */

/* Encodes the next thing to say into the empty `out`; false when there is nothing. */
static bool encode_next(struct stream *s)
{
    enum output_stream stream;
    struct slice data;
    bool ok;

    if (command_peek(s->command, &s->reader, &stream, &data)) {
        ok = put_data(s, stream, data);
        if (ok)
            command_advance(s->command, &s->reader);
    } else if (s->is_start && s->command->is_timed_out) {
        ok = put_timed_out(s);
        s->is_ending = true;
    } else if (s->command->is_ended) {
        ok = put_end(s);
        s->is_ending = true;
    } else {
        return false;
    }
    if (!ok) {
        stream_close(s, call_stream_abort); /* out of memory: not to be taken for a whole stream */
        return false;
    }
    return true;
}

static void pump(struct stream *s)
{
    while (!s->is_over) {
        if (s->out.len > 0) {
            size_t n = http_exchange_write(s->call->ex, buf_slice(&s->out));
            buf_consume(&s->out, n);
            if (n > 0)
                s->progress_at = uv_now(s->keepalive.loop);
            if (s->out.len > 0)
                return; /* on writable again */
        }
        if (s->is_ending) {
            stream_close(s, call_stream_end);
            return;
        }
        if (!encode_next(s)) {
            if (!s->is_over)
                buf_done(&s->out); /* an idle stream holds no buffer */
            return;
        }
        while (s->out.len < OUT_FULL && !s->is_ending && !s->is_over && encode_next(s)) {
        }
        (void)uv_timer_again(&s->keepalive);
    }
}

static void on_more(struct command_reader *r)
{
    struct stream *s = container_of(r, struct stream, reader);

    if (s->out.len == 0)
        pump(s);
}

static void on_writable(struct call *c)
{
    pump(c->data);
}

static void on_gone(struct call *c)
{
    stream_close(c->data, call_drop);
}

/* Ends the stream, not the command, with an error. */
static void stream_fail(struct stream *s, int code, const char *text)
{
    struct abx_err err = { 0 };

    if (s->is_ending)
        return;
    (void)err_set(&err, code, "%s", text);
    detach(s);
    s->is_ending = true;
    if (connect_end_stream(&s->out, &err))
        stream_close(s, call_stream_abort);
    else
        pump(s);
}

/* A reader that takes nothing holds the command up: it is cut off. */
static void on_tick(struct command_reader *r, uint64_t now_ms)
{
    struct stream *s = container_of(r, struct stream, reader);

    if (s->out.len > 0 && now_ms - s->progress_at > COMMAND_STALL_MS)
        stream_fail(s, ABX_RESOURCE_EXHAUSTED,
                    "the output was not read for 30 s; connect again to read on");
}

static void on_keepalive(uv_timer_t *timer)
{
    struct stream *s = timer->data;

    if (s->out.len > 0 || s->is_over)
        return;
    if (put_keepalive(s))
        pump(s);
}

static void on_deadline(uv_timer_t *timer)
{
    stream_fail(timer->data, ABX_DEADLINE_EXCEEDED, "the time for this stream is over");
}

/* --- begin -------------------------------------------------------------------------------------- */

static struct stream *stream_new(struct call *c, struct command *command)
{
    struct stream *s = calloc(1, sizeof(*s));
    uint64_t period = (uint64_t)c->keepalive_s * 1000;

    if (!s)
        return NULL;
    s->call = c;
    s->command = command;
    s->reader.on_more = on_more;
    s->reader.on_tick = on_tick;
    buf_init(&s->out, OUT_MAX);
    (void)uv_timer_init(c->envd->loop, &s->keepalive);
    (void)uv_timer_init(c->envd->loop, &s->deadline);
    s->keepalive.data = s->deadline.data = s;
    s->n_timers = 2;
    (void)uv_timer_start(&s->keepalive, on_keepalive, period, period);
    s->progress_at = uv_now(c->envd->loop);
    c->data = s;
    c->on_writable = on_writable;
    c->on_gone = on_gone;
    return s;
}

/* Attaches, from the offset on that the request field Abx-Output-Offset names. */
static int attach(struct stream *s, uint64_t *ret_dropped, struct abx_err *err)
{
    const struct http1_field *f =
        http1_head_find(http_exchange_head(s->call->ex), "abx-output-offset");
    uint64_t offset;

    if (!f || s->is_start) {
        command_attach(s->command, &s->reader, ret_dropped);
        return 0;
    }
    if (!str_parse_u64(f->value, UINT64_MAX, &offset))
        return err_set(err, ABX_INVALID_ARGUMENT, "Abx-Output-Offset is no number of bytes");
    return command_attach_at(s->command, &s->reader, offset, ret_dropped, err);
}

/* The head: where the output begins, and what is gone. */
static int respond(struct stream *s, uint64_t dropped, struct abx_err *err)
{
    char offset[24], lost[24];
    struct http1_field fields[2] = {
        { .name = SLICE_LIT("abx-output-offset") },
        { .name = SLICE_LIT("abx-dropped-bytes") },
    };

    (void)snprintf(offset, sizeof(offset), "%" PRIu64, s->reader.at.mark.offset);
    (void)snprintf(lost, sizeof(lost), "%" PRIu64, dropped);
    fields[0].value = slice_str(offset);
    fields[1].value = slice_str(lost);
    return call_stream_begin(s->call, fields, dropped > 0 ? 2 : 1, err);
}

void process_stream_begin(struct call *c, struct command *command)
{
    struct stream *s = c->ex ? stream_new(c, command) : NULL;
    struct abx_err err = { 0 };
    uint64_t dropped;

    if (!s) {
        (void)err_oom(&err);
        call_fail(c, &err);
        return;
    }
    s->is_start = c->method->request == &process__start_request__descriptor;
    if (attach(s, &dropped, &err) < 0) {
        stream_free(s);
        call_fail(c, &err);
        return;
    }
    if (!s->is_start && c->timeout_ms > 0)
        (void)uv_timer_start(&s->deadline, on_deadline, c->timeout_ms, 0);
    if (respond(s, dropped, &err) < 0 || !put_start(s)) {
        stream_close(s, call_stream_abort);
        return;
    }
    pump(s);
}
