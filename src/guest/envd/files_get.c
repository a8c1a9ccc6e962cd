/* files_get.c - GET /files.
 *
 * The file is opened and read in the pool. A small one is answered from the first piece of work; a
 * larger one streams through two buffers, one being read while the other is written. Files without a
 * size (/proc) are read to their end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/fd.h"
#include "guest/daemon/paths.h"
#include "guest/daemon/source.h"
#include "guest/daemon/work.h"
#include "guest/envd/files.h"
#include "guest/envd/files_head.h"

#define SMALL_MAX (64u << 10)
#define CHUNK_MAX (256u << 10)
#define GZIP_LEVEL 1
#define GZIP_WINDOW (15 + 16) /* zlib: with a gzip head */

struct download {
    struct work work;
    struct files_request req;
    int fd;
    struct stat st;
    uint64_t at, end;   /* still to be read; end is UINT64_MAX for files without a size */
    struct buf reading; /* filled by the pool */
    struct buf writing; /* on its way to the client */
    z_stream *z;        /* NULL = identity */
    enum files_coding coding;
    bool is_eof; /* nothing more to read */
    bool is_working;
    bool is_ready; /* `reading` holds the next piece */
};

static void download_free(struct download *d)
{
    if (d->z) {
        (void)deflateEnd(d->z);
        free(d->z);
    }
    fd_close(d->fd);
    buf_done(&d->reading);
    buf_done(&d->writing);
    free(d);
}

/* --- in the pool -------------------------------------------------------------------------------- */

/* Reads up to `max` bytes behind those in `b`. */
static int read_into(struct download *d, struct buf *b, size_t max, struct abx_err *err)
{
    size_t want = (size_t)MIN((uint64_t)max, d->end - d->at), got = 0;
    uint8_t *to = buf_reserve(b, want + 1, NULL); /* never NULL for want = 0 */
    ssize_t n = 0;

    if (!to)
        return err_oom(err);
    while (got < want && (n = pread(d->fd, to + got, want - got, (off_t)(d->at + got))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "read '%s'", d->req.path);
        got += (size_t)n;
    }
    buf_commit(b, got);
    d->at += got;
    d->is_eof = got < want || d->at == d->end;
    if (got < want && d->end != UINT64_MAX)
        return err_set(err, ABX_ABORTED, "'%s' became shorter", d->req.path);
    return 0;
}

/* Replaces what is in `reading` by its compressed form. */
static int compress_reading(struct download *d, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf plain = d->reading;
    struct slice in = buf_slice(&plain);
    size_t bound = deflateBound(d->z, in.n) + 64;
    uint8_t *to;

    buf_init(&d->reading, 2 * CHUNK_MAX);
    to = buf_reserve(&d->reading, bound, NULL);
    if (!to)
        return err_oom(err);
    d->z->next_in = in.p;
    d->z->avail_in = (uInt)in.n;
    d->z->next_out = to;
    d->z->avail_out = (uInt)bound;
    if (deflate(d->z, d->is_eof ? Z_FINISH : Z_SYNC_FLUSH) == Z_STREAM_ERROR || d->z->avail_in > 0)
        return err_set(err, ABX_INTERNAL, "compress '%s'", d->req.path);
    buf_commit(&d->reading, bound - d->z->avail_out);
    return 0;
}

