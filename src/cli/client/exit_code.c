/* exit_code.c - see exit_code.h. The names are those of Go's syscall.Signal (envd writes os.ProcessState). */
#include "cli/client/exit_code.h"

#include <signal.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

static const struct {
    const char *name;
    int signo;
} names[] = {
    { "hangup", SIGHUP },
    { "interrupt", SIGINT },
    { "quit", SIGQUIT },
    { "illegal instruction", SIGILL },
    { "trace/breakpoint trap", SIGTRAP },
    { "aborted", SIGABRT },
    { "bus error", SIGBUS },
    { "floating point exception", SIGFPE },
    { "killed", SIGKILL },
    { "user defined signal 1", SIGUSR1 },
    { "segmentation fault", SIGSEGV },
    { "user defined signal 2", SIGUSR2 },
    { "broken pipe", SIGPIPE },
    { "alarm clock", SIGALRM },
    { "terminated", SIGTERM },
};

int exit_code_of(int exit_code, int exited, const char *status)
{
    static const char before[] = "signal: ", number[] = "signal ";
    const char *text = status;
    size_t n;
    uint64_t signo;

    if (exited)
        return exit_code & 0xff;
    if (!text || strncmp(text, before, sizeof before - 1) != 0)
        return 255;
    text += sizeof before - 1;
    n = strcspn(text, "(");
    while (n > 0 && text[n - 1] == ' ')
        n--;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strlen(names[i].name) == n && strncmp(names[i].name, text, n) == 0)
            return 128 + names[i].signo;
    if (strncmp(text, number, sizeof number - 1) == 0 &&
        str_parse_u64(slice_of(text + sizeof number - 1, n - (sizeof number - 1)), 64, &signo))
        return 128 + (int)signo;
    return 255;
}

int exit_code_of_start(const char *message)
{
    /* The guest's words (guest/daemon/spawner.c), with strerror's for the error. */
    static const char before[] = "start '";
    static const struct {
        const char *end;
        int status;
    } ends[] = {
        { "': No such file or directory", 127 }, { "': Permission denied", 126 },
        { "': Exec format error", 126 },         { "': Is a directory", 126 },
        { "': Not a directory", 126 },
    };
    size_t n = strlen(message);

    if (strncmp(message, before, sizeof before - 1) != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        size_t width = strlen(ends[i].end);

        if (n >= width && strcmp(message + n - width, ends[i].end) == 0)
            return ends[i].status;
    }
    return 0;
}
