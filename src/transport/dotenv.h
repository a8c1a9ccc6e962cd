/* dotenv.h - reader of .env files: NAME=value lines as python-dotenv 1.2 takes them.
 *
 * `export` in front, values bare, in '...' (escapes \\ \') or in "..." (escapes \\ \' \" \a \b \f \n \r \t \v), both
 * over several lines, comments behind " #". ${NAME} and ${NAME:-default} are replaced: an earlier line
 * of the file comes before the process environment. A line that is none of this is kept as an error:
 * other programs may understand it.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define DOTENV_MAX (256u * 1024)      /* bytes of a file */
#define DOTENV_VALUE_MAX (64u * 1024) /* bytes of a value after replacement */
#define DOTENV_LINES_MAX 8192u        /* bindings and errors */

struct dotenv_line {
    char *key;         /* NULL = not understood */
    char *value;       /* NULL = no '=' */
    unsigned line;     /* of its begin, from 1 */
    size_t start, end; /* bytes of the text, with the newline behind */
};

struct dotenv {
    struct dotenv_line *lines;
    size_t count;
};

/* `*ret` is empty before and done with dotenv_done after, also after an error. `expand` replaces
 * ${NAME}. Errors: INVALID_ARGUMENT (a NUL byte), RESOURCE_EXHAUSTED (over a limit, names the line). */
int dotenv_parse(struct slice text, bool expand, struct dotenv *ret, struct abx_err *err);
void dotenv_done(struct dotenv *d);
/* The last line of that name; NULL when there is none. Borrowed. */
const struct dotenv_line *dotenv_find(const struct dotenv *d, const char *key);
