/* http_tool.c - drives abx_http_request for the system tests of the transport.
 *
 * usage: http_tool [name=value...] URL...
 * Starts `count` requests for each URL, at most `concurrency` at a time, prints one JSON line for each that ended
 * and one for the run: descriptors before the client and after it, peak memory, processor
 * time.
 */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abx/abx.h"
#include "base/macro.h"
#include "base/str.h"

#define HEADERS_MAX 200

static struct {
    const char *method, *body, *ca, *proxy, *cancel_at;
    struct abx_pair headers[HEADERS_MAX];
    size_t header_count;
    long long body_size, source_size, source_stall_ms, timeout_ms, idle_ms, count, concurrency;
    long long cancel_ms, slow_ms, max_connections, max_idle, idle_connection_ms, linger_ms, fork_at;
    long long max_bytes, quiet, slow_bytes, free_running, gap_ms;
    int stream, retry, source_chunked, source_fails;
} args = { .timeout_ms = 60000, .count = 1, .concurrency = 1, .source_size = -1, .cancel_ms = -1 };

struct run {
    abx_call *call;
    const char *url;
    int index;
    unsigned long long bytes, given, sum;
    int events;
    int64_t start_ns, resume_at_ns, cancel_at_ns;
    bool is_done, is_stalled;
};

static abx_client *client;
static abx_config *config;
static int completed;

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n - 3; /* ".", "..", its own */
}

/* Peak memory of this program; getrusage counts what the parent had before exec. */
static long peak_kb(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long kb = -1;

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (f)
        (void)fclose(f);
    return kb;
}

static void print_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
            printf("\\u%04x", (unsigned)(unsigned char)*s);
        else
            putchar(*s);
    }
    putchar('"');
}

static void print_headers(const struct abx_http_result *http)
{
    printf(", \"headers\": {");
    for (size_t i = 0; i < http->header_count; i++) {
        printf(i > 0 ? ", " : "");
        print_text(http->headers[i].key);
        printf(": ");
        print_text(http->headers[i].value);
    }
    printf("}");
}

static void print_result(const struct run *r)
{
    const struct abx_error *e = abx_call_error(r->call);
    struct abx_http_result http;

    abx_call_http(r->call, &http);
    printf("{\"index\": %d, \"code\": %d, \"name\": \"%s\", \"reason\": %d, \"sys\": %d, "
           "\"status\": %d, \"version\": %d, \"ms\": %lld, \"events\": %d, \"bytes\": %llu, "
           "\"sum\": %llu, \"given\": %llu, \"message\": ",
           r->index, e->code, abx_error_name(e->code), e->reason, e->sys, http.status, http.version,
           (long long)((time_mono_ns() - r->start_ns) / NSEC_PER_MSEC), r->events,
           args.stream ? r->bytes : (unsigned long long)http.body_size, r->sum, r->given);
    print_text(e->message);
    if (http.body_size > 0 && http.body_size <= 4096 &&
        utf8_is_valid(slice_of(http.body, http.body_size))) {
        printf(", \"body\": ");
        print_text(http.body);
    }
    print_headers(&http);
    printf("}\n");
    (void)fflush(stdout);
}

static void on_done(void *user, abx_call *call)
{
    struct run *r = user;

    r->is_done = true;
    completed++;
    if (!args.quiet || abx_call_error(call)->code != 0)
        print_result(r);
    abx_call_free(call);
    r->call = NULL;
}

static void take_events(struct run *r)
{
    struct abx_event e;

    while (r->call && abx_call_next(r->call, &e) == 1) {
        r->events++;
        r->bytes += e.size;
        for (size_t i = 0; i < e.size; i += 4093)
            r->sum += ((const uint8_t *)e.data)[i];
        if (args.cancel_at && strcmp(args.cancel_at, "event") == 0)
            abx_call_cancel(r->call);
        if (args.slow_ms > 0 && r->bytes / (unsigned long long)args.slow_bytes !=
                                    (r->bytes - e.size) / (unsigned long long)args.slow_bytes) {
            r->resume_at_ns = time_mono_ns() + args.slow_ms * NSEC_PER_MSEC;
            return;
        }
    }
}

static void on_event(void *user, abx_call *call)
{
    struct run *r = user;

    (void)call;
    if (time_mono_ns() >= r->resume_at_ns)
        take_events(r);
}

/* Bytes of a body from `at` on; their period has no factor in common with a buffer's size, so that a piece in a wrong
 * place shows. */
