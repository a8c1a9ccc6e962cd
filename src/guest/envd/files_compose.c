/* files_compose.c - POST /files/compose {source_paths, destination, username} (e2b.md 4.3).
 *
 * The sources are read one after the other and stay as they are; the destination is written like an
 * upload (daemon/target.h): beside, then put into place, so it may be one of the sources, and after a
 * failure it is what it was. The answer is one object of the form that uploads answer with.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/daemon/paths.h"
#include "guest/daemon/source.h"
#include "guest/daemon/target.h"
#include "guest/daemon/work.h"
#include "guest/envd/files.h"
#include "schema/filesystem.pb-c.h"
#include "wire/rpc.h"

#define BODY_MAX (1u << 20)
#define SOURCES_MAX 1000
#define CHUNK_MAX (256u << 10)
#define RUN_NS (50 * NSEC_PER_MSEC) /* of a thread of the pool before others get it */

struct compose {
    struct work work;
    struct envd *envd;
    struct http_exchange *ex; /* NULL once the client is gone */
    struct user user;
    Filesystem__ComposeRequest *request;
    struct target target;
    size_t at; /* source being read */
    int fd;
    uint8_t *bytes;
    bool is_begun;
    bool is_working;
    bool is_done; /* in place */
};

static void compose_free(struct compose *c)
{
    if (c->request)
        rpc_message_free(&c->request->base);
    target_done(&c->target);
    fd_close(c->fd);
    free(c->bytes);
    free(c);
}

/* --- in the pool -------------------------------------------------------------------------------- */

static int source_path(const struct compose *c, size_t i, char to[PATH_MAX], struct abx_err *err)
{
    return guest_path(&c->user, c->envd->id->default_workdir, c->request->source_paths[i], to, err);
}

/* Every source is looked at before anything is written. */
static int begin(struct compose *c, struct abx_err *err)
{
    char path[PATH_MAX];
    uint64_t size = 0;
    struct stat st;
    int fd, r;

    for (size_t i = 0; i < c->request->n_source_paths; i++) {
        r = source_path(c, i, path, err);
        if (r == 0)
            r = source_open(path, &fd, &st, err);
        if (r < 0)
            return r;
        fd_close(fd);
        size += (uint64_t)st.st_size;
    }
    r = guest_path(&c->user, c->envd->id->default_workdir, c->request->destination, path, err);
    if (r == 0)
        r = target_check_space(path, size, err);
    if (r < 0)
        return r;
    target_init(&c->target, path);
    c->target.keeps_old = true;
    c->bytes = malloc(CHUNK_MAX);
    return c->bytes ? 0 : err_oom(err);
}

/* Reads on; closes the source at its end. */
static int copy_some(struct compose *c, struct abx_err *err)
{
    ssize_t n;

    do
        n = read(c->fd, c->bytes, CHUNK_MAX);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, errno, "read '%s'", c->request->source_paths[c->at]);
    if (n > 0)
        return target_write(&c->target, slice_of(c->bytes, (size_t)n), err);
    fd_close(TAKE_FD(c->fd));
    c->at++;
    return 0;
}

static int step(struct compose *c, struct abx_err *err)
{
    char path[PATH_MAX];
    struct stat st;
    int r;

    if (c->fd >= 0)
        return copy_some(c, err);
    if (c->at < c->request->n_source_paths) {
        r = source_path(c, c->at, path, err);
        return r < 0 ? r : source_open(path, &c->fd, &st, err);
    }
    r = target_finish(&c->target, NULL, NULL, 0, err);
    c->is_done = r == 0;
    return r;
}

static void compose_run(struct work *w)
{
    struct compose *c = container_of(w, struct compose, work);
    int64_t end = time_mono_ns() + RUN_NS;
    int r = 0;

    if (!c->is_begun) {
        r = begin(c, &w->err);
        c->is_begun = r == 0;
    }
    while (r == 0 && !c->is_done && time_mono_ns() < end)
        r = step(c, &w->err);
    if (r < 0)
        target_abort(&c->target);
}

static void abort_run(struct work *w)
{
    target_abort(&container_of(w, struct compose, work)->target);
}

static void abort_done(struct work *w)
{
    compose_free(container_of(w, struct compose, work));
}

/* --- on the loop -------------------------------------------------------------------------------- */

/* The client is gone and the pool is done: nothing half made stays. */
static void compose_end(struct compose *c)
{
    if (c->is_done || c->target.temp[0] == '\0' ||
        work_start(c->envd->loop, &c->work, &c->user, abort_run, abort_done) < 0)
        compose_free(c);
}

static void reply(struct compose *c)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(64u << 10);

    if (buf_append_str(&b, "{\"path\":") || json_string_put(&b, slice_str(c->target.path)) ||
        buf_append_str(&b, ",\"name\":") ||
        json_string_put(&b, slice_str(guest_path_name(c->target.path))) ||
        buf_append_str(&b, ",\"type\":\"file\"}"))
        envd_error(c->ex, 500, "out of memory");
    else
        envd_send(c->ex, 200, "application/json", buf_slice(&b));
}

static void compose_work(struct compose *c);

static void compose_done(struct work *w)
{
    struct compose *c = container_of(w, struct compose, work);

    c->is_working = false;
    if (!c->ex)
        compose_end(c);
    else if (w->err.code)
        envd_error_from(c->ex, &w->err);
    else if (c->is_done)
        reply(c);
    else
        compose_work(c);
}

static void compose_work(struct compose *c)
{
    c->is_working = work_start(c->envd->loop, &c->work, &c->user, compose_run, compose_done) == 0;
    if (!c->is_working)
        envd_error(c->ex, 503, "out of memory");
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct compose *c = user;

    c->ex = NULL;
    if (!c->is_working)
        compose_end(c);
}

static int read_request(struct compose *c, struct slice body, struct abx_err *err)
{
    struct rpc_error e = { 0 };
    ProtobufCMessage *m = NULL;
    enum rpc_status bad = rpc_json_decode(&filesystem__compose_request__descriptor, body, &m, &e);

    if (bad == RPC_OOM)
        return err_oom(err);
    if (bad)
        return err_set(err, ABX_INVALID_ARGUMENT, "request: %s (at byte %zu)", e.text, e.offset);
    c->request = (Filesystem__ComposeRequest *)m;
    if (c->request->n_source_paths == 0 || c->request->n_source_paths > SOURCES_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "source_paths: 1 to %d paths are needed",
                       SOURCES_MAX);
    if (c->request->destination[0] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "destination: a path is needed");
    return files_user(c->envd, http_exchange_head(c->ex), c->request->username, &c->user, err);
}

static void on_collected(void *user, struct http_exchange *ex, struct slice body,
                         const struct abx_err *why)
{
    static const struct http_exchange_events events = { .on_close = on_close };
    struct compose *c = user;
    struct abx_err err = *why;

    if (err.code == ABX_CANCELED) {
        compose_free(c);
        return;
    }
    http_exchange_begin(ex, &events, c);
    if (err.code || read_request(c, body, &err) < 0)
        envd_error_from(ex, &err);
    else
        compose_work(c);
}

void files_compose_handle(struct envd *e, struct http_exchange *ex)
{
    struct compose *c;

    if (!slice_eq_str(http_exchange_head(ex)->method, "POST")) {
        envd_error(ex, 405, "method not allowed");
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        envd_error(ex, 503, "out of memory");
        return;
    }
    c->envd = e;
    c->ex = ex;
    c->fd = c->target.fd = c->target.dir = -EBADF;
    http_exchange_collect(ex, BODY_MAX, on_collected, c);
}
