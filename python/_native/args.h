/* args.h - positional Python arguments into a C struct, by a table.
 *
 * None leaves the member as it is (its default); everything else has to be of the kind. Texts are
 * borrowed from the Python objects; arrays live in struct arg_memory until args_done.
 */
#pragma once

#include "native.h"

#include <stddef.h>

enum arg_kind {
    ARG_TEXT,   /* str -> const char *, without NUL */
    ARG_NEEDED, /* the same, None is refused */
    ARG_INT,    /* int -> int */
    ARG_INT64,  /* int -> int64_t */
    ARG_UINT32, /* int -> uint32_t */
    ARG_UINT16, /* int 0..65535 -> uint16_t */
    ARG_UINT64, /* int -> uint64_t */
    ARG_FLAG,   /* bool -> int */
    ARG_MS,     /* seconds (int or float, 0 or more) -> int64_t milliseconds, rounded up */
    ARG_PAIRS,  /* dict[str, str] -> const struct abx_pair *, and its count */
    ARG_TEXTS,  /* list[str] -> const char *const *, and its count */
    ARG_MOUNTS, /* list[(name, path)] -> const struct abx_volume_mount *, and its count */
    ARG_DATA,   /* bytes -> const void *, and its size; kept until the operation is freed */
    ARG_ROOM,   /* bool -> abx_room_fn, and its user: a bytearray of the operation's */
    ARG_ITEMS, /* list[(path, bytes or None)] -> struct abx_write_item *, and its count; None = fed */
};

struct arg {
    const char *name; /* in messages */
    enum arg_kind kind;
    size_t at;       /* offset of the member */
    size_t count_at; /* offset of its size_t count */
};

#define ARG_MEMORY_MAX 8
struct arg_memory {
    void *arrays[ARG_MEMORY_MAX];
    size_t count;
    struct operation *op; /* keeps ARG_DATA and ARG_ITEMS; NULL where none is allowed */
};

/* 0, or -1 with an exception that names the argument. */
int args_parse(const struct arg *table, size_t count, PyObject *const *values, Py_ssize_t given,
               const char *function, void *to, struct arg_memory *mem);
void args_done(struct arg_memory *mem);
