/* checkpoint.c - see checkpoint.h. */
#include "engine/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/str.h"
#include "engine/disk_internal.h"

#define TOOL_TIMEOUT_MS 1000
#define WORDS_SIZE 96

bool checkpoint_version_parse(const char *line, unsigned *ret_major, unsigned *ret_minor)
{
    static const char prefix[] = "Version: ";
    uint64_t major, minor = 0;
    const char *dot;
    size_t n;

    if (strncmp(line, prefix, strlen(prefix)) != 0)
        return false;
    line += strlen(prefix);
    n = strspn(line, "0123456789");
    if (!str_parse_u64(slice_of(line, n), 10000, &major))
        return false;
    dot = line + n;
    if (*dot == '.') {
        n = strspn(dot + 1, "0123456789");
        if (!str_parse_u64(slice_of(dot + 1, n), 10000, &minor))
            return false;
    }
    *ret_major = (unsigned)major;
    *ret_minor = (unsigned)minor;
    return true;
}

/* A call that only kernels with CONFIG_CHECKPOINT_RESTORE know, and that changes nothing. */
static bool kernel_can(void)
{
    unsigned size = 0;

    return prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, (unsigned long)(uintptr_t)&size, 0, 0) == 0 &&
           size > 0;
}

static void found(struct checkpoint *c, bool is_possible, const char *fmt, ...) _printf_(3, 4);
static void found(struct checkpoint *c, bool is_possible, const char *fmt, ...)
{
    va_list ap;

    c->is_possible = is_possible;
    va_start(ap, fmt);
    (void)vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
}

void checkpoint_probe(struct checkpoint *ret)
{
    static const char *const ask_version[] = { "criu", "--version", NULL };
    static const char *const check[] = { "criu", "check", NULL };
    const char *kernel = kernel_can() ? "" : ", and a kernel with CONFIG_CHECKPOINT_RESTORE";
    char words[WORDS_SIZE];
    unsigned major, minor;
    struct abx_err err;

    if (!disk_has_tool("criu")) {
        found(ret, false, "CRIU %d.%d or newer (none is installed)%s", CHECKPOINT_MAJOR,
              CHECKPOINT_MINOR, kernel);
    } else if (disk_ask_tool(ask_version, TOOL_TIMEOUT_MS, words, sizeof words, &err) < 0) {
        found(ret, false, "a CRIU that says its version (%.80s)%s", err.msg, kernel);
    } else if (!checkpoint_version_parse(words, &major, &minor)) {
        found(ret, false, "a CRIU that says its version (it says '%.60s')%s", words, kernel);
    } else if (major < CHECKPOINT_MAJOR ||
               (major == CHECKPOINT_MAJOR && minor < CHECKPOINT_MINOR)) {
        found(ret, false, "CRIU %d.%d or newer (installed is %u.%u)%s", CHECKPOINT_MAJOR,
              CHECKPOINT_MINOR, major, minor, kernel);
    } else if (kernel[0]) {
        found(ret, false, "a kernel with CONFIG_CHECKPOINT_RESTORE (CRIU %u.%u is installed)",
              major, minor);
    } else if (disk_ask_tool(check, TOOL_TIMEOUT_MS, words, sizeof words, &err) < 0) {
        found(ret, false, "a kernel that 'criu check' of CRIU %u.%u is content with (%.90s)", major,
              minor, err.msg);
    } else {
        found(ret, true, "CRIU %u.%u, and a kernel that 'criu check' is content with", major,
              minor);
    }
}
