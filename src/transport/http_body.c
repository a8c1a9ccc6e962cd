/* http_body.c - what libcurl asks for to send: the body of a request, from the caller's memory or its source.
 *
 * libcurl copies what it is given into a buffer of 64 KiB and sends that, one piece in each turn of the loop. For a
 * body in memory over a connection without TLS and proxy this costs as much as the kernel's own copy. So most of such
 * a body goes past it: when libcurl asks for a piece and has nothing of the earlier ones left, the connection stands
 * exactly behind them, and as much as the socket takes is sent from the caller's memory. Then libcurl gets a small
 * piece as if nothing had been. That piece is what waits when the socket is full, and what finds out when the
 * connection is lost: back pressure, deadlines, cancelling, early answers and errors stay in libcurl's hands.
 *
 * libcurl counts only what it sent itself, so it takes an error that answers a whole body of this kind for an early
 * one: it reads the answer and does not keep the connection.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/http_internal.h"

#define PAST_MAX (4u << 20) /* bytes in one turn: about a millisecond */
#define PIECE_BYTES 1024u   /* for libcurl behind them */

static size_t read_source(struct http_exchange *x, char *to, size_t n)
{
    int64_t got;

    if (x->source_size != ABX_UNSET) {
        n = MIN(n, (size_t)(x->source_size - x->source_given));
        if (n == 0)
            return 0;
    }
    got = x->source(x->source_user, to, n);
    if (x->is_canceled)
        return CURL_READFUNC_ABORT;
    if (got == ABX_UNAVAILABLE) {
        x->send_paused = true;
        return CURL_READFUNC_PAUSE;
    }
    if (got < 0 || (uint64_t)got > n) {
        x->source_error = got < 0 ? (int)MAX(got, (int64_t)ABX_UNAUTHENTICATED) : ABX_INTERNAL;
        (void)snprintf(x->source_why, sizeof x->source_why, "its source gave up");
        return CURL_READFUNC_ABORT;
    }
    x->source_given += got;
    if (got == 0 && x->source_size != ABX_UNSET) {
        x->source_error = ABX_INVALID_ARGUMENT;
        (void)snprintf(x->source_why, sizeof x->source_why, "source ended at byte %lld of %lld",
                       (long long)x->source_given, (long long)x->source_size);
        return CURL_READFUNC_ABORT;
    }
    return (size_t)got;
}

/* Where the connection's bytes end with what libcurl was given, or -1: the head and all pieces are sent, none waits in
 * its buffer. Not before the first piece: the head may wait still. */
static int past_fd(const struct http_exchange *x)
{
    const struct http_pool *pool = x->pool;
    curl_off_t sent;

    if (!x->goes_past || x->send_fd < 0 || x->body_given == 0 || x->body_at == x->body.n ||
        curl_easy_getinfo(x->easy, CURLINFO_SIZE_UPLOAD_T, &sent) != CURLE_OK ||
        sent != x->body_given)
        return -1;
    return pool->sockets[x->send_fd]->is_open ? x->send_fd : -1;
}

/* Sends from the caller's memory; false = not now. An error is left to libcurl, which meets it with its piece. */
static bool body_send(struct http_exchange *x)
{
    int fd = past_fd(x);
    ssize_t n;

    if (fd < 0)
        return false;
    n = send(fd, x->body.p + x->body_at, MIN(x->body.n - x->body_at, PAST_MAX),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        x->body_at += (size_t)n;
    return true;
}

size_t exchange_on_read(char *to, size_t size, size_t n, void *user)
{
    struct http_exchange *x = user;

    n *= size;
    if (x->is_canceled)
        return CURL_READFUNC_ABORT;
    if (x->source)
        return read_source(x, to, n);
    if (body_send(x))
        n = MIN(n, PIECE_BYTES);
    n = MIN(n, x->body.n - x->body_at);
    if (n > 0)
        memcpy(to, x->body.p + x->body_at, n);
    x->body_at += n;
    x->body_given += (curl_off_t)n;
    return n;
}

int exchange_on_seek(void *user, curl_off_t offset, int origin)
{
    struct http_exchange *x = user;

    if (origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_FAIL;
    if (x->source)
        return offset == x->source_given ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
    if ((uint64_t)offset > x->body.n)
        return CURL_SEEKFUNC_FAIL;
    x->body_at = (size_t)offset;
    x->body_given = 0;
    return CURL_SEEKFUNC_OK;
}
