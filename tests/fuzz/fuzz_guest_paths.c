/* fuzz_guest_paths.c - a query as anybody may send it to the absolute path that is opened: never longer than its memory,
 * clean, and the same when it is cleaned again. The first byte chooses the account's home, which the sandbox writes. */
#include <stdio.h>

#include "fuzz.h"

#include "guest/daemon/paths.h"
#include "guest/envd/envd.h"

static const char *const homes[] = { "/home/user", "/", "/root/", "/a/../b//c/." };

static void check_clean(const char *path)
{
    FUZZ_CHECK(path[0] == '/');
    FUZZ_CHECK(strlen(path) < PATH_MAX);
    FUZZ_CHECK(path[1] == '\0' || path[strlen(path) - 1] != '/');
    for (const char *at = path; at; at = strchr(at + 1, '/')) {
        size_t n = strcspn(at + 1, "/");

        FUZZ_CHECK(n > 0 || path[1] == '\0');
        FUZZ_CHECK(!(n == 1 && at[1] == '.') && !(n == 2 && at[1] == '.' && at[2] == '.'));
    }
}

static void resolve(const struct user *user, const char *workdir, const char *path)
{
    _cleanup_(freep) char *result = malloc(PATH_MAX), *again = malloc(PATH_MAX);

    FUZZ_CHECK(result && again);
    if (guest_path(user, workdir, path, result, NULL) < 0)
        return;
    check_clean(result);
    FUZZ_CHECK(guest_path_name(result)[0] != '\0');
    memcpy(again, result, strlen(result) + 1);
    guest_path_clean(again);
    FUZZ_CHECK(strcmp(result, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[PATH_MAX], workdir[PATH_MAX];
    struct user user = { .uid = 1000 };
    struct slice query;
    bool is_set;

    if (size == 0)
        return 0;
    (void)snprintf(user.home, sizeof(user.home), "%s", homes[data[0] % ARRAY_SIZE(homes)]);
    query = slice_of(data + 1, size - 1);
    if (!envd_query(query, "path", path, sizeof(path), &is_set) ||
        !envd_query(query, "workdir", workdir, sizeof(workdir), NULL))
        return 0;
    FUZZ_CHECK(is_set || path[0] == '\0');
    resolve(&user, workdir, path);
    return 0;
}
