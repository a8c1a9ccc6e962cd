/* pump.c - see pump.h. */
#include "cli/client/pump.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/str.h"
#include "cli/client/escape.h"
#include "cli/client/exit_code.h"
#include "cli/client/output.h"
#include "cli/client/signals.h"
#include "cli/client/sink.h"
#include "cli/client/tty.h"

#define INPUT_MAX (1u << 20)
#define KILL_AFTER_NS (2 * NSEC_PER_SEC)
#define SIGNAL_TIMEOUT_MS 10000

struct pump {
    struct session *s;
    abx_sandbox *sb;
    const struct pump_opts *o;
    abx_call *call; /* the command's stream */
    uint32_t pid;   /* 0 = not started */
    bool has_ended;
    int exit_code; /* of the command, as a shell says it */
    char *status;  /* "exit status 0"; owned */
    bool is_exited;
    struct sink out, err;
    /* standard input */
    struct buf input;
    abx_call *sending, *closing;
    bool is_input_over;   /* nothing more is read */
    bool is_input_closed; /* and that was said */
    struct escape escape;
    /* the end */
    int signo;       /* that ends it, 0 = none */
    int write_error; /* errno of an output that ended it */
    bool has_given_up;
    int64_t kill_at; /* when SIGKILL follows, 0 = not */
    abx_call *killing;
    /* the terminal, the sandbox's time */
    bool resize_is_due;
    abx_call *resizing;
    int64_t renew_at;
    abx_call *renewing;
};

static struct abx_process_ref ref_of(const struct pump *p)
{
    return (struct abx_process_ref){ .pid = p->pid };
}

/* Frees a finished helper call. False while it still runs. */
static bool reap(abx_call **call)
{
    if (*call && !abx_call_is_done(*call))
        return false;
    abx_call_free(*call);
    *call = NULL;
    return true;
}

/* ---- ending ---- */

static void send_signal(struct pump *p, int signo)
{
    abx_call_free(p->killing);
    p->killing = abx_process_signal(p->s->client, p->sb, ref_of(p), signo, SIGNAL_TIMEOUT_MS);
    p->kill_at = signo == SIGTERM ? time_mono_ns() + KILL_AFTER_NS : 0;
}

/* The command has to end because of `signo`. */
static void end_command(struct pump *p, int signo)
{
    if (p->signo) {
        p->has_given_up = true;
        return;
    }
    p->signo = signo;
    p->is_input_over = true;
    if (p->pid)
        send_signal(p, p->o->is_tty ? SIGKILL : SIGTERM);
    /* else when it has started */
}

static void output_failed(struct pump *p, const struct sink *k)
{
    if (p->signo || p->write_error)
        return;
    if (k->error != EPIPE) {
        (void)fprintf(stderr, "abx: write to %s: %s\n", k->name, strerror(k->error));
        p->write_error = k->error;
    }
    end_command(p, SIGPIPE);
}

/* ---- events ---- */

static void on_start(struct pump *p, uint32_t pid)
{
    p->pid = pid;
    if (p->signo)
        send_signal(p, p->o->is_tty ? SIGKILL : SIGTERM);
}

static void on_end(struct pump *p, const struct abx_event *e)
{
    p->has_ended = true;
    p->is_exited = e->exited;
    p->exit_code = exit_code_of(e->exit_code, e->exited, e->text);
    p->status = strdup(e->text ? e->text : "");
}

static void take_events(struct pump *p)
{
    struct abx_event e;

    while (sink_has_room(&p->out) && sink_has_room(&p->err) && abx_call_next(p->call, &e)) {
        struct sink *k = e.stream == ABX_STDERR ? &p->err : &p->out;

        if (e.kind == ABX_EVENT_START)
            on_start(p, e.pid);
        else if (e.kind == ABX_EVENT_END)
            on_end(p, &e);
        else if (e.kind == ABX_EVENT_OUTPUT && !session_is_json(p->s) &&
                 sink_write(k, e.data, e.size) != 0)
            output_failed(p, k);
        if (p->pid && p->o->is_detached)
            return;
    }
}

