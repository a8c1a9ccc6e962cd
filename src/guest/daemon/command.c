/* command.c - see command.h. Output of running commands is in command_output.c, texts in
 * command_end.c. */
#include "guest/daemon/command.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "e2b/guest_abi.h"
#include "guest/daemon/command_table.h"
#include "guest/daemon/tree.h"
#include "guest/daemon/work.h"
#include "wire/rpc.h"

#define TREE_KILL_MS 2000

/* A start on its way to PID 1. */
struct starting {
    struct commands *cs;
    struct command *command;
    uint64_t deadline_ms; /* 0 = none */
    uint64_t asked_at;    /* loop time of the request: from there the deadline counts */
    char user_name[USER_NAME_MAX];
    command_started_fn done;
    void *user;
};

struct tree_work {
    struct work work;
    pid_t supervisor;
};

/* --- end of life ------------------------------------------------------------------------------- */

static void command_free(struct command *c)
{
    output_done(&c->output);
    fd_close(c->pidfd);
    if (c->request)
        rpc_message_free(&c->request->base);
    free(c->tag);
    free(c);
}

void command_handle_closed(struct command *c)
{
    if (--c->n_handles == 0 && c->is_forgotten)
        command_free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
    command_handle_closed(h->data);
}

static void on_input_closed(void *user)
{
    command_handle_closed(user);
}

static void command_forget(struct command *c)
{
    struct command **at = &c->owner->list;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->owner->n_commands--;
    c->owner->n_ended--;
    c->is_forgotten = true;
    if (c->owner->n_ended == 0)
        (void)malloc_trim(0); /* a quiet sandbox gives back what its busy time left in the heap */
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
    uv_close((uv_handle_t *)&c->gather, on_timer_closed);
    uv_close((uv_handle_t *)&c->flush, on_timer_closed);
}

static void on_linger(uv_timer_t *timer)
{
    struct command *c = timer->data;

    if (!c->readers)
        command_forget(c);
    else
        (void)uv_timer_start(timer, on_linger, COMMAND_LINGER_MS, 0);
}

/* The oldest ended ones make room. */
static void limit_ended(struct commands *cs)
{
    struct command *oldest = NULL;

    if (cs->n_ended <= COMMANDS_ENDED_MAX)
        return;
    for (struct command *c = cs->list; c; c = c->next) {
        if (c->is_ended && !c->readers && (!oldest || c->ended_at < oldest->ended_at))
            oldest = c;
    }
    if (oldest)
        command_forget(oldest);
}

static void command_ended(struct command *c)
{
    if (c->is_ended)
        return;
    command_pipes_close(c);
    input_close(&c->input);
    output_close(&c->output);
    if (c->request)
        rpc_message_free(&c->request->base);
    c->request = NULL; /* only for lists, where ended ones do not appear */
    fd_close(TAKE_FD(c->pidfd));
    c->is_ended = true;
    c->ended_at = uv_now(c->timer.loop);
    c->owner->n_ended++;
    (void)uv_timer_start(&c->timer, on_linger, COMMAND_LINGER_MS, 0);
    command_tell(c);
    limit_ended(c->owner);
}

void command_check_end(struct command *c)
{
    if (!c->is_exited || c->is_ended)
        return;
    if (c->is_prompt)
        command_pipes_drain(c);
    if (c->is_prompt || (c->pipes[0].fd < 0 && c->pipes[1].fd < 0))
        command_ended(c);
}

static void on_exit_status(void *user, pid_t pid, int status)
{
    struct commands *cs = user;
    struct command *c = command_find(cs, pid, NULL, false);
    char cmd[REPORT_TEXT_MAX];
    int64_t took;

    if (!c || c->is_exited)
        return;
    c->is_exited = true;
    c->status = status;
    report_text(cmd, sizeof(cmd), c->request ? c->request->process->cmd : "");
    took = c->is_survivor ? -1 : (int64_t)(uv_now(cs->loop) - c->started_at);
    /* First: an end that a client has seen is told, also when it ends the sandbox at once. */
    report_end(cs->reports, pid, cmd, status, took, c->is_timed_out);
    command_check_end(c);
}

/* --- killing ----------------------------------------------------------------------------------- */

static void tree_run(struct work *w)
{
    (void)tree_kill(container_of(w, struct tree_work, work)->supervisor, TREE_KILL_MS);
}

static void tree_done(struct work *w)
{
    free(container_of(w, struct tree_work, work));
}

