/* record.c - see record.h. */
#include "engine/record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define HEAD "abx-record 1\n"
#define NAME_DIGITS 12

static const char *const phases[] = {
    [RECORD_PREPARED] = "prepared",
    [RECORD_STARTING] = "starting",
    [RECORD_RUNNING] = "running",
};

/* --- names and numbers of the host -------------------------------------------------------------- */

void record_name_make(char to[RECORD_NAME_SIZE])
{
    uint8_t random[NAME_DIGITS / 2];

    random_bytes(random, sizeof random);
    to[0] = 's';
    hex_encode(random, sizeof random, to + 1);
}

bool record_name_is_valid(const char *name)
{
    return strlen(name) == NAME_DIGITS + 1 && name[0] == 's' &&
           strspn(name + 1, "0123456789abcdef") == NAME_DIGITS;
}

void uuid_make(char to[RECORD_UUID_SIZE])
{
    uint8_t r[16];
    char hex[33];

    random_bytes(r, sizeof r);
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    hex_encode(r, sizeof r, hex);
    (void)snprintf(to, RECORD_UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
                   hex + 16, hex + 20);
}

int host_boot_id(char to[RECORD_UUID_SIZE], struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(64);
    int r = file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &b, err);

    if (r < 0)
        return r;
    if (b.len != RECORD_UUID_SIZE)
        return err_set(err, ABX_INTERNAL, "boot_id has %zu bytes", b.len);
    memcpy(to, buf_data(&b), RECORD_UUID_SIZE - 1);
    to[RECORD_UUID_SIZE - 1] = '\0';
    return 0;
}

/* --- text form ---------------------------------------------------------------------------------- */

enum buf_status record_encode(const struct record *r, struct buf *b)
{
    return buf_printf(b,
                      HEAD "name=%s\nphase=%s\nsandbox_id=%s\ntemplate=%s\nexecution_id=%s\n"
                           "boot_id=%s\npid=%d\nstart_ticks=%" PRIu64 "\nnetns_ino=%" PRIu64
                           "\nuid_base=%u\ncpu_count=%u\nmemory_mb=%u\ndisk_mb=%u\n"
                           "started_ms=%" PRId64 "\nis_frozen=%d\n",
                      r->name, phases[r->phase], r->sandbox_id, r->template, r->execution_id,
                      r->boot_id, (int)r->pid, r->start_ticks, r->netns_ino, (unsigned)r->uid_base,
                      r->limits.cpu_count, r->limits.memory_mb, r->limits.disk_mb, r->started_ms,
                      r->is_frozen ? 1 : 0);
}

enum kind { KIND_TEXT, KIND_U32, KIND_U64, KIND_PHASE, KIND_BOOL };

static const struct field {
    const char *key;
    enum kind kind;
    size_t offset, size;
} fields[] = {
#define TEXT(f) { #f, KIND_TEXT, offsetof(struct record, f), sizeof(((struct record *)0)->f) }
    TEXT(name),
    { "phase", KIND_PHASE, 0, 0 },
    TEXT(sandbox_id),
    TEXT(template),
    TEXT(execution_id),
    TEXT(boot_id),
    { "pid", KIND_U32, offsetof(struct record, pid), 0 },
    { "start_ticks", KIND_U64, offsetof(struct record, start_ticks), 0 },
    { "netns_ino", KIND_U64, offsetof(struct record, netns_ino), 0 },
    { "uid_base", KIND_U32, offsetof(struct record, uid_base), 0 },
    { "cpu_count", KIND_U32, offsetof(struct record, limits.cpu_count), 0 },
    { "memory_mb", KIND_U32, offsetof(struct record, limits.memory_mb), 0 },
    { "disk_mb", KIND_U32, offsetof(struct record, limits.disk_mb), 0 },
    { "started_ms", KIND_U64, offsetof(struct record, started_ms), 0 },
    { "is_frozen", KIND_BOOL, offsetof(struct record, is_frozen), 0 },
#undef TEXT
};

static bool decode_phase(struct slice v, enum record_phase *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(phases); i++)
        if (slice_eq_str(v, phases[i])) {
            *ret = (enum record_phase)i;
            return true;
        }
    return false;
}

static bool decode_field(const struct field *f, struct slice v, struct record *r)
{
    char *at = (char *)r + f->offset;
    uint64_t n;

    switch (f->kind) {
    case KIND_TEXT:
        if (v.n >= f->size || (v.n > 0 && memchr(v.p, '\0', v.n)))
            return false;
        if (v.n > 0)
            memcpy(at, v.p, v.n);
        at[v.n] = '\0';
        return true;
    case KIND_U32:
    case KIND_BOOL:
        if (!str_parse_u64(v, f->kind == KIND_BOOL ? 1 : UINT32_MAX, &n))
            return false;
        if (f->kind == KIND_BOOL)
            *(bool *)at = n == 1;
        else
            memcpy(at, &(uint32_t){ (uint32_t)n }, sizeof(uint32_t));
        return true;
    case KIND_U64:
        if (!str_parse_u64(v, INT64_MAX, &n))
            return false;
        memcpy(at, &n, sizeof n);
        return true;
    case KIND_PHASE:
        return decode_phase(v, &r->phase);
    }
    return false;
}

bool record_decode(struct slice text, struct record *ret)
{
    struct record r = { 0 };
    const uint8_t *p = text.p, *end = text.p + text.n;
    size_t i = 0;

    if (!slice_starts_with(text, HEAD))
        return false;
    p += strlen(HEAD);
    for (; p < end && i < ARRAY_SIZE(fields); i++) {
        const uint8_t *nl = memchr(p, '\n', (size_t)(end - p));
        size_t k = strlen(fields[i].key);

        if (!nl || (size_t)(nl - p) <= k || memcmp(p, fields[i].key, k) != 0 || p[k] != '=')
            return false;
        if (!decode_field(&fields[i], slice_of(p + k + 1, (size_t)(nl - p) - k - 1), &r))
            return false;
        p = nl + 1;
    }
    if (p != end || i != ARRAY_SIZE(fields) || !record_name_is_valid(r.name))
        return false;
    *ret = r;
    return true;
}

/* --- files -------------------------------------------------------------------------------------- */

int record_write(int dirfd, const struct record *r, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_BYTES_MAX);

    if (record_encode(r, &b) != BUF_OK)
        return err_oom(err);
    return file_replace(dirfd, r->name, buf_data(&b), b.len, 0600, false, err);
}

int record_read(int dirfd, const char *name, struct record *ret, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_BYTES_MAX);
    int r = file_read(dirfd, name, &b, err);

    if (r < 0)
        return r;
    if (!record_decode(buf_slice(&b), ret) || strcmp(ret->name, name) != 0)
        return err_set(err, ABX_DATA_LOSS, "record '%s' cannot be read", name);
    return 0;
}

int record_remove(int dirfd, const char *name, struct abx_err *err)
{
    if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove record '%s'", name);
    return 0;
}

int record_each(int dirfd, int (*fn)(void *user, const char *name), void *user, struct abx_err *err)
{
    return path_each(dirfd, "the folder of records", fn, user, err);
}

struct sweep {
    int dirfd;
    const char *name;
    struct abx_err *err;
};

static int sweep_one(void *user, const char *file)
{
    struct sweep *s = user;
    size_t n = strlen(s->name);

    if (strncmp(file, s->name, n) != 0 || file[n] != '.')
        return 0;
    return record_remove(s->dirfd, file, s->err);
}

int record_sweep(int dirfd, const char *name, struct abx_err *err)
{
    struct sweep s = { dirfd, name, err };

    return record_each(dirfd, sweep_one, &s, err);
}
