/* sandbox_table.c - objects of sandboxes: making, finding, walking, freeing. See lifecycle.h. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "control/lifecycle_internal.h"

#define BUCKETS_FIRST 1024u

int table_init(struct lifecycle *l, struct abx_err *err)
{
    l->n_buckets = BUCKETS_FIRST;
    l->buckets = calloc(l->n_buckets, sizeof(*l->buckets));
    return l->buckets ? 0 : err_oom(err);
}

void table_done(struct lifecycle *l)
{
    free(l->buckets);
}

static struct sandbox **bucket(const struct lifecycle *l, const char *id)
{
    return &l->buckets[str_hash(id) & (l->n_buckets - 1)];
}

/* Doubles the buckets; when there is no memory for it, chains just get longer. */
static void grow(struct lifecycle *l)
{
    struct sandbox **old = l->buckets, **more = calloc(l->n_buckets * 2, sizeof(*more));

    if (!more)
        return;
    l->buckets = more;
    l->n_buckets *= 2;
    for (struct sandbox *sb = l->first; sb; sb = sb->next) {
        struct sandbox **b = bucket(l, sb->id);

        sb->hash_next = *b;
        *b = sb;
    }
    free(old);
}

struct sandbox *lifecycle_find(const struct lifecycle *l, const char *id)
{
    for (struct sandbox *sb = *bucket(l, id); sb; sb = sb->hash_next)
        if (strcmp(sb->id, id) == 0)
            return sb;
    return NULL;
}

int table_add(struct lifecycle *l, struct sandbox *sb, struct abx_err *err)
{
    struct sandbox **b;

    if (lifecycle_find(l, sb->id))
        return err_set(err, ABX_ALREADY_EXISTS, "sandbox '%s' exists", sb->id);
    b = bucket(l, sb->id);
    sb->hash_next = *b;
    *b = sb;
    sb->number = ++l->last_number;
    sb->prev = l->last;
    sb->next = NULL;
    if (l->last)
        l->last->next = sb;
    else
        l->first = sb;
    l->last = sb;
    if (++l->count > l->n_buckets)
        grow(l);
    return 0;
}

void table_remove(struct lifecycle *l, struct sandbox *sb)
{
    struct sandbox **at = bucket(l, sb->id);

    while (*at != sb)
        at = &(*at)->hash_next;
    *at = sb->hash_next;
    if (sb->prev)
        sb->prev->next = sb->next;
    else
        l->first = sb->next;
    if (sb->next)
        sb->next->prev = sb->prev;
    else
        l->last = sb->prev;
    l->count--;
}

struct sandbox *lifecycle_next(const struct lifecycle *l, const struct sandbox *sb)
{
    return sb ? sb->next : l->first;
}

struct sandbox *lifecycle_after(const struct lifecycle *l, uint64_t number)
{
    struct sandbox *sb = l->first;

    while (sb && sb->number <= number)
        sb = sb->next;
    return sb;
}

size_t lifecycle_count(const struct lifecycle *l)
{
    return l->count;
}

bool sandbox_is_visible(const struct sandbox *sb)
{
    return machine_state(sb->state)->shown != NULL;
}

bool sandbox_pauses_itself(const struct sandbox *sb)
{
    const char *on_timeout =
        json_string_value(json_object_get(json_object_get(sb->config, "lifecycle"), "onTimeout"));

    return on_timeout && strcmp(on_timeout, "pause") == 0;
}

bool sandbox_wakes_itself(const struct sandbox *sb)
{
    return json_is_true(json_object_get(json_object_get(sb->config, "lifecycle"), "autoResume"));
}

size_t lifecycle_count_active(const struct lifecycle *l, const char *team,
                              const struct sandbox *before)
{
    size_t n = 0;

    for (const struct sandbox *sb = l->first; sb && sb != before; sb = sb->next)
        if (machine_state(sb->state)->is_active && strcmp(sb->team, team) == 0)
            n++;
    return n;
}

/* --- objects ----------------------------------------------------------------------------------- */

struct sandbox *sandbox_new(struct lifecycle *l, struct abx_err *err)
{
    struct sandbox *sb = calloc(1, sizeof(*sb));

    if (!sb) {
        (void)err_oom(err);
        return NULL;
    }
    sb->lifecycle = l;
    (void)uv_timer_init(l->opts.loop, &sb->timer);
    return sb;
}

static void on_timer_closed(uv_handle_t *h)
{
    struct sandbox *sb = container_of((uv_timer_t *)(void *)h, struct sandbox, timer);

    sandbox_forget_envs(sb);
    while (sb->waiting) {
        struct operation *op = sb->waiting;

        sb->waiting = op->next;
        operation_free(op);
    }
    if (sb->operation)
        operation_free(sb->operation);
    free(sb->config_text);
    free(sb->answer);
    free(sb->data);
    free(sb->late_data);
    json_decref(sb->config);
    json_decref(sb->config_next);
    free(sb);
}

void sandbox_free_later(struct sandbox *sb)
{
    uv_close((uv_handle_t *)&sb->timer, on_timer_closed);
}

