/* util.c - messages, paths and option values of the commands. See cli.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"

void cli_keep_standard_places(void)
{
    int fd;

    do
        fd = open("/dev/null", fcntl(STDIN_FILENO, F_GETFD) < 0 ? O_WRONLY : O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

int cli_end(int status)
{
    int sys = fflush(stdout) == 0 ? 0 : errno;

    if (sys == 0 && !ferror(stdout))
        return status;
    (void)fprintf(stderr, "abx: write to standard output: %s\n",
                  sys ? strerror(sys) : "not all of it could be written");
    __fpurge(stdout);
    clearerr(stdout);
    return status ? status : 1;
}

void cli_print_shell_word(const char *text)
{
    (void)putchar('\'');
    for (const char *p = text; *p; p++)
        if (*p == '\'')
            (void)fputs("'\\''", stdout);
        else
            (void)putchar(*p);
    (void)putchar('\'');
}

int cli_fail(const struct abx_err *err)
{
    int status = err_exit_status(err);

    (void)fprintf(stderr, "abx: %s\n", err->msg);
    return status ? status : 1;
}

int cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;

    (void)fprintf(stderr, "abx %s: ", command);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "\nTry 'abx %s --help'.\n", command);
    return 2;
}

int cli_bad_option(const char *command)
{
    (void)fprintf(stderr, "Try 'abx %s --help'.\n", command);
    return 2;
}

/* Could only root or the caller have put the program there? Of folder and file. */
static bool is_trusted(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Where `program` lies in a tree that was installed elsewhere than it was built for, below DESTDIR say:
 * ../libexec/abx beside the folder of this binary. Whoever can write there could be anybody, unlike in
 * the folder that was built in. */
static bool find_moved(const char *bin, const char *program, char *to, size_t size)
{
    char dir[PATH_MAX + 32];

    return path_join(dir, sizeof dir, bin, "../libexec/abx") && is_trusted(dir) &&
           path_join(to, size, dir, program) && access(to, X_OK) == 0 && is_trusted(to);
}

int cli_libexec(const char *program, char *to, size_t size, struct abx_err *err)
{
    const char *dir = getenv("ABX_LIBEXEC_DIR");
    char self[PATH_MAX], beside[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (dir) {
        if (!path_join(to, size, dir, program) || access(to, X_OK) < 0)
            return err_set(err, ABX_NOT_FOUND, "%s is not in ABX_LIBEXEC_DIR (%s)", program, dir);
        return 0;
    }
    if (n < 0)
        return err_sys(err, errno, "readlink '/proc/self/exe'");
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    if (path_join(beside, sizeof beside, self, "libexec") && path_join(to, size, beside, program) &&
        access(to, X_OK) == 0)
        return 0;
    if (find_moved(self, program, to, size))
        return 0;
    if (path_join(to, size, ABX_LIBEXEC_DIR, program) && access(to, X_OK) == 0)
        return 0;
    return err_set(
        err, ABX_NOT_FOUND,
        "%s is neither in %s nor in ../libexec/abx beside %s (which has to belong to "
        "root or this user, with nobody else writing) nor in %s, or this user may not run "
        "it: is the build complete? ABX_LIBEXEC_DIR names another folder",
        program, beside, self, ABX_LIBEXEC_DIR);
}

int cli_absolute(const char *option, const char *path, char *to, size_t size, struct abx_err *err)
{
    char cwd[PATH_MAX];
    size_t n;

    if (path[0] == '\0')
        return err_set(err, ABX_INVALID_ARGUMENT, "%s is empty", option);
    if (path[0] == '/') {
        if (!path_join(to, size, path, ""))
            return err_set(err, ABX_INVALID_ARGUMENT, "%s '%.64s...' is too long", option, path);
    } else if (!getcwd(cwd, sizeof cwd)) {
        return err_sys(err, errno, "working directory");
    } else if (!path_join(to, size, cwd, path)) {
        return err_set(err, ABX_INVALID_ARGUMENT, "%s '%.64s...' is too long", option, path);
    }
    for (n = strlen(to); n > 1 && to[n - 1] == '/'; n--)
        to[n - 1] = '\0';
    return 0;
}

static const char size_units[] = "KMGT";

/* "10G" -> 10, and how many bytes one is; a unit without a number leaves none. */
static struct slice split_size(const char *text, uint64_t unit, uint64_t *ret_factor)
{
    size_t n = strspn(text, "0123456789");
    const char *end = text + n;
    const char *found = *end ? strchr(size_units, *end & ~0x20) : NULL;

    *ret_factor = unit;
    if (*end == '\0')
        return slice_of(text, n);
    if (!found || *end < 'A' || (end[1] && strcmp(end + 1, "i") != 0 && strcmp(end + 1, "iB") != 0))
        return slice_of(text, 0);
    *ret_factor = UINT64_C(1) << (10 * (found - size_units + 1));
    return slice_of(text, n);
}

/* The largest unit that leaves a whole number, "16M". */
static const char *size_short(uint64_t bytes, char to[32])
{
    size_t i = 0;

    while (i < sizeof size_units - 1 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    (void)snprintf(to, 32, "%llu%.1s", (unsigned long long)bytes, i > 0 ? &size_units[i - 1] : "");
    return to;
}

int cli_parse_size(const char *option, const char *text, const struct cli_size *size, uint64_t *ret,
                   struct abx_err *err)
{
    uint64_t factor, v;
    struct slice number = split_size(text, size->unit, &factor);
    char min[32], max[32];

    if (number.n == 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s '%s' is not a size: a whole number with K, M, G or T (powers of 1024; "
                       "Ki, Mi, Gi and Ti are the same), like 10G, or a number of %s",
                       option, text, size->unit == 1 ? "bytes" : "MiB");
    if (!str_parse_u64(number, UINT64_MAX, &v) || __builtin_mul_overflow(v, factor, &v) ||
        v < size->min || v > size->max)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s '%s' is not within %s to %s", option, text,
                       size_short(size->min, min), size_short(size->max, max));
    *ret = v;
    return 0;
}

int cli_parse_number(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *ret, struct abx_err *err)
{
    uint64_t v;

    if (!str_parse_u64(slice_str(text), max, &v) || v < min)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s '%s' is not a whole number from %llu to %llu",
                       option, text, (unsigned long long)min, (unsigned long long)max);
    *ret = v;
    return 0;
}

int cli_parse_duration(const char *option, const char *text, uint64_t *ret_s, struct abx_err *err)
{
    size_t n = strlen(text);
    uint64_t v, factor = 1;

    switch (n > 0 ? text[n - 1] : 0) {
    case 's':
        n--;
        break;
    case 'm':
        factor = 60;
        n--;
        break;
    case 'h':
        factor = 3600;
        n--;
        break;
    case 'd':
        factor = 86400;
        n--;
        break;
    default:
        break;
    }
    if (!str_parse_u64(slice_of(text, n), UINT64_MAX, &v) ||
        __builtin_mul_overflow(v, factor, &v) || v == 0 || v > INT32_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "%s '%s' is not a duration: seconds, or a number with s, m, h or d", option,
                       text);
    *ret_s = v;
    return 0;
}
