/* fuzz_http1_request.c - requests, pipelined. */
#include "fuzz_http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_http1(HTTP1_REQUEST, slice_of(data, size));
}
