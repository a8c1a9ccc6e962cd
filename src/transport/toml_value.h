/* toml_value.h - the reader that toml.c and toml_value.c share, and values. */
#pragma once

#include "transport/toml.h"

struct toml_reader {
    struct slice text;
    size_t at;
    unsigned line; /* from 1 */
};

static inline int toml_peek(const struct toml_reader *r)
{
    return r->at < r->text.n ? r->text.p[r->at] : -1;
}

/* INVALID_ARGUMENT "line N: ...". */
int toml_fail(const struct toml_reader *r, struct abx_err *err, const char *fmt, ...)
    _printf_(3, 4);
int toml_append(const struct toml_reader *r, struct buf *to, struct slice s, struct abx_err *err);

void toml_skip_spaces(struct toml_reader *r);  /* spaces and tabs */
bool toml_skip_newline(struct toml_reader *r); /* LF or CRLF; false: something else, or the end */
int toml_skip_comment(struct toml_reader *r, struct abx_err *err); /* up to the newline */

/* Appends what a string of any of the four kinds, at its first quote, stands for. */
int toml_read_string(struct toml_reader *r, struct buf *to, struct abx_err *err);
/* Reads a value; `*ret_text` is owned by the caller. */
int toml_read_value(struct toml_reader *r, enum toml_type *ret_type, char **ret_text,
                    struct abx_err *err);
