/* json_fields.h - members of JSON objects: read out of a server's answer, written into a request.
 *
 * Both remember the first error and do nothing after it, so that a whole object is read or written before the error is
 * looked at. Reading is strict about what is required and about types, and does not look at members it does not know.
 */
#pragma once

#include <jansson.h>

#include "abx/config.h"
#include "base/buf.h"
#include "transport/call.h"

struct json_reader {
    abx_call *call; /* texts are copied into it */
    const json_t *object;
    const char *where; /* "" or "[3]", before the member's name in messages */
    struct abx_err *err;
    int code; /* 0, or the first error: PROTOCOL, out of memory */
};

/* A member that has to be there. */
const char *json_reader_text(struct json_reader *r, const char *name);
int64_t json_reader_int(struct json_reader *r, const char *name);
double json_reader_number(struct json_reader *r, const char *name);
int64_t json_reader_time_us(struct json_reader *r, const char *name); /* RFC 3339 */
/* One that may be missing or null: NULL, ABX_UNSET. */
const char *json_reader_text_if(struct json_reader *r, const char *name);
int json_reader_bool_if(struct json_reader *r, const char *name);
const json_t *json_reader_object_if(struct json_reader *r, const char *name);
/* An object as text. */
const char *json_reader_json_if(struct json_reader *r, const char *name);
/* An object's members; values that are no strings as their JSON text. Anything else than an object has none. */
const struct abx_pair *json_reader_pairs(struct json_reader *r, const char *name,
                                         size_t *ret_count);
/* Elements of an array that has to be there, copied. */
const char *const *json_reader_texts(struct json_reader *r, const char *name, size_t *ret_count);
/* Does the object's list `abxCodecs` say that RPC may be protobuf? Official clients do not look at it. */
bool json_offers_protobuf(const json_t *object);
/* Fails with "<where><name> <what>". */
void json_reader_fail(struct json_reader *r, const char *name, const char *what);

struct json_writer {
    json_t *object; /* owned: json_writer_done */
    struct abx_err *err;
    int code; /* 0, or the first error: INVALID_ARGUMENT names the member, out of memory */
};

void json_writer_init(struct json_writer *w, struct abx_err *err);
void json_writer_done(struct json_writer *w);
void json_writer_text(struct json_writer *w, const char *name,
                      const char *text); /* NULL: nothing */
void json_writer_int(struct json_writer *w, const char *name, int64_t value);
void json_writer_bool(struct json_writer *w, const char *name, int value); /* ABX_UNSET: nothing */
/* Adds `value` and takes it over, also on errors; NULL = out of memory. */
void json_writer_take(struct json_writer *w, const char *name, json_t *value);
/* An object of strings; none: nothing. */
void json_writer_pairs(struct json_writer *w, const char *name, const struct abx_pair *pairs,
                       size_t count);
/* An object given as text under the name that messages use; NULL: nothing. */
void json_writer_json(struct json_writer *w, const char *name, const char *argument,
                      const char *text);

/* The JSON object in `text`; `argument` is what messages call it. `*ret` owned. */
int json_object_parse(const char *argument, const char *text, json_t **ret, struct abx_err *err);
