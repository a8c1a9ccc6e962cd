/* supervisor_resolv.c - see supervisor_resolv.h. */
#include "cli/supervisor_resolv.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define RESOLV_CONF "/etc/resolv.conf"
#define RESOLV_MAX 65536u

static int copy(struct resolv_copy *c, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(RESOLV_MAX);
    struct abx_err why = { 0 };
    int r = file_read(AT_FDCWD, RESOLV_CONF, &text, &why);

    if (r < 0 && why.sys != ENOENT) {
        *err = why;
        return r;
    }
    return file_replace(c->dirfd, RESOLV_COPY_NAME, buf_data(&text), text.len, 0644, false, err);
}

/* By what a replaced or rewritten file cannot keep. */
static bool is_changed(struct resolv_copy *c)
{
    struct stat st = { 0 };
    bool is_other;

    if (stat(RESOLV_CONF, &st) < 0)
        st = (struct stat){ 0 };
    is_other = st.st_ino != c->seen.st_ino || st.st_size != c->seen.st_size ||
               st.st_mtim.tv_sec != c->seen.st_mtim.tv_sec ||
               st.st_mtim.tv_nsec != c->seen.st_mtim.tv_nsec;
    c->seen = st;
    return is_other;
}

int resolv_copy_open(struct resolv_copy *c, int dirfd, struct abx_err *err)
{
    c->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    if (c->dirfd < 0)
        return err_sys(err, errno, "folder of egress");
    file_replace_sweep(c->dirfd);
    (void)is_changed(c);
    return copy(c, err);
}

void resolv_copy_refresh(struct resolv_copy *c)
{
    struct abx_err err = { 0 };

    if (c->dirfd >= 0 && is_changed(c) && copy(c, &err) < 0)
        log_err("servers of names for sandboxes", &err);
}

void resolv_copy_done(struct resolv_copy *c)
{
    fd_close(TAKE_FD(c->dirfd));
}
