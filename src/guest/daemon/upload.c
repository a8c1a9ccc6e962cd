/* upload.c - see upload.h: gunzip, then multipart, then files. */
#include "guest/daemon/upload.h"

#include <stdio.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#include "guest/daemon/entry.h"
#include "guest/daemon/paths.h"
#include "guest/daemon/target.h"
#include "wire/multipart.h"

#define INFLATE_CHUNK (256u << 10)
#define GZIP_WINDOW (15 + 16)

struct upload {
    struct upload_opts opts;
    struct multipart_parser *parser; /* NULL: raw body */
    struct target target;
    bool has_target;
    bool is_skipping; /* a part that is no file */
    bool is_form_end;
    char **names; /* of extended attributes */
    const char **values;
    char **paths;
    size_t n_paths, cap_paths;
    z_stream z;
    bool has_z;
    bool is_z_end; /* at the end of a gzip member */
    uint8_t *inflated;
};

static int attributes_make(struct upload *up, struct abx_err *err)
{
    size_t n = up->opts.n_metadata;

    up->names = calloc(n + 1, sizeof(*up->names));
    up->values = calloc(n + 1, sizeof(*up->values));
    if (!up->names || !up->values)
        return err_oom(err);
    for (size_t i = 0; i < n; i++) {
        if (asprintf(&up->names[i], "%s%s", ENTRY_XATTR_PREFIX, up->opts.metadata[i].key) < 0) {
            up->names[i] = NULL;
            return err_oom(err);
        }
        up->values[i] = up->opts.metadata[i].value;
    }
    return 0;
}

DEFINE_CLEANUP(struct upload *, upload_free)

int upload_new(const struct upload_opts *opts, struct upload **ret, struct abx_err *err)
{
    _cleanup_(upload_freep) struct upload *up = calloc(1, sizeof(*up));
    int r;

    if (!up)
        return err_oom(err);
    up->opts = *opts;
    up->target.dir = up->target.fd = -EBADF;
    r = attributes_make(up, err);
    if (r < 0)
        return r;
    if (opts->boundary) {
        up->parser = multipart_parser_new(slice_str(opts->boundary));
        if (!up->parser)
            return err_oom(err);
    }
    if (opts->is_gzip) {
        up->inflated = malloc(INFLATE_CHUNK);
        if (!up->inflated || inflateInit2(&up->z, GZIP_WINDOW) != Z_OK)
            return err_oom(err);
        up->has_z = true;
    }
    *ret = TAKE_PTR(up);
    return 0;
}

void upload_free(struct upload *up)
{
    if (!up)
        return;
    if (up->has_z)
        (void)inflateEnd(&up->z);
    free(up->inflated);
    multipart_parser_free(up->parser);
    target_done(&up->target);
    for (size_t i = 0; up->names && i < up->opts.n_metadata; i++)
        free(up->names[i]);
    free(up->names);
    free(up->values);
    for (size_t i = 0; i < up->n_paths; i++)
        free(up->paths[i]);
    free(up->paths);
    free(up);
}

const char *const *upload_paths(const struct upload *up, size_t *ret_n)
{
    *ret_n = up->n_paths;
    return (const char *const *)up->paths;
}

/* --- files -------------------------------------------------------------------------------------- */

static int paths_add(struct upload *up, const char *path, struct abx_err *err)
{
    for (size_t i = 0; i < up->n_paths; i++) {
        if (strcmp(up->paths[i], path) == 0)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "path '%s' is named by two files of one upload", path);
    }
    if (up->n_paths == up->cap_paths) {
        size_t cap = MAX((size_t)8, up->cap_paths * 2);
        char **paths = reallocarray(up->paths, cap, sizeof(*paths));
        if (!paths)
            return err_oom(err);
        up->paths = paths;
        up->cap_paths = cap;
    }
    up->paths[up->n_paths] = strdup(path);
    if (!up->paths[up->n_paths])
        return err_oom(err);
    up->n_paths++;
    return 0;
}

static int file_begin(struct upload *up, const char *path, struct abx_err *err)
{
    int r = paths_add(up, path, err);

    if (r == 0 && up->opts.content_length > 0 && !up->has_z)
        r = target_check_space(path, up->opts.content_length, err);
    if (r < 0)
        return r;
    target_init(&up->target, path);
    up->has_target = true;
    return 0;
}

