/* files_post.c - POST /files: from the connection to the pool, where daemon/upload.c does the work.
 *
 * Two buffers: one being filled from the connection, one being written. When both are full nothing is
 * read from the client.
 */
#include <stdio.h>
#include <string.h>

#include "guest/daemon/paths.h"
#include "guest/daemon/upload.h"
#include "guest/daemon/work.h"
#include "guest/envd/files.h"
#include "guest/envd/files_head.h"
#include "wire/json.h"
#include "wire/multipart.h"

#define BUFFER_MAX (512u << 10)
#define BUFFER_FULL (256u << 10)
#define REPLY_MAX (8u << 20)

struct post {
    struct work work;
    struct files_request req;
    struct upload *upload;
    char *boundary;
    struct metadata *metadata;
    size_t n_metadata;
    struct upload_metadata *attributes;
    struct buf filling;
    struct buf busy;
    bool is_end;     /* the body is complete */
    bool is_end_fed; /* and the pool knows */
    bool is_working;
    bool is_failed; /* answered with an error */
};

static void post_free(struct post *p)
{
    upload_free(p->upload);
    free(p->boundary);
    metadata_free(p->metadata, p->n_metadata);
    free(p->attributes);
    buf_done(&p->filling);
    buf_done(&p->busy);
    free(p);
}
DEFINE_CLEANUP(struct post *, post_free)

/* --- in the pool -------------------------------------------------------------------------------- */

static void feed_run(struct work *w)
{
    struct post *p = container_of(w, struct post, work);

    if (upload_feed(p->upload, buf_slice(&p->busy), p->is_end_fed, &w->err) < 0)
        upload_abort(p->upload);
}

static void abort_run(struct work *w)
{
    upload_abort(container_of(w, struct post, work)->upload);
}

static void abort_done(struct work *w)
{
    post_free(container_of(w, struct post, work));
}

/* --- on the loop -------------------------------------------------------------------------------- */

/* [{"path":..,"name":..,"type":"file","metadata":{..}}] */
static bool reply_make(const struct post *p, struct buf *b)
{
    size_t n;
    const char *const *paths = upload_paths(p->upload, &n);
    bool bad = buf_append_byte(b, '[');

    for (size_t i = 0; !bad && i < n; i++) {
        bad = buf_append_str(b, i > 0 ? ",{\"path\":" : "{\"path\":") ||
              json_string_put(b, slice_str(paths[i])) || buf_append_str(b, ",\"name\":") ||
              json_string_put(b, slice_str(guest_path_name(paths[i]))) ||
              buf_append_str(b, ",\"type\":\"file\"");
        for (size_t k = 0; !bad && k < p->n_metadata; k++) {
            bad = buf_append_str(b, k > 0 ? "," : ",\"metadata\":{") ||
                  json_string_put(b, slice_str(p->metadata[k].key)) || buf_append_byte(b, ':') ||
                  json_string_put(b, slice_str(p->metadata[k].value));
        }
        bad = bad || buf_append_str(b, p->n_metadata > 0 ? "}}" : "}");
    }
    return !bad && !buf_append_byte(b, ']');
}

static void reply(struct post *p)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(REPLY_MAX);

    if (reply_make(p, &b))
        envd_send(p->req.ex, 200, "application/json", buf_slice(&b));
    else
        envd_error(p->req.ex, 500, "out of memory");
}

static void feed_done(struct work *w);

static void fail(struct post *p, const struct abx_err *err)
{
    p->is_failed = true;
    envd_error_from(p->req.ex, err);
}

/* Hands what is there to the pool, reads on while there is room. */
static void pump(struct post *p)
{
    struct abx_err err = { 0 };
    struct buf swap;

    if (!p->is_working && !p->is_end_fed && (p->is_end || p->filling.len >= BUFFER_FULL)) {
        swap = p->busy;
        p->busy = p->filling;
        p->filling = swap;
        p->is_end_fed = p->is_end;
        p->is_working = true;
        if (work_start(p->req.envd->loop, &p->work, &p->req.user, feed_run, feed_done) < 0) {
            p->is_working = false;
            (void)err_oom(&err);
            fail(p, &err);
            return;
        }
    }
    if (!p->is_end)
        http_exchange_read(p->req.ex, p->filling.len < BUFFER_FULL);
}

