/* files.h - GET and POST /files: whole files over HTTP (e2b.md 4.3). */
#pragma once

#include "guest/envd/envd.h"

/* Takes the request, whatever its method; checks token or signature. */
void files_handle(struct envd *e, struct http_exchange *ex);
