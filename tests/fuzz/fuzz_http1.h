/* fuzz_http1.h - the body of both HTTP/1.1 targets: the events are the same however the bytes come,
 * and what the parser accepts keeps the promises of http1.h. */
#pragma once

#include "fuzz.h"
#include "wire/http1.h"

static void head_check(enum http1_kind kind, const struct http1_head *h)
{
    const struct http1_field *length = http1_head_find(h, "content-length");
    const struct http1_field *coding = http1_head_find(h, "transfer-encoding");
    struct buf b = BUF_INIT(4 * HTTP1_HEAD_MAX);

    FUZZ_CHECK(h->n_fields <= HTTP1_FIELDS_MAX);
    FUZZ_CHECK(!length || !coding);
    FUZZ_CHECK(h->framing != HTTP1_BODY_CHUNKED || coding);
    FUZZ_CHECK(h->framing != HTTP1_BODY_LENGTH || length);
    if (kind == HTTP1_REQUEST) {
        FUZZ_CHECK(h->framing != HTTP1_BODY_UNTIL_CLOSE);
        FUZZ_CHECK(h->target.n > 0 && h->target.n <= HTTP1_TARGET_MAX);
        FUZZ_CHECK(h->minor == 0 || http1_head_find(h, "host"));
        FUZZ_CHECK(http1_request_line(&b, h->method, h->target) == BUF_OK);
    }
    for (size_t i = 0; i < h->n_fields; i++) {
        (void)http1_head_is_hop_by_hop(h, h->fields[i].name);
        FUZZ_CHECK(http1_field_put(&b, h->fields[i].name, h->fields[i].value) == BUF_OK);
    }
    buf_done(&b);
}

/* Feeds one piece. False after an error. */
static bool feed(struct http1_parser *p, enum http1_kind kind, struct slice in, struct buf *log,
                 uint8_t *last)
{
    for (;;) {
        struct slice data = { 0 };
        enum http1_event ev = http1_parser_next(p, &in, &data);

        if (ev == HTTP1_NEED_MORE) {
            FUZZ_CHECK(in.n == 0);
            return true;
        }
        if (ev == HTTP1_DATA || ev == HTTP1_UPGRADED) {
            fuzz_log_data(log, last, ev == HTTP1_DATA ? 'D' : 'U', data);
            continue;
        }
        *last = 0;
        FUZZ_CHECK(buf_printf(log, "<%d>", (int)ev) == BUF_OK);
        if (ev == HTTP1_HEAD) {
            const struct http1_head *h = http1_parser_head(p);

            head_check(kind, h);
            FUZZ_CHECK(buf_printf(log, "%d %llu %zu %d%d%d", (int)h->framing,
                                  (unsigned long long)h->content_length, h->n_fields, h->keep_alive,
                                  h->is_upgrade, h->expects_continue) == BUF_OK);
            if (h->is_upgrade)
                http1_parser_upgrade(p);
        }
        if (ev == HTTP1_ERROR) {
            FUZZ_CHECK(buf_printf(log, "%d", (int)http1_parser_error(p)) == BUF_OK);
            return false;
        }
    }
}

static void run(enum http1_kind kind, unsigned mode, struct slice in, struct buf *log)
{
    struct http1_parser *p = http1_parser_new(kind);
    bool is_fine = true;
    uint8_t last = 0;

    FUZZ_CHECK(p);
    for (size_t i = 0; is_fine && in.n > 0; i++) {
        size_t n = fuzz_piece(mode, i, in.n);
        uint8_t *piece = fuzz_exact(slice_of(in.p, n));

        is_fine = feed(p, kind, slice_of(piece, n), log, &last);
        free(piece);
        in = slice_of(in.p + n, in.n - n);
    }
    if (is_fine)
        FUZZ_CHECK(buf_printf(log, "eof %d", (int)http1_parser_eof(p)) == BUF_OK);
    http1_parser_free(p);
}

static int fuzz_http1(enum http1_kind kind, struct slice in)
{
    struct buf whole = BUF_INIT(SIZE_MAX);

    run(kind, 0, in, &whole);
    for (unsigned mode = 1; mode < 3; mode++) {
        struct buf pieces = BUF_INIT(SIZE_MAX);

        run(kind, mode, in, &pieces);
        FUZZ_CHECK(slice_eq(buf_slice(&whole), buf_slice(&pieces)));
        buf_done(&pieces);
    }
    buf_done(&whole);
    return 0;
}
