/* init.c - PID 1 of a sandbox: reaping, forking supervisors, restarting the daemon.
 *
 * It holds no state but the daemon's pid and never waits on the daemon: messages to it are sent
 * without blocking, and the work of a start happens in the forked supervisor. No libuv, no heap.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/packet.h"
#include "e2b/guest_abi.h"
#include "guest/guest.h"
#include "guest/init/supervisor.h"

#define BACKOFF_FIRST_MS 10
#define BACKOFF_MAX_MS 2000
#define LIVED_LONG_MS 5000 /* a daemon that lived this long is restarted at once */

static union {
    uint32_t kind;
    struct init_spawn spawn;
    struct init_hello hello;
    char bytes[sizeof(struct init_spawn) + INIT_INLINE_MAX];
} request;

static pid_t daemon_pid; /* 0 = the engine made it and it has not said hello yet, -1 = dead */
static int64_t daemon_started_ms;
static int64_t restart_at_ms;
static int backoff_ms = BACKOFF_FIRST_MS;
static bool saw_signal_death;

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void on_child(int sig)
{
    (void)sig; /* only there to end ppoll */
}

static void signals_init(sigset_t *ret_wait_mask)
{
    struct sigaction sa = { .sa_handler = on_child }, dfl = { .sa_handler = SIG_DFL };
    sigset_t blocked;

    /* The engine may have ignored some, and commands would inherit that. */
    for (int sig = 1; sig < NSIG; sig++)
        (void)sigaction(sig, &dfl, NULL);
    (void)sigaction(SIGCHLD, &sa, NULL);
    (void)sigemptyset(&blocked);
    *ret_wait_mask = blocked;
    (void)sigaddset(&blocked, SIGCHLD);
    (void)sigaddset(&blocked, SIGUSR1); /* HELLO sends it to the whole group, this process too */
    (void)sigaddset(ret_wait_mask, SIGUSR1);
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
}

static void send_event(const struct init_event *ev)
{
    /* A daemon that leaves 200 KiB of messages unread is dying or hung; it learns the rest from the
     * supervisors when it, or its successor, says hello. */
    (void)packet_send(GUEST_FD_INIT, ev, sizeof(*ev), NULL, 0, MSG_DONTWAIT);
}

/* The identity for a daemon to come, in a memfd. */
static bool keep(ssize_t n, const int *fds, size_t n_fds)
{
    if (n != (ssize_t)sizeof(request.hello) || request.kind != INIT_KEEP || n_fds != 1)
        return false;
    (void)dup2(fds[0], INIT_FD_KEPT); /* without cloexec */
    return true;
}

static void daemon_died(void)
{
    int64_t now = now_ms();
    int fds[PACKET_FDS_MAX];
    size_t n_fds;
    ssize_t n;

    daemon_pid = -1;
    backoff_ms = now - daemon_started_ms > LIVED_LONG_MS
                     ? 0
                     : MIN(MAX(backoff_ms * 2, BACKOFF_FIRST_MS), BACKOFF_MAX_MS);
    restart_at_ms = now + backoff_ms;
    /* Requests of the dead daemon: nobody would read what such commands say. The identity counts: it
     * was claimed, and is told once. */
    while ((n = packet_receive(GUEST_FD_INIT, request.bytes, sizeof(request), fds, &n_fds,
                               MSG_DONTWAIT)) > 0 ||
           (n < 0 && errno == EBADMSG)) {
        (void)keep(n, fds, n_fds);
        packet_close_fds(fds, n_fds);
    }
}

static void daemon_start(void)
{
    static char arg0[] = "abx-guest", arg1[] = "daemon";
    char *argv[] = { arg0, arg1, NULL };
    sigset_t none;
    pid_t pid = fork();
    int fd;

    daemon_started_ms = now_ms();
    if (pid < 0) {
        restart_at_ms = daemon_started_ms + BACKOFF_MAX_MS;
        return;
    }
    if (pid > 0) {
        daemon_pid = pid;
        return;
    }
    /* Missing on hosts without a v2 tree: then it stays in `user`, degraded. */
    fd = open(GUEST_CGROUP_GUEST "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "0", 1);
        (void)close(fd);
    }
    (void)setsid();
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)syscall(SYS_execveat, GUEST_FD_SELF, "", argv, environ, AT_EMPTY_PATH);
    _exit(127);
}

