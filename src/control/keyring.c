/* keyring.c - see keyring.h. */
#include "control/keyring.h"

#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "e2b/errors.h"

#define WRITE_EVERY_MS 60000

struct keyring {
    struct store *store;
    struct key *keys;
    size_t n, cap;
};

static const struct {
    const char *name;
    unsigned bit;
} scope_names[] = {
    { "sandbox:read", SCOPE_SANDBOX_READ },   { "sandbox:write", SCOPE_SANDBOX_WRITE },
    { "template:read", SCOPE_TEMPLATE_READ }, { "template:write", SCOPE_TEMPLATE_WRITE },
    { "metrics:read", SCOPE_METRICS_READ },
};

bool scopes_parse(struct slice text, unsigned *ret)
{
    unsigned scopes = 0;

    while (text.n > 0) {
        struct slice word = text;
        bool found = false;

        word.n = 0;
        while (word.n < text.n && text.p[word.n] != ' ')
            word.n++;
        text = slice_of(text.p + word.n, text.n - word.n);
        if (text.n > 0)
            text = slice_of(text.p + 1, text.n - 1);
        if (word.n == 0)
            continue;
        if (slice_eq_str(word, "*")) {
            scopes |= SCOPES_ALL;
            continue;
        }
        for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++) {
            if (!slice_eq_str(word, scope_names[i].name))
                continue;
            scopes |= scope_names[i].bit;
            found = true;
        }
        if (!found)
            return false;
    }
    *ret = scopes;
    return true;
}

void scopes_format(unsigned scopes, char to[96])
{
    size_t n = 0;

    to[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++)
        if (scopes & scope_names[i].bit)
            n += (size_t)snprintf(to + n, 96 - n, "%s%s", n ? " " : "", scope_names[i].name);
}

static struct key *append(struct keyring *k)
{
    if (k->n == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 16;
        struct key *more = reallocarray(k->keys, cap, sizeof(*more));

        if (!more)
            return NULL;
        k->keys = more;
        k->cap = cap;
    }
    k->keys[k->n] = (struct key){ 0 };
    return &k->keys[k->n++];
}

static void load_row(void *user, const struct store_key *row)
{
    struct keyring *k = user;
    struct key *key = append(k);

    if (!key) {
        log_error("no memory for a key", "id", row->id, NULL);
        return;
    }
    (void)snprintf(key->id, sizeof key->id, "%s", row->id);
    (void)snprintf(key->team, sizeof key->team, "%s", row->team);
    (void)snprintf(key->name, sizeof key->name, "%s", row->name);
    (void)snprintf(key->hash, sizeof key->hash, "%s", row->hash);
    (void)snprintf(key->mask, sizeof key->mask, "%s", row->mask);
    if (!scopes_parse(slice_str(row->scopes), &key->scopes))
        log_warn("key has scopes of a newer release: it may do nothing", "id", row->id, NULL);
    key->created_ms = row->created_ms;
    key->last_used_ms = row->last_used_ms;
    key->written_ms = row->last_used_ms;
    key->expires_ms = row->expires_ms;
    key->revoked_ms = row->revoked_ms;
}

