/* cmd_create.c - `abx sandbox create`, `connect`, `resume`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client/commands.h"
#include "cli/client/create.h"
#include "cli/client/output.h"
#include "cli/client/signals.h"

#define UNDO_TIMEOUT_MS 20000

int create_undo(struct session *s, const char *id)
{
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_kill(s->client, s->config, id, UNDO_TIMEOUT_MS);
    struct abx_error error = { 0 };

    if (!call)
        return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    while (!abx_call_is_done(call))
        (void)abx_call_wait(call, -1, &error);
    error = *abx_call_error(call);
    if (error.code < 0)
        s->error = error;
    return error.code;
}

static void fill(const struct args *a, int64_t timeout_s, struct abx_create_opts *o)
{
    o->template_id = a->text[OPT_TEMPLATE];
    o->timeout_s = a->number[OPT_TIMEOUT] ? a->number[OPT_TIMEOUT] : timeout_s;
    o->metadata = a->metadata;
    o->metadata_count = a->metadata_count;
    o->envs = a->envs;
    o->env_count = a->env_count;
    o->cpu_count = (int)a->number[OPT_CPU];
    o->memory_mb = (int)a->number[OPT_MEMORY];
    o->disk_mb = (int)a->number[OPT_DISK];
    if (a->number[OPT_NO_INTERNET])
        o->allow_internet_access = 0;
}

int create_sandbox(struct session *s, int64_t timeout_s, abx_sandbox **ret)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *made = NULL;
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_create_opts opts = ABX_CREATE_OPTS_INIT;
    int signo = 0;

    if (signals_watch(s->client, &s->error) < 0)
        return s->error.code;
    fill(&s->args, timeout_s, &opts);
    call = abx_sandbox_create(s->client, s->config, &opts);
    if (!call)
        return session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    while (!abx_call_is_done(call)) {
        int now;

        (void)abx_call_wait(call, -1, &s->error);
        signals_clear();
        now = signals_take_end();
        if (now && signo)
            abx_call_cancel(call); /* the second one */
        signo = signo ? signo : now;
    }
    s->error = *abx_call_error(call);
    if (s->error.code == 0)
        made = abx_call_take_sandbox(call);
    if (signo) {
        if (made)
            (void)create_undo(s, abx_sandbox_id(made));
        s->signo = signo;
        return session_set(s, ABX_CANCELED, "interrupted (%s)", strsignal(signo));
    }
    if (s->error.code == 0)
        *ret = TAKE_PTR(made);
    return s->error.code;
}

/* What can be said of an address; tokens are secrets. */
static json_t *sandbox_json(const abx_sandbox *sb, const char *host)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o*}", "sandboxID", json_text(abx_sandbox_id(sb)),
                     "templateID", json_text(abx_sandbox_template_id(sb)), "envdVersion",
                     json_text(abx_sandbox_envd_version(sb)), "domain",
                     json_text(abx_sandbox_domain(sb)), "envdUrl",
                     json_text(abx_sandbox_envd_url(sb, 1)), "host", host ? json_text(host) : NULL);
}

int cmd_sandbox_create(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    int status;

    if (create_sandbox(s, 0, &sb) < 0)
        return session_fail(s);
    if (session_is_json(s)) {
        status = output_json(sandbox_json(sb, NULL));
    } else {
        (void)printf("%s\n", abx_sandbox_id(sb));
        status = output_end();
    }
    /* Nobody has its id: it must not stay. */
    if (status != 0)
        (void)create_undo(s, abx_sandbox_id(sb));
    return status;
}

static int connect_to(struct session *s, const char *id, abx_sandbox **ret)
{
    _cleanup_(abx_call_freep) abx_call *call =
        abx_sandbox_connect(s->client, s->config, id, s->args.number[OPT_TIMEOUT], ABX_UNSET);

    if (session_wait(s, call) < 0)
        return s->error.code;
    *ret = abx_call_take_sandbox(call);
    return 0;
}

int cmd_sandbox_connect(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    _cleanup_(freep) char *host = NULL;

    if (connect_to(s, s->args.values[0], &sb) < 0)
        return session_fail(s);
    if (s->args.number[OPT_PORT]) {
        host = abx_sandbox_host(sb, (uint16_t)s->args.number[OPT_PORT]);
        if (!host) {
            (void)session_set(s, ABX_RESOURCE_EXHAUSTED, "out of memory");
            return session_fail(s);
        }
    }
    if (session_is_json(s))
        return output_json(sandbox_json(sb, host));
    output_text(stdout, host ? host : abx_sandbox_id(sb));
    (void)putchar('\n');
    /* Somebody who knows E2B's CLI waits for a prompt. */
    if (!host && isatty(STDOUT_FILENO))
        (void)fprintf(stderr, "It runs. 'abx sandbox shell %s' opens a terminal in it.\n",
                      s->args.values[0]);
    return output_end();
}

int cmd_sandbox_resume(struct session *s)
{
    json_t *all = json_array();
    int status = 0;

    for (size_t i = 0; status == 0 && i < s->args.count; i++) {
        _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;

        if (connect_to(s, s->args.values[i], &sb) < 0)
            status = session_fail(s);
        else if (session_is_json(s))
            (void)json_array_append_new(all, sandbox_json(sb, NULL));
        else
            (void)printf("%s\n", s->args.values[i]);
    }
    if (status == 0 && session_is_json(s))
        return output_json(all);
    json_decref(all);
    return status ? status : output_end();
}
