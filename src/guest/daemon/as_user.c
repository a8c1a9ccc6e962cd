/* as_user.c - see as_user.h, setfsuid(2), capabilities(7). */
#include "guest/daemon/as_user.h"

#include <sys/syscall.h>
#include <unistd.h>

/* setfsuid and setfsgid tell the previous value only: a second call with an invalid id, which changes
 * nothing, says whether the first worked. */
static bool set_fsuid(uid_t uid)
{
    (void)syscall(SYS_setfsuid, (long)uid);
    return (uid_t)syscall(SYS_setfsuid, -1L) == uid;
}

static bool set_fsgid(gid_t gid)
{
    (void)syscall(SYS_setfsgid, (long)gid);
    return (gid_t)syscall(SYS_setfsgid, -1L) == gid;
}

int as_user_begin(const struct user *u, struct abx_err *err)
{
    if (u->uid == 0)
        return 0;
    if (syscall(SYS_setgroups, (long)u->n_groups, u->groups) < 0)
        return err_sys(err, errno, "take on the groups of user '%s'", u->name);
    if (!set_fsgid(u->gid) || !set_fsuid(u->uid)) {
        as_user_end(u);
        return err_set(err, ABX_PERMISSION_DENIED, "cannot take on user '%s' (uid %u, gid %u)",
                       u->name, u->uid, u->gid);
    }
    return 0;
}

void as_user_end(const struct user *u)
{
    if (u->uid == 0)
        return;
    if (!set_fsuid(0) || !set_fsgid(0) || syscall(SYS_setgroups, 0L, NULL) < 0)
        abort();
}
