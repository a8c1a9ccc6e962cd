/* daemon.c - the daemon of a sandbox: one loop, envd on GUEST_FD_ENVD, identity, commands.
 *
 * Crash-only: PID 1 starts it again, running commands are found again through their supervisors, the
 * identity through the memfd that PID 1 keeps (the engine sends it once).
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/fd.h"
#include "base/log.h"
#include "e2b/guest_abi.h"
#include "guest/daemon/claim.h"
#include "guest/envd/envd.h"
#include "guest/envd/metrics.h"
#include "guest/envd/watch.h"
#include "guest/guest.h"
#include "guest/init/protocol.h"

#define POOL_THREADS "4"
#define POOL_STACK (256u << 10) /* libuv takes it from RLIMIT_STACK */

static void process_init(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    struct rlimit stack, files;
    sigset_t none;

    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGUSR1, &ignore, NULL); /* PID 1's word to the supervisors */
    (void)sigaction(SIGHUP, &ignore, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)umask(022);
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TRIM_THRESHOLD, 128 << 10);
    if (getrlimit(RLIMIT_STACK, &stack) == 0) {
        stack.rlim_cur = POOL_STACK;
        (void)setrlimit(RLIMIT_STACK, &stack);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* commands have PID 1's limit, not this */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)setenv("UV_THREADPOOL_SIZE", POOL_THREADS, 1);
    for (int fd = GUEST_FD_ENVD; fd <= INIT_FD_KEPT; fd++)
        (void)fd_set_cloexec(fd, true);
    fd_close(GUEST_FD_INIT);
}

static void on_identity(void *user, struct slice message)
{
    struct envd *e = user;

    claim_keep(message);
    claim_tell(e->loop, e->id);
}

static void on_resumed(void *user)
{
    struct envd *e = user;

    if (e->server)
        http_server_drop_closed(e->server);
}

static int run(uv_loop_t *loop, struct abx_err *err)
{
    static struct identity id;
    static struct envd e;
    int r;

    e.loop = loop;
    e.id = &id;
    claim_find(&id);
    r = metrics_new(&e.metrics, err);
    if (r == 0)
        r = watches_new(&e.watches, err);
    if (r == 0)
        r = control_new(loop, GUEST_FD_CONTROL, &id, on_identity, on_resumed, &e, &e.control, err);
    if (r == 0)
        r = commands_new(loop, GUEST_FD_DAEMON, id.is_claimed, &e.commands, err);
    if (r == 0)
        r = envd_start(&e, GUEST_FD_ENVD, err);
    if (r < 0)
        return r;
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return err_set(err, ABX_INTERNAL, "the loop ended");
}

int daemon_main(void)
{
    struct abx_err err = { 0 };
    static uv_loop_t loop;

    process_init();
    log_init("guest");
    if (uv_loop_init(&loop) < 0)
        (void)err_set(&err, ABX_RESOURCE_EXHAUSTED, "make the event loop");
    else
        (void)run(&loop, &err);
    log_err("daemon ended", &err);
    return 1;
}
