/* cmd_life.c - `abx sandbox timeout`, `pause`, `rollback`, `fork`, `kill`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client/commands.h"
#include "cli/client/output.h"

int cmd_sandbox_timeout(struct session *s)
{
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    const char *id = s->args.values[0];
    struct abx_err err = { 0 };
    uint64_t seconds;

    if (cli_parse_duration("DURATION", s->args.values[1], &seconds, &err) < 0)
        return args_usage(&s->args, "%s", err.msg);
    call = abx_sandbox_set_timeout(s->client, s->config, id, (int64_t)seconds, ABX_UNSET);
    if (session_wait(s, call) < 0)
        return session_fail(s);
    if (session_is_json(s))
        return output_json(json_pack("{s:s,s:I}", "sandboxID", id, "timeout", (json_int_t)seconds));
    return 0;
}

int cmd_sandbox_pause(struct session *s)
{
    abx_call *(*begin)(abx_client *, abx_config *, const char *, int, int64_t) =
        s->args.number[OPT_STRICT] ? abx_sandbox_pause_strict : abx_sandbox_pause;
    json_t *all = json_array();
    int status = 0;

    for (size_t i = 0; status == 0 && i < s->args.count; i++) {
        const char *id = s->args.values[i];
        _cleanup_(abx_call_freep) abx_call *call =
            begin(s->client, s->config, id, !s->args.number[OPT_NO_MEMORY], ABX_UNSET);

        if (session_wait(s, call) < 0)
            status = session_fail_at(s, "pause %s", id);
        else if (session_is_json(s))
            (void)json_array_append_new(
                all, json_pack("{s:s,s:b}", "sandboxID", id, "changed", abx_call_bool(call)));
        else
            (void)printf("%s%s\n", id, abx_call_bool(call) ? "" : " (was paused)");
    }
    if (status == 0 && session_is_json(s))
        return output_json(all);
    json_decref(all);
    return status ? status : output_end();
}

int cmd_sandbox_fork(struct session *s)
{
    int64_t copies = s->args.number[OPT_COUNT_COPIES] ? s->args.number[OPT_COUNT_COPIES] : 1;
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_fork(s->client, s->config, s->args.values[0], (int)copies,
                         s->args.number[OPT_TIMEOUT], ABX_UNSET);
    json_t *made, *one;
    int status = 0;
    size_t i;

    if (session_wait(s, call) < 0)
        return session_fail(s);
    made = json_loads(abx_call_bytes(call, NULL), JSON_DECODE_ANY, NULL);
    if (session_is_json(s))
        return output_json(made);
    /* Each is there or failed by itself. */
    json_array_foreach(made, i, one)
    {
        const char *id =
            json_string_value(json_object_get(json_object_get(one, "sandbox"), "sandboxID"));
        const char *why =
            json_string_value(json_object_get(json_object_get(one, "error"), "message"));

        output_text(id ? stdout : stderr, id ? id : why ? why : "no sandbox was made");
        (void)fputc('\n', id ? stdout : stderr);
        status = id ? status : 1;
    }
    json_decref(made);
    return status ? status : output_end();
}

int cmd_sandbox_rollback(struct session *s)
{
    const char *id = s->args.values[0], *snapshot = s->args.values[1];
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_rollback(s->client, s->config, id, snapshot, ABX_UNSET);
    const struct abx_sandbox_info *info;
    size_t n;

    if (session_wait(s, call) < 0)
        return session_fail(s);
    info = abx_call_sandbox_infos(call, &n);
    if (session_is_json(s))
        return output_json(json_pack("{s:s,s:s,s:o}", "sandboxID", id, "snapshotID", snapshot,
                                     "state", json_text(info->state)));
    (void)printf("%s", id);
    if (strcmp(info->state, "running") != 0) {
        (void)fputs(" (is ", stdout);
        output_text(stdout, info->state);
        (void)putchar(')');
    }
    (void)putchar('\n');
    return output_end();
}

/* ---- kill ---- */

struct ids {
    char **id; /* owned */
    size_t count, cap;
};

static void ids_done(struct ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        free(ids->id[i]);
    free(ids->id);
}

static int ids_add(struct session *s, struct ids *ids, const char *id)
{
    if (ids->count == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 64;
        char **grown = reallocarray(ids->id, cap, sizeof *grown);

        if (!grown)
            return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->count] = strdup(id);
    if (!ids->id[ids->count])
        return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    ids->count++;
    return 0;
}