/* ---- standard input ---- */

static bool wants_input(const struct pump *p)
{
    return p->pid && !p->is_input_over && p->input.len < INPUT_MAX && !p->o->is_detached;
}

static void read_input(struct pump *p)
{
    uint8_t piece[65536];
    size_t room = MIN(INPUT_MAX - p->input.len, sizeof piece);
    ssize_t n = read(STDIN_FILENO, piece, room);
    uint8_t *to = n > 0 ? buf_reserve(&p->input, (size_t)n + 1, NULL) : NULL;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !to) {
        if (!p->o->is_tty && n != 0 && (n > 0 || errno != EBADF)) /* closed: nothing to read */
            (void)fprintf(stderr, "abx: read standard input: %s\n",
                          n < 0 ? strerror(errno) : "out of memory");
        p->is_input_over = true;
        if (p->o->is_tty) /* the terminal is gone */
            end_command(p, SIGHUP);
    } else if (!p->o->is_tty) {
        memcpy(to, piece, (size_t)n);
        buf_commit(&p->input, (size_t)n);
    } else {
        buf_commit(&p->input, escape_filter(&p->escape, piece, (size_t)n, to));
        if (p->escape.is_asked) {
            (void)fputs("\r\nabx: connection closed\r\n", stderr);
            end_command(p, SIGHUP);
        }
    }
}

/* The command does not read any more (or is gone): what is left of the input has no reader. */
static void input_failed(struct pump *p)
{
    p->is_input_over = p->is_input_closed = true;
    buf_reset(&p->input);
}

/* One request at a time, so that the bytes stay in order. */
static void send_input(struct pump *p)
{
    if (p->sending) {
        bool has_failed;

        if (!abx_call_is_done(p->sending))
            return;
        has_failed = abx_call_error(p->sending)->code < 0;
        abx_call_free(p->sending);
        p->sending = NULL;
        if (has_failed)
            input_failed(p);
    }
    if (!p->pid || p->has_ended || p->is_input_closed || p->o->is_detached)
        return;
    if (p->input.len > 0) {
        /* 0: the command may take as long as it likes to read it. */
        p->sending = abx_process_send_stdin(p->s->client, p->sb, ref_of(p), p->o->is_tty,
                                            buf_data(&p->input), p->input.len, 0);
        buf_reset(&p->input);
    } else if (p->is_input_over && !p->o->is_tty) {
        p->closing = abx_process_close_stdin(p->s->client, p->sb, ref_of(p), ABX_UNSET);
        p->is_input_closed = true;
    }
}

/* An envd that cannot close standard input leaves the command waiting: that has to be said. */
static void check_closing(struct pump *p)
{
    if (!p->closing || !abx_call_is_done(p->closing))
        return;
    if (abx_call_error(p->closing)->code < 0 && !p->has_ended &&
        abx_call_error(p->closing)->code != ABX_NOT_FOUND) {
        (void)fputs("abx: the end of standard input did not reach the command: ", stderr);
        output_text(stderr, abx_call_error(p->closing)->message);
        (void)fputc('\n', stderr);
    }
    abx_call_free(p->closing);
    p->closing = NULL;
}

/* ---- the loop ---- */

static void resize(struct pump *p)
{
    uint16_t cols, rows;

    if (!p->resize_is_due || !p->pid || !reap(&p->resizing))
        return;
    p->resize_is_due = false;
    tty_size(STDIN_FILENO, &cols, &rows);
    p->resizing = abx_pty_resize(p->s->client, p->sb, ref_of(p), cols, rows, SIGNAL_TIMEOUT_MS);
}

static void renew(struct pump *p, int64_t now)
{
    if (p->o->renew_s == 0 || now < p->renew_at || !reap(&p->renewing))
        return;
    p->renewing = abx_sandbox_set_timeout(p->s->client, p->s->config, abx_sandbox_id(p->sb),
                                          p->o->renew_s, ABX_UNSET);
    p->renew_at = now + p->o->renew_s * NSEC_PER_SEC / 3;
}

