/* copy.c - see copy.h. */
#include "cli/client/copy.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/client/output.h"
#include "cli/client/signals.h"

#define SHOW_EVERY_NS (100 * NSEC_PER_MSEC)

/* ---- progress ---- */

void copy_hide(struct copy *c)
{
    if (c->shows_progress && c->shown_at)
        (void)fputs("\r\033[K", stderr);
    c->shown_at = 0;
}

void copy_show(struct copy *c, const char *path, uint64_t total)
{
    c->shown = path;
    c->shown_total = total;
    c->shown_done = 0;
}

void copy_advance(struct copy *c, uint64_t bytes)
{
    _cleanup_(freep) char *name = NULL;
    char done[SIZE_TEXT_SIZE], total[SIZE_TEXT_SIZE];
    int64_t now;

    c->bytes += bytes;
    c->shown_done += bytes;
    if (!c->shows_progress)
        return;
    now = time_mono_ns();
    if (c->shown_at && now - c->shown_at < SHOW_EVERY_NS)
        return;
    c->shown_at = now;
    name = output_clean(c->shown);
    (void)fprintf(stderr, "\r\033[K%s%s%s  %.60s", size_text((int64_t)c->shown_done, done),
                  c->shown_total ? " of " : "",
                  c->shown_total ? size_text((int64_t)c->shown_total, total) : "",
                  name ? name : "");
    (void)fflush(stderr);
}

void copy_leave_out(struct copy *c, const char *path, const char *fmt, ...)
{
    char reason[ABX_ERROR_MESSAGE_SIZE + 64];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    copy_hide(c);
    (void)fputs("abx: left out ", stderr);
    output_text(stderr, path);
    (void)fputs(": ", stderr);
    output_text(stderr, reason);
    (void)fputc('\n', stderr);
    (void)json_array_append_new(
        c->left_out, json_pack("{s:o,s:o}", "path", json_text(path), "reason", json_text(reason)));
}

/* ---- paths ---- */

char *copy_join(struct copy *c, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    char *made = NULL;

    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (asprintf(&made, "%.*s%s%s", (int)n, dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name) < 0) {
        (void)session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    return made;
}

char *copy_base_name(struct copy *c, const char *path)
{
    size_t n = strlen(path), from;
    char *made;

    while (n > 0 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--)
        ;
    made = strndup(path + from, n - from);
    if (!made)
        (void)session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return made;
}

void copy_temp_name(char to[COPY_TEMP_SIZE])
{
    uint8_t bytes[8];

    random_bytes(bytes, sizeof bytes);
    memcpy(to, ".abx-", 5);
    hex_encode(bytes, sizeof bytes, to + 5);
}

int copy_stat(struct copy *c, const char *path, enum abx_file_type *ret_type, bool *ret_is_link)
{
    struct abx_files_opts opts = ABX_FILES_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    const struct abx_entry *e;
    size_t n;

    opts.user = c->user;
    call = abx_files_stat(c->s->client, c->sb, path, &opts);
    if (session_wait(c->s, call) == ABX_NOT_FOUND &&
        c->s->error.reason == ABX_REASON_FILE_NOT_FOUND)
        return 0;
    if (c->s->error.code < 0)
        return c->s->error.code;
    e = abx_call_entries(call, &n);
    *ret_type = e->type;
    *ret_is_link = e->symlink_target != NULL || e->type == ABX_FILE_SYMLINK;
    return 1;
}

/* ---- bytes ---- */

/* Did a signal come that ends the copy? CANCELED, else 0. */
static int check_signals(struct copy *c)
{
    int signo;

    if (signals_fd() < 0)
        return 0;
    signals_clear();
    signo = signals_take_end();
    if (!signo)
        return 0;
    c->s->signo = signo;
    return session_set(c->s, ABX_CANCELED, "interrupted (%s)", strsignal(signo));
}

/* All of it; whoever reads a pipe may take long, and a signal may come meanwhile. */
static int write_all(struct copy *c, int fd, const void *p, size_t n)
{
    const uint8_t *at = p;

    while (n > 0) {
        ssize_t k = write(fd, at, n);

        if (k < 0 && errno != EINTR)
            return session_set_sys(c->s, errno, "write");
        if (check_signals(c) < 0)
            return c->s->error.code;
        at += MAX(k, (ssize_t)0);
        n -= (size_t)MAX(k, (ssize_t)0);
    }
    return 0;
}

int copy_fetch(struct copy *c, const char *path, int fd)
{
    struct abx_read_opts opts = ABX_READ_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_event e;

    opts.user = c->user;
    opts.stream = 1;
    call = abx_files_read(c->s->client, c->sb, path, &opts);
    if (!call)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    for (;;) {
        while (abx_call_next(call, &e)) {
            if (e.kind != ABX_EVENT_DATA)
                continue;
            if (write_all(c, fd, e.data, e.size) < 0)
                return c->s->error.code;
            copy_advance(c, e.size);
        }
        if (abx_call_is_done(call))
            break;
        (void)abx_client_wait(c->s->client, 1000);
        if (check_signals(c) < 0)
            return c->s->error.code;
    }
    c->s->error = *abx_call_error(call);
    return c->s->error.code;
}

/* ---- the source of an upload ---- */

struct source {
    struct copy *c;
    int fd;
    bool is_polled;  /* a pipe or terminal: nothing may be there yet */
    bool is_waiting; /* said so */
    int64_t left;    /* -1 = until the end */
    int error;       /* errno of the read that failed */
    bool is_short;
};

static int64_t source_read(void *user, void *to, size_t size)
{
    struct source *o = user;
    struct pollfd ready = { .fd = o->fd, .events = POLLIN };
    ssize_t n;

    if (o->left == 0)
        return 0;
    if (o->left > 0)
        size = (size_t)MIN((int64_t)size, o->left);
    if (o->is_polled && poll(&ready, 1, 0) <= 0) {
        o->is_waiting = true;
        return ABX_UNAVAILABLE;
    }
    do
        n = read(o->fd, to, size);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        o->error = errno;
        return ABX_INTERNAL;
    }
    if (n == 0 && o->left > 0) {
        o->is_short = true;
        return ABX_ABORTED;
    }
    o->left -= o->left > 0 ? n : 0;
    copy_advance(o->c, (uint64_t)n);
    return n;
}

