/* sanitizer_log.c - where the reports of a build with sanitizers go. Linked into its programs only; a release has nothing of it.
 *
 * A role has given up its root folder and its user, a worker its mounts, and many write to nobody's stderr: a path is of no
 * use when there is something to report. So every program opens SANITIZER_LOG, a file in the build folder, before its main
 * begins, and hands it to each sanitizer's runtime. Without that file (script/test makes it) reports go where the runtime's
 * own options say. The options below hold for programs that tests start with an environment of their own, too;
 * ASAN_OPTIONS and UBSAN_OPTIONS overrule them. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* The numbers that programs mean for descriptors of their own stay free. */
#define ABOVE_ALL_OTHERS 200
#define RUNTIMES_MAX 4

typedef void set_report_fd(void *fd);

/* The runtimes look for these names. */
#define HOOK __attribute__((visibility("default"), no_sanitize("address", "undefined")))
HOOK const char *__asan_default_options(void);
HOOK const char *__ubsan_default_options(void);
HOOK int __lsan_is_turned_off(void);
HOOK void __ubsan_on_report(void);

static struct {
    int fd;
    bool is_told_again;
    set_report_fd *set[RUNTIMES_MAX];
    size_t n;
} reports = { .fd = -1 };

/* The first thing that happens in a program: nothing but a call of the kernel. */
const char *__asan_default_options(void)
{
    if (access(SANITIZER_LOG, W_OK) < 0)
        return "";
    return "handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:handle_abort=2";
}

const char *__ubsan_default_options(void)
{
    return reports.fd < 0 ? "" : "halt_on_error=1:print_stacktrace=1";
}

/* LeakSanitizer finds threads and mappings in /proc, and calls it an error of the program when there is none. */
int __lsan_is_turned_off(void)
{
    return access("/proc/self/task", R_OK) < 0;
}

/* Gives each a descriptor of its own, because each closes what it had when it is told of another. */
static void tell_runtimes(void)
{
    for (size_t i = 0; i < reports.n; i++) {
        int fd = fcntl(reports.fd, F_DUPFD_CLOEXEC, ABOVE_ALL_OTHERS);

        if (fd < 0) /* this process may not have so many */
            fd = fcntl(reports.fd, F_DUPFD_CLOEXEC, 0);
        reports.set[i]((void *)(intptr_t)fd);
    }
}

/* libubsan reads its options when it has something to say for the first time, and forgets then what it was told. */
void __ubsan_on_report(void)
{
    if (reports.fd >= 0 && !reports.is_told_again)
        tell_runtimes();
    reports.is_told_again = true;
}

/* gcc has a runtime for each sanitizer, with a log of its own; clang one for all in the program itself. */
static int find_runtime(struct dl_phdr_info *info, size_t size, void *user)
{
    const char *name = info->dlpi_name[0] != '\0' ? info->dlpi_name : NULL;
    void *runtime;

    (void)size;
    (void)user;
    if ((name && !strstr(name, "san.so")) || reports.n == RUNTIMES_MAX)
        return 0;
    runtime = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (!runtime)
        return 0;
    *(void **)&reports.set[reports.n] = dlsym(runtime, "__sanitizer_set_report_fd");
    if (reports.set[reports.n])
        reports.n++;
    (void)dlclose(runtime);
    return 0;
}

__attribute__((constructor)) static void sanitizer_log_open(void)
{
    int saved = errno, fd = open(SANITIZER_LOG, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd >= 0) {
        reports.fd = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_ALL_OTHERS);
        if (reports.fd >= 0)
            (void)close(fd);
        else
            reports.fd = fd;
        (void)dl_iterate_phdr(find_runtime, NULL);
        tell_runtimes();
        /* A runtime does not go on with what the parent was told. */
        (void)pthread_atfork(NULL, NULL, tell_runtimes);
    }
    errno = saved;
}
