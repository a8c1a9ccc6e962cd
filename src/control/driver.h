/* driver.h - where sandboxes come from: the one interface between control and whatever runs them.
 *
 * `local` (driver_local.c) is this machine's engine. Nothing outside a driver knows that sandboxes
 * are on this host. Each call has one completion, from the loop and never from inside the call,
 * unless the call itself fails. Strings are borrowed for the call, results for the completion.
 */
#pragma once

#include "base/err.h"
#include "base/macro.h"

struct driver;

struct driver_env {
    const char *name;
    const char *value;
};

struct driver_create {
    const char *sandbox_id;
    const char *digest; /* of the template's build */
    const char *template_id;
    const char *access_token; /* empty = none is asked for */
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb;
    const struct driver_env *envs;
    size_t n_envs;
    const char *request_id;
    bool is_resume; /* a stopped one starts again with the files that it has */
};

struct driver_stage {
    const char *name;
    uint32_t us;
};

struct driver_created {
    uint32_t cpu_count; /* as enforced; 0 = not enforced here */
    uint32_t memory_mb;
    uint32_t disk_mb;
    bool is_warm;
    const char *execution_id;
    const struct driver_stage *stages;
    size_t n_stages;
};

struct driver_template {
    const char *name;
    const char *digest;
    int64_t created_ms;
    uint64_t size_bytes;
    const char *suite;
};

/* `was_sent` false: the driver never heard of it, so that nothing can have happened. */
typedef void (*driver_created_fn)(void *user, const struct driver_created *created,
                                  const struct abx_err *failure, bool was_sent);
typedef void (*driver_killed_fn)(void *user, bool existed, const struct abx_err *failure);
/* `us`: how long the driver itself took. */
typedef void (*driver_done_fn)(void *user, uint32_t us, const struct abx_err *failure);

/* What a freeze is for: what is written, and when it is done. */
enum driver_freeze {
    DRIVER_FREEZE_MEMORY, /* a pause that keeps memory: files are written behind the answer, memory as far as there is swap */
    DRIVER_FREEZE_FILES, /* a pause of files: done when they are on the disk */
    DRIVER_FREEZE_BRIEF, /* neither is wanted any more in a moment: nothing is written */
};

enum driver_state {
    DRIVER_RUNS,
    DRIVER_FROZEN,
    DRIVER_STOPPED, /* its files are kept, it has no processes */
};

struct driver_sandbox {
    const char *id;
    enum driver_state state;
};

/* One page by id, ascending. `is_whole` false: stopped ones may be missing. */
typedef void (*driver_listed_fn)(void *user, const struct driver_sandbox *list, size_t n,
                                 bool has_more, bool is_whole, const struct abx_err *failure);
typedef void (*driver_templates_fn)(void *user, const struct driver_template *templates, size_t n,
                                    bool has_more, const struct abx_err *failure);
typedef void (*driver_audited_fn)(void *user, const char *const *findings, size_t n,
                                  uint32_t repaired, const struct abx_err *failure);

struct driver_info {
    uint32_t sandboxes; /* that run */
    uint32_t pooled;    /* that stand ready */
    uint32_t slots;     /* prepared for creates */
    /* Could it keep the memory of a sandbox beside its files? `checkpoint` says with what, or what is missing; empty:
     * not known yet. */
    bool can_checkpoint;
    const char *checkpoint;
};
typedef void (*driver_info_fn)(void *user, const struct driver_info *info,
                               const struct abx_err *failure);

/* What one sandbox uses at the moment. */
struct driver_usage {
    const char *id;
    bool is_frozen;
    bool has_disk;      /* disk_bytes is known */
    int64_t started_ms; /* of its processes: cpu_us counts from there, wall clock */
    uint64_t at_us;     /* when that was, by a clock that only goes on */
    uint64_t cpu_us;
    uint64_t memory_bytes; /* with cache_bytes, which can be dropped */
    uint64_t cache_bytes;
    uint64_t disk_bytes;
};
/* One page by id; `last` is where the next one goes on. */
typedef void (*driver_measured_fn)(void *user, const struct driver_usage *list, size_t n,
                                   bool has_more, const char *last, const struct abx_err *failure);

