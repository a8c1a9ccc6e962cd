/* commands.h - commands and pseudo terminals: process.Process of envd (e2b.md 4.1).
 *
 * abx_command_start, _connect and abx_pty_start, _connect are streams: events START (pid), OUTPUT,
 * END. abx_command_run is the same without events: its result has the whole output. A stream that
 * ends without an END event fails with DATA_LOSS. A disconnect (abx_call_cancel) leaves the command running.
 */
#ifndef ABX_COMMANDS_H
#define ABX_COMMANDS_H

#include "abx/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

struct abx_command_opts {
    size_t size;
    const char *const *argv; /* program and arguments; NULL: /bin/bash -l -c COMMAND */
    size_t argc;
    const char *user; /* NULL = the template's default */
    const char *cwd;  /* NULL = the template's default, else the home */
    const struct abx_pair *envs;
    size_t env_count;
    const char *tag;    /* name to connect by, or NULL */
    int stdin_open;     /* 1: abx_process_send_stdin works; 0: /dev/null */
    int64_t timeout_ms; /* of the command: it is killed after; ABX_UNSET = 60,000, 0 = none */
    int64_t request_timeout_ms; /* until its START; ABX_UNSET = the config's, 0 = none */
    uint64_t max_output_bytes;  /* abx_command_run, per stream: 0 = 2 GiB; over it
                                   RESOURCE_EXHAUSTED, ABX_REASON_TOO_LARGE */
    int collect;                /* streams: 1 = keep the whole output for abx_call_command too */
};
#define ABX_COMMAND_OPTS_INIT                                                                      \
    { sizeof(struct abx_command_opts),                                                             \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      0,                                                                                           \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      0,                                                                                           \
      0 }

/* Result: COMMAND. A non-zero exit is no error. Errors: DEADLINE_EXCEEDED with ABX_REASON_COMMAND_TIMEOUT (the
 * command was killed) or ABX_REASON_REQUEST_TIMEOUT, INVALID_ARGUMENT (cwd, program), UNAUTHENTICATED (user). */
ABX_EXPORT abx_call *abx_command_run(abx_client *client, const abx_sandbox *sandbox,
                                     const char *command, const struct abx_command_opts *opts);
/* Events; result: COMMAND (output only with `collect`). */
ABX_EXPORT abx_call *abx_command_start(abx_client *client, const abx_sandbox *sandbox,
                                       const char *command, const struct abx_command_opts *opts);

struct abx_command_result {
    uint32_t pid;       /* 0 = not started yet */
    int is_ended;       /* the three below are set */
    int exit_code;      /* -1 when a signal ended it */
    int exited;         /* 0: a signal */
    const char *status; /* "exit status 2" */
    const char *error;  /* "" = none */
    const void *out;    /* standard output; of a pty: everything */
    size_t out_size;
    const void *err; /* standard error */
    size_t err_size;
};
/* What is known so far, also of a running or failed call. Pointers borrowed until the next process or free. */
ABX_EXPORT void abx_call_command(const abx_call *call, struct abx_command_result *ret);

/* Picks one process: by pid, or by tag when `tag` is not NULL. */
struct abx_process_ref {
    uint32_t pid;
    const char *tag;
};
struct abx_connect_opts {
    size_t size;
    int64_t timeout_ms; /* of the stream, not of the process: ABX_UNSET = 60,000, 0 = none */
    int64_t request_timeout_ms;
    int collect;
    /* First byte that is wanted, counted over all output of the process since its start: what a client that lost its
     * connection has already. ABX_UNSET: what no one has read. See abx_call_output_offset. */
    int64_t output_offset;
};
#define ABX_CONNECT_OPTS_INIT                                                                      \
    { sizeof(struct abx_connect_opts), ABX_UNSET, ABX_UNSET, 0, ABX_UNSET }
/* Connect to a running process (or one that ended less than 30 s ago): what it writes from now on, and before what of its
 * output no one has read or `output_offset` asks for. Errors: NOT_FOUND, OUT_OF_RANGE (output_offset is over what was written). */
ABX_EXPORT abx_call *abx_process_connect(abx_client *client, const abx_sandbox *sandbox,
                                         struct abx_process_ref process,
                                         const struct abx_connect_opts *opts);

/* Of a start or connect: the offset of its first byte of output. The sizes of the OUTPUT events that you took added, it is
 * the output_offset of the next connect. Over the one that was asked for, the bytes between are gone: the newest 1 MiB is
 * kept. Returns 1; 0 before the START event and when the sandbox does not say it (not of this service). */
ABX_EXPORT int abx_call_output_offset(const abx_call *call, uint64_t *ret);

struct abx_process_info {
    uint32_t pid;
    const char *tag; /* NULL = none */
    const char *cmd;
    const char *const *args;
    size_t arg_count;
    const struct abx_pair *envs;
    size_t env_count;
    const char *cwd; /* NULL = not told */
};
/* Result: PROCESSES. */
ABX_EXPORT abx_call *abx_process_list(abx_client *client, const abx_sandbox *sandbox,
                                      int64_t request_timeout_ms);
ABX_EXPORT const struct abx_process_info *abx_call_processes(const abx_call *call,
                                                             size_t *ret_count);
/* SendSignal: `signal` 9 or 15. Result: BOOL, 0 = no such process. */
ABX_EXPORT abx_call *abx_process_signal(abx_client *client, const abx_sandbox *sandbox,
                                        struct abx_process_ref process, int signal,
                                        int64_t request_timeout_ms);
/* SendInput to standard input, or to the terminal when `pty`. More than 1 MiB goes in several requests, in order.
 * `data` is copied. Result: NONE. */
ABX_EXPORT abx_call *abx_process_send_stdin(abx_client *client, const abx_sandbox *sandbox,
                                            struct abx_process_ref process, int pty,
                                            const void *data, size_t size,
                                            int64_t request_timeout_ms);
/* CloseStdin; envd 0.5.2. Result: NONE. */
ABX_EXPORT abx_call *abx_process_close_stdin(abx_client *client, const abx_sandbox *sandbox,
                                             struct abx_process_ref process,
                                             int64_t request_timeout_ms);

/* A login shell (or `opts->argv`) on a pseudo terminal; TERM, LANG and LC_ALL are added when missing.
 * `cols`, `rows` 1..65535. Events; result: COMMAND. */
ABX_EXPORT abx_call *abx_pty_start(abx_client *client, const abx_sandbox *sandbox, uint16_t cols,
                                   uint16_t rows, const struct abx_command_opts *opts);
/* Update: new size. Result: NONE. */
ABX_EXPORT abx_call *abx_pty_resize(abx_client *client, const abx_sandbox *sandbox,
                                    struct abx_process_ref process, uint16_t cols, uint16_t rows,
                                    int64_t request_timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
