/* http_server_test.h - a server with handlers by path (/hello, /echo, /pour, /read, /hold, /upgrade, /nobody) and what
 * they saw, for the tests of net/http_server.c.
 */
#pragma once

#include "net_test.h"

#include "net/http_server.h"

struct seen {
    unsigned requests, closes;
    int why; /* code of the last on_close */
    size_t body;
    size_t written, to_write;
    size_t queued_max;
    bool is_end;
    struct http_exchange *ex; /* the one that is held */
    char paths[256];
};

static struct seen seen;
static struct http_server *server;
static struct http_server_opts opts;

static _unused_ void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    (void)user;
    seen.closes++;
    seen.why = why->code;
    if (seen.ex == ex)
        seen.ex = NULL;
}

static _unused_ void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    (void)user;
    (void)ex;
    seen.body += data.n;
    seen.is_end = is_end;
}

/* Writes zero bytes up to seen.to_write as far as the server takes them. */
static _unused_ void pour(void *user, struct http_exchange *ex)
{
    static const uint8_t zeros[40000];

    (void)user;
    while (seen.written < seen.to_write) {
        size_t want = MIN(sizeof(zeros), seen.to_write - seen.written);
        size_t n = http_exchange_write(ex, slice_of(zeros, want));

        seen.queued_max = MAX(seen.queued_max, HTTP_OUT_MAX - http_exchange_room(ex));
        seen.written += n;
        if (n < want)
            return;
    }
    http_exchange_end(ex);
}

static const struct http_exchange_events events = { on_body, pour, on_close };

static _unused_ void on_collected(void *user, struct http_exchange *ex, struct slice body,
                                  const struct abx_err *err)
{
    (void)user;
    seen.why = err->code;
    if (err->code == ABX_CANCELED)
        return;
    if (err->code)
        http_exchange_send(ex, err_http_status(err), NULL, 0, slice_str(err->msg));
    else
        http_exchange_send(ex, 200, NULL, 0, body);
}

static _unused_ void on_request(void *user, struct http_exchange *ex)
{
    const struct http1_head *head = http_exchange_head(ex);
    size_t have = strlen(seen.paths);

    (void)user;
    seen.requests++;
    (void)snprintf(seen.paths + have, sizeof(seen.paths) - have, "%.*s ", (int)head->path.n,
                   (const char *)head->path.p);
    if (slice_eq_str(head->path, "/echo")) {
        http_exchange_collect(ex, 1000, on_collected, NULL);
        return;
    }
    if (slice_eq_str(head->path, "/nobody"))
        return;
    http_exchange_begin(ex, &events, NULL);
    if (slice_starts_with(head->path, "/hello")) {
        http_exchange_send(ex, 200, NULL, 0, SLICE_LIT("hello"));
    } else if (slice_starts_with(head->path, "/pour")) {
        bool is_known = slice_eq_str(head->path, "/pour-known");

        assert_int_equal(http_exchange_respond(ex, 200, NULL, 0,
                                               is_known ? seen.to_write : HTTP_LENGTH_UNKNOWN,
                                               NULL),
                         0);
        pour(NULL, ex);
    } else { /* /hold, /read, /upgrade */
        seen.ex = ex;
        if (slice_eq_str(head->path, "/read"))
            http_exchange_read(ex, true);
    }
}

static _unused_ void start(void)
{
    seen = (struct seen){ 0 };
    opts.loop = &loop;
    opts.listen_fd = tcp_listen();
    opts.on_request = on_request;
    assert_int_equal(http_server_new(&opts, &server, NULL), 0);
    opts = (struct http_server_opts){ 0 };
}

static _unused_ void stop(int fd)
{
    fd_close(fd);
    http_server_free(server);
    turns(3);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

#define T(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)
