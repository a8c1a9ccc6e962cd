/* fuzz_guest_users.c - the input as passwd and as group file. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "fuzz.h"
#include "guest/daemon/users.h"

static char dir[] = "/tmp/abx-fuzz-users-XXXXXX";

static void remove_dir(void)
{
    (void)rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct user_names names;
    char name[USER_NAME_MAX];
    struct user u;

    if (fd < 0) {
        FUZZ_CHECK(mkdtemp(dir));
        FUZZ_CHECK(atexit(remove_dir) == 0);
        fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        users_set_dir(dir);
    }
    FUZZ_CHECK(file_replace(fd, "passwd", data, size, 0600, false, NULL) == 0);
    FUZZ_CHECK(file_replace(fd, "group", data, size, 0600, false, NULL) == 0);
    if (user_find("user", &u, NULL) == 0) {
        FUZZ_CHECK(u.home[0] == '/' && u.n_groups >= 1 && u.n_groups <= USER_GROUPS_MAX);
        FUZZ_CHECK(u.groups[0] == u.gid && u.uid != (uid_t)-1);
    }
    user_names_init(&names);
    user_names_owner(&names, 1000, name, sizeof(name));
    user_names_group(&names, 7, name, sizeof(name));
    user_names_done(&names);
    (void)unlinkat(fd, "passwd", 0);
    (void)unlinkat(fd, "group", 0);
    return 0;
}
