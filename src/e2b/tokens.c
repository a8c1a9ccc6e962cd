/* tokens.c - see tokens.h. */
#include "e2b/tokens.h"

#include <inttypes.h>
#include <nettle/hmac.h>
#include <nettle/sha2.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/str.h"

static void hmac_hex(const uint8_t seed[TOKEN_SEED_SIZE], const char *prefix, const char *id,
                     char to[TOKEN_SIZE])
{
    struct hmac_sha256_ctx h;
    uint8_t digest[SHA256_DIGEST_SIZE];

    hmac_sha256_set_key(&h, TOKEN_SEED_SIZE, seed);
    hmac_sha256_update(&h, strlen(prefix), (const uint8_t *)prefix);
    hmac_sha256_update(&h, strlen(id), (const uint8_t *)id);
    hmac_sha256_digest(&h, sizeof digest, digest);
    hex_encode(digest, sizeof digest, to);
}

void access_token_make(const uint8_t seed[TOKEN_SEED_SIZE], const char *sandbox_id,
                       char to[TOKEN_SIZE])
{
    hmac_hex(seed, "", sandbox_id, to);
}

void traffic_token_make(const uint8_t seed[TOKEN_SEED_SIZE], const char *sandbox_id,
                        char to[TOKEN_SIZE])
{
    hmac_hex(seed, "sandbox-traffic-", sandbox_id, to);
}

bool token_equal(struct slice a, struct slice b)
{
    return a.n == b.n && mem_equal_ct(a.p, b.p, a.n);
}

static void sha_slice(struct sha256_ctx *c, struct slice s)
{
    if (s.n > 0)
        sha256_update(c, s.n, s.p);
}

void signature_begin(struct slice path, const char *operation, struct slice username,
                     struct signature_base *ret)
{
    struct sha256_ctx *c = &ret->hash;

    sha256_init(c);
    sha_slice(c, path);
    sha_slice(c, SLICE_LIT(":"));
    sha_slice(c, slice_str(operation));
    sha_slice(c, SLICE_LIT(":"));
    sha_slice(c, username);
    sha_slice(c, SLICE_LIT(":"));
}

void signature_finish(const struct signature_base *base, struct slice token, int64_t expiration_s,
                      char to[SIGNATURE_SIZE])
{
    struct sha256_ctx c = base->hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    uint8_t mem[SIGNATURE_SIZE];
    struct buf text = { .mem = mem, .cap = sizeof mem, .limit = sizeof mem };

    sha_slice(&c, token);
    if (expiration_s != SIGNATURE_NO_EXPIRATION) {
        char number[24];
        int n = snprintf(number, sizeof number, ":%" PRId64, expiration_s);

        sha256_update(&c, (size_t)n, (const uint8_t *)number);
    }
    sha256_digest(&c, sizeof digest, digest);
    /* The buffer is as large as the result, so that it never grows and nothing here can fail. */
    (void)buf_append(&text, "v1_", 3);
    (void)base64_encode(&text, slice_of(digest, sizeof digest), false);
    memcpy(to, mem, SIGNATURE_SIZE - 1);
    to[SIGNATURE_SIZE - 1] = '\0';
}

void signature_make(struct slice path, const char *operation, struct slice username,
                    struct slice token, int64_t expiration_s, char to[SIGNATURE_SIZE])
{
    struct signature_base base;

    signature_begin(path, operation, username, &base);
    signature_finish(&base, token, expiration_s, to);
}

void api_key_new(char to[API_KEY_SIZE])
{
    uint8_t raw[20];

    random_bytes(raw, sizeof raw);
    memcpy(to, "e2b_", 4);
    hex_encode(raw, sizeof raw, to + 4);
}

bool api_key_is_valid(struct slice key)
{
    uint8_t raw[64];

    if (!slice_starts_with(key, "e2b_") || key.n <= 4 || key.n - 4 > 2 * sizeof raw)
        return false;
    return hex_decode(slice_of(key.p + 4, key.n - 4), raw, (key.n - 4) / 2);
}

void sha256_hex(struct slice s, char to[TOKEN_SIZE])
{
    struct sha256_ctx c;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&c);
    sha_slice(&c, s);
    sha256_digest(&c, sizeof digest, digest);
    hex_encode(digest, sizeof digest, to);
}

void api_key_hash(struct slice key, char to[TOKEN_SIZE])
{
    sha256_hex(key, to);
}
