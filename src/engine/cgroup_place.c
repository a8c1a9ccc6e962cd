/* cgroup_place.c - see cgroup_place.h. */
#include "engine/cgroup_place.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "engine/mountinfo.h"

#define HOST_MEMORY_MIN ((uint64_t)1 << 30)
#define HOST_PIDS 4096u

static const char *const names[CGROUP_CONTROLLERS_] = {
    [CGROUP_MEMORY] = "memory",   [CGROUP_CPU] = "cpu",         [CGROUP_PIDS] = "pids",
    [CGROUP_FREEZER] = "freezer", [CGROUP_CPUACCT] = "cpuacct",
};

const char *cgroup_controller_name(enum cgroup_controller c)
{
    return names[c];
}

static struct slice take_line(struct slice *rest)
{
    const uint8_t *end = rest->n > 0 ? memchr(rest->p, '\n', rest->n) : NULL;
    struct slice line = *rest;

    if (!end) {
        *rest = (struct slice){ NULL, 0 };
        return line;
    }
    line.n = (size_t)(end - rest->p);
    rest->p = end + 1;
    rest->n -= line.n + 1;
    return line;
}

/* Splits "hierarchy:controllers:path". */
static bool split_line(struct slice line, struct slice *ret_controllers, struct slice *ret_path)
{
    const uint8_t *a = line.n > 0 ? memchr(line.p, ':', line.n) : NULL;
    const uint8_t *end = line.p + line.n;
    const uint8_t *b;

    if (!a)
        return false;
    b = memchr(a + 1, ':', (size_t)(end - a - 1));
    if (!b)
        return false;
    *ret_controllers = slice_of(a + 1, (size_t)(b - a - 1));
    *ret_path = slice_of(b + 1, (size_t)(end - b - 1));
    return true;
}

bool cgroup_self_path(struct slice proc_cgroup, const char *controller, char *to, size_t size)
{
    while (proc_cgroup.n > 0) {
        struct slice list, path;

        if (!split_line(take_line(&proc_cgroup), &list, &path))
            continue;
        if (controller ? !mountinfo_has_word(list, controller) : list.n > 0)
            continue;
        if (path.n == 0 || path.p[0] != '/' || path.n >= size)
            return false;
        memcpy(to, path.p, path.n);
        to[path.n] = '\0';
        return true;
    }
    return false;
}

void cgroup_base_path(char *path)
{
    char *last = strrchr(path, '/');
    char *before;

    if (last && strcmp(last, "/host") == 0) {
        *last = '\0';
        before = strrchr(path, '/');
        if (before && strncmp(before, "/abx-", 5) == 0)
            *before = '\0';
        else
            *last = '/';
    }
    if (path[0] == '\0') {
        path[0] = '/';
        path[1] = '\0';
    }
}

bool cgroup_visible_path(const char *root, const char *target, const char *path, char *to,
                         size_t size)
{
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const char *rest = path + n;

    /* Not below what is mounted (or "/.." of a namespace): the mount point is all there is. */
    if (strncmp(path, root, n) != 0 || (*rest != '/' && *rest != '\0') ||
        strncmp(path, "/..", 3) == 0)
        rest = "";
    if (strcmp(rest, "/") == 0)
        rest = "";
    return snprintf(to, size, "%s%s", target, rest) < (int)size;
}

unsigned cgroup_parse_controllers(struct slice text)
{
    unsigned set = 0;
    size_t begin = 0;

    for (size_t i = 0; i <= text.n; i++) {
        if (i < text.n && text.p[i] != ' ' && text.p[i] != '\n')
            continue;
        for (int c = 0; c < CGROUP_CONTROLLERS_; c++)
            if (slice_eq_str(slice_of(text.p + begin, i - begin), names[c]))
                set |= CGROUP_BIT(c);
        begin = i + 1;
    }
    return set;
}

struct cgroup_choice cgroup_choose(bool has_v2, unsigned v2, unsigned v1)
{
    struct cgroup_choice choice = { 0 };
    unsigned wanted = CGROUP_LIMITS;

    if (!has_v2)
        v2 = 0;
    if (!has_v2)
        wanted |= CGROUP_BIT(CGROUP_FREEZER) | CGROUP_BIT(CGROUP_CPUACCT);
    choice.v2 = v2 & CGROUP_LIMITS;
    choice.v1 = v1 & wanted & ~choice.v2;
    choice.missing = wanted & ~(choice.v1 | choice.v2);
    return choice;
}

uint64_t cgroup_memory_cap(uint64_t total_bytes)
{
    uint64_t host = MAX(HOST_MEMORY_MIN, total_bytes / 10);

    /* A machine that small keeps half for itself. */
    return total_bytes > 2 * host ? total_bytes - host : total_bytes / 2;
}

uint32_t cgroup_pids_cap(uint32_t pid_max)
{
    return pid_max > 2 * HOST_PIDS ? pid_max - HOST_PIDS : pid_max / 2;
}

bool cgroup_find_value(struct slice text, const char *key, uint64_t *ret)
{
    size_t n = strlen(key);

    while (text.n > 0) {
        struct slice line = take_line(&text);

        if (line.n > n && memcmp(line.p, key, n) == 0 && line.p[n] == ' ')
            return str_parse_u64(slice_of(line.p + n + 1, line.n - n - 1), UINT64_MAX, ret);
    }
    return false;
}
