/* output.h - what commands print: tables, JSON documents, text that others wrote. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "abx/error.h"
#include "base/macro.h"

/* `text` (NULL = "-") with control characters and bytes that are no UTF-8 written as \xNN: a sandbox must not be able to
 * send commands to the terminal. */
void output_text(FILE *to, const char *text);
/* The same as a string; owned, NULL when out of memory. */
char *output_clean(const char *text);

/* Prints `document` (taken over, NULL = out of memory) to standard output. 0, or 1 with a message. */
int output_json(json_t *document);
/* Flushes standard output: 0, or 1 with a message when it could not be written. */
int output_end(void);
/* May messages on `fd` have colours? A terminal, TERM not dumb, and NO_COLOR not set. */
bool output_has_colour(int fd);

/* A table: rows of texts, columns as wide as they need; on a terminal the last column is cut to fit. */
#define TABLE_COLUMNS_MAX 10
struct table {
    size_t n_columns, n_rows, cap;
    char **cells;   /* owned */
    bool is_broken; /* out of memory */
};
void table_init(struct table *t, size_t n_columns, const char *const *headers);
/* Copies n_columns texts, cleaned; NULL = "-". */
void table_add(struct table *t, const char *const *cells);
/* Prints and frees it. As output_end. */
int table_print(struct table *t);
void table_free(struct table *t);

/* "2026-01-02 03:04:05" in local time; "-" for 0. */
#define TIME_TEXT_SIZE 32
const char *time_text(int64_t us, char to[TIME_TEXT_SIZE]);
/* RFC 3339 in UTC as a JSON string, null for 0. */
json_t *time_json(int64_t us);
/* "1.5 GiB". */
#define SIZE_TEXT_SIZE 24
const char *size_text(int64_t bytes, char to[SIZE_TEXT_SIZE]);
/* A JSON string or null. Bytes that are no UTF-8 become U+FFFD. */
json_t *json_text(const char *text);
/* Adds bytes under `name`: as text, and when they are no UTF-8 also as base64 under NAME_base64. */
void json_add_bytes(json_t *object, const char *name, const void *p, size_t n);
