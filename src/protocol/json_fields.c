/* json_fields.c - see json_fields.h. */
#include "protocol/json_fields.h"

#include "base/str.h"
#include "e2b/jsondoc.h"

/* ---- reading ---- */

void json_reader_fail(struct json_reader *r, const char *name, const char *what)
{
    if (r->code == 0)
        r->code = err_reason(r->err, ABX_REASON_PROTOCOL, "%s%s%s %s", r->where,
                             *r->where ? "." : "", name, what);
}

bool json_offers_protobuf(const json_t *object)
{
    const json_t *codecs = json_object_get(object, "abxCodecs");
    const json_t *codec;
    size_t i;

    json_array_foreach(codecs, i, codec)
    {
        if (json_is_string(codec) && strcmp(json_string_value(codec), "proto") == 0)
            return true;
    }
    return false;
}

static void reader_oom(struct json_reader *r)
{
    if (r->code == 0)
        r->code = err_oom(r->err);
}

/* The member, NULL when it is missing or null, which is an error if it is required. */
static const json_t *member(struct json_reader *r, const char *name, bool is_required)
{
    const json_t *v = json_object_get(r->object, name);

    if (v && !json_is_null(v))
        return v;
    if (is_required)
        json_reader_fail(r, name, v ? "is null" : "is missing");
    return NULL;
}

static const char *text_of(struct json_reader *r, const char *name, bool is_required)
{
    const json_t *v = r->code == 0 ? member(r, name, is_required) : NULL;
    const char *copy;

    if (!v)
        return NULL;
    if (!json_is_string(v)) {
        json_reader_fail(r, name, "is no string");
        return NULL;
    }
    copy = call_dup(r->call, slice_of(json_string_value(v), json_string_length(v)));
    if (!copy)
        reader_oom(r);
    return copy;
}

const char *json_reader_text(struct json_reader *r, const char *name)
{
    const char *text = text_of(r, name, true);

    return text ? text : "";
}

const char *json_reader_text_if(struct json_reader *r, const char *name)
{
    return text_of(r, name, false);
}

int64_t json_reader_int(struct json_reader *r, const char *name)
{
    const json_t *v = r->code == 0 ? member(r, name, true) : NULL;

    if (!v)
        return 0;
    if (json_is_integer(v))
        return json_integer_value(v);
    /* Some servers compute sizes as fractions. */
    if (json_is_real(v) && json_real_value(v) >= -9e15 && json_real_value(v) <= 9e15)
        return (int64_t)json_real_value(v);
    json_reader_fail(r, name, "is no integer of 64 bits");
    return 0;
}

double json_reader_number(struct json_reader *r, const char *name)
{
    const json_t *v = r->code == 0 ? member(r, name, true) : NULL;

    if (!v)
        return 0;
    if (!json_is_number(v))
        json_reader_fail(r, name, "is no number");
    return json_number_value(v);
}

int64_t json_reader_time_us(struct json_reader *r, const char *name)
{
    const char *text = text_of(r, name, true);
    int64_t s;
    int32_t ns;

    if (!text)
        return 0;
    if (!time_parse_rfc3339_parts(slice_str(text), &s, &ns)) {
        json_reader_fail(r, name, "is no RFC 3339 time");
        return 0;
    }
    return s * 1000000 + ns / 1000;
}

int json_reader_bool_if(struct json_reader *r, const char *name)
{
    const json_t *v = r->code == 0 ? member(r, name, false) : NULL;

    if (!v)
        return ABX_UNSET;
    if (!json_is_boolean(v)) {
        json_reader_fail(r, name, "is no boolean");
        return ABX_UNSET;
    }
    return json_is_true(v);
}

const json_t *json_reader_object_if(struct json_reader *r, const char *name)
{
    const json_t *v = r->code == 0 ? member(r, name, false) : NULL;

    if (v && !json_is_object(v)) {
        json_reader_fail(r, name, "is no object");
        return NULL;
    }
    return v;
}

/* Any value as JSON text in the call's memory. */
static const char *dump(struct json_reader *r, const json_t *v)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(SIZE_MAX / 4);
    const char *copy = jsondoc_dump(v, &b) == BUF_OK ? call_dup(r->call, buf_slice(&b)) : NULL;

    if (!copy)
        reader_oom(r);
    return copy;
}

const char *json_reader_json_if(struct json_reader *r, const char *name)
{
    const json_t *v = json_reader_object_if(r, name);

    return v ? dump(r, v) : NULL;
}

