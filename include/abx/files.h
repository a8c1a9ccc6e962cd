/* files.h - files of a sandbox: HTTP /files and filesystem.Filesystem of envd (e2b.md 4.2, 4.3).
 *
 * Paths are the sandbox's: absolute, "~", or relative to the user's home. `user` NULL = the
 * template's default user. Errors of all: NOT_FOUND with ABX_REASON_FILE_NOT_FOUND, INVALID_ARGUMENT (a folder
 * where a file is asked for, and the other way round), RESOURCE_EXHAUSTED with ABX_REASON_DISK_FULL,
 * UNAVAILABLE with ABX_REASON_SANDBOX_GONE.
 */
#ifndef ABX_FILES_H
#define ABX_FILES_H

#include "abx/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

enum abx_file_type {
    ABX_FILE_UNKNOWN = 0,
    ABX_FILE_FILE = 1,
    ABX_FILE_DIR = 2,
    ABX_FILE_SYMLINK = 3
};

struct abx_entry {
    const char *name;
    enum abx_file_type type;
    const char *path;
    int64_t size;            /* bytes; 0 in answers to writes */
    uint32_t mode;           /* permission bits */
    const char *permissions; /* "-rw-r--r--"; NULL in answers to writes, like the next three */
    const char *owner;
    const char *group;
    int64_t modified_us;        /* since the epoch, 0 = not told */
    const char *symlink_target; /* NULL = no link */
    const struct abx_pair *metadata;
    size_t metadata_count;
};
/* Borrowed until the call is freed. */
ABX_EXPORT const struct abx_entry *abx_call_entries(const abx_call *call, size_t *ret_count);

/* Gives memory for a whole result of `length` bytes (> 0, not over max_bytes), asked for at most once, when the answer tells
 * its length. It stays the caller's and has to be there until the call is done or freed. NULL = the call keeps the bytes
 * itself, as it does when no length is told; abx_call_bytes gives the same either way. Runs inside
 * abx_client_process; may cancel or free its call, which then ends behind it. */
typedef void *(*abx_room_fn)(void *user, size_t length);

struct abx_read_opts {
    size_t size;
    const char *user;
    int gzip;                   /* 1: ask for compression on the way (the bytes come out plain) */
    int stream;                 /* 1: DATA events instead of a result */
    uint64_t max_bytes;         /* 0 = 2 GiB for a result, no limit for a stream */
    int64_t request_timeout_ms; /* whole read; of a stream: until the first byte */
    int64_t
        idle_timeout_ms; /* of a stream, between bytes: ABX_UNSET = as request_timeout_ms, 0 = none */
    abx_room_fn
        room; /* where a result goes, so that it need not be copied out; NULL = the call keeps it */
    void *room_user;
};
#define ABX_READ_OPTS_INIT                                                                         \
    { sizeof(struct abx_read_opts), NULL, 0, 0, 0, ABX_UNSET, ABX_UNSET, NULL, NULL }
/* GET /files. Result: BYTES, or DATA events. */
ABX_EXPORT abx_call *abx_files_read(abx_client *client, const abx_sandbox *sandbox,
                                    const char *path, const struct abx_read_opts *opts);

/* Gives the next bytes of an upload: up to `size` into `buffer`; returns how many, 0 = end, ABX_UNAVAILABLE = none yet
 * (abx_call_resume when there are), another code = give up with it. Runs inside abx_client_process; may cancel or free its
 * call, which then ends behind it. */
typedef int64_t (*abx_source_fn)(void *user, void *buffer, size_t size);

struct abx_write_item {
    const char *path;
    const void *data; /* borrowed until the call is done or freed: not copied */
    size_t size;
    abx_source_fn source; /* instead of data */
    void *source_user;
    int64_t source_size; /* bytes that the source will give, ABX_UNSET = unknown (chunked) */
};
struct abx_write_opts {
    size_t size;
    const char *user;
    int gzip;                        /* 1: compress on the way */
    int octet_stream;                /* 1: never multipart */
    const struct abx_pair *metadata; /* of every file; keys HTTP tokens, values printable ASCII */
    size_t metadata_count;
    int64_t request_timeout_ms; /* until the answer; of a source: between its bytes */
};
#define ABX_WRITE_OPTS_INIT { sizeof(struct abx_write_opts), NULL, 0, 0, NULL, 0, ABX_UNSET }
/* POST /files: one or many files, parents are made. Result: ENTRIES in the order of `items`. A source
 * is read once and never sent again. */
