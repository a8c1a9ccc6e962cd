/* test_ipc.c - connections over socketpairs, requests, limits, listener and client. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/str.h"
#include "net/ipc.h"

struct side {
    struct ipc_conn *conn;
    unsigned frames, closed;
    bool answers, takes_fds;
    int taken_fd;
    uint64_t last_seq;
    char last_id[64];
    struct abx_err why;
};

struct result {
    unsigned calls;
    int code;
    char message[64];
    Abx__Ipc__Frame__BodyCase body;
    bool existed;
};

static uv_loop_t loop;

static int setup(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

static int teardown(void **state)
{
    (void)state;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                     size_t n_fds)
{
    struct side *s = user;

    s->frames++;
    s->last_seq = f->seq;
    if (f->body_case == ABX__IPC__FRAME__BODY_KILL)
        (void)snprintf(s->last_id, sizeof s->last_id, "%s", f->kill->sandbox_id);
    if (s->takes_fds && n_fds > 0)
        s->taken_fd = TAKE_FD(fds[0]);
    if (s->answers) {
        Abx__Ipc__Frame r = ABX__IPC__FRAME__INIT;
        Abx__Ipc__KillReply k = ABX__IPC__KILL_REPLY__INIT;

        k.existed = true;
        r.body_case = ABX__IPC__FRAME__BODY_KILL_REPLY;
        r.kill_reply = &k;
        assert_int_equal(ipc_conn_reply(c, f->seq, &r, NULL), 0);
    }
}

static void on_close(void *user, struct ipc_conn *c, const struct abx_err *why)
{
    struct side *s = user;

    assert_ptr_equal(s->conn, c);
    s->conn = NULL;
    s->closed++;
    s->why = *why;
}

static void on_done(void *user, const struct abx_err *failure, const Abx__Ipc__Frame *reply,
                    int *fds, size_t n_fds)
{
    struct result *r = user;

    (void)fds;
    (void)n_fds;
    r->calls++;
    r->code = failure ? failure->code : 0;
    (void)snprintf(r->message, sizeof r->message, "%.60s", failure ? failure->msg : "");
    r->body = reply ? reply->body_case : ABX__IPC__FRAME__BODY__NOT_SET;
    r->existed =
        reply && reply->body_case == ABX__IPC__FRAME__BODY_KILL_REPLY && reply->kill_reply->existed;
}

static void side_open(struct side *s, int fd)
{
    const struct ipc_handlers h = { on_frame, on_close, s };

    s->taken_fd = -EBADF;
    assert_int_equal(ipc_conn_new(&loop, fd, &h, &s->conn, NULL), 0);
}

static void pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

static void open_both(struct side *a, struct side *b)
{
    int fds[2];

    pair(fds);
    side_open(a, fds[0]);
    side_open(b, fds[1]);
}

/* Runs the loop until `*n` is at least `want`; fails after 60 s. */
static void run_until(const unsigned *n, unsigned want)
{
    int64_t end = time_mono_ns() + 60 * NSEC_PER_SEC;

    while (*n < want && time_mono_ns() < end)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_in_range(*n, want, UINT32_MAX);
}

static void close_side(struct side *s)
{
    if (s->conn)
        ipc_conn_close(s->conn);
    run_until(&s->closed, 1);
}

static int send_kill(struct ipc_conn *c, const char *id, int *fds, size_t n_fds)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Kill k = ABX__IPC__KILL__INIT;
    char text[64];

    (void)snprintf(text, sizeof text, "%s", id);
    k.sandbox_id = text;
    f.body_case = ABX__IPC__FRAME__BODY_KILL;
    f.kill = &k;
    return ipc_conn_send(c, &f, fds, n_fds, NULL);
}

static int request_kill(struct ipc_conn *c, int timeout_ms, struct result *r)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Kill k = ABX__IPC__KILL__INIT;

    f.body_case = ABX__IPC__FRAME__BODY_KILL;
    f.kill = &k;
    return ipc_conn_request(c, &f, timeout_ms, on_done, r, NULL);
}

