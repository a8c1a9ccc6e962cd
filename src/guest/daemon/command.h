/* command.h - commands of the sandbox: start, output, input, deadline, end.
 *
 * Life of a command: running; exited (its process is gone, something may still hold its pipes);
 * ended (all output is in `output`, nothing more comes); forgotten 30 s later, once no reader is
 * left. The table owns commands; a pointer is valid until control returns to the loop, for an
 * attached reader until it detaches.
 */
#pragma once

#include "guest/daemon/input.h"
#include "guest/daemon/output.h"
#include "guest/daemon/spawner.h"
#include "schema/process.pb-c.h"

#define COMMAND_LINGER_MS 30000
#define COMMANDS_ENDED_MAX 1024       /* ended ones that are remembered */
#define COMMANDS_RING_MAX (16u << 20) /* unread output of all commands without a reader together */
#define COMMAND_HELD_MS 50            /* how long the rest of a cut character is waited for */
#define COMMAND_HELD_BULK_MS                                                                       \
    500 /* and in output of many kilobytes, where a border of a buffer cut it */
#define COMMAND_STALL_MS 30000 /* a reader without progress for so long is cut off */

struct commands;
struct command;

/* Told when there may be more to read, or the command has ended. */
struct command_reader {
    struct command_reader *next;
    struct output_reader at;
    void (*on_more)(struct command_reader *r);
    /* Called about every 5 s while the command runs; the reader checks its own progress. */
    void (*on_tick)(struct command_reader *r, uint64_t now_ms);
};

struct command_pipe {
    uv_poll_t poll;
    int fd; /* -EBADF when at its end */
    enum output_stream stream;
    struct command *command;
    /* The beginning of a UTF-8 character whose rest has not come: clients decode each message alone. Goes on with
     * the rest, after COMMAND_HELD_MS or at the end. */
    uint8_t held[3];
    uint8_t n_held;
    bool is_bulk;
    uint8_t n_full; /* times that it was found full */
    bool is_grown;
    bool is_watched;   /* by `poll` */
    bool is_gathering; /* read again by the command's timer `gather` */
    uint64_t tick_at;  /* loop time */
    size_t tick_bytes; /* read in it */
    bool has_poll;
    bool is_paused;
};

struct command {
    struct command *next;
    struct commands *owner;
    Process__StartRequest *request; /* NULL for a survivor, and once ended */
    char *tag;                      /* "" = none */
    pid_t pid;
    pid_t supervisor;
    int pidfd;
    bool is_pty;
    bool has_stdin;
    bool is_survivor;
    bool is_prompt;    /* killed or signalled: end with the process, not with its pipes */
    bool is_killed;    /* SIGKILL is on its way: for later signals it is gone */
    bool is_timed_out; /* killed because its time was over */
    bool is_exited;
    bool is_ended;
    bool is_forgotten;
    int status; /* as from waitpid, when is_exited */
    struct command_pipe pipes[2];
    struct input input;
    struct output output;
    struct command_reader *readers;
    uv_timer_t timer; /* deadline, then lingering */
    uv_timer_t gather;
    uv_timer_t flush; /* of what the pipes hold back */
    unsigned n_handles;
    uint64_t started_at; /* loop time; not known of a survivor */
    uint64_t ended_at;
};

struct command_opts {
    Process__StartRequest *request; /* taken over when command_start succeeds */
    const struct user *user;
    const char *cwd; /* absolute */
    char *const *argv;
    char *const *envp;
    uint64_t deadline_ms; /* 0 = none */
};

/* `c` runs, or NULL and why not. Readers attached in this call miss nothing. */
typedef void (*command_started_fn)(void *user, struct command *c, const struct abx_err *err);

/* `channel_fd` leads to PID 1 and stays the caller's. The successor of a daemon waits here, for at most
 * SPAWNER_AWAIT_MS, until it knows every command that its predecessor left running. */
int commands_new(uv_loop_t *loop, int channel_fd, bool is_successor, struct commands **ret,
                 struct abx_err *err);

int command_start(struct commands *cs, const struct command_opts *opts, command_started_fn done,
                  void *user, struct abx_err *err);

/* By pid, or by tag when that is not NULL. Ended ones only if `with_ended`. Newest first. NULL if
 * there is none. */
struct command *command_find(struct commands *cs, pid_t pid, const char *tag, bool with_ended);
/* Calls `fn` for each command that has not ended, oldest last. */
void commands_each(struct commands *cs, void (*fn)(void *user, struct command *c), void *user);

/* See output.h; the reader's first byte is that of r->at.mark.offset. */
void command_attach(struct command *c, struct command_reader *r, uint64_t *ret_dropped);
/* OUT_OF_RANGE, and not attached, when the command has not written that much. */
int command_attach_at(struct command *c, struct command_reader *r, uint64_t offset,
                      uint64_t *ret_dropped, struct abx_err *err);
void command_detach(struct command *c, struct command_reader *r);
/* Next record, borrowed until command_advance or the loop; false when there is none now. */
bool command_peek(struct command *c, struct command_reader *r, enum output_stream *ret_stream,
                  struct slice *ret);
void command_advance(struct command *c, struct command_reader *r);

/* Sends SIGTERM or SIGKILL to the command's process. One that has exited but not ended ends now,
 * with what holds its pipes killed by SIGKILL. One that was sent SIGKILL before is NOT_FOUND, whether
 * or not it was reaped meanwhile: a second kill has one answer. */
int command_signal(struct command *c, int sig, struct abx_err *err);
/* Its terminal went away: SIGHUP, and SIGKILL when it has not ended COMMAND_HANGUP_MS later. Takes the place of its
 * deadline. */
#define COMMAND_HANGUP_MS 2000
/* Tag of those whose terminal ends with the daemon: its successor hangs them up. */
#define COMMAND_TERMINAL_TAG "abx-terminal"
void command_hang_up(struct command *c);
int command_resize(struct command *c, unsigned cols, unsigned rows, struct abx_err *err);

/* How it ended, as envd says it. `text` gets "exit status 1" or "signal: killed". */
#define COMMAND_STATUS_SIZE 64
struct command_end {
    int exit_code; /* -1 for a signal */
    bool is_exited;
    char status[COMMAND_STATUS_SIZE];
};
void command_end_of(int wait_status, struct command_end *ret);
