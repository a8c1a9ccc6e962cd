/* Bodies of creates: from bytes to a checked request or a refusal with a text. */
#include <stdlib.h>

#include "control/create_request.h"
#include "e2b/jsondoc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct create_limits limits = { 86400, 2, 1024, 10240, 8, 8192, 51200 };
    json_t *body;

    if (jsondoc_parse(slice_of(data, size), &body, NULL) < 0)
        return 0;
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        struct create_request r;
        struct abx_err err = { 0 };

        if (create_request_parse(body, is_v2, &limits, &r, &err) < 0 && err.msg[0] == '\0')
            abort();
        create_request_done(&r);
    }
    json_decref(body);
    return 0;
}
