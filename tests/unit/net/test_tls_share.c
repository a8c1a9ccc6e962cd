/* test_tls_share.c - certificates from one mapping to another. */
#include "net/tls_share.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "test.h"

#include "base/fd.h"

static int read_all(const struct tls_share *s, struct tls_pair pairs[TLS_PAIRS_MAX], size_t *ret_n,
                    struct buf *text, uint8_t secret[TLS_SECRET_SIZE])
{
    return tls_share_read(s, text, pairs, ret_n, secret, NULL);
}

static void what_is_written_is_read(void **state)
{
    _cleanup_(tls_share_freep) struct tls_share *writer = NULL, *reader = NULL;
    _cleanup_(buf_done) struct buf text = BUF_INIT(TLS_SHARE_SIZE);
    const struct tls_pair first[] = { { SLICE_LIT("certificate"), SLICE_LIT("key") } };
    const struct tls_pair second[] = { { SLICE_LIT("a"), SLICE_LIT("bb") },
                                       { SLICE_LIT("ccc"), SLICE_LIT("dddd") } };
    uint8_t secret[TLS_SECRET_SIZE] = { 0 }, again[TLS_SECRET_SIZE];
    const uint8_t none[TLS_SECRET_SIZE] = { 0 };
    struct tls_pair got[TLS_PAIRS_MAX];
    size_t n = 9;
    int fd;

    (void)state;
    assert_int_equal(tls_share_new(&writer, &fd, NULL), 0);
    assert_int_equal(tls_share_open(fd, &reader, NULL), 0);
    assert_int_equal(read_all(reader, got, &n, &text, secret), 0);
    assert_int_equal(n, 0);
    assert_memory_not_equal(secret, none, sizeof(secret));
    assert_int_equal(tls_share_write(writer, first, 1, NULL), 0);
    assert_int_equal(read_all(reader, got, &n, &text, again), 0);
    assert_int_equal(n, 1);
    assert_true(slice_eq_str(got[0].certificate, "certificate"));
    assert_true(slice_eq_str(got[0].key, "key"));
    assert_memory_equal(secret, again, sizeof(secret));
    assert_int_equal(tls_share_write(writer, second, 2, NULL), 0);
    assert_int_equal(read_all(reader, got, &n, &text, again), 0);
    assert_int_equal(n, 2);
    assert_true(slice_eq_str(got[1].certificate, "ccc"));
    assert_true(slice_eq_str(got[1].key, "dddd"));
    fd_close(fd);
}

static void readers_cannot_write(void **state)
{
    _cleanup_(tls_share_freep) struct tls_share *writer = NULL;
    int fd;

    (void)state;
    assert_int_equal(tls_share_new(&writer, &fd, NULL), 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_ptr_equal(mmap(NULL, TLS_SHARE_SIZE, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    fd_close(fd);
}

static void too_much_is_refused_and_what_was_there_stays(void **state)
{
    static uint8_t large[TLS_SHARE_SIZE];
    _cleanup_(tls_share_freep) struct tls_share *writer = NULL;
    _cleanup_(buf_done) struct buf text = BUF_INIT(TLS_SHARE_SIZE);
    const struct tls_pair good = { SLICE_LIT("c"), SLICE_LIT("k") };
    const struct tls_pair bad = { slice_of(large, sizeof(large)), SLICE_LIT("k") };
    struct tls_pair many[TLS_PAIRS_MAX + 1], got[TLS_PAIRS_MAX];
    uint8_t secret[TLS_SECRET_SIZE];
    struct abx_err err = { 0 };
    size_t n = 0;
    int fd;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = good;
    assert_int_equal(tls_share_new(&writer, &fd, NULL), 0);
    assert_int_equal(tls_share_write(writer, &good, 1, NULL), 0);
    assert_true(tls_share_write(writer, &bad, 1, &err) < 0);
    assert_int_equal(err.reason, ABX_REASON_TOO_LARGE);
    assert_true(tls_share_write(writer, many, ARRAY_SIZE(many), NULL) < 0);
    assert_int_equal(read_all(writer, got, &n, &text, secret), 0);
    assert_int_equal(n, 1);
    assert_true(slice_eq_str(got[0].certificate, "c"));
    fd_close(fd);
}

/* The first number of the memory is odd while it is written; a reader that may write it plays that. */
static void the_middle_of_a_change_is_not_read(void **state)
{
    _cleanup_(tls_share_freep) struct tls_share *reader = NULL;
    _cleanup_(buf_done) struct buf text = BUF_INIT(TLS_SHARE_SIZE);
    struct tls_pair got[TLS_PAIRS_MAX];
    uint8_t secret[TLS_SECRET_SIZE];
    const uint32_t change = 1, many = 1000;
    size_t n = 0;
    int fd = memfd_create("test", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(ftruncate(fd, TLS_SHARE_SIZE), 0);
    assert_int_equal(tls_share_open(fd, &reader, NULL), 0);
    assert_int_equal(read_all(reader, got, &n, &text, secret), 0);
    assert_int_equal(pwrite(fd, &change, sizeof(change), 0), sizeof(change));
    assert_int_equal(read_all(reader, got, &n, &text, secret), ABX_ABORTED);
    assert_int_equal(pwrite(fd, &many, sizeof(many), sizeof(change)), sizeof(many));
    assert_int_equal(read_all(reader, got, &n, &text, secret), ABX_ABORTED);
    fd_close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(readers_cannot_write),
        cmocka_unit_test(too_much_is_refused_and_what_was_there_stays),
        cmocka_unit_test(the_middle_of_a_change_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
