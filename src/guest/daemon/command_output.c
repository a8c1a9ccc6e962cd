/* command_output.c - from a command's pipes to its readers. See command.h, output.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/daemon/command_table.h"

#define READ_PER_EVENT (256u << 10)
#define DRAIN_MAX (1u << 20)
#define PTY_CHUNK_MAX 16384u
#define TICK_MS 5000
#define PIPE_USUAL 65536u     /* the kernel's size of a pipe */
#define PIPE_GROWN (1u << 20) /* of those of commands that write very much; anyone may have it */
#define PIPES_GROWN_MAX 16u   /* together a quarter of what a user may have */
#define GATHER_MS 1
#define BULK_MIN 4096u /* a page: programs write so much at once when they have more to say */
#define FULL_BEFORE_GROWTH 4u /* times that a pipe was found full */

static void on_pipe(uv_poll_t *poll, int status, int events);
static void pipe_watch(struct command_pipe *p);

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
        p->has_poll = p->is_watched = p->is_gathering = false;
    }
    if (p->is_grown)
        p->command->owner->n_pipes_grown--;
    p->is_grown = false;
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
        pipe_watch(p);
    }
    return 0;
}

/* Puts `n` bytes, which are where output_reserve said, into the output but for a cut character. */
static void pipe_commit(struct command_pipe *p, const uint8_t *at, size_t n)
{
    size_t cut = utf8_cut_tail(slice_of(at, n));

    memcpy(p->held, at + n - cut, cut);
    p->n_held = (uint8_t)cut;
    p->is_bulk = n >= BULK_MIN;
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

static void pipe_watch(struct command_pipe *p)
{
    bool on = p->has_poll && !p->is_paused && !p->is_gathering;

    if (on == p->is_watched)
        return;
    p->is_watched = on;
    if (on)
        (void)uv_poll_start(&p->poll, UV_READABLE, on_pipe);
    else
        (void)uv_poll_stop(&p->poll);
}

static void pipes_pause(struct command *c, bool on)
{
    for (size_t i = 0; i < 2; i++) {
        struct command_pipe *p = &c->pipes[i];
        if (!p->has_poll || p->is_paused == on)
            continue;
        p->is_paused = on;
        pipe_watch(p);
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

/* The pipe was full. If that comes again and again, a larger one lets command and daemon take turns less often. */
static void pipe_grow(struct command_pipe *p)
{
    struct commands *cs = p->command->owner;

    if (p->is_grown || p->stream == OUTPUT_PTY || ++p->n_full < FULL_BEFORE_GROWTH)
        return;
    p->n_full = 0;
    if (cs->n_pipes_grown < PIPES_GROWN_MAX && fcntl(p->fd, F_SETPIPE_SZ, PIPE_GROWN) >= 0) {
        p->is_grown = true;
        cs->n_pipes_grown++;
    }
}

static void on_gather(uv_timer_t *timer);
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
    bool is_bulk = (c->pipes[0].n_held > 0 && c->pipes[0].is_bulk) ||
                   (c->pipes[1].n_held > 0 && c->pipes[1].is_bulk);

    if (c->pipes[0].n_held + c->pipes[1].n_held == 0)
        (void)uv_timer_stop(&c->flush);
    else if (!uv_is_active((uv_handle_t *)&c->flush))
        (void)uv_timer_start(&c->flush, on_flush, is_bulk ? COMMAND_HELD_BULK_MS : COMMAND_HELD_MS,
                             0);
}

/* A command that writes much in small pieces would wake the daemon for each: 64 KiB within a millisecond, and it
 * is asked again one later. One whose pipe was full meanwhile is held up by us and not asked to wait. */
static bool wants_gathering(struct command_pipe *p, size_t got)
{
    uint64_t now = uv_now(p->poll.loop);

    if (p->tick_at != now)
        p->tick_bytes = 0;
    p->tick_at = now;
    p->tick_bytes += got;
    return p->stream != OUTPUT_PTY && p->tick_bytes >= PIPE_USUAL &&
           got < (p->is_grown ? PIPE_GROWN : PIPE_USUAL) / 4 * 3;
}

static void pipe_take(struct command_pipe *p)
{
    struct command *c = p->command;
    size_t most = p->is_grown ? PIPE_GROWN : READ_PER_EVENT, got = 0;
    ssize_t n = 1;

    while (n > 0 && got < most && !output_is_full(&c->output)) {
        n = pipe_read(p);
        got += n > 0 ? (size_t)n : 0;
    }
    if (got >= PIPE_USUAL)
        pipe_grow(p);
    p->is_gathering = n >= 0 && wants_gathering(p, got);
    if (p->is_gathering)
        (void)uv_timer_start(&c->gather, on_gather, GATHER_MS, 0);
    got += p->n_held;
    if (n < 0)
        pipe_close(p);
    else
        pipe_watch(p);
    if (got > 0)
        command_tell(c);
    flush_later(c);
    pipes_pause(c, output_is_full(&c->output));
    command_check_end(c);
}

static void on_gather(uv_timer_t *timer)
{
    struct command *c = timer->data;

    for (size_t i = 0; i < 2 && !c->is_ended; i++) {
        if (c->pipes[i].is_gathering) {
            c->pipes[i].is_gathering = false;
            pipe_take(&c->pipes[i]);
        }
    }
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    pipe_take(poll->data);
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
