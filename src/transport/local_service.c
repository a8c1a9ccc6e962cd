/* local_service.c - see local_service.h. */
#include "transport/local_service.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"
#include "transport/dotenv.h"

#define FILE_MAX 16384u

/* Fills ret->refusal; returns 0. */
static int refuse(struct local_service *ret, const char *why, struct abx_err *err)
{
    if (asprintf(&ret->refusal, "%s is not used: %s", ret->path, why) < 0) {
        ret->refusal = NULL;
        return err_oom(err);
    }
    return 0;
}

/* NULL when the folder is root's alone. */
static const char *judge_folder(const struct stat *st)
{
    if (st->st_uid != 0)
        return "its folder does not belong to root";
    if (st->st_mode & 022)
        return "others than root may write to its folder";
    return NULL;
}

static const char *judge_file(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return "it is no regular file";
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return "it belongs to somebody else";
    if (st->st_mode & 077)
        return "group or others have access to it";
    return NULL;
}

/* Of a service that was killed: by now somebody else may listen at its address. */
static bool is_left_behind(const struct dotenv *d)
{
    const struct dotenv_line *line = dotenv_find(d, "ABX_SERVICE_PROCESS");

    return line && line->value && process_mark_is_gone(line->value);
}

static int take_value(const struct dotenv *d, const char *name, char **ret, const char *path,
                      struct abx_err *err)
{
    const struct dotenv_line *line = dotenv_find(d, name);

    if (!line || !line->value || !line->value[0])
        return err_set(err, ABX_INVALID_ARGUMENT, "local service %s: %s is missing", path, name);
    *ret = strdup(line->value);
    return *ret ? 0 : err_oom(err);
}

static int read_values(struct local_service *ret, int fd, struct abx_err *err)
{
    char text[FILE_MAX];
    ssize_t n = fd_read_all(fd, text, sizeof text);
    struct dotenv d = { 0 };
    int r;

    if (n < 0)
        return err_sys(err, errno, "local service %s: read", ret->path);
    r = dotenv_parse(slice_of(text, (size_t)n), false, &d, err);
    explicit_bzero(text, sizeof text);
    if (r < 0)
        r = err_wrap(err, r, "local service %s", ret->path);
    if (r == 0 && is_left_behind(&d)) {
        dotenv_done(&d);
        return refuse(
            ret, "the service that wrote it does not run any more ('abx serve' starts it)", err);
    }
    if (r == 0)
        r = take_value(&d, "ABX_SANDBOX_API_KEY", &ret->api_key, ret->path, err);
    if (r == 0)
        r = take_value(&d, "ABX_SANDBOX_BASE_URL", &ret->base_url, ret->path, err);
    if (r == 0)
        r = take_value(&d, "ABX_SANDBOX_DOMAIN", &ret->domain, ret->path, err);
    dotenv_done(&d);
    return r;
}

int local_service_find(struct local_service *ret, struct abx_err *err)
{
    const char *dir = getenv("ABX_LOCAL_DIR");
    _cleanup_(closep) int dirfd = -EBADF, fd = -EBADF;
    struct stat folder, file;
    char name[32];
    const char *why;

    *ret = (struct local_service){ 0 };
    if (!dir || !dir[0])
        dir = LOCAL_SERVICE_DIR;
    (void)snprintf(name, sizeof name, "%u.env", (unsigned)geteuid());
    if (asprintf(&ret->path, "%s/%s", dir, name) < 0) {
        ret->path = NULL;
        return err_oom(err);
    }
    dirfd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dirfd < 0 || fstat(dirfd, &folder) < 0)
        return errno == ENOENT ? 0 : refuse(ret, strerrordesc_np(errno), err);
    fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &file) < 0)
        return errno == ENOENT ? 0 : refuse(ret, strerrordesc_np(errno), err);
    why = judge_folder(&folder);
    if (!why)
        why = judge_file(&file);
    return why ? refuse(ret, why, err) : read_values(ret, fd, err);
}

void local_service_done(struct local_service *s)
{
    if (s->api_key)
        explicit_bzero(s->api_key, strlen(s->api_key));
    free(s->path);
    free(s->api_key);
    free(s->base_url);
    free(s->domain);
    free(s->refusal);
    *s = (struct local_service){ 0 };
}
