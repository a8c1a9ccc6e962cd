/* signals.c - see signals.h. */
#include "cli/client/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SIGNALS_MAX 32

/* What a handler can reach. */
static volatile sig_atomic_t counts[SIGNALS_MAX];
static int event_fd = -1;
static abx_client *woken;

static void on_signal(int signo)
{
    static const uint64_t one = 1;
    int saved = errno;

    if (signo < SIGNALS_MAX)
        counts[signo] = counts[signo] + 1;
    (void)!write(event_fd, &one, sizeof one);
    abx_client_wake(woken);
    errno = saved;
}

static int fail(struct abx_error *err, const char *what)
{
    *err = (struct abx_error){ .code = ABX_INTERNAL, .sys = errno };
    (void)snprintf(err->message, sizeof err->message, "%s: %s", what, strerror(errno));
    return err->code;
}

int signals_add(int signo, struct abx_error *err)
{
    struct sigaction action = { .sa_handler = on_signal }, old;

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(signo, NULL, &old) < 0)
        return fail(err, "sigaction");
    if (old.sa_handler == SIG_IGN && (signo == SIGHUP || signo == SIGINT))
        return 0;
    return sigaction(signo, &action, NULL) < 0 ? fail(err, "sigaction") : 0;
}

int signals_watch(abx_client *client, struct abx_error *err)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction ignore = { .sa_handler = SIG_IGN };

    woken = client;
    if (event_fd >= 0)
        return 0;
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0)
        return fail(err, "eventfd");
    if (sigaction(SIGPIPE, &ignore, NULL) < 0)
        return fail(err, "sigaction");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (signals_add(ends[i], err) < 0)
            return err->code;
    return 0;
}

int signals_fd(void)
{
    return event_fd;
}

void signals_clear(void)
{
    uint64_t count;

    (void)!read(event_fd, &count, sizeof count);
}

int signals_take(int signo)
{
    int n = counts[signo];

    counts[signo] = 0;
    return n;
}

int signals_take_end(void)
{
    if (signals_take(SIGTERM))
        return SIGTERM;
    if (signals_take(SIGHUP))
        return SIGHUP;
    return signals_take(SIGINT) ? SIGINT : 0;
}
