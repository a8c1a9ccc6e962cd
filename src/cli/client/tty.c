/* tty.c - see tty.h. */
#include "cli/client/tty.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

/* What a handler can reach. */
static struct termios saved;
static volatile sig_atomic_t raw_fd = -1;

void tty_restore(void)
{
    int fd = raw_fd, kept = errno;

    if (fd < 0)
        return;
    raw_fd = -1;
    (void)tcsetattr(fd, TCSANOW, &saved);
    errno = kept;
}

/* SA_RESETHAND: the second time it ends the process as it would have. */
static void on_fatal(int signo)
{
    tty_restore();
    (void)raise(signo);
}

static void catch_all(const int *signals, size_t count)
{
    struct sigaction action = { .sa_handler = on_fatal, .sa_flags = SA_RESETHAND | SA_NODEFER };
    struct sigaction old;

    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            (void)sigaction(signals[i], &action, NULL);
}

/* Saves what is there and sets `mode`; the handlers are in place before. */
static int change(int fd, void (*make)(struct termios *mode), struct abx_error *err)
{
    /* Those that signals.h does not watch. */
    static const int fatal[] = { SIGSEGV, SIGBUS,    SIGFPE,  SIGILL,  SIGABRT, SIGSYS,
                                 SIGTRAP, SIGQUIT,   SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                                 SIGPROF, SIGSTKFLT, SIGPOLL, SIGPWR,  SIGXCPU, SIGXFSZ };
    static bool is_set_up;
    struct termios mode;

    if (tcgetattr(fd, &saved) == 0) {
        mode = saved;
        make(&mode);
        if (!is_set_up) {
            catch_all(fatal, sizeof fatal / sizeof *fatal);
            (void)atexit(tty_restore);
            is_set_up = true;
        }
        raw_fd = fd;
        if (tcsetattr(fd, TCSADRAIN, &mode) == 0)
            return 0;
        raw_fd = -1;
    }
    *err = (struct abx_error){ .code = ABX_INTERNAL, .sys = errno };
    (void)snprintf(err->message, sizeof err->message, "terminal: %s", strerror(errno));
    return err->code;
}

static void without_echo(struct termios *mode)
{
    mode->c_lflag &= ~(tcflag_t)ECHO;
}

int tty_quiet(int fd, struct abx_error *err)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction ignore = { .sa_handler = SIG_IGN };

    (void)sigaction(SIGTSTP, &ignore, NULL);
    catch_all(ends, sizeof ends / sizeof *ends);
    return change(fd, without_echo, err);
}

int tty_raw(int fd, struct abx_error *err)
{
    return change(fd, cfmakeraw, err);
}

void tty_size(int fd, uint16_t *ret_cols, uint16_t *ret_rows)
{
    struct winsize size = { 0 };

    (void)ioctl(fd, TIOCGWINSZ, &size);
    *ret_cols = size.ws_col ? size.ws_col : 80;
    *ret_rows = size.ws_row ? size.ws_row : 24;
}