static void request_gets_its_answer(void **state)
{
    struct side a = { 0 }, b = { .answers = true };
    struct result r[3] = { 0 };

    (void)state;
    open_both(&a, &b);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
        assert_int_equal(request_kill(a.conn, 5000, &r[i]), 0);
        assert_int_equal(r[i].calls, 0);
    }
    run_until(&r[2].calls, 1);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
        assert_int_equal(r[i].calls, 1);
        assert_int_equal(r[i].code, 0);
        assert_true(r[i].existed);
    }
    close_side(&a);
    run_until(&b.closed, 1);
    assert_int_equal(b.why.code, 0);
}

static void error_frame_becomes_failure(void **state)
{
    struct side a = { 0 }, b = { 0 };
    struct result r = { 0 };
    struct abx_err e;

    (void)state;
    open_both(&a, &b);
    assert_int_equal(request_kill(a.conn, 5000, &r), 0);
    run_until(&b.frames, 1);
    (void)err_reason(&e, ABX_REASON_DISK_FULL, "no room");
    assert_int_equal(ipc_conn_reply_error(b.conn, b.last_seq, &e, NULL), 0);
    run_until(&r.calls, 1);
    assert_int_equal(r.code, ABX_RESOURCE_EXHAUSTED);
    assert_string_equal(r.message, "no room");
    close_side(&a);
    close_side(&b);
}

static void foreign_error_codes_become_unknown(void **state)
{
    Abx__Ipc__Error e = ABX__IPC__ERROR__INIT;
    struct abx_err got;

    (void)state;
    e.code = 17;
    e.reason = 9999;
    ipc_error_decode(&e, &got);
    assert_int_equal(got.code, ABX_UNKNOWN);
    assert_int_equal(got.reason, ABX_REASON_NONE);
    e.code = 5;
    ipc_error_decode(&e, &got);
    assert_int_equal(got.code, ABX_NOT_FOUND);
}

static void request_ends_at_its_deadline_once(void **state)
{
    struct side a = { 0 }, b = { 0 };
    struct result slow = { 0 }, quick = { 0 };
    struct abx_err e;

    (void)state;
    open_both(&a, &b);
    assert_int_equal(request_kill(a.conn, 5000, &slow), 0);
    assert_int_equal(request_kill(a.conn, 20, &quick), 0);
    run_until(&quick.calls, 1);
    assert_int_equal(quick.code, ABX_DEADLINE_EXCEEDED);
    assert_int_equal(slow.calls, 0);
    /* The late answer is dropped. */
    (void)err_set(&e, ABX_INTERNAL, "late");
    assert_int_equal(ipc_conn_reply_error(b.conn, 2, &e, NULL), 0);
    assert_int_equal(ipc_conn_reply_error(b.conn, 1, &e, NULL), 0);
    run_until(&slow.calls, 1);
    assert_int_equal(quick.calls, 1);
    assert_int_equal(slow.code, ABX_INTERNAL);
    close_side(&a);
    close_side(&b);
}

static void requests_end_with_the_connection(void **state)
{
    struct side a = { 0 }, b = { 0 };
    struct result r[2] = { 0 };

    (void)state;
    open_both(&a, &b);
    assert_int_equal(request_kill(a.conn, 5000, &r[0]), 0);
    assert_int_equal(request_kill(a.conn, 5000, &r[1]), 0);
    ipc_conn_close(b.conn);
    run_until(&a.closed, 1);
    assert_int_equal(r[0].calls, 1);
    assert_int_equal(r[1].calls, 1);
    assert_int_equal(r[0].code, ABX_UNAVAILABLE);
    run_until(&b.closed, 1);
}

/* More answers than one wakeup reads, and a message that the peer never read: the kernel tells of an
 * error first. */
static void answers_that_came_before_the_peer_was_lost_count(void **state)
{
    enum { ANSWERED = 40 };
    struct side a = { 0 };
    struct result r[ANSWERED + 1] = { 0 };
    static uint8_t bytes[IPC_FRAME_MAX];
    int fds[2];

    (void)state;
    pair(fds);
    side_open(&a, fds[0]);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++)
        assert_int_equal(request_kill(a.conn, 5000, &r[i]), 0);
    for (size_t i = 0; i < ANSWERED; i++) {
        Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
        Abx__Ipc__KillReply k = ABX__IPC__KILL_REPLY__INIT;
        size_t size;

        assert_true(recv(fds[1], bytes, sizeof bytes, 0) > 0);
        k.existed = true;
        f.seq = i + 1;
        f.body_case = ABX__IPC__FRAME__BODY_KILL_REPLY;
        f.kill_reply = &k;
        size = ipc_frame_encode(&f, bytes);
        assert_int_equal(send(fds[1], bytes, size, 0), size);
    }
    fd_close(fds[1]);
    run_until(&a.closed, 1);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
        assert_int_equal(r[i].calls, 1);
        assert_int_equal(r[i].code, i < ANSWERED ? 0 : ABX_UNAVAILABLE);
    }
}

