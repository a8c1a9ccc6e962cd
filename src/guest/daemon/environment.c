/* environment.c - see environment.h. */
#include "guest/daemon/environment.h"

#include <stdio.h>
#include <string.h>

#include "e2b/guest_abi.h"

#define OWN_MAX 7

struct env {
    char **list;
    size_t n;
};

void environment_free(char **envp)
{
    if (!envp)
        return;
    for (size_t i = 0; envp[i]; i++)
        free(envp[i]);
    free(envp);
}

/* Adds or replaces; `list` has room. */
static int env_set(struct env *e, const char *key, const char *value, struct abx_err *err)
{
    size_t n = strlen(key), i = 0;
    char *s;

    if (n == 0 || strchr(key, '='))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no name of an environment variable",
                       key);
    if (asprintf(&s, "%s=%s", key, value) < 0)
        return err_oom(err);
    while (i < e->n && (strncmp(e->list[i], key, n) != 0 || e->list[i][n] != '='))
        i++;
    if (i == e->n)
        e->n++;
    else
        free(e->list[i]);
    e->list[i] = s;
    return 0;
}

static int env_set_all(struct env *e, const struct identity *id, const struct user *u,
                       const Process__ProcessConfig *config, struct abx_err *err)
{
    const char *const own[][2] = {
        { "PATH", GUEST_PATH },
        { "HOME", u->home },
        { "USER", u->name },
        { "LOGNAME", u->name },
        { "E2B_SANDBOX", "true" },
        { "E2B_SANDBOX_ID", id->sandbox_id },
        { "E2B_TEMPLATE_ID", id->template_id },
    };
    int r = 0;

    _Static_assert(ARRAY_SIZE(own) == OWN_MAX, "room in environment_make");
    for (size_t i = 0; r == 0 && i < OWN_MAX; i++)
        r = env_set(e, own[i][0], own[i][1], err);
    for (size_t i = 0; r == 0 && i < id->n_envs; i++) {
        char *eq = strchr(id->envs[i], '='); /* made by identity.c */
        *eq = '\0';
        r = env_set(e, id->envs[i], eq + 1, err);
        *eq = '=';
    }
    for (size_t i = 0; r == 0 && i < config->n_envs; i++)
        r = env_set(e, config->envs[i]->key, config->envs[i]->value, err);
    return r;
}

int environment_make(const struct identity *id, const struct user *u,
                     const Process__ProcessConfig *config, char ***ret, struct abx_err *err)
{
    struct env e = { 0 };
    int r;

    if (config->n_envs > ENVIRONMENT_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "over %d environment variables", ENVIRONMENT_MAX);
    e.list = calloc(OWN_MAX + id->n_envs + config->n_envs + 1, sizeof(*e.list));
    if (!e.list)
        return err_oom(err);
    r = env_set_all(&e, id, u, config, err);
    if (r < 0) {
        environment_free(e.list);
        return r;
    }
    *ret = e.list;
    return 0;
}
