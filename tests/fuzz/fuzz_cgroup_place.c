/* fuzz_cgroup_place.c - /proc/self/cgroup, mountinfo and cgroup.controllers, whose paths others choose. */
#include <stdlib.h>
#include <string.h>

#include "engine/cgroup_place.h"
#include "engine/mountinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size), rest = text;
    static struct mountinfo m, found;
    char own[256], at[PATH_MAX];
    uint64_t n;

    if (!cgroup_self_path(text, NULL, own, sizeof own))
        memcpy(own, "/", 2);
    cgroup_base_path(own);
    if (own[0] != '/')
        abort();
    while (mountinfo_next(&rest, &m)) {
        /* Whatever is listed is found again, there or with something on top. */
        if (!mountinfo_find(text, m.target, &found) || strcmp(found.target, m.target) != 0)
            abort();
        (void)mountinfo_has_word(m.super_options, "memory");
        if (cgroup_visible_path(m.root, m.target, own, at, sizeof at) &&
            strncmp(at, m.target, strlen(m.target)) != 0)
            abort();
    }
    (void)cgroup_self_path(text, "memory", own, sizeof own);
    (void)cgroup_parse_controllers(text);
    (void)cgroup_find_value(text, "oom_kill", &n);
    return 0;
}
