/* users.h - accounts of the sandbox, read from /etc/passwd and /etc/group as plain files.
 *
 * No NSS: the image is static. Both files belong to the sandbox and may hold anything: they are read
 * only when they are regular files of at most USERS_FILE_MAX bytes, malformed lines are skipped.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define USERS_FILE_MAX (1u << 20)
#define USER_GROUPS_MAX 64
#define USER_NAME_MAX 64 /* with NUL */
#define USER_HOME_MAX 1024

struct user {
    char name[USER_NAME_MAX];
    char home[USER_HOME_MAX];
    uid_t uid;
    gid_t gid;
    size_t n_groups; /* supplementary ones, `gid` first */
    gid_t groups[USER_GROUPS_MAX];
};

/* Folder that holds passwd and group: "/etc", another one in tests. Static string. */
void users_set_dir(const char *dir);

/* Looks a name up. NOT_FOUND when there is none; RESOURCE_EXHAUSTED when it is in more than
 * USER_GROUPS_MAX groups. */
int user_find(const char *name, struct user *ret, struct abx_err *err);

/* The account that requests without a user get: `preferred` if not empty, else "user" if there is
 * such an account, else "root". */
int user_default(const char *preferred, struct user *ret, struct abx_err *err);

/* Names for many ids: both files in memory, for listings. */
struct user_names {
    struct buf passwd;
    struct buf group;
};
void user_names_init(struct user_names *n);
void user_names_done(struct user_names *n);
/* Writes the name of `uid`, or the number when there is none. */
void user_names_owner(const struct user_names *n, uid_t uid, char *to, size_t size);
void user_names_group(const struct user_names *n, gid_t gid, char *to, size_t size);
