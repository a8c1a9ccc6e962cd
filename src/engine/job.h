/* job.h - what the engine asks of its workers and what they answer: fixed structs over packet.h.
 *
 * A worker does one job after the other and answers each once, under the job's id. It dies with the
 * engine. A job may be cut off at any point by SIGKILL; whatever it left is found by its record.
 */
#pragma once

#include "base/err.h"
#include "base/packet.h"
#include "engine/checkpoint.h"
#include "engine/record.h"
#include "engine/steer.h"

#define JOB_MAGIC 0x61627831u

/* Each class has workers and a queue of its own, so that none waits for a slower kind. */
enum worker_class {
    WORKER_CREATE,  /* has a spawner: mounts, clone3 */
    WORKER_REMOVE,  /* kills, removes */
    WORKER_CONTROL, /* freeze, thaw, resize */
    WORKER_PREPARE, /* slots and uid leases (the only process that has them), audit */
    WORKER_TRASH,   /* empties trash/ */
    WORKER_SAVE,    /* writes the pool to the disk */
    WORKER_MEASURE, /* what all sandboxes use, behind everything else */
    WORKER_SWAP,    /* pushes memory of frozen ones out; only where there is swap */
    WORKER_CLASSES_,
};

enum job_kind {
    JOB_READY = 1, /* worker's first message: it can work, or why not */
    JOB_EXIT,      /* event: a child of this worker ended; record.pid, status */
    JOB_OOM,       /* event while removing: record.name, oom_kills */
    JOB_PREPARE,   /* in: record.name, limits; out: record, fds */
    JOB_UID_PUT,   /* record.uid_base may be given out again */
    JOB_CREATE, /* in: record, u.create, fds of the slot and the template; out: record, pidfd, stages */
    JOB_REMOVE, /* record.name; out: record.uid_base (0: had no record) */
    JOB_FREEZE,
    JOB_THAW,
    JOB_RESIZE, /* to record.limits */
    JOB_USAGE,
    JOB_AUDIT,
    JOB_TRASH,
    JOB_SAVE, /* the pool, to the disk */
    JOB_CLONE, /* record.name's upper as that of target.name, which is saved then; in: an eventfd that stops it */
    /* record.name's upper and target.name's change places; target_id is the mark of it, so that it is done once. */
    JOB_EXCHANGE,
    JOB_MEASURE,    /* in: names; out: what each uses */
    JOB_PUSH_OUT,   /* in: an eventfd that stops it; out: bytes */
    JOB_CHECKPOINT, /* out: whether this machine can make checkpoints of memory */
};

/* Descriptors of a slot, in this order: what it is started with, and behind it those of its steering, if this
 * machine can steer. */
enum { SLOT_USERNS, SLOT_NETNS, SLOT_ENVD, SLOT_CONTROL, SLOT_FDS };
#define SLOT_FDS_MAX (SLOT_FDS + STEER_FDS)
/* Behind those of the slot JOB_CREATE has a detached mount of the template. The worker cannot look for it: what its own
 * mount namespace would show of the templates' folders is as old as the worker. */
enum { CREATE_LAYER = SLOT_FDS, CREATE_FDS };

#define JOB_LAYERS_BYTES 4096
#define JOB_STAGES_MAX 24
#define JOB_FINDINGS_MAX 200
#define JOB_HOLDERS_MAX 256
#define JOB_MEASURE_MAX 64

struct job_create {
    bool must_resize; /* the slot was made with other limits */
    char hostname[65];
    char boot_id[RECORD_UUID_SIZE]; /* what the sandbox sees */
    uint32_t n_layers;
    char layers
        [JOB_LAYERS_BYTES]; /* absolute paths, topmost first, each ended by NUL: for messages */
};

/* The processes of the service that ever have descriptors of sandboxes' network namespaces. */
struct job_audit {
    uint32_t n;
    pid_t holders[JOB_HOLDERS_MAX];
};

struct job_measure {
    uint32_t n;
    char names[JOB_MEASURE_MAX][RECORD_NAME_SIZE];
};

