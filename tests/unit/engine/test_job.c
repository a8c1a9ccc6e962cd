/* test_job.c - the worker protocol: jobs as packets, message sizes, names. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "engine/job.h"

static int pair[2];

static int setup(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
    (void)state;
    fd_close(TAKE_FD(pair[0]));
    fd_close(TAKE_FD(pair[1]));
    return 0;
}

static void job_arrives_with_its_descriptors(void **state)
{
    struct job out = { .magic = JOB_MAGIC, .kind = JOB_CREATE, .id = 7 }, in = { 0 };
    int fds[PACKET_FDS_MAX], send_fds[2] = { pair[0], open("/", O_PATH | O_CLOEXEC) };
    struct stat want, got;
    size_t n_fds;

    (void)state;
    memcpy(out.create.layers, "/a\0/b", 6);
    assert_int_equal(packet_send(pair[0], &out, job_size(&out), send_fds, 2, 0), 0);
    assert_int_equal(packet_receive(pair[1], &in, sizeof in, fds, &n_fds, 0), job_size(&out));
    assert_int_equal(n_fds, 2);
    assert_memory_equal(&in, &out, sizeof in);
    assert_int_equal(fstat(send_fds[1], &want), 0);
    assert_int_equal(fstat(fds[1], &got), 0);
    assert_true(want.st_ino == got.st_ino);
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    packet_close_fds(fds, n_fds);
    assert_int_equal(fds[0], -EBADF);
    fd_close(send_fds[1]);
}

static void every_kind_has_room_for_its_result(void **state)
{
    struct job_result r = { 0 };
    struct job j = { 0 };

    (void)state;
    r.kind = JOB_AUDIT;
    assert_int_equal(job_result_size(&r), sizeof r);
    for (int kind = JOB_READY; kind <= JOB_TRASH; kind++) {
        r.kind = j.kind = (enum job_kind)kind;
        assert_in_range(job_result_size(&r), offsetof(struct job_result, u) + sizeof r.u.usage,
                        sizeof r);
        assert_in_range(job_size(&j), offsetof(struct job, create), sizeof j);
    }
    /* A message that claims to be of no kind is shorter than any real one. */
    r.kind = (enum job_kind)0;
    assert_int_equal(job_result_size(&r), offsetof(struct job_result, u));
}

static void class_names_come_back(void **state)
{
    enum worker_class c;

    (void)state;
    for (int i = 0; i < WORKER_CLASSES_; i++) {
        assert_true(worker_class_from_name(worker_class_name((enum worker_class)i), &c));
        assert_int_equal(c, i);
    }
    assert_false(worker_class_from_name("", &c));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(job_arrives_with_its_descriptors),
        T(every_kind_has_room_for_its_result),
        T(class_names_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