/* Ids of all pages. */
static int ids_list(struct session *s, struct ids *ids)
{
    struct abx_list_opts opts = ABX_LIST_OPTS_INIT;
    _cleanup_(freep) char *token = NULL;
    int r = 0;

    opts.metadata = s->args.metadata;
    opts.metadata_count = s->args.metadata_count;
    opts.limit = 100;
    do {
        _cleanup_(abx_call_freep) abx_call *call = NULL;
        const struct abx_sandbox_info *infos;
        const char *next;
        size_t n;

        opts.next_token = token;
        call = abx_sandbox_list(s->client, s->config, &opts);
        if (session_wait(s, call) < 0)
            return s->error.code;
        infos = abx_call_sandbox_infos(call, &n);
        for (size_t i = 0; r == 0 && i < n; i++)
            r = ids_add(s, ids, infos[i].sandbox_id);
        next = abx_call_next_token(call);
        if (next && token && strcmp(next, token) == 0)
            return session_set(s, ABX_INTERNAL, "the service gives the same page again and again");
        free(token);
        token = next ? strdup(next) : NULL;
    } while (r == 0 && token);
    return r;
}

/* Kills all at once, up to 20 at a time; reports each. Returns the status of the first that failed. */
static int kill_all(struct session *s, char **ids, size_t count)
{
    json_t *all = json_array();
    abx_call *calls[20];
    int status = 0;

    for (size_t from = 0; from < count; from += ARRAY_SIZE(calls)) {
        size_t n = MIN(count - from, ARRAY_SIZE(calls));

        for (size_t i = 0; i < n; i++)
            calls[i] = abx_sandbox_kill(s->client, s->config, ids[from + i], ABX_UNSET);
        for (size_t i = 0; i < n; i++) {
            const char *id = ids[from + i];
            int failed = 0;

            if (session_wait(s, calls[i]) == 0 && !abx_call_bool(calls[i])) {
                (void)session_set(s, ABX_NOT_FOUND, "there is no such sandbox");
                s->error.reason = ABX_REASON_SANDBOX_NOT_FOUND;
            }
            if (s->error.code < 0) {
                (void)fputs("abx: kill ", stderr);
                output_text(stderr, id);
                (void)fputs(": ", stderr);
                output_text(stderr, s->error.message);
                (void)fputc('\n', stderr);
                failed = session_status(s);
            } else if (!session_is_json(s)) {
                (void)printf("%s\n", id);
            }
            status = status ? status : failed;
            (void)json_array_append_new(
                all, json_pack("{s:o,s:b,s:o}", "sandboxID", json_text(id), "killed", !failed,
                               "error", failed ? json_text(s->error.message) : json_null()));
            abx_call_free(calls[i]);
        }
    }
    if (session_is_json(s)) {
        int failed = output_json(all);

        return status ? status : failed;
    }
    json_decref(all);
    return status ? status : output_end();
}

static bool ask(size_t count)
{
    char answer[16] = "";

    (void)fprintf(stderr, "Kill %zu sandbox%s? [y/N] ", count, count == 1 ? "" : "es");
    (void)fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int cmd_sandbox_kill(struct session *s)
{
    const struct args *a = &s->args;
    struct ids ids = { 0 };
    int status = 0;

    if (!a->number[OPT_ALL]) {
        if (a->count == 0)
            return args_usage(a, "needs an ID, or --all");
        if (a->metadata_count > 0)
            return args_usage(a, "--metadata chooses among --all, not among ids");
        return kill_all(s, a->values, a->count);
    }
    if (a->count > 0)
        return args_usage(a, "--all and '%s': give one of them", a->values[0]);
    if (!a->number[OPT_YES] && !isatty(STDIN_FILENO))
        return args_usage(a, "--all needs --yes when standard input is no terminal");
    if (ids_list(s, &ids) < 0) {
        status = session_fail(s);
    } else if (ids.count > 0 && !a->number[OPT_YES] && !ask(ids.count)) {
        (void)fputs("abx: nothing was killed\n", stderr);
        status = 1;
    } else {
        status = kill_all(s, ids.id, ids.count);
    }
    ids_done(&ids);
    return status;
}
