/* report.c - see report.h. Messages are abx.ipc.GuestReport of schema/ipc.proto; several one behind the other are one. */
#include "guest/daemon/report.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/str.h"
#include "e2b/guest_abi.h"
#include "guest/daemon/command.h"
#include "schema/ipc.pb-c.h"
#include "wire/rpc.h"

#define HEAD_MAX 32u
#define FULL_RETRY_MS 50     /* the host reads a few at a time */
#define ABSENT_RETRY_MS 1000 /* it is being restarted */

struct reports {
    uv_loop_t *loop;
    const char *name;
    uv_timer_t timer; /* runs while something waits */
    int fd;
    struct buf waiting; /* lines, packed */
    unsigned n_waiting;
    uint64_t n_dropped;
    uint64_t waits_since;
};

/* --- text --------------------------------------------------------------------------------------- */

/* Bytes of "user:password@" at the start of `text`, 0 if there is none. */
static size_t credentials_at(const char *text)
{
    size_t n = strcspn(text, "/?# \t\r\n\"'`<>");

    while (n > 0 && text[n - 1] != '@')
        n--;
    return n;
}

/* Words with a secret behind them, and where that ends. Passwords have blanks and quotes, so theirs is the rest of the line. */
static const struct {
    const char *word;
    const char *ends;
} marks[] = {
    { "password=", "\r\n" }, { "passwd=", "\r\n" },    { "authorization:", "\r\n" },
    { "token=", " \t\r\n" }, { "secret=", " \t\r\n" }, { "api_key=", " \t\r\n" },
    { "api-key:", "\r\n" },  { "apikey=", " \t\r\n" }, { "access_key=", " \t\r\n" },
};

/* Bytes of a word of `marks` at the start of `text` and, in *ret_hidden, of what is behind it; 0 if there is none. */
static size_t mark_at(const char *text, size_t *ret_hidden)
{
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        size_t n = strlen(marks[i].word);

        if (strncasecmp(text, marks[i].word, n) != 0)
            continue;
        *ret_hidden = strcspn(text + n, marks[i].ends);
        return n;
    }
    return 0;
}

/* The next piece of `text` as it may be shown: a character, a word with the secret behind it left out, or "?". `before`
 * has room for a word. */
static size_t next_piece(const char *text, char *before, struct slice *ret)
{
    size_t n = utf8_length(slice_of(text, strnlen(text, 4))), hidden;
    size_t mark = mark_at(text, &hidden);

    if (mark > 0 && hidden > 0) {
        memcpy(before, text, mark);
        memcpy(before + mark, "***", 3);
        *ret = slice_of(before, mark + 3);
        return mark + hidden;
    }

    if (n == 0) {
        *ret = SLICE_LIT("?");
        return 1;
    }
    *ret = slice_of(text, n);
    if (strncmp(text, "://", 3) != 0 || (hidden = credentials_at(text + 3)) == 0)
        return n;
    *ret = SLICE_LIT("://***@");
    return 3 + hidden;
}

void report_text(char *to, size_t size, const char *text)
{
    static const char more[] = "...";
    size_t n = 0, fits = 0; /* `fits`: with the dots behind it */
    struct slice piece;
    char word[32];

    while (*text) {
        size_t used = next_piece(text, word, &piece);

        if (n + piece.n >= size) {
            memcpy(to + fits, more, sizeof more);
            return;
        }
        memcpy(to + n, piece.p, piece.n);
        n += piece.n;
        text += used;
        if (n + sizeof more <= size)
            fits = n;
    }
    to[n] = '\0';
}

/* --- sending ------------------------------------------------------------------------------------ */

static bool is_connected(struct reports *r)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    const size_t n = MIN(strlen(r->name), sizeof a.sun_path - 1);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);

    if (r->fd >= 0)
        return true;
    memcpy(a.sun_path + 1, r->name, n);
    r->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->fd < 0 || connect(r->fd, (const struct sockaddr *)&a, size) == 0)
        return r->fd >= 0;
    fd_close(TAKE_FD(r->fd));
    return false;
}

static void reports_emptied(struct reports *r)
{
    buf_done(&r->waiting);
    buf_init(&r->waiting, GUEST_REPORT_MAX - HEAD_MAX);
    r->n_waiting = 0;
}

