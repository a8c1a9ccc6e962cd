/* cmd_observe.c - `abx sandbox logs` and `metrics`. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/commands.h"
#include "cli/client/output.h"
#include "cli/json_out.h"

#define FOLLOW_PAUSE_MS 1000
#define PAGE 1000
#define LAST_PAGES                                                                                 \
    3u /* the line of its end comes when all of it is removed, after it cannot be seen any more */

/* ---- logs ---- */

static json_t *log_json(const struct abx_log_entry *e)
{
    json_t *fields = e->fields_json ? json_loads(e->fields_json, 0, NULL) : NULL;

    return json_pack("{s:o,s:o,s:o,s:o}", "timestamp", time_json(e->timestamp_us), "level",
                     json_text(e->level), "message", json_text(e->message), "fields",
                     fields ? fields : json_object());
}

static void print_entry(const struct session *s, const struct abx_log_entry *e, json_t *all)
{
    char time[TIME_TEXT_SIZE];

    if (session_is_json(s) && all) {
        (void)json_array_append_new(all, log_json(e));
    } else if (session_is_json(s)) {
        json_t *j = log_json(e);

        if (json_put(j, stdout, JSON_COMPACT) < 0)
            (void)fputs("abx: out of memory\n", stderr);
        (void)putchar('\n');
        json_decref(j);
    } else {
        (void)printf("%s %-5s ", time_text(e->timestamp_us, time), e->level ? e->level : "-");
        output_text(stdout, e->message);
        (void)putchar('\n');
    }
}

/* What came since: entries of the cursor's own millisecond come again with the next page, `seen` counts those that were
 * printed. */
struct cursor {
    int64_t ms;
    size_t seen;
    int64_t left; /* -1 = no limit */
};

/* Prints one page. Returns how many entries were new, or a code. */
static int print_page(struct session *s, struct cursor *c, json_t *all)
{
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_logs_opts opts = ABX_LOGS_OPTS_INIT;
    const struct abx_log_entry *entries;
    size_t n, skip = c->seen;
    int fresh = 0;

    opts.cursor_ms = c->ms;
    opts.limit = PAGE;
    opts.level = s->args.text[OPT_LEVEL];
    opts.search = s->args.text[OPT_SEARCH];
    call = abx_sandbox_get_logs(s->client, s->config, s->args.values[0], &opts);
    if (session_wait(s, call) < 0)
        return s->error.code;
    entries = abx_call_logs(call, &n);
    for (size_t i = 0; i < n && c->left != 0; i++) {
        int64_t ms = entries[i].timestamp_us / 1000;

        if (ms == c->ms && skip > 0) {
            skip--;
            continue;
        }
        c->seen = ms == c->ms ? c->seen + 1 : 1;
        c->ms = ms;
        print_entry(s, &entries[i], all);
        c->left -= c->left > 0;
        fresh++;
    }
    return fresh;
}

/* Only the service's word for it: what went wrong otherwise shows when the next page is asked for. */
static bool is_gone(struct session *s)
{
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_get_info(s->client, s->config, s->args.values[0], ABX_UNSET);

    return session_wait(s, call) < 0 && s->error.reason == ABX_REASON_SANDBOX_NOT_FOUND;
}

int cmd_sandbox_logs(struct session *s)
{
    struct cursor c = { .left = s->args.number[OPT_LIMIT] ? s->args.number[OPT_LIMIT] : -1 };
    bool follows = s->args.number[OPT_FOLLOW] != 0;
    unsigned ended = 0; /* pages without anything new since it is gone */
    json_t *all = follows ? NULL : json_array();
    int r;

    do {
        r = print_page(s, &c, all);
        if (r >= 0 && follows && output_end() != 0)
            return 1;
        if (r != 0 || !follows || c.left == 0)
            continue;
        ended += ended > 0 || is_gone(s);
        if (ended > LAST_PAGES)
            break;
        (void)poll(NULL, 0, FOLLOW_PAUSE_MS);
    } while (r > 0 || (r == 0 && follows && c.left != 0));
    if (r < 0) {
        json_decref(all);
        /* The end of the sandbox is the end of its logs. */
        if (follows && c.ms > 0 && s->error.reason == ABX_REASON_SANDBOX_NOT_FOUND)
            return 0;
        return session_fail(s);
    }
    if (all && session_is_json(s))
        return output_json(all);
    json_decref(all);
    return output_end();
}

/* ---- metrics ---- */

static json_t *metrics_json(const struct abx_metrics *m)
{
    return json_pack("{s:o,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "timestamp", time_json(m->timestamp_us),
                     "cpuUsedPct", m->cpu_used_pct, "cpuCount", (json_int_t)m->cpu_count, "memUsed",
                     (json_int_t)m->mem_used, "memTotal", (json_int_t)m->mem_total, "memCache",
                     (json_int_t)m->mem_cache, "diskUsed", (json_int_t)m->disk_used, "diskTotal",
                     (json_int_t)m->disk_total);
}

int cmd_sandbox_metrics(struct session *s)
{
    static const char *const headers[] = { "TIME", "CPU", "MEMORY", "OF", "CACHE", "DISK", "OF" };
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_get_metrics(s->client, s->config, s->args.values[0], 0, 0, ABX_UNSET);
    const struct abx_metrics *m;
    struct table t;
    size_t n, i = 0;

    if (session_wait(s, call) < 0)
        return session_fail(s);
    m = abx_call_metrics(call, &n);
    if (s->args.number[OPT_LIMIT] && n > (size_t)s->args.number[OPT_LIMIT])
        i = n - (size_t)s->args.number[OPT_LIMIT]; /* the newest */
    if (session_is_json(s)) {
        json_t *all = json_array();

        for (; i < n; i++)
            (void)json_array_append_new(all, metrics_json(&m[i]));
        return output_json(all);
    }
    table_init(&t, ARRAY_SIZE(headers), headers);
    for (; i < n; i++) {
        char time[TIME_TEXT_SIZE], cpu[32], sizes[5][SIZE_TEXT_SIZE];

        (void)snprintf(cpu, sizeof cpu, "%.1f %%", m[i].cpu_used_pct);
        table_add(&t,
                  (const char *const[]){
                      time_text(m[i].timestamp_us, time), cpu, size_text(m[i].mem_used, sizes[0]),
                      size_text(m[i].mem_total, sizes[1]), size_text(m[i].mem_cache, sizes[2]),
                      size_text(m[i].disk_used, sizes[3]), size_text(m[i].disk_total, sizes[4]) });
    }
    return table_print(&t);
}
