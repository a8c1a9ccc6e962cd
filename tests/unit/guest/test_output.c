/* The output log: readers, ring, limits. */
#include "test.h"

#include <string.h>

#include "guest/daemon/output.h"

static void put(struct output *o, enum output_stream stream, const void *p, size_t n)
{
    uint8_t *at = output_reserve(o, n);

    assert_non_null(at);
    memcpy(at, p, n);
    output_commit(o, stream, n);
}

static void put_text(struct output *o, const char *s)
{
    put(o, OUTPUT_STDOUT, s, strlen(s));
}

/* Everything that a reader can have now, as "o:text|e:text|". */
static const char *take(struct output *o, struct output_reader *r)
{
    static char text[1024];
    enum output_stream stream;
    struct slice s;
    size_t n = 0;

    text[0] = '\0';
    while (output_peek(o, r, &stream, &s)) {
        text[n++] = "oep"[stream];
        text[n++] = ':';
        memcpy(text + n, s.p, s.n);
        n += s.n;
        text[n++] = '|';
        text[n] = '\0';
        output_advance(o, r);
    }
    return text;
}

static void each_reader_gets_every_record_in_order(void **state)
{
    struct output o;
    struct output_reader a, b;
    uint64_t dropped;

    output_init(&o);
    output_attach(&o, &a, &dropped);
    output_attach(&o, &b, &dropped);
    put_text(&o, "one");
    put(&o, OUTPUT_STDERR, "two", 3);
    assert_string_equal(take(&o, &a), "o:one|e:two|");
    put(&o, OUTPUT_PTY, "three", 5);
    assert_string_equal(take(&o, &b), "o:one|e:two|p:three|");
    assert_string_equal(take(&o, &a), "p:three|");
    assert_string_equal(take(&o, &a), "");
    assert_int_equal(o.log.len, 3 * 5 + 11); /* kept for who asks again */
    assert_true(o.log.cap <= 4096);          /* a quiet command costs little */
    output_detach(&o, &a);
    output_detach(&o, &b);
    output_done(&o);
}

static void late_reader_gets_what_comes_next(void **state)
{
    struct output o;
    struct output_reader a, b;
    uint64_t dropped;

    output_init(&o);
    output_attach(&o, &a, &dropped);
    put_text(&o, "early");
    output_attach(&o, &b, &dropped);
    put_text(&o, "late");
    assert_string_equal(take(&o, &b), "o:late|");
    assert_string_equal(take(&o, &a), "o:early|o:late|");
    output_detach(&o, &a);
    output_detach(&o, &b);
    output_done(&o);
}

static void first_reader_after_none_gets_what_was_kept(void **state)
{
    struct output o;
    struct output_reader a;
    uint64_t dropped;

    output_init(&o);
    put_text(&o, "before");
    output_attach(&o, &a, &dropped);
    assert_int_equal(dropped, 0);
    put_text(&o, "taken");
    assert_string_equal(take(&o, &a), "o:before|o:taken|");
    put_text(&o, "not taken");
    output_detach(&o, &a);
    put_text(&o, "after");
    output_attach(&o, &a, &dropped);
    assert_string_equal(take(&o, &a), "o:not taken|o:after|");
    output_detach(&o, &a);
    output_done(&o);
}