/* What one sandbox uses; `is_there` false: it has ended meanwhile. */
struct job_usage {
    bool is_there;
    bool has_disk;
    uint32_t processes;
    uint64_t at_us; /* CLOCK_MONOTONIC */
    uint64_t cpu_us, memory_bytes, cache_bytes, disk_bytes;
};

struct job {
    uint32_t magic;
    enum job_kind kind;
    uint64_t id;
    struct record record;
    bool wants_oom; /* JOB_REMOVE: also a JOB_OOM event */
    /* JOB_REMOVE: a worker died at it, half-written records may lie there. JOB_TRASH: there are uppers
     * that no record names any more. */
    bool must_sweep;
    /* JOB_FREEZE: note it as saved. JOB_THAW: only when its files are there. JOB_REMOVE, JOB_PREPARE: the upper stays
     * as it is. JOB_CREATE: it is a saved one's. */
    bool keeps_upper;
    bool pool_works;  /* JOB_REMOVE: for the engine; so a worker for which it did not looks again */
    bool must_freeze; /* JOB_CLONE: while it is copied */
    bool only_look;   /* JOB_EXCHANGE: it may have been done, but not now */
    char target[RECORD_NAME_SIZE]; /* JOB_CLONE, JOB_EXCHANGE */
    char target_id[RECORD_ID_SIZE];
    union {
        struct job_create create;   /* JOB_CREATE only, not sent otherwise */
        struct job_audit audit;     /* JOB_AUDIT only */
        struct job_measure measure; /* JOB_MEASURE only */
    };
};

struct job_stage {
    char name[24];
    uint32_t us;
};

enum finding_kind {
    FINDING_CGROUP,  /* a group without record */
    FINDING_UPPER,   /* an upper without record */
    FINDING_RECORD,  /* a record that the engine does not know, or no record at all */
    FINDING_UIDS,    /* a leased range without record */
    FINDING_PROCESS, /* a process with a uid of a range of ours that has no record */
    FINDING_NETNS,   /* a network namespace without record that a descriptor of ours keeps alive */
};

struct finding {
    enum finding_kind kind;
    char name[RECORD_ID_SIZE]; /* of the group, upper or file */
    uint32_t number;           /* pid or first uid */
    uint32_t netns;            /* FINDING_NETNS: its inode number, and the descriptor of `number` */
    int fd;
};

struct job_result {
    uint32_t magic;
    enum job_kind kind;
    uint64_t id;
    struct abx_err err; /* code 0: done */
    struct record record;
    bool is_cut_off;     /* set by the crew: the worker was lost while it had the job */
    bool has_upper_left; /* JOB_REMOVE: the upper could not be moved to the trash */
    bool has_note_left;  /* JOB_REMOVE: it stays noted as saved */
    union {
        int mount_path;        /* JOB_READY of a create worker */
        char no_steering[160]; /* JOB_PREPARE: why the slot has none; empty: it has */
        int status;            /* JOB_EXIT: as from waitpid */
        uint64_t oom_kills;    /* JOB_OOM */
        uint32_t us; /* JOB_FREEZE, JOB_THAW, JOB_EXCHANGE; JOB_CLONE: frozen for so long */
        struct job_usage usage;       /* JOB_USAGE */
        struct checkpoint checkpoint; /* JOB_CHECKPOINT */
        uint64_t bytes; /* JOB_PUSH_OUT: by how much its memory became less, also when it failed */
        struct {
            uint32_t n; /* as asked for, in that order */
            struct job_usage list[JOB_MEASURE_MAX];
        } measured;
        struct {
            uint32_t n;
            struct job_stage list[JOB_STAGES_MAX];
        } stages;
        struct {
            uint32_t n;
            bool has_more;
            struct finding list[JOB_FINDINGS_MAX];
        } audit;
    } u;
};

/* Bytes of a message that matter for its kind. */
size_t job_size(const struct job *j);
size_t job_result_size(const struct job_result *r);
const char *worker_class_name(enum worker_class c);
bool worker_class_from_name(const char *name, enum worker_class *ret);
