/* test_userns.c - leases of uid ranges: distinct, kept per instance, given again only when free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/path.h"
#include "engine/userns.h"

struct fixture {
    char dir[64];
    char path[96];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/test-userns-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/ranges", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    (void)unlink(f->path);
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static struct uid_leases *must_open(const struct fixture *f, const char *instance)
{
    struct uid_leases *l = NULL;
    struct abx_err err = { 0 };

    if (uid_leases_open(f->path, instance, &l, &err) < 0)
        fail_msg("%s", err.msg);
    return l;
}

static uid_t must_take(struct uid_leases *l)
{
    struct abx_err err = { 0 };
    uid_t base = 0;

    if (uid_lease_take(l, &base, &err) < 0)
        fail_msg("%s", err.msg);
    assert_in_range(base, UID_RANGE_FIRST, UID_RANGE_LAST);
    assert_int_equal((base - UID_RANGE_FIRST) % UID_RANGE_SIZE, 0);
    return base;
}

struct seen {
    uid_t base[8];
    size_t n;
};

static int note(void *user, uid_t base)
{
    struct seen *s = user;

    assert_true(s->n < ARRAY_SIZE(s->base));
    s->base[s->n++] = base;
    return 0;
}

static void subids_take_what_they_overlap(void **state)
{
    (void)state;
    static bool taken[UID_RANGE_COUNT];
    static const struct {
        const char *text;
        size_t first, n; /* slots expected */
    } rows[] = {
        { "", 0, 0 },
        { "user:100000:65536\n", 0, 0 },
        { "user:1879048192:65536\n", 0, 1 },
        { "user:1879048191:1\n", 0, 0 },
        { "user:1879048191:2", 0, 1 },
        { "# no line\nuser:1879113728:65537\n", 1, 2 },
        { "user:1879048192:0\n", 0, 0 },
        { "user:x:65536\n:::\nuser:1879048192\n", 0, 0 },
        { "user:0:4294967295\n", 0, UID_RANGE_COUNT },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        memset(taken, 0, sizeof taken);
        uid_ranges_mark_subids(slice_str(rows[i].text), taken);
        for (size_t k = 0; k < UID_RANGE_COUNT; k++)
            if (taken[k] != (k >= rows[i].first && k < rows[i].first + rows[i].n))
                fail_msg("row %zu: slot %zu is %d", i, k, taken[k]);
    }
}

static void ranges_are_distinct_and_kept_per_instance(void **state)
{
    const struct fixture *f = *state;
    struct uid_leases *a = must_open(f, "a"), *b = must_open(f, "b");
    uid_t a1 = must_take(a), b1 = must_take(b), a2 = must_take(a);
    struct seen seen = { 0 };

    assert_true(a1 != b1 && b1 != a2 && a1 != a2);
    assert_int_equal(uid_lease_release(b, a1, NULL), ABX_NOT_FOUND);
    assert_int_equal(uid_lease_release(a, a1 + 1, NULL), ABX_NOT_FOUND);
    assert_int_equal(uid_lease_release(a, 0, NULL), ABX_NOT_FOUND);
    uid_leases_free(a);
    a = must_open(f, "a"); /* as after a restart */
    assert_int_equal(uid_lease_each(a, note, &seen, NULL), 0);
    assert_int_equal(seen.n, 2);
    assert_true(seen.base[0] == a1 && seen.base[1] == a2);
    assert_int_equal(uid_lease_release(a, a1, NULL), 0);
    assert_int_equal(uid_lease_release(a, a1, NULL), ABX_NOT_FOUND);
    seen.n = 0;
    assert_int_equal(uid_lease_each(a, note, &seen, NULL), 0);
    assert_int_equal(seen.n, 1);
    uid_leases_free(a);
    uid_leases_free(b);
}

static void exhausted_ranges_are_found_again(void **state)
{
    const struct fixture *f = *state;
    struct uid_leases *l = must_open(f, "a");
    struct abx_err err = { 0 };
    uid_t base = 0, middle = 0;
    bool is_found = false;
    size_t n = 0;

    /* Real sandboxes come and go meanwhile, with uids of the first ranges. */
    while (uid_lease_take(l, &base, &err) == 0)
        if (++n == 3000)
            middle = base;
    assert_int_equal(err.code, ABX_RESOURCE_EXHAUSTED);
    assert_in_range(n, 3000, UID_RANGE_COUNT);
    assert_int_equal(uid_lease_release(l, middle, NULL), 0);
    while (!is_found && uid_lease_take(l, &base, &err) == 0)
        is_found = base == middle;
    assert_true(is_found);
    uid_leases_free(l);
}

