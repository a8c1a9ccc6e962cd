/* create_request.c - see create_request.h; the network part is in create_network.c. */
#include "control/create_request.h"

#include <inttypes.h>
#include <string.h>

#include "control/create_network.h"

#define TIMEOUT_V1_S 15
#define TIMEOUT_V2_S 300
#define IAM_TOKENS_MAX 5

static int wrong_type(struct abx_err *err, const char *name, const char *want)
{
    return err_set(err, ABX_INVALID_ARGUMENT, "Error when parsing request: '%s' has to be %s", name,
                   want);
}

int json_get_int(const json_t *object, const char *name, int64_t *ret, struct abx_err *err)
{
    const json_t *v = json_object_get(object, name);

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) > INT32_MAX ||
        json_integer_value(v) < INT32_MIN)
        return wrong_type(err, name, "an integer of 32 bits");
    *ret = json_integer_value(v);
    return 1;
}

int json_get_bool(const json_t *object, const char *name, bool *ret, struct abx_err *err)
{
    const json_t *v = json_object_get(object, name);

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return wrong_type(err, name, "a boolean");
    *ret = json_is_true(v);
    return 1;
}

/* A member that has to be of a type; *ret NULL when absent or null. */
static int get_typed(const json_t *object, const char *name, json_type type, const char *want,
                     json_t **ret, struct abx_err *err)
{
    json_t *v = json_object_get(object, name);

    *ret = NULL;
    if (!v || json_is_null(v))
        return 0;
    if (json_typeof(v) != type)
        return wrong_type(err, name, want);
    *ret = v;
    return 0;
}

int timeout_check(int64_t timeout_s, int64_t max_timeout_s, struct abx_err *err)
{
    if (timeout_s <= 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "Timeout must be greater than 0");
    if (timeout_s <= max_timeout_s)
        return 0;
    if (max_timeout_s % 3600 == 0)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Timeout cannot be greater than %" PRId64 " hours", max_timeout_s / 3600);
    return err_set(err, ABX_INVALID_ARGUMENT, "Timeout cannot be greater than %" PRId64 " seconds",
                   max_timeout_s);
}

/* An object of strings; counts their bytes. */
static int check_string_map(json_t *map, const char *name, size_t each, size_t max,
                            struct abx_err *err)
{
    const char *key;
    json_t *value;
    size_t size = 0;

    json_object_foreach(map, key, value)
    {
        if (!json_is_string(value))
            return wrong_type(err, name, "an object of strings");
        size += strlen(key) + json_string_length(value) + each;
    }
    if (size > max)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s is too large: %zu bytes (max %zu)", name,
                       size, max);
    return 0;
}

static int check_envs(json_t *body, struct create_request *r, struct abx_err *err)
{
    json_t *envs, *value;
    const char *key;
    int c = get_typed(body, "envVars", JSON_OBJECT, "an object of strings", &envs, err);

    if (c == 0)
        c = check_string_map(envs, "envVars", CREATE_ENV_FRAME, CREATE_ENVS_MAX, err);
    if (c < 0)
        return c;
    json_object_foreach(envs, key, value)
    {
        if (key[0] == '\0' || strchr(key, '='))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "envVars: '%.64s' is not a name of an environment variable", key);
        if (strlen(json_string_value(value)) != json_string_length(value))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "envVars: the value of '%.64s' has a NUL character", key);
    }
    r->envs = envs;
    return 0;
}

static int check_lifecycle(json_t *body, struct create_request *r, struct abx_err *err)
{
    json_t *resume;
    bool pause = false, memory = true, is_resume = false;
    int c = json_get_bool(body, "autoPause", &pause, err);

    if (c >= 0)
        c = json_get_bool(body, "autoPauseMemory", &memory, err);
    if (c >= 0)
        c = get_typed(body, "autoResume", JSON_OBJECT, "an object", &resume, err);
    if (c >= 0 && json_get_bool(resume, "enabled", &is_resume, NULL) < 0)
        c = wrong_type(err, "autoResume.enabled", "a boolean");
    if (c < 0)
        return c;
    if (!memory && !pause)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "autoPauseMemory=false only applies when autoPause is true.");
    if (!memory && is_resume)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with "
                       "autoResume: a sandbox without its memory cannot be resumed by traffic.");
    if (json_object_set_new(r->config, "lifecycle",
                            json_pack("{s:b,s:s}", "autoResume", is_resume, "onTimeout",
                                      pause ? "pause" : "kill")) < 0 ||
        (pause && json_object_set_new(r->config, "autoPauseMemory", json_boolean(memory)) < 0))
        return err_oom(err);
    return 0;
}

/* *value is the default and becomes the answer. */
static int check_size(json_t *body, const char *name, uint32_t min, uint32_t max, uint32_t *value,
                      struct abx_err *err)
{
    int64_t v = *value;
    int c = json_get_int(body, name, &v, err);

    if (c < 0)
        return c;
    if (c > 0 && v < min)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s cannot be less than %" PRIu32, name, min);
    if (v > max)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s cannot be greater than %" PRIu32, name, max);
    *value = (uint32_t)v;
    return 0;
}

static int check_sizes(json_t *body, const struct create_limits *limits, struct create_request *r,
                       struct abx_err *err)
{
    json_t *gpu = json_object_get(body, "gpu");
    int c;

