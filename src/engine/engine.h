/* engine.h - the engine process: state and the calls between its files. Everything runs on the main
 * thread's loop and does not block: what takes long goes to workers (crew.h), sockets for gateways
 * to a thread of their own (sockets.h).
 *
 *     engine.c     start, stop            server.c   requests of control
 *     create.c     create and claim       adopt.c    records at start
 *     lifecycle.c  end                    audit.c    what no one owns
 *     pause.c      freeze, stop            measure.c  what sandboxes use
 *     clone.c      copies                   exchange.c other files for a sandbox
 *     slots.c      slots and warm pools     swap.c     memory of paused ones
 */
#pragma once

#include <uv.h>

#include "engine/cgroup.h"
#include "engine/crew.h"
#include "engine/disk.h"
#include "engine/options.h"
#include "engine/sockets.h"
#include "engine/table.h"
#include "engine/template.h"
#include "net/heartbeat.h"
#include "net/ipc.h"

#define REQUEST_ID_SIZE 64
#define FDS_RESERVE 256u

/* Ready sandboxes of one template. */
struct warm {
    const struct pool_option *option;
    char folder[RECORD_TEMPLATE_SIZE]; /* what `option->template` means now; empty: not there */
    struct sandbox *ready;             /* by next_in_pool, oldest last */
    unsigned n_ready, n_coming;
    int64_t not_before_ns; /* after a failure */
    bool is_missed;        /* the log says that the template is not there */
};

/* A connection of control (or of root's tools). */
struct client {
    struct client *next, **at;
    uint64_t id; /* never used again */
    struct ipc_conn *conn;
    struct engine *engine;
};

/* A create under way, or one sandbox being made for a pool. */
struct creation {
    struct creation *next; /* while it waits for a slot */
    struct engine *engine;
    struct warm *warm; /* set: for this pool, nobody waits */
    uint64_t conn, seq;
    char request_id[REQUEST_ID_SIZE];
    char sandbox_id[RECORD_ID_SIZE];
    char folder[RECORD_TEMPLATE_SIZE];
    char rootfs[TEMPLATE_PATH_SIZE];
    char hostname[65];
    struct record_limits limits;
    struct buf identity;
    int64_t begin_ns, slot_ns, sent_ns;
    bool is_warm;   /* answered from a pool */
    bool is_resume; /* `sb` is a stopped one and starts with the upper that was kept */
    struct sandbox *sb;
    struct abx_err err; /* what makes it fail although the worker succeeded */
};

struct engine {
    const struct options *o;
    uv_loop_t loop;
    uv_signal_t on_term, on_int;
    struct heartbeat heartbeat;
    uv_timer_t timer;  /* runs only while something was put off */
    uv_timer_t ending; /* runs only while a killed sandbox's exit is waited for */
    pid_t supervisor;
    int lock_fd, exe_fd, records_fd, own_uts_fd;
    char boot_id[RECORD_UUID_SIZE];
    struct cgroup_tree *cgroups;
    struct disk_pool *pool;
    enum mount_path mount_path; /* that the workers' spawners take */
    struct table *table;
    struct templates templates;
    struct crew *crew;
    struct sockets *sockets;
    struct ipc_listener *listener;
    struct client *clients;
    uint64_t last_client;
    struct sandbox *slots; /* by next_in_pool */
    unsigned n_slots, slots_coming;
    int64_t slots_not_before_ns;
    struct warm warm[OPTIONS_POOLS_MAX];
    size_t n_warm;
    struct creation *waiting, **waiting_tail;
    unsigned n_waiting;
    unsigned creating;   /* given to workers */
    unsigned uids_going; /* uid ranges on their way back */
    bool is_trashing, has_trash;
    bool must_restart;    /* see engine_pool_fails */
    bool has_upper_left;  /* uppers without record: the next trash job takes them */
    struct audit *audits; /* the first one is under way */
    bool is_stopping, stop_kills;
    size_t fd_limit;
    bool can_push;                /* there is swap, and a worker that pushes memory out to it */
    struct checkpoint checkpoint; /* text empty: not known yet */
    char no_steering[160];        /* why sandboxes made now have no network; empty: they have */
};