/* Nothing is taken while reading is off, and nothing is lost by it. */
static void a_lost_peer_is_noticed_when_reading_goes_on(void **state)
{
    struct side a = { 0 }, b = { 0 };
    struct result r[2] = { 0 };
    struct abx_err e;

    (void)state;
    open_both(&a, &b);
    ipc_conn_set_reading(a.conn, false);
    assert_int_equal(request_kill(a.conn, 5000, &r[0]), 0);
    run_until(&b.frames, 1);
    (void)err_set(&e, ABX_NOT_FOUND, "no");
    assert_int_equal(ipc_conn_reply_error(b.conn, b.last_seq, &e, NULL), 0);
    assert_int_equal(request_kill(a.conn, 5000, &r[1]), 0);
    close_side(&b); /* without reading the second one */
    for (int i = 0; i < 5; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(a.closed + r[0].calls, 0);
    ipc_conn_set_reading(a.conn, true);
    run_until(&a.closed, 1);
    assert_int_equal(r[0].code, ABX_NOT_FOUND);
    assert_int_equal(r[1].code, ABX_UNAVAILABLE);
}

static void close_calls_back_later_and_once(void **state)
{
    struct side a = { 0 }, b = { 0 };
    struct result r = { 0 };

    (void)state;
    open_both(&a, &b);
    assert_int_equal(request_kill(a.conn, 5000, &r), 0);
    ipc_conn_close(a.conn);
    ipc_conn_close(a.conn);
    assert_int_equal(a.closed, 0);
    assert_int_equal(r.calls, 0);
    assert_int_equal(request_kill(a.conn, 5000, &r), ABX_UNAVAILABLE);
    run_until(&a.closed, 1);
    assert_int_equal(a.closed, 1);
    assert_int_equal(r.calls, 1);
    /* What was sent before the end still arrives. */
    run_until(&b.closed, 1);
    assert_int_equal(b.frames, 1);
}

static void descriptors_travel_and_unexpected_ones_are_closed(void **state)
{
    struct side a = { 0 }, b = { .takes_fds = true };
    struct stat want, got;
    int fds[2];
    int lowest, again;

    (void)state;
    open_both(&a, &b);
    lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fd_close(lowest);
    fds[0] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    fds[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fds[0], &want), 0);
    assert_int_equal(send_kill(a.conn, "x", fds, 2), 0);
    assert_int_equal(fds[0], -EBADF);
    run_until(&b.frames, 1);
    assert_int_equal(fstat(b.taken_fd, &got), 0);
    assert_true(want.st_ino == got.st_ino);
    assert_true(fcntl(b.taken_fd, F_GETFD) & FD_CLOEXEC);
    fd_close(TAKE_FD(b.taken_fd));
    again = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(again, lowest); /* nothing was left open */
    fd_close(again);
    close_side(&a);
    close_side(&b);
}

static void frames_queue_in_order_up_to_a_limit(void **state)
{
    struct side a = { 0 }, b = { 0 };
    unsigned sent = 0;
    char id[16];
    int r;

    (void)state;
    open_both(&a, &b);
    ipc_conn_set_reading(b.conn, false);
    do {
        (void)snprintf(id, sizeof id, "%u", sent);
        r = send_kill(a.conn, id, NULL, 0);
        sent += r == 0;
    } while (r == 0 && sent < 20 * IPC_QUEUE_FRAMES);
    assert_int_equal(r, ABX_RESOURCE_EXHAUSTED);
    assert_in_range(sent, IPC_QUEUE_FRAMES, 2 * IPC_QUEUE_FRAMES);
    ipc_conn_set_reading(b.conn, true);
    run_until(&b.frames, sent);
    (void)snprintf(id, sizeof id, "%u", sent - 1);
    assert_string_equal(b.last_id, id);
    close_side(&a);
    close_side(&b);
}