/* Until the call ends, or the source that had nothing has something. 0, or CANCELED after a signal. */
static int step_source(struct copy *c, struct source *o, abx_call *call)
{
    struct pollfd fds[] = { { .fd = abx_client_fd(c->s->client), .events = POLLIN },
                            { .fd = signals_fd(), .events = POLLIN },
                            { .fd = o->is_waiting ? o->fd : -1, .events = POLLIN } };

    if (poll(fds, ARRAY_SIZE(fds), 1000) > 0 && fds[2].revents) {
        o->is_waiting = false;
        abx_call_resume(call);
    }
    (void)abx_client_process(c->s->client);
    return check_signals(c);
}

static int store_result(struct copy *c, const struct source *o, abx_call *call, char **ret_path)
{
    size_t n;

    c->s->error = *abx_call_error(call);
    if (o->error)
        return session_set_sys(c->s, o->error, "read");
    if (o->is_short)
        return session_set(c->s, ABX_ABORTED, "the file became shorter while it was copied");
    if (c->s->error.code < 0 || !ret_path)
        return c->s->error.code;
    *ret_path = strdup(abx_call_entries(call, &n)->path);
    if (!*ret_path)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

int copy_store(struct copy *c, int fd, int64_t size, const char *path, char **ret_path)
{
    struct source o = { .c = c, .fd = fd, .left = size, .is_polled = size < 0 };
    struct abx_write_item item = {
        .path = path, .source = source_read, .source_user = &o, .source_size = size
    };
    struct abx_write_opts opts = ABX_WRITE_OPTS_INIT;
    _cleanup_(abx_call_freep) abx_call *call = NULL;

    opts.user = c->user;
    if (size < 0)
        opts.request_timeout_ms = 0; /* whoever writes into the pipe may take long */
    call = abx_files_write(c->s->client, c->sb, &item, 1, &opts);
    if (!call)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    while (!abx_call_is_done(call))
        if (step_source(c, &o, call) < 0)
            return c->s->error.code;
    return store_result(c, &o, call, ret_path);
}