static void fill(uint8_t *to, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)((uint32_t)((at + i) % 65521) * UINT32_C(2654435761) >> 24);
}

static int64_t give(void *user, void *buffer, size_t size)
{
    struct run *r = user;
    size_t left = args.source_size < 0 ? size : (size_t)args.source_size - (size_t)r->given;
    size_t n = MIN(size, left);

    if (args.source_fails && r->given > 0)
        return args.source_fails == 2 ? 0 : ABX_DATA_LOSS;
    if (args.cancel_at && strcmp(args.cancel_at, "source") == 0 && r->given > 0)
        abx_call_cancel(r->call);
    if (args.source_stall_ms > 0 && r->given > 0 && !r->is_stalled) {
        r->is_stalled = true;
        r->resume_at_ns = time_mono_ns() + args.source_stall_ms * NSEC_PER_MSEC;
        return ABX_UNAVAILABLE;
    }
    fill(buffer, (size_t)r->given, n);
    r->given += n;
    return (int64_t)n;
}

static void start(struct run *r)
{
    struct abx_http_opts o = ABX_HTTP_OPTS_INIT;
    static char *big;

    o.method = args.method;
    o.url = r->url;
    o.headers = args.headers;
    o.header_count = args.header_count;
    if (args.body_size > 0 && !big) {
        big = malloc((size_t)args.body_size);
        if (!big)
            abort();
        fill((uint8_t *)big, 0, (size_t)args.body_size);
    }
    if (args.body_size > 0 || args.body) {
        o.body = args.body_size > 0 ? big : args.body;
        o.body_size = args.body_size > 0 ? (size_t)args.body_size : strlen(args.body);
    }
    if (args.source_size >= 0) {
        o.source = give;
        o.source_user = r;
        o.source_size = args.source_chunked ? ABX_UNSET : args.source_size;
    }
    o.stream = args.stream;
    o.request_timeout_ms = args.timeout_ms;
    o.idle_timeout_ms = args.idle_ms;
    o.retry_reads = args.retry;
    o.max_bytes = (uint64_t)args.max_bytes;
    r->start_ns = time_mono_ns();
    if (args.cancel_ms >= 0)
        r->cancel_at_ns = r->start_ns + args.cancel_ms * NSEC_PER_MSEC;
    r->call = abx_http_request(client, config, &o);
    if (!r->call)
        abort();
    abx_call_on_event(r->call, on_event, r);
    abx_call_on_done(r->call, on_done, r);
    if (args.cancel_at && strcmp(args.cancel_at, "start") == 0)
        abx_call_cancel(r->call);
}

/* What the arguments ask for at some time: cancel, go on reading, give more. */
static void tick(struct run *r)
{
    int64_t now_ns = time_mono_ns();

    if (!r->call)
        return;
    if (r->cancel_at_ns != 0 && now_ns >= r->cancel_at_ns) {
        r->cancel_at_ns = 0;
        abx_call_cancel(r->call);
    }
    if (r->resume_at_ns != 0 && now_ns >= r->resume_at_ns) {
        r->resume_at_ns = 0;
        if (args.source_size >= 0)
            abx_call_resume(r->call);
        if (args.stream)
            take_events(r);
    }
}

/* A child frees what it inherited; the parent's requests go on. */
static void fork_child(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        abx_client_free(client);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        abort();
}

static void run_all(struct run *runs, int n)
{
    bool has_timers = args.cancel_ms >= 0 || args.slow_ms > 0 || args.source_stall_ms > 0;
    int started = 0;

    while (completed < n) {
        while (started < n && started - completed < args.concurrency) {
            if (args.gap_ms > 0 && started > 0) {
                int64_t until = time_mono_ns() + args.gap_ms * NSEC_PER_MSEC;

                while (time_mono_ns() < until)
                    (void)abx_client_wait(client, (until - time_mono_ns()) / NSEC_PER_MSEC + 1);
            }
            start(&runs[started++]);
        }
        if (args.fork_at > 0 && started == args.fork_at) {
            args.fork_at = 0;
            fork_child();
        }
        if (args.free_running > 0 && started >= args.free_running)
            return;
        (void)abx_client_wait(client, has_timers ? 5 : 1000);
        for (int i = 0; has_timers && i < started; i++)
            tick(&runs[i]);
    }
}

