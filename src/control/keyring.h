/* keyring.h - API keys in memory: who may ask for what.
 *
 * A key is known by its hash only; the text is told once, when it is made. Texts of refusals are
 * E2B's (e2b.md 1.1). The last use is written down at most once a minute.
 */
#pragma once

#include "base/buf.h"
#include "e2b/ids.h"
#include "e2b/tokens.h"
#include "store/store.h"

enum key_scope {
    SCOPE_SANDBOX_READ = 1,
    SCOPE_SANDBOX_WRITE = 2,
    SCOPE_TEMPLATE_READ = 4,
    SCOPE_TEMPLATE_WRITE = 8,
    SCOPE_METRICS_READ = 16, /* of the whole machine: only keys made for it have it */
};
#define SCOPES_ALL 15u /* of a team: "*" */

struct key {
    char id[16];
    char team[UUID_SIZE];
    char name[65];
    char hash[TOKEN_SIZE];
    char mask[16]; /* "e2b_1234...cdef" */
    unsigned scopes;
    int64_t created_ms;
    int64_t last_used_ms; /* 0 = never */
    int64_t expires_ms;   /* 0 = never */
    int64_t revoked_ms;   /* 0 = not */
    int64_t written_ms;   /* last_used_ms as the database has it */
    size_t n_requests;    /* under way */
};

struct keyring;

/* Loads all keys: at start only. */
int keyring_new(struct store *store, struct keyring **ret, struct abx_err *err);
void keyring_free(struct keyring *k);

/* The key of a request: the value of X-API-Key, else of Authorization ("Bearer <key>"); empty when
 * absent. UNAUTHENTICATED with E2B's text else. Borrowed until the next add. */
int keyring_check(struct keyring *k, struct slice api_key, struct slice authorization,
                  const struct key **ret, struct abx_err *err);

/* Counts a request of that key that is under way; false when it has `max` already. `ret_place`, for
 * keyring_leave, stays good whatever is added. */
bool keyring_enter(struct keyring *k, const struct key *key, size_t max, size_t *ret_place);
void keyring_leave(struct keyring *k, size_t place);

/* The key of that text, revoked ones too; NULL when there is none. Its use is not counted. */
const struct key *keyring_find(struct keyring *k, struct slice text);
/* Does it open anything (neither revoked nor expired)? */
bool key_is_active(const struct key *key);

/* Makes a key; `name` up to 64 characters, `expires_ms` 0 = never. It counts from now on; it is on
 * disk when `done` comes. *ret is borrowed until the next add. */
int keyring_add(struct keyring *k, const char *team, const char *name, unsigned scopes,
                int64_t expires_ms, char ret_text[API_KEY_SIZE], const struct key **ret,
                store_done_fn done, void *user, struct abx_err *err);
/* Revokes by id or by the key itself; `ret_id` gets the id. NOT_FOUND. On disk when `done` comes. */
int keyring_revoke(struct keyring *k, const char *id_or_key, char ret_id[16], store_done_fn done,
                   void *user, struct abx_err *err);
size_t keyring_count(const struct keyring *k);
const struct key *keyring_at(const struct keyring *k, size_t i);

/* "sandbox:read" and so on, separated by spaces; "*" = all. False for an unknown name. */
bool scopes_parse(struct slice text, unsigned *ret);
void scopes_format(unsigned scopes, char to[96]);
