/* config.h - where to connect, as whom, and how patiently.
 *
 * A config is an immutable set of resolved values, shared by reference count (atomic). Each value
 * comes from the first layer that has it: options > process environment > ./.env > ~/.abx/.env >
 * ~/.abx/config.toml > the service running on this machine > default. Key, base URL and domain always
 * come from one source: the local service is used only when no layer above it sets one of the three.
 * Secrets are never taken from config.toml. A profile NAME is the table [profiles.NAME] of config.toml, before its other
 * tables, and the file ~/.abx/.env.NAME, before ~/.abx/.env; either makes one. ABX_* names come before E2B_* names of the same layer;
 * E2B_* are read from options and the process environment only (client.md 2.1, 2.2).
 */
#ifndef ABX_CONFIG_H
#define ABX_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "abx/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct abx_pair {
    const char *key;
    const char *value;
};

typedef struct abx_config abx_config;

/* One step of an HTTP exchange, for logs. */
enum abx_trace_kind {
    ABX_TRACE_REQUEST,  /* it goes out; again for each further try */
    ABX_TRACE_RESPONSE, /* an answer: of a stream its head, else the whole of it */
    ABX_TRACE_END,      /* of a stream whose head was told: its end, or what broke it */
    ABX_TRACE_FAILED    /* there is no answer, or not the whole of it */
};
struct abx_trace {
    size_t size;
    enum abx_trace_kind kind;
    const char *method;  /* "POST" */
    const char *url;     /* scheme, host and path: no query, user or password, up to 1 KiB */
    int status;          /* of RESPONSE and END; of FAILED 0 = none came */
    int is_stream;       /* the answer goes on for as long as there is something to tell */
    int64_t duration_ms; /* since REQUEST */
    const struct abx_error *error; /* of FAILED; of END when it broke or was canceled; else NULL */
};
/* Everything is borrowed for the call. Runs in the thread that uses the client, inside of functions that start, drive,
 * cancel or free calls: it may not call functions of clients and calls. Headers and bodies are never told. */
typedef void (*abx_trace_fn)(void *user, const struct abx_trace *trace);
typedef void (*abx_free_fn)(void *user);

/* Options: what a program sets itself. NULL, a blank string and ABX_UNSET mean "not set: look
 * further". All strings are copied. An access key given here comes before an API key of a lower layer;
 * else requests are signed only when no layer has an API key. */
#define ABX_UNSET (-1)
struct abx_config_opts {
    size_t size;                    /* sizeof(struct abx_config_opts) */
    const char *profile;            /* else ABX_PROFILE, or `profile` of [core] in config.toml */
    const char *api_key;            /* secret */
    const char *access_token;       /* secret; also sent as Authorization: Bearer */
    const char *access_key_id;      /* with access_key_secret: requests are signed (acs3.md) */
    const char *access_key_secret;  /* secret */
    const char *security_token;     /* secret; of temporary access keys */
    const char *api_url;            /* "http://127.0.0.1:8490": base URL of the control plane */
    const char *domain;             /* "example.com[:port]": api.<domain>, <port>-<id>.<domain> */
    const char *sandbox_url;        /* one base URL of all sandboxes, routed by headers */
    const char *volume_url;         /* base URL of volume content */
    const char *proxy;              /* of all traffic but loopback: http://, https://, socks5:// */
    const char *ca_file;            /* PEM bundle; else SSL_CERT_FILE, else the system's */
    const struct abx_pair *headers; /* added to control-plane requests */
    size_t header_count;
    const struct abx_pair *sandbox_headers; /* added to requests into sandboxes */
    size_t sandbox_header_count;
    int64_t request_timeout_ms; /* of calls that do not say: default 60,000; ABX_UNSET, 0 = none */
    int bearer;                 /* 1: the key goes as Authorization: Bearer, not as X-API-Key */
    int protobuf;               /* 1: protobuf codec, 0: JSON, ABX_UNSET: as the server offers */
    int debug;                  /* 1: no control plane, sandbox at localhost (E2B_DEBUG) */
    const char *integration;    /* appended to User-Agent */
    const char *user_agent;     /* replaces "abx/VERSION" in User-Agent */
    abx_trace_fn trace; /* told of the exchanges of all calls with this config; NULL = nobody */
    void *trace_user;
    abx_free_fn trace_free; /* when nothing uses the config any more, not when the load fails */
};
#define ABX_CONFIG_OPTS_INIT                                                                       \
    { sizeof(struct abx_config_opts),                                                              \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      0,                                                                                           \
      NULL,                                                                                        \
      0,                                                                                           \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      ABX_UNSET,                                                                                   \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL,                                                                                        \
      NULL }

/* Resolves a config; `opts` may be NULL. Reads the files named above, no network. A missing key is
 * no error here: the call that needs one fails with UNAUTHENTICATED, ABX_REASON_NO_CREDENTIALS.
 * `*ret` is owned: abx_config_unref. Errors: INVALID_ARGUMENT names file, line and key, or the
 * option. Since 0.1. */
ABX_EXPORT int abx_config_load(const struct abx_config_opts *opts, abx_config **ret,
                               struct abx_error *err);
ABX_EXPORT abx_config *abx_config_ref(abx_config *config);
ABX_EXPORT void abx_config_unref(abx_config *config); /* NULL allowed */

/* Value of a key of abx_config_key_at as text, NULL when unset. `*ret_origin` (may be NULL; "" when
 * unset) says where it comes from: "option", "environment ABX_SANDBOX_API_KEY",
 * "file /home/u/.abx/config.toml", "local service /run/abx/local/0.env", "from sandbox_domain" (derived),
 * "default". Secrets come masked ("****" and the last 4 characters if longer than 8), a proxy without
 * its password, unless `reveal`. Both borrowed until the config is gone. */
ABX_EXPORT const char *abx_config_get(const abx_config *config, const char *key, int reveal,
                                      const char **ret_origin);

/* One row of the table of keys (client.md 2.1). All static. */
struct abx_config_key {
    size_t size;
    const char *name; /* "sandbox_api_key" */
    const char *env;  /* "ABX_SANDBOX_API_KEY", NULL = none */
    const char
        *env_e2b;     /* "E2B_API_KEY": comes after `env`, process environment only; NULL = none */
    const char *type; /* "string", "int", "float" (seconds), "bool", "url" */
    const char *fallback; /* default as text, NULL = unset */
    const char *help;     /* one sentence, with the unit */
    int is_secret;        /* stored in ~/.abx/.env or .env.PROFILE, never in config.toml */
};
/* The `i`-th key, NULL behind the last. */
ABX_EXPORT const struct abx_config_key *abx_config_key_at(size_t i);

/* Path of the file that abx_config_store changes: of secrets (`is_secret`), or config.toml, which all profiles share.
 * Errors: NOT_FOUND (no home folder), INVALID_ARGUMENT (`profile`; longer than `size`). */
ABX_EXPORT int abx_config_path(const char *profile, int is_secret, char *to, size_t size,
                               struct abx_error *err);

/* Writes (value) or removes (NULL) a key for the user: secrets into ~/.abx/.env (0600; of a profile into
 * ~/.abx/.env.PROFILE), others into config.toml, of a profile under [profiles.PROFILE]. The rest of the file
 * stays as it is, byte for byte; it is replaced atomically.
 * Errors: INVALID_ARGUMENT (unknown key, malformed value, file not understood), PERMISSION_DENIED. */
ABX_EXPORT int abx_config_store(const char *profile, const char *key, const char *value,
                                struct abx_error *err);

#ifdef __cplusplus
}
#endif
#endif
