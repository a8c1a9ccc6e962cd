/* fake_guest.c - the smallest image that keeps to e2b/guest_abi.h, for tests of the engine: PID 1
 * reaps and ends on the daemon's word, the daemon answers one command line per connection to the envd
 * port:
 *
 *     hostname   identity (hex of the last GuestFrame)   uid   pids   exit N   fork N   eat MB
 *
 * Static, no library but libc.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "e2b/guest_abi.h"

static uint8_t identity[65536];
static size_t identity_n;

/* --- PID 1 -------------------------------------------------------------------------------------- */

static int init_main(void)
{
    for (;;) {
        struct pollfd p = { GUEST_FD_INIT, POLLIN, 0 };
        uint8_t code;

        (void)poll(&p, 1, 1000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (p.revents && recv(GUEST_FD_INIT, &code, 1, MSG_DONTWAIT) == 1)
            return code;
    }
}

/* --- daemon ------------------------------------------------------------------------------------- */

static void accept_identity(void)
{
    int fd = accept4(GUEST_FD_CONTROL, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer = { .pid = -1 };
    socklen_t n = sizeof peer;
    ssize_t got;

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid == 0) {
        got = recv(fd, identity, sizeof identity, 0);
        identity_n = got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
}

static int count_pids(void)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)) != NULL)
        n += e->d_name[0] >= '1' && e->d_name[0] <= '9';
    if (d)
        (void)closedir(d);
    return n;
}

static int number(const char *s)
{
    int n = 0;

    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (*s - '0');
    return n;
}

/* Processes of sessions of their own that stay. */
static void fork_some(int n)
{
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            (void)setsid();
            for (;;)
                (void)pause();
        }
}

static void eat(int megabytes)
{
    for (int i = 0; i < megabytes; i++) {
        char *p = malloc(1 << 20);

        if (p)
            memset(p, 1, 1 << 20);
    }
}

static void answer(FILE *f, char *line)
{
    char name[128] = "";
    uint8_t code;

    if (strcmp(line, "hostname") == 0) {
        (void)gethostname(name, sizeof name - 1);
        (void)fprintf(f, "%s\n", name);
    } else if (strcmp(line, "identity") == 0) {
        for (size_t i = 0; i < identity_n; i++)
            (void)fprintf(f, "%02x", identity[i]);
        (void)fprintf(f, "\n");
    } else if (strcmp(line, "uid") == 0) {
        (void)fprintf(f, "%d\n", (int)getuid());
    } else if (strcmp(line, "pids") == 0) {
        (void)fprintf(f, "%d\n", count_pids());
    } else if (strncmp(line, "fork ", 5) == 0) {
        fork_some(number(line + 5));
        (void)fprintf(f, "ok\n");
    } else if (strncmp(line, "eat ", 4) == 0) {
        eat(number(line + 4));
        (void)fprintf(f, "ok\n");
    } else if (strncmp(line, "exit ", 5) == 0) {
        code = (uint8_t)number(line + 5);
        (void)send(GUEST_FD_DAEMON, &code, 1, 0);
    } else {
        (void)fprintf(f, "unknown\n");
    }
}

static void serve_one(void)
{
    int fd = accept4(GUEST_FD_ENVD, NULL, NULL, SOCK_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "r+") : NULL;
    char line[256];

    if (!f)
        return;
    if (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        (void)fseek(f, 0, SEEK_CUR);
        answer(f, line);
    }
    (void)fclose(f);
}

static int daemon_main(void)
{
    for (;;) {
        struct pollfd p[] = { { GUEST_FD_CONTROL, POLLIN, 0 }, { GUEST_FD_ENVD, POLLIN, 0 } };

        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return 1;
        if (p[0].revents)
            accept_identity();
        if (p[1].revents)
            serve_one();
    }
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "init") == 0 ? init_main() : daemon_main();
}
