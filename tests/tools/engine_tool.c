/* engine_tool.c - a client of abx-engine by hand, for tests/system/test_engine.py and bench/.
 *
 * usage: engine_tool CONTROL-SOCKET GATEWAY-SOCKET
 * Reads one command per line, answers each with one line: "ok US VALUE..." (US = microseconds from
 * request to answer) or "err CODE TEXT". Ends at end of input.
 *
 *     create ID TEMPLATE [CPU MEMORY_MB DISK_MB]   creates N PREFIX TEMPLATE (all at once)
 *     kill ID   kills N PREFIX   list   freeze ID   thaw ID   usage ID   audit   repair   info
 *     templates   died (waits for one)   died-gateway   ask ID PORT TEXT (a line to a server inside)
 *     sockets ID PORT COUNT   hold ID PORT COUNT (keeps them open)   let-go (closes them)
 *     bench N TEMPLATE (create and kill, one after the other)
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "net/ipc.h"

#define WORDS_MAX 8
#define TIMEOUT_MS 90000
#define MANY_MAX 5000

struct peer {
    const char *path;
    int fd;
    uint64_t seq;
    Abx__Ipc__Frame *died[64]; /* events seen while waiting for answers */
    size_t n_died;
};

struct tool {
    struct peer control, gateway;
    int held[IPC_FDS_MAX];
    size_t n_held;
    struct buf out;
};

/* --- frames ------------------------------------------------------------------------------------- */

static int peer_open(struct peer *p, struct abx_err *err)
{
    if (p->fd >= 0)
        return 0;
    return ipc_connect(p->path, &p->fd, err);
}

static int peer_lost(struct peer *p, struct abx_err *err)
{
    fd_close(TAKE_FD(p->fd));
    return err_set(err, ABX_UNAVAILABLE, "the engine closed the connection");
}

static void peer_done(struct peer *p)
{
    for (size_t i = 0; i < p->n_died; i++)
        abx__ipc__frame__free_unpacked(p->died[i], NULL);
    fd_close(p->fd);
}

static int send_frame(struct peer *p, Abx__Ipc__Frame *f, struct abx_err *err)
{
    uint8_t bytes[IPC_FRAME_MAX];
    struct pollfd w;
    size_t n;
    int r = peer_open(p, err);

    if (r < 0)
        return r;
    f->seq = ++p->seq;
    n = ipc_frame_encode(f, bytes);
    w = (struct pollfd){ p->fd, POLLOUT, 0 };
    while (send(p->fd, bytes, n, MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN || poll(&w, 1, TIMEOUT_MS) != 1)
            return peer_lost(p, err);
    }
    return 0;
}

/* One frame with at most 16 descriptors. */
static int receive_frame(struct peer *p, Abx__Ipc__Frame **ret, int *fds, size_t *ret_n,
                         struct abx_err *err)
{
    static uint8_t bytes[IPC_FRAME_MAX];
    struct pollfd w = { p->fd, POLLIN, 0 };
    ssize_t n;

    if (poll(&w, 1, TIMEOUT_MS) != 1)
        return err_set(err, ABX_DEADLINE_EXCEEDED, "no answer in %d ms", TIMEOUT_MS);
    n = packet_receive(p->fd, bytes, sizeof bytes, fds, ret_n, 0);
    if (n <= 0)
        return peer_lost(p, err);
    *ret = ipc_frame_decode(bytes, (size_t)n);
    return *ret ? 0 : err_set(err, ABX_INTERNAL, "malformed answer");
}

/* The next answer; Died events go to the peer's list. */
static int receive_answer(struct peer *p, Abx__Ipc__Frame **ret, int *fds, size_t *ret_n,
                          struct abx_err *err)
{
    for (;;) {
        Abx__Ipc__Frame *f = NULL;
        int r = receive_frame(p, &f, fds, ret_n, err);

        if (r < 0)
            return r;
        if (f->body_case != ABX__IPC__FRAME__BODY_DIED) {
            *ret = f;
            return 0;
        }
        if (p->n_died < ARRAY_SIZE(p->died))
            p->died[p->n_died++] = f;
        else
            abx__ipc__frame__free_unpacked(f, NULL);
    }
}