struct driver_events {
    /* The driver answers (again): what it knows has to be compared. */
    void (*on_up)(void *user);
    void (*on_down)(void *user);
    /* A sandbox ended by itself. `reason`: "exit", "oom", "signal". */
    void (*on_died)(void *user, const char *sandbox_id, const char *reason);
    void *user;
};

struct driver_ops {
    /* Waits for the driver to be up for at most DRIVER_WAIT_MS, then UNAVAILABLE with was_sent
     * false. NOT_FOUND: no such build. */
    int (*create)(struct driver *d, const struct driver_create *req, driver_created_fn done,
                  void *user, struct abx_err *err);
    /* Fails at once with UNAVAILABLE while the driver is away. */
    int (*kill)(struct driver *d, const char *sandbox_id, const char *request_id,
                driver_killed_fn done, void *user, struct abx_err *err);
    /* These, too, fail at once with UNAVAILABLE while it is away. All may be repeated.
     * Freezes everything in place; from then on its files outlive its processes. Fails with what was
     * changed undone. */
    int (*freeze)(struct driver *d, const char *sandbox_id, enum driver_freeze what,
                  driver_done_fn done, void *user, struct abx_err *err);
    /* FAILED_PRECONDITION: it is stopped, there is nothing to thaw. `is_resume`: of one that was paused;
     * DATA_LOSS, and it stays frozen, when its files are damaged or gone. */
    int (*thaw)(struct driver *d, const char *sandbox_id, bool is_resume, driver_done_fn done,
                void *user, struct abx_err *err);
    /* Ends the processes of a frozen one. */
    int (*stop)(struct driver *d, const char *sandbox_id, driver_done_fn done, void *user,
                struct abx_err *err);
    /* Makes a stopped one, `new_id`, with the files of another as they are now; that stays as it is. */
    int (*clone)(struct driver *d, const char *sandbox_id, const char *new_id, driver_done_fn done,
                 void *user, struct abx_err *err);
    /* The files of one that is frozen (by freeze) or stopped and those of the stopped `copy_id` change places, whole or
     * not at all; processes that it has keep the old ones and have to be ended. `is_synced`: it is done when that is
     * on the disk. Has no effect the second time, whatever has become of both. UNAVAILABLE, DEADLINE_EXCEEDED and
     * ABX_REASON_CONFLICT: perhaps done, perhaps later. FAILED_PRECONDITION and ABX_REASON_DISK_FULL: it was looked, and
     * is not done. All other failures: this call has not done it, and does not know about an earlier one. */
    int (*exchange)(struct driver *d, const char *sandbox_id, const char *copy_id, bool is_synced,
                    driver_done_fn done, void *user, struct abx_err *err);
    int (*list)(struct driver *d, const char *after, driver_listed_fn done, void *user,
                struct abx_err *err);
    int (*templates)(struct driver *d, const char *after, driver_templates_fn done, void *user,
                     struct abx_err *err);
    int (*audit)(struct driver *d, bool repair, driver_audited_fn done, void *user,
                 struct abx_err *err);
    int (*measure)(struct driver *d, const char *after, driver_measured_fn done, void *user,
                   struct abx_err *err);
    int (*info)(struct driver *d, driver_info_fn done, void *user, struct abx_err *err);
    bool (*is_up)(const struct driver *d);
    /* What is under way fails, inside this call or in the loop's next turns, and each later call with UNAVAILABLE: who has
     * heard of an end may still ask for something. */
    void (*close)(struct driver *d);
    /* Behind close, when nobody can ask any more. */
    void (*free)(struct driver *d);
};

/* First member of every driver. */
struct driver {
    const struct driver_ops *ops;
};

#define DRIVER_WAIT_MS 5000

/* The engine of this machine at the unix socket `path`. `events` is copied. */
struct uv_loop_s;
int driver_local_new(struct uv_loop_s *loop, const char *path, const struct driver_events *events,
                     struct driver **ret, struct abx_err *err);
