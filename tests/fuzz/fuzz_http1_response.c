/* fuzz_http1_response.c - responses, one after the other. */
#include "fuzz_http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_http1(HTTP1_RESPONSE, slice_of(data, size));
}