/* One request, its answer; an Error becomes `err`. */
static int ask(struct peer *p, Abx__Ipc__Frame *q, Abx__Ipc__Frame **ret, int *fds, size_t *ret_n,
               struct abx_err *err)
{
    int own[IPC_FDS_MAX];
    size_t n;
    int r = send_frame(p, q, err);

    if (r == 0)
        r = receive_answer(p, ret, fds ? fds : own, ret_n ? ret_n : &n, err);
    if (r == 0 && (*ret)->body_case == ABX__IPC__FRAME__BODY_ERROR) {
        ipc_error_decode((*ret)->error, err);
        abx__ipc__frame__free_unpacked(*ret, NULL);
        r = err->code;
    }
    return r;
}

static void say(struct tool *t, const char *fmt, ...) _printf_(2, 3);
static void say(struct tool *t, const char *fmt, ...)
{
    char text[8192];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)buf_append_str(&t->out, text);
}

static uint32_t number(const char *s)
{
    uint64_t n = 0;

    (void)str_parse_u64(slice_str(s), UINT32_MAX, &n);
    return (uint32_t)n;
}

/* --- create and kill ---------------------------------------------------------------------------- */

static int send_create(struct tool *t, char *id, char *template, char **sizes, struct abx_err *err)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Create q = ABX__IPC__CREATE__INIT;
    Abx__Ipc__Identity identity = ABX__IPC__IDENTITY__INIT;
    char token[] = "token-for-tests", host[80];

    (void)snprintf(host, sizeof host, "host-%.60s", id);
    identity.access_token = token;
    identity.hostname = host;
    q.sandbox_id = id;
    q.template_ = template;
    q.identity = &identity;
    if (sizes && sizes[0] && sizes[1] && sizes[2]) {
        q.cpu_count = number(sizes[0]);
        q.memory_mb = number(sizes[1]);
        q.disk_mb = number(sizes[2]);
    }
    f.body_case = ABX__IPC__FRAME__BODY_CREATE;
    f.create = &q;
    return send_frame(&t->control, &f, err);
}

static int send_kill(struct tool *t, char *id, struct abx_err *err)
{
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Kill q = ABX__IPC__KILL__INIT;

    q.sandbox_id = id;
    f.body_case = ABX__IPC__FRAME__BODY_KILL;
    f.kill = &q;
    return send_frame(&t->control, &f, err);
}

/* Counts one answer; the text of a failure goes to `err`. */
static int take_answer(struct tool *t, Abx__Ipc__Frame **ret, struct abx_err *err)
{
    int fds[IPC_FDS_MAX];
    size_t n;
    int r = receive_answer(&t->control, ret, fds, &n, err);

    if (r == 0 && (*ret)->body_case == ABX__IPC__FRAME__BODY_ERROR) {
        ipc_error_decode((*ret)->error, err);
        abx__ipc__frame__free_unpacked(*ret, NULL);
        *ret = NULL;
        return err->code;
    }
    return r;
}

