/* code.h - what the code interpreter says: one JSON object a line (e2b.md 5). */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define CODE_LINE_MAX (64u << 20) /* a picture in base64 fits */

enum code_line {
    CODE_LINE_EMPTY,     /* nothing, or a keepalive */
    CODE_LINE_MESSAGE,   /* for the caller */
    CODE_LINE_END,       /* end_of_execution: the answer is whole */
    CODE_LINE_MALFORMED, /* no JSON object with a type; `why` says what is wrong */
};
/* Judges one line without its end; `*line` loses blanks and CR at its ends. */
enum code_line code_line_judge(struct slice *line, char why[160]);