/* Stopped by hand (the terminal itself does not stop a raw one): the terminal is left in order. */
static void stop_here(struct pump *p)
{
    tty_restore();
    (void)raise(SIGSTOP);
    if (tty_raw(STDIN_FILENO, &p->s->error) < 0)
        end_command(p, SIGHUP);
    p->resize_is_due = true;
}

static void take_signals(struct pump *p)
{
    int signo;

    signals_clear();
    while ((signo = signals_take_end()) != 0)
        end_command(p, signo);
    if (!p->o->is_tty)
        return;
    if (signals_take(SIGWINCH))
        p->resize_is_due = true;
    if (signals_take(SIGTSTP))
        stop_here(p);
    if (signals_take(SIGCONT))
        p->resize_is_due = true;
}

static int wait_ms(const struct pump *p, int64_t now)
{
    int64_t at = INT64_MAX;

    if (p->kill_at)
        at = p->kill_at;
    if (p->o->renew_s)
        at = MIN(at, p->renew_at);
    if (at == INT64_MAX)
        return -1;
    return at <= now ? 0 : (int)MIN((at - now) / NSEC_PER_MSEC + 1, (int64_t)60000);
}

static void wait_and_do(struct pump *p)
{
    struct pollfd fds[5] = {
        { .fd = abx_client_fd(p->s->client), .events = POLLIN },
        { .fd = signals_fd(), .events = POLLIN },
        { .fd = wants_input(p) ? STDIN_FILENO : -1, .events = POLLIN },
        { .fd = sink_has_room(&p->out) ? -1 : p->out.fd, .events = POLLOUT },
        { .fd = sink_has_room(&p->err) ? -1 : p->err.fd, .events = POLLOUT },
    };
    int64_t now = time_mono_ns();
    int n = poll(fds, ARRAY_SIZE(fds), wait_ms(p, now));

    take_signals(p);
    if (n > 0 && fds[2].revents)
        read_input(p);
    if (!sink_has_room(&p->out) && sink_flush(&p->out) != 0)
        output_failed(p, &p->out);
    if (!sink_has_room(&p->err) && sink_flush(&p->err) != 0)
        output_failed(p, &p->err);
    now = time_mono_ns();
    if (p->kill_at && now >= p->kill_at && p->pid)
        send_signal(p, SIGKILL);
    renew(p, now);
    (void)abx_client_process(p->s->client);
}

static void pump_loop(struct pump *p)
{
    for (;;) {
        take_events(p);
        if (p->has_given_up || (p->pid && p->o->is_detached))
            return;
        if (abx_call_is_done(p->call) && sink_has_room(&p->out) && sink_has_room(&p->err))
            return;
        if (p->signo && !p->pid && abx_call_is_done(p->call))
            return;
        send_input(p);
        check_closing(p);
        resize(p);
        wait_and_do(p);
    }
}

/* ---- start and result ---- */

static abx_call *start(struct pump *p, bool with_env)
{
    const struct args *a = &p->s->args;
    const char *term = getenv("TERM");
    struct abx_pair envs[ARGS_PAIRS_MAX + 1];
    struct abx_command_opts opts = ABX_COMMAND_OPTS_INIT;
    static const char *const login[] = { "/bin/bash", "-l" };
    uint16_t cols, rows;

    opts.argv = p->o->argv;
    opts.argc = p->o->argc;
    if (!p->o->line && !p->o->argv && !p->o->is_tty) {
        opts.argv = login;
        opts.argc = ARRAY_SIZE(login);
    }
    opts.user = a->text[OPT_USER];
    opts.cwd = a->text[OPT_CWD];
    opts.timeout_ms = a->number[OPT_COMMAND_TIMEOUT] * 1000;
    opts.stdin_open = !p->o->is_detached;
    opts.collect = session_is_json(p->s);
    if (p->o->is_tty && term && *term)
        envs[opts.env_count++] = (struct abx_pair){ "TERM", term };
    for (size_t i = 0; with_env && i < a->env_count; i++)
        envs[opts.env_count++] = a->envs[i];
    opts.envs = envs;
    if (!p->o->is_tty)
        return abx_command_start(p->s->client, p->sb, p->o->line, &opts);
    if (p->o->line) {
        const char *const shell[] = { "/bin/bash", "-l", "-c", p->o->line };

        opts.argv = shell;
        opts.argc = ARRAY_SIZE(shell);
        tty_size(STDIN_FILENO, &cols, &rows);
        return abx_pty_start(p->s->client, p->sb, cols, rows, &opts);
    }
    tty_size(STDIN_FILENO, &cols, &rows);
    return abx_pty_start(p->s->client, p->sb, cols, rows, &opts);
}

