/* fuzz_gateway_route.c - any request head through the route order and the token match. */
#include "gateway/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(http1_parser_freep) struct http1_parser *p = http1_parser_new(HTTP1_REQUEST);
    struct slice in = { data, size }, body;
    struct route r;

    while (p) {
        enum http1_event e = http1_parser_next(p, &in, &body);

        if (e == HTTP1_NEED_MORE || e == HTTP1_ERROR)
            break;
        if (e != HTTP1_HEAD)
            continue;
        route_decide(http1_parser_head(p), "sbx.test:80", &r);
        if ((r.kind == ROUTE_TO_SANDBOX || r.kind == ROUTE_RESERVED) &&
            (r.id[0] == '\0' || r.port == 0))
            abort();
        if (r.kind == ROUTE_BY_TOKEN) {
            struct route_proof proof;

            route_proof_read(http1_parser_head(p), &proof);
            (void)route_proof_matches(&proof, SLICE_LIT("0123456789abcdef"));
        }
    }
    return 0;
}
