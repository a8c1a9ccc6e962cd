/* WebSocket frames: whole messages out of fragments, what is refused with which code, encoding. */
#include "test.h"

#include "wire/ws.h"

#define MESSAGE_MAX 1000

/* Events of `in` as text, fed in pieces of `step` bytes. */
static void run(enum ws_role role, struct slice in, size_t step, struct buf *log)
{
    struct ws_decoder d;
    enum ws_event ev = WS_NEED_MORE;

    ws_decoder_init(&d, role, MESSAGE_MAX);
    for (size_t at = 0; at < in.n && ev != WS_ERROR; at += step) {
        size_t n = MIN(step, in.n - at);
        uint8_t *copy = test_exact(slice_of(in.p + at, n));
        struct slice piece = slice_of(copy, n);
        struct ws_message m;

        while ((ev = ws_decoder_next(&d, &piece, &m)) == WS_MESSAGE || ev == WS_CONTROL) {
            (void)buf_printf(log, "%d", m.opcode);
            if (m.opcode == WS_CLOSE)
                (void)buf_printf(log, "=%d", m.close_code);
            (void)buf_printf(log, ":%.*s;", (int)m.data.n, (const char *)m.data.p);
        }
        if (ev == WS_ERROR)
            (void)buf_printf(log, "!%d", m.close_code);
        else
            assert_int_equal(piece.n, 0);
        free(copy);
    }
    ws_decoder_done(&d);
}

struct row {
    const char *name;
    enum ws_role role;
    struct slice in;
    const char *want;
};

