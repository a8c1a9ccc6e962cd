/* Bodies of errors and end-of-stream messages: always a code, a text that is UTF-8, and the same each time. */
#include "fuzz.h"

#include "base/str.h"
#include "protocol/envd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int statuses[] = { 302, 400, 404, 409, 502, 503, 507, 599 };
    struct abx_err err = { 0 }, again = { 0 };
    struct slice body = slice_of(data, size);
    bool is_coded, is_malformed;
    int status = statuses[size > 0 ? data[0] % ARRAY_SIZE(statuses) : 0];
    int r = envd_error_from_answer(status, body, &is_coded, &err);

    FUZZ_CHECK(r < 0 && r == err.code && err.msg[0] != '\0');
    FUZZ_CHECK(utf8_is_valid(slice_str(err.msg)));
    FUZZ_CHECK(envd_error_from_answer(status, body, NULL, &again) == r);
    err = (struct abx_err){ 0 };
    r = envd_error_from_end(body, &is_malformed, &err);
    FUZZ_CHECK(r == err.code && r <= 0 && (!is_malformed || err.reason == ABX_REASON_PROTOCOL));
    FUZZ_CHECK(utf8_is_valid(slice_str(err.msg)));
    return 0;
}
