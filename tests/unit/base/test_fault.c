/* Points of failure: what a file may look like, counts, actions. */
#include "test_dir.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"

static char path[300];
static int file_fd = -EBADF;

/* What the points do from now on. */
static void set_text(const char *text)
{
    char all[FAULT_FILE_BYTES];

    memset(all, '\n', sizeof all);
    memcpy(all, text, strlen(text));
    assert_int_equal(pwrite(file_fd, all, sizeof all, 0), sizeof all);
}

static char count_of(const char *name)
{
    char all[FAULT_FILE_BYTES + 1] = "";
    const char *at;

    assert_int_equal(pread(file_fd, all, FAULT_FILE_BYTES, 0), FAULT_FILE_BYTES);
    at = strstr(all, name);
    assert_non_null(at);
    return at[strlen(name) + 1];
}

static int setup(void **state)
{
    const struct test_dir *d;

    if (dir_setup(state) < 0)
        return -1;
    d = *state;
    (void)snprintf(path, sizeof path, "%s/faults", d->path);
    file_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_fd < 0)
        return -1;
    set_text("");
    return 0;
}

static int teardown(void **state)
{
    fd_close(file_fd);
    return dir_teardown(state);
}

static void without_a_file_points_do_nothing(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(unsetenv("ABX_FAULTS"), 0);
    assert_int_equal(fault_init(&err), 0);
    assert_int_equal(fault_at("some.step", &err), 0);
}

static void only_a_file_of_ours_of_that_size_is_taken(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(fault_open("/nowhere/at-all", &err), ABX_NOT_FOUND);
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(fault_open(path, &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(chmod(path, 0602), 0);
    assert_int_equal(fault_open(path, &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(ftruncate(file_fd, FAULT_FILE_BYTES - 1), 0);
    assert_int_equal(fault_open(path, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "4096 bytes"));
    assert_int_equal(ftruncate(file_fd, FAULT_FILE_BYTES + 1), 0);
    assert_int_equal(fault_open(path, &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(fault_open("/dev/null", &err), ABX_INVALID_ARGUMENT);
    assert_int_equal(fault_at("some.step", &err), 0);
}

static void a_point_fails_as_often_as_it_is_told(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(fault_open(path, &err), 0);
    assert_int_equal(fault_at("some.step", &err), 0);
    set_text("some.other 9 fail\nsome.step 2 fail\nsome.step2 * fail\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fault_at("some.step", &err), ABX_INTERNAL);
        assert_string_equal(err.msg, "injected fault");
    }
    assert_int_equal(fault_at("some.step", &err), 0);
    assert_int_equal(count_of("some.step"), '0');
    assert_int_equal(count_of("some.other"), '9');
    for (int i = 0; i < 20; i++)
        assert_int_equal(fault_at("some.step2", NULL), ABX_INTERNAL);
    assert_int_equal(fault_at("some", &err), 0);
    assert_int_equal(fault_at("some.step22", &err), 0);
}

static void nonsense_in_the_file_is_no_fault(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(fault_open(path, &err), 0);
    set_text("some.step\nsome.step 1\nsome.step x fail\nsome.step  1 fail\n");
    assert_int_equal(fault_at("some.step", &err), 0);
}

static int count_call(int *calls, int r)
{
    ++*calls;
    return r;
}

static void a_step_is_named_whatever_fails(void **state)
{
    struct abx_err err;
    int calls = 0;

    (void)state;
    assert_int_equal(fault_open(path, &err), 0);
    set_text("some.step 1 fail\n");
    assert_int_equal(FAULT_STEP("some.step", &err, count_call(&calls, 0)), ABX_INTERNAL);
    assert_string_equal(err.msg, "some.step: injected fault");
    assert_int_equal(calls, 0);
    assert_int_equal(FAULT_STEP("some.step", &err, count_call(&calls, 0)), 0);
    assert_int_equal(FAULT_STEP("some.step", &err, err_set(&err, ABX_ABORTED, "no luck")),
                     ABX_ABORTED);
    assert_string_equal(err.msg, "some.step: no luck");
    assert_int_equal(calls, 1);
}

static void a_point_ends_the_process_once(void **state)
{
    struct abx_err err;

    (void)state;
    assert_int_equal(fault_open(path, &err), 0);
    set_text("some.step 1 kill\n");
    for (int i = 0; i < 2; i++) { /* the count outlives the first one */
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
            _exit(fault_at("some.step", NULL) == 0 ? 7 : 8);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, i == 0 ? SIGKILL : 7 << 8);
    }
}

static void *pass(void *done)
{
    assert_int_equal(fault_at("some.step", NULL), 0);
    __atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void a_point_holds_until_its_line_is_gone(void **state)
{
    const struct timespec ms = { .tv_nsec = 1000000 };
    struct abx_err err;
    bool is_done = false;
    pthread_t thread;

    (void)state;
    assert_int_equal(fault_open(path, &err), 0);
    set_text("some.step 1 stall\n");
    assert_int_equal(pthread_create(&thread, NULL, pass, &is_done), 0);
    for (int i = 0; i < 20000 && count_of("some.step") != '0'; i++)
        (void)nanosleep(&ms, NULL);
    assert_int_equal(count_of("some.step"), '0');
    assert_int_equal(fault_at("some.step", &err), 0); /* the count was for one */
    assert_false(__atomic_load_n(&is_done, __ATOMIC_ACQUIRE));
    set_text("");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_done);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(without_a_file_points_do_nothing),     TEST(only_a_file_of_ours_of_that_size_is_taken),
        TEST(a_point_fails_as_often_as_it_is_told), TEST(nonsense_in_the_file_is_no_fault),
        TEST(a_step_is_named_whatever_fails),       TEST(a_point_ends_the_process_once),
        TEST(a_point_holds_until_its_line_is_gone),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("base_fault", tests, NULL, NULL);
}
