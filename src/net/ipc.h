/* ipc.h - messages between the host processes of one service (schema/ipc.proto).
 *
 * A connection is a unix SEQPACKET socket on a libuv loop; one message is one Frame of at most
 * IPC_FRAME_MAX bytes with at most IPC_FDS_MAX file descriptors. Three parts: ipc_conn (send,
 * receive, requests with deadlines), ipc_listener (accept from a listening socket, peers checked by
 * uid), ipc_client (connect, say hello, connect again with back-off).
 *
 * Rules: MSG_TRUNC and MSG_CTRUNC end the connection; a frame that cannot be decoded ends it; a
 * frame of version 0 or without a known body is answered by Error; descriptors that the receiver
 * does not take are closed; frames that the peer cannot take yet wait in a queue of at most
 * IPC_QUEUE_FRAMES and IPC_QUEUE_BYTES. Decoding uses an allocator capped at 16 x frame + 64 KiB,
 * of which any list of entries that a frame has room for needs less.
 * All calls belong to the loop's thread. No callback is called from inside a function of this file
 * that the user called.
 */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "base/packet.h"
#include "schema/ipc.pb-c.h"

#define IPC_VERSION 1u
#define IPC_FRAME_MAX 65536u
#define IPC_FDS_MAX PACKET_FDS_MAX
#define IPC_QUEUE_FRAMES 4096u
#define IPC_QUEUE_BYTES (8u << 20)

struct ipc_conn;

struct ipc_handlers {
    /* A frame that is not the answer to a request of this side. `frame` is borrowed until return;
     * take descriptors with TAKE_FD(fds[i]), the others are closed after return. May call
     * ipc_conn_close. */
    void (*on_frame)(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *frame, int *fds,
                     size_t n_fds);
    /* The last call of a connection, exactly once, after all its requests completed; `c` is freed
     * when it returns. `why` has code 0 when the peer or this side closed it. */
    void (*on_close)(void *user, struct ipc_conn *c, const struct abx_err *why);
    void *user;
};

/* Takes over the connected socket `fd` (closed in any case). `handlers` is copied. The connection
 * lives until on_close. */
int ipc_conn_new(uv_loop_t *loop, int fd, const struct ipc_handlers *handlers,
                 struct ipc_conn **ret, struct abx_err *err);
/* Ends it: requests complete with UNAVAILABLE and on_close follows, both from the loop. Queued
 * frames are dropped. More than once is fine. */
void ipc_conn_close(struct ipc_conn *c);
/* Stops or goes on reading, to push back on the peer. */
void ipc_conn_set_reading(struct ipc_conn *c, bool on);

/* Sends `frame` (its version is set here) with `fds`, which are closed in any case. Fails with
 * RESOURCE_EXHAUSTED when the queue is full or the frame too large, UNAVAILABLE when closed. */
int ipc_conn_send(struct ipc_conn *c, Abx__Ipc__Frame *frame, int *fds, size_t n_fds,
                  struct abx_err *err);
/* Answers request `seq` with `frame`, or with `failure` as an Error. */
int ipc_conn_reply(struct ipc_conn *c, uint64_t seq, Abx__Ipc__Frame *frame, struct abx_err *err);
int ipc_conn_reply_error(struct ipc_conn *c, uint64_t seq, const struct abx_err *failure,
                         struct abx_err *err);

/* The one completion of a request: `failure` set (an Error frame, DEADLINE_EXCEEDED, or UNAVAILABLE
 * when the connection ended) and `reply` NULL, or `failure` NULL and a reply of any other body.
 * Everything is borrowed until return; descriptors as in on_frame. */
typedef void (*ipc_done_fn)(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                            int *fds, size_t n_fds);

/* Sends `frame` as a request (its seq is set here). `done` is called exactly once, from the loop,
 * unless this call fails. */
int ipc_conn_request(struct ipc_conn *c, Abx__Ipc__Frame *frame, int timeout_ms, ipc_done_fn done,
                     void *user, struct abx_err *err);

/* Error message <-> struct abx_err. A foreign code or reason becomes UNKNOWN or NONE. */
void ipc_error_decode(const Abx__Ipc__Error *e, struct abx_err *ret);

/* For code without a loop (tests, simple tools): encodes into `to` (IPC_FRAME_MAX bytes) and
 * returns the size, 0 when it is too large; decodes, NULL when malformed. Free with
 * abx__ipc__frame__free_unpacked(f, NULL). */
size_t ipc_frame_encode(Abx__Ipc__Frame *frame, uint8_t *to);
Abx__Ipc__Frame *ipc_frame_decode(const uint8_t *p, size_t n);
/* Is a frame with this body an answer (true), or a request or event (false)? */
bool ipc_body_is_reply(Abx__Ipc__Frame__BodyCase body);

/* --- listener ---------------------------------------------------------------------------------- */

struct ipc_listener;

/* One accepted peer whose uid was allowed; `fd` is owned by the callee. */
typedef void (*ipc_accept_fn)(void *user, int fd, const struct ucred *peer);

/* Accepts from the listening socket `fd` (owned by the listener) peers with one of the `n_uids`
 * uids; others are closed without a word. `uids` is copied, at most 4. */
int ipc_listener_new(uv_loop_t *loop, int fd, const uid_t *uids, size_t n_uids,
                     ipc_accept_fn on_accept, void *user, struct ipc_listener **ret,
                     struct abx_err *err);
/* Closes and frees it (later, from the loop). */
void ipc_listener_free(struct ipc_listener *l);

/* A listening SEQPACKET socket at `path` (a stale one is replaced), mode as given, cloexec and
 * non-blocking. */
int ipc_listen(const char *path, mode_t mode, int *ret_fd, struct abx_err *err);
/* A connected one. UNAVAILABLE when nobody listens or the backlog is full. */
int ipc_connect(const char *path, int *ret_fd, struct abx_err *err);

/* --- client ------------------------------------------------------------------------------------ */

struct ipc_client;

struct ipc_client_handlers {
    /* Connected, and the server answered hello. `hello` is borrowed until return. */
    void (*on_up)(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello);
    /* Frames from the server as for ipc_conn. May be NULL. */
    void (*on_frame)(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *frame, int *fds,
                     size_t n_fds);
    /* A connection that was up ended; its requests have completed. May be NULL. */
    void (*on_down)(void *user, const struct abx_err *why);
    void *user;
};

/* Keeps a connection to the socket at `path` (copied): connects, sends Hello, calls on_up; after
 * an end tries again after 10 ms, doubling up to 1 s. Starts by itself, from the loop. */
int ipc_client_new(uv_loop_t *loop, const char *path, const struct ipc_client_handlers *handlers,
                   struct ipc_client **ret, struct abx_err *err);
/* The connection while it is up, else NULL. Do not close it; borrowed until on_down. */
struct ipc_conn *ipc_client_conn(const struct ipc_client *k);
/* Closes it and stops trying; requests still complete, on_down is not called. Frees itself from the
 * loop. */
void ipc_client_free(struct ipc_client *k);