static int cmd_create(struct tool *t, char **arg, struct abx_err *err)
{
    Abx__Ipc__Frame *f = NULL;
    const Abx__Ipc__CreateReply *a;
    int r = send_create(t, arg[0], arg[1], arg[2] ? arg + 2 : NULL, err);

    if (r == 0)
        r = take_answer(t, &f, err);
    if (r < 0)
        return r;
    a = f->create_reply;
    say(t, " warm=%d cpu=%u memory=%u disk=%u execution=%s stages=", a->warm, a->cpu_count,
        a->memory_mb, a->disk_mb, a->execution_id);
    for (size_t i = 0; i < a->n_stages; i++)
        say(t, "%s%s:%u", i ? "," : "", a->stages[i]->name, a->stages[i]->us);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int cmd_kill(struct tool *t, char **arg, struct abx_err *err)
{
    Abx__Ipc__Frame *f = NULL;
    int r = send_kill(t, arg[0], err);

    if (r == 0)
        r = take_answer(t, &f, err);
    if (r < 0)
        return r;
    say(t, " existed=%d", f->kill_reply->existed);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

/* Sends all requests, then takes all answers. */
static int many(struct tool *t, char **arg, bool is_kill, struct abx_err *err)
{
    uint32_t n = MIN(number(arg[0]), (uint32_t)MANY_MAX), sent = 0, ok = 0;
    struct abx_err first = { 0 };
    int r = 0;

    for (; r == 0 && sent < n; sent++) {
        char id[64];

        (void)snprintf(id, sizeof id, "%.40s%u", arg[1], sent);
        r = is_kill ? send_kill(t, id, err) : send_create(t, id, arg[2], NULL, err);
    }
    for (uint32_t i = 0; r == 0 && i < sent; i++) {
        Abx__Ipc__Frame *f = NULL;

        if (take_answer(t, &f, err) < 0) {
            if (t->control.fd < 0)
                r = err->code;
            else if (first.code == 0)
                first = *err;
        } else {
            ok++;
            abx__ipc__frame__free_unpacked(f, NULL);
        }
    }
    if (r == 0)
        say(t, " done=%u failed=%u %s", ok, n - ok, first.msg);
    return r;
}

static int cmd_creates(struct tool *t, char **arg, struct abx_err *err)
{
    return many(t, arg, false, err);
}

static int cmd_kills(struct tool *t, char **arg, struct abx_err *err)
{
    return many(t, arg, true, err);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Median and p95 of create and kill, and per stage the median. */
static int cmd_bench(struct tool *t, char **arg, struct abx_err *err)
{
    enum { STAGES = 40 };
    static uint64_t create_us[MANY_MAX], kill_us[MANY_MAX], stage_us[STAGES][MANY_MAX];
    char names[STAGES][32] = { "" };
    uint32_t n = MAX(1u, MIN(number(arg[0]), (uint32_t)MANY_MAX)), warm = 0;
    size_t n_stages = 0;

    for (uint32_t i = 0; i < n; i++) {
        char id[32];
        Abx__Ipc__Frame *f = NULL;
        int64_t at = time_mono_ns();
        int r;

        (void)snprintf(id, sizeof id, "bench%u", i);
        r = send_create(t, id, arg[1], NULL, err);
        if (r == 0)
            r = take_answer(t, &f, err);
        if (r < 0)
            return r;
        create_us[i] = (uint64_t)(time_mono_ns() - at) / 1000;
        warm += f->create_reply->warm;
        n_stages = MIN(f->create_reply->n_stages, (size_t)STAGES);
        for (size_t s = 0; s < n_stages; s++) {
            (void)snprintf(names[s], sizeof names[s], "%s", f->create_reply->stages[s]->name);
            stage_us[s][i] = f->create_reply->stages[s]->us;
        }
        abx__ipc__frame__free_unpacked(f, NULL);
        at = time_mono_ns();
        r = send_kill(t, id, err);
        if (r == 0)
            r = take_answer(t, &f, err);
        if (r < 0)
            return r;
        kill_us[i] = (uint64_t)(time_mono_ns() - at) / 1000;
        abx__ipc__frame__free_unpacked(f, NULL);
    }
    qsort(create_us, n, sizeof *create_us, compare_u64);
    qsort(kill_us, n, sizeof *kill_us, compare_u64);
    say(t,
        " create_p50=%" PRIu64 " create_p95=%" PRIu64 " kill_p50=%" PRIu64 " kill_p95=%" PRIu64
        " warm=%u stages=",
        create_us[n / 2], create_us[n * 95 / 100], kill_us[n / 2], kill_us[n * 95 / 100], warm);
    for (size_t s = 0; s < n_stages; s++) {
        qsort(stage_us[s], n, sizeof **stage_us, compare_u64);
        say(t, "%s%s:%" PRIu64, s ? "," : "", names[s], stage_us[s][n / 2]);
    }
    return 0;
}

/* --- the rest ----------------------------------------------------------------------------------- */

static int cmd_list(struct tool *t, char **arg, struct abx_err *err)
{
    char after[64] = "";
    bool has_more = true;

    (void)arg;
    while (has_more) {
        Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
        Abx__Ipc__List body = ABX__IPC__LIST__INIT;
        int r;

        body.after = after;
        q.body_case = ABX__IPC__FRAME__BODY_LIST;
        q.list = &body;
        r = ask(&t->control, &q, &f, NULL, NULL, err);
        if (r < 0)
            return r;
        has_more = f->list_reply->more;
        for (size_t i = 0; i < f->list_reply->n_sandboxes; i++) {
            const Abx__Ipc__EngineSandbox *s = f->list_reply->sandboxes[i];

            say(t, " %s:%u:%d", s->sandbox_id, s->pid, s->frozen);
            (void)snprintf(after, sizeof after, "%.63s", s->sandbox_id);
        }
        abx__ipc__frame__free_unpacked(f, NULL);
    }
    return 0;
}

static int freeze(struct tool *t, char *id, bool thaw, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__Freeze body = ABX__IPC__FREEZE__INIT;
    int r;

    body.sandbox_id = id;
    body.thaw = thaw;
    q.body_case = ABX__IPC__FRAME__BODY_FREEZE;
    q.freeze = &body;
    r = ask(&t->control, &q, &f, NULL, NULL, err);
    if (r < 0)
        return r;
    say(t, " us=%u", f->freeze_reply->us);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int cmd_freeze(struct tool *t, char **arg, struct abx_err *err)
{
    return freeze(t, arg[0], false, err);
}

static int cmd_thaw(struct tool *t, char **arg, struct abx_err *err)
{
    return freeze(t, arg[0], true, err);
}

static int cmd_usage(struct tool *t, char **arg, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__Usage body = ABX__IPC__USAGE__INIT;
    int r;

    body.sandbox_id = arg[0];
    q.body_case = ABX__IPC__FRAME__BODY_USAGE;
    q.usage = &body;
    r = ask(&t->control, &q, &f, NULL, NULL, err);
    if (r < 0)
        return r;
    say(t, " cpu_us=%" PRIu64 " memory=%" PRIu64 " disk=%" PRIu64 " processes=%u",
        f->usage_reply->cpu_us, f->usage_reply->memory_bytes, f->usage_reply->disk_bytes,
        f->usage_reply->processes);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int audit(struct tool *t, bool repair, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__Audit body = ABX__IPC__AUDIT__INIT;
    int r;

    body.repair = repair;
    q.body_case = ABX__IPC__FRAME__BODY_AUDIT;
    q.audit = &body;
    r = ask(&t->control, &q, &f, NULL, NULL, err);
    if (r < 0)
        return r;
    say(t, " findings=%zu repaired=%u", f->audit_reply->n_findings, f->audit_reply->repaired);
    for (size_t i = 0; i < f->audit_reply->n_findings; i++)
        say(t, "; %s", f->audit_reply->findings[i]);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int cmd_audit(struct tool *t, char **arg, struct abx_err *err)
{
    (void)arg;
    return audit(t, false, err);
}

static int cmd_repair(struct tool *t, char **arg, struct abx_err *err)
{
    (void)arg;
    return audit(t, true, err);
}

static int cmd_info(struct tool *t, char **arg, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__EngineInfo body = ABX__IPC__ENGINE_INFO__INIT;
    const Abx__Ipc__EngineInfoReply *a;
    int r;

    (void)arg;
    q.body_case = ABX__IPC__FRAME__BODY_ENGINE_INFO;
    q.engine_info = &body;
    r = ask(&t->control, &q, &f, NULL, NULL, err);
    if (r < 0)
        return r;
    a = f->engine_info_reply;
    say(t, " cgroup=%s mount=%s pool=%s limited=%d sandboxes=%u pooled=%u", a->cgroup_mode,
        a->mount_path, a->pool_kind, a->disk_limited, a->sandboxes, a->pooled);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int cmd_templates(struct tool *t, char **arg, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__Templates body = ABX__IPC__TEMPLATES__INIT;
    int r;

    (void)arg;
    q.body_case = ABX__IPC__FRAME__BODY_TEMPLATES;
    q.templates = &body;
    r = ask(&t->control, &q, &f, NULL, NULL, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->templates_reply->n_templates; i++)
        say(t, " %s:%s", f->templates_reply->templates[i]->name,
            f->templates_reply->templates[i]->digest);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int wait_died(struct tool *t, struct peer *p, struct abx_err *err)
{
    Abx__Ipc__Frame *f = NULL;
    int fds[IPC_FDS_MAX];
    size_t n;
    int r = 0;

    if (p->n_died > 0) {
        f = p->died[0];
        memmove(&p->died[0], &p->died[1], --p->n_died * sizeof *p->died);
    } else {
        r = peer_open(p, err);
        if (r == 0)
            r = receive_frame(p, &f, fds, &n, err);
        if (r < 0)
            return r;
    }
    if (f->body_case == ABX__IPC__FRAME__BODY_DIED)
        say(t, " id=%s reason=%s status=%d", f->died->sandbox_id, f->died->reason, f->died->status);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}

static int cmd_died(struct tool *t, char **arg, struct abx_err *err)
{
    (void)arg;
    return wait_died(t, &t->control, err);
}

static int cmd_died_gateway(struct tool *t, char **arg, struct abx_err *err)
{
    (void)arg;
    return wait_died(t, &t->gateway, err);
}

/* --- sockets ------------------------------------------------------------------------------------ */

static int get_sockets(struct tool *t, char *id, uint32_t port, uint32_t count, int *fds,
                       size_t *ret_n, struct abx_err *err)
{
    Abx__Ipc__Frame q = ABX__IPC__FRAME__INIT, *f = NULL;
    Abx__Ipc__Socket body = ABX__IPC__SOCKET__INIT;
    int r;

    body.sandbox_id = id;
    body.port = port;
    body.count = count;
    q.body_case = ABX__IPC__FRAME__BODY_SOCKET;
    q.socket = &body;
    r = ask(&t->gateway, &q, &f, fds, ret_n, err);
    if (r == 0)
        abx__ipc__frame__free_unpacked(f, NULL);
    return r;
}

static int cmd_sockets(struct tool *t, char **arg, struct abx_err *err)
{
    int fds[IPC_FDS_MAX];
    size_t n = 0;
    int r = get_sockets(t, arg[0], number(arg[1]), number(arg[2]), fds, &n, err);

    for (size_t i = 0; i < n; i++)
        fd_close(fds[i]);
    if (r == 0)
        say(t, " n=%zu", n);
    return r;
}

static int cmd_let_go(struct tool *t, char **arg, struct abx_err *err)
{
    (void)arg;
    (void)err;
    while (t->n_held > 0)
        fd_close(t->held[--t->n_held]);
    return 0;
}

static int cmd_hold(struct tool *t, char **arg, struct abx_err *err)
{
    (void)cmd_let_go(t, arg, err);
    return get_sockets(t, arg[0], number(arg[1]), number(arg[2]), t->held, &t->n_held, err);
}

static int talk(struct tool *t, int fd, uint32_t port, const char *text, struct abx_err *err)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct pollfd p = { fd, POLLOUT, 0 };
    char line[8192];
    ssize_t n;

    (void)inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && errno != EINPROGRESS)
        return err_sys(err, errno, "connect");
    if (poll(&p, 1, TIMEOUT_MS) != 1)
        return err_set(err, ABX_DEADLINE_EXCEEDED, "connect");
    n = snprintf(line, sizeof line, "%s\n", text);
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) != n)
        return err_sys(err, errno, "send");
    p.events = POLLIN;
    if (poll(&p, 1, TIMEOUT_MS) != 1)
        return err_set(err, ABX_DEADLINE_EXCEEDED, "no line came back");
    n = recv(fd, line, sizeof line - 1, 0);
    if (n < 0)
        return err_sys(err, errno, "receive");
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    say(t, " %s", line);
    return 0;
}

static int cmd_ask(struct tool *t, char **arg, struct abx_err *err)
{
    int fds[IPC_FDS_MAX];
    size_t n = 0;
    char text[512] = "";
    int r = get_sockets(t, arg[0], number(arg[1]), 1, fds, &n, err);

    for (int i = 2; arg[i]; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 2 ? " " : "",
                       arg[i]);
    if (r == 0)
        r = talk(t, fds[0], number(arg[1]), text, err);
    for (size_t i = 0; i < n; i++)
        fd_close(fds[i]);
    return r;
}

/* --- commands ----------------------------------------------------------------------------------- */

static const struct command {
    const char *name;
    int n_args; /* at least */
    int (*run)(struct tool *t, char **arg, struct abx_err *err);
} commands[] = {
    { "create", 2, cmd_create },       { "creates", 3, cmd_creates },
    { "kill", 1, cmd_kill },           { "kills", 2, cmd_kills },
    { "bench", 2, cmd_bench },         { "list", 0, cmd_list },
    { "freeze", 1, cmd_freeze },       { "thaw", 1, cmd_thaw },
    { "usage", 1, cmd_usage },         { "audit", 0, cmd_audit },
    { "repair", 0, cmd_repair },       { "info", 0, cmd_info },
    { "died", 0, cmd_died },           { "died-gateway", 0, cmd_died_gateway },
    { "sockets", 3, cmd_sockets },     { "ask", 3, cmd_ask },
    { "templates", 0, cmd_templates }, { "hold", 3, cmd_hold },
    { "let-go", 0, cmd_let_go },
};

static int run(struct tool *t, char *line, struct abx_err *err)
{
    char *word[WORDS_MAX + 2] = { NULL };
    int n = 0;

    for (char *p = line; n < WORDS_MAX + 1; p = NULL) {
        static char *rest;
        char *w = strtok_r(p, " \n", &rest);

        if (!w)
            break;
        word[n++] = w;
    }
    for (size_t i = 0; n > 0 && i < ARRAY_SIZE(commands); i++)
        if (strcmp(word[0], commands[i].name) == 0 && n > commands[i].n_args)
            return commands[i].run(t, word + 1, err);
    return err_set(err, ABX_INVALID_ARGUMENT, "unknown command or too few words");
}

int main(int argc, char **argv)
{
    struct tool t = { .out = BUF_INIT(1 << 20) };
    char line[1024];

    if (argc != 3) {
        (void)fputs("usage: engine_tool CONTROL-SOCKET GATEWAY-SOCKET\n", stderr);
        return 2;
    }
    t.control = (struct peer){ .path = argv[1], .fd = -EBADF };
    t.gateway = (struct peer){ .path = argv[2], .fd = -EBADF };
    while (fgets(line, sizeof line, stdin)) {
        struct abx_err err;
        int64_t at = time_mono_ns();
        int r;

        buf_reset(&t.out);
        r = run(&t, line, &err);
        if (r < 0)
            (void)printf("err %s %s\n", err_code_name(r), err.msg);
        else
            (void)printf("ok %" PRId64 "%s\n", (time_mono_ns() - at) / 1000, buf_cstr(&t.out));
        (void)fflush(stdout);
    }
    peer_done(&t.control);
    peer_done(&t.gateway);
    buf_done(&t.out);
    return 0;
}
