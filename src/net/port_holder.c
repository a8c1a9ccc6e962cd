/* port_holder.c - see port_holder.h. */
#include "net/port_holder.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/str.h"

/* The next word of *line, separated by spaces; moves *line behind it. */
static struct slice next_word(struct slice *line)
{
    struct slice word;

    while (line->n > 0 && *line->p == ' ')
        *line = slice_of(line->p + 1, line->n - 1);
    word = slice_of(line->p, 0);
    while (line->n > 0 && *line->p != ' ') {
        word.n++;
        *line = slice_of(line->p + 1, line->n - 1);
    }
    return word;
}

/* An address as the kernel's tables have it. */
struct wanted {
    char host[33]; /* words of 32 bits, each as this machine's number: "0100007F" is 127.0.0.1 */
    char port[6];  /* ":1F90" */
};

static bool wanted_make(struct wanted *w, const char *host, uint16_t port)
{
    uint32_t words[4];
    bool is_v4 = inet_pton(AF_INET, host, words) == 1;

    if (!is_v4 && inet_pton(AF_INET6, host, words) != 1)
        return false;
    for (size_t i = 0; i < (is_v4 ? 1 : ARRAY_SIZE(words)); i++)
        (void)snprintf(w->host + 8 * i, 9, "%08X", words[i]);
    (void)snprintf(w->port, sizeof w->port, ":%04X", port);
    return true;
}

static bool is_any(struct slice host)
{
    for (size_t i = 0; i < host.n; i++)
        if (host.p[i] != '0')
            return false;
    return true;
}

static bool ends_with(struct slice s, const char *end)
{
    size_t n = strlen(end);

    return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* Does a listener at `local` have what is wanted? One of IPv6 may have an address of IPv4, which it ends with. */
static bool takes(struct slice local, const struct wanted *w)
{
    struct slice host = local;

    if (!ends_with(local, w->port))
        return false;
    host.n -= strlen(w->port);
    return is_any(host) || is_any(slice_str(w->host)) || ends_with(host, w->host);
}

/* Inode of a listening socket in one of the kernel's tables; 0 if there is none. The kernel
 * lists all listeners before the other sockets, of which there may be a hundred thousand. */
static uint64_t listener_inode(const char *table, const struct wanted *want)
{
    _cleanup_(fclosep) FILE *f = fopen(table, "re");
    _cleanup_(freep) char *line = NULL;
    size_t size = 0;
    uint64_t inode = 0;

    if (!f || getline(&line, &size, f) < 0) /* the names of the columns */
        return 0;
    while (getline(&line, &size, f) > 0) {
        /* slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode */
        struct slice rest = slice_str(line), words[10];

        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            words[i] = next_word(&rest);
        if (!slice_eq_str(words[3], "0A"))
            break;
        if (takes(words[1], want) && str_parse_u64(words[9], UINT64_MAX, &inode))
            break;
    }
    return inode;
}

static bool process_holds(const char *pid, const char *link)
{
    _cleanup_(closedirp) DIR *d = NULL;
    char path[64], target[64];
    struct dirent *e;

    (void)snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);

        if (n > 0 && (size_t)n == strlen(link) && memcmp(target, link, (size_t)n) == 0)
            return true;
    }
    return false;
}

pid_t port_holder_find(const char *host, uint16_t port, char *to, size_t size)
{
    _cleanup_(closedirp) DIR *d = opendir("/proc");
    struct wanted want;
    uint64_t inode = 0;
    struct dirent *e;
    char link[64];

    (void)snprintf(to, size, "another process");
    if (!wanted_make(&want, host, port))
        return 0;
    inode = listener_inode("/proc/net/tcp", &want);
    if (inode == 0)
        inode = listener_inode("/proc/net/tcp6", &want);
    (void)snprintf(link, sizeof link, "socket:[%llu]", (unsigned long long)inode);
    while (inode != 0 && d && (e = readdir(d)) != NULL) {
        _cleanup_(buf_done) struct buf comm = BUF_INIT(64);
        char path[64];
        uint64_t pid;

        if (!str_parse_u64(slice_str(e->d_name), UINT32_MAX, &pid) ||
            !process_holds(e->d_name, link))
            continue;
        (void)snprintf(path, sizeof path, "/proc/%.20s/comm", e->d_name);
        if (file_read(AT_FDCWD, path, &comm, NULL) == 0 && comm.len > 0)
            (void)snprintf(to, size, "process %.20s (%.*s)", e->d_name, (int)comm.len - 1,
                           (const char *)buf_data(&comm));
        return (pid_t)pid;
    }
    return 0;
}
