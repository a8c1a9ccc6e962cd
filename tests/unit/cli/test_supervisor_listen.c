/* test_supervisor_listen.c - listen addresses, shared listeners, unix sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/supervisor_listen.h"
#include "log_pipe.h"

static struct predecessor nobody; /* was killed */

static void address_forms(void **state)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
        bool is_loopback;
    } good[] = {
        { "127.0.0.1:8490", "127.0.0.1", 8490, true },
        { "localhost:1", "127.0.0.1", 1, true },
        { "[::1]:8490", "::1", 8490, true },
        { "0.0.0.0:80", "0.0.0.0", 80, false },
        { ":80", "0.0.0.0", 80, false },
        { "127.0.0.1:0", "127.0.0.1", 0, true },
    };
    static const char *const bad[] = {
        "",
        "8490",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "example.com:80",
        "::1:80",
        "[::1:80",
        "[127.0.0.1]:80",
        "1.2.3.4.5:80",
    };
    struct listen_address a;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(listen_address_parse("--listen", good[i].text, &a, NULL), 0);
        assert_string_equal(a.host, good[i].host);
        assert_int_equal(a.port, good[i].port);
        assert_int_equal(listen_address_is_loopback(&a), good[i].is_loopback);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct abx_err err;

        assert_int_equal(listen_address_parse("--listen", bad[i], &a, &err), ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.msg, "--listen"));
    }
}

static void sockets_share_the_port_that_was_chosen(void **state)
{
    struct listen_address a = { .host = "127.0.0.1" };
    int fds[3];

    (void)state;
    assert_int_equal(listen_public(&a, 3, &nobody, fds, NULL), 0);
    assert_int_not_equal(a.port, 0);
    for (size_t i = 0; i < 3; i++)
        fd_close(fds[i]);
}

static void taken_port_names_its_holder(void **state)
{
    struct listen_address a = { .host = "127.0.0.1" }, b;
    struct abx_err err;
    char pid[32];
    int fd, second;

    (void)state;
    assert_int_equal(listen_public(&a, 1, &nobody, &fd, NULL), 0);
    b = a;
    assert_int_equal(listen_public(&b, 1, &nobody, &second, &err), ABX_FAILED_PRECONDITION);
    (void)snprintf(pid, sizeof pid, "process %ld (test_cli", (long)getpid());
    assert_non_null(strstr(err.msg, pid));
    fd_close(fd);
    /* Where there is IPv6, one for all addresses has those of IPv4, too. */
    a = (struct listen_address){ .host = "::" };
    if (listen_public(&a, 1, &nobody, &fd, NULL) < 0) {
        print_message("no IPv6\n");
        return;
    }
    b = (struct listen_address){ .host = "127.0.0.1", .port = a.port };
    assert_int_equal(listen_public(&b, 1, &nobody, &second, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, pid));
    (void)snprintf(b.host, sizeof b.host, "::1");
    assert_int_equal(listen_public(&b, 1, &nobody, &second, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, pid));
    fd_close(fd);
}

/* Another process listens on the same port of every address but one: it is not the holder. */
static void the_holder_is_that_of_the_address(void **state)
{
    struct listen_address mine = { .host = "127.0.0.1" }, again;
    struct abx_err err;
    char own[32], word;
    int others[32], pipes[2], fd, second;
    pid_t child;

    (void)state;
    assert_int_equal(listen_public(&mine, 1, &nobody, &fd, NULL), 0);
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct listen_address a = { .port = mine.port };

        fd_close(fd);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < 32; i++) {
            (void)snprintf(a.host, sizeof a.host, "127.0.0.%d", i + 2);
            if (listen_public(&a, 1, &nobody, &others[i], NULL) < 0)
                _exit(1);
        }
        (void)fd_write_all(pipes[1], "", 1);
        (void)pause();
        _exit(0);
    }
    fd_close(pipes[1]);
    assert_int_equal(fd_read_all(pipes[0], &word, 1), 1);
    fd_close(pipes[0]);
    again = mine;
    assert_int_equal(listen_public(&again, 1, &nobody, &second, &err), ABX_FAILED_PRECONDITION);
    (void)snprintf(own, sizeof own, "process %ld (", (long)getpid());
    assert_non_null(strstr(err.msg, own));
    again = (struct listen_address){ .host = "127.0.0.9", .port = mine.port };
    assert_int_equal(listen_public(&again, 1, &nobody, &second, &err), ABX_FAILED_PRECONDITION);
    (void)snprintf(own, sizeof own, "process %ld (", (long)child);
    assert_non_null(strstr(err.msg, own));
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    fd_close(fd);
}