static void reap(void)
{
    struct init_event ev;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        /* kill -STOP -1 by root of the sandbox: a daemon or supervisor that stands still could not even
         * be asked to go on. */
        if (WIFSTOPPED(status)) {
            (void)kill(pid, SIGCONT);
            continue;
        }
        /* Before the first hello there are no children but the daemon. */
        if (daemon_pid == 0 || pid == daemon_pid) {
            daemon_died();
            continue;
        }
        /* A supervisor ends by a signal only when someone kills it (kill -9 -1 by sandbox root);
         * from then on its command's end can only be told from here. */
        saw_signal_death = saw_signal_death || WIFSIGNALED(status);
        if (!saw_signal_death)
            continue;
        memset(&ev, 0, sizeof(ev));
        ev.kind = INIT_REAPED;
        ev.pid = pid;
        ev.status = status;
        send_event(&ev);
    }
    if (pid < 0 && errno == ECHILD && daemon_pid == 0)
        daemon_died(); /* started without a daemon */
}

static void fail(uint32_t seq, int error)
{
    struct init_event ev = { .kind = INIT_FAILED, .seq = seq, .step = INIT_STEP_FORK };

    ev.error = error;
    send_event(&ev);
}

static void spawn(size_t n, const int *fds, size_t n_fds)
{
    const struct init_spawn *req = &request.spawn;
    size_t inline_size = req->flags & INIT_MEMFD ? 0 : req->strings_size;
    pid_t pid;

    if (n < sizeof(*req) || n - sizeof(*req) != inline_size) {
        fail(n < sizeof(*req) ? 0 : req->seq, EPROTO);
        return;
    }
    pid = fork();
    if (pid == 0)
        supervisor_run(GUEST_FD_INIT, req, request.bytes + sizeof(*req), fds, n_fds);
    if (pid < 0)
        fail(req->seq, errno);
}

static void request_handle(void)
{
    int fds[PACKET_FDS_MAX];
    size_t n_fds;
    ssize_t n =
        packet_receive(GUEST_FD_INIT, request.bytes, sizeof(request), fds, &n_fds, MSG_DONTWAIT);

    if (n < 0 && errno == EBADMSG && request.kind == INIT_SPAWN)
        fail(request.spawn.seq, EMFILE); /* our descriptors are used up */
    if (n < (ssize_t)sizeof(uint32_t)) {
        packet_close_fds(fds, n_fds);
        return;
    }
    if (request.kind == INIT_HELLO && (size_t)n == sizeof(request.hello)) {
        if (daemon_pid <= 0)
            daemon_started_ms = now_ms();
        daemon_pid = request.hello.pid;
        (void)kill(0, SIGUSR1);
    } else if (!keep(n, fds, n_fds) && request.kind == INIT_SPAWN) {
        spawn((size_t)n, fds, n_fds);
    }
    packet_close_fds(fds, n_fds);
}

/* A received descriptor must not land on a number that means something: 0, 1, 2, INIT_FD_KEPT. */
static void reserve_fds(void)
{
    int null;

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", O_RDWR); /* takes the lowest free number: fd */
    }
    null = open("/dev/null", O_RDONLY);
    if (null < 0 || null == INIT_FD_KEPT)
        return;
    (void)dup2(null, INIT_FD_KEPT);
    (void)close(null);
}

int init_main(void)
{
    struct pollfd pfd = { .fd = GUEST_FD_INIT, .events = POLLIN };
    struct timespec wait;
    sigset_t wait_mask;
    int64_t left;

    reserve_fds();
    (void)setsid(); /* its own group, for HELLO; fails when the engine did it */
    signals_init(&wait_mask);
    supervisor_prepare();
    daemon_started_ms = now_ms();
    for (;;) {
        reap();
        left = daemon_pid < 0 ? restart_at_ms - now_ms() : -1;
        if (daemon_pid < 0 && left <= 0) {
            daemon_start();
            continue;
        }
        wait = (struct timespec){ left / 1000, left % 1000 * 1000000 };
        if (ppoll(&pfd, 1, left >= 0 ? &wait : NULL, &wait_mask) > 0)
            request_handle();
    }
}
