/* config_table.h - the table of configuration keys (client.md 2.1, 2.2) and how their values are read.
 *
 * The order of the rows is that of `abx config list`. A value is text everywhere; config_row_parse says
 * what it means and refuses what the key's type does not allow.
 */
#pragma once

#include "abx/config.h"
#include "base/buf.h"
#include "base/err.h"

enum config_index {
    CONFIG_PROFILE,
    CONFIG_PROVIDER,
    CONFIG_API_KEY,
    CONFIG_ACCESS_TOKEN,
    CONFIG_ACCESS_KEY_ID,
    CONFIG_ACCESS_KEY_SECRET,
    CONFIG_SECURITY_TOKEN,
    CONFIG_BASE_URL,
    CONFIG_DOMAIN,
    CONFIG_SANDBOX_URL,
    CONFIG_VOLUME_URL,
    CONFIG_REGION,
    CONFIG_PROXY,
    CONFIG_CA_FILE,
    CONFIG_BEARER,
    CONFIG_VALIDATE_API_KEY,
    CONFIG_HTTP_TIMEOUT,
    CONFIG_HTTP2,
    CONFIG_PROTOBUF,
    CONFIG_MAX_CONNECTIONS,
    CONFIG_MAX_IDLE_CONNECTIONS,
    CONFIG_IDLE_TIMEOUT,
    CONFIG_CONNECT_RETRIES,
    CONFIG_WS_PING_INTERVAL,
    CONFIG_DEFAULT_TEMPLATE,
    CONFIG_DEBUG,
    CONFIG_LOG_LEVEL,
    CONFIG_GITHUB_TOKEN,
    CONFIG_TEMPLATE_INDEX_URL,
    CONFIG_TEMPLATE_DIR,
    CONFIG_MCP_AUTH_TOKEN,
    CONFIG_MCP_ALLOWED_ORIGINS,
    CONFIG_MCP_RUNTIME_DIR,
    CONFIG_COUNT,
};

enum config_kind {
    CONFIG_KIND_TEXT,    /* printable, any UTF-8 */
    CONFIG_KIND_SECRET,  /* visible ASCII: it goes into a header field */
    CONFIG_KIND_NAME,    /* A-Z a-z 0-9 . _ - */
    CONFIG_KIND_DOMAIN,  /* host with optional port */
    CONFIG_KIND_URL,     /* http:// or https://, host, port, path */
    CONFIG_KIND_PROXY,   /* http://, https://, socks5:// or socks5h:// */
    CONFIG_KIND_BOOL,    /* true 1 yes on, false 0 no off */
    CONFIG_KIND_COUNT,   /* whole number within min..max */
    CONFIG_KIND_SECONDS, /* decimal number of seconds within min..max */
};

struct config_row {
    struct abx_config_key key;
    const char *env_scoped; /* comes before key.env in each layer; NULL = none */
    const char *table;      /* of config.toml: "core", "transport" */
    const char *option;     /* field of struct abx_config_opts, NULL = none */
    size_t option_offset;   /* of a `const char *` there; SIZE_MAX = not a string */
    enum config_kind kind;
    int64_t min, max;
};

extern const struct config_row config_rows[CONFIG_COUNT];

/* Row of a name; -1 when there is none. */
int config_row_find(const char *name);

/* Checks `text` (not blank, trimmed). `*ret` is 0 or 1 for BOOL, the number for COUNT, milliseconds for
 * SECONDS, 0 else. INVALID_ARGUMENT says what is wrong and, unless it is a secret, with which value; the
 * caller prefixes where it comes from. */
int config_row_parse(const struct config_row *row, const char *text, int64_t *ret,
                     struct abx_err *err);
