/* command_output.c - from a command's pipes to its readers. See command.h, output.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/daemon/command_table.h"

#define READS_PER_EVENT 8
#define DRAIN_MAX (1u << 20)
#define PTY_CHUNK_MAX 16384u
#define TICK_MS 5000

static void on_pipe(uv_poll_t *poll, int status, int events);

static void on_pipe_closed(uv_handle_t *h)
{
    struct command_pipe *p = h->data;

    command_handle_closed(p->command);
}

/* Lets go of what is held back; false when nothing is or memory is short. */
static bool pipe_flush(struct command_pipe *p)
{
    struct output *o = &p->command->output;
    uint8_t *at = p->n_held > 0 ? output_reserve(o, p->n_held) : NULL;

    if (!at)
        return false;
    memcpy(at, p->held, p->n_held);
    output_commit(o, p->stream, p->n_held);
    p->n_held = 0;
    return true;
}

static void pipe_close(struct command_pipe *p)
{
    if (p->fd < 0)
        return;
    (void)pipe_flush(p);
    if (p->has_poll) {
        (void)uv_poll_stop(&p->poll);
        uv_close((uv_handle_t *)&p->poll, on_pipe_closed);
        p->has_poll = false;
    }
    fd_close(TAKE_FD(p->fd)); /* after uv_poll_stop nothing of libuv uses the number */
}

void command_pipes_close(struct command *c)
{
    pipe_close(&c->pipes[0]);
    pipe_close(&c->pipes[1]);
}

int command_pipes_open(struct command *c, struct abx_err *err)
{
    for (size_t i = 0; i < 2; i++) {
        struct command_pipe *p = &c->pipes[i];
        if (p->fd < 0)
            continue;
        if (fd_set_nonblock(p->fd, true) < 0 || uv_poll_init(c->owner->loop, &p->poll, p->fd) < 0)
            return err_set(err, ABX_RESOURCE_EXHAUSTED, "watch the output of process %d", c->pid);
        p->poll.data = p;
        p->has_poll = true;
        c->n_handles++;
        (void)uv_poll_start(&p->poll, UV_READABLE, on_pipe);
    }
    return 0;
}

/* Puts `n` bytes, which are where output_reserve said, into the output but for a cut character. */
static void pipe_commit(struct command_pipe *p, const uint8_t *at, size_t n)
{
    size_t cut = utf8_cut_tail(slice_of(at, n));

    memcpy(p->held, at + n - cut, cut);
    p->n_held = (uint8_t)cut;
    output_commit(&p->command->output, p->stream, n - cut);
}

/* Reads one chunk. Bytes, 0 when nothing is there now or memory is short, -1 at the end. */
static ssize_t pipe_read(struct command_pipe *p)
{
    struct output *o = &p->command->output;
    size_t max = p->stream == OUTPUT_PTY ? PTY_CHUNK_MAX : OUTPUT_CHUNK_MAX;
    uint8_t *at = output_reserve(o, max);
    int sys;
    ssize_t n;

    if (!at)
        return 0;
    memcpy(at, p->held, p->n_held);
    do
        n = read(p->fd, at + p->n_held, max - p->n_held);
    while (n < 0 && errno == EINTR);
    sys = n < 0 ? errno : 0;
    if (n > 0) {
        pipe_commit(p, at, p->n_held + (size_t)n);
        return n;
    }
    output_commit(o, p->stream, 0);
    return sys == EAGAIN ? 0 : -1; /* a terminal without a process says EIO */
}

static void pipes_pause(struct command *c, bool on)
{
    for (size_t i = 0; i < 2; i++) {
        struct command_pipe *p = &c->pipes[i];
        if (!p->has_poll || p->is_paused == on)
            continue;
        p->is_paused = on;
        if (on)
            (void)uv_poll_stop(&p->poll);
        else
            (void)uv_poll_start(&p->poll, UV_READABLE, on_pipe);
    }
}

void command_tell(struct command *c)
{
    struct command_reader *next;

    for (struct command_reader *r = c->readers; r; r = next) {
        next = r->next;
        r->on_more(r);
    }
}

static void flush_later(struct command *c);

static void on_flush(uv_timer_t *timer)
{
    struct command *c = timer->data;
    bool any = pipe_flush(&c->pipes[0]);

    any = pipe_flush(&c->pipes[1]) || any;
    flush_later(c); /* short of memory */
    if (any)
        command_tell(c);
}

static void flush_later(struct command *c)
{
    if (c->pipes[0].n_held + c->pipes[1].n_held == 0)
        (void)uv_timer_stop(&c->flush);
    else if (!uv_is_active((uv_handle_t *)&c->flush))
        (void)uv_timer_start(&c->flush, on_flush, COMMAND_HELD_MS, 0);
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    struct command_pipe *p = poll->data;
    struct command *c = p->command;
    bool has_held;
    ssize_t n = 1;

    for (int i = 0; i < READS_PER_EVENT && n > 0 && !output_is_full(&c->output); i++) {
        n = pipe_read(p);
        if (n > 0)
            command_tell(c);
    }
    has_held = p->n_held > 0;
    if (n < 0)
        pipe_close(p);
    if (n < 0 && has_held)
        command_tell(c);
    flush_later(c);
    pipes_pause(c, output_is_full(&c->output));
    command_check_end(c);
}

void command_pipes_drain(struct command *c)
{
    for (size_t i = 0; i < 2; i++) {
        struct command_pipe *p = &c->pipes[i];
        size_t left = DRAIN_MAX;
        ssize_t n = 1;
        while (p->fd >= 0 && n > 0 && left >= OUTPUT_CHUNK_MAX) {
            n = pipe_read(p);
            left -= n > 0 ? (size_t)n : 0;
        }
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct commands *cs = timer->data;
    struct command_reader *next;

    for (struct command *c = cs->list; c; c = c->next) {
        for (struct command_reader *r = c->readers; r; r = next) {
            next = r->next;
            r->on_tick(r, uv_now(cs->loop));
        }
    }
}

static void reader_add(struct command *c, struct command_reader *r)
{
    struct commands *cs = c->owner;

    r->next = c->readers;
    c->readers = r;
    if (cs->n_readers++ == 0)
        (void)uv_timer_start(&cs->tick, on_tick, TICK_MS, TICK_MS);
}

void command_attach(struct command *c, struct command_reader *r, uint64_t *ret_dropped)
{
    output_attach(&c->output, &r->at, ret_dropped);
    reader_add(c, r);
}

int command_attach_at(struct command *c, struct command_reader *r, uint64_t offset,
                      uint64_t *ret_dropped, struct abx_err *err)
{
    if (!output_attach_at(&c->output, &r->at, offset, ret_dropped))
        return err_set(err, ABX_OUT_OF_RANGE, "process %d has written %" PRIu64 " bytes until now",
                       c->pid, c->output.end_offset);
    reader_add(c, r);
    return 0;
}

void command_detach(struct command *c, struct command_reader *r)
{
    struct command_reader **at = &c->readers;
    struct commands *cs = c->owner;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    output_detach(&c->output, &r->at);
    if (--cs->n_readers == 0)
        (void)uv_timer_stop(&cs->tick);
    pipes_pause(c, output_is_full(&c->output));
}

bool command_peek(struct command *c, struct command_reader *r, enum output_stream *ret_stream,
                  struct slice *ret)
{
    return output_peek(&c->output, &r->at, ret_stream, ret);
}

void command_advance(struct command *c, struct command_reader *r)
{
    output_advance(&c->output, &r->at);
    pipes_pause(c, output_is_full(&c->output));
}
