/* test_record.c - text form of records, their files, names. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "engine/record.h"

static const struct record full = {
    .name = "s0123456789ab",
    .phase = RECORD_RUNNING,
    .sandbox_id = "i4f",
    .template = "base-12ab",
    .execution_id = "11111111-2222-4333-8444-555555555555",
    .boot_id = "21111111-2222-4333-8444-555555555555",
    .pid = 4242,
    .start_ticks = UINT64_C(1) << 40,
    .netns_ino = 4026532999,
    .uid_base = 1879048192u + 65536,
    .limits = { 2, 1024, 10240 },
    .started_ms = 1790000000123,
    .is_frozen = true,
};

static void text_form_comes_back_equal(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_BYTES_MAX);
    struct record got;

    (void)state;
    memset(&got, 0xee, sizeof got);
    assert_int_equal(record_encode(&full, &b), BUF_OK);
    assert_true(record_decode(buf_slice(&b), &got));
    assert_string_equal(got.name, full.name);
    assert_int_equal(got.phase, full.phase);
    assert_string_equal(got.sandbox_id, full.sandbox_id);
    assert_string_equal(got.template, full.template);
    assert_string_equal(got.execution_id, full.execution_id);
    assert_string_equal(got.boot_id, full.boot_id);
    assert_int_equal(got.pid, full.pid);
    assert_true(got.start_ticks == full.start_ticks);
    assert_true(got.netns_ino == full.netns_ino);
    assert_true(got.uid_base == full.uid_base);
    assert_memory_equal(&got.limits, &full.limits, sizeof full.limits);
    assert_true(got.started_ms == full.started_ms);
    assert_true(got.is_frozen);
}

static void every_cut_and_every_lost_line_is_refused(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_BYTES_MAX);
    struct record got;
    struct slice s;

    (void)state;
    assert_int_equal(record_encode(&full, &b), BUF_OK);
    s = buf_slice(&b);
    for (size_t n = 0; n < s.n; n++)
        assert_false(record_decode(slice_of(s.p, n), &got));
    for (size_t from = 0; from < s.n;) {
        const uint8_t *nl = memchr(s.p + from, '\n', s.n - from);
        size_t next = (size_t)(nl - s.p) + 1;
        _cleanup_(freep) uint8_t *less = malloc(s.n);

        memcpy(less, s.p, from);
        memcpy(less + from, s.p + next, s.n - next);
        assert_false(record_decode(slice_of(less, s.n - (next - from)), &got));
        from = next;
    }
}

static void malformed_values_are_refused(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        { "abx-record 1", "abx-record 2" },
        { "name=s0123456789ab", "name=s0123456789/b" },
        { "phase=running", "phase=walking" },
        { "pid=4242", "pid=-242" },
        { "pid=4242", "pid=4242 " },
        { "is_frozen=1", "is_frozen=2" },
        { "uid_base=", "uid_bass=" },
        { "started_ms=1790000000123", "started_ms=99999999999999999999" },
    };
    _cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_BYTES_MAX);
    const char *text;

    (void)state;
    assert_int_equal(record_encode(&full, &b), BUF_OK);
    text = buf_cstr(&b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(buf_done) struct buf bad = BUF_INIT(RECORD_BYTES_MAX);
        const char *at = strstr(text, cases[i].from);
        struct record got;

        assert_non_null(at);
        (void)buf_append(&bad, text, (size_t)(at - text));
        (void)buf_append_str(&bad, cases[i].to);
        (void)buf_append_str(&bad, at + strlen(cases[i].from));
        if (record_decode(buf_slice(&bad), &got))
            fail_msg("accepted '%s'", cases[i].to);
    }
}

static int count_and_remove(void *user, const char *name)
{
    int *dirfd_and_count = user;

    dirfd_and_count[1]++;
    return record_remove(dirfd_and_count[0], name, NULL);
}

static void files_are_written_read_listed_and_removed(void **state)
{
    char dir[] = "/tmp/abx-test-record.XXXXXX";
    _cleanup_(closep) int fd = -EBADF;
    struct record r = full, got;
    struct abx_err e;
    int walk[2];

    (void)state;
    assert_non_null(mkdtemp(dir));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(record_read(fd, r.name, &got, &e), ABX_NOT_FOUND);
    assert_int_equal(record_write(fd, &r, NULL), 0);
    r.is_frozen = false;
    assert_int_equal(record_write(fd, &r, NULL), 0);
    assert_int_equal(record_read(fd, r.name, &got, NULL), 0);
    assert_false(got.is_frozen);
    /* A record under another name is not that record. */
    assert_int_equal(renameat(fd, r.name, fd, "s0123456789ac"), 0);
    assert_int_equal(record_read(fd, "s0123456789ac", &got, &e), ABX_DATA_LOSS);
    assert_int_equal(record_write(fd, &r, NULL), 0);
    for (int i = 0; i < 2; i++) { /* left by killed writers: of this record and of another */
        int left = openat(fd, i ? "s0123456789ac.x.tmp" : "s0123456789ab.x.tmp",
                          O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        assert_true(left >= 0);
        fd_close(left);
    }
    assert_int_equal(record_sweep(fd, r.name, NULL), 0);
    assert_int_equal(faccessat(fd, "s0123456789ab.x.tmp", F_OK, 0), -1);
    assert_int_equal(unlinkat(fd, "s0123456789ac.x.tmp", 0), 0);
    assert_int_equal(record_remove(fd, r.name, NULL), 0);
    walk[0] = fd;
    walk[1] = 0;
    assert_int_equal(record_each(fd, count_and_remove, walk, NULL), 0);
    assert_int_equal(walk[1], 1);
    assert_int_equal(record_remove(fd, r.name, NULL), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void names_are_random_and_valid(void **state)
{
    char a[RECORD_NAME_SIZE], b[RECORD_NAME_SIZE], u[RECORD_UUID_SIZE];

    (void)state;
    record_name_make(a);
    record_name_make(b);
    assert_true(record_name_is_valid(a));
    assert_string_not_equal(a, b);
    assert_false(record_name_is_valid("s0123456789a"));
    assert_false(record_name_is_valid("x0123456789ab"));
    assert_false(record_name_is_valid("s0123456789aB"));
    assert_false(record_name_is_valid(".."));
    uuid_make(u);
    assert_int_equal(strlen(u), 36);
    assert_int_equal(u[14], '4');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_form_comes_back_equal),
        cmocka_unit_test(every_cut_and_every_lost_line_is_refused),
        cmocka_unit_test(malformed_values_are_refused),
        cmocka_unit_test(files_are_written_read_listed_and_removed),
        cmocka_unit_test(names_are_random_and_valid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