const struct abx_pair *json_reader_pairs(struct json_reader *r, const char *name, size_t *ret_count)
{
    json_t *v = r->code == 0 ? json_object_get(r->object, name) : NULL;
    struct abx_pair *pairs;
    const char *key;
    json_t *value;
    size_t n = 0;

    *ret_count = 0;
    if (!json_is_object(v) || json_object_size(v) == 0)
        return NULL;
    pairs = call_alloc_array(r->call, json_object_size(v), sizeof *pairs);
    if (!pairs) {
        reader_oom(r);
        return NULL;
    }
    json_object_foreach(v, key, value)
    {
        pairs[n].key = call_strdup(r->call, key);
        pairs[n].value =
            json_is_string(value) ? call_strdup(r->call, json_string_value(value)) : dump(r, value);
        if (!pairs[n].key || !pairs[n].value) {
            reader_oom(r);
            return NULL;
        }
        n++;
    }
    *ret_count = n;
    return pairs;
}

const char *const *json_reader_texts(struct json_reader *r, const char *name, size_t *ret_count)
{
    const json_t *v = r->code == 0 ? member(r, name, true) : NULL;
    const char **texts;
    size_t n = json_array_size(v);

    *ret_count = 0;
    if (v && !json_is_array(v))
        json_reader_fail(r, name, "is no array");
    if (n == 0)
        return NULL;
    texts = call_alloc_array(r->call, n, sizeof *texts);
    if (!texts) {
        reader_oom(r);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(v, i));

        if (!text) {
            json_reader_fail(r, name, "has an element that is no string");
            return NULL;
        }
        texts[i] = call_strdup(r->call, text);
        if (!texts[i]) {
            reader_oom(r);
            return NULL;
        }
    }
    *ret_count = n;
    return texts;
}

/* ---- writing ---- */

void json_writer_init(struct json_writer *w, struct abx_err *err)
{
    *w = (struct json_writer){ .object = json_object(), .err = err };
    if (!w->object)
        w->code = err_oom(err);
}

void json_writer_done(struct json_writer *w)
{
    json_decref(TAKE_PTR(w->object));
}

void json_writer_take(struct json_writer *w, const char *name, json_t *value)
{
    if (w->code != 0)
        json_decref(value);
    else if (json_object_set_new(w->object, name, value) < 0)
        w->code = err_oom(w->err);
}

/* jansson does not tell text that is not UTF-8 from missing memory. */
static bool is_text(struct json_writer *w, const char *name, const char *text)
{
    if (w->code != 0)
        return false;
    if (text && utf8_is_valid(slice_str(text)))
        return true;
    w->code = err_set(w->err, ABX_INVALID_ARGUMENT, "%s: %s", name,
                      text ? "is not UTF-8" : "a text is missing (NULL)");
    return false;
}

void json_writer_text(struct json_writer *w, const char *name, const char *text)
{
    if (text && is_text(w, name, text))
        json_writer_take(w, name, json_string(text));
}

void json_writer_int(struct json_writer *w, const char *name, int64_t value)
{
    json_writer_take(w, name, json_integer(value));
}

void json_writer_bool(struct json_writer *w, const char *name, int value)
{
    if (value != ABX_UNSET)
        json_writer_take(w, name, json_boolean(value != 0));
}

void json_writer_pairs(struct json_writer *w, const char *name, const struct abx_pair *pairs,
                       size_t count)
{
    struct json_writer inner;

    if (count == 0 || w->code != 0)
        return;
    json_writer_init(&inner, w->err);
    for (size_t i = 0; i < count; i++) {
        if (is_text(&inner, name, pairs[i].key) && is_text(&inner, name, pairs[i].value))
            json_writer_take(&inner, pairs[i].key, json_string(pairs[i].value));
    }
    if (inner.code == 0)
        json_writer_take(w, name, TAKE_PTR(inner.object));
    else
        w->code = inner.code;
    json_writer_done(&inner);
}

int json_object_parse(const char *argument, const char *text, json_t **ret, struct abx_err *err)
{
    _cleanup_(json_unrefp) json_t *doc = NULL;
    int r;

    if (!text)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: is missing (NULL)", argument);
    r = jsondoc_parse(slice_str(text), &doc, err);
    if (r < 0)
        return err_wrap(err, r, "%s", argument);
    if (!json_is_object(doc))
        return err_set(err, ABX_INVALID_ARGUMENT, "%s: is no JSON object", argument);
    *ret = TAKE_PTR(doc);
    return 0;
}

void json_writer_json(struct json_writer *w, const char *name, const char *argument,
                      const char *text)
{
    json_t *doc = NULL;

    if (!text || w->code != 0)
        return;
    w->code = json_object_parse(argument, text, &doc, w->err);
    if (w->code == 0)
        json_writer_take(w, name, doc);
}
