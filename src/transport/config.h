/* config.h - the resolved values behind abx_config, for the layers of libabx.
 *
 * All strings are owned by the config and never change; NULL = unset. How each is found:
 * transport/config_resolve.c (layers), config_table.c (keys), dotenv.c, toml.c, local_service.c.
 */
#pragma once

#include <stdatomic.h>

#include "abx/config.h"
#include "base/err.h"
#include "base/macro.h"

struct config_value {
    char *text;   /* NULL = unset */
    char *masked; /* what is shown instead of a secret, NULL = text itself */
    char *origin; /* "option", "environment E2B_API_KEY", ... */
};

struct abx_config {
    atomic_int refs;
    struct config_value *values; /* index = row of the table of keys */

    /* The same, parsed. Borrowed from `values` or owned by it. */
    const char *api_key, *access_token;
    const char *access_key_id, *access_key_secret, *security_token;
    const char *api_url;      /* always set: explicit, or https://api.<domain> */
    bool api_url_is_explicit; /* an option, environment or file set it (not derived) */
    const char *domain;       /* always set */
    const char *sandbox_url, *volume_url, *proxy, *ca_file;
    const char *default_template;
    char *user_agent;    /* whole field value, owned */
    const char *profile; /* NULL = none */
    char *local_service; /* file of the service running here that gave key, URL, domain; owned */
    char *hint;          /* why no layer has a key; owned, NULL = nothing to say */
    int64_t request_timeout_ms; /* 0 = none */
    int64_t ws_ping_interval_ms;
    bool bearer, debug, http2;
    bool is_signed; /* requests are signed with the access key; else the API key is sent */
    bool validate_api_key;
    int connect_retries; /* further tries when no connection could be made */
    int protobuf;        /* 1, 0, ABX_UNSET */
    struct abx_pair *headers, *sandbox_headers;
    size_t header_count, sandbox_header_count;
    int max_connections, max_idle_connections, idle_timeout_ms;
    abx_trace_fn trace; /* NULL = none */
    void *trace_user;
    abx_free_fn trace_free; /* NULL = none */
};

/* INVALID_ARGUMENT when there is none (NULL). */
int config_check(const abx_config *config, struct abx_err *err);

/* INVALID_ARGUMENT when `ms` is negative other than ABX_UNSET, or longer than Connect-Timeout-Ms can say. Every
 * timeout that a caller gives is checked by it. */
#define TIMEOUT_MS_MAX INT64_C(9999999999)
int timeout_check(int64_t ms, const char *name, struct abx_err *err);

/* Adds to the message of an error of the control plane's address, when nobody set one, that it is the default one and how
 * to name another: a key alone goes to it, and is often meant for a service on this machine. */
void config_hint_at_address(const abx_config *config, struct abx_err *err);

#define CONFIG_REQUEST_TIMEOUT_MS 60000 /* without a config */
/* What a call's request_timeout_ms means: ABX_UNSET = the config's. Returns a deadline in ns, 0 = none. */
int64_t config_deadline_ns(const abx_config *config, int64_t request_timeout_ms);
