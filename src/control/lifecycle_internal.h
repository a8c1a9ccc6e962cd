/* lifecycle_internal.h - shared by lifecycle.c (moves along the table), the files with its actions,
 * lifecycle_restart.c (comparing after a restart) and sandbox_table.c (the objects and their table). Not
 * for others.
 */
#pragma once

#include "control/lifecycle.h"

struct create_waiter {
    struct create_waiter *next;
    sandbox_created_fn done;
    void *user;
};

struct kill_waiter {
    struct kill_waiter *next;
    sandbox_killed_fn done;
    void *user;
    bool is_first; /* began the kill */
};

/* A request of a client, waiting or under way. */
struct operation {
    struct operation *next;
    struct sandbox_request request;
    json_t *config; /* with the request's members in it, on its way to the disk; NULL = none is */
    sandbox_requested_fn done;
    void *user;
    int64_t t_asked_ns;
    bool ends_first; /* a resume: processes that the driver has although the row says none */
};

/* An id that the driver knows and that is no sandbox. */
struct kept {
    struct kept *next;
    char id[SANDBOX_ID_SIZE];
};

struct lifecycle {
    struct lifecycle_opts opts;
    struct sandbox **buckets;
    size_t n_buckets;
    size_t count;
    struct sandbox *first, *last;
    uint64_t last_number;
    unsigned generation; /* of the newest comparison with the driver; 0 = none began */
    unsigned compared;   /* the newest one that ended */
    uint64_t last_call;
    struct kept *kept;         /* lifecycle_keep */
    struct sandbox *unremoved; /* gone, but for a row that could not be deleted yet; by `next` */
    bool has_lost_rows; /* a row could not be read at all: what the driver has may be its sandbox */
};

/* What comes with an event. */
struct change {
    const struct abx_err *failure;
    const struct driver_created *created;
    bool was_sent;
    bool is_ours; /* the failure is a refusal of ours, not the driver's trouble */
    const char *reason;
    /* Set by lifecycle_fire: */
    enum lifecycle_event event;
    enum sandbox_state from;
    int http;
};

/* Moves the sandbox along the table and runs the action; `sb` may be on its way out afterwards. */
void lifecycle_fire(struct sandbox *sb, enum lifecycle_event ev, const struct change *c);
void lifecycle_on_timer(uv_timer_t *t);

/* Durations of the states since lifecycle_stages_begin, in `sb->stages`. */
void lifecycle_stages_begin(struct sandbox *sb);
/* Appends "stages":[...] */
enum buf_status lifecycle_stages_put(struct buf *b, const struct driver_stage *stages, size_t n);

/* --- lifecycle_call.c --- */
/* One call to driver or store for the state that the sandbox is in; what comes too late finds nothing. */
struct call {
    struct lifecycle *lifecycle;
    uint64_t number;
    char id[SANDBOX_ID_SIZE];
};
/* NULL when out of memory. It goes with one call that is made, whose completion is one of those below or calls call_ended. */
struct call *call_new(struct sandbox *sb, struct abx_err *err);
void call_on_driver(void *user, uint32_t us, const struct abx_err *failure);
void call_on_store(void *user, const struct abx_err *failure);
/* Frees it and tells the sandbox, if that still waits for it. */
void call_ended(struct call *c, const struct abx_err *failure);
/* The call could not be made. */
void call_failed(struct sandbox *sb, struct call *c, const struct abx_err *why);

enum driver_call { CALL_FREEZE, CALL_THAW, CALL_STOP, CALL_COPY };
/* Makes the call; its end, or that it cannot be made, is an event of the sandbox. */
void call_driver(struct sandbox *sb, enum driver_call what);
/* What the driver lacks (files, the template) is not what the client asked for: that is there. */
void driver_trouble(struct abx_err *err);
void act_later(struct sandbox *sb, const struct change *c);
/* A stop failed, and need not be tried again: the driver knows no such processes, or could not end them in the time that
 * it gets since the state began. The row says, or will say, `paused` without memory: the comparisons end what is left of
 * the processes, and say so when nothing is left of the files either. */
bool lifecycle_stop_is_over(const struct sandbox *sb, const struct abx_err *failure);

