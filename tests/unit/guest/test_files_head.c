/* Validators, ranges, codings and metadata of /files. */
#include "test.h"

#include <string.h>

#include "guest/envd/files_head.h"

#define ETAG "\"1-2-3\""
#define MTIME 784111777 /* Sun, 06 Nov 1994 08:49:37 GMT */

static struct http1_head head_of(const char *const *pairs)
{
    static struct http1_field memory[512]; /* more than one test uses at a time */
    static size_t used;
    struct http1_head head = { 0 };
    size_t n = 0;

    while (pairs[n])
        n += 2;
    if (used + n / 2 > ARRAY_SIZE(memory))
        used = 0;
    head.fields = &memory[used];
    used += n / 2;
    for (size_t i = 0; pairs[i]; i += 2) {
        head.fields[head.n_fields].name = slice_str(pairs[i]);
        head.fields[head.n_fields++].value = slice_str(pairs[i + 1]);
    }
    return head;
}
#define HEAD(...) head_of((const char *const[]){ __VA_ARGS__, NULL })

static void etag_tells_time_size_and_inode_apart(void **state)
{
    char a[ETAG_SIZE], b[ETAG_SIZE];

    files_etag(UINT64_MAX, UINT64_MAX, UINT64_MAX, a);
    assert_int_equal(strlen(a), 2 + 3 * 16 + 2);
    files_etag(1, 2, 3, a);
    assert_string_equal(a, ETAG);
    files_etag(1, 2, 4, b);
    assert_string_not_equal(a, b);
}

