/* metrics.c - see metrics.h.
 *
 * The sandbox's own cgroup is asked first (cgroup v2 mounted at GUEST_CGROUP_DIR); what it does not
 * tell (controllers bound to v1 hierarchies) comes from /proc: only processes of this sandbox are
 * there.
 */
#include "guest/envd/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "e2b/guest_abi.h"
#include "guest/daemon/work.h"

#define FILE_TEXT_MAX 16384
#define MIB (1u << 20)

struct metrics {
    uint64_t cpu_us; /* at the last call */
    int64_t at_ns;
};

struct sample {
    struct work work;
    struct envd *envd;
    struct http_exchange *ex; /* NULL when the client is gone */
    unsigned cpus;
    uint64_t cpu_us;
    int64_t at_ns;
    uint64_t mem_total, mem_used, mem_cache;
    uint64_t disk_total, disk_used;
};

/* The number behind `key` in a file of "key value" or "key: value kB" lines; `key` "" for a file
 * that is one number. */
static bool number_in(const char *path, const char *key, uint64_t *ret)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(FILE_TEXT_MAX);
    const char *text, *at;
    size_t key_n = strlen(key);

    if (file_read(AT_FDCWD, path, &b, NULL) < 0 || !(text = buf_cstr(&b)))
        return false;
    for (at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, key_n) != 0 || (key_n > 0 && at[key_n] != ' ' && at[key_n] != ':'))
            continue;
        at += key_n;
        at += strspn(at, ": \t");
        return str_parse_u64(slice_of(at, strspn(at, "0123456789")), UINT64_MAX, ret);
    }
    return false;
}

/* Resident memory and cpu time of every process here. */
static void sum_processes(uint64_t *ret_rss, uint64_t *ret_cpu_us)
{
    long ticks = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    DIR *dir = opendir("/proc");
    struct dirent *e;

    *ret_rss = *ret_cpu_us = 0;
    while (dir && (e = readdir(dir))) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1024);
        uint64_t v[25] = { 0 };
        char path[300];
        const char *at;
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
        if (file_read(AT_FDCWD, path, &b, NULL) < 0 || !(at = buf_cstr(&b)) ||
            !(at = strrchr(at, ')')))
            continue;
        for (size_t i = 2; i < ARRAY_SIZE(v) && *at; i++) { /* at: the blank before field i + 1 */
            at += strcspn(at, " ");
            at += *at == ' ';
            (void)str_parse_u64(slice_of(at, strcspn(at, " ")), UINT64_MAX, &v[i]);
        }
        *ret_cpu_us += (v[13] + v[14]) * (1000000u / (uint64_t)ticks); /* utime, stime */
        *ret_rss += v[23] * (uint64_t)page;
    }
    if (dir)
        (void)closedir(dir);
}

static void sample_memory(struct sample *s, uint64_t rss)
{
    struct sysinfo info;
    uint64_t limit, current, inactive = 0, cached = 0;

    if (sysinfo(&info) == 0)
        s->mem_total = (uint64_t)info.totalram * info.mem_unit;
    if (number_in(GUEST_CGROUP_DIR "/memory.max", "", &limit) && limit < s->mem_total)
        s->mem_total = limit;
    if (!number_in(GUEST_CGROUP_DIR "/memory.current", "", &current)) {
        s->mem_used = MIN(rss, s->mem_total);
        return;
    }
    (void)number_in(GUEST_CGROUP_DIR "/memory.stat", "inactive_file", &inactive);
    (void)number_in(GUEST_CGROUP_DIR "/memory.stat", "file", &cached);
    s->mem_used = current > inactive ? current - inactive : 0;
    s->mem_cache = cached;
}

static void sample_run(struct work *w)
{
    struct sample *s = container_of(w, struct sample, work);
    struct statvfs fs;
    cpu_set_t set;
    uint64_t rss, quota;

    sum_processes(&rss, &s->cpu_us);
    (void)number_in(GUEST_CGROUP_DIR "/cpu.stat", "usage_usec", &s->cpu_us);
    s->at_ns = time_mono_ns();
    s->cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    if (number_in(GUEST_CGROUP_USER "/cpu.max", "", &quota))
        s->cpus = MIN(s->cpus, (unsigned)MAX((quota + 99999) / 100000, (uint64_t)1));
    sample_memory(s, rss);
    if (statvfs("/", &fs) == 0) {
        s->disk_total = (uint64_t)fs.f_blocks * fs.f_frsize;
        s->disk_used = s->disk_total - (uint64_t)fs.f_bfree * fs.f_frsize;
    }
}

static void sample_answer(struct sample *s, double percent)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1024);

    if (buf_printf(&b,
                   "{\"ts\":%" PRId64 ",\"cpu_count\":%u,\"cpu_used_pct\":%.2f,"
                   "\"mem_total\":%" PRIu64 ",\"mem_used\":%" PRIu64 ",\"mem_cache\":%" PRIu64
                   ",\"mem_total_mib\":%" PRIu64 ",\"mem_used_mib\":%" PRIu64
                   ",\"disk_used\":%" PRIu64 ",\"disk_total\":%" PRIu64 "}",
                   time_wall_ms() / 1000, s->cpus, percent, s->mem_total, s->mem_used, s->mem_cache,
                   s->mem_total / MIB, s->mem_used / MIB, s->disk_used, s->disk_total))
        envd_error(s->ex, 500, "out of memory");
    else
        envd_send(s->ex, 200, "application/json", buf_slice(&b));
}

static void sample_done(struct work *w)
{
    struct sample *s = container_of(w, struct sample, work);
    struct metrics *m = s->envd->metrics;
    double passed_us = (double)(s->at_ns - m->at_ns) / 1000.0;
    double used_us = s->cpu_us > m->cpu_us ? (double)(s->cpu_us - m->cpu_us) : 0.0;

    m->cpu_us = s->cpu_us;
    m->at_ns = s->at_ns;
    if (s->ex) {
        http_exchange_begin(s->ex, NULL, NULL);
        sample_answer(s, passed_us > 0 ? MIN(100.0 * used_us / passed_us, 100.0 * s->cpus) : 0.0);
    }
    free(s);
}

static void on_close(void *user, struct http_exchange *ex, const struct abx_err *why)
{
    struct sample *s = user;

    s->ex = NULL;
}

void metrics_handle(struct envd *e, struct http_exchange *ex)
{
    static const struct http_exchange_events events = { .on_close = on_close };
    struct sample *s = calloc(1, sizeof(*s));

    if (!s || work_start(e->loop, &s->work, NULL, sample_run, sample_done) < 0) {
        free(s);
        envd_error(ex, 503, "out of memory");
        return;
    }
    s->envd = e;
    s->ex = ex;
    http_exchange_begin(ex, &events, s);
}

int metrics_new(struct metrics **ret, struct abx_err *err)
{
    struct metrics *m = calloc(1, sizeof(*m));

    if (!m)
        return err_oom(err);
    m->at_ns = time_mono_ns();
    *ret = m;
    return 0;
}