ABX_EXPORT abx_call *abx_files_write(abx_client *client, const abx_sandbox *sandbox,
                                     const struct abx_write_item *items, size_t count,
                                     const struct abx_write_opts *opts);
/* The source has bytes (or its end) again. */
ABX_EXPORT void abx_call_resume(abx_call *call);

/* Common options of the calls below. */
struct abx_files_opts {
    size_t size;
    const char *user;
    int64_t request_timeout_ms;
};
#define ABX_FILES_OPTS_INIT { sizeof(struct abx_files_opts), NULL, ABX_UNSET }

/* ListDir; `depth` >= 1. Result: ENTRIES. */
ABX_EXPORT abx_call *abx_files_list(abx_client *client, const abx_sandbox *sandbox,
                                    const char *path, uint32_t depth,
                                    const struct abx_files_opts *opts);
/* Stat. Result: ENTRIES with one. */
ABX_EXPORT abx_call *abx_files_stat(abx_client *client, const abx_sandbox *sandbox,
                                    const char *path, const struct abx_files_opts *opts);
/* Stat. Result: BOOL. */
ABX_EXPORT abx_call *abx_files_exists(abx_client *client, const abx_sandbox *sandbox,
                                      const char *path, const struct abx_files_opts *opts);
/* MakeDir with parents. Result: BOOL, 0 = was there. */
ABX_EXPORT abx_call *abx_files_make_dir(abx_client *client, const abx_sandbox *sandbox,
                                        const char *path, const struct abx_files_opts *opts);
/* Move. Result: ENTRIES with one. */
ABX_EXPORT abx_call *abx_files_rename(abx_client *client, const abx_sandbox *sandbox,
                                      const char *from, const char *to,
                                      const struct abx_files_opts *opts);
/* Remove, folders with what is in them. Result: NONE. */
ABX_EXPORT abx_call *abx_files_remove(abx_client *client, const abx_sandbox *sandbox,
                                      const char *path, const struct abx_files_opts *opts);

/* ---- watching ---- */

enum abx_fs_event_type {
    ABX_FS_CREATE = 1,
    ABX_FS_WRITE = 2,
    ABX_FS_REMOVE = 3,
    ABX_FS_RENAME = 4,
    ABX_FS_CHMOD = 5
};
struct abx_fs_event {
    const char *name; /* relative to the watched folder */
    enum abx_fs_event_type type;
    const struct abx_entry *entry; /* with include_entry, else NULL */
};
struct abx_watch_opts {
    size_t size;
    const char *user;
    int recursive;
    int include_entry;
    int allow_network_mounts;
    int64_t timeout_ms;         /* the whole watch, 0 = no end (streams only) */
    int64_t request_timeout_ms; /* until it is set up */
};
#define ABX_WATCH_OPTS_INIT { sizeof(struct abx_watch_opts), NULL, 0, 0, 0, 0, ABX_UNSET }
/* WatchDir: START, then FILE events until cancelled. Gates: recursive 0.1.4, include_entry 0.6.3,
 * allow_network_mounts 0.6.4 (ABX_REASON_TEMPLATE_TOO_OLD). */
ABX_EXPORT abx_call *abx_files_watch(abx_client *client, const abx_sandbox *sandbox,
                                     const char *path, const struct abx_watch_opts *opts);
/* CreateWatcher. Result: BYTES, the watcher's id. */
ABX_EXPORT abx_call *abx_watcher_create(abx_client *client, const abx_sandbox *sandbox,
                                        const char *path, const struct abx_watch_opts *opts);
/* GetWatcherEvents: what happened since the last time. Result: FS_EVENTS. */
ABX_EXPORT abx_call *abx_watcher_get_events(abx_client *client, const abx_sandbox *sandbox,
                                            const char *watcher_id,
                                            const struct abx_files_opts *opts);
ABX_EXPORT const struct abx_fs_event *abx_call_fs_events(const abx_call *call, size_t *ret_count);
/* RemoveWatcher. Result: NONE. */
ABX_EXPORT abx_call *abx_watcher_remove(abx_client *client, const abx_sandbox *sandbox,
                                        const char *watcher_id, const struct abx_files_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