static void conditions_follow_the_rfcs_order(void **state)
{
    static const char same[] = "Sun, 06 Nov 1994 08:49:37 GMT";
    static const char before[] = "Sun, 06 Nov 1994 08:49:36 GMT";
    const struct {
        struct http1_head head;
        enum files_condition want;
    } rows[] = {
        { HEAD("Accept", "*"), FILES_GO_ON },
        { HEAD("If-Match", ETAG), FILES_GO_ON },
        { HEAD("If-Match", "*"), FILES_GO_ON },
        { HEAD("If-Match", "\"x\" ,\"1-2-3\""), FILES_GO_ON },
        { HEAD("If-Match", "W/" ETAG), FILES_PRECONDITION_FAILED },
        { HEAD("If-Match", ""), FILES_PRECONDITION_FAILED },
        { HEAD("If-Unmodified-Since", same), FILES_GO_ON },
        { HEAD("If-Unmodified-Since", before), FILES_PRECONDITION_FAILED },
        { HEAD("If-Unmodified-Since", before, "If-Match", ETAG), FILES_GO_ON },
        { HEAD("If-None-Match", ETAG), FILES_NOT_MODIFIED },
        { HEAD("If-None-Match", "W/" ETAG), FILES_NOT_MODIFIED },
        { HEAD("If-None-Match", "*"), FILES_NOT_MODIFIED },
        { HEAD("If-None-Match", "\"x\""), FILES_GO_ON },
        { HEAD("If-None-Match", "\"x\"", "If-Modified-Since", same), FILES_GO_ON },
        { HEAD("If-Modified-Since", same), FILES_NOT_MODIFIED },
        { HEAD("If-Modified-Since", before), FILES_GO_ON },
        { HEAD("If-Modified-Since", "yesterday"), FILES_GO_ON },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(files_conditions(&rows[i].head, ETAG, MTIME), rows[i].want);
}

static void one_range_is_served(void **state)
{
    static const struct {
        const char *range;
        uint64_t size;
        enum files_range want;
        uint64_t begin, end;
    } rows[] = {
        { "bytes=0-0", 10, FILES_PART, 0, 1 },
        { "bytes=2-4", 10, FILES_PART, 2, 5 },
        { "bytes=2-", 10, FILES_PART, 2, 10 },
        { "bytes=2-99", 10, FILES_PART, 2, 10 },
        { "bytes=9-9", 10, FILES_PART, 9, 10 },
        { "bytes=-3", 10, FILES_PART, 7, 10 },
        { "bytes=-99", 10, FILES_PART, 0, 10 },
        { "bytes=0-18446744073709551615", 10, FILES_PART, 0, 10 },
        { "bytes=10-", 10, FILES_UNSATISFIABLE, 0, 0 },
        { "bytes=-0", 10, FILES_UNSATISFIABLE, 0, 0 },
        { "bytes=-1", 0, FILES_UNSATISFIABLE, 0, 0 },
        { "bytes=0-", 0, FILES_UNSATISFIABLE, 0, 0 },
        { "bytes=", 10, FILES_WHOLE, 0, 10 },
        { "bytes=-", 10, FILES_WHOLE, 0, 10 },
        { "bytes=5", 10, FILES_WHOLE, 0, 10 },
        { "bytes=5-4", 10, FILES_WHOLE, 0, 10 },
        { "bytes=1-2,3-4", 10, FILES_WHOLE, 0, 10 },
        { "bytes=a-b", 10, FILES_WHOLE, 0, 10 },
        { "bytes=1-b", 10, FILES_WHOLE, 0, 10 },
        { "bytes=99999999999999999999-", 10, FILES_WHOLE, 0, 10 },
        { "items=1-2", 10, FILES_WHOLE, 0, 10 },
        { "", 10, FILES_WHOLE, 0, 10 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http1_head head = HEAD("Range", rows[i].range);
        uint64_t begin, end;
        enum files_range got = files_range(&head, ETAG, MTIME, rows[i].size, &begin, &end);
        assert_int_equal(got, rows[i].want);
        if (got == FILES_UNSATISFIABLE)
            continue;
        assert_int_equal(begin, rows[i].begin);
        assert_int_equal(end, rows[i].end);
    }
}

static void if_range_must_hold(void **state)
{
    static const struct {
        const char *value;
        enum files_range want;
    } rows[] = {
        { ETAG, FILES_PART },
        { "W/" ETAG, FILES_WHOLE },
        { "\"x\"", FILES_WHOLE },
        { "Sun, 06 Nov 1994 08:49:37 GMT", FILES_PART },
        { "Sun, 06 Nov 1994 08:49:38 GMT", FILES_WHOLE },
    };
    uint64_t begin, end;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http1_head head = HEAD("Range", "bytes=0-1", "If-Range", rows[i].value);
        assert_int_equal(files_range(&head, ETAG, MTIME, 10, &begin, &end), rows[i].want);
    }
}

static void gzip_only_when_it_is_the_wish(void **state)
{
    static const struct {
        const char *accept;
        enum files_coding want;
    } rows[] = {
        { "", FILES_IDENTITY },
        { "gzip", FILES_GZIP },
        { "GZIP;q=0.3", FILES_GZIP },
        { " , gzip , ", FILES_GZIP },
        { "gzip, deflate", FILES_IDENTITY },
        { "gzip, br;q=0", FILES_GZIP },
        { "gzip, identity", FILES_IDENTITY },
        { "gzip, *", FILES_IDENTITY },
        { "gzip;q=0", FILES_IDENTITY },
        { "br", FILES_IDENTITY },
        { "*", FILES_IDENTITY },
        { "identity;q=0", FILES_NO_CODING },
        { "identity;q=0, gzip", FILES_GZIP },
        { "identity;q=0, *", FILES_GZIP },
        { "*;q=0", FILES_NO_CODING },
        { "*;q=0.000, gzip", FILES_GZIP },
        { "*;q=0, identity", FILES_IDENTITY },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http1_head head = HEAD("Accept-Encoding", rows[i].accept);
        assert_int_equal(files_coding(&head), rows[i].want);
    }
    struct http1_head without = HEAD("Accept", "*");
    assert_int_equal(files_coding(&without), FILES_IDENTITY);
}

static void odd_names_are_encoded(void **state)
{
    struct buf b = BUF_INIT(1000);

    assert_int_equal(files_disposition(&b, "a b.txt"), BUF_OK);
    assert_string_equal(buf_cstr(&b), "inline; filename=\"a b.txt\"");
    buf_reset(&b);
    assert_int_equal(files_disposition(&b, "a\"\n\xc3\xa4"), BUF_OK);
    assert_string_equal(buf_cstr(&b), "inline; filename*=UTF-8''a%22%0A%C3%A4");
    buf_done(&b);
}

static void metadata_is_lower_cased_and_limited(void **state)
{
    char key[300] = METADATA_PREFIX, value[5000];
    struct metadata *m = NULL;
    struct http1_head head;
    size_t n = 0;

    head = HEAD("X-Metadata-Some-Key", "Value", "Other", "x", "x-metadata-b", "");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_string_equal(m[0].key, "some-key");
    assert_string_equal(m[0].value, "Value");
    assert_string_equal(m[1].key, "b");
    assert_string_equal(m[1].value, "");
    metadata_free(m, n);

    m = NULL;
    head = HEAD("Other", "x");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), 0);
    assert_int_equal(n, 0);
    metadata_free(m, n);

    memset(key + strlen(METADATA_PREFIX), 'k', METADATA_KEY_MAX);
    head = HEAD(key, "v");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), 0);
    metadata_free(m, n);
    key[strlen(METADATA_PREFIX) + METADATA_KEY_MAX] = 'k';
    head = HEAD(key, "v");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), ABX_INVALID_ARGUMENT);

    memset(value, 'v', sizeof(value));
    value[METADATA_TOTAL_MAX - strlen(METADATA_PREFIX) - 1] = '\0';
    head = HEAD(METADATA_PREFIX "k", value);
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), 0);
    metadata_free(m, n);
    head = HEAD(METADATA_PREFIX "kk", value);
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), ABX_INVALID_ARGUMENT);
    head = HEAD(METADATA_PREFIX "k", "\xc3\xa4");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), ABX_INVALID_ARGUMENT);
    head = HEAD("a", "b", METADATA_PREFIX "k", "ok", METADATA_PREFIX, "v");
    assert_int_equal(metadata_parse(&head, &m, &n, NULL), ABX_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(etag_tells_time_size_and_inode_apart),
        cmocka_unit_test(conditions_follow_the_rfcs_order),
        cmocka_unit_test(one_range_is_served),
        cmocka_unit_test(if_range_must_hold),
        cmocka_unit_test(gzip_only_when_it_is_the_wish),
        cmocka_unit_test(odd_names_are_encoded),
        cmocka_unit_test(metadata_is_lower_cased_and_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