/* --- lifecycle_create.c --- */
void act_start(struct sandbox *sb, const struct change *c);
void act_start_again(struct sandbox *sb, const struct change *c);
void act_commit(struct sandbox *sb, const struct change *c);
void act_open(struct sandbox *sb, const struct change *c);
void act_refuse_create(struct sandbox *sb, const struct change *c);
void act_fail_create(struct sandbox *sb, const struct change *c);
/* For the counters: a create is over. */
void lifecycle_count_create(const struct sandbox *sb, const struct abx_err *failure);
/* The driver's create for the sandbox as it is, a new one or one that starts again. */
int lifecycle_start(struct sandbox *sb, struct abx_err *err);
/* Takes over what the driver made of it. */
void lifecycle_take_created(struct sandbox *sb, const struct driver_created *created);
int lifecycle_check_limit(const struct sandbox *sb, size_t others, size_t max_active,
                          struct abx_err *err);
void lifecycle_answer_creators(struct sandbox *sb, int status, const char *body,
                               const struct abx_err *failure, bool is_clean);

/* --- lifecycle_end.c --- */
void act_kill(struct sandbox *sb, const struct change *c);
void act_kill_later(struct sandbox *sb, const struct change *c);
void act_kill_starting(struct sandbox *sb, const struct change *c);
void act_died(struct sandbox *sb, const struct change *c);
void act_died_early(struct sandbox *sb, const struct change *c);
void act_expire(struct sandbox *sb, const struct change *c);
void act_killed(struct sandbox *sb, const struct change *c);
void act_kill_failed(struct sandbox *sb, const struct change *c);
void act_kill_again(struct sandbox *sb, const struct change *c);
void act_start_ended(struct sandbox *sb, const struct change *c);
void act_told(struct sandbox *sb, const struct change *c);
void act_remove(struct sandbox *sb, const struct change *c);
void act_remove_again(struct sandbox *sb, const struct change *c);
void act_finish(struct sandbox *sb, const struct change *c);
/* It is in the state `killing`, from `from`: row, gateways and driver hear of it. `answer` for a create
 * that fails. `reason` is static text. */
void lifecycle_end(struct sandbox *sb, enum sandbox_state from, const char *reason,
                   const struct store_answer *answer);
void lifecycle_finish(struct sandbox *sb);
/* Tries again to delete the rows of those that are gone. */
void lifecycle_remove_rows(struct lifecycle *l);

/* --- lifecycle_pause.c --- */
void act_check(struct sandbox *sb, const struct change *c);
void act_unhealthy(struct sandbox *sb, const struct change *c);
void act_drain(struct sandbox *sb, const struct change *c);
void act_freeze(struct sandbox *sb, const struct change *c);
void act_save(struct sandbox *sb, const struct change *c);
void act_stop(struct sandbox *sb, const struct change *c);
void act_paused(struct sandbox *sb, const struct change *c);
void act_pause_failed(struct sandbox *sb, const struct change *c);
void act_thaw(struct sandbox *sb, const struct change *c);
void act_reopen(struct sandbox *sb, const struct change *c);
/* Its time has `left_ms` to go; when that is none, it has been over for so long. */
void lifecycle_note_over(struct sandbox *sb, int64_t left_ms);
/* Milliseconds that it has left, at the end of what used its timer for other things; less than 0 when they are over. */
int64_t lifecycle_take_left(struct sandbox *sb);
enum loss { LOSS_MEMORY, LOSS_ALL };
/* Its processes are gone, its files are there (LOSS_MEMORY) or are gone, too: paused without memory from now on. */
void lifecycle_demote(struct sandbox *sb, enum loss loss);

/* The gateways hold its requests, with a deadline. `point`: the step's name (base/fault.h). */
void lifecycle_hold(struct sandbox *sb, const char *point);
/* {"mode":...,"reason":...,"stages":[...]} of a pause or a resume; NULL when out of memory. Owned by the caller. */
char *pause_event_data(const struct sandbox *sb, const char *reason);
/* Logs `what`, with the mode and the time since its begin. */
void pause_log(const struct sandbox *sb, const char *what);

/* --- lifecycle_resume.c --- */
void act_wake(struct sandbox *sb, const struct change *c);
void act_wake_failed(struct sandbox *sb, const struct change *c);
void act_resume_row(struct sandbox *sb, const struct change *c);
void act_resumed(struct sandbox *sb, const struct change *c);
/* Tries again to write the rows of those that were resumed or rolled back: a crash would take them back to their pause, or
 * start them once more. */
void lifecycle_write_rows(struct lifecycle *l);

