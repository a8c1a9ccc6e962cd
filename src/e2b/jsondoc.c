/* jsondoc.c - see jsondoc.h. */
#include "e2b/jsondoc.h"

#include "wire/json.h"

/* Line and column (in bytes, both from 1) of an offset. */
static int fail_at(struct abx_err *err, struct slice s, size_t offset, const char *text)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < offset && i < s.n; i++) {
        column++;
        if (s.p[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return err_set(err, ABX_INVALID_ARGUMENT, "line %zu, column %zu: %s", line, column, text);
}

int jsondoc_parse_limited(struct slice s, size_t size_max, size_t values_max, json_t **ret,
                          struct abx_err *err)
{
    struct rpc_error e;
    json_error_t je;
    json_t *doc;

    if (s.n > size_max)
        return err_reason(err, ABX_REASON_TOO_LARGE, "the JSON text is over %zu bytes", size_max);
    if (!json_scan(s, 64, values_max, &e))
        return fail_at(err, s, e.offset, e.text);
    doc = json_loadb((const char *)s.p, s.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (doc) {
        *ret = doc;
        return 0;
    }
    if (json_error_code(&je) == json_error_out_of_memory)
        return err_oom(err);
    return fail_at(err, s, (size_t)MAX(je.position, 0), je.text);
}

int jsondoc_parse(struct slice s, json_t **ret, struct abx_err *err)
{
    return jsondoc_parse_limited(s, JSONDOC_SIZE_MAX, JSONDOC_VALUES_MAX, ret, err);
}

struct sink {
    struct buf *b;
    enum buf_status status;
};

static int sink_put(const char *p, size_t n, void *user)
{
    struct sink *sink = user;

    sink->status = buf_append(sink->b, p, n);
    return sink->status == BUF_OK ? 0 : -1;
}

enum buf_status jsondoc_dump(const json_t *doc, struct buf *b)
{
    struct sink sink = { b, BUF_OK };
    size_t before = b->len;

    if (json_dump_callback(doc, sink_put, &sink,
                           JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) == 0)
        return BUF_OK;
    buf_truncate(b, before);
    return sink.status != BUF_OK ? sink.status : BUF_OOM;
}
