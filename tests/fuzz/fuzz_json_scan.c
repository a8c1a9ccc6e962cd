/* fuzz_json_scan.c - the gate agrees with jansson on what is JSON, and strings that we write are
 * JSON that says the same. */
#include <jansson.h>

#include "base/str.h"
#include "fuzz.h"
#include "wire/json.h"
#include "wire/json_lex.h"

static void string_check(struct slice in)
{
    struct buf b = BUF_INIT(SIZE_MAX);
    uint8_t *plain;
    size_t n;

    if (in.n > 0 && memchr(in.p, 0, in.n)) /* written as \u0000, which our scanner refuses */
        return;
    FUZZ_CHECK(json_string_put(&b, in) == BUF_OK);
    FUZZ_CHECK(json_scan(buf_slice(&b), 0, 1, NULL));
    plain = malloc(b.len);
    FUZZ_CHECK(plain);
    n = json_unescape(slice_of(b.mem + 1, b.len - 2), plain);
    if (utf8_is_valid(in))
        FUZZ_CHECK(slice_eq(slice_of(plain, n), in));
    else
        FUZZ_CHECK(utf8_is_valid(slice_of(plain, n)));
    free(plain);
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of(size > 0 ? data : (const uint8_t *)"", size);
    struct rpc_error e = { 0 };
    bool is_fine = json_scan(in, 64, 50000, &e);
    json_error_t je;
    json_t *doc = json_loadb((const char *)in.p, in.n, JSON_DECODE_ANY, &je);

    FUZZ_CHECK(is_fine == json_scan(in, 64, 50000, NULL));
    FUZZ_CHECK(is_fine == (e.text[0] == '\0') && e.offset <= in.n);
    if (is_fine && !doc)
        FUZZ_CHECK(json_error_code(&je) == json_error_numeric_overflow);
    /* jansson (2.14) swallows a NUL byte behind a number; the gate refuses it. */
    if (!is_fine && doc && !memchr(in.p, 0, in.n))
        FUZZ_CHECK(strcmp(e.text, "nested too deeply") == 0 ||
                   strcmp(e.text, "over 50000 values") == 0);
    json_decref(doc);
    string_check(in);
    return 0;
}
