/* files.c - see files.h. */
#include "guest/envd/files.h"

void files_handle(struct envd *e, struct http_exchange *ex)
{
    envd_error(ex, 501, "files are not built yet");
}
