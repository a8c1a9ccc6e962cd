/* render.c - see render.h. */
#include "control/render.h"

#include <string.h>

#include "base/str.h"
#include "e2b/guest_abi.h"
#include "e2b/tokens.h"

/* The answer to a create is written before it becomes true. */
static const char *shown_state(const struct sandbox *sb)
{
    const char *shown = machine_state(sb->state)->shown;

    return shown ? shown : "running";
}

/* What all three forms have. */
static json_t *render_common(const struct render_context *c, const struct sandbox *sb)
{
    char started[RFC3339_SIZE], end[RFC3339_SIZE];

    time_format_rfc3339(sb->started_ms, started);
    time_format_rfc3339(sb->end_ms, end);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:O*}", "templateID",
                     sb->template_id, "sandboxID", sb->id, "clientID", c->client_id, "alias",
                     sb->alias, "envdVersion", E2B_ENVD_VERSION, "state", shown_state(sb),
                     "startedAt", started, "endAt", end, "cpuCount", (json_int_t)sb->cpu_count,
                     "memoryMB", (json_int_t)sb->memory_mb, "diskSizeMB", (json_int_t)sb->disk_mb,
                     "metadata", json_object_get(sb->config, "metadata"));
}

/* How to reach it, and with which tokens. */
static int add_access(const struct render_context *c, const struct sandbox *sb, json_t *j)
{
    char token[TOKEN_SIZE];
    int r = json_object_set_new(j, "domain", json_string(c->domain));

    r |= json_object_set_new(j, "envdUrl", json_string(c->envd_url));
    if (sb->is_secure) {
        access_token_make(c->seed, sb->id, token);
        r |= json_object_set_new(j, "envdAccessToken", json_string(token));
    }
    if (sb->is_traffic_private) {
        traffic_token_make(c->seed, sb->id, token);
        r |= json_object_set_new(j, "trafficAccessToken", json_string(token));
    }
    return r;
}

json_t *render_sandbox(const struct render_context *c, const struct sandbox *sb)
{
    json_t *j = render_common(c, sb);

    if (j && add_access(c, sb, j) == 0 &&
        json_object_set_new(j, "abxCodecs", json_pack("[s,s]", "json", "proto")) == 0)
        return j;
    json_decref(j);
    return NULL;
}

/* What nobody has to be told again: a proxy's password and authorities (e2b.md 1.3). NULL when out of memory. */
static json_t *without_password(const json_t *v)
{
    json_t *copy = json_deep_copy(v), *proxy = json_object_get(copy, "egressProxy");

    (void)json_object_del(proxy, "password");
    (void)json_object_del(json_object_get(proxy, "tls"), "caCert");
    return copy;
}

json_t *render_detail(const struct render_context *c, const struct sandbox *sb)
{
    static const char *const names[] = { "network", "lifecycle", "volumeMounts" };
    json_t *j = render_sandbox(c, sb);
    json_t *internet = json_object_get(sb->config, "allowInternetAccess");
    int r = j ? 0 : -1;

    for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
        json_t *v = json_object_get(sb->config, names[i]);

        if (v)
            r = json_object_set_new(j, names[i], without_password(v));
    }
    if (r == 0)
        r = json_object_set(j, "allowInternetAccess", internet ? internet : json_null());
    if (r == 0 && strcmp(shown_state(sb), "paused") == 0)
        r = json_object_set_new(j, "pauseMode",
                                json_string(sb->keeps_memory ? "full" : "filesystem"));
    if (r == 0)
        return j;
    json_decref(j);
    return NULL;
}

json_t *render_listed(const struct render_context *c, const struct sandbox *sb)
{
    json_t *j = render_common(c, sb);

    if (j && json_object_set_new(j, "envdUrl", json_string(c->envd_url)) == 0 &&
        json_object_set_new(j, "domain", json_string(c->domain)) == 0)
        return j;
    json_decref(j);
    return NULL;
}

static int append_piece(const char *p, size_t n, void *user)
{
    return buf_append(user, p, n) == BUF_OK ? 0 : -1;
}

int render_text(json_t *j, struct buf *b, struct abx_err *err)
{
    int r = j ? json_dump_callback(j, append_piece, b, JSON_COMPACT) : -1;

    json_decref(j);
    return r < 0 ? err_oom(err) : 0;
}