static void feed_done(struct work *w)
{
    struct post *p = container_of(w, struct post, work);

    p->is_working = false;
    buf_reset(&p->busy);
    if (!p->req.ex) {
        if (w->err.code || p->is_end_fed ||
            work_start(p->req.envd->loop, w, &p->req.user, abort_run, abort_done) < 0)
            post_free(p);
    } else if (p->is_failed) {
        return; /* answered already; on_close follows */
    } else if (w->err.code) {
        fail(p, &w->err);
    } else if (p->is_end_fed) {
        reply(p);
    } else {
        pump(p);
    }
}

static void on_body(void *user, struct http_exchange *ex, struct slice data, bool is_end)
{
    struct post *p = user;
    struct abx_err err = { 0 };

    if (p->is_failed || p->is_end)
        return;
    p->is_end = is_end;
    if (buf_append_slice(&p->filling, data)) {
        (void)err_oom(&err);
        fail(p, &err);
        return;
    }
    pump(p);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct post *p = user;

    p->req.ex = NULL;
    if (p->is_working)
        return; /* feed_done cleans up */
    if (p->is_end_fed ||
        work_start(p->req.envd->loop, &p->work, &p->req.user, abort_run, abort_done) < 0)
        post_free(p);
}

/* --- begin -------------------------------------------------------------------------------------- */

static int read_type(struct post *p, const struct http1_head *head, struct abx_err *err)
{
    struct slice type = http1_head_value(head, "content-type"), boundary;
    const uint8_t *semi = type.n > 0 ? memchr(type.p, ';', type.n) : NULL;
    struct slice plain = slice_trim(slice_of(type.p, semi ? (size_t)(semi - type.p) : type.n));

    if (slice_ieq_str(plain, "application/octet-stream")) {
        if (!p->req.has_path)
            return err_set(err, ABX_INVALID_ARGUMENT, "no path is given");
        return 0;
    }
    if (!slice_ieq_str(plain, "multipart/form-data"))
        return err_reason(err, ABX_REASON_MEDIA_TYPE,
                          "multipart/form-data or application/octet-stream is expected");
    if (!multipart_boundary(type, &boundary))
        return err_set(err, ABX_INVALID_ARGUMENT, "malformed boundary in Content-Type");
    p->boundary = slice_dup(boundary);
    return p->boundary ? 0 : err_oom(err);
}

static int read_coding(const struct http1_head *head, bool *ret_is_gzip, struct abx_err *err)
{
    struct slice coding = http1_head_value(head, "content-encoding");

    *ret_is_gzip = slice_ieq_str(coding, "gzip") || slice_ieq_str(coding, "x-gzip");
    if (*ret_is_gzip || coding.n == 0 || slice_ieq_str(coding, "identity"))
        return 0;
    return err_reason(err, ABX_REASON_MEDIA_TYPE, "Content-Encoding '%.*s' is not supported",
                      (int)MIN(coding.n, (size_t)64), (const char *)coding.p);
}

static int post_init(struct post *p, const struct http1_head *head, struct abx_err *err)
{
    struct upload_opts opts = { .user = &p->req.user };
    int r = read_type(p, head, err);

    if (r == 0)
        r = read_coding(head, &opts.is_gzip, err);
    if (r == 0)
        r = metadata_parse(head, &p->metadata, &p->n_metadata, err);
    if (r < 0)
        return r;
    p->attributes = calloc(p->n_metadata + 1, sizeof(*p->attributes));
    if (!p->attributes)
        return err_oom(err);
    for (size_t i = 0; i < p->n_metadata; i++)
        p->attributes[i] = (struct upload_metadata){ p->metadata[i].key, p->metadata[i].value };
    opts.workdir = p->req.envd->id->default_workdir;
    opts.path = p->req.has_path ? p->req.path : NULL;
    opts.boundary = p->boundary;
    opts.content_length = head->framing == HTTP1_BODY_LENGTH ? head->content_length : 0;
    opts.metadata = p->attributes;
    opts.n_metadata = p->n_metadata;
    return upload_new(&opts, &p->upload, err);
}

void files_post(const struct files_request *req)
{
    static const struct http_exchange_events events = { .on_body = on_body, .on_close = on_close };
    _cleanup_(post_freep) struct post *p = calloc(1, sizeof(*p));
    struct abx_err err = { 0 };

    if (!p)
        (void)err_oom(&err);
    if (p) {
        p->req = *req;
        buf_init(&p->filling, BUFFER_MAX);
        buf_init(&p->busy, BUFFER_MAX);
        (void)post_init(p, http_exchange_head(req->ex), &err);
    }
    if (err.code) {
        envd_error_from(req->ex, &err);
        return;
    }
    http_exchange_begin(req->ex, &events, p);
    http_exchange_read(req->ex, true);
    TAKE_PTR(p);
}
