/* json_out.h - the JSON documents that commands print. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base/macro.h"

/* json_dumpf, but with DEL and the control characters U+0080 to U+009F escaped too: they are valid in JSON as they are, and
 * commands for a terminal. 0, or -1: no memory, or no JSON. */
_nodiscard_ int json_put(const json_t *document, FILE *to, size_t flags);
