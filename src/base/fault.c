/* fault.c - see fault.h. */
#include "base/fault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define STALL_STEP_MS 20

static char *shared; /* the file; NULL: no point does anything */

int fault_open(const char *path, struct abx_err *err)
{
    _cleanup_(closep) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    void *at;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "ABX_FAULTS: open '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size != FAULT_FILE_BYTES || st.st_uid != geteuid() ||
        (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "ABX_FAULTS: '%s' is not a file of %d bytes that belongs to this user and "
                       "that no one else can write to",
                       path, FAULT_FILE_BYTES);
    at = mmap(NULL, FAULT_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_sys(err, errno, "ABX_FAULTS: map '%s'", path);
    shared = at;
    log_warn("points of failure are in use, for a test", "file", path, NULL);
    return 0;
}

int fault_init(struct abx_err *err)
{
    const char *path = getenv("ABX_FAULTS");

    return path && path[0] && geteuid() == 0 ? fault_open(path, err) : 0;
}

/* The line of that name in a copy of the file: its count's place, and its action. False when there is none. */
static bool find(const char *text, const char *name, size_t *ret_count, struct slice *ret_action)
{
    const char *p = text, *end = text + FAULT_FILE_BYTES;
    size_t n = strlen(name);

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);

        if (len > n + 3 && memcmp(p, name, n) == 0 && p[n] == ' ' && p[n + 2] == ' ') {
            *ret_count = (size_t)(p - text) + n + 1;
            *ret_action = slice_of(p + n + 3, len - n - 3);
            return true;
        }
        p += len + 1;
    }
    return false;
}

static void copy_text(char to[FAULT_FILE_BYTES])
{
    for (size_t i = 0; i < FAULT_FILE_BYTES; i++)
        to[i] = __atomic_load_n(&shared[i], __ATOMIC_RELAXED);
}

/* Takes one of the count; false when none is left. */
static bool take(char *count)
{
    char c = __atomic_load_n(count, __ATOMIC_ACQUIRE);

    while (c > '0' && c <= '9')
        if (__atomic_compare_exchange_n(count, &c, (char)(c - 1), false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return true;
    return c == '*';
}

static void stall(const char *name)
{
    char text[FAULT_FILE_BYTES];
    struct slice action;
    size_t count;

    for (int ms = 0; ms < FAULT_STALL_MS; ms += STALL_STEP_MS) {
        copy_text(text);
        if (!find(text, name, &count, &action) || !slice_eq_str(action, "stall"))
            return;
        (void)poll(NULL, 0, STALL_STEP_MS);
    }
}

static int hit(const char *name, struct abx_err *err)
{
    char text[FAULT_FILE_BYTES];
    struct slice action;
    size_t count;

    copy_text(text);
    if (!find(text, name, &count, &action) || !take(&shared[count]))
        return 0;
    log_warn("injected fault", "point", name, NULL);
    if (slice_eq_str(action, "stall")) {
        stall(name);
        return 0;
    }
    if (slice_eq_str(action, "kill")) {
        (void)raise(SIGKILL);
        _exit(128 + SIGKILL); /* a filter of system calls stood in the way */
    }
    return err_set(err, ABX_INTERNAL, "injected fault");
}

int fault_at(const char *name, struct abx_err *err)
{
    return shared ? hit(name, err) : 0;
}

int fault_name_step(int r, const char *name, struct abx_err *err)
{
    return r < 0 ? err_wrap(err, r, "%s", name) : r;
}
