/* test_report.c - what is told of command lines, and when: cut, without credentials, over a socket that may not be there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/str.h"
#include "e2b/guest_abi.h"
#include "guest/daemon/report.h"
#include "schema/ipc.pb-c.h"
#include "wire/rpc.h"

static void credentials_of_urls_are_left_out(void **state)
{
    static const char *const rows[][2] = {
        { "git clone https://x:secret@host.org/a.git", "git clone https://***@host.org/a.git" },
        { "https://token@host/a@b", "https://***@host/a@b" },
        { "https://a:p@ss@host", "https://***@host" },
        { "a=http://u:p@x b='ssh://me:pw@y'", "a=http://***@x b='ssh://***@y'" },
        { "https://host/path@2 me@host.org", "https://host/path@2 me@host.org" },
        { "://://u:p@x", "://://***@x" },
        { "curl http://host?q=a@b#c@d", "curl http://host?q=a@b#c@d" },
        { "printf %s 'protocol=https\nhost=h\nusername=u\npassword=a '\"'\"'b c\n\n' | git "
          "credential approve",
          "printf %s 'protocol=https\nhost=h\nusername=u\npassword=***\n\n' | git credential "
          "approve" },
        { "curl -H 'Authorization: Bearer abc' http://h", "curl -H 'Authorization:***" },
        { "GITHUB_TOKEN=abc E2B_API_KEY=def gh pr list",
          "GITHUB_TOKEN=*** E2B_API_KEY=*** gh pr list" },
        { "aws_secret_access_key= x", "aws_secret_access_key= x" },
        { "", "" },
    };
    char to[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        report_text(to, sizeof to, rows[i][0]);
        assert_string_equal(to, rows[i][1]);
    }
}

static void texts_are_cut_at_characters_and_say_so(void **state)
{
    char to[16], long_one[] = "https://user:a-very-long-password-that-would-be-cut@host";

    (void)state;
    report_text(to, sizeof to, "123456789012345");
    assert_string_equal(to, "123456789012345");
    report_text(to, sizeof to, "1234567890123456");
    assert_string_equal(to, "123456789012...");
    report_text(to, sizeof to, "12345678901\xc3\xa4\xc3\xa4\xc3\xa4");
    assert_string_equal(to, "12345678901...");
    report_text(to, sizeof to, "a\xff\xc3");
    assert_string_equal(to, "a??");
    report_text(to, 4, "abcd");
    assert_string_equal(to, "...");
    report_text(to, sizeof to, long_one);
    assert_null(strstr(to, "very"));
    for (size_t size = 4; size < 40; size++) {
        char small[40];

        memset(small, 'x', sizeof small);
        report_text(small, size, "\xc3\xa4 https://u:p@host \xe2\x82\xac \xff");
        assert_in_range(strnlen(small, sizeof small), 3, size - 1);
        assert_true(utf8_is_valid(slice_str(small)));
    }
}

/* --- over the socket ---------------------------------------------------------------------------- */

static char name[32];

static int host_open(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    size_t n = strlen(name);

    memcpy(a.sun_path + 1, name, n);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
                     0);
    return fd;
}

/* Runs the loop until a report is there; the caller's. */
static Abx__Ipc__GuestReport *host_take(int fd, uv_loop_t *loop)
{
    static uint8_t bytes[GUEST_REPORT_MAX];
    ProtobufCMessage *m = NULL;
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof bytes, 0)) < 0) {
        assert_int_equal(errno, EAGAIN);
        (void)uv_run(loop, UV_RUN_ONCE);
    }
    assert_int_equal(
        rpc_proto_decode(&abx__ipc__guest_report__descriptor, slice_of(bytes, (size_t)n), &m, NULL),
        RPC_OK);
    return (Abx__Ipc__GuestReport *)m;
}

static void start(struct reports *r, pid_t pid, char *cmd, char **args, size_t n)
{
    Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;

    config.cmd = cmd;
    config.args = args;
    config.n_args = n;
    report_start(r, pid, &config, "user");
}

static void lines_wait_for_a_host_and_what_is_too_much_is_counted(void **state)
{
    enum { LINES = 1000 };
    char cmd[] = "/bin/bash", flag[] = "-c", script[] = "echo hi", *args[] = { flag, script };
    unsigned n_told = 0, n_lines = 0, n_all = LINES + 2;
    static struct reports *r;
    static uv_loop_t loop;
    int host;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(reports_new(&loop, name, &r, NULL), 0);
    start(r, 7, cmd, args, 2);
    report_end(r, 7, cmd, 3 << 8, 12, false);
    host = host_open();
    for (unsigned i = 0; i < LINES; i++)
        start(r, 100, cmd, args, 2);
    /* First all that waited, in order; the rest behind it, or counted. */
    while (n_told < n_all) {
        Abx__Ipc__GuestReport *report = host_take(host, &loop);

        assert_int_equal(report->version, 1);
        if (n_told == 0) {
            const Abx__Ipc__ProcessLine *a = report->lines[0], *b = report->lines[1];

            assert_true(!a->is_end && a->pid == 7 && a->n_args == 2);
            assert_string_equal(a->cmd, "/bin/bash");
            assert_string_equal(a->args[1], "echo hi");
            assert_string_equal(a->user, "user");
            assert_true(b->is_end && b->exit_code == 3 && b->duration_ms == 12);
            assert_string_equal(b->status, "exit status 3");
            start(r, 200, cmd, args, 2); /* now it goes at once */
            n_all++;
        }
        n_lines += (unsigned)report->n_lines;
        n_told += (unsigned)report->n_lines + (unsigned)report->dropped;
        rpc_message_free(&report->base);
    }
    assert_int_equal(n_told, n_all);
    assert_in_range(n_lines, 100, LINES); /* 16 KiB hold over 200 */
    fd_close(host);
}

static void arguments_are_bounded_together(void **state)
{
    static char big[100000], cmd[] = "/bin/sh";
    Abx__Ipc__GuestReport *report;
    char *args[300];
    static struct reports *r;
    static uv_loop_t loop;
    int host;

    (void)state;
    memset(big, 'a', sizeof big - 1);
    for (size_t i = 0; i < ARRAY_SIZE(args); i++)
        args[i] = i % 2 ? big : cmd;
    assert_int_equal(uv_loop_init(&loop), 0);
    host = host_open();
    assert_int_equal(reports_new(&loop, name, &r, NULL), 0);
    start(r, 9, big, args, ARRAY_SIZE(args));
    report = host_take(host, &loop);
    assert_int_equal(report->n_lines, 1);
    assert_in_range(protobuf_c_message_get_packed_size(&report->base), 300, 1200);
    assert_string_equal(report->lines[0]->args[0], cmd);
    assert_string_equal(report->lines[0]->args[1] + strlen(report->lines[0]->args[1]) - 3, "...");
    rpc_message_free(&report->base);
    fd_close(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_of_urls_are_left_out),
        cmocka_unit_test(texts_are_cut_at_characters_and_say_so),
        cmocka_unit_test(lines_wait_for_a_host_and_what_is_too_much_is_counted),
        cmocka_unit_test(arguments_are_bounded_together),
    };
    (void)snprintf(name, sizeof name, "abx-test-report-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
