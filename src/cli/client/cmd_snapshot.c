/* cmd_snapshot.c - `abx sandbox snapshot`: makes, lists and deletes. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/client/commands.h"
#include "cli/client/output.h"

static json_t *snapshot_json(const struct abx_snapshot *snapshot)
{
    json_t *names = json_array();

    for (size_t i = 0; i < snapshot->name_count; i++)
        (void)json_array_append_new(names, json_text(snapshot->names[i]));
    return json_pack("{s:o,s:o}", "snapshotID", json_text(snapshot->snapshot_id), "names", names);
}

static int make(struct session *s)
{
    _cleanup_(abx_call_freep) abx_call *call = abx_snapshot_create(
        s->client, s->config, s->args.values[0], s->args.text[OPT_NAME], ABX_UNSET);
    const struct abx_snapshot *snapshot;
    size_t n;

    if (session_wait(s, call) < 0)
        return session_fail(s);
    snapshot = abx_call_snapshots(call, &n);
    if (session_is_json(s))
        return output_json(snapshot_json(snapshot));
    output_text(stdout, snapshot->snapshot_id);
    (void)putchar('\n');
    return output_end();
}

/* ---- list ---- */

static void add_row(struct table *table, const struct abx_snapshot *snapshot)
{
    struct buf names = BUF_INIT(1u << 20);

    for (size_t i = 0; i < snapshot->name_count; i++)
        (void)buf_printf(&names, "%s%s", i ? ", " : "", snapshot->names[i]);
    table_add(table, (const char *const[]){ snapshot->snapshot_id,
                                            names.len > 0 ? buf_cstr(&names) : "-" });
    buf_done(&names);
}

/* One page; `*token` (owned, NULL = the first) becomes that of the next, NULL behind the last. */
static int add_page(struct session *s, struct table *table, json_t *all, char **token)
{
    const char *id = s->args.count > 0 ? s->args.values[0] : NULL;
    _cleanup_(abx_call_freep) abx_call *call =
        abx_snapshot_list(s->client, s->config, id, s->args.text[OPT_NAME], 100, *token, ABX_UNSET);
    const struct abx_snapshot *snapshots;
    const char *next;
    size_t n;

    if (session_wait(s, call) < 0)
        return s->error.code;
    snapshots = abx_call_snapshots(call, &n);
    for (size_t i = 0; i < n; i++) {
        if (session_is_json(s))
            (void)json_array_append_new(all, snapshot_json(&snapshots[i]));
        else
            add_row(table, &snapshots[i]);
    }
    next = abx_call_next_token(call);
    if (next && *token && strcmp(next, *token) == 0)
        return session_set(s, ABX_INTERNAL, "the service gives the same page again and again");
    free(*token);
    *token = next ? strdup(next) : NULL;
    if (next && !*token)
        return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

static int list(struct session *s)
{
    static const char *const headers[] = { "SNAPSHOT", "NAMES" };
    json_t *all = json_array();
    struct table table;
    char *token = NULL;
    int r;

    table_init(&table, ARRAY_SIZE(headers), headers);
    do
        r = add_page(s, &table, all, &token);
    while (r == 0 && token);
    free(token);
    if (r == 0 && !session_is_json(s)) {
        json_decref(all);
        return table_print(&table);
    }
    table_free(&table);
    if (r == 0)
        return output_json(all);
    json_decref(all);
    return session_fail(s);
}

/* ---- delete ---- */

/* Each is tried; the status is that of the first that failed. */
static int delete_all(struct session *s)
{
    json_t *all = json_array();
    int status = 0;

    for (size_t i = 0; i < s->args.count; i++) {
        const char *id = s->args.values[i];
        _cleanup_(abx_call_freep) abx_call *call =
            abx_snapshot_delete(s->client, s->config, id, ABX_UNSET);
        int failed = 0;

        if (session_wait(s, call) == 0 && !abx_call_bool(call)) {
            (void)session_set(s, ABX_NOT_FOUND, "there is no such snapshot");
            s->error.reason = ABX_REASON_TEMPLATE_NOT_FOUND;
        }
        if (s->error.code < 0)
            failed = session_fail_at(s, "delete %s", id);
        else if (!session_is_json(s))
            (void)printf("%s\n", id);
        status = status ? status : failed;
        (void)json_array_append_new(
            all, json_pack("{s:o,s:b}", "snapshotID", json_text(id), "deleted", !failed));
    }
    if (session_is_json(s)) {
        int failed = output_json(all);

        return status ? status : failed;
    }
    json_decref(all);
    return status ? status : output_end();
}

int cmd_sandbox_snapshot(struct session *s)
{
    const struct args *a = &s->args;

    if (a->number[OPT_LIST] && a->number[OPT_DELETE])
        return args_usage(a, "--list and --delete: give one of them");
    if (a->number[OPT_DELETE])
        return a->count > 0 ? delete_all(s) : args_usage(a, "--delete needs a SNAPSHOT");
    if (a->count > 1)
        return args_usage(a, "'%s': one ID only", a->values[1]);
    if (a->number[OPT_LIST])
        return list(s);
    return a->count > 0 ? make(s) : args_usage(a, "needs an ID, or --list");
}