static void frames(void **state)
{
    static const struct row rows[] = {
        { "nothing", WS_CLIENT, { NULL, 0 }, "" },
        { "text", WS_CLIENT, SLICE_LIT("\x81\x02hi"), "1:hi;" },
        { "binary", WS_CLIENT, SLICE_LIT("\x82\x01x"), "2:x;" },
        { "empty text", WS_CLIENT, SLICE_LIT("\x81\x00"), "1:;" },
        { "RFC example, masked", WS_SERVER,
          SLICE_LIT("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), "1:Hello;" },
        { "fragments", WS_CLIENT, SLICE_LIT("\x01\x03Hel\x80\x02lo"), "1:Hello;" },
        { "character cut by a fragment", WS_CLIENT, SLICE_LIT("\x01\x01\xc3\x80\x01\xbc"),
          "1:\xc3\xbc;" },
        { "ping between fragments", WS_CLIENT,
          SLICE_LIT("\x01\x01"
                    "a\x89\x01p\x80\x01"
                    "b"),
          "9:p;1:ab;" },
        { "pong", WS_CLIENT, SLICE_LIT("\x8a\x00"), "10:;" },
        { "two messages", WS_CLIENT,
          SLICE_LIT("\x81\x01"
                    "a\x82\x01"
                    "b"),
          "1:a;2:b;" },
        { "close", WS_CLIENT,
          SLICE_LIT("\x88\x05\x03\xe8"
                    "bye"),
          "8=1000:bye;" },
        { "close without a code", WS_CLIENT, SLICE_LIT("\x88\x00"), "8=1005:;" },
        { "close of one byte", WS_CLIENT, SLICE_LIT("\x88\x01\x03"), "!1002" },
        { "close 1005", WS_CLIENT, SLICE_LIT("\x88\x02\x03\xed"), "!1002" },
        { "close 1006", WS_CLIENT, SLICE_LIT("\x88\x02\x03\xee"), "!1002" },
        { "close 999", WS_CLIENT, SLICE_LIT("\x88\x02\x03\xe7"), "!1002" },
        { "close 4999", WS_CLIENT, SLICE_LIT("\x88\x02\x13\x87"), "8=4999:;" },
        { "close reason not UTF-8", WS_CLIENT, SLICE_LIT("\x88\x03\x03\xe8\xff"), "!1007" },
        { "text not UTF-8", WS_CLIENT, SLICE_LIT("\x81\x01\xff"), "!1007" },
        { "binary of any bytes", WS_CLIENT, SLICE_LIT("\x82\x01\xff"), "2:\xff;" },
        { "reserved bit", WS_CLIENT, SLICE_LIT("\xc1\x00"), "!1002" },
        { "opcode 3", WS_CLIENT, SLICE_LIT("\x83\x00"), "!1002" },
        { "opcode 11", WS_CLIENT, SLICE_LIT("\x8b\x00"), "!1002" },
        { "masked server", WS_CLIENT, SLICE_LIT("\x81\x81zzzzx"), "!1002" },
        { "plain client", WS_SERVER, SLICE_LIT("\x81\x01x"), "!1002" },
        { "fragmented ping", WS_CLIENT, SLICE_LIT("\x09\x00"), "!1002" },
        { "long ping", WS_CLIENT, SLICE_LIT("\x89\x7e\x00\x7e"), "!1002" },
        { "continuation alone", WS_CLIENT, SLICE_LIT("\x80\x00"), "!1002" },
        { "text in a text", WS_CLIENT, SLICE_LIT("\x01\x00\x81\x00"), "!1002" },
        { "length 16 too long a form", WS_CLIENT, SLICE_LIT("\x82\x7e\x00\x7d"), "!1002" },
        { "length 64 too long a form", WS_CLIENT,
          SLICE_LIT("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"), "!1002" },
        { "length with its top bit", WS_CLIENT,
          SLICE_LIT("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"), "!1002" },
        { "over the limit", WS_CLIENT, SLICE_LIT("\x82\x7e\x03\xe9"), "!1009" },
        { "over the limit in sum", WS_CLIENT, SLICE_LIT("\x02\x01x\x80\x7e\x03\xe8"), "!1009" },
        { "the event before an error", WS_CLIENT,
          SLICE_LIT("\x81\x01"
                    "a\xff"),
          "1:a;" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (size_t step = 1; step < 20; step += 3) {
            struct buf log = BUF_INIT(10000);

            run(rows[i].role, rows[i].in, step, &log);
            if (strcmp(buf_cstr(&log), rows[i].want) != 0)
                fail_msg("%s, step %zu: '%s', not '%s'", rows[i].name, step, buf_cstr(&log),
                         rows[i].want);
            buf_done(&log);
        }
}

/* Every length around the borders of the three forms comes back as it went, in both directions. */
static void round_trips(void **state)
{
    static const size_t sizes[] = { 0, 1, 125, 126, 127, 65535, 65536, 70000 };
    static const uint8_t mask[4] = { 1, 0, 0xff, 0x80 };
    uint8_t *data = calloc(1, 70000);

    assert_non_null(data);
    for (size_t i = 0; i < 70000; i++)
        data[i] = (uint8_t)(i * 31);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
        enum ws_role sender = i % 2 ? WS_CLIENT : WS_SERVER;
        struct slice sent = slice_of(data, sizes[i / 2]), in;
        struct buf b = BUF_INIT(100000);
        struct ws_decoder d;
        struct ws_message m;

        assert_int_equal(ws_frame_encode(&b, sender, WS_BINARY, mask, sent), BUF_OK);
        ws_decoder_init(&d, sender == WS_CLIENT ? WS_SERVER : WS_CLIENT, 70000);
        in = buf_slice(&b);
        assert_int_equal(ws_decoder_next(&d, &in, &m), WS_MESSAGE);
        assert_true(slice_eq(m.data, sent));
        assert_int_equal(ws_decoder_next(&d, &in, &m), WS_NEED_MORE);
        ws_decoder_done(&d);
        buf_done(&b);
    }
    free(data);
}

static void close_frames(void **state)
{
    static const uint8_t mask[4] = { 0 };
    char reason[200];
    struct buf b = BUF_INIT(1000);

    assert_int_equal(ws_close_encode(&b, WS_SERVER, mask, 0, slice_str("x")), BUF_OK);
    assert_true(slice_eq(buf_slice(&b), SLICE_LIT("\x88\x00")));
    buf_reset(&b);
    assert_int_equal(ws_close_encode(&b, WS_SERVER, mask, 1001, slice_str("bye")), BUF_OK);
    assert_true(slice_eq(buf_slice(&b), SLICE_LIT("\x88\x05\x03\xe9"
                                                  "bye")));
    buf_reset(&b);
    memset(reason, 'a', 122); /* a character that would be cut at byte 123 goes as a whole */
    memcpy(reason + 122, "\xc3\xbc", 3);
    assert_int_equal(ws_close_encode(&b, WS_SERVER, mask, 1000, slice_str(reason)), BUF_OK);
    assert_int_equal(buf_slice(&b).n, 2 + 2 + 122);
    buf_done(&b);
}

static void control_frames_are_short(void **state)
{
    static const uint8_t mask[4] = { 0 };
    uint8_t data[126] = { 0 };
    struct buf b = BUF_INIT(1000);

    assert_int_equal(ws_frame_encode(&b, WS_CLIENT, WS_PING, mask, slice_of(data, 125)), BUF_OK);
    assert_int_equal(ws_frame_encode(&b, WS_CLIENT, WS_PING, mask, slice_of(data, 126)), BUF_LIMIT);
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(close_frames),
        cmocka_unit_test(control_frames_are_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