static int print_result(struct pump *p, int status)
{
    struct abx_command_result result;
    json_t *j = json_pack("{s:i,s:I,s:o}", "exit_code", p->exit_code, "pid", (json_int_t)p->pid,
                          "status", json_text(p->status));

    abx_call_command(p->call, &result);
    json_add_bytes(j, "stdout", result.out, result.out_size);
    json_add_bytes(j, "stderr", result.err, result.err_size);
    return output_json(j) != 0 ? 1 : status;
}

static int print_pid(struct pump *p)
{
    if (session_is_json(p->s))
        return output_json(json_pack("{s:I}", "pid", (json_int_t)p->pid));
    (void)printf("%u\n", (unsigned)p->pid);
    return output_end();
}

static int result_of(struct pump *p)
{
    struct session *s = p->s;
    int status;

    if (p->o->is_detached && p->pid)
        return print_pid(p);
    if (p->has_given_up)
        return 128 + p->signo;
    if (p->write_error)
        return 1;
    /* What the signal did is not the command's own word. */
    if (p->signo && (!p->has_ended || !p->is_exited))
        return 128 + p->signo;
    if (p->has_ended && abx_call_error(p->call)->code == 0)
        return session_is_json(s) ? print_result(p, p->exit_code) : p->exit_code;
    s->error = *abx_call_error(p->call);
    if (p->o->is_tty && p->pid)
        (void)fputc('\n', stderr); /* behind whatever line stands there */
    if (s->error.code == 0)
        (void)session_set(s, ABX_DATA_LOSS, "the command's stream ended without its result");
    status = session_fail(s);
    if (p->pid == 0 && s->error.code == ABX_INVALID_ARGUMENT) {
        int of_start = exit_code_of_start(s->error.message);

        status = of_start ? of_start : status;
    }
    return status;
}

int pump_run(struct session *s, abx_sandbox *sb, const struct pump_opts *opts, bool with_env)
{
    struct pump p = { .s = s, .sb = sb, .o = opts, .escape = ESCAPE_INIT };
    int status;

    s->is_inside = true;
    sink_init(&p.out, STDOUT_FILENO, "standard output");
    sink_init(&p.err, STDERR_FILENO, "standard error");
    buf_init(&p.input, INPUT_MAX + 65536);
    if (opts->renew_s)
        p.renew_at = time_mono_ns() + opts->renew_s * NSEC_PER_SEC / 3;
    if (signals_watch(s->client, &s->error) < 0)
        return session_fail(s);
    if (opts->is_tty &&
        (signals_add(SIGWINCH, &s->error) < 0 || signals_add(SIGTSTP, &s->error) < 0 ||
         signals_add(SIGCONT, &s->error) < 0 || tty_raw(STDIN_FILENO, &s->error) < 0))
        return session_fail(s);
    p.call = start(&p, with_env);
    if (p.call) {
        pump_loop(&p);
        tty_restore();
        status = result_of(&p);
    } else {
        tty_restore();
        (void)session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
        status = session_fail(s);
    }
    abx_call_free(p.call);
    abx_call_free(p.sending);
    abx_call_free(p.closing);
    abx_call_free(p.killing);
    abx_call_free(p.resizing);
    abx_call_free(p.renewing);
    buf_done(&p.input);
    sink_done(&p.out);
    sink_done(&p.err);
    free(p.status);
    return status;
}
