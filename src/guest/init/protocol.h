/* protocol.h - messages between PID 1, its supervisors and the daemon of one sandbox.
 *
 * Transport: the SEQPACKET pair GUEST_FD_INIT / GUEST_FD_DAEMON, one struct per message. All three
 * are the same image, so the structs need no version. PID 1 forks a supervisor for each SPAWN; the
 * supervisor executes the command, answers SPAWNED or FAILED itself and later says EXITED. File
 * descriptors travel by SCM_RIGHTS:
 *
 *   SPAWN    to the command: stdin, stdout, stderr (or only the terminal); to be held for the
 *            daemon's successor: read ends of stdout and stderr (or the terminal's master); last a
 *            memfd with the strings when INIT_MEMFD is set
 *   KEEP     a memfd, kept as INIT_FD_KEPT and inherited by the daemon's successors
 *   SPAWNED  pidfd of the command
 *   RUNNING  pidfd, then the held ones
 */
#pragma once

#include <stdint.h>

#include "e2b/guest_abi.h"

enum init_kind {
    INIT_HELLO = 1, /* daemon -> PID 1: this is my pid; have the supervisors report */
    INIT_SPAWN,     /* daemon -> PID 1: struct init_spawn */
    INIT_KEEP,      /* daemon -> PID 1: keep what is needed after a crash (struct init_hello) */
    INIT_SPAWNED,   /* supervisor -> daemon: answer to `seq` */
    INIT_FAILED,    /* PID 1 or supervisor -> daemon: answer to `seq`, with step and error */
    INIT_RUNNING,   /* supervisor -> daemon, after each HELLO */
    INIT_IDLE,      /* the same, when the command has ended and only what it left is there */
    INIT_EXITED,    /* supervisor -> daemon: the command ended with `status` */
    INIT_REAPED,    /* PID 1 -> daemon: an orphan or a supervisor ended by a signal */
};

/* Where a start failed. */
enum init_step {
    INIT_STEP_FORK,
    INIT_STEP_PREPARE, /* message, memory, descriptors, terminal */
    INIT_STEP_USER,    /* groups, gid, uid */
    INIT_STEP_CWD,
    INIT_STEP_EXEC,
};

#define INIT_PTY 1u   /* one descriptor: the terminal, made the controlling one */
#define INIT_MEMFD 2u /* the strings are in a memfd instead of behind the struct */

/* In PID 1 and in every daemon but the first: what a previous one asked to keep. */
#define INIT_FD_KEPT (GUEST_FD_SELF + 1)

#define INIT_GROUPS_MAX 64
#define INIT_TAG_MAX 256            /* with its NUL */
#define INIT_INLINE_MAX 32768u      /* strings that fit behind the struct */
#define INIT_STRINGS_MAX (6u << 20) /* execve's own limit with the usual 8 MiB stack is 2 MiB */

/* The strings, each with its NUL: tag, cwd, argv[0..argc), envp[0..envc). */
struct init_spawn {
    uint32_t kind;
    uint32_t seq;
    uint32_t flags;
    uint32_t uid;
    uint32_t gid;
    uint32_t n_groups;
    uint32_t groups[INIT_GROUPS_MAX];
    uint32_t argc;
    uint32_t envc;
    uint32_t strings_size;
};

struct init_hello {
    uint32_t kind;
    int32_t pid;
};

struct init_event {
    uint32_t kind;
    uint32_t seq;
    uint32_t flags;
    int32_t pid;
    int32_t supervisor;
    int32_t status; /* as waitpid gives it */
    int32_t step;
    int32_t error;
    char tag[INIT_TAG_MAX];
};
