/* supervisor_local.c - see supervisor_local.h. */
#include "cli/supervisor_local.h"

#include "base/log.h"
#include "base/str.h"
#include "cli/local_key.h"

int supervisor_local_publish(struct supervisor_local *l, struct abx_err *err)
{
    l->looked_ns = time_mono_ns();
    return local_publish(&l->info, l->socket_path, l->users, l->n_users, &l->dir, err);
}

void supervisor_local_look(struct supervisor_local *l)
{
    int64_t now = time_mono_ns();
    struct abx_err err;

    if (l->dir.lock_fd >= 0 || l->looked_ns == 0 || now - l->looked_ns < LOCAL_LOOK_NS)
        return;
    l->looked_ns = now;
    if (!local_dir_is_free()) {
        l->gone_ns = 0;
        return;
    }
    if (l->gone_ns == 0)
        l->gone_ns = now;
    if (now - l->gone_ns < LOCAL_GONE_NS)
        return;
    if (supervisor_local_publish(l, &err) == 0)
        log_info("clients on this machine find this service from now on", NULL);
    else
        log_debug("the local folder cannot be taken", "error", err.msg, NULL);
}

void supervisor_local_give_up(struct supervisor_local *l)
{
    local_dir_give_up(&l->dir);
    l->looked_ns = 0;
}