static int file_end(struct upload *up, struct abx_err *err)
{
    int r = target_finish(&up->target, (const char *const *)up->names, up->values,
                          up->opts.n_metadata, err);

    if (r < 0)
        return r;
    target_done(&up->target);
    up->has_target = false;
    return 0;
}

static int part_begin(struct upload *up, struct abx_err *err)
{
    const char *filename = multipart_part_filename(up->parser);
    char path[PATH_MAX];
    int r;

    up->is_skipping = strcmp(multipart_part_name(up->parser), "file") != 0;
    if (up->is_skipping)
        return 0;
    if (up->opts.path)
        return file_begin(up, up->opts.path, err);
    if (!filename || filename[0] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "a file has no name and no path is given");
    r = guest_path(up->opts.user, up->opts.workdir, filename, path, err);
    return r < 0 ? r : file_begin(up, path, err);
}

static int form_feed(struct upload *up, struct slice in, struct abx_err *err)
{
    struct slice data;
    int r = 0;

    while (r == 0) {
        switch (multipart_parser_next(up->parser, &in, &data)) {
        case MULTIPART_NEED_MORE:
            return 0;
        case MULTIPART_PART:
            r = part_begin(up, err);
            break;
        case MULTIPART_DATA:
            r = up->is_skipping ? 0 : target_write(&up->target, data, err);
            break;
        case MULTIPART_PART_END:
            r = up->is_skipping ? 0 : file_end(up, err);
            break;
        case MULTIPART_END:
            up->is_form_end = true;
            return 0;
        case MULTIPART_ERROR:
            return err_set(err, ABX_INVALID_ARGUMENT, "malformed form: %s",
                           multipart_error(up->parser));
        }
    }
    return r;
}

static int plain_feed(struct upload *up, struct slice data, struct abx_err *err)
{
    int r;

    if (up->parser)
        return up->is_form_end ? 0 : form_feed(up, data, err); /* an epilogue is ignored */
    if (!up->has_target) {
        r = file_begin(up, up->opts.path, err);
        if (r < 0)
            return r;
    }
    return target_write(&up->target, data, err);
}

static int plain_end(struct upload *up, struct abx_err *err)
{
    int r = 0;

    if (up->parser && !up->is_form_end)
        return err_set(err, ABX_INVALID_ARGUMENT, "the form ends before its last boundary");
    if (up->parser && up->n_paths == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "the form has no part named 'file'");
    if (!up->parser) {
        r = plain_feed(up, slice_of(NULL, 0), err); /* an empty file */
        r = r < 0 ? r : file_end(up, err);
    }
    return r;
}

static int gzip_feed(struct upload *up, struct slice data, struct abx_err *err)
{
    z_stream *z = &up->z;
    int r, zr;

    z->next_in = data.p;
    z->avail_in = (uInt)data.n;
    do {
        if (up->is_z_end) {
            if (z->avail_in == 0)
                return 0;
            (void)inflateReset(z); /* members may follow one another (RFC 1952 2.2) */
            up->is_z_end = false;
        }
        z->next_out = up->inflated;
        z->avail_out = INFLATE_CHUNK;
        zr = inflate(z, Z_NO_FLUSH);
        if (zr != Z_OK && zr != Z_STREAM_END && zr != Z_BUF_ERROR)
            return err_set(err, ABX_INVALID_ARGUMENT, "malformed gzip body: %s",
                           z->msg ? z->msg : "unknown error");
        up->is_z_end = zr == Z_STREAM_END;
        r = plain_feed(up, slice_of(up->inflated, INFLATE_CHUNK - z->avail_out), err);
        if (r < 0)
            return r;
    } while (z->avail_in > 0 || z->avail_out == 0);
    return 0;
}

int upload_feed(struct upload *up, struct slice data, bool is_end, struct abx_err *err)
{
    int r = 0;

    if (data.n > 0)
        r = up->has_z ? gzip_feed(up, data, err) : plain_feed(up, data, err);
    if (r < 0 || !is_end)
        return r;
    if (up->has_z && !up->is_z_end)
        return err_set(err, ABX_INVALID_ARGUMENT, "the gzip body is cut");
    return plain_end(up, err);
}

void upload_abort(struct upload *up)
{
    if (up->has_target)
        target_abort(&up->target);
}
