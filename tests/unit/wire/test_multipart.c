/* multipart/form-data: each body goes in whole, byte by byte and in pieces, with the same events. */
#include "test.h"

#include "wire/multipart.h"

#define CD "Content-Disposition: form-data; name=\"file\""
#define PART(head, data) "--b\r\n" head "\r\n\r\n" data "\r\n"

struct row {
    const char *name;
    const char *in;
    const char *want;
};

static void run(struct slice in, size_t step, struct buf *log)
{
    struct multipart_parser *p = multipart_parser_new(SLICE_LIT("b"));
    enum multipart_event ev = MULTIPART_NEED_MORE;
    bool in_data = false;

    assert_non_null(p);
    for (size_t at = 0; ev != MULTIPART_ERROR && at < in.n; at += step) {
        size_t n = MIN(step, in.n - at);
        uint8_t *copy = test_exact(slice_of(in.p + at, n));
        struct slice piece = slice_of(copy, n), data;

        do {
            ev = multipart_parser_next(p, &piece, &data);
            if (ev != MULTIPART_DATA && ev != MULTIPART_NEED_MORE && in_data) {
                (void)buf_append_str(log, ";");
                in_data = false;
            }
            if (ev == MULTIPART_PART)
                (void)buf_printf(log, "PART %s %s;", multipart_part_name(p),
                                 multipart_part_filename(p) ? multipart_part_filename(p) : "-");
            else if (ev == MULTIPART_PART_END)
                (void)buf_append_str(log, "PART_END;");
            else if (ev == MULTIPART_END)
                (void)buf_append_str(log, "END");
            else if (ev == MULTIPART_ERROR)
                (void)buf_printf(log, "!%s", multipart_error(p));
            if (ev == MULTIPART_DATA) {
                assert_true(data.n > 0);
                if (!in_data)
                    (void)buf_append_str(log, "DATA ");
                in_data = true;
                (void)buf_append_slice(log, data);
            }
        } while (ev != MULTIPART_NEED_MORE && ev != MULTIPART_ERROR);
        if (ev == MULTIPART_NEED_MORE)
            assert_int_equal(piece.n, 0);
        free(copy);
    }
    multipart_parser_free(p);
}

static void check(const struct row *rows, size_t n)
{
    static const size_t steps[] = { 1 << 20, 1, 2, 3, 5, 11 };

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
            _cleanup_(buf_done) struct buf log = BUF_INIT(1 << 16);

            run(slice_str(rows[i].in), steps[k], &log);
            test_text(rows[i].name, buf_cstr(&log), rows[i].want);
        }
}