    r->cpu_count = limits->cpu_count;
    r->memory_mb = limits->memory_mb;
    r->disk_mb = limits->disk_mb;
    c = check_size(body, "cpuCount", 1, limits->max_cpu_count, &r->cpu_count, err);
    if (c == 0)
        c = check_size(body, "memoryMB", CREATE_MEMORY_MIN_MB, limits->max_memory_mb, &r->memory_mb,
                       err);
    if (c == 0)
        c = check_size(body, "diskSizeMB", CREATE_DISK_MIN_MB, limits->max_disk_mb, &r->disk_mb,
                       err);
    if (c == 0 && gpu && !json_is_null(gpu) && !json_is_false(gpu) &&
        !(json_is_integer(gpu) && json_integer_value(gpu) == 0))
        c = err_set(err, ABX_UNIMPLEMENTED, "gpu is not available on this server");
    return c;
}

static int check_volumes(json_t *body, struct abx_err *err)
{
    json_t *mounts, *mount;
    size_t i;
    int c = get_typed(body, "volumeMounts", JSON_ARRAY, "an array", &mounts, err);

    if (c < 0)
        return c;
    json_array_foreach(mounts, i, mount)
    {
        const char *name = json_string_value(json_object_get(mount, "name"));
        const char *path = json_string_value(json_object_get(mount, "path"));

        if (!name || !path)
            return wrong_type(err, "volumeMounts", "an array of {name, path}");
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "invalid mounts:\n\t- volume mount #%zu: volume '%.128s' not found", i,
                       name);
    }
    return 0;
}

static int check_iam(json_t *body, struct abx_err *err)
{
    json_t *iam, *tokens, *token;
    const char *name;
    int c = get_typed(body, "iam", JSON_OBJECT, "an object", &iam, err);

    if (c == 0)
        c = get_typed(iam, "tokens", JSON_OBJECT, "an object", &tokens, err);
    if (c < 0 || json_object_size(tokens) == 0)
        return c;
    if (json_object_size(tokens) > IAM_TOKENS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "iam.tokens: too many tokens: %zu (max %d)",
                       json_object_size(tokens), IAM_TOKENS_MAX);
    json_object_foreach(tokens, name, token)
    {
        if (!json_is_object(token))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "Error when parsing request: 'iam.tokens.%.64s' has to be an object",
                           name);
        const char *audience = json_string_value(json_object_get(token, "audience"));
        const char *type = json_string_value(json_object_get(token, "tokenType"));

        if (!audience || !audience[0])
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "iam.tokens.%.64s.audience: audience is required", name);
        if (!type || strcmp(type, "JWT-SVID") != 0)
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "iam.tokens.%.64s.tokenType: only \"JWT-SVID\" is supported", name);
    }
    return err_set(err, ABX_UNIMPLEMENTED, "iam is not available on this server");
}

/* What is kept as it came: metadata, mcp, allow_internet_access. */
static int keep_rest(json_t *body, struct create_request *r, struct abx_err *err)
{
    json_t *metadata, *mcp;
    bool internet = true;
    int has_internet, c;

    c = get_typed(body, "metadata", JSON_OBJECT, "an object of strings", &metadata, err);
    if (c == 0)
        c = check_string_map(metadata, "metadata", 0, CREATE_METADATA_MAX, err);
    if (c == 0)
        c = get_typed(body, "mcp", JSON_OBJECT, "an object", &mcp, err);
    if (c < 0)
        return c;
    has_internet = network_internet(body, &internet, err);
    if (has_internet < 0)
        return has_internet;
    if (json_object_set_new(r->config, "metadata",
                            metadata ? json_incref(metadata) : json_object()) < 0 ||
        (mcp && json_object_set(r->config, "mcp", mcp) < 0) ||
        (has_internet &&
         json_object_set_new(r->config, "allowInternetAccess", json_boolean(internet)) < 0))
        return err_oom(err);
    return 0;
}

static int check_network(json_t *body, bool is_v2, struct create_request *r, struct abx_err *err)
{
    json_t *network;
    int c = get_typed(body, "network", JSON_OBJECT, "an object", &network, err);

    if (c < 0 || !network)
        return c;
    c = network_check(network, false, err);
    if (c < 0)
        return c;
    if (!is_v2 && !r->is_secure && json_is_false(json_object_get(network, "allowPublicTraffic")))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "You cannot create a sandbox without public access unless you enable secure "
                       "envd access via 'secure' flag.");
    return json_object_set(r->config, "network", network) < 0 ? err_oom(err) : 0;
}

int create_request_parse(json_t *body, bool is_v2, const struct create_limits *limits,
                         struct create_request *ret, struct abx_err *err)
{
    struct create_request *r = ret;
    const json_t *template = json_object_get(body, "templateID");
    bool secure = true;
    int c;

    *r = (struct create_request){ .timeout_s = is_v2 ? TIMEOUT_V2_S : TIMEOUT_V1_S,
                                  .config = json_object() };
    if (!r->config)
        return err_oom(err);
    if (!json_is_object(body))
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "Error when parsing request: the body has to be a JSON object");
    r->template_text = json_string_value(template);
    if (!r->template_text || strlen(r->template_text) != json_string_length(template))
        return wrong_type(err, "templateID", "a string without NUL");
    c = json_get_int(body, "timeout", &r->timeout_s, err);
    if (c >= 0)
        c = timeout_check(r->timeout_s, limits->max_timeout_s, err);
    if (c >= 0)
        c = json_get_bool(body, "secure", &secure, err);
    if (c < 0)
        return c;
    r->is_secure = secure || is_v2; /* the second version knows no insecure sandboxes */
    c = check_envs(body, r, err);
    if (c == 0)
        c = keep_rest(body, r, err);
    if (c == 0)
        c = check_network(body, is_v2, r, err);
    if (c == 0)
        c = check_volumes(body, err);
    if (c == 0)
        c = check_iam(body, err);
    if (c == 0)
        c = check_sizes(body, limits, r, err);
    return c < 0 ? c : check_lifecycle(body, r, err);
}

void create_request_done(struct create_request *r)
{
    json_decref(r->config);
    r->config = NULL;
}