static void reader_begins_anywhere_in_what_is_kept(void **state)
{
    static const char *const want[] = {
        "o:one|e:two|p:three|",
        "o:ne|e:two|p:three|",
        "o:e|e:two|p:three|",
        "e:two|p:three|",
        "e:wo|p:three|",
        "e:o|p:three|",
        "p:three|",
        "p:hree|",
        "p:ree|",
        "p:ee|",
        "p:e|",
        "",
    };
    struct output o;
    struct output_reader a, b;
    uint64_t dropped;

    output_init(&o);
    output_attach(&o, &a, &dropped);
    put_text(&o, "one");
    put(&o, OUTPUT_STDERR, "two", 3);
    put(&o, OUTPUT_PTY, "three", 5);
    assert_string_equal(take(&o, &a), "o:one|e:two|p:three|");
    assert_int_equal(a.mark.offset, 11);
    for (uint64_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_true(output_attach_at(&o, &b, i, &dropped));
        assert_int_equal(dropped, 0);
        assert_int_equal(b.mark.offset, i);
        assert_string_equal(take(&o, &b), want[i]);
        assert_int_equal(b.mark.offset, 11);
        output_detach(&o, &b);
    }
    assert_false(output_attach_at(&o, &b, 12, &dropped));
    assert_false(output_attach_at(&o, &b, UINT64_MAX, &dropped));
    output_detach(&o, &a);

    /* One who leaves in the middle of a record leaves its rest to the next. */
    assert_true(output_attach_at(&o, &b, 7, &dropped));
    output_detach(&o, &b);
    output_attach(&o, &a, &dropped);
    assert_int_equal(dropped, 0);
    assert_int_equal(a.mark.offset, 7);
    assert_string_equal(take(&o, &a), "p:hree|");
    output_detach(&o, &a);
    output_done(&o);
}

static void what_was_read_stays_as_long_as_there_is_room(void **state)
{
    static uint8_t chunk[OUTPUT_CHUNK_MAX];
    enum output_stream stream;
    struct output_reader a, b;
    uint64_t dropped, total = 0;
    struct output o;
    struct slice s;

    output_init(&o);
    output_attach(&o, &a, &dropped);
    for (unsigned i = 0; i < 300; i++) {
        size_t n = 1 + i * 7919 % sizeof(chunk);

        memset(chunk, (int)i, n);
        put(&o, OUTPUT_STDOUT, chunk, n);
        total += n;
        assert_true(output_peek(&o, &a, &stream, &s));
        assert_int_equal(s.n, n);
        output_advance(&o, &a);
        assert_true(o.log.len <= OUTPUT_RING_MAX);
        assert_true(o.log.cap <= 4 * OUTPUT_RING_MAX);
    }
    assert_true(output_attach_at(&o, &b, 1000, &dropped));
    assert_int_equal(b.mark.offset, 1000 + dropped);
    assert_true(total - b.mark.offset > OUTPUT_RING_MAX - 2 * OUTPUT_CHUNK_MAX);
    while (output_peek(&o, &b, &stream, &s))
        output_advance(&o, &b);
    assert_int_equal(b.mark.offset, total);
    assert_int_equal(a.mark.offset, total);
    output_detach(&o, &b);
    output_detach(&o, &a);
    output_attach(&o, &a,
                  &dropped); /* who does not ask gets what comes next, and hears of no loss */
    assert_int_equal(dropped, 0);
    assert_false(output_peek(&o, &a, &stream, &s));
    output_close(&o);
    output_detach(&o, &a);
    assert_true(o.log.cap <= 2 * OUTPUT_RING_MAX);
    output_done(&o);
}

static void ring_drops_the_oldest_and_counts(void **state)
{
    static uint8_t chunk[OUTPUT_CHUNK_MAX];
    enum output_stream stream;
    struct output_reader a;
    uint64_t dropped, got = 0, total = 0;
    struct output o;
    struct slice s;

    output_init(&o);
    for (unsigned i = 0; i < 100; i++) {
        memset(chunk, (int)i, sizeof(chunk));
        put(&o, OUTPUT_STDOUT, chunk, sizeof(chunk));
        total += sizeof(chunk);
        assert_true(o.log.len <= OUTPUT_RING_MAX);
        assert_false(output_is_full(&o));
    }
    output_attach(&o, &a, &dropped);
    while (output_peek(&o, &a, &stream, &s)) {
        assert_int_equal(s.p[0], (dropped + got) / sizeof(chunk));
        got += s.n;
        output_advance(&o, &a);
    }
    assert_int_equal(dropped + got, total);
    assert_true(got > OUTPUT_RING_MAX - 2 * sizeof(chunk));
    output_detach(&o, &a);
    output_attach(&o, &a, &dropped);
    assert_int_equal(dropped, 0); /* told once */
    output_detach(&o, &a);
    output_done(&o);
}

