/* admin.c - see admin.h. */
#include "cli/admin.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/datadir.h"
#include "net/ipc.h"

#define CALL_TIMEOUT_S 30
#define REPLY_MAX (4u << 20)

extern char **environ;

static void frame_freep(Abx__Ipc__Frame **f)
{
    if (*f)
        abx__ipc__frame__free_unpacked(*f, NULL);
}

/* The service's answer: an object, with "error" {"code","message"} when the operation failed. */
static int reply_parse(const char *text, size_t n, json_t **ret, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    json_t *e = json_object_get(j, "error");

    if (!json_is_object(j))
        return err_set(err, ABX_INTERNAL, "control's answer is not a JSON object");
    if (e) {
        const char *code = json_string_value(json_object_get(e, "code"));
        const char *message = json_string_value(json_object_get(e, "message"));

        return err_set(err, err_code_from_name(code ? code : ""), "%s",
                       message ? message : "failed without a message");
    }
    *ret = TAKE_PTR(j);
    return 0;
}

static int wait_fd(int fd, short events, int64_t deadline_ns, struct abx_err *err)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = events };
        int64_t left = deadline_ns - time_mono_ns();
        int n = left <= 0 ? 0 : poll(&p, 1, (int)(left / NSEC_PER_MSEC) + 1);

        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return err_sys(err, errno, "poll");
        if (left <= 0)
            return err_set(err, ABX_DEADLINE_EXCEEDED, "no answer in time");
    }
}

static int exchange(int fd, const char *text, int timeout_s, json_t **ret_reply,
                    struct abx_err *err)
{
    Abx__Ipc__Admin admin = ABX__IPC__ADMIN__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    _cleanup_(freep) uint8_t *bytes = malloc(IPC_FRAME_MAX);
    int64_t deadline = time_mono_ns() + timeout_s * NSEC_PER_SEC;
    size_t n;
    int r;

    if (!bytes)
        return err_oom(err);
    admin.json = (char *)(uintptr_t)text;
    frame.version = IPC_VERSION;
    frame.seq = 1;
    frame.body_case = ABX__IPC__FRAME__BODY_ADMIN;
    frame.admin = &admin;
    n = ipc_frame_encode(&frame, bytes);
    if (n == 0)
        return err_reason(err, ABX_REASON_TOO_LARGE, "request is over %u bytes", IPC_FRAME_MAX);
    r = wait_fd(fd, POLLOUT, deadline, err);
    if (r < 0)
        return r;
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0)
        return err_sys(err, errno, "send to control");
    for (;;) {
        _cleanup_(frame_freep) Abx__Ipc__Frame *reply = NULL;
        ssize_t k;

        r = wait_fd(fd, POLLIN, deadline, err);
        if (r < 0)
            return r;
        k = recv(fd, bytes, IPC_FRAME_MAX, 0);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (k <= 0)
            return err_set(err, ABX_UNAVAILABLE, "control closed the connection");
        reply = ipc_frame_decode(bytes, (size_t)k);
        if (!reply || reply->seq != 1)
            continue;
        if (reply->body_case == ABX__IPC__FRAME__BODY_ERROR) {
            struct abx_err failure;

            ipc_error_decode(reply->error, &failure);
            return err_set(err, failure.code, "%s", failure.msg);
        }
        if (reply->body_case != ABX__IPC__FRAME__BODY_ADMIN_REPLY)
            return err_set(err, ABX_INTERNAL, "control answers with another message");
        return reply_parse(reply->admin_reply->json, strlen(reply->admin_reply->json), ret_reply,
                           err);
    }
}

static int dump_request(json_t *request, char **ret, struct abx_err *err)
{
    *ret = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    return *ret ? 0 : err_oom(err);
}

static int admin_call_text(const char *path, const char *text, int timeout_s, json_t **ret_reply,
                           struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    int r = ipc_connect(path, &fd, err);

    return r < 0 ? r : exchange(fd, text, timeout_s, ret_reply, err);
}

int admin_call(const char *path, json_t *request, int timeout_s, json_t **ret_reply,
               struct abx_err *err)
{
    _cleanup_(freep) char *text = NULL;
    int r = dump_request(request, &text, err);

    return r < 0 ? r : admin_call_text(path, text, timeout_s, ret_reply, err);
}

static int socket_path(const char *data_dir, char *to, size_t size, struct abx_err *err)
{
    char instance[DATADIR_INSTANCE_SIZE];
    int r = datadir_instance(data_dir, instance, err);

    if (r < 0)
        return r;
    (void)snprintf(to, size, "%s/%s/admin.sock", CLI_RUN_DIR, instance);
    return 0;
}

/* Did the connection fail because there is no service? */
static bool is_stopped(const struct abx_err *e)
{
    return e->code == ABX_UNAVAILABLE || e->sys == ENOENT || e->sys == ECONNREFUSED;
}

