/* info.h - what is known of a sandbox, as JSON. */
#pragma once

#include <jansson.h>

#include "abx/sandbox.h"

/* With the names of the API; without secrets. NULL when out of memory. */
json_t *info_json(const struct abx_sandbox_info *info);
/* "k=v, k2=v2", "-" for none; owned. */
char *info_metadata_text(const struct abx_sandbox_info *info);
