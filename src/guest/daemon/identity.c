/* identity.c - see identity.h; messages are abx.ipc.GuestFrame of schema/ipc.proto. */
#include "guest/daemon/identity.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "schema/ipc.pb-c.h"
#include "wire/rpc.h"

#define PEERS_MAX 4 /* open connections of the engine; it needs one */

struct peer {
    uv_poll_t poll;
    struct control *owner;
    int fd;
};

struct control {
    uv_poll_t poll;
    int fd;
    struct identity *id;
    identity_changed_fn changed;
    identity_resumed_fn resumed;
    void *user;
    struct peer *peers[PEERS_MAX];
};

void identity_done(struct identity *id)
{
    free(id->sandbox_id);
    free(id->template_id);
    free(id->access_token);
    free(id->default_user);
    free(id->default_workdir);
    for (size_t i = 0; i < id->n_envs; i++)
        free(id->envs[i]);
    free(id->envs);
    memset(id, 0, sizeof(*id));
}

static int envs_copy(struct identity *id, const Abx__Ipc__Identity *m, struct abx_err *err)
{
    id->envs = calloc(m->n_envs + 1, sizeof(*id->envs));
    if (!id->envs)
        return err_oom(err);
    for (size_t i = 0; i < m->n_envs; i++) {
        if (m->envs[i]->key[0] == '\0' || strchr(m->envs[i]->key, '=')) {
            log_warn("environment variable of the sandbox has no valid name", "name",
                     m->envs[i]->key, NULL);
            continue;
        }
        if (asprintf(&id->envs[id->n_envs], "%s=%s", m->envs[i]->key, m->envs[i]->value) < 0) {
            id->envs[id->n_envs] = NULL;
            return err_oom(err);
        }
        id->n_envs++;
    }
    return 0;
}

static int identity_copy(struct identity *id, const Abx__Ipc__Identity *m, struct abx_err *err)
{
    int r;

    id->is_claimed = true;
    id->sandbox_id = strdup(m->sandbox_id);
    id->template_id = strdup(m->template_id);
    id->access_token = strdup(m->access_token);
    id->default_user = strdup(m->default_user);
    id->default_workdir = strdup(m->default_workdir);
    r = envs_copy(id, m, err);
    if (r < 0)
        return r;
    if (!id->sandbox_id || !id->template_id || !id->access_token || !id->default_user ||
        !id->default_workdir)
        return err_oom(err);
    return 0;
}

int identity_decode(struct identity *id, struct slice message, struct abx_err *err)
{
    _cleanup_(identity_done) struct identity new_id = { 0 };
    struct rpc_error e = { 0 };
    ProtobufCMessage *m = NULL;
    Abx__Ipc__GuestFrame *frame;
    int r = 0;

    if (rpc_proto_decode_within(&abx__ipc__guest_frame__descriptor, message, RPC_ANSWER_FACTOR, &m,
                                &e))
        return err_set(err, ABX_INVALID_ARGUMENT, "control message: %s", e.text);
    frame = (Abx__Ipc__GuestFrame *)m;
    if (frame->version == 0 || frame->body_case != ABX__IPC__GUEST_FRAME__BODY_IDENTITY)
        r = err_set(err, ABX_UNIMPLEMENTED, "control message of an unknown kind");
    else
        r = identity_copy(&new_id, frame->identity, err);
    rpc_message_free(m);
    if (r < 0)
        return r;
    identity_done(id);
    *id = new_id;
    memset(&new_id, 0, sizeof(new_id));
    return 0;
}

bool resumed_decode(struct slice message)
{
    struct rpc_error e = { 0 };
    ProtobufCMessage *m = NULL;
    bool is_it;

    if (rpc_proto_decode(&abx__ipc__guest_frame__descriptor, message, &m, &e))
        return false;
    is_it = ((Abx__Ipc__GuestFrame *)m)->body_case == ABX__IPC__GUEST_FRAME__BODY_RESUMED;
    rpc_message_free(m);
    return is_it;
}

static void peer_closed(uv_handle_t *h)
{
    struct peer *p = h->data;

    fd_close(p->fd);
    free(p);
}

static void peer_close(struct peer *p)
{
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (p->owner->peers[i] == p)
            p->owner->peers[i] = NULL;
    }
    uv_close((uv_handle_t *)&p->poll, peer_closed);
}

/* One message; false when there is none for now. */
static bool peer_receive(struct peer *p)
{
    _cleanup_(freep) uint8_t *bytes = malloc(IDENTITY_MESSAGE_MAX);
    struct iovec iov = { bytes, IDENTITY_MESSAGE_MAX };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct control *c = p->owner;
    struct abx_err err = { 0 };
    ssize_t n = bytes ? recvmsg(p->fd, &msg, MSG_DONTWAIT) : -1;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0 || (msg.msg_flags & MSG_TRUNC)) {
        peer_close(p);
        return false;
    }
    if (resumed_decode(slice_of(bytes, (size_t)n))) {
        c->resumed(c->user);
        return true;
    }
    if (identity_decode(c->id, slice_of(bytes, (size_t)n), &err) < 0) {
        log_err("identity refused", &err);
        return true;
    }
    c->changed(c->user, slice_of(bytes, (size_t)n));
    return true;
}

static void on_peer(uv_poll_t *poll, int status, int events)
{
    struct peer *p = poll->data;

    while (peer_receive(p)) {
    }
}

static bool peer_is_engine(int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && cred.pid == 0;
}

static struct peer *peer_add(struct control *c, int fd)
{
    struct peer **slot = NULL, *p;

    for (size_t i = 0; i < PEERS_MAX && !slot; i++)
        slot = c->peers[i] ? NULL : &c->peers[i];
    p = slot ? calloc(1, sizeof(*p)) : NULL;
    if (!p)
        return NULL;
    p->owner = c;
    p->fd = fd;
    p->poll.data = p;
    if (uv_poll_init(c->poll.loop, &p->poll, fd) < 0) {
        free(p);
        return NULL;
    }
    *slot = p;
    (void)uv_poll_start(&p->poll, UV_READABLE, on_peer);
    return p;
}

void control_drain(struct control *c)
{
    struct peer *p;
    int fd;

    while ((fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        p = peer_is_engine(fd) ? peer_add(c, fd) : NULL;
        if (!p)
            fd_close(fd);
    }
    for (size_t i = 0; i < PEERS_MAX; i++) {
        while (c->peers[i] && peer_receive(c->peers[i])) {
        }
    }
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    control_drain(poll->data);
}

void control_look(struct control *c)
{
    struct pollfd p = { c->fd, POLLIN, 0 };

    if (poll(&p, 1, 0) > 0)
        control_drain(c);
}

int control_new(uv_loop_t *loop, int fd, struct identity *id, identity_changed_fn changed,
                identity_resumed_fn resumed, void *user, struct control **ret, struct abx_err *err)
{
    _cleanup_(freep) struct control *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(err);
    c->fd = fd;
    c->id = id;
    c->changed = changed;
    c->resumed = resumed;
    c->user = user;
    c->poll.data = c;
    if (uv_poll_init(loop, &c->poll, fd) < 0 ||
        uv_poll_start(&c->poll, UV_READABLE, on_listener) < 0)
        return err_set(err, ABX_INTERNAL, "watch the control channel");
    *ret = TAKE_PTR(c);
    return 0;
}