static bool send_waiting(struct reports *r)
{
    Abx__Ipc__GuestReport head = ABX__IPC__GUEST_REPORT__INIT;
    uint8_t bytes[HEAD_MAX]; /* two numbers: at most 22 */
    struct iovec parts[] = { { bytes, 0 }, { buf_data(&r->waiting), r->waiting.len } };
    const struct msghdr msg = { .msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts) };

    head.version = 1;
    head.dropped = r->n_dropped;
    parts[0].iov_len = abx__ipc__guest_report__pack(&head, bytes);
    if (sendmsg(r->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return false;
    reports_emptied(r);
    r->n_dropped = 0;
    return true;
}

static void on_timer(uv_timer_t *timer);

static void try_again(struct reports *r, uint64_t ms)
{
    (void)uv_timer_start(&r->timer, on_timer, ms, 0);
}

static void flush(struct reports *r)
{
    if (is_connected(r) && send_waiting(r)) {
        r->waits_since = 0;
        return;
    }
    if (r->fd >= 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        r->waits_since = 0;
        try_again(r, FULL_RETRY_MS);
        return;
    }
    fd_close(TAKE_FD(r->fd)); /* its reader has gone, another one may come */
    if (r->waits_since == 0)
        r->waits_since = uv_now(r->loop);
    if (uv_now(r->loop) - r->waits_since < REPORT_GIVE_UP_MS) {
        try_again(r, ABSENT_RETRY_MS);
        return;
    }
    r->n_dropped += r->n_waiting;
    r->waits_since = 0;
    reports_emptied(r); /* the next line tries again */
}

static void on_timer(uv_timer_t *timer)
{
    flush(timer->data);
}

static void add(struct reports *r, Abx__Ipc__ProcessLine *line)
{
    Abx__Ipc__ProcessLine *lines[] = { line };
    Abx__Ipc__GuestReport report = ABX__IPC__GUEST_REPORT__INIT;

    report.n_lines = 1;
    report.lines = lines;
    if (rpc_proto_encode(&report.base, &r->waiting) == BUF_OK)
        r->n_waiting++;
    else
        r->n_dropped++;
    if (!uv_is_active((uv_handle_t *)&r->timer))
        flush(r);
}

/* --- lines -------------------------------------------------------------------------------------- */

void report_start(struct reports *r, pid_t pid, const Process__ProcessConfig *config,
                  const char *user)
{
    Abx__Ipc__ProcessLine line = ABX__IPC__PROCESS_LINE__INIT;
    char cmd[REPORT_TEXT_MAX], name[USER_NAME_MAX], text[REPORT_TEXT_MAX + REPORT_ARGS_MAX];
    char *args[REPORT_ARGS_MAX];
    size_t used = 0, n;

    report_text(cmd, sizeof cmd, config->cmd);
    report_text(name, sizeof name, user);
    for (n = 0; n < MIN(config->n_args, (size_t)REPORT_ARGS_MAX); n++) {
        if (sizeof text - used < sizeof "...")
            break;
        args[n] = text + used;
        report_text(args[n], sizeof text - used, config->args[n]);
        used += strlen(args[n]) + 1;
    }
    line.pid = (uint32_t)pid;
    line.cmd = cmd;
    line.user = name;
    line.args = args;
    line.n_args = n;
    add(r, &line);
}

void report_end(struct reports *r, pid_t pid, const char *cmd, int status, int64_t duration_ms,
                bool is_timed_out)
{
    Abx__Ipc__ProcessLine line = ABX__IPC__PROCESS_LINE__INIT;
    struct command_end end;

    command_end_of(status, &end);
    line.is_end = true;
    line.pid = (uint32_t)pid;
    line.cmd = (char *)(uintptr_t)cmd;
    line.status = end.status;
    line.exit_code = end.exit_code;
    line.duration_ms = duration_ms;
    line.timed_out = is_timed_out;
    add(r, &line);
}

int reports_new(uv_loop_t *loop, const char *name, struct reports **ret, struct abx_err *err)
{
    struct reports *r = calloc(1, sizeof *r);

    if (!r)
        return err_oom(err);
    r->loop = loop;
    r->name = name;
    r->fd = -EBADF;
    buf_init(&r->waiting, GUEST_REPORT_MAX - HEAD_MAX);
    (void)uv_timer_init(loop, &r->timer);
    r->timer.data = r;
    *ret = r;
    return 0;
}