int sandbox_set_config(struct sandbox *sb, json_t *config, struct abx_err *err)
{
    char *text = json_dumps(config, JSON_COMPACT);

    if (!text)
        return err_oom(err);
    free(sb->config_text);
    json_decref(sb->config);
    sb->config_text = text;
    sb->config = json_incref(config);
    sb->is_traffic_private =
        json_is_false(json_object_get(json_object_get(config, "network"), "allowPublicTraffic"));
    return 0;
}

void sandbox_forget_envs(struct sandbox *sb)
{
    if (sb->env_text)
        explicit_bzero(sb->env_text, sb->env_size);
    if (sb->env_json)
        explicit_bzero(sb->env_json, strlen(sb->env_json));
    free(sb->env_text);
    free(sb->env_json);
    free(sb->envs);
    sb->env_text = sb->env_json = NULL;
    sb->envs = NULL;
    sb->n_envs = 0;
}

/* Copies with the NUL; returns what lies behind it. */
static char *put(char *to, const char *from)
{
    size_t n = strlen(from) + 1;

    memcpy(to, from, n);
    return to + n;
}

int sandbox_keep_envs(struct sandbox *sb, const struct driver_env *envs, size_t n,
                      struct abx_err *err)
{
    size_t size = 1;
    char *to;

    for (size_t i = 0; i < n; i++)
        size += strlen(envs[i].name) + strlen(envs[i].value) + 2;
    sb->envs = calloc(n + 1, sizeof(*sb->envs));
    sb->env_text = malloc(size);
    if (!sb->envs || !sb->env_text)
        return err_oom(err);
    sb->env_size = size;
    to = sb->env_text;
    for (size_t i = 0; i < n; i++) {
        sb->envs[i].name = to;
        to = put(to, envs[i].name);
        sb->envs[i].value = to;
        to = put(to, envs[i].value);
    }
    sb->n_envs = n;
    return 0;
}

/* As it is kept in the row: a JSON object, nothing when there are none. */
static int write_envs(struct sandbox *sb, struct abx_err *err)
{
    json_t *j;

    if (sb->n_envs == 0)
        return 0;
    j = json_object();
    for (size_t i = 0; j && i < sb->n_envs; i++)
        if (json_object_set_new(j, sb->envs[i].name, json_string(sb->envs[i].value)) < 0) {
            json_decref(j);
            j = NULL;
        }
    sb->env_json = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return sb->env_json ? 0 : err_oom(err);
}

static int read_envs(struct sandbox *sb, const char *text, struct abx_err *err)
{
    _cleanup_(freep) struct driver_env *envs = NULL;
    json_t *j, *value;
    const char *name;
    size_t n = 0;
    int r = 0;

    if (!text || text[0] == '\0')
        return 0;
    j = json_loads(text, 0, NULL);
    envs = calloc(json_object_size(j) + 1, sizeof(*envs));
    if (!json_is_object(j) || !envs)
        r = err_set(err, ABX_DATA_LOSS, "the environment of sandbox '%s' is damaged", sb->id);
    json_object_foreach(j, name, value)
    {
        if (r < 0)
            break;
        envs[n].name = name;
        envs[n].value = json_string_value(value);
        if (!envs[n++].value)
            r = err_set(err, ABX_DATA_LOSS, "the environment of sandbox '%s' is damaged", sb->id);
    }
    if (r == 0)
        r = sandbox_keep_envs(sb, envs, n, err);
    json_decref(j);
    return r;
}

static bool copy(char *to, size_t size, const char *from)
{
    return snprintf(to, size, "%s", from ? from : "") < (int)size;
}

int sandbox_from_spec(struct sandbox *sb, const struct sandbox_spec *spec, struct abx_err *err)
{
    int r;

    sandbox_id_new(sb->id);
    if (!copy(sb->team, sizeof sb->team, spec->team) ||
        !copy(sb->template_id, sizeof sb->template_id, spec->template_id) ||
        !copy(sb->build_id, sizeof sb->build_id, spec->build_id) ||
        !copy(sb->digest, sizeof sb->digest, spec->digest) ||
        !copy(sb->alias, sizeof sb->alias, spec->alias) ||
        !copy(sb->idempotency_key, sizeof sb->idempotency_key, spec->idempotency_key) ||
        !copy(sb->request_id, sizeof sb->request_id, spec->request_id) ||
        !copy(sb->clone_of, sizeof sb->clone_of, spec->clone_of) ||
        !copy(sb->fork_of, sizeof sb->fork_of, spec->fork_of) ||
        !copy(sb->origin, sizeof sb->origin, spec->origin))
        return err_set(err, ABX_INVALID_ARGUMENT, "a name of the sandbox is too long");
    sb->is_secure = spec->is_secure;
    sb->created_ms = time_wall_ms();
    sb->timeout_ms = spec->timeout_ms;
    sb->max_active = spec->max_active;
    sb->cpu_count = spec->cpu_count;
    sb->memory_mb = spec->memory_mb;
    sb->disk_mb = spec->disk_mb;
    r = sandbox_set_config(sb, spec->config, err);
    if (r == 0)
        r = sandbox_keep_envs(sb, spec->envs, spec->n_envs, err);
    return r < 0 ? r : write_envs(sb, err);
}

