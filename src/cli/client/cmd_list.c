/* cmd_list.c - `abx sandbox list` and `info`. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/client/commands.h"
#include "cli/client/info.h"
#include "cli/client/output.h"

json_t *info_json(const struct abx_sandbox_info *info)
{
    json_t *metadata = json_object();
    json_t *j = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "sandboxID",
        json_text(info->sandbox_id), "templateID", json_text(info->template_id), "alias",
        json_text(info->alias), "state", json_text(info->state), "startedAt",
        time_json(info->started_at_us), "endAt", time_json(info->end_at_us), "cpuCount",
        (json_int_t)info->cpu_count, "memoryMB", (json_int_t)info->memory_mb, "diskSizeMB",
        (json_int_t)info->disk_mb, "envdVersion", json_text(info->envd_version), "domain",
        json_text(info->domain), "envdUrl", json_text(info->envd_url), "metadata", metadata);

    for (size_t i = 0; j && i < info->metadata_count; i++)
        (void)json_object_set_new(metadata, info->metadata[i].key,
                                  json_text(info->metadata[i].value));
    return j;
}

char *info_metadata_text(const struct abx_sandbox_info *info)
{
    struct buf b = BUF_INIT(1u << 20);
    char *made;

    for (size_t i = 0; i < info->metadata_count; i++)
        (void)buf_printf(&b, "%s%s=%s", i ? ", " : "", info->metadata[i].key,
                         info->metadata[i].value);
    made = strdup(b.len > 0 ? buf_cstr(&b) : "-");
    buf_done(&b);
    return made;
}

struct listing {
    struct session *s;
    struct table table;
    json_t *all;
    int64_t left; /* that may still be printed; -1 = no limit */
};

/* A paused sandbox waits without end; what the service tells is when that began. */
static const char *end_text(const struct abx_sandbox_info *info, char to[TIME_TEXT_SIZE])
{
    return strcmp(info->state, "paused") == 0 ? "-" : time_text(info->end_at_us, to);
}

static void add_one(struct listing *l, const struct abx_sandbox_info *info)
{
    _cleanup_(freep) char *metadata = NULL;
    char started[TIME_TEXT_SIZE], end[TIME_TEXT_SIZE];

    if (session_is_json(l->s)) {
        (void)json_array_append_new(l->all, info_json(info));
        return;
    }
    if (l->s->args.number[OPT_QUIET]) {
        output_text(stdout, info->sandbox_id);
        (void)putchar('\n');
        return;
    }
    metadata = info_metadata_text(info);
    table_add(&l->table,
              (const char *const[]){
                  info->sandbox_id, info->alias ? info->alias : info->template_id, info->state,
                  time_text(info->started_at_us, started), end_text(info, end), metadata });
}

/* One page; `*token` (owned, NULL = the first) becomes that of the next, NULL behind the last. */
static int add_page(struct listing *l, char **token)
{
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_list_opts opts = ABX_LIST_OPTS_INIT;
    const struct args *a = &l->s->args;
    const struct abx_sandbox_info *infos;
    const char *next;
    size_t n;

    opts.metadata = a->metadata;
    opts.metadata_count = a->metadata_count;
    opts.states = a->text[OPT_STATE];
    opts.template_id = a->text[OPT_OF_TEMPLATE];
    opts.limit = l->left >= 0 && l->left < 100 ? (int)l->left : 100;
    opts.next_token = *token;
    call = abx_sandbox_list(l->s->client, l->s->config, &opts);
    if (session_wait(l->s, call) < 0)
        return l->s->error.code;
    infos = abx_call_sandbox_infos(call, &n);
    for (size_t i = 0; i < n && l->left != 0; i++) {
        add_one(l, &infos[i]);
        l->left -= l->left > 0;
    }
    next = abx_call_next_token(call);
    if (next && *token && strcmp(next, *token) == 0)
        return session_set(l->s, ABX_INTERNAL, "the service gives the same page again and again");
    free(*token);
    *token = next ? strdup(next) : NULL;
    if (next && !*token)
        return session_set(l->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

int cmd_sandbox_list(struct session *s)
{
    static const char *const headers[] = {
        "ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "METADATA"
    };
    struct listing l = { .s = s, .all = json_array(), .left = -1 };
    char *token = NULL;
    int r;

    table_init(&l.table, ARRAY_SIZE(headers), headers);
    if (s->args.number[OPT_LIMIT])
        l.left = s->args.number[OPT_LIMIT];
    do
        r = add_page(&l, &token);
    while (r == 0 && token && l.left != 0);
    free(token);
    if (r < 0) {
        table_free(&l.table);
        json_decref(l.all);
        return session_fail(s);
    }
    if (session_is_json(s) || s->args.number[OPT_QUIET]) {
        table_free(&l.table);
        if (session_is_json(s))
            return output_json(l.all);
        json_decref(l.all);
        return output_end();
    }
    json_decref(l.all);
    return table_print(&l.table);
}

static void print_line(const char *name, const char *value)
{
    (void)printf("%-10s ", name);
    output_text(stdout, value);
    (void)putchar('\n');
}

int cmd_sandbox_info(struct session *s)
{
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_get_info(s->client, s->config, s->args.values[0], ABX_UNSET);
    const struct abx_sandbox_info *info;
    char text[96], time[TIME_TEXT_SIZE];
    size_t n;

    if (session_wait(s, call) < 0)
        return session_fail(s);
    info = abx_call_sandbox_infos(call, &n);
    if (session_is_json(s))
        return output_json(info_json(info));
    print_line("id", info->sandbox_id);
    print_line("template", info->template_id);
    if (info->alias)
        print_line("alias", info->alias);
    print_line("state", info->state);
    print_line("started", time_text(info->started_at_us, time));
    print_line("ends", end_text(info, time));
    (void)snprintf(text, sizeof text, "%lld CPU, %lld MiB memory, %lld MiB disk",
                   (long long)info->cpu_count, (long long)info->memory_mb,
                   (long long)info->disk_mb);
    print_line("size", text);
    print_line("envd", info->envd_version);
    if (info->domain)
        print_line("domain", info->domain);
    for (size_t i = 0; i < info->metadata_count; i++) {
        _cleanup_(freep) char *key = output_clean(info->metadata[i].key);
        _cleanup_(freep) char *value = output_clean(info->metadata[i].value);

        (void)printf("%-10s %s=%s\n", i == 0 ? "metadata" : "", key ? key : "?",
                     value ? value : "?");
    }
    return output_end();
}