static int deflate_begin(struct download *d, struct abx_err *err)
{
    z_stream *z = calloc(1, sizeof(*z));

    if (!z || deflateInit2(z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return err_oom(err);
    }
    d->z = z;
    return 0;
}

static void open_run(struct work *w)
{
    struct download *d = container_of(w, struct download, work);

    if (source_open(d->req.path, &d->fd, &d->st, &w->err) < 0)
        return;
    d->end = d->st.st_size > 0 ? (uint64_t)d->st.st_size : UINT64_MAX;
    if (d->st.st_size > (off_t)SMALL_MAX)
        return;
    if (read_into(d, &d->reading, SMALL_MAX, &w->err) == ABX_ABORTED) {
        w->err.code = 0; /* files of /sys say 4096 and hold less: what is there counts */
        d->end = d->at;
        d->st.st_size = (off_t)d->at;
    }
}

static void read_run(struct work *w)
{
    struct download *d = container_of(w, struct download, work);

    if (d->coding == FILES_GZIP && !d->z && deflate_begin(d, &w->err) < 0)
        return;
    if ((d->is_eof || read_into(d, &d->reading, CHUNK_MAX, &w->err) == 0) && d->z)
        (void)compress_reading(d, &w->err);
}

/* --- on the loop -------------------------------------------------------------------------------- */

static void pump(struct download *d);

static void read_done(struct work *w)
{
    struct download *d = container_of(w, struct download, work);

    d->is_working = false;
    d->is_ready = true;
    if (!d->req.ex)
        download_free(d);
    else if (w->err.code)
        http_exchange_abort(d->req.ex); /* the answer is under way: it must not look whole */
    else
        pump(d);
}

static void read_next(struct download *d)
{
    d->is_working = work_start(d->req.envd->loop, &d->work, NULL, read_run, read_done) == 0;
    if (!d->is_working)
        http_exchange_abort(d->req.ex);
}

static void pump(struct download *d)
{
    struct http_exchange *ex = d->req.ex;

    for (;;) {
        if (d->writing.len > 0) {
            buf_consume(&d->writing, http_exchange_write(ex, buf_slice(&d->writing)));
            if (d->writing.len > 0)
                return;
        }
        if (!d->is_ready) {
            if (!d->is_working && d->is_eof)
                http_exchange_end(ex);
            return;
        }
        struct buf empty = d->writing;
        d->writing = d->reading;
        d->reading = empty;
        buf_reset(&d->reading);
        d->is_ready = false;
        if (!d->is_eof)
            read_next(d);
    }
}

static void on_writable(void *user, struct http_exchange *ex)
{
    pump(user);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct download *d = user;

    d->req.ex = NULL;
    if (!d->is_working)
        download_free(d);
}

struct answer {
    struct http1_field fields[ENVD_FIELDS_MAX];
    size_t n;
    struct buf disposition;
    char etag[ETAG_SIZE];
    char modified[HTTP_DATE_SIZE];
    char range[72];
};

static void field(struct answer *a, const char *name, struct slice value)
{
    a->fields[a->n++] = (struct http1_field){ slice_str(name), value };
}

/* Fields that every answer about this file has. */
static void answer_init(struct download *d, struct answer *a)
{
    bool has_validator = d->st.st_size > 0;

    *a = (struct answer){ .disposition = BUF_INIT(4096) };
    a->n = envd_cors_fields(a->fields);
    if (has_validator) {
        files_etag((uint64_t)d->st.st_mtim.tv_sec * 1000000000u + (uint64_t)d->st.st_mtim.tv_nsec,
                   (uint64_t)d->st.st_size, d->st.st_ino, a->etag);
        http_date_format(d->st.st_mtim.tv_sec, a->modified);
        field(a, "ETag", slice_str(a->etag));
        field(a, "Last-Modified", slice_str(a->modified));
    }
    field(a, "Vary", SLICE_LIT("Accept-Encoding"));
}

static void answer_body_fields(struct download *d, struct answer *a)
{
    field(a, "Content-Type", SLICE_LIT("application/octet-stream"));
    if (files_disposition(&a->disposition, guest_path_name(d->req.path)) == BUF_OK)
        field(a, "Content-Disposition", buf_slice(&a->disposition));
    if (d->coding == FILES_GZIP)
        field(a, "Content-Encoding", SLICE_LIT("gzip"));
    else
        field(a, "Accept-Ranges", SLICE_LIT("bytes"));
}

/* Begins the answer, or gives all of it when the content is here already. */
static void respond(struct download *d, struct answer *a, int status, uint64_t begin, uint64_t end)
{
    struct http_exchange *ex = d->req.ex;
    bool is_head = slice_eq_str(http_exchange_head(ex)->method, "HEAD");
    bool is_here = d->is_eof && d->coding == FILES_IDENTITY;
    uint64_t length = end - begin;

    answer_body_fields(d, a);
    if (is_here) {
        struct slice all = buf_slice(&d->reading);
        http_exchange_send(ex, status, a->fields, a->n,
                           slice_of(all.p ? all.p + begin : NULL, length));
        return;
    }
    if (d->coding == FILES_GZIP || d->end == UINT64_MAX)
        length = HTTP_LENGTH_UNKNOWN;
    if (http_exchange_respond(ex, status, a->fields, a->n, length, NULL) < 0) {
        http_exchange_abort(ex);
        return;
    }
    if (is_head) {
        http_exchange_end(ex);
        return;
    }
    if (d->reading.len == 0) { /* large: nothing was read yet */
        d->at = begin;
        d->end = end;
    }
    read_next(d);
}

static void answer(struct download *d)
{
    const struct http1_head *head = http_exchange_head(d->req.ex);
    uint64_t size = d->end == UINT64_MAX ? d->reading.len : (uint64_t)d->st.st_size;
    uint64_t begin = 0, end = size;
    enum files_range range = FILES_WHOLE;
    struct answer a;

    answer_init(d, &a);
    d->coding = files_coding(head);
    if (d->coding == FILES_NO_CODING) {
        envd_error(d->req.ex, 406, "no acceptable encoding: identity and gzip are offered");
        return;
    }
    if (a.etag[0]) {
        switch (files_conditions(head, a.etag, d->st.st_mtim.tv_sec)) {
        case FILES_NOT_MODIFIED:
            http_exchange_send(d->req.ex, 304, a.fields, a.n, slice_of(NULL, 0));
            return;
        case FILES_PRECONDITION_FAILED:
            envd_error(d->req.ex, 412, "the file has changed");
            return;
        case FILES_GO_ON:
            break;
        }
        if (d->coding == FILES_IDENTITY)
            range = files_range(head, a.etag, d->st.st_mtim.tv_sec, size, &begin, &end);
    }
    if (range == FILES_UNSATISFIABLE) {
        (void)snprintf(a.range, sizeof(a.range), "bytes */%" PRIu64, size);
        field(&a, "Content-Range", slice_str(a.range));
        http_exchange_send(d->req.ex, 416, a.fields, a.n, slice_of(NULL, 0));
    } else if (range == FILES_PART) {
        (void)snprintf(a.range, sizeof(a.range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, begin,
                       end - 1, size);
        field(&a, "Content-Range", slice_str(a.range));
        respond(d, &a, 206, begin, end);
    } else {
        respond(d, &a, 200, begin, end);
    }
    buf_done(&a.disposition);
}

static void open_done(struct work *w)
{
    struct download *d = container_of(w, struct download, work);

    d->is_working = false;
    if (!d->req.ex)
        download_free(d);
    else if (w->err.code)
        envd_error_from(d->req.ex, &w->err);
    else
        answer(d);
}

void files_get(const struct files_request *req)
{
    static const struct http_exchange_events events = { .on_writable = on_writable,
                                                        .on_close = on_close };
    struct download *d = calloc(1, sizeof(*d));

    if (!d) {
        envd_error(req->ex, 503, "out of memory");
        return;
    }
    d->req = *req;
    d->fd = -EBADF;
    buf_init(&d->reading, 2 * CHUNK_MAX);
    buf_init(&d->writing, 2 * CHUNK_MAX);
    d->is_working = work_start(req->envd->loop, &d->work, &d->req.user, open_run, open_done) == 0;
    http_exchange_begin(req->ex, &events, d);
    if (!d->is_working)
        envd_error(req->ex, 503, "out of memory");
}