/* Listens where it is told, so that no process has the socket: it is in a message that nobody has read. Ends when it is waited
 * for, and with it the message. */
static pid_t start_dying(const struct log_pipe *log, uint16_t *ret_port)
{
    struct listen_address a = { .host = "127.0.0.1" };
    char control[CMSG_SPACE(sizeof(int))] = "", word = 0;
    struct iovec iov = { &word, 1 };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
    };
    int pair[2], fd, pipes[2];
    struct cmsghdr *head;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child > 0) {
        fd_close(pipes[1]);
        assert_int_equal(fd_read_all(pipes[0], ret_port, sizeof *ret_port), sizeof *ret_port);
        fd_close(pipes[0]);
        return child;
    }
    if (listen_public(&a, 1, &nobody, &fd, NULL) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        _exit(1);
    head = CMSG_FIRSTHDR(&m);
    if (!head)
        _exit(1);
    *head = (struct cmsghdr){ CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(pair[0], &m, 0) != 1)
        _exit(1);
    fd_close(fd);
    (void)fd_write_all(pipes[1], &a.port, sizeof a.port);
    log_pipe_await(log, "waiting for what");
    _exit(0);
}

static void a_port_of_a_killed_predecessor_is_waited_for(void **state)
{
    struct predecessor killed = { .was_killed = true };
    struct listen_address a = { .host = "127.0.0.1" };
    struct log_pipe log;
    struct abx_err err;
    int fds[2], r;
    pid_t child;

    (void)state;
    killed.until_ns = time_mono_ns() + 60 * NSEC_PER_SEC; /* as long as a busy machine takes */
    log_pipe_open(&log);
    child = start_dying(&log, &a.port);
    assert_int_equal(listen_public(&a, 2, &nobody, fds, &err), ABX_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, "is taken by another process"));
    log_pipe_begin(&log);
    r = listen_public(&a, 2, &killed, fds, NULL);
    log_pipe_end(&log);
    assert_int_equal(r, 0);
    assert_non_null(strstr(killed.told, "port "));
    assert_int_equal(waitpid(child, NULL, 0), child);
    fd_close(fds[0]);
    fd_close(fds[1]);
    /* Not for ever. */
    log_pipe_open(&log);
    child = start_dying(&log, &a.port);
    killed.until_ns = 1;
    assert_int_equal(listen_public(&a, 1, &killed, fds, &err), ABX_FAILED_PRECONDITION);
    log_pipe_end(&log);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_port_of_another_process_is_not_waited_for(void **state)
{
    struct predecessor killed = { .was_killed = true };
    struct listen_address a = { .host = "127.0.0.1" };
    struct abx_err err;
    int fd, second;

    (void)state;
    assert_int_equal(listen_public(&a, 1, &nobody, &fd, NULL), 0);
    assert_int_equal(listen_public(&a, 1, &killed, &second, &err), ABX_FAILED_PRECONDITION);
    assert_string_equal(killed.told, "");
    fd_close(fd);
}

static void unix_socket_replaces_a_stale_one(void **state)
{
    char dir[] = "/tmp/abx-listen-XXXXXX";
    struct stat st;
    int dirfd, first, second;

    (void)state;
    assert_non_null(mkdtemp(dir));
    dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(listen_unix(dirfd, "s", SOCK_STREAM, geteuid(), &first, NULL), 0);
    fd_close(first);
    assert_int_equal(listen_unix(dirfd, "s", SOCK_SEQPACKET, geteuid(), &second, NULL), 0);
    assert_int_equal(fstatat(dirfd, "s", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    fd_close(second);
    (void)unlinkat(dirfd, "s", 0);
    fd_close(dirfd);
    (void)rmdir(dir);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_forms),
        cmocka_unit_test(sockets_share_the_port_that_was_chosen),
        cmocka_unit_test(taken_port_names_its_holder),
        cmocka_unit_test(the_holder_is_that_of_the_address),
        cmocka_unit_test(a_port_of_a_killed_predecessor_is_waited_for),
        cmocka_unit_test(a_port_of_another_process_is_not_waited_for),
        cmocka_unit_test(unix_socket_replaces_a_stale_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