static void bodies(void **state)
{
    static const struct row rows[] = {
        { "one", PART(CD "; filename=\"a/b.txt\"", "hello") "--b--\r\n",
          "PART file a/b.txt;DATA hello;PART_END;END" },
        { "two", PART(CD, "1") PART(CD "; filename=x", "2") "--b--",
          "PART file -;DATA 1;PART_END;PART file x;DATA 2;PART_END;END" },
        { "empty data", PART(CD, "") "--b--", "PART file -;PART_END;END" },
        { "no data, no CRLF", "--b\r\n" CD "\r\n\r\n--b--", "PART file -;PART_END;END" },
        { "no part", "--b--", "END" },
        { "preamble and epilogue", "pre\r\n--c\r\n\r\n" PART(CD, "x") "--b--epilogue\r\n--b\r\n",
          "PART file -;DATA x;PART_END;END" },
        { "CRLF first", "\r\n" PART(CD, "x") "--b--", "PART file -;DATA x;PART_END;END" },
        { "padding", "--b \t\r\n" CD "\r\n\r\nx\r\n--b  \r\n" CD "\r\n\r\ny\r\n--b--",
          "PART file -;DATA x;PART_END;PART file -;DATA y;PART_END;END" },
        { "almost delimiters", PART(CD, "\r\n-\r\n--\r\n--c\r\r\n\r\n\n--b--\r") "--b--",
          "PART file -;DATA \r\n-\r\n--\r\n--c\r\r\n\r\n\n--b--\r;PART_END;END" },
        { "CR before the delimiter", PART(CD, "x\r") "--b--", "PART file -;DATA x\r;PART_END;END" },
        { "delimiter inside a line", PART(CD, "x--b--y") "--b--",
          "PART file -;DATA x--b--y;PART_END;END" },
        { "other fields",
          PART("Content-Type: text/plain\r\n" CD "\r\nContent-Transfer-Encoding: binary",
               "x") "--b--",
          "PART file -;DATA x;PART_END;END" },
        { "case", PART("CONTENT-DISPOSITION: Form-Data; NAME=f; FileName=\"g\"", "x") "--b--",
          "PART f g;DATA x;PART_END;END" },
        { "empty filename", PART(CD "; filename=\"\"", "x") "--b--",
          "PART file ;DATA x;PART_END;END" },
        { "escapes",
          PART("Content-Disposition: form-data; name=\"a\\\"b\\\\c\"; filename=\"x%22y%2fz;\"",
               "x") "--b--",
          "PART a\"b\\c x\"y%2fz;;DATA x;PART_END;END" },
        { "escapes at the end",
          PART("Content-Disposition: form-data; name=\"a\\\"\"; filename=\"x%22\"", "x") "--b--",
          "PART a\" x\";DATA x;PART_END;END" },
        { "backslashes, doubled and not", PART(CD "; filename=\"C:\\x\\\\y\\z\"", "x") "--b--",
          "PART file C:\\x\\y\\z;DATA x;PART_END;END" },
        { "percent signs", PART(CD "; filename=\"%2%22%\"", "x") "--b--",
          "PART file %2\"%;DATA x;PART_END;END" },
        { "UTF-8 names", PART("Content-Disposition: form-data; name=\"\xc3\xa4\"", "x") "--b--",
          "PART \xc3\xa4 -;DATA x;PART_END;END" },
        { "cut in the data", "--b\r\n" CD "\r\n\r\nhel", "PART file -;DATA hel" },
        { "cut in the delimiter", "--b\r\n" CD "\r\n\r\nhel\r\n--", "PART file -;DATA hel" },
        { "cut behind the delimiter", "--b\r\n" CD "\r\n\r\nhel\r\n--b", "PART file -;DATA hel" },
        { "cut in the head", "--b\r\n" CD "\r\n", "" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void malformed_bodies(void **state)
{
    static const struct row rows[] = {
        { "longer boundary", PART(CD, "x") "--bc\r\n", "PART file -;DATA x;!malformed delimiter" },
        { "one dash", PART(CD, "x") "--b-\r\n", "PART file -;DATA x;!malformed delimiter" },
        { "bare LF behind the delimiter", "--b\n" CD "\r\n\r\n", "!malformed delimiter" },
        { "bare CR behind the delimiter", "--b\rx", "!malformed delimiter" },
        { "text behind padding", "--b x\r\n", "!malformed delimiter" },
        { "dashes behind padding", "--b --\r\n", "!malformed delimiter" },
        { "no head", "--b\r\n\r\nx\r\n--b--", "!part without Content-Disposition" },
        { "no disposition", PART("A: b", "x") "--b--", "!part without Content-Disposition" },
        { "no disposition in the second part", PART(CD, "x") PART("A: b", "x") "--b--",
          "PART file -;DATA x;PART_END;!part without Content-Disposition" },
        { "no name", PART("Content-Disposition: form-data; filename=x", "x") "--b--",
          "!part without a name" },
        { "attachment", PART("Content-Disposition: attachment; name=x", "x") "--b--",
          "!Content-Disposition is not form-data" },
        { "two dispositions", PART(CD "\r\n" CD, "x") "--b--", "!two Content-Disposition fields" },
        { "two names", PART(CD "; name=x", "x") "--b--", "!name or filename comes twice" },
        { "two filenames", PART(CD "; filename=x; filename=y", "x") "--b--",
          "!name or filename comes twice" },
        { "filename*", PART(CD "; filename*=UTF-8''x", "x") "--b--",
          "!filename* is not supported" },
        { "not UTF-8", PART("Content-Disposition: form-data; name=\"\xff\"", "x") "--b--",
          "!name is not UTF-8" },
        { "quote without an end", PART("Content-Disposition: form-data; name=\"x", "x") "--b--",
          "!malformed Content-Disposition" },
        { "escaped end", PART("Content-Disposition: form-data; name=\"x\\\"", "x") "--b--",
          "!malformed Content-Disposition" },
        { "no parameter name", PART("Content-Disposition: form-data; =x", "x") "--b--",
          "!malformed Content-Disposition" },
        { "no equals sign", PART("Content-Disposition: form-data; name", "x") "--b--",
          "!malformed Content-Disposition" },
        { "text behind a quote", PART("Content-Disposition: form-data; name=\"x\"y", "x") "--b--",
          "!malformed Content-Disposition" },
        { "base64", PART(CD "\r\nContent-Transfer-Encoding: base64", "x") "--b--",
          "!Content-Transfer-Encoding is not supported" },
        { "no colon", PART("A", "x") "--b--", "!malformed field in a part's head" },
        { "folded", PART(CD "\r\n x", "x") "--b--", "!malformed field in a part's head" },
        { "space before the colon", PART("A : b", "x") "--b--",
          "!malformed field in a part's head" },
        { "bare LF in a head", PART(CD "\nA: b", "x") "--b--",
          "!malformed field in a part's head" },
        { "control byte in a head",
          PART("Content-Disposition: form-data; name=\"\x01\"", "x") "--b--",
          "!malformed field in a part's head" },
    };

    check(rows, ARRAY_SIZE(rows));
}

static void boundaries(void **state)
{
    static const struct {
        const char *type;
        const char *want; /* NULL = refused */
    } rows[] = {
        { "multipart/form-data; boundary=abc", "abc" },
        { "Multipart/Form-Data ;charset=utf-8; BOUNDARY=\"a b\"", "a b" },
        { "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
          "----WebKitFormBoundary7MA4YWxkTrZu0gW" },
        { "multipart/form-data; boundary=abc;", "abc" },
        { "multipart/form-data; boundary=\"'()+_,-./:=?\"", "'()+_,-./:=?" },
        { "multipart/form-data; "
          "boundary=0123456789012345678901234567890123456789012345678901234567890123456789",
          "0123456789012345678901234567890123456789012345678901234567890123456789" },
        { "multipart/form-data; "
          "boundary=01234567890123456789012345678901234567890123456789012345678901234567890",
          NULL },
        { "multipart/form-data; boundary=", NULL },
        { "multipart/form-data; boundary=\"\"", NULL },
        { "multipart/form-data; boundary=\"a \"", NULL },
        { "multipart/form-data; boundary=\"a", NULL },
        { "multipart/form-data; boundary=\"a\\\"b\"", NULL },
        { "multipart/form-data; boundary=a@b", NULL },
        { "multipart/form-data; boundary=a\xff", NULL },
        { "multipart/form-data; boundary=a; boundary=a", NULL },
        { "multipart/form-data; boundary=a b", NULL },
        { "multipart/form-data; xboundary=a", NULL },
        { "multipart/form-data; boundary", NULL },
        { "multipart/form-data", NULL },
        { "multipart/mixed; boundary=a", NULL },
        { "text/plain; boundary=a", NULL },
        { "", NULL },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = strlen(rows[i].type);
        uint8_t *copy = test_exact(slice_of(rows[i].type, n));
        struct slice got;

        assert_int_equal(multipart_boundary(slice_of(copy, n), &got), rows[i].want != NULL);
        if (rows[i].want)
            assert_true(slice_eq_str(got, rows[i].want));
        free(copy);
    }
    assert_null(multipart_parser_new(SLICE_LIT("")));
    assert_null(multipart_parser_new(SLICE_LIT("a\r\n")));
}

static void data_is_not_copied(void **state)
{
    static const char text[] = "--b\r\n" CD "\r\n\r\n0123456789";
    struct multipart_parser *p = multipart_parser_new(SLICE_LIT("b"));
    struct slice in = slice_str(text), data;

    assert_int_equal(multipart_parser_next(p, &in, &data), MULTIPART_PART);
    assert_int_equal(multipart_parser_next(p, &in, &data), MULTIPART_DATA);
    assert_ptr_equal(data.p, text + sizeof text - 11);
    assert_int_equal(data.n, 10);
    multipart_parser_free(p);
}

static enum multipart_event last_event(struct slice in)
{
    struct multipart_parser *p = multipart_parser_new(SLICE_LIT("b"));
    enum multipart_event ev, last = MULTIPART_NEED_MORE;
    struct slice data;

    while ((ev = multipart_parser_next(p, &in, &data)) != MULTIPART_NEED_MORE) {
        last = ev;
        if (ev == MULTIPART_ERROR)
            break;
    }
    multipart_parser_free(p);
    return last;
}

static void limits(void **state)
{
    for (size_t n = MULTIPART_PARTS_MAX; n <= MULTIPART_PARTS_MAX + 1; n++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(4 << 20);

        for (size_t i = 0; i < n; i++)
            (void)buf_append_str(&b, PART(CD, ""));
        (void)buf_append_str(&b, "--b--");
        assert_int_equal(last_event(buf_slice(&b)),
                         n > MULTIPART_PARTS_MAX ? MULTIPART_ERROR : MULTIPART_END);
    }
    for (size_t n = 16384 - 4; n <= 16384 - 3; n++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

        (void)buf_append_str(&b, "--b\r\n" CD "; x=");
        for (size_t i = strlen(CD "; x="); i < n; i++)
            (void)buf_append_byte(&b, 'x');
        (void)buf_append_str(&b, "\r\n\r\n\r\n--b--");
        assert_int_equal(last_event(buf_slice(&b)),
                         n > 16384 - 4 ? MULTIPART_ERROR : MULTIPART_END);
    }
}

/* Bytes that could begin the delimiter do not cut the data: each piece costs whoever writes it a system call. */
static void data_comes_in_large_pieces(void **state)
{
    static const char head[] = "--b\r\n" CD "\r\n\r\n", tail[] = "\r\n--b--";
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
    struct multipart_parser *p = multipart_parser_new(SLICE_LIT("b"));
    size_t pieces = 0, bytes = 0;
    enum multipart_event ev;
    struct slice in, data;

    assert_non_null(p);
    (void)buf_append_str(&b, head);
    for (size_t i = 0; i < 10000; i++)
        (void)buf_append_str(&b, i % 3 == 0 ? "\r" : i % 3 == 1 ? "\r\n--" : "\r\n-x");
    (void)buf_append_str(&b, tail);
    in = buf_slice(&b);
    while ((ev = multipart_parser_next(p, &in, &data)) != MULTIPART_END) {
        assert_int_not_equal(ev, MULTIPART_ERROR);
        if (ev == MULTIPART_DATA) {
            pieces++;
            bytes += data.n;
        }
    }
    assert_int_equal(pieces, 1);
    assert_int_equal(bytes, b.len - (sizeof head - 1) - (sizeof tail - 1));
    multipart_parser_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),     cmocka_unit_test(malformed_bodies),
        cmocka_unit_test(boundaries), cmocka_unit_test(data_is_not_copied),
        cmocka_unit_test(limits),     cmocka_unit_test(data_comes_in_large_pieces),
    };

    return cmocka_run_group_tests_name("multipart", tests, NULL, NULL);
}