int keyring_new(struct store *store, struct keyring **ret, struct abx_err *err)
{
    struct keyring *k = calloc(1, sizeof(*k));
    int r;

    if (!k)
        return err_oom(err);
    k->store = store;
    r = store_key_load(store, load_row, k, err);
    if (r < 0) {
        keyring_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

void keyring_free(struct keyring *k)
{
    if (!k)
        return;
    free(k->keys);
    free(k);
}

/* A hash is no secret that timing could tell: finding it byte by byte needs preimages. */
static struct key *find(struct keyring *k, struct slice text)
{
    char hash[TOKEN_SIZE];

    api_key_hash(text, hash);
    for (size_t i = 0; i < k->n; i++)
        if (memcmp(k->keys[i].hash, hash, TOKEN_SIZE) == 0)
            return &k->keys[i];
    return NULL;
}

bool keyring_enter(struct keyring *k, const struct key *key, size_t max, size_t *ret_place)
{
    size_t place = (size_t)(key - k->keys);

    if (key->n_requests >= max)
        return false;
    k->keys[place].n_requests++;
    *ret_place = place;
    return true;
}

void keyring_leave(struct keyring *k, size_t place)
{
    k->keys[place].n_requests--;
}

const struct key *keyring_find(struct keyring *k, struct slice text)
{
    return find(k, text);
}

bool key_is_active(const struct key *key)
{
    return key->revoked_ms == 0 && (key->expires_ms == 0 || key->expires_ms > time_wall_ms());
}

int keyring_check(struct keyring *k, struct slice api_key, struct slice authorization,
                  const struct key **ret, struct abx_err *err)
{
    int64_t now = time_wall_ms();
    struct key *key;

    if (api_key.n == 0 && authorization.n > 7 &&
        slice_ieq_str(slice_of(authorization.p, 7), "bearer "))
        api_key = slice_trim(slice_of(authorization.p + 7, authorization.n - 7));
    if (api_key.n == 0)
        return err_set(err, ABX_UNAUTHENTICATED, "%s", E2B_TEXT_KEY_MISSING);
    if (!api_key_is_valid(api_key))
        return err_set(err, ABX_UNAUTHENTICATED, "%s", E2B_TEXT_KEY_FORMAT);
    key = find(k, api_key);
    if (!key || !key_is_active(key))
        return err_set(err, ABX_UNAUTHENTICATED, "%s", E2B_TEXT_KEY_UNKNOWN);
    key->last_used_ms = now;
    if (now - key->written_ms >= WRITE_EVERY_MS &&
        store_key_used(k->store, key->id, now, NULL) == 0)
        key->written_ms = now;
    *ret = key;
    return 0;
}

int keyring_add(struct keyring *k, const char *team, const char *name, unsigned scopes,
                int64_t expires_ms, char ret_text[API_KEY_SIZE], const struct key **ret,
                store_done_fn done, void *user, struct abx_err *err)
{
    char scope_text[96];
    struct store_key row;
    struct key *key;
    int r;

    if (strlen(name) >= sizeof key->name)
        return err_set(err, ABX_INVALID_ARGUMENT, "the name of a key has at most 64 characters");
    key = append(k);
    if (!key)
        return err_oom(err);
    api_key_new(ret_text);
    id_random(key->id, 12);
    (void)snprintf(key->team, sizeof key->team, "%s", team);
    (void)snprintf(key->name, sizeof key->name, "%s", name);
    api_key_hash(slice_str(ret_text), key->hash);
    (void)snprintf(key->mask, sizeof key->mask, "%.8s...%s", ret_text, ret_text + 40);
    key->scopes = scopes;
    key->created_ms = time_wall_ms();
    key->expires_ms = expires_ms;
    scopes_format(scopes, scope_text);
    row = (struct store_key){
        .id = key->id,
        .team = key->team,
        .name = key->name,
        .hash = key->hash,
        .mask = key->mask,
        .scopes = scope_text,
        .created_ms = key->created_ms,
        .expires_ms = expires_ms,
    };
    r = store_key_add(k->store, &row, done, user, err);
    if (r < 0) {
        k->n--;
        return r;
    }
    *ret = key;
    return 0;
}

int keyring_revoke(struct keyring *k, const char *id_or_key, char ret_id[16], store_done_fn done,
                   void *user, struct abx_err *err)
{
    struct key *key = NULL;
    int64_t now = time_wall_ms();
    int r;

    if (api_key_is_valid(slice_str(id_or_key)))
        key = find(k, slice_str(id_or_key));
    for (size_t i = 0; i < k->n && !key; i++)
        if (strcmp(k->keys[i].id, id_or_key) == 0)
            key = &k->keys[i];
    if (!key)
        return err_set(err, ABX_NOT_FOUND, "there is no such key");
    r = store_key_revoke(k->store, key->id, now, done, user, err);
    if (r < 0)
        return r;
    if (key->revoked_ms == 0)
        key->revoked_ms = now;
    (void)snprintf(ret_id, 16, "%s", key->id);
    return 0;
}

size_t keyring_count(const struct keyring *k)
{
    return k->n;
}

const struct key *keyring_at(const struct keyring *k, size_t i)
{
    return &k->keys[i];
}
