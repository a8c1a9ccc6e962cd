/* environment.c - see environment.h.
 *
 * The loop makes one for each command, so names are looked up in a table: thousands of variables are
 * allowed.
 */
#include "guest/daemon/environment.h"

#include <stdio.h>
#include <string.h>

#include "e2b/guest_abi.h"

#define OWN_MAX 7

struct env {
    char **list;
    size_t n;
    uint32_t *slots; /* by hash of the name: place in the list + 1, 0 = empty; never full */
    uint32_t mask;
};

void environment_free(char **envp)
{
    if (!envp)
        return;
    for (size_t i = 0; envp[i]; i++)
        free(envp[i]);
    free(envp);
}

/* Where the name is or belongs. */
static uint32_t *slot_find(const struct env *e, const char *key, size_t n)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)key[i]) * 16777619u;
    for (;; hash++) {
        uint32_t *slot = &e->slots[hash & e->mask];

        if (*slot == 0 ||
            (strncmp(e->list[*slot - 1], key, n) == 0 && e->list[*slot - 1][n] == '='))
            return slot;
    }
}

/* Adds or replaces; there is room. */
static int env_set(struct env *e, const char *key, const char *value, struct abx_err *err)
{
    size_t n = strlen(key);
    uint32_t *slot;
    char *s;

    if (n == 0 || strchr(key, '='))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no name of an environment variable",
                       key);
    if (asprintf(&s, "%s=%s", key, value) < 0)
        return err_oom(err);
    slot = slot_find(e, key, n);
    if (*slot == 0)
        *slot = (uint32_t)++e->n;
    else
        free(e->list[*slot - 1]);
    e->list[*slot - 1] = s;
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
    size_t most = OWN_MAX + id->n_envs + config->n_envs;
    struct env e = { .mask = 63 };
    int r;

    if (config->n_envs > ENVIRONMENT_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "over %d environment variables", ENVIRONMENT_MAX);
    while (e.mask < 2 * most)
        e.mask = e.mask * 2 + 1;
    e.list = calloc(most + 1, sizeof(*e.list));
    e.slots = calloc((size_t)e.mask + 1, sizeof(*e.slots));
    r = e.list && e.slots ? env_set_all(&e, id, u, config, err) : err_oom(err);
    free(e.slots);
    if (r < 0) {
        environment_free(e.list);
        return r;
    }
    *ret = e.list;
    return 0;
}
