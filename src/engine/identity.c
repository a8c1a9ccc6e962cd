/* identity.c - see identity.h. */
#include "engine/identity.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/packet.h"
#include "e2b/guest_abi.h"
#include "engine/netns.h"

#define FRAME_VERSION 1u

int identity_encode(const Abx__Ipc__Identity *id, const char *sandbox_id, struct buf *b,
                    struct abx_err *err)
{
    Abx__Ipc__GuestFrame g = ABX__IPC__GUEST_FRAME__INIT;
    Abx__Ipc__Identity own = ABX__IPC__IDENTITY__INIT;
    uint8_t *to;
    size_t n;

    if (id)
        own = *id;
    own.sandbox_id = (char *)(uintptr_t)sandbox_id;
    g.version = FRAME_VERSION;
    g.body_case = ABX__IPC__GUEST_FRAME__BODY_IDENTITY;
    g.identity = &own;
    n = abx__ipc__guest_frame__get_packed_size(&g);
    to = buf_reserve(b, n, NULL);
    if (!to)
        return err_reason(err, ABX_REASON_TOO_LARGE, "identity of %zu bytes", n);
    buf_commit(b, abx__ipc__guest_frame__pack(&g, to));
    return 0;
}

int resumed_encode(struct buf *b, struct abx_err *err)
{
    Abx__Ipc__GuestFrame g = ABX__IPC__GUEST_FRAME__INIT;
    Abx__Ipc__Resumed resumed = ABX__IPC__RESUMED__INIT;
    uint8_t bytes[16];

    g.version = FRAME_VERSION;
    g.body_case = ABX__IPC__GUEST_FRAME__BODY_RESUMED;
    g.resumed = &resumed;
    if (abx__ipc__guest_frame__get_packed_size(&g) > sizeof bytes ||
        buf_append(b, bytes, abx__ipc__guest_frame__pack(&g, bytes)) != BUF_OK)
        return err_oom(err);
    return 0;
}

int identity_deliver(int netns_fd, struct slice frame, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = netns_connect_control(netns_fd, GUEST_CONTROL_NAME, &fd, err);

    if (r < 0)
        return err_wrap(err, r, "guest's control channel");
    if (packet_send(fd, frame.p, frame.n, NULL, 0, 0) < 0)
        return err_sys(err, errno, "guest's control channel");
    return 0;
}

bool hostname_is_valid(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == n;
}

int hostname_set(int pidfd, int own_uts_fd, const char *name, struct abx_err *err)
{
    int r = 0;

    if (setns(pidfd, CLONE_NEWUTS) < 0)
        return err_sys(err, errno, "enter the sandbox's UTS namespace");
    if (sethostname(name, strlen(name)) < 0)
        r = err_sys(err, errno, "set host name");
    if (setns(own_uts_fd, CLONE_NEWUTS) < 0)
        abort(); /* everything after would rename a sandbox */
    return r;
}
