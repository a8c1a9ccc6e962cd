/* users.c - see users.h. Lines are `name:password:uid:gid:gecos:home:shell` and
 * `name:password:gid:member,member` (passwd(5), group(5)). */
#include "guest/daemon/users.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define PASSWD_FIELDS 7
#define GROUP_FIELDS 4

static const char *users_dir = "/etc";

void users_set_dir(const char *dir)
{
    users_dir = dir;
}

/* Missing, special or oversized files count as empty. */
static void load(const char *name, struct buf *to)
{
    _cleanup_(closep) int dir = open(users_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(closep) int fd = -EBADF;
    struct stat st;
    uint8_t *at;
    ssize_t n;

    if (dir < 0)
        return;
    /* Not blocking: it may be a FIFO now. */
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
        st.st_size > (off_t)USERS_FILE_MAX)
        return;
    at = buf_reserve(to, (size_t)st.st_size, NULL);
    n = at ? fd_read_all(fd, at, (size_t)st.st_size) : 0;
    if (n > 0)
        buf_commit(to, (size_t)n);
}

static bool next_line(struct slice *rest, struct slice *ret)
{
    const uint8_t *nl;

    if (rest->n == 0)
        return false;
    nl = memchr(rest->p, '\n', rest->n);
    *ret = slice_of(rest->p, nl ? (size_t)(nl - rest->p) : rest->n);
    *rest = slice_of(rest->p + ret->n + (nl != NULL), rest->n - ret->n - (nl != NULL));
    return true;
}

/* Next part up to `sep`; false at the end. */
static bool next_part(struct slice *rest, char sep, struct slice *ret)
{
    const uint8_t *at;

    if (!rest->p)
        return false;
    at = memchr(rest->p, sep, rest->n);
    *ret = slice_of(rest->p, at ? (size_t)(at - rest->p) : rest->n);
    *rest = at ? slice_of(at + 1, rest->n - ret->n - 1) : slice_of(NULL, 0);
    return true;
}

static bool split(struct slice line, struct slice *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!next_part(&line, ':', &fields[i]))
            return false;
    }
    return fields[0].n > 0;
}

static bool parse_id(struct slice s, uint32_t *ret)
{
    uint64_t v;

    if (!str_parse_u64(s, UINT32_MAX - 1, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

static bool copy_text(char *to, size_t size, struct slice s)
{
    if (s.n >= size || (s.n > 0 && memchr(s.p, '\0', s.n)))
        return false;
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    return true;
}

static bool passwd_find(struct slice file, const char *name, struct user *u)
{
    struct slice line, f[PASSWD_FIELDS];

    while (next_line(&file, &line)) {
        if (!split(line, f, PASSWD_FIELDS) || !slice_eq_str(f[0], name) ||
            !parse_id(f[2], &u->uid) || !parse_id(f[3], &u->gid) ||
            !copy_text(u->name, sizeof(u->name), f[0]) ||
            !copy_text(u->home, sizeof(u->home), f[5]))
            continue;
        if (u->home[0] != '/')
            memcpy(u->home, "/", 2);
        return true;
    }
    return false;
}

static int groups_find(struct slice file, struct user *u, struct abx_err *err)
{
    struct slice line, f[GROUP_FIELDS], member;
    uint32_t gid;

    u->groups[0] = u->gid;
    u->n_groups = 1;
    while (next_line(&file, &line)) {
        if (!split(line, f, GROUP_FIELDS) || !parse_id(f[2], &gid) || gid == u->gid)
            continue;
        while (next_part(&f[3], ',', &member)) {
            if (!slice_eq_str(member, u->name))
                continue;
            if (u->n_groups == USER_GROUPS_MAX)
                return err_set(err, ABX_RESOURCE_EXHAUSTED, "user '%s' is in over %d groups",
                               u->name, USER_GROUPS_MAX);
            u->groups[u->n_groups++] = gid;
            break;
        }
    }
    return 0;
}

int user_find(const char *name, struct user *ret, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf passwd = BUF_INIT(USERS_FILE_MAX);
    _cleanup_(buf_done) struct buf group = BUF_INIT(USERS_FILE_MAX);
    struct user u = { 0 };
    int r;

    load("passwd", &passwd);
    if (!passwd_find(buf_slice(&passwd), name, &u)) {
        if (strcmp(name, "root") != 0)
            return err_set(err, ABX_NOT_FOUND, "user '%s' does not exist", name);
        memcpy(u.name, "root", 5); /* works in a sandbox without /etc/passwd too */
        memcpy(u.home, "/root", 6);
    }
    load("group", &group);
    r = groups_find(buf_slice(&group), &u, err);
    if (r < 0)
        return r;
    *ret = u;
    return 0;
}

int user_default(const char *preferred, struct user *ret, struct abx_err *err)
{
    if (preferred && preferred[0])
        return user_find(preferred, ret, err);
    if (user_find("user", ret, NULL) == 0)
        return 0;
    return user_find("root", ret, err);
}

void user_names_init(struct user_names *n)
{
    buf_init(&n->passwd, USERS_FILE_MAX);
    buf_init(&n->group, USERS_FILE_MAX);
    load("passwd", &n->passwd);
    load("group", &n->group);
}

void user_names_done(struct user_names *n)
{
    buf_done(&n->passwd);
    buf_done(&n->group);
}

static void name_of(struct slice file, uint32_t id, char *to, size_t size)
{
    struct slice line, f[3];
    uint32_t got;

    while (next_line(&file, &line)) {
        if (split(line, f, 3) && parse_id(f[2], &got) && got == id && copy_text(to, size, f[0]))
            return;
    }
    (void)snprintf(to, size, "%u", id);
}

void user_names_owner(const struct user_names *n, uid_t uid, char *to, size_t size)
{
    name_of(buf_slice(&n->passwd), uid, to, size);
}

void user_names_group(const struct user_names *n, gid_t gid, char *to, size_t size)
{
    name_of(buf_slice(&n->group), gid, to, size);
}
