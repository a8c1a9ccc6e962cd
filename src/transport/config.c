/* config.c - life of a config, and reading its values. How it is resolved: config_resolve.c. */
#include "transport/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "transport/config_resolve.h"
#include "transport/config_table.h"

abx_config *abx_config_ref(abx_config *config)
{
    if (config)
        (void)atomic_fetch_add_explicit(&config->refs, 1, memory_order_relaxed);
    return config;
}

static void pairs_free(struct abx_pair *pairs, size_t n)
{
    for (size_t i = 0; pairs && i < n; i++) {
        free((void *)(uintptr_t)pairs[i].key);
        free((void *)(uintptr_t)pairs[i].value);
    }
    free(pairs);
}

/* Secrets do not stay in freed memory. */
static void text_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void config_free(abx_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; config->values && i < CONFIG_COUNT; i++) {
        text_free(config->values[i].text);
        text_free(config->values[i].masked);
        free(config->values[i].origin);
    }
    free(config->values);
    pairs_free(config->headers, config->header_count);
    pairs_free(config->sandbox_headers, config->sandbox_header_count);
    free(config->user_agent);
    free(config->local_service);
    free(config->hint);
    if (config->trace_free)
        config->trace_free(config->trace_user);
    free(config);
}

void abx_config_unref(abx_config *config)
{
    if (config && atomic_fetch_sub_explicit(&config->refs, 1, memory_order_acq_rel) == 1)
        config_free(config);
}

const char *abx_config_get(const abx_config *config, const char *key, int reveal,
                           const char **ret_origin)
{
    int i = config && key ? config_row_find(key) : -1;
    const struct config_value *v = i < 0 ? NULL : &config->values[i];

    if (ret_origin)
        *ret_origin = v && v->text ? v->origin : "";
    if (!v || !v->text)
        return NULL;
    return reveal || !v->masked ? v->text : v->masked;
}

int config_check(const abx_config *config, struct abx_err *err)
{
    return config ? 0 : err_set(err, ABX_INVALID_ARGUMENT, "config: is missing (NULL)");
}

void config_hint_at_address(const abx_config *config, struct abx_err *err)
{
    const char *from = config->values[CONFIG_BASE_URL].origin;
    const char *key = config->values[CONFIG_API_KEY].origin;
    size_t n = strlen(err->msg);

    if (!from || strcmp(from, "default") != 0)
        return;
    (void)snprintf(
        err->msg + n, sizeof err->msg - n,
        "; no address is set, this is the default one: set ABX_SANDBOX_BASE_URL (or "
        "E2B_API_URL), to http://127.0.0.1:8490 for 'abx serve' on this machine%s%.100s%s",
        key ? ", or unset the key (" : "", key ? key : "",
        key ? "), and it is found by itself" : "");
    n = strlen(err->msg);
    err->msg[n - utf8_cut_tail(slice_of(err->msg, n))] = '\0';
}

int64_t config_deadline_ns(const abx_config *config, int64_t request_timeout_ms)
{
    int64_t ms = request_timeout_ms;

    if (ms == ABX_UNSET)
        ms = config ? config->request_timeout_ms : CONFIG_REQUEST_TIMEOUT_MS;
    return ms > 0 ? time_mono_after_ms(ms) : 0;
}

int timeout_check(int64_t ms, const char *name, struct abx_err *err)
{
    if (ms < 0 && ms != ABX_UNSET)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s is negative", name);
    if (ms > TIMEOUT_MS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "%s is over %lld", name,
                       (long long)TIMEOUT_MS_MAX);
    return 0;
}