static void ring_can_be_made_smaller(void **state)
{
    static uint8_t chunk[OUTPUT_CHUNK_MAX];
    struct output_reader a;
    uint64_t dropped;
    struct output o;

    output_init(&o);
    for (unsigned i = 0; i < 10; i++)
        put(&o, OUTPUT_STDOUT, chunk, sizeof(chunk));
    output_limit_ring(&o, 3 * sizeof(chunk));
    assert_true(o.log.len <= 3 * sizeof(chunk));
    output_limit_ring(&o, 10);
    assert_null(o.log.mem);
    put(&o, OUTPUT_STDOUT, chunk, sizeof(chunk));
    put_text(&o, "abc");
    output_attach(&o, &a, &dropped);
    assert_int_equal(dropped, 11 * sizeof(chunk));
    put(&o, OUTPUT_STDERR, chunk, 20); /* a reader's bytes are not the ring's */
    output_limit_ring(&o, 1);
    assert_int_equal(o.log.len, 2 * 5 + 3 + 20);
    output_detach(&o, &a);
    assert_null(o.log.mem);
    output_done(&o);
}

static void reader_far_behind_makes_it_full_until_it_goes_on(void **state)
{
    static uint8_t chunk[OUTPUT_CHUNK_MAX];
    struct output_reader slow, quick;
    enum output_stream stream;
    uint64_t dropped;
    struct output o;
    struct slice s;
    unsigned n = 0;

    output_init(&o);
    output_attach(&o, &slow, &dropped);
    output_attach(&o, &quick, &dropped);
    for (; !output_is_full(&o); n++) {
        put(&o, OUTPUT_STDOUT, chunk, sizeof(chunk));
        assert_true(output_peek(&o, &quick, &stream, &s));
        output_advance(&o, &quick);
    }
    assert_true(n * sizeof(chunk) > OUTPUT_LAG_MAX - sizeof(chunk));
    assert_true(n * sizeof(chunk) <= OUTPUT_LAG_MAX + sizeof(chunk));
    assert_true(output_peek(&o, &slow, &stream, &s));
    output_advance(&o, &slow);
    assert_false(output_is_full(&o));
    put(&o, OUTPUT_STDOUT, chunk, sizeof(chunk));
    assert_true(output_is_full(&o));
    output_detach(&o, &slow);
    assert_false(output_is_full(&o));
    assert_true(output_peek(&o, &quick, &stream, &s));
    output_detach(&o, &quick);
    output_done(&o);
}

static void memory_ends_where_the_limit_is(void **state)
{
    struct output_reader slow;
    uint64_t dropped;
    struct output o;
    unsigned n = 0;

    output_init(&o);
    output_attach(&o, &slow, &dropped);
    while (output_reserve(&o, OUTPUT_CHUNK_MAX)) {
        output_commit(&o, OUTPUT_STDOUT, OUTPUT_CHUNK_MAX);
        assert_true(++n < 1000);
    }
    assert_true(o.log.len >= OUTPUT_LAG_MAX);
    output_detach(&o, &slow);
    assert_true(o.log.len <= OUTPUT_RING_MAX);
    assert_non_null(output_reserve(&o, OUTPUT_CHUNK_MAX));
    output_commit(&o, OUTPUT_STDOUT, 0);
    output_done(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reader_gets_every_record_in_order),
        cmocka_unit_test(late_reader_gets_what_comes_next),
        cmocka_unit_test(first_reader_after_none_gets_what_was_kept),
        cmocka_unit_test(reader_begins_anywhere_in_what_is_kept),
        cmocka_unit_test(what_was_read_stays_as_long_as_there_is_room),
        cmocka_unit_test(ring_drops_the_oldest_and_counts),
        cmocka_unit_test(ring_can_be_made_smaller),
        cmocka_unit_test(reader_far_behind_makes_it_full_until_it_goes_on),
        cmocka_unit_test(memory_ends_where_the_limit_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
