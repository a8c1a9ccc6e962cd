/* counters.c - see counters.h. */
#include "net/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS] = {
    500,    1000,   2500,    5000,    10000,   25000,    50000,    100000,
    250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000,
};

void histogram_add(struct histogram *h, int64_t ns)
{
    uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
    size_t i = 0;

    while (i < HISTOGRAM_BOUNDS && us > histogram_bounds_us[i])
        i++;
    count_add(&h->buckets[i], 1);
    count_add(&h->sum_us, us);
}

enum count_class count_class_of(int status)
{
    return status >= 100 && status < 600
               ? (enum count_class)(COUNT_CLASS_1XX + (unsigned)status / 100 - 1)
               : COUNT_CLASS_ABORTED;
}

int counters_new(size_t n, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = memfd_create("abx-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_sys(err, errno, "memfd_create");
    if (ftruncate(fd, (off_t)(n * COUNTERS_BLOCK)) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(err, errno, "memory for the counters");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int counters_map(int fd, size_t first, size_t n, bool is_writer, void **ret, struct abx_err *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = first * COUNTERS_BLOCK;
    size_t before = at % page; /* where pages are larger than blocks */
    void *map = mmap(NULL, before + n * COUNTERS_BLOCK, PROT_READ | (is_writer ? PROT_WRITE : 0),
                     MAP_SHARED, fd, (off_t)(at - before));

    if (map == MAP_FAILED)
        return err_sys(err, errno, "map the counters");
    *ret = (uint8_t *)map + before;
    return 0;
}

/* All kinds of block begin alike. */
struct block {
    uint64_t layout, starts;
};

static void *take(void *block, void *own)
{
    struct block *b = block;

    if (!b || (count_get(&b->layout) != 0 && count_get(&b->layout) != COUNTERS_LAYOUT))
        b = own;
    count_set(&b->layout, COUNTERS_LAYOUT);
    count_add(&b->starts, 1);
    return b;
}

struct gateway_counters *gateway_counters_take(void *block, struct gateway_counters *own)
{
    struct gateway_counters *c = take(block, own);

    count_set(&c->connections, 0); /* those of a predecessor are gone */
    return c;
}

struct control_counters *control_counters_take(void *block, struct control_counters *own)
{
    return take(block, own);
}

struct egress_counters *egress_counters_take(void *block, struct egress_counters *own)
{
    struct egress_counters *c = take(block, own);

    count_set(&c->connections, 0);
    count_set(&c->sandboxes, 0);
    return c;
}