static void note_damage(struct sandbox *sb, const char *what)
{
    if (!sb->damage[0])
        (void)snprintf(sb->damage, sizeof sb->damage, "in the database its %s is damaged", what);
}

int sandbox_check_row(const struct sandbox *sb, bool starts_anew, struct abx_err *err)
{
    if (sb->damage[0])
        return err_reason(err, ABX_REASON_SAVED_STATE, "%s", sb->damage);
    return starts_anew && sb->has_lost_envs
               ? err_reason(err, ABX_REASON_SAVED_STATE, "in the database its envs are damaged")
               : 0;
}

/* Clients are told of it as JSON. */
static void copy_or_note(struct sandbox *sb, char *to, size_t size, const char *from,
                         const char *what)
{
    if (utf8_is_valid(slice_str(from ? from : "")) && copy(to, size, from))
        return;
    to[0] = '\0';
    note_damage(sb, what);
}

static void copy_texts(struct sandbox *sb, const struct store_sandbox *row)
{
    const struct {
        char *to;
        size_t size;
        const char *from, *what;
    } texts[] = {
        { sb->team, sizeof sb->team, row->team, "team_id" },
        { sb->template_id, sizeof sb->template_id, row->template_id, "template_id" },
        { sb->build_id, sizeof sb->build_id, row->build_id, "build_id" },
        { sb->digest, sizeof sb->digest, row->digest, "digest" },
        { sb->alias, sizeof sb->alias, row->alias, "alias" },
        { sb->execution_id, sizeof sb->execution_id, row->execution_id, "execution_id" },
        { sb->idempotency_key, sizeof sb->idempotency_key, row->idempotency_key,
          "idempotency_key" },
        { sb->rollback_copy, sizeof sb->rollback_copy, row->rollback_copy, "rollback_copy" },
        { sb->rollback_to, sizeof sb->rollback_to, row->rollback_to, "rollback_to" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        copy_or_note(sb, texts[i].to, texts[i].size, texts[i].from, texts[i].what);
}

/* What it might reach, and whether it was to end with its time, cannot be known: it reaches nothing, and stays. */
static json_t *config_of_unknown(void)
{
    return json_pack("{s:b,s:{s:b},s:{s:s}}", "allowInternetAccess", 0, "network",
                     "allowPublicTraffic", 0, "lifecycle", "onTimeout", "pause");
}

static int take_config(struct sandbox *sb, const char *text, struct abx_err *err)
{
    json_t *config = json_loads(text ? text : "", 0, NULL);
    int r;

    if (!json_is_object(config)) {
        json_decref(config);
        note_damage(sb, "config");
        config = config_of_unknown();
        if (!config)
            return err_oom(err);
    }
    r = sandbox_set_config(sb, config, err);
    json_decref(config);
    return r;
}

int sandbox_from_row(struct sandbox *sb, const struct store_sandbox *row, struct abx_err *err)
{
    int r;

    if (!row->id || !sandbox_id_parse(slice_str(row->id), sb->id) || strcmp(sb->id, row->id) != 0)
        return err_set(err, ABX_DATA_LOSS, "the id '%.60s' is damaged", row->id ? row->id : "");
    copy_texts(sb, row);
    sb->is_secure = row->is_secure;
    sb->created_ms = row->created_ms;
    sb->started_ms = row->started_ms;
    sb->end_ms = row->end_ms;
    sb->cpu_count = row->cpu_count;
    sb->memory_mb = row->memory_mb;
    sb->disk_mb = row->disk_mb;
    r = take_config(sb, row->config, err);
    /* A pause that is said not to keep it ends what is there of it. */
    sb->is_missing = row->pause_mode && strcmp(row->pause_mode, "lost") == 0;
    sb->keeps_memory =
        !sb->is_missing && (!row->pause_mode || strcmp(row->pause_mode, "filesystem") != 0);
    if (r == 0)
        r = read_envs(sb, row->envs, err);
    if (r == ABX_DATA_LOSS) {
        sb->has_lost_envs = true;
        r = 0;
    }
    return r;
}

struct store_sandbox sandbox_row(const struct sandbox *sb, const char *state)
{
    return (struct store_sandbox){
        .id = sb->id,
        .team = sb->team,
        .template_id = sb->template_id,
        .build_id = sb->build_id,
        .digest = sb->digest,
        .alias = sb->alias,
        .state = state,
        .is_secure = sb->is_secure,
        .created_ms = sb->created_ms,
        .started_ms = sb->started_ms,
        .end_ms = sb->end_ms,
        .cpu_count = sb->cpu_count,
        .memory_mb = sb->memory_mb,
        .disk_mb = sb->disk_mb,
        .execution_id = sb->execution_id,
        .config = sb->config_text,
        .envs = sb->env_json,
        .pause_mode = sb->keeps_memory ? "full" : "filesystem",
        .idempotency_key = sb->idempotency_key,
        .rollback_copy = sb->rollback_copy,
        .rollback_to = sb->rollback_to,
    };
}