/* --- lifecycle_rollback.c --- */
void act_fetch(struct sandbox *sb, const struct change *c);
void act_clear(struct sandbox *sb, const struct change *c);
void act_halt(struct sandbox *sb, const struct change *c);
void act_note(struct sandbox *sb, const struct change *c);
void act_exchange(struct sandbox *sb, const struct change *c);
void act_exchange_again(struct sandbox *sb, const struct change *c);
void act_end(struct sandbox *sb, const struct change *c);
void act_restart(struct sandbox *sb, const struct change *c);
void act_restart_again(struct sandbox *sb, const struct change *c);
void act_restart_failed(struct sandbox *sb, const struct change *c);
void act_settle(struct sandbox *sb, const struct change *c);
void act_park(struct sandbox *sb, const struct change *c);
void act_rolled_back(struct sandbox *sb, const struct change *c);
void act_parked(struct sandbox *sb, const struct change *c);
void act_rollback_failed(struct sandbox *sb, const struct change *c);
void act_rollback_undo(struct sandbox *sb, const struct change *c);
/* The end of the processes failed for the last time: it has moved on, and true is returned. */
bool rollback_end_is_over(struct sandbox *sb, const struct abx_err *failure);
/* Which event the end of a call is: EV_DONE for no failure. */
enum lifecycle_event lifecycle_outcome(const struct sandbox *sb, const struct abx_err *failure);
/* The row says that it is on its way to a snapshot: it goes on with that once the driver is up. Of one that is not, or is
 * being killed, what the row says is dropped. */
void rollback_load(struct sandbox *sb);
/* It goes nowhere any more: what it was to get is removed, if there is something. */
void rollback_forget(struct sandbox *sb);

/* --- lifecycle_request.c --- */
void act_copy(struct sandbox *sb, const struct change *c);
void act_copied(struct sandbox *sb, const struct change *c);
void act_refuse(struct sandbox *sb, const struct change *c);
void act_extend(struct sandbox *sb, const struct change *c);
void act_configure(struct sandbox *sb, const struct change *c);
void act_wait(struct sandbox *sb, const struct change *c);
void operation_free(struct operation *op);
/* Makes the whole configuration that its request asks for, from what those before it make of it; `*ret_text` is that for the
 * row, owned by the caller. operation_configured has to follow. */
int operation_configure(struct sandbox *sb, struct operation *op, char **ret_text,
                        struct abx_err *err);
/* It is on the disk and holds from now on, or never will (`failure`). Completions come in the order of the calls. */
int operation_configured(struct sandbox *sb, struct operation *op, const struct abx_err *failure,
                         struct abx_err *err);
/* Answers the request that is under way, if any. */
void operation_end(struct sandbox *sb, int status, const struct abx_err *failure);
/* The next ones, as far as the state lets them. */
void lifecycle_go_on(struct sandbox *sb);
#define LIFECYCLE_WAIT_NS (30 * NSEC_PER_SEC) /* less than gateways wait for control */
/* What the state does failed with `why` and is tried again: who has waited for LIFECYCLE_WAIT_NS waits no longer. */
void lifecycle_tell_waiting(struct sandbox *sb, const struct abx_err *why);
/* It is ending: whoever waits hears that it is not there. */
void lifecycle_refuse_all(struct sandbox *sb);

int table_init(struct lifecycle *l, struct abx_err *err);
void table_done(struct lifecycle *l);
/* Adds to hash and list. */
int table_add(struct lifecycle *l, struct sandbox *sb, struct abx_err *err);
void table_remove(struct lifecycle *l, struct sandbox *sb);

/* A new object that is not in the table. */
struct sandbox *sandbox_new(struct lifecycle *l, struct abx_err *err);
/* Closes its timer, then frees it from the loop. */
void sandbox_free_later(struct sandbox *sb);
/* Sets config_text and what follows from it; `config` is borrowed. */
int sandbox_set_config(struct sandbox *sb, json_t *config, struct abx_err *err);
/* Copies the environment until the driver has it. */
int sandbox_keep_envs(struct sandbox *sb, const struct driver_env *envs, size_t n,
                      struct abx_err *err);
void sandbox_forget_envs(struct sandbox *sb);
int sandbox_from_spec(struct sandbox *sb, const struct sandbox_spec *spec, struct abx_err *err);
/* Of a damaged row takes what can be read, in place of the rest what does least harm, and notes it in `sb->damage`.
 * DATA_LOSS when not even the id can be. */
int sandbox_from_row(struct sandbox *sb, const struct store_sandbox *row, struct abx_err *err);
/* Borrows from `sb`. */
struct store_sandbox sandbox_row(const struct sandbox *sb, const char *state);
