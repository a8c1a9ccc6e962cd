/* test_init.c - a stand-in for abx-guest (guest_abi.h) that only runs commands.
 *
 * PID 1 reaps. The daemon takes connections on the control channel, from outside the sandbox only;
 * each brings one message "<uid>\0<argv0>\0<argv1>\0..." with three descriptors, runs it with these
 * as its terminal ends and answers with the wait status as 4 bytes. Linked static.
 */
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "e2b/guest_abi.h"

#define ARGS_MAX 64

static char request[65536];

static _Noreturn void run_init(void)
{
    for (;;)
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            (void)pause();
}

static _Noreturn void run_command(const int fds[3], char *const argv[], unsigned uid)
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            _exit(126);
    if (setsid() < 0 || (uid != 0 && setgroups(0, NULL) < 0) || setresgid(uid, uid, uid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        _exit(126);
    (void)setenv("HOME", uid == 0 ? "/root" : "/tmp", 1);
    execvp(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

/* Takes the message apart; false when it is not one of ours. */
static int receive(int sock, int fds[3], char *argv[ARGS_MAX + 1], unsigned *uid)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = { request, sizeof request - 1 };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    size_t argc = 0;

    if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(3 * sizeof(int)))
        return -1;
    memcpy(fds, CMSG_DATA(h), 3 * sizeof(int));
    request[n] = '\0';
    *uid = 0;
    for (const char *p = request; *p >= '0' && *p <= '9'; p++)
        *uid = *uid * 10 + (unsigned)(*p - '0');
    for (char *p = request + strlen(request) + 1; p < request + n && argc < ARGS_MAX;
         p += strlen(p) + 1)
        argv[argc++] = p;
    argv[argc] = NULL;
    return argc > 0 ? 0 : -1;
}

static _Noreturn void serve(int sock)
{
    char *argv[ARGS_MAX + 1];
    int fds[3];
    unsigned uid;
    int status = -1;
    pid_t pid;

    if (receive(sock, fds, argv, &uid) < 0)
        _exit(1);
    pid = fork();
    if (pid == 0)
        run_command(fds, argv, uid);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        _exit(1);
    _exit(send(sock, &status, sizeof status, MSG_NOSIGNAL) == (ssize_t)sizeof status ? 0 : 1);
}

static _Noreturn void run_daemon(void)
{
    for (;;) {
        struct pollfd p = { .fd = GUEST_FD_CONTROL, .events = POLLIN };
        struct ucred peer = { .pid = -1 };
        socklen_t n = sizeof peer;
        int sock;

        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (poll(&p, 1, 1000) <= 0)
            continue;
        sock = accept4(GUEST_FD_CONTROL, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0)
            continue;
        /* Only who is outside of our pid namespace has pid 0. */
        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid == 0 &&
            fork() == 0)
            serve(sock);
        (void)close(sock);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        run_init();
    if (argc == 2 && strcmp(argv[1], "daemon") == 0)
        run_daemon();
    return 2;
}