static void too_large_a_frame_is_refused_by_the_sender(void **state)
{
    struct side a = { 0 }, b = { 0 };
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Admin admin = ABX__IPC__ADMIN__INIT;
    _cleanup_(freep) char *text = calloc(1, IPC_FRAME_MAX + 1);
    struct abx_err e;

    (void)state;
    open_both(&a, &b);
    assert_non_null(text);
    memset(text, 'x', IPC_FRAME_MAX);
    admin.json = text;
    f.body_case = ABX__IPC__FRAME__BODY_ADMIN;
    f.admin = &admin;
    assert_int_equal(ipc_conn_send(a.conn, &f, NULL, 0, &e), ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(e.reason, ABX_REASON_TOO_LARGE);
    /* The largest that fits arrives. */
    text[IPC_FRAME_MAX - 16] = '\0';
    assert_int_equal(ipc_conn_send(a.conn, &f, NULL, 0, &e), 0);
    run_until(&b.frames, 1);
    close_side(&a);
    close_side(&b);
}

/* Raw bytes against a connection: it has to end without a frame. */
static void expect_end(const void *p, size_t n, bool with_fds)
{
    struct side b = { 0 };
    union {
        char space[CMSG_SPACE(sizeof(int) * (IPC_FDS_MAX + 1))];
        struct cmsghdr align;
    } control = { 0 };
    struct iovec iov = { (void *)(uintptr_t)p, n };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    int fds[2];

    pair(fds);
    side_open(&b, fds[1]);
    if (with_fds) {
        const struct cmsghdr head = { CMSG_LEN(sizeof(int) * (IPC_FDS_MAX + 1)), SOL_SOCKET,
                                      SCM_RIGHTS };

        m.msg_control = control.space;
        m.msg_controllen = sizeof control.space;
        memcpy(control.space, &head, sizeof head);
        for (size_t i = 0; i <= IPC_FDS_MAX; i++)
            memcpy(control.space + CMSG_LEN(i * sizeof(int)), &fds[0], sizeof(int));
    }
    assert_int_equal(sendmsg(fds[0], &m, 0), (ssize_t)n);
    run_until(&b.closed, 1);
    assert_int_equal(b.why.code, ABX_INVALID_ARGUMENT);
    assert_int_equal(b.frames, 0);
    fd_close(fds[0]);
}

static void malformed_messages_end_the_connection(void **state)
{
    static uint8_t big[IPC_FRAME_MAX + 1];
    static const uint8_t good[] = { 0x08, 1, 0xb2, 1, 0 }; /* kill with the default id */

    (void)state;
    expect_end("\xff\xff\xff", 3, false);
    expect_end(big, sizeof big, false);
    expect_end(good, sizeof good, true);
}

static void unknown_body_and_version_zero_are_answered(void **state)
{
    static const struct {
        uint8_t bytes[8];
        size_t n;
        uint32_t code;
    } cases[] = {
        { { 0x10, 7, 0xb2, 1, 0 }, 5, 3 },                   /* no version, kill */
        { { 0x08, 1, 0x10, 7, 0xf2, 0x3f, 1, 'x' }, 8, 12 }, /* field 1022 */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct side b = { 0 };
        uint8_t answer[512];
        Abx__Ipc__Frame *f;
        ssize_t n = -1;
        int fds[2];

        pair(fds);
        side_open(&b, fds[1]);
        assert_int_equal(send(fds[0], cases[i].bytes, cases[i].n, 0), (ssize_t)cases[i].n);
        for (int k = 0; k < 100 && n < 0; k++) {
            (void)uv_run(&loop, UV_RUN_NOWAIT);
            n = recv(fds[0], answer, sizeof answer, MSG_DONTWAIT);
        }
        assert_true(n > 0);
        f = ipc_frame_decode(answer, (size_t)n);
        assert_non_null(f);
        assert_int_equal(f->seq, 7);
        assert_int_equal(f->body_case, ABX__IPC__FRAME__BODY_ERROR);
        assert_int_equal(f->error->code, cases[i].code);
        abx__ipc__frame__free_unpacked(f, NULL);
        assert_int_equal(b.frames, 0);
        fd_close(fds[0]);
        run_until(&b.closed, 1);
    }
}

static void decoding_is_bounded(void **state)
{
    /* 30,000 empty sandboxes in 60 KB would take 48 bytes each and more. */
    _cleanup_(freep) uint8_t *p = calloc(1, IPC_FRAME_MAX);
    size_t n = 8, body = 60000;

    (void)state;
    assert_non_null(p);
    memcpy(p, (const uint8_t[]){ 0x08, 1, 0xca, 1, 0xe0, 0xd4, 3, 0 }, 7);
    n = 7;
    for (size_t i = 0; i < body; i += 2) {
        p[n++] = 0x0a;
        p[n++] = 0;
    }
    assert_null(ipc_frame_decode(p, n));
}

/* What control lets a client choose as the environment of a sandbox: the shorter they are, the more memory they take for each
 * byte of the frame. With names of two characters 60 KiB are 4388 (create_request.h). */
static void many_short_variables_are_decoded(void **state)
{
    static Abx__Ipc__Identity__EnvsEntry entries[4388], *list[4388];
    static char names[4388][3];
    static char empty[] = "";
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT, *got;
    Abx__Ipc__Create create = ABX__IPC__CREATE__INIT;
    Abx__Ipc__Identity identity = ABX__IPC__IDENTITY__INIT;
    _cleanup_(freep) uint8_t *p = calloc(1, IPC_FRAME_MAX);
    size_t n;

    (void)state;
    assert_non_null(p);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        abx__ipc__identity__envs_entry__init(&entries[i]);
        names[i][0] = (char)('>' + i % 66);
        names[i][1] = (char)('>' + i / 66 % 67);
        entries[i].key = names[i];
        entries[i].value = empty;
        list[i] = &entries[i];
    }
    identity.envs = list;
    identity.n_envs = ARRAY_SIZE(list);
    create.identity = &identity;
    frame.body_case = ABX__IPC__FRAME__BODY_CREATE;
    frame.create = &create;
    n = ipc_frame_encode(&frame, p);
    assert_true(n > 0);
    got = ipc_frame_decode(p, n);
    assert_non_null(got);
    assert_int_equal(got->create->identity->n_envs, ARRAY_SIZE(list));
    abx__ipc__frame__free_unpacked(got, NULL);
}

