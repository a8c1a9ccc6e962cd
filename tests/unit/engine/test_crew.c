/* test_crew.c - jobs and their owners, with workers that are this program again: what happens to a job whose worker answers,
 * dies or is stopped.
 */
#include "test.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/crew.h"

static uv_loop_t loop;
static struct crew *crew;
static int exe_fd, lock_fd;

/* --- the worker --------------------------------------------------------------------------------- */

/* Answers JOB_SAVE, dies of JOB_TRASH, and never ends with anything else. */
static int work(void)
{
    static struct job_result ready = { .magic = JOB_MAGIC, .kind = JOB_READY };
    static struct job j;
    int fds[PACKET_FDS_MAX];
    size_t n_fds;

    if (packet_send(WORKER_FD, &ready, job_result_size(&ready), NULL, 0, 0) < 0)
        return 1;
    while (packet_receive(WORKER_FD, &j, sizeof j, fds, &n_fds, 0) > 0) {
        static struct job_result r;

        r = (struct job_result){ .magic = JOB_MAGIC, .kind = j.kind, .id = j.id };
        packet_close_fds(fds, n_fds);
        if (j.kind == JOB_TRASH)
            return 1;
        if (j.kind != JOB_SAVE)
            (void)pause();
        if (packet_send(WORKER_FD, &r, job_result_size(&r), NULL, 0, 0) < 0)
            return 1;
    }
    return 0;
}

/* --- the crew ----------------------------------------------------------------------------------- */

static void on_event(void *user, const struct job_result *event)
{
    (void)user;
    (void)event;
}

static void on_late(void *user)
{
    (void)user;
}

static int setup(void **state)
{
    static char name[] = "test_crew";
    static char *const args[] = { name, NULL };
    struct crew_opts opts = { .loop = &loop,
                              .argv = args,
                              .count = { [WORKER_SAVE] = 1, [WORKER_CONTROL] = 1 },
                              .on_event = on_event,
                              .on_late = on_late };
    struct abx_err err;

    (void)state;
    crew = NULL;
    opts.exe_fd = exe_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    opts.lock_fd = lock_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return uv_loop_init(&loop) < 0 || exe_fd < 0 || lock_fd < 0 ? -1
                                                                : crew_start(&opts, &crew, &err);
}

static void stop(void)
{
    assert_true(crew_stop(crew));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    crew_free(TAKE_PTR(crew));
}

static int teardown(void **state)
{
    (void)state;
    if (crew)
        stop();
    fd_close(exe_fd);
    fd_close(lock_fd);
    return uv_loop_close(&loop);
}

/* --- owners ------------------------------------------------------------------------------------- */

static unsigned n_done, n_dropped;
static int last_code;

struct request {
    char text[64];
};

static void on_done(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    (void)fds;
    (void)n_fds;
    n_done++;
    last_code = r->err.code;
    free(user);
}

static void drop(void *user)
{
    n_dropped++;
    free(user);
}

static void submit(enum worker_class class, enum job_kind kind)
{
    struct request *q = calloc(1, sizeof *q);
    struct job j = { .kind = kind };

    assert_non_null(q);
    assert_int_equal(
        crew_submit(crew, class, &j, NULL, 0, (struct job_owner){ on_done, drop, q }, NULL), 0);
}

static void run_until_done(unsigned n)
{
    int64_t deadline = time_mono_ns() + 60 * NSEC_PER_SEC;

    while (n_done < n && time_mono_ns() < deadline)
        (void)uv_run(&loop, UV_RUN_ONCE); /* the crew's clock runs while there are jobs */
    assert_int_equal(n_done, n);
}

static void an_answered_job_goes_to_its_owner(void **state)
{
    (void)state;
    n_done = n_dropped = 0;
    for (int i = 0; i < 3; i++)
        submit(WORKER_SAVE, JOB_SAVE);
    run_until_done(3);
    assert_int_equal(last_code, 0);
    stop();
    assert_int_equal(n_dropped, 0);
}

static void a_lost_worker_fails_its_job_and_has_a_successor(void **state)
{
    (void)state;
    n_done = n_dropped = 0;
    log_set_level(LOG_ERROR);
    submit(WORKER_SAVE, JOB_TRASH);
    submit(WORKER_SAVE, JOB_SAVE);
    run_until_done(1);
    assert_int_equal(last_code, ABX_UNAVAILABLE);
    run_until_done(2);
    assert_int_equal(last_code, 0);
    stop();
    assert_int_equal(n_dropped, 0);
}

/* One is at it, two wait for it, one needs nothing. */
static void jobs_under_way_are_dropped_at_a_stop(void **state)
{
    struct job j = { .kind = JOB_FREEZE };

    (void)state;
    n_done = n_dropped = 0;
    for (int i = 0; i < 3; i++)
        submit(WORKER_CONTROL, JOB_FREEZE);
    assert_int_equal(crew_submit(crew, WORKER_CONTROL, &j, NULL, 0,
                                 (struct job_owner){ on_done, NULL, NULL }, NULL),
                     0);
    assert_int_equal(crew_load(crew, WORKER_CONTROL), 4);
    stop();
    assert_int_equal(n_done, 0);
    assert_int_equal(n_dropped, 3);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answered_job_goes_to_its_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_worker_fails_its_job_and_has_a_successor, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(jobs_under_way_are_dropped_at_a_stop, setup, teardown),
    };

    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return work();
    return cmocka_run_group_tests_name("engine_crew", tests, NULL, NULL);
}