static void ranges_of_dead_instances_are_taken_back(void **state)
{
    const struct fixture *f = *state;
    struct uid_leases *low = must_open(f, "low"), *dead = must_open(f, "dead"),
                      *idle = must_open(f, "idle"), *a;
    uid_t dead_base, idle_base, last = 0;
    struct abx_err err = { 0 };
    struct seen seen = { 0 };

    /* Real sandboxes on this machine have processes with uids of the first ranges. */
    for (int i = 0; i < 3000; i++)
        (void)must_take(low);
    dead_base = must_take(dead);
    idle_base = must_take(idle);
    uid_leases_free(dead);
    a = must_open(f, "a");
    for (uid_t base = 0; uid_lease_take(a, &base, &err) == 0;)
        last = base;
    assert_int_equal(err.code, ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(last, dead_base); /* only when nothing else was left, and `idle`'s never */
    assert_int_equal(uid_lease_each(idle, note, &seen, NULL), 0);
    assert_true(seen.n == 1 && seen.base[0] == idle_base);
    dead = must_open(f, "dead");
    seen.n = 0;
    assert_int_equal(uid_lease_each(dead, note, &seen, NULL), 0);
    assert_int_equal(seen.n, 0);
    uid_leases_free(dead);
    uid_leases_free(idle);
    uid_leases_free(low);
    uid_leases_free(a);
}

static void forked_workers_exclude_each_other(void **state)
{
    const struct fixture *f = *state;
    struct uid_leases *l = must_open(f, "a");
    struct seen seen = { 0 };
    pid_t pids[4];

    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            uid_t base;
            bool ok = true;

            for (int k = 0; k < 200 && ok; k++)
                ok = uid_lease_take(l, &base, NULL) == 0 &&
                     (k == 199 || uid_lease_release(l, base, NULL) == 0);
            _exit(ok ? 0 : 1);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int status = -1;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(uid_lease_each(l, note, &seen, NULL), 0);
    assert_int_equal(seen.n, 4);
    uid_leases_free(l);
}

static void foreign_files_are_refused(void **state)
{
    const struct fixture *f = *state;
    struct uid_leases *l = NULL, *kept;
    FILE *file = fopen(f->path, "we");

    assert_non_null(file);
    assert_true(fputs("something else\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(uid_leases_open(f->path, "a", &l, NULL), ABX_FAILED_PRECONDITION);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(uid_leases_open(f->path, "", &l, NULL), ABX_INVALID_ARGUMENT);

    kept = must_open(f, "a");
    assert_int_equal(chmod(f->path, 0666), 0);
    assert_int_equal(uid_leases_open(f->path, "a", &l, NULL), ABX_FAILED_PRECONDITION);
    assert_int_equal(unlink(f->path), 0); /* replaced under a user: two tables must not live */
    l = must_open(f, "b");
    assert_int_equal(uid_lease_take(kept, &(uid_t){ 0 }, NULL), ABX_FAILED_PRECONDITION);
    uid_leases_free(kept);
    uid_leases_free(l);
}

/* As in /proc, where a process with 65,536 groups has a file of 700 KB. */
static void status_is_read_as_far_as_the_uids(void **state)
{
    static char groups[1 << 20];
    static const char head[] = "Name:\tx\nState:\tS (sleeping)\nUid:\t7\t7\t7\t7\nGroups:\t";
    char dir[] = "/tmp/test-record-XXXXXX", text[PROCESS_STATUS_HEAD];
    _cleanup_(closep) int proc = -EBADF;
    int file;

    (void)state;
    assert_non_null(mkdtemp(dir));
    proc = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(proc >= 0);
    assert_int_equal(mkdirat(proc, "12", 0700), 0);
    file = openat(proc, "12/status", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    memset(groups, '1', sizeof groups);
    assert_int_equal(fd_write_all(file, head, strlen(head)), 0);
    assert_int_equal(fd_write_all(file, groups, sizeof groups), 0);
    fd_close(file);
    assert_int_equal(process_status_head(proc, "12", text), 0);
    assert_int_equal(strlen(text), PROCESS_STATUS_HEAD - 1);
    assert_memory_equal(text, head, strlen(head));
    errno = 0;
    assert_int_equal(process_status_head(proc, "13", text), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(path_remove_tree(proc, "12", NULL), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subids_take_what_they_overlap),
        cmocka_unit_test(status_is_read_as_far_as_the_uids),
        cmocka_unit_test_setup_teardown(ranges_are_distinct_and_kept_per_instance, setup, teardown),
        cmocka_unit_test_setup_teardown(exhausted_ranges_are_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_of_dead_instances_are_taken_back, setup, teardown),
        cmocka_unit_test_setup_teardown(forked_workers_exclude_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_files_are_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