/* Kills everything of the command; its end arrives as for any other. */
static void command_kill_tree(struct command *c)
{
    struct tree_work *t;

    c->is_prompt = true;
    (void)syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
    t = calloc(1, sizeof(*t));
    if (t) {
        t->supervisor = c->supervisor;
        if (work_start(c->timer.loop, &t->work, NULL, tree_run, tree_done) < 0)
            free(t);
    }
    command_check_end(c);
}

static void on_deadline(uv_timer_t *timer)
{
    struct command *c = timer->data;

    c->is_timed_out = true;
    command_tell(c); /* the client that set the time hears of it before its own clock is up */
    command_kill_tree(c);
}

int command_signal(struct command *c, int sig, struct abx_err *err)
{
    if (c->is_exited) {
        command_kill_tree(c);
        return 0;
    }
    if (c->is_killed)
        return err_set(err, ABX_NOT_FOUND, "process with pid %d not found", c->pid);
    if (syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0) < 0 && errno != ESRCH)
        return err_sys(err, errno, "signal process %d", c->pid);
    c->is_killed = sig == SIGKILL;
    c->is_prompt = true;
    return 0;
}

static void on_hangup_ignored(uv_timer_t *timer)
{
    struct command *c = timer->data;

    if (!c->is_exited)
        (void)command_signal(c, SIGKILL, NULL);
}

void command_hang_up(struct command *c)
{
    if (c->is_exited)
        return;
    (void)command_signal(c, SIGHUP, NULL);
    (void)command_signal(c, SIGCONT, NULL); /* a stopped one hears of it, too */
    (void)uv_timer_start(&c->timer, on_hangup_ignored, COMMAND_HANGUP_MS, 0);
}

static int size_set(struct winsize *ws, unsigned cols, unsigned rows, struct abx_err *err)
{
    if (cols > UINT16_MAX || rows > UINT16_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "terminal size %ux%u: over %d columns or rows",
                       cols, rows, UINT16_MAX);
    ws->ws_col = (unsigned short)cols;
    ws->ws_row = (unsigned short)rows;
    return 0;
}

int command_resize(struct command *c, unsigned cols, unsigned rows, struct abx_err *err)
{
    struct winsize size = { 0 };

    if (!c->is_pty || c->pipes[0].fd < 0)
        return err_set(err, ABX_INTERNAL, "process %d has no terminal", c->pid);
    if (size_set(&size, cols, rows, err) < 0)
        return ABX_INVALID_ARGUMENT;
    if (ioctl(c->pipes[0].fd, TIOCSWINSZ, &size) < 0)
        return err_set(err, ABX_INTERNAL, "resize the terminal: %s", strerror(errno));
    return 0;
}

/* --- start ------------------------------------------------------------------------------------- */

static struct command *command_new(struct commands *cs)
{
    struct command *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->owner = cs;
    c->pidfd = c->pipes[0].fd = c->pipes[1].fd = c->input.fd = -EBADF;
    c->pipes[0].command = c->pipes[1].command = c;
    output_init(&c->output);
    return c;
}

/* Before any handle is open. */
static void command_discard(struct command *c)
{
    fd_close(c->pipes[0].fd);
    fd_close(c->pipes[1].fd);
    fd_close(c->input.fd);
    command_free(c);
}
DEFINE_CLEANUP(struct command *, command_discard)

