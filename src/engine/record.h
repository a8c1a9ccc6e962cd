/* record.h - what the engine writes down about a sandbox before it exists: one small file on tmpfs,
 * <run-dir>/sandboxes/<name>, that is enough to adopt the sandbox or to remove all of it.
 *
 * Written whole (temporary file, rename) at four moments: `prepared` before the upper and cgroup are
 * made, `starting` before clone3, `running` before the child may go on, and again whenever the id,
 * the limits or the frozen state change. Text, "key=value" per line, first line "abx-record 1";
 * readers refuse what they do not know. Names are the engine's own ("s" and 12 hex digits): a pooled
 * sandbox gets its sandbox id only when it is claimed.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define RECORD_NAME_SIZE 14 /* "s", 12 hex digits, NUL */
#define RECORD_ID_SIZE 64
#define RECORD_TEMPLATE_SIZE 128
#define RECORD_UUID_SIZE 37
#define RECORD_BYTES_MAX 4096

enum record_phase { RECORD_PREPARED, RECORD_STARTING, RECORD_RUNNING };

struct record_limits {
    uint32_t cpu_count;
    uint32_t memory_mb;
    uint32_t disk_mb;
};

struct record {
    char name[RECORD_NAME_SIZE];
    enum record_phase phase;
    char sandbox_id[RECORD_ID_SIZE];     /* empty: pooled */
    char template[RECORD_TEMPLATE_SIZE]; /* folder name of its layers; empty while prepared */
    char execution_id[RECORD_UUID_SIZE];
    char boot_id[RECORD_UUID_SIZE]; /* of the host's kernel */
    pid_t pid;                      /* 0 until running */
    uint64_t start_ticks;           /* of `pid`, field 22 of /proc/<pid>/stat */
    uint64_t netns_ino;
    uid_t uid_base;
    struct record_limits limits;
    int64_t started_ms;
    bool is_frozen;
};

/* A new random name. */
void record_name_make(char to[RECORD_NAME_SIZE]);
bool record_name_is_valid(const char *name);

/* Appends the text form; BUF_LIMIT when `b` is too small. */
enum buf_status record_encode(const struct record *r, struct buf *b);
/* False when any line is missing, unknown, twice or malformed. */
bool record_decode(struct slice text, struct record *ret);

/* All take the fd of <run-dir>/sandboxes. */
int record_write(int dirfd, const struct record *r, struct abx_err *err);
/* NOT_FOUND when there is none, DATA_LOSS when it cannot be read as a record. */
int record_read(int dirfd, const char *name, struct record *ret, struct abx_err *err);
/* Missing is fine. */
int record_remove(int dirfd, const char *name, struct abx_err *err);
/* Removes what a killed writer of record `name` may have left beside it. */
int record_sweep(int dirfd, const char *name, struct abx_err *err);
/* Calls `fn` for each file in it, whatever its name, until `fn` returns other than 0, which is then
 * the result. `fn` may remove the file. */
int record_each(int dirfd, int (*fn)(void *user, const char *name), void *user,
                struct abx_err *err);

/* boot_id of the host's kernel. */
int host_boot_id(char to[RECORD_UUID_SIZE], struct abx_err *err);
/* A random UUID (version 4). */
void uuid_make(char to[RECORD_UUID_SIZE]);
