/* sandbox_info.h - the answer that tells of one sandbox, for the calls that have it. */
#pragma once

#include <jansson.h>

#include "transport/call.h"

/* Makes the call's result SANDBOX_INFOS with one of a SandboxDetail (e2b.md 1.4): control_spec.decode. */
int sandbox_info_decode(abx_call *call, const json_t *doc, struct abx_err *err);