/* --- engine.c --- */

/* Runs until stopped by a signal. The process's exit status. */
int engine_run(const struct options *o, char *const *argv);
/* Looks after what was put off (stuck removals, refills after a failure) in half a second. */
void engine_tick_later(struct engine *e);
/* A worker made something in the pool: a pool that was dead at the start (disk_pool_why_dead) is opened. */
void engine_pool_works(struct engine *e);
/* A worker could not make something in it: the engine ends with a failure when a mount anew may help and no
 * one has a sandbox. */
void engine_pool_fails(struct engine *e, const struct abx_err *why);
/* What came of a slot's steering; a change is logged. */
void engine_note_steering(struct engine *e, const char *why_not);
/* While stopping: ends the loop once nothing is under way any more. */
void engine_stop_if_idle(struct engine *e);

/* --- server.c --- */

int server_start(struct engine *e, int listen_fd, struct abx_err *err);
void server_stop(struct engine *e);
/* Logs which limits do not hold on this machine. */
void server_log_limits(const struct engine *e);
/* Answers request `seq` of connection `conn` if it still is there. */
void server_reply(struct engine *e, uint64_t conn, uint64_t seq, Abx__Ipc__Frame *frame);
void server_reply_error(struct engine *e, uint64_t conn, uint64_t seq, const struct abx_err *err);
void server_send_died(struct engine *e, const char *sandbox_id, const char *reason, int status);

/* --- create.c --- */

/* Takes over `c` (heap). Answers its connection in the end, in any case. */
void creation_begin(struct creation *c);
/* Goes on with waiting creations as far as there are slots. */
void creations_go_on(struct engine *e);
/* Ends a waiting creation of that id; false when there is none. */
bool creation_cancel(struct engine *e, const char *sandbox_id);
void creation_free(struct creation *c);
/* Starts it in a slot (as from slot_take). */
void creation_start(struct creation *c, struct sandbox *slot);
/* Fails the one that waits longest, if any. */
void creation_fail_first(struct engine *e, const struct abx_err *why);

/* --- slots.c --- */

/* Prepares slots and starts pooled sandboxes as far as they are missing and nobody is kept waiting
 * by that. */
void slots_refill(struct engine *e);
/* Something is missing and nobody is at it. */
bool slots_are_missing(const struct engine *e);
struct sandbox *slot_take(struct engine *e);
/* Takes over what a worker prepared; false when that is not what belongs to a slot. */
bool slot_take_fds(struct engine *e, struct sandbox *sb, const struct job_result *r, int *fds,
                   size_t n_fds);
/* Reads the templates again and what the pools' names mean. */
int templates_refresh(struct engine *e, struct abx_err *err);
/* A ready sandbox of that template; NULL. */
struct sandbox *warm_take(struct engine *e, const char *folder);
/* Puts a sandbox that runs without identity into the pool of its template; false when no pool
 * wants it. */
bool warm_put(struct engine *e, struct sandbox *sb);
/* Takes it out of whatever pool it is in. */
void pool_unlink(struct engine *e, struct sandbox *sb);
void pools_count(const struct engine *e, unsigned *ret_ready);

/* --- lifecycle.c --- */

/* Watches `sb->pidfd`. */
int sandbox_watch(struct engine *e, struct sandbox *sb, struct abx_err *err);
/* Does not look after it any more; no effect when it did not. */
void sandbox_unwatch(struct sandbox *sb);
/* Ends and removes it, whatever its state; answers (conn, seq) with KillReply when done (0: nobody).
 * Waits for what is under way. */
void sandbox_remove(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq);
/* The same for the engine's own code: `done` is called in the end, unless memory runs out. */
void sandbox_remove_then(struct engine *e, struct sandbox *sb,
                         void (*done)(void *user, const struct abx_err *failure), void *user);
