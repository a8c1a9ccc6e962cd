/* toml.h - reader of the part of TOML 1.0 that config.toml needs.
 *
 * Tables, bare, quoted and dotted keys, all four kinds of strings, integers, floats, booleans, arrays of strings.
 * Dates, inline tables, arrays of tables and arrays of anything else are refused with their line, as is
 * everything that TOML forbids (keys and tables defined twice too). Positions allow to change one
 * value and leave the rest of the file as it is.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define TOML_MAX (256u * 1024) /* bytes of a file */
#define TOML_KEYS_MAX 2048u    /* keys and tables, each */
#define TOML_PATH_MAX 512u     /* bytes of a path */

/* Segments of a path are joined by this; no key may have a control character. */
#define TOML_SEP "\x1f"

enum toml_type { TOML_STRING, TOML_INTEGER, TOML_FLOAT, TOML_BOOL, TOML_STRINGS };

struct toml_key {
    char *path; /* of its table, "" = the top */
    char *name; /* last segment */
    enum toml_type type;
    char *text; /* value: string; decimal number; "true"; strings joined by ',' */
    unsigned line;
    size_t line_start, line_end;   /* bytes of the lines that it is on, with the newline */
    size_t value_start, value_end; /* bytes of the value */
};

struct toml_table {
    char *path;
    bool is_header; /* [path] is in the file; else it follows from a longer one or a dotted key */
    bool is_dotted; /* from a dotted key */
    size_t end;     /* byte behind the line of its header, or of its last key */
};

struct toml {
    struct toml_key *keys;
    size_t key_count;
    struct toml_table *tables; /* in the order of the file; [0] is the top */
    size_t table_count;
    size_t current; /* while parsing: table that keys go to */
};

/* `*ret` is empty before and done with toml_done after, also after an error. Errors: INVALID_ARGUMENT
 * ("line 3: ..."), RESOURCE_EXHAUSTED. */
int toml_parse(struct slice text, struct toml *ret, struct abx_err *err);
void toml_done(struct toml *t);

/* NULL when there is none. Borrowed. */
const struct toml_key *toml_find(const struct toml *t, const char *path, const char *name);
const struct toml_table *toml_find_table(const struct toml *t, const char *path);
