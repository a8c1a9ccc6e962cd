/* supervisor_ready.c - see supervisor_ready.h. */
#include "cli/supervisor_ready.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/admin.h"

#define READY_TIMEOUT_S 1

/* A key file of an earlier database (that one is gone: damaged, say) opens nothing any more. */
static int has_any_key(const char *socket_path, bool *ret, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    int r =
        admin_call(socket_path, json_pack("{s:s}", "op", "key.list"), READY_TIMEOUT_S, &reply, err);

    /* Revoked ones are listed too: who took every key away gets no new one. */
    *ret = r == 0 && json_array_size(json_object_get(reply, "keys")) > 0;
    return r;
}

/* The key is made once and told once; the file is written before anything else can fail. */
static int ensure_admin_key(const char *socket_path, const char *data_dir, struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    char path[4096], line[128];
    bool is_known = false;
    const char *key;
    int n, r;

    if (!path_join(path, sizeof path, data_dir, "admin.key"))
        return err_set(err, ABX_INVALID_ARGUMENT, "--data-dir is too long");
    if (access(path, F_OK) == 0) {
        r = has_any_key(socket_path, &is_known, err);
        if (r < 0 || is_known)
            return r;
    }
    r = admin_call(socket_path,
                   json_pack("{s:s,s:s,s:[s,s]}", "op", "key.create", "name", "admin", "scopes",
                             "*", "metrics:read"),
                   READY_TIMEOUT_S, &reply, err);
    if (r < 0)
        return r;
    key = json_string_value(json_object_get(reply, "key"));
    if (!key)
        return err_set(err, ABX_INTERNAL, "control gave no key");
    n = snprintf(line, sizeof line, "%s\n", key);
    return file_replace(AT_FDCWD, path, line, (size_t)n, 0600, true, err);
}

static int health(const struct listen_address *a, struct abx_err *err)
{
    static const char request[] =
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(a->port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(a->port) };
    bool is_v4 = inet_pton(AF_INET, a->host, &v4.sin_addr) == 1;
    _cleanup_(closep) int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval one = { .tv_sec = 1 };
    char answer[32] = "";

    if (!is_v4)
        (void)inet_pton(AF_INET6, a->host, &v6.sin6_addr);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &one, sizeof one) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &one, sizeof one) < 0)
        return err_sys(err, errno, "socket");
    if (connect(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                is_v4 ? sizeof v4 : sizeof v6) < 0 ||
        fd_write_all(fd, request, sizeof request - 1) < 0 || fd_read_all(fd, answer, 12) < 0)
        return err_sys(err, errno, "gateway's /health");
    if (strncmp(answer, "HTTP/1.1 200", 12) != 0)
        return err_set(err, ABX_UNAVAILABLE, "gateway's /health answers '%s'", answer);
    return 0;
}

int ready_check(const struct listen_address *listen, const char *run_dir, const char *data_dir,
                struct abx_err *err)
{
    _cleanup_(json_decrefp) json_t *info = NULL;
    char path[128];
    int r;

    (void)snprintf(path, sizeof path, "%s/admin.sock", run_dir);
    r = admin_call(path, json_pack("{s:s}", "op", "info"), READY_TIMEOUT_S, &info, err);
    if (r < 0)
        return err_wrap(err, r, "control");
    if (!json_is_true(json_object_get(info, "engine_up")))
        return err_set(err, ABX_UNAVAILABLE, "control has no engine yet");
    r = ensure_admin_key(path, data_dir, err);
    return r < 0 ? r : health(listen, err);
}

void notify_systemd(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    _cleanup_(closep) int fd = -EBADF;
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    size_t n = path ? strlen(path) : 0;

    if (n == 0 || n >= sizeof un.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(un.sun_path, path, n);
    if (path[0] == '@')
        un.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&un,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

int64_t notify_watchdog_ns(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *owner = getenv("WATCHDOG_PID");
    uint64_t us, pid;

    if (!text || !str_parse_u64(slice_str(text), INT64_MAX / 1000, &us))
        return 0;
    if (owner && (!str_parse_u64(slice_str(owner), INT32_MAX, &pid) || (pid_t)pid != getpid()))
        return 0;
    return (int64_t)us * 1000;
}
