/* local_key.c - see local_key.h. */
#include "cli/local_key.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/admin.h"

#define CALL_TIMEOUT_S 2

static int open_kept(const char *data_dir, int *ret, struct abx_err *err)
{
    char path[4096];
    int fd;

    if (!path_join(path, sizeof path, data_dir, "local"))
        return err_set(err, ABX_INVALID_ARGUMENT, "--data-dir is too long");
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "mkdir '%s'", path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    *ret = fd;
    return 0;
}

static void kept_name(uid_t uid, char to[32])
{
    (void)snprintf(to, 32, "%u.key", (unsigned)uid);
}

/* The kept key; empty when there is none. */
static int read_kept(int dirfd, uid_t uid, char ret[LOCAL_KEY_SIZE], struct abx_err *err)
{
    struct buf b = BUF_INIT(LOCAL_KEY_SIZE - 1);
    char name[32];
    struct slice s;
    int r;

    ret[0] = '\0';
    kept_name(uid, name);
    if (faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "'local/%s'", name);
    r = file_read(dirfd, name, &b, err);
    s = buf_slice(&b);
    while (s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    if (r == 0 && s.n > 0)
        (void)snprintf(ret, LOCAL_KEY_SIZE, "%.*s", (int)s.n, (const char *)s.p);
    if (b.mem)
        explicit_bzero(b.mem, b.cap);
    buf_done(&b);
    return r;
}

static int is_good(const char *socket_path, const char *key, bool *ret, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    struct abx_err why = { 0 };
    int r;

    *ret = false;
    if (!key[0])
        return 0;
    r = admin_call(socket_path, json_pack("{s:s,s:s}", "op", "key.check", "key", key),
                   CALL_TIMEOUT_S, &reply, &why);
    if (r == ABX_NOT_FOUND)
        return 0;
    if (r < 0)
        return err_set(err, r, "%s", why.msg);
    *ret = json_is_true(json_object_get(reply, "active"));
    return 0;
}

static int make_key(const char *socket_path, int dirfd, const struct local_user *user,
                    char ret[LOCAL_KEY_SIZE], struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    char name[32], label[65], line[LOCAL_KEY_SIZE + 1];
    const char *key;
    int n, r;

    (void)snprintf(label, sizeof label, "local %.58s", user->name);
    r = admin_call(socket_path, json_pack("{s:s,s:s}", "op", "key.create", "name", label),
                   CALL_TIMEOUT_S, &reply, err);
    if (r < 0)
        return r;
    key = json_string_value(json_object_get(reply, "key"));
    if (!key || strlen(key) >= LOCAL_KEY_SIZE)
        return err_set(err, ABX_INTERNAL, "control gave no key");
    kept_name(user->uid, name);
    n = snprintf(line, sizeof line, "%s\n", key);
    r = file_replace(dirfd, name, line, (size_t)n, 0600, true, err);
    explicit_bzero(line, sizeof line);
    if (r == 0)
        (void)snprintf(ret, LOCAL_KEY_SIZE, "%s", key);
    return r;
}

int local_key_ensure(const char *socket_path, const char *data_dir, const struct local_user *user,
                     char ret_key[LOCAL_KEY_SIZE], struct abx_err *err)
{
    _cleanup_(closep) int dirfd = -EBADF;
    bool is_kept = false;
    int r = open_kept(data_dir, &dirfd, err);

    if (r == 0)
        r = read_kept(dirfd, user->uid, ret_key, err);
    if (r == 0)
        r = is_good(socket_path, ret_key, &is_kept, err);
    if (r == 0 && !is_kept)
        r = make_key(socket_path, dirfd, user, ret_key, err);
    return r;
}

static bool is_away(int code)
{
    return code == ABX_UNAVAILABLE || code == ABX_DEADLINE_EXCEEDED;
}

/* Only control's absence is an error. */
static int publish_user(const struct local_dir *d, const struct local_service_info *info,
                        const char *socket_path, const struct local_user *user, struct abx_err *ret)
{
    char key[LOCAL_KEY_SIZE];
    struct abx_err err = { 0 };
    int r = local_key_ensure(socket_path, info->data_dir, user, key, &err);

    if (r == 0)
        r = local_dir_write(d, info, user->uid, key, &err);
    explicit_bzero(key, sizeof key);
    if (is_away(r))
        return err_set(ret, r, "%s", err.msg);
    if (r < 0)
        log_warn("a local user does not find this service", "user", user->name, "error", err.msg,
                 NULL);
    return 0;
}

static bool is_listed(const struct local_user *users, size_t n, uid_t uid)
{
    for (size_t i = 0; i < n; i++)
        if (users[i].uid == uid)
            return true;
    return false;
}

/* Keys that `abx key local` made: their users find the service again, unless they were revoked. */
static int publish_kept(const struct local_dir *d, const struct local_service_info *info,
                        const char *socket_path, const struct local_user *users, size_t n_users,
                        struct abx_err *err)
{
    _cleanup_(closedirp) DIR *dir = NULL;
    const struct dirent *e;
    int fd = -EBADF, r = open_kept(info->data_dir, &fd, err);

    if (r < 0)
        return r;
    dir = fdopendir(fd);
    if (!dir) {
        fd_close(fd);
        return err_sys(err, errno, "read '%s/local'", info->data_dir);
    }
    while (r == 0 && (e = readdir(dir)) != NULL) {
        const char *dot = strchr(e->d_name, '.');
        char key[LOCAL_KEY_SIZE];
        bool is_kept = false;
        uint64_t uid;

        if (!dot || strcmp(dot, ".key") != 0 ||
            !str_parse_u64(slice_of(e->d_name, (size_t)(dot - e->d_name)), UINT32_MAX - 1, &uid) ||
            is_listed(users, n_users, (uid_t)uid))
            continue;
        r = read_kept(dirfd(dir), (uid_t)uid, key, err);
        if (r == 0)
            r = is_good(socket_path, key, &is_kept, err);
        if (r == 0 && is_kept)
            r = local_dir_write(d, info, (uid_t)uid, key, err);
        else if (r == 0)
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        explicit_bzero(key, sizeof key);
    }
    return r;
}

int local_publish(const struct local_service_info *info, const char *socket_path,
                  const struct local_user *users, size_t n_users, struct local_dir *ret,
                  struct abx_err *err)
{
    struct abx_err why = { 0 };
    int r = local_dir_take(info, ret, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n_users && r == 0; i++)
        r = publish_user(ret, info, socket_path, &users[i], err);
    if (r == 0) {
        r = publish_kept(ret, info, socket_path, users, n_users, &why);
        if (is_away(r))
            r = err_set(err, r, "%s", why.msg);
        else if (r < 0)
            log_warn("some local users do not find this service", "error", why.msg, NULL);
    }
    if (!is_away(r))
        return 0;
    local_dir_give_up(ret);
    return r;
}
