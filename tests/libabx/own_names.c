/* A program that has functions of the same names as libabx inside, linked with libabx.a: each keeps its own. Ours count
 * how often they are called; the library's work has to leave them at zero. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "abx/abx.h"

static int calls;

#define OWN(name)                                                                                  \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return ++calls;                                                                            \
    }

OWN(buf_append)
OWN(buf_done)
OWN(err_set)
OWN(err_code_name)
OWN(error_export)
OWN(slice_dup)
OWN(call_new)
OWN(http_start)
OWN(sandbox_new)
OWN(json_scan)
OWN(jsondoc_parse)
OWN(protobuf_c_message_unpack)
OWN(protobuf_c_message_free_unpacked)

int main(void)
{
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    struct abx_error err = { 0 };
    abx_config *config = NULL;
    abx_sandbox *sandbox = NULL;

    opts.api_key = "k";
    opts.api_url = "http://127.0.0.1:1";
    parts.sandbox_id = "iabc";
    if (abx_config_load(&opts, &config, &err) < 0 ||
        abx_sandbox_new(config, &parts, &sandbox, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (strcmp(abx_sandbox_envd_url(sandbox, 0), "http://127.0.0.1:1") != 0 ||
        strcmp(abx_error_name(ABX_NOT_FOUND), "not_found") != 0)
        return 1;
    parts.sandbox_id = "";
    abx_sandbox_unref(sandbox);
    if (abx_sandbox_new(config, &parts, &sandbox, &err) != ABX_INVALID_ARGUMENT)
        return 1;
    abx_config_unref(config);
    if (calls != 0) {
        fprintf(stderr, "the library called %d of the program's functions\n", calls);
        return 1;
    }
    return buf_append() == 1 ? 0 : 1;
}
