/* tokens.h - tokens of sandboxes, signatures of file URLs, API keys (e2b.md 1.1, 1.3, 4.4).
 *
 * The tokens of a sandbox are functions of a seed, which control makes once per data dir, and its
 * id: they stay the same across pause and resume and need not be stored. Nothing here logs.
 */
#pragma once

#include <nettle/sha2.h>

#include "base/buf.h"

#define TOKEN_SEED_SIZE 32
#define TOKEN_SIZE 65 /* 64 hex digits and NUL */

/* envdAccessToken: hex HMAC-SHA256(seed, "<id>"). */
void access_token_make(const uint8_t seed[TOKEN_SEED_SIZE], const char *sandbox_id,
                       char to[TOKEN_SIZE]);
/* trafficAccessToken: the same over "sandbox-traffic-<id>". */
void traffic_token_make(const uint8_t seed[TOKEN_SEED_SIZE], const char *sandbox_id,
                        char to[TOKEN_SIZE]);
/* Equal texts, compared in constant time. */
bool token_equal(struct slice a, struct slice b);

#define SIGNATURE_SIZE 47 /* "v1_", 43 characters of base64 without padding, NUL */
#define SIGNATURE_NO_EXPIRATION INT64_MIN

/* Signature of a file URL: sha256 over "<path>:<operation>:<username>:<token>" and, unless
 * SIGNATURE_NO_EXPIRATION, ":<expiration>" (unix seconds). `operation` is "read" or "write". */
void signature_make(struct slice path, const char *operation, struct slice username,
                    struct slice token, int64_t expiration_s, char to[SIGNATURE_SIZE]);

/* The same in two steps, for whoever tries many tokens: what comes before the token is hashed once,
 * however long it is. */
struct signature_base {
    struct sha256_ctx hash;
};
void signature_begin(struct slice path, const char *operation, struct slice username,
                     struct signature_base *ret);
void signature_finish(const struct signature_base *base, struct slice token, int64_t expiration_s,
                      char to[SIGNATURE_SIZE]);

#define API_KEY_SIZE 45 /* "e2b_", 40 hex digits, NUL */

void api_key_new(char to[API_KEY_SIZE]);
/* Begins with "e2b_", the rest is hex of 1..64 bytes? */
bool api_key_is_valid(struct slice key);
/* What is stored of a key: hex SHA-256. */
void api_key_hash(struct slice key, char to[TOKEN_SIZE]);

/* Hex SHA-256 of any bytes. */
void sha256_hex(struct slice s, char to[TOKEN_SIZE]);
