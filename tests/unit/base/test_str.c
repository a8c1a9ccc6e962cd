/* Numbers, UTF-8, hex, base64, percent encoding, time stamps. */
#include "test.h"

#include "base/str.h"

static void unsigned_numbers(void **state)
{
    static const struct {
        const char *text;
        uint64_t max;
        bool is_fine;
        uint64_t want;
    } rows[] = {
        { "0", 0, true, 0 },
        { "00", 0, true, 0 },
        { "1", 0, false, 0 },
        { "65535", 65535, true, 65535 },
        { "65536", 65535, false, 0 },
        { "18446744073709551615", UINT64_MAX, true, UINT64_MAX },
        { "18446744073709551616", UINT64_MAX, false, 0 },
        { "99999999999999999999", UINT64_MAX, false, 0 },
        { "00000000000000000001", UINT64_MAX, true, 1 },
        { "000000000000000000001", UINT64_MAX, false, 0 },
        { "", 9, false, 0 },
        { "-1", 9, false, 0 },
        { "+1", 9, false, 0 },
        { " 1", 9, false, 0 },
        { "1 ", 9, false, 0 },
        { "1a", 9, false, 0 },
        { "/", 9, false, 0 },
        { ":", 99, false, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t v = 0;

        if (str_parse_u64(slice_str(rows[i].text), rows[i].max, &v) != rows[i].is_fine ||
            v != rows[i].want)
            fail_msg("'%s'", rows[i].text);
    }
}

static void signed_numbers(void **state)
{
    static const struct {
        const char *text;
        int64_t min, max;
        bool is_fine;
        int64_t want;
    } rows[] = {
        { "0", 0, 0, true, 0 },
        { "-0", 0, 0, true, 0 },
        { "-1", -1, 0, true, -1 },
        { "-2", -1, 0, false, 0 },
        { "2", -1, 1, false, 0 },
        { "9223372036854775807", INT64_MIN, INT64_MAX, true, INT64_MAX },
        { "9223372036854775808", INT64_MIN, INT64_MAX, false, 0 },
        { "-9223372036854775808", INT64_MIN, INT64_MAX, true, INT64_MIN },
        { "-9223372036854775809", INT64_MIN, INT64_MAX, false, 0 },
        { "-", INT64_MIN, INT64_MAX, false, 0 },
        { "--1", INT64_MIN, INT64_MAX, false, 0 },
        { "+1", INT64_MIN, INT64_MAX, false, 0 },
        { "", INT64_MIN, INT64_MAX, false, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int64_t v = 0;

        if (str_parse_i64(slice_str(rows[i].text), rows[i].min, rows[i].max, &v) !=
                rows[i].is_fine ||
            v != rows[i].want)
            fail_msg("'%s'", rows[i].text);
    }
}

/* Every sequence of up to three bytes against the definition: decode, and compare with the one
 * shortest encoding of that code point. */
static void utf8_is_checked_by_definition(void **state)
{
    for (uint32_t v = 0; v < 1u << 24; v += v < 0x10000 ? 1 : 7) {
        uint8_t in[3] = { (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };
        size_t want = 0;

        if (in[0] < 0x80)
            want = 1;
        else if (in[0] >= 0xc2 && in[0] < 0xe0 && (in[1] & 0xc0) == 0x80)
            want = 2;
        else if ((in[0] & 0xf0) == 0xe0 && (in[1] & 0xc0) == 0x80 && (in[2] & 0xc0) == 0x80) {
            uint32_t c = (uint32_t)(in[0] & 15) << 12 | (uint32_t)(in[1] & 63) << 6 | (in[2] & 63);

            want = c >= 0x800 && (c < 0xd800 || c > 0xdfff) ? 3 : 0;
        }
        if (utf8_length(slice_of(in, 3)) != want)
            fail_msg("%02x %02x %02x", in[0], in[1], in[2]);
    }
}

/* Each beginning of a character is one, whatever stands before it; nothing else is. */
static void utf8_cut_tails(void **state)
{
    static const struct {
        struct slice in;
        size_t cut;
    } rows[] = {
        { { NULL, 0 }, 0 },
        { SLICE_LIT("abc"), 0 },
        { SLICE_LIT("\xc3"), 1 },
        { SLICE_LIT("a\xc3"), 1 },
        { SLICE_LIT("a\xc3\xa4"), 0 },
        { SLICE_LIT("\xff\xe6"), 1 },
        { SLICE_LIT("\xe6\xbc"), 2 },
        { SLICE_LIT("\xe6\xbc\xa2"), 0 },
        { SLICE_LIT("x\xf0"), 1 },
        { SLICE_LIT("x\xf0\x9f"), 2 },
        { SLICE_LIT("x\xf0\x9f\x8e"), 3 },
        { SLICE_LIT("x\xf0\x9f\x8e\x89"), 0 },
        { SLICE_LIT("\x80"), 0 },
        { SLICE_LIT("\x80\x80\x80\x80\x80"), 0 },
        { SLICE_LIT("\xc3\xa4\x80"), 0 },
        { SLICE_LIT("\xc0"), 0 },
        { SLICE_LIT("\xc1"), 0 },
        { SLICE_LIT("\xf5"), 0 },
        { SLICE_LIT("\xff"), 0 },
        { SLICE_LIT("\xe0\x9f"), 0 },
        { SLICE_LIT("\xe0\xa0"), 2 },
        { SLICE_LIT("\xed\xa0"), 0 },
        { SLICE_LIT("\xed\x9f"), 2 },
        { SLICE_LIT("\xf0\x8f"), 0 },
        { SLICE_LIT("\xf0\x8f\x80"), 0 },
        { SLICE_LIT("\xf4\x90"), 0 },
        { SLICE_LIT("\xf4\x8f\xbf"), 3 },
        { SLICE_LIT("\xf0\x9f\x8e\x89\xf0"), 1 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (utf8_cut_tail(rows[i].in) != rows[i].cut)
            fail_msg("row %zu: %zu", i, utf8_cut_tail(rows[i].in));
}

static void utf8_rows(void **state)
{
    static const struct {
        struct slice in;
        bool is_fine;
    } rows[] = {
        { { NULL, 0 }, true },
        { SLICE_LIT("a\0b"), true },
        { SLICE_LIT("\xf0\x90\x80\x80"), true },
        { SLICE_LIT("\xf4\x8f\xbf\xbf"), true },
        { SLICE_LIT("\xf0\x8f\xbf\xbf"), false },
        { SLICE_LIT("\xf4\x90\x80\x80"), false },
        { SLICE_LIT("\xf5\x80\x80\x80"), false },
        { SLICE_LIT("\xf0\x90\x80"), false },
        { SLICE_LIT("\xf0\x90\x80\x41"), false },
        { SLICE_LIT("abc\xe2\x82"), false },
        { SLICE_LIT("\x80"), false },
        { SLICE_LIT("\xfe\xff"), false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t *copy = test_exact(rows[i].in);

        assert_int_equal(utf8_is_valid(slice_of(copy, rows[i].in.n)), rows[i].is_fine);
        free(copy);
    }
}

static void hex(void **state)
{
    uint8_t bytes[256], back[256];
    char text[513];

    for (size_t i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    hex_encode(bytes, 256, text);
    assert_int_equal(strlen(text), 512);
    assert_int_equal(strncmp(text, "000102", 6), 0);
    assert_string_equal(text + 506, "fdfeff");
    assert_true(hex_decode(slice_str(text), back, 256));
    assert_memory_equal(bytes, back, 256);
    assert_true(hex_decode(SLICE_LIT("aBCdeF"), back, 3));
    assert_int_equal(back[0], 0xab);
    assert_false(hex_decode(SLICE_LIT("abc"), back, 1));
    assert_false(hex_decode(SLICE_LIT("abcd"), back, 1));
    assert_false(hex_decode(SLICE_LIT("ag"), back, 1));
    assert_false(hex_decode(SLICE_LIT("g0"), back, 1));
    assert_false(hex_decode(SLICE_LIT(" 0"), back, 1));
    assert_true(hex_decode(slice_of(NULL, 0), back, 0));
}

/* RFC 4648 section 10 and the ends of the alphabets. */
static void base64_rows(void **state)
{
    static const struct {
        const char *plain, *padded, *url;
    } rows[] = {
        { "", "", "" },
        { "f", "Zg==", "Zg" },
        { "fo", "Zm8=", "Zm8" },
        { "foo", "Zm9v", "Zm9v" },
        { "foob", "Zm9vYg==", "Zm9vYg" },
        { "fooba", "Zm9vYmE=", "Zm9vYmE" },
        { "foobar", "Zm9vYmFy", "Zm9vYmFy" },
        { "\xfb\xff\xbf", "+/+/", "-_-_" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *texts[] = { rows[i].padded, rows[i].url };
        _cleanup_(buf_done) struct buf b = BUF_INIT(1000);

        assert_int_equal(base64_encode(&b, slice_str(rows[i].plain), true), BUF_OK);
        assert_string_equal(buf_cstr(&b), rows[i].padded);
        buf_reset(&b);
        assert_int_equal(base64url_encode(&b, slice_str(rows[i].plain)), BUF_OK);
        assert_string_equal(buf_cstr(&b), rows[i].url);
        for (size_t k = 0; k < 2; k++) {
            uint8_t *copy = test_exact(slice_str(texts[k]));

            buf_reset(&b);
            assert_true(base64_decode(&b, slice_of(copy, strlen(texts[k]))));
            assert_string_equal(buf_cstr(&b), rows[i].plain);
            free(copy);
        }
    }
}

static void base64_refuses(void **state)
{
    static const char *const rows[] = {
        "Z",    "Zg=",  "Zg===",    "=",          "==",       "====",  "Z===",
        "Zg=a", "Zh==", "Zm9=",     "Zm9",        "Zm9v=",    "Zm 9v", "Zm9v\n",
        "Zm9*", "Z-g,", "Zg==Zg==", "\xc3\xa4g=", "Zm8=Zm8=",
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1000);
        uint8_t *copy = test_exact(slice_str(rows[i]));

        if (base64_decode(&b, slice_of(copy, strlen(rows[i]))))
            fail_msg("'%s' decodes", rows[i]);
        assert_int_equal(b.len, 0);
        free(copy);
    }
}

static void base64_round_trips_every_byte(void **state)
{
    uint8_t in[300];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 167 + 13);
    for (size_t n = 0; n < sizeof in; n++) {
        _cleanup_(buf_done) struct buf text = BUF_INIT(1000), back = BUF_INIT(1000);

        assert_int_equal(base64_encode(&text, slice_of(in, n), n % 2), BUF_OK);
        assert_true(base64_decode(&back, buf_slice(&text)));
        assert_true(slice_eq(buf_slice(&back), slice_of(in, n)));
    }
}

static void base64_respects_the_limit(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(3);

    assert_int_equal(base64_encode(&b, SLICE_LIT("f"), true), BUF_LIMIT);
    assert_int_equal(base64_encode(&b, SLICE_LIT("f"), false), BUF_OK);
    assert_false(base64_decode(&b, SLICE_LIT("Zm9v")));
    assert_int_equal(b.len, 2);
}

static void percent(void **state)
{
    static const struct {
        const char *in;
        bool plus;
        const char *want; /* NULL = refused */
    } rows[] = {
        { "", false, "" },
        { "a%20b+c", false, "a b+c" },
        { "a%20b+c%2B", true, "a b c+" },
        { "%c3%A4", false, "\xc3\xa4" },
        { "%", false, NULL },
        { "%1", false, NULL },
        { "a%", false, NULL },
        { "%g0", false, NULL },
        { "%-1", false, NULL },
        { "a%00b", false, NULL },
        { "%%41", false, NULL },
    };
    _cleanup_(buf_done) struct buf all = BUF_INIT(1000), back = BUF_INIT(300);
    uint8_t bytes[255];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1000);
        uint8_t *copy = test_exact(slice_str(rows[i].in));

        (void)buf_append_byte(&b, '>');
        assert_int_equal(percent_decode(&b, slice_of(copy, strlen(rows[i].in)), rows[i].plus),
                         rows[i].want != NULL);
        test_text(rows[i].in, buf_cstr(&b) + 1, rows[i].want ? rows[i].want : "");
        free(copy);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i + 1);
    assert_int_equal(percent_encode(&all, slice_of(bytes, sizeof bytes)), BUF_OK);
    assert_non_null(strstr(buf_cstr(&all), "%2B%2C-.%2F0123456789%3A"));
    assert_non_null(strstr(buf_cstr(&all), "XYZ%5B%5C%5D%5E_%60abc"));
    assert_true(percent_decode(&back, buf_slice(&all), true));
    assert_true(slice_eq(buf_slice(&back), slice_of(bytes, sizeof bytes)));
    buf_reset(&back);
    back.limit = 4;
    assert_int_equal(percent_encode(&back, SLICE_LIT("ab  ")), BUF_LIMIT);
    assert_int_equal(back.len, 0);
}

static void equal_in_constant_time(void **state)
{
    assert_true(mem_equal_ct("abc", "abc", 3));
    assert_true(mem_equal_ct("abc", "abd", 2));
    assert_true(mem_equal_ct("", "x", 0));
    assert_false(mem_equal_ct("abc", "abd", 3));
    assert_false(mem_equal_ct("xbc", "abc", 3));
}

static void times(void **state)
{
    static const struct {
        const char *text;
        bool is_fine;
        int64_t s;
        int32_t ns;
    } rows[] = {
        { "1970-01-01T00:00:00Z", true, 0, 0 },
        { "1970-01-01t00:00:00z", true, 0, 0 },
        { "1970-01-01 00:00:00+00:00", true, 0, 0 },
        { "2026-11-30T08:03:37.25Z", true, 1796025817, 250000000 },
        { "2026-11-30T10:03:37+02:00", true, 1796025817, 0 },
        { "2026-11-30T02:33:37-05:30", true, 1796025817, 0 },
        { "1969-12-31T23:59:59.999999999Z", true, -1, 999999999 },
        { "2000-02-29T00:00:00Z", true, 951782400, 0 },
        { "2024-02-29T00:00:00Z", true, 1709164800, 0 },
        { "0001-01-01T00:00:00Z", true, -62135596800, 0 },
        { "9999-12-31T23:59:59Z", true, 253402300799, 0 },
        { "2016-12-31T23:59:60Z", true, 1483228799, 0 }, /* a leap second is the one before it */
        { "2023-02-29T00:00:00Z", false, 0, 0 },
        { "1900-02-29T00:00:00Z", false, 0, 0 },
        { "2026-04-31T00:00:00Z", false, 0, 0 },
        { "2026-00-01T00:00:00Z", false, 0, 0 },
        { "2026-13-01T00:00:00Z", false, 0, 0 },
        { "2026-01-00T00:00:00Z", false, 0, 0 },
        { "2026-01-01T24:00:00Z", false, 0, 0 },
        { "2026-01-01T00:60:00Z", false, 0, 0 },
        { "2026-01-01T00:00:61Z", false, 0, 0 },
        { "2026-01-01T00:00:00", false, 0, 0 },
        { "2026-01-01T00:00:00.Z", false, 0, 0 },
        { "2026-01-01T00:00:00.1234567890Z", false, 0, 0 },
        { "2026-01-01T00:00:00+24:00", false, 0, 0 },
        { "2026-01-01T00:00:00+0100", false, 0, 0 },
        { "2026-01-01T00:00:00Zx", false, 0, 0 },
        { "2026-1-01T00:00:00Z", false, 0, 0 },
        { "26-01-01T00:00:00Z", false, 0, 0 },
        { "2026-01-01", false, 0, 0 },
        { "-001-01-01T00:00:00Z", false, 0, 0 },
        { "", false, 0, 0 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = strlen(rows[i].text);
        uint8_t *copy = test_exact(slice_of(rows[i].text, n));
        int64_t s = 0;
        int32_t ns = 0;

        if (time_parse_rfc3339_parts(slice_of(copy, n), &s, &ns) != rows[i].is_fine ||
            s != rows[i].s || ns != rows[i].ns)
            fail_msg("'%s': %lld %d", rows[i].text, (long long)s, ns);
        free(copy);
    }
}

static void times_in_nanoseconds(void **state)
{
    int64_t ns;

    assert_true(time_parse_rfc3339(SLICE_LIT("1969-12-31T23:59:59.5Z"), &ns));
    assert_int_equal(ns, -500000000);
    assert_true(time_parse_rfc3339(SLICE_LIT("2262-04-11T23:47:16Z"), &ns));
    assert_false(time_parse_rfc3339(SLICE_LIT("2262-04-12T00:00:00Z"), &ns)); /* over 64 bits */
    assert_false(time_parse_rfc3339(SLICE_LIT("0001-01-01T00:00:00Z"), &ns));
}

static void times_are_formatted(void **state)
{
    static const struct {
        int64_t ms;
        const char *want;
    } rows[] = {
        { 0, "1970-01-01T00:00:00.000Z" },
        { 1796025817250, "2026-11-30T08:03:37.250Z" },
        { -1, "1969-12-31T23:59:59.999Z" },
        { -1000, "1969-12-31T23:59:59.000Z" },
        { 253402300799999, "9999-12-31T23:59:59.999Z" },
        { -62135596800000, "0001-01-01T00:00:00.000Z" },
    };
    char text[RFC3339_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        time_format_rfc3339(rows[i].ms, text);
        assert_string_equal(text, rows[i].want);
    }
    time_format_rfc3339(INT64_MAX, text); /* nonsense, but within its bounds */
    assert_int_equal(strlen(text), RFC3339_SIZE - 1);
    time_format_rfc3339(INT64_MIN, text);
    assert_int_equal(strlen(text), RFC3339_SIZE - 1);
}

static void clocks_run(void **state)
{
    int64_t a = time_mono_ns();

    assert_true(time_mono_ns() >= a);
    assert_true(time_wall_ms() > 1700000000000);
}

/* Values of its authors' test vectors. */
static void hashes_are_fnv1a(void **state)
{
    (void)state;
    assert_true(str_hash("") == UINT64_C(0xcbf29ce484222325));
    assert_true(str_hash("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(str_hash("foobar") == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsigned_numbers),
        cmocka_unit_test(signed_numbers),
        cmocka_unit_test(utf8_is_checked_by_definition),
        cmocka_unit_test(utf8_cut_tails),
        cmocka_unit_test(utf8_rows),
        cmocka_unit_test(hex),
        cmocka_unit_test(base64_rows),
        cmocka_unit_test(base64_refuses),
        cmocka_unit_test(base64_round_trips_every_byte),
        cmocka_unit_test(base64_respects_the_limit),
        cmocka_unit_test(percent),
        cmocka_unit_test(equal_in_constant_time),
        cmocka_unit_test(hashes_are_fnv1a),
        cmocka_unit_test(times),
        cmocka_unit_test(times_in_nanoseconds),
        cmocka_unit_test(times_are_formatted),
        cmocka_unit_test(clocks_run),
    };

    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