static void set(char *arg)
{
    static const struct {
        const char *name;
        long long *to;
    } numbers[] = {
        { "body_size", &args.body_size },
        { "source_size", &args.source_size },
        { "source_stall_ms", &args.source_stall_ms },
        { "timeout_ms", &args.timeout_ms },
        { "idle_ms", &args.idle_ms },
        { "count", &args.count },
        { "concurrency", &args.concurrency },
        { "cancel_ms", &args.cancel_ms },
        { "slow_ms", &args.slow_ms },
        { "slow_bytes", &args.slow_bytes },
        { "max_connections", &args.max_connections },
        { "max_idle", &args.max_idle },
        { "idle_connection_ms", &args.idle_connection_ms },
        { "linger_ms", &args.linger_ms },
        { "fork_at", &args.fork_at },
        { "max_bytes", &args.max_bytes },
        { "quiet", &args.quiet },
        { "free_running", &args.free_running },
        { "gap_ms", &args.gap_ms },
    };
    static const struct {
        const char *name;
        int *to;
    } flags[] = {
        { "stream", &args.stream },
        { "retry", &args.retry },
        { "source_chunked", &args.source_chunked },
        { "source_fails", &args.source_fails },
    };
    static const struct {
        const char *name;
        const char **to;
    } texts[] = {
        { "method", &args.method }, { "body", &args.body },           { "ca", &args.ca },
        { "proxy", &args.proxy },   { "cancel_at", &args.cancel_at },
    };
    char *value = strchr(arg, '=');

    *value++ = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (strcmp(arg, numbers[i].name) == 0) {
            *numbers[i].to = strtoll(value, NULL, 10);
            return;
        }
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        if (strcmp(arg, flags[i].name) == 0) {
            *flags[i].to = (int)strtoll(value, NULL, 10);
            return;
        }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (strcmp(arg, texts[i].name) == 0) {
            *texts[i].to = value;
            return;
        }
    if (strcmp(arg, "header") == 0 && args.header_count < HEADERS_MAX) {
        char *at = strchr(value, ':');

        if (at)
            *at++ = '\0';
        args.headers[args.header_count++] = (struct abx_pair){ value, at ? at : "" };
        return;
    }
    fprintf(stderr, "http_tool: unknown argument '%s'\n", arg);
    exit(2);
}

static void load(void)
{
    struct abx_client_opts copts = ABX_CLIENT_OPTS_INIT;
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_error err;

    copts.max_connections = (int)args.max_connections;
    copts.max_idle_connections = (int)args.max_idle;
    copts.idle_timeout_ms = (int)args.idle_connection_ms;
    opts.ca_file = args.ca;
    opts.proxy = args.proxy;
    if (abx_config_load(&opts, &config, &err) == 0)
        copts.config = config;
    if (!config || abx_client_new(&copts, &client, &err) < 0) {
        fprintf(stderr, "http_tool: %s\n", err.message);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    char **urls;
    struct run *runs;
    int descriptors = open_descriptors(), idle_descriptors, n = 0, url_count = 0, at = 1;
    struct rusage usage;
    int64_t start_ns, wall_us;

    while (at < argc && strncmp(argv[at], "http", 4) != 0 && strchr(argv[at], '='))
        set(argv[at++]);
    urls = argv + at;
    url_count = argc - at;
    if (args.slow_bytes == 0)
        args.slow_bytes = 1;
    load();
    runs = calloc((size_t)(args.count * url_count) + 1, sizeof *runs);
    if (!runs)
        return 1;
    for (long long k = 0; k < args.count; k++)
        for (int u = 0; u < url_count; u++, n++)
            runs[n] = (struct run){ .url = urls[u], .index = n };
    start_ns = time_mono_ns();
    run_all(runs, n);
    wall_us = (time_mono_ns() - start_ns) / 1000;
    (void)getrusage(RUSAGE_SELF, &usage);
    if (args.linger_ms > 0) {
        int64_t until = time_mono_ns() + args.linger_ms * NSEC_PER_MSEC;

        while (time_mono_ns() < until)
            (void)abx_client_wait(client, (until - time_mono_ns()) / NSEC_PER_MSEC + 1);
    }
    idle_descriptors = open_descriptors();
    abx_client_free(client);
    abx_config_unref(config);
    printf("{\"wall_us\": %lld, \"cpu_us\": %lld, \"peak_kb\": %ld, \"descriptors\": [%d, %d, %d], "
           "\"completed\": %d}\n",
           (long long)wall_us,
           (long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
               usage.ru_utime.tv_usec + usage.ru_stime.tv_usec,
           peak_kb(), descriptors, idle_descriptors, open_descriptors(), completed);
    free(runs);
    return 0;
}