/* --- listener and client ------------------------------------------------------------------------ */

struct server {
    struct ipc_listener *listener;
    struct side peers[4];
    unsigned accepted;
    char path[64];
};

static void server_on_frame(void *user, struct ipc_conn *c, const Abx__Ipc__Frame *f, int *fds,
                            size_t n_fds)
{
    struct side *s = user;
    Abx__Ipc__Frame r = ABX__IPC__FRAME__INIT;
    Abx__Ipc__HelloReply h = ABX__IPC__HELLO_REPLY__INIT;
    char instance[] = "i1";

    (void)fds;
    (void)n_fds;
    s->frames++;
    h.instance = instance;
    r.body_case = ABX__IPC__FRAME__BODY_HELLO_REPLY;
    r.hello_reply = &h;
    if (f->body_case == ABX__IPC__FRAME__BODY_HELLO)
        assert_int_equal(ipc_conn_reply(c, f->seq, &r, NULL), 0);
}

static void server_accept(void *user, int fd, const struct ucred *peer)
{
    struct server *v = user;
    struct side *s = &v->peers[v->accepted++];
    const struct ipc_handlers h = { server_on_frame, on_close, s };

    assert_int_equal(peer->pid, getpid());
    assert_int_equal(ipc_conn_new(&loop, fd, &h, &s->conn, NULL), 0);
}

static void server_start(struct server *v, uid_t uid)
{
    int fd;

    (void)snprintf(v->path, sizeof v->path, "/tmp/abx-test-ipc.%d", (int)getpid());
    assert_int_equal(ipc_listen(v->path, 0600, &fd, NULL), 0);
    assert_int_equal(ipc_listener_new(&loop, fd, &uid, 1, server_accept, v, &v->listener, NULL), 0);
}

