/* Answers of a control plane: members of every type, and a sandbox's address made of them. What was accepted has to be usable. */
#include <stdlib.h>
#include <string.h>

#include "e2b/jsondoc.h"
#include "protocol/json_fields.h"
#include "protocol/sandbox.h"
#include "transport/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void use(const abx_sandbox *sb)
{
    struct abx_pair pairs[SANDBOX_HEADERS_MAX];
    struct buf mem = BUF_INIT(65536);
    char *url = NULL, *host = abx_sandbox_host(sb, 49999);

    check(strncmp(abx_sandbox_envd_url(sb, 0), "http", 4) == 0);
    check(strncmp(abx_sandbox_envd_url(sb, 1), "http", 4) == 0);
    check(sandbox_port_url(sb, 49999, &url, NULL) == 0 && strncmp(url, "http", 4) == 0);
    check(sandbox_has_envd(sb, 0, 0, 0) && host && strncmp(host, "49999-", 6) == 0);
    check(sandbox_headers(sb, 49983, "user", &mem, pairs, NULL) >= 3);
    for (int i = 0; i < 3; i++)
        check(strpbrk(pairs[i].value, "\r\n") == NULL);
    buf_done(&mem);
    free(url);
    free(host);
}

static void read_object(abx_call *call, abx_config *config, const json_t *object)
{
    struct abx_err err = { 0 };
    struct json_reader r = { .call = call, .object = object, .where = "[7]", .err = &err };
    struct abx_sandbox_parts parts = ABX_SANDBOX_PARTS_INIT;
    abx_sandbox *sb = NULL;
    size_t n;

    parts.sandbox_id = json_reader_text(&r, "sandboxID");
    parts.envd_version = json_reader_text(&r, "envdVersion");
    parts.envd_access_token = json_reader_text_if(&r, "envdAccessToken");
    parts.domain = json_reader_text_if(&r, "domain");
    parts.envd_url = json_reader_text_if(&r, "envdUrl");
    if (r.code == 0 && sandbox_new(config, &parts, &sb, &err) == 0)
        use(sb);
    abx_sandbox_unref(sb);
    r.code = 0;
    (void)json_reader_bool_if(&r, "allowInternetAccess");
    (void)json_reader_json_if(&r, "network");
    check(r.code != 0 || json_reader_pairs(&r, "metadata", &n) || n == 0);
    r.code = 0;
    check(json_reader_texts(&r, "names", &n) || n == 0);
    r.code = 0;
    (void)json_reader_time_us(&r, "startedAt");
    (void)json_reader_int(&r, "cpuCount");
    (void)json_reader_number(&r, "cpuUsedPct");
    check(r.code == 0 || (r.code == ABX_INTERNAL && strncmp(err.msg, "[7].", 4) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct call_ops ops;
    static abx_client *client;
    abx_config config = {
        .refs = 1, .domain = "sbx.test", .api_url = "https://api.sbx.test", .protobuf = ABX_UNSET
    };
    json_t *doc = NULL;
    abx_call *call;

    if (!client)
        check(abx_client_new(NULL, &client, NULL) == 0);
    if (jsondoc_parse_limited(slice_of(data, size), 1u << 20, 10000, &doc, NULL) < 0)
        return 0;
    call = call_new(client, &ops, 0);
    check(call != NULL);
    if (json_is_object(doc))
        read_object(call, &config, doc);
    for (size_t i = 0; i < json_array_size(doc); i++)
        read_object(call, &config, json_array_get(doc, i));
    abx_call_free(call);
    json_decref(doc);
    check(config.refs == 1);
    return 0;
}
