/* code.c - see code.h. */
#include "protocol/code.h"

#include <string.h>

#include "wire/json.h"

#define CODE_VALUES_MAX 10000000u

enum code_line code_line_judge(struct slice *line, char why[160])
{
    struct rpc_error e = { 0 };
    struct slice type = { 0 };

    while (line->n > 0 && line->p[line->n - 1] == '\r')
        line->n--;
    *line = slice_trim(*line);
    if (line->n == 0)
        return CODE_LINE_EMPTY;
    if (!json_scan_member(*line, 64, CODE_VALUES_MAX, "type", &type, &e)) {
        memcpy(why, e.text, sizeof e.text);
        return CODE_LINE_MALFORMED;
    }
    if (type.n == 0) {
        memcpy(why, "no type", sizeof "no type");
        return CODE_LINE_MALFORMED;
    }
    if (slice_eq_str(type, "keepalive"))
        return CODE_LINE_EMPTY;
    return slice_eq_str(type, "end_of_execution") ? CODE_LINE_END : CODE_LINE_MESSAGE;
}
