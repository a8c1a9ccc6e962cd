/* fuzz_str.c - base/str: what decodes is written back as the same value. */
#include "base/str.h"
#include "fuzz.h"

static void base64_check(struct slice in)
{
    struct buf plain = BUF_INIT(SIZE_MAX), text = BUF_INIT(SIZE_MAX), back = BUF_INIT(SIZE_MAX);

    if (base64_decode(&plain, in)) {
        FUZZ_CHECK(base64url_encode(&text, buf_slice(&plain)) == BUF_OK);
        FUZZ_CHECK(base64_decode(&back, buf_slice(&text)));
        FUZZ_CHECK(slice_eq(buf_slice(&plain), buf_slice(&back)));
        /* One text for each value but for padding and alphabet. */
        FUZZ_CHECK(text.len <= in.n && in.n <= text.len + 2);
    } else {
        FUZZ_CHECK(plain.len == 0);
    }
    buf_reset(&text);
    buf_reset(&back);
    FUZZ_CHECK(base64_encode(&text, in, true) == BUF_OK);
    FUZZ_CHECK(base64_decode(&back, buf_slice(&text)));
    FUZZ_CHECK(slice_eq(buf_slice(&back), in));
    buf_done(&plain);
    buf_done(&text);
    buf_done(&back);
}

static void percent_check(struct slice in)
{
    struct buf plain = BUF_INIT(SIZE_MAX), text = BUF_INIT(SIZE_MAX), back = BUF_INIT(SIZE_MAX);

    if (percent_decode(&plain, in, true)) {
        FUZZ_CHECK(percent_encode(&text, buf_slice(&plain)) == BUF_OK);
        FUZZ_CHECK(percent_decode(&back, buf_slice(&text), false));
        FUZZ_CHECK(slice_eq(buf_slice(&plain), buf_slice(&back)));
    }
    buf_done(&plain);
    buf_done(&text);
    buf_done(&back);
}

static void number_and_time_check(struct slice in)
{
    char text[RFC3339_SIZE];
    int64_t i, s, again;
    int32_t ns, again_ns;
    uint64_t u;

    if (str_parse_u64(in, UINT64_MAX, &u) && u <= INT64_MAX)
        FUZZ_CHECK(str_parse_i64(in, 0, INT64_MAX, &i) && (uint64_t)i == u);
    if (!time_parse_rfc3339_parts(in, &s, &ns))
        return;
    FUZZ_CHECK(ns >= 0 && ns < NSEC_PER_SEC);
    time_format_rfc3339(s * 1000 + ns / 1000000, text);
    /* An offset may lead out of the years that four digits can say. */
    if (s >= -62167219200 && s <= 253402300799)
        FUZZ_CHECK(time_parse_rfc3339_parts(slice_str(text), &again, &again_ns) && again == s &&
                   again_ns == ns / 1000000 * 1000000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(data, size);
    uint8_t bytes[8];

    base64_check(in);
    percent_check(in);
    number_and_time_check(in);
    (void)hex_decode(in, bytes, sizeof bytes);
    (void)utf8_is_valid(in);
    return 0;
}
