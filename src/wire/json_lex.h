/* json_lex.h - the pull scanner behind json_scan and the RPC decoder; only for src/wire.
 *
 * Reads one token at a time from borrowed bytes and allocates nothing. Strings are checked whole
 * (UTF-8, escapes, no lone surrogate, no NUL, no control byte) and given raw; json_unescape makes
 * bytes of them.
 */
#pragma once

#include "wire/json.h"

enum json_token {
    JSON_TOKEN_BAD, /* malformed; the error is set */
    JSON_TOKEN_END, /* of the input */
    JSON_TOKEN_OBJECT,
    JSON_TOKEN_OBJECT_END,
    JSON_TOKEN_ARRAY,
    JSON_TOKEN_ARRAY_END,
    JSON_TOKEN_COMMA,
    JSON_TOKEN_COLON,
    JSON_TOKEN_STRING,
    JSON_TOKEN_NUMBER,
    JSON_TOKEN_TRUE,
    JSON_TOKEN_FALSE,
    JSON_TOKEN_NULL,
};

struct json_lexer {
    const uint8_t *start, *p, *end;
    const uint8_t *token; /* where the last token begins */
    struct slice text;    /* of the last string (between its quotes) or number */
    bool has_escape;      /* the string has a backslash */
    struct rpc_error *e;  /* may be NULL */
};

void json_lexer_init(struct json_lexer *l, struct slice s, struct rpc_error *e);
enum json_token json_lexer_next(struct json_lexer *l);

/* Sets the error at the last token; returns false. */
bool json_lexer_fail(struct json_lexer *l, const char *fmt, ...) _printf_(2, 3);

/* Inside an object: takes the next key and its colon into l->text. 1, 0 at the end of the object, -1
 * on an error. `*first` begins true. */
int json_lexer_key(struct json_lexer *l, bool *first);
/* Inside an array: takes the first token of the next element. 1, 0 at the end, -1 on an error. */
int json_lexer_element(struct json_lexer *l, bool *first, enum json_token *ret);

/* Skips the value that begins with token `t`, with at most `depth_max` (<= 64) levels inside. Counts
 * values in *values and fails when there are over `values_max`. */
bool json_lexer_skip(struct json_lexer *l, enum json_token t, unsigned depth_max, size_t values_max,
                     size_t *values);

/* Writes the bytes of a checked string to `to` (room for raw.n bytes), returns how many. */
size_t json_unescape(struct slice raw, uint8_t *to);
