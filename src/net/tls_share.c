/* tls_share.c - see tls_share.h. */
#include "net/tls_share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* In front of the mapping; `sizes` and then the texts follow each other in the order of the pairs. */
struct header {
    atomic_uint change; /* odd while a change is under way */
    uint32_t n;
    uint32_t sizes[TLS_PAIRS_MAX][2];
    uint8_t secret[TLS_SECRET_SIZE];
};

struct tls_share {
    struct header *map;
};

#define TEXT_MAX (TLS_SHARE_SIZE - sizeof(struct header))

static int share_map(int fd, int protection, struct tls_share **ret, struct abx_err *err)
{
    struct tls_share *s = calloc(1, sizeof(*s));
    void *map;

    if (!s)
        return err_oom(err);
    map = mmap(NULL, TLS_SHARE_SIZE, protection, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        free(s);
        return err_sys(err, errno, "map the certificates");
    }
    s->map = map;
    *ret = s;
    return 0;
}

int tls_share_new(struct tls_share **ret, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = memfd_create("abx-tls", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    _cleanup_(closep) int reader = -EBADF;
    char path[32];
    int r;

    if (fd < 0)
        return err_sys(err, errno, "memfd_create");
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, TLS_SHARE_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(err, errno, "memory for the certificates");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    reader = open(path, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return err_sys(err, errno, "open '%s'", path);
    r = share_map(fd, PROT_READ | PROT_WRITE, ret, err);
    if (r < 0)
        return r;
    random_bytes((*ret)->map->secret, TLS_SECRET_SIZE);
    *ret_fd = TAKE_FD(reader);
    return 0;
}

int tls_share_write(struct tls_share *s, const struct tls_pair *pairs, size_t n,
                    struct abx_err *err)
{
    uint8_t *to = (uint8_t *)(s->map + 1);
    size_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += pairs[i].certificate.n + pairs[i].key.n;
    if (n > TLS_PAIRS_MAX || total > TEXT_MAX)
        return err_reason(err, ABX_REASON_TOO_LARGE,
                          "certificates and keys are over %u pairs or %zu bytes", TLS_PAIRS_MAX,
                          TEXT_MAX);
    atomic_fetch_add(&s->map->change, 1);
    s->map->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct slice both[] = { pairs[i].certificate, pairs[i].key };

        for (size_t j = 0; j < 2; j++) {
            s->map->sizes[i][j] = (uint32_t)both[j].n;
            memcpy(to, both[j].p, both[j].n);
            to += both[j].n;
        }
    }
    atomic_fetch_add(&s->map->change, 1);
    return 0;
}

int tls_share_open(int fd, struct tls_share **ret, struct abx_err *err)
{
    return share_map(fd, PROT_READ, ret, err);
}

int tls_share_read(const struct tls_share *s, struct buf *text,
                   struct tls_pair pairs[TLS_PAIRS_MAX], size_t *ret_n,
                   uint8_t secret[TLS_SECRET_SIZE], struct abx_err *err)
{
    const struct header *map = s->map;
    unsigned before = atomic_load(&map->change);
    uint32_t n = map->n, sizes[TLS_PAIRS_MAX][2];
    size_t total = 0;
    const uint8_t *at;

    memcpy(sizes, map->sizes, sizeof(sizes));
    for (size_t i = 0; i < MIN(n, TLS_PAIRS_MAX); i++)
        total += (size_t)sizes[i][0] + sizes[i][1];
    buf_reset(text);
    if ((before & 1) == 0 && n <= TLS_PAIRS_MAX && total <= TEXT_MAX &&
        buf_append(text, map + 1, total) != BUF_OK)
        return err_oom(err);
    memcpy(secret, map->secret, TLS_SECRET_SIZE);
    atomic_thread_fence(memory_order_acquire);
    if ((before & 1) || atomic_load(&map->change) != before)
        return err_set(err, ABX_ABORTED, "the certificates are being changed");
    at = buf_data(text);
    for (size_t i = 0; i < n; i++) {
        pairs[i].certificate = slice_of(at, sizes[i][0]);
        pairs[i].key = slice_of(at + sizes[i][0], sizes[i][1]);
        at += sizes[i][0] + sizes[i][1];
    }
    *ret_n = n;
    return 0;
}

void tls_share_free(struct tls_share *s)
{
    if (!s)
        return;
    (void)munmap(s->map, TLS_SHARE_SIZE);
    free(s);
}