int admin_op_running(const char *data_dir, json_t *request, json_t **ret_reply, struct abx_err *err)
{
    _cleanup_(freep) char *text = NULL;
    _cleanup_(closep) int fd = -EBADF;
    struct abx_err failure = { 0 };
    char path[128];
    int r = dump_request(request, &text, err);

    if (r == 0)
        r = socket_path(data_dir, path, sizeof path, err);
    if (r < 0)
        return r;
    if (ipc_connect(path, &fd, &failure) == 0)
        return exchange(fd, text, CALL_TIMEOUT_S, ret_reply, err);
    if (is_stopped(&failure))
        return err_set(err, ABX_UNAVAILABLE, "no service with data dir '%s' answers: %s", data_dir,
                       failure.msg);
    return err_set(err, failure.code, "%s", failure.msg);
}

static int offline_op(const char *data_dir, const char *text, json_t **ret_reply,
                      struct abx_err *err)
{
    _cleanup_(buf_done) struct buf out = BUF_INIT(REPLY_MAX);
    char data_dir_arg[4096];
    char *argv[] = { (char[]){ "abx-control" }, (char[]){ "--data-dir" }, data_dir_arg,
                     (char[]){ "--admin" }, NULL };
    int status, r;

    (void)snprintf(data_dir_arg, sizeof data_dir_arg, "%s", data_dir);
    r = admin_run("abx-control", argv, slice_str(text), 30, &out, &status, err);
    if (r < 0)
        return r;
    if (out.len == 0)
        return err_set(err, ABX_INTERNAL, "abx-control ended with status 0x%x and no answer",
                       (unsigned)status);
    return reply_parse((const char *)buf_data(&out), out.len, ret_reply, err);
}

int admin_op(const char *data_dir, json_t *request, json_t **ret_reply, struct abx_err *err)
{
    _cleanup_(freep) char *text = NULL;
    struct abx_err first = { 0 };
    char path[128];
    int r;

    r = dump_request(request, &text, err);
    if (r == 0)
        r = socket_path(data_dir, path, sizeof path, err);
    if (r < 0)
        return r;
    r = admin_call_text(path, text, CALL_TIMEOUT_S, ret_reply, &first);
    if (r == 0)
        return 0;
    if (is_stopped(&first))
        return offline_op(data_dir, text, ret_reply, err);
    return err_set(err, first.code, "%s", first.msg);
}

_Noreturn static void child_exec(const char *path, char *const argv[], int in, int out)
{
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(126);
    (void)execve(path, argv, environ);
    _exit(127);
}

/* Feeds `input` to `in_fd` (closed in any case), reads output until EOF. */
static int talk(int in_fd, int out_fd, struct slice input, int64_t deadline_ns, struct buf *out,
                struct abx_err *err)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    _cleanup_(closep) int in = in_fd;

    /* A program that ended without reading is told by its status. The child has forked already. */
    (void)sigaction(SIGPIPE, &ignore, NULL);
    if (input.n > 0 && fd_write_all(in, input.p, input.n) < 0 && errno != EPIPE)
        return err_sys(err, errno, "write to program");
    fd_close(TAKE_FD(in));
    for (;;) {
        int r = wait_fd(out_fd, POLLIN, deadline_ns, err);
        size_t want = MIN(buf_room(out), (size_t)65536);
        uint8_t *to = want > 0 ? buf_reserve(out, want, NULL) : NULL;
        ssize_t n;

        if (r < 0)
            return r;
        if (!to)
            return err_reason(err, ABX_REASON_TOO_LARGE, "program's output is over %zu bytes",
                              out->limit);
        n = read(out_fd, to, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "read from program");
        if (n == 0)
            return 0;
        buf_commit(out, (size_t)n);
    }
}

int admin_run(const char *program, char *const argv[], struct slice input, unsigned timeout_s,
              struct buf *out, int *ret_status, struct abx_err *err)
{
    _cleanup_(closep) int in_r = -EBADF;
    _cleanup_(closep) int out_r = -EBADF;
    int in[2], pipe_out[2];
    char path[4096];
    pid_t pid;
    int r = cli_libexec(program, path, sizeof path, err);

    if (r < 0)
        return r;
    if (input.n > 65536)
        return err_reason(err, ABX_REASON_TOO_LARGE, "input of %s is over 65536 bytes", program);
    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe");
    in_r = in[0];
    if (pipe2(pipe_out, O_CLOEXEC) < 0) {
        fd_close(in[1]);
        return err_sys(err, errno, "pipe");
    }
    out_r = pipe_out[0];
    pid = fork();
    if (pid == 0)
        child_exec(path, argv, in[0], pipe_out[1]);
    fd_close(pipe_out[1]);
    if (pid < 0) {
        fd_close(in[1]);
        return err_sys(err, errno, "start %s", program);
    }
    r = talk(in[1], out_r, input, time_mono_ns() + timeout_s * NSEC_PER_SEC, out, err);
    if (r < 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
        continue;
    return r < 0 ? err_wrap(err, r, "%s", program) : 0;
}
