/* Query strings of the lists, from the bytes of the request line. */
#include "control/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        _cleanup_(list_filter_done) struct list_filter f;
        struct sandbox sb = { .state = SANDBOX_RUNNING, .started_ms = 1, .id = "ia" };

        if (list_filter_parse(slice_of(data, size), is_v2, &f, NULL) < 0)
            continue;
        (void)list_filter_matches(&f, &sb, "tpl");
        (void)list_is_after_token(&f, &sb);
    }
    return 0;
}
