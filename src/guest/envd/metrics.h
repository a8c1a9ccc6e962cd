/* metrics.h - GET /metrics: what this sandbox uses (e2b.md 4.3). */
#pragma once

#include "guest/envd/envd.h"

int metrics_new(struct metrics **ret, struct abx_err *err);
/* Answers from the pool. The cpu share is that since the previous call, or the start. */
void metrics_handle(struct envd *e, struct http_exchange *ex);
