/* cmd_whoami.c - `abx whoami`: where commands go, as whom, and whether that works. */
#include <string.h>

#include "base/str.h"
#include "cli/client/commands.h"
#include "cli/client/output.h"

struct shown {
    const char *name, *key, *json;
};

static const struct shown rows[] = {
    { "service", "sandbox_base_url", "api_url" },       { "domain", "sandbox_domain", "domain" },
    { "sandboxes", "sandbox_url", "sandbox_url" },      { "profile", "profile", "profile" },
    { "api key", "sandbox_api_key", "api_key" },        { "token", "access_token", "access_token" },
    { "access key", "access_key_id", "access_key_id" },
};

static void print_config(const struct session *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *origin = "";
        const char *value = abx_config_get(s->config, rows[i].key, 0, &origin);

        if (!value && strcmp(rows[i].key, "sandbox_api_key") != 0)
            continue;
        (void)printf("%-10s ", rows[i].name);
        output_text(stdout, value ? value : "none");
        if (value) {
            (void)fputs("  (", stdout);
            output_text(stdout, origin);
            (void)putchar(')');
        }
        (void)putchar('\n');
    }
}

static json_t *config_json(const struct session *s)
{
    json_t *j = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *origin = "";
        const char *value = abx_config_get(s->config, rows[i].key, 0, &origin);

        (void)json_object_set_new(
            j, rows[i].json,
            value ? json_pack("{s:o,s:o}", "value", json_text(value), "origin", json_text(origin))
                  : json_null());
    }
    return j;
}

int cmd_whoami(struct session *s)
{
    _cleanup_(abx_call_freep) abx_call *call = NULL;
    struct abx_list_opts opts = ABX_LIST_OPTS_INIT;
    int64_t began = time_mono_ns();
    long long ms;

    if (!session_is_json(s)) {
        print_config(s);
        if (output_end() != 0)
            return 1;
    }
    opts.limit = 1;
    call = abx_sandbox_list(s->client, s->config, &opts);
    if (session_wait(s, call) < 0)
        return session_fail(s);
    ms = (time_mono_ns() - began) / NSEC_PER_MSEC;
    if (session_is_json(s)) {
        json_t *j = config_json(s);

        (void)json_object_set_new(j, "ok", json_true());
        (void)json_object_set_new(j, "ms", json_integer(ms));
        return output_json(j);
    }
    (void)printf("%-10s ok, %lld ms\n", "status", ms);
    return output_end();
}