static void server_stop(struct server *v)
{
    ipc_listener_free(v->listener);
    (void)unlink(v->path);
}

struct client_state {
    unsigned ups, downs;
    char instance[16];
};

static void on_up(void *user, struct ipc_conn *c, const Abx__Ipc__HelloReply *hello)
{
    struct client_state *k = user;

    assert_non_null(c);
    k->ups++;
    (void)snprintf(k->instance, sizeof k->instance, "%s", hello->instance);
}

static void on_down(void *user, const struct abx_err *why)
{
    struct client_state *k = user;

    (void)why;
    k->downs++;
}

static void client_connects_again(void **state)
{
    struct server v = { 0 };
    struct client_state k = { 0 };
    const struct ipc_client_handlers h = { on_up, NULL, on_down, &k };
    struct ipc_client *client = NULL;

    (void)state;
    (void)snprintf(v.path, sizeof v.path, "/tmp/abx-test-ipc.%d", (int)getpid());
    (void)unlink(v.path);
    assert_int_equal(ipc_client_new(&loop, v.path, &h, &client, NULL), 0);
    for (int i = 0; i < 3; i++) /* nobody listens yet */
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_null(ipc_client_conn(client));
    server_start(&v, getuid());
    run_until(&k.ups, 1);
    assert_string_equal(k.instance, "i1");
    assert_non_null(ipc_client_conn(client));
    ipc_conn_close(v.peers[0].conn);
    run_until(&k.downs, 1);
    assert_null(ipc_client_conn(client));
    run_until(&k.ups, 2);
    ipc_client_free(client);
    run_until(&v.peers[1].closed, 1);
    assert_int_equal(k.downs, 1);
    server_stop(&v);
}

static void strangers_are_closed(void **state)
{
    struct server v = { 0 };
    char byte;
    int fd;

    (void)state;
    server_start(&v, getuid() + 1);
    assert_int_equal(ipc_connect(v.path, &fd, NULL), 0);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(v.accepted, 0);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    fd_close(fd);
    server_stop(&v);
}

static void bad_socket_paths_are_errors(void **state)
{
    char path[200];
    int fd = -1;

    (void)state;
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(ipc_connect(path, &fd, NULL), ABX_INVALID_ARGUMENT);
    assert_int_equal(ipc_listen("", 0600, &fd, NULL), ABX_INVALID_ARGUMENT);
    assert_int_equal(ipc_connect("/nonexistent/socket", &fd, NULL), ABX_UNAVAILABLE);
    assert_int_equal(fd, -1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* A peer that waits for an answer gets it only if its kind is known as one. */
static void answers_are_known_by_their_kind(void **state)
{
    const ProtobufCMessageDescriptor *d = &abx__ipc__frame__descriptor;
    unsigned n = 0;

    (void)state;
    for (unsigned i = 0; i < d->n_fields; i++) {
        const char *name = d->fields[i].name;
        size_t k = strlen(name);
        bool is_reply = strcmp(name, "error") == 0 ||
                        (k > 6 && strcmp(name + k - 6, "_reply") == 0) ||
                        (k > 5 && strcmp(name + k - 5, "_done") == 0);

        assert_int_equal(ipc_body_is_reply((Abx__Ipc__Frame__BodyCase)d->fields[i].id), is_reply);
        n += is_reply;
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(request_gets_its_answer),
        T(answers_are_known_by_their_kind),
        T(error_frame_becomes_failure),
        T(foreign_error_codes_become_unknown),
        T(request_ends_at_its_deadline_once),
        T(requests_end_with_the_connection),
        T(answers_that_came_before_the_peer_was_lost_count),
        T(a_lost_peer_is_noticed_when_reading_goes_on),
        T(close_calls_back_later_and_once),
        T(descriptors_travel_and_unexpected_ones_are_closed),
        T(frames_queue_in_order_up_to_a_limit),
        T(too_large_a_frame_is_refused_by_the_sender),
        T(malformed_messages_end_the_connection),
        T(unknown_body_and_version_zero_are_answered),
        T(decoding_is_bounded),
        T(many_short_variables_are_decoded),
        T(client_connects_again),
        T(strangers_are_closed),
        T(bad_socket_paths_are_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