static int make_pipe(int *ret_read, int *ret_write, struct abx_err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

/* Fills `child` with the command's ends; our ends go into `c`. */
static int open_pipes(struct command *c, int child[3], struct abx_err *err)
{
    int r = make_pipe(&c->pipes[0].fd, &child[1], err);

    if (r == 0)
        r = make_pipe(&c->pipes[1].fd, &child[2], err);
    if (r == 0 && c->has_stdin)
        r = make_pipe(&child[0], &c->input.fd, err);
    if (r < 0)
        return r;
    c->pipes[0].stream = OUTPUT_STDOUT;
    c->pipes[1].stream = OUTPUT_STDERR;
    if (!c->has_stdin) {
        child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (child[0] < 0)
            return err_sys(err, errno, "open '/dev/null'");
    }
    return 0;
}

/* The user owns it, as after a login: programs open it by its name, too. Its line editing takes
 * characters of UTF-8 as one (IUTF8; the kernel's default is bytes). */
static int open_terminal(struct command *c, uid_t owner, int child[3], struct abx_err *err)
{
    const Process__PTY__Size *size = c->request->pty->size;
    struct winsize ws = { .ws_col = 80, .ws_row = 24 };
    struct termios modes;
    int unlock = 0;

    if (size && size->cols > 0 && size->rows > 0 && size_set(&ws, size->cols, size->rows, err) < 0)
        return ABX_INVALID_ARGUMENT;
    c->pipes[0].fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (c->pipes[0].fd < 0)
        return err_sys(err, errno, "open '/dev/ptmx'");
    if (ioctl(c->pipes[0].fd, TIOCSPTLCK, &unlock) < 0 ||
        ioctl(c->pipes[0].fd, TIOCSWINSZ, &ws) < 0)
        return err_sys(err, errno, "set up a terminal");
    child[0] = ioctl(c->pipes[0].fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (child[0] < 0 || fchown(child[0], owner, (gid_t)-1) < 0)
        return err_sys(err, errno, "open a terminal");
    if (tcgetattr(child[0], &modes) < 0)
        return err_sys(err, errno, "set up a terminal");
    modes.c_iflag |= IUTF8;
    if (tcsetattr(child[0], TCSANOW, &modes) < 0)
        return err_sys(err, errno, "set up a terminal");
    c->input.fd = fcntl(c->pipes[0].fd, F_DUPFD_CLOEXEC, 0);
    if (c->input.fd < 0)
        return err_sys(err, errno, "duplicate a terminal");
    c->pipes[0].stream = OUTPUT_PTY;
    return 0;
}

/* Each command may keep its part of COMMANDS_RING_MAX. Only ever less: a ring that was cut does not
 * come back. */
static void share_rings(struct commands *cs)
{
    size_t part = COMMANDS_RING_MAX / MAX(cs->n_commands, (size_t)1);

    if (part >= OUTPUT_RING_MAX)
        return;
    for (struct command *c = cs->list; c; c = c->next)
        output_limit_ring(&c->output, part);
}

/* Puts the command on the loop and into the table. */
static int command_begin(struct command *c, struct abx_err *err)
{
    struct commands *cs = c->owner;
    int r;

    (void)uv_timer_init(cs->loop, &c->timer);
    (void)uv_timer_init(cs->loop, &c->gather);
    (void)uv_timer_init(cs->loop, &c->flush);
    c->timer.data = c->gather.data = c->flush.data = c;
    c->n_handles = 3;
    c->next = cs->list;
    cs->list = c;
    cs->n_commands++;
    share_rings(cs);
    r = command_pipes_open(c, err);
    if (r < 0)
        return r;
    if (c->input.fd >= 0) {
        (void)fd_set_nonblock(c->input.fd, true);
        r = input_init(&c->input, cs->loop, c->input.fd, on_input_closed, c, err);
        c->n_handles += c->input.has_poll;
    }
    return r;
}

static void on_started(void *user, pid_t pid, pid_t supervisor, int pidfd,
                       const struct abx_err *why)
{
    struct starting *st = user;
    struct command *c = st->command;
    struct abx_err err = *why;

    if (err.code) {
        st->done(st->user, NULL, &err);
        command_discard(c);
        free(st);
        return;
    }
    c->pid = pid;
    c->supervisor = supervisor;
    c->pidfd = pidfd;
    c->started_at = uv_now(st->cs->loop);
    if (command_begin(c, &err) < 0) {
        if (!c->input.has_poll)
            fd_close(TAKE_FD(c->input.fd));
        command_kill_tree(c);
        st->done(st->user, NULL, &err);
        free(st);
        return;
    }
    if (st->deadline_ms > 0) {
        uint64_t took = uv_now(st->cs->loop) - st->asked_at;

        (void)uv_timer_start(&c->timer, on_deadline,
                             took < st->deadline_ms ? st->deadline_ms - took : 0, 0);
    }
    report_start(st->cs->reports, pid, c->request->process, st->user_name);
    st->done(st->user, c, &err);
    free(st);
}

int command_start(struct commands *cs, const struct command_opts *opts, command_started_fn done,
                  void *user, struct abx_err *err)
{
    _cleanup_(command_discardp) struct command *c = command_new(cs);
    _cleanup_(freep) struct starting *st = calloc(1, sizeof(*st));
    Process__StartRequest *req = opts->request;
    struct spawn_opts spawn = { .cwd = opts->cwd, .argv = opts->argv, .envp = opts->envp };
    int child[3] = { -EBADF, -EBADF, -EBADF };
    int r;

    if (!c || !st)
        return err_oom(err);
    c->tag = strdup(req->tag_opt_case ? req->tag : "");
    if (!c->tag)
        return err_oom(err);
    c->is_pty = req->pty_opt_case != 0 && req->pty;
    c->has_stdin = c->is_pty || !req->stdin_opt_case || req->stdin;
    c->request = req; /* borrowed until the end of this function */
    r = c->is_pty ? open_terminal(c, opts->user->uid, child, err) : open_pipes(c, child, err);
    if (r == 0) {
        spawn.tag = c->tag;
        spawn.user = opts->user;
        spawn.is_pty = c->is_pty;
        memcpy(spawn.child_fds, child, sizeof(child));
        spawn.held_fds[0] = c->pipes[0].fd;
        spawn.held_fds[1] = c->pipes[1].fd;
        *st = (struct starting){ .cs = cs,
                                 .command = c,
                                 .deadline_ms = opts->deadline_ms,
                                 .asked_at = uv_now(cs->loop),
                                 .done = done,
                                 .user = user };
        (void)snprintf(st->user_name, sizeof(st->user_name), "%s", opts->user->name);
        r = spawner_start(cs->spawner, &spawn, on_started, st, err);
    }
    for (size_t i = 0; i < 3; i++)
        fd_close(child[i]);
    if (r < 0) {
        c->request = NULL;
        return r;
    }
    TAKE_PTR(c);
    TAKE_PTR(st);
    return 0;
}

/* --- the table --------------------------------------------------------------------------------- */

static void on_survivor(void *user, const struct spawner_survivor *v)
{
    struct command *c = command_find(user, v->pid, NULL, true) ? NULL : command_new(user);

    if (!c || v->fds[0] < 0) {
        for (size_t i = 0; i < ARRAY_SIZE(v->fds); i++)
            fd_close(v->fds[i]);
        if (c)
            command_discard(c);
        return;
    }
    c->pid = v->pid;
    c->supervisor = v->supervisor;
    c->pidfd = v->fds[0];
    c->pipes[0].fd = v->fds[1];
    c->pipes[1].fd = v->fds[2];
    c->is_pty = v->is_pty;
    c->is_survivor = true;
    c->pipes[0].stream = c->is_pty ? OUTPUT_PTY : OUTPUT_STDOUT;
    c->pipes[1].stream = OUTPUT_STDERR;
    c->tag = strdup(v->tag);
    if (c->is_pty && c->pipes[0].fd >= 0) {
        c->input.fd = fcntl(c->pipes[0].fd, F_DUPFD_CLOEXEC, 0);
        c->has_stdin = true;
    }
    if (!c->tag) {
        command_discard(c);
        return;
    }
    (void)command_begin(c, NULL); /* listed and killable also without its output */
    if (c->is_pty && strcmp(c->tag, COMMAND_TERMINAL_TAG) == 0)
        command_hang_up(c);
}

struct command *command_find(struct commands *cs, pid_t pid, const char *tag, bool with_ended)
{
    for (struct command *c = cs->list; c; c = c->next) {
        if (c->is_ended && !with_ended)
            continue;
        if (tag ? c->tag[0] && strcmp(c->tag, tag) == 0 : c->pid == pid)
            return c;
    }
    return NULL;
}

void commands_each(struct commands *cs, void (*fn)(void *user, struct command *c), void *user)
{
    for (struct command *c = cs->list; c; c = c->next) {
        if (!c->is_ended)
            fn(user, c);
    }
}

int commands_new(uv_loop_t *loop, int channel_fd, bool is_successor, struct commands **ret,
                 struct abx_err *err)
{
    struct supervisors supervisors = { 0 };
    _cleanup_(freep) struct commands *cs = calloc(1, sizeof(*cs));
    struct spawner_events events = { on_exit_status, on_survivor, cs };
    int r;

    if (!cs)
        return err_oom(err);
    cs->loop = loop;
    (void)uv_timer_init(loop, &cs->tick);
    cs->tick.data = cs;
    if (is_successor)
        supervisors_find(&supervisors);
    r = reports_new(loop, GUEST_REPORT_NAME, &cs->reports, err);
    if (r == 0)
        r = spawner_new(loop, channel_fd, &events, &cs->spawner, err);
    if (r == 0)
        spawner_await(cs->spawner, &supervisors);
    supervisors_done(&supervisors);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(cs);
    return 0;
}