/* Exit status or oom count of a sandbox that ended. */
void sandbox_on_event(void *user, const struct job_result *event);
/* The same, but `sb->keeps_upper` decides whether it is stopped or gone afterwards; a later sandbox_remove
 * overrules. */
void sandbox_remove_keeping(struct engine *e, struct sandbox *sb);
void sandbox_add_waiter(struct sandbox *sb, struct waiter waiter);
/* To be called when `is_busy` was cleared. */
void sandbox_not_busy(struct engine *e, struct sandbox *sb);
void trash_empty(struct engine *e);
/* Timer: goes on with killed ones that take long to exit. */
void sandboxes_end(uv_timer_t *t);
/* Removes stuck ones whose time has come; true while others wait for theirs. */
bool sandboxes_retry(struct engine *e);
void uid_put(struct engine *e, uid_t base);

/* --- pause.c, clone.c, exchange.c --- */

/* Answer (conn, seq) in the end. `is_kept`: from now on its files stay whatever becomes of its processes, its
 * service and its machine; `is_synced`: and the answer comes when they are on the disk. `is_brief`: neither they nor its
 * memory are wanted any more in a moment, nothing is written behind the answer. */
void sandbox_freeze(struct engine *e, struct sandbox *sb, bool is_kept, bool is_synced,
                    bool is_brief, uint64_t conn, uint64_t seq);
/* `is_kept`: only when its files are still there, else DATA_LOSS, and it stays as it is. */
void sandbox_thaw(struct engine *e, struct sandbox *sb, bool is_kept, uint64_t conn, uint64_t seq);
/* Ends the processes of a frozen one and keeps its files. */
void sandbox_stop(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq);
/* A stopped one, `new_id`, with the files of `sb`. */
void sandbox_clone(struct engine *e, struct sandbox *sb, const char *new_id, uint64_t conn,
                   uint64_t seq);
/* It and the stopped `copy_id` exchange their files (job.h, JOB_EXCHANGE). */
void sandbox_exchange(struct engine *e, struct sandbox *sb, const char *copy_id, bool is_synced,
                      uint64_t conn, uint64_t seq);
/* A kill of `sb` waits: the copy that it is to become is stopped, and those that hold up its processes. */
void sandbox_stop_copies(struct engine *e, struct sandbox *sb);
/* Its processes have ended and its upper was kept. */
void sandbox_stopped(struct engine *e, struct sandbox *sb);
/* Everything that is noted as saved comes into the table, or is found there. */
int saved_scan(struct engine *e, struct abx_err *err);

/* --- swap.c --- */

/* Can this machine push memory out? At the start. */
bool swap_is_usable(const struct engine *e);
/* Begins to push out the memory of a frozen one, where there is swap. Nobody waits for it. */
void sandbox_push_out(struct engine *e, struct sandbox *sb);
/* It goes on, or ends: nothing more of it is pushed out. */
void sandbox_push_stop(struct engine *e, struct sandbox *sb);

/* --- measure.c --- */

/* Both answer (conn, seq). */
void sandbox_usage(struct engine *e, struct sandbox *sb, uint64_t conn, uint64_t seq);
/* One page of all, those whose ids come after `after`. */
void measure_page(struct engine *e, const char *after, uint64_t conn, uint64_t seq);

/* --- adopt.c --- */

/* Reads all records: running sandboxes come into the table, the rest too, to be removed by
 * adopt_finish once the workers run. */
int adopt_scan(struct engine *e, struct abx_err *err);
void adopt_finish(struct engine *e);

/* --- audit.c --- */

/* Audits, repairs if asked, answers (0: logs). */
void audit_begin(struct engine *e, bool repair, uint64_t conn, uint64_t seq);
/* Frees those that no answer comes for any more: after crew_stop. */
void audits_drop(struct engine *e);
