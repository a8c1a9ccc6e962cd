/* The body of a create: every text of refusal, and what is taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "control/create_request.h"
#include "e2b/jsondoc.h"

static const struct create_limits limits = {
    .max_timeout_s = 86400,
    .cpu_count = 2,
    .memory_mb = 1024,
    .disk_mb = 10240,
    .max_cpu_count = 8,
    .max_memory_mb = 4096,
    .max_disk_mb = 20480,
};

/* A create of `base` with the given members besides; 0 or the code, the message in *err. */
static int parse(const char *members, bool is_v2, struct create_request *r, json_t **body,
                 struct abx_err *err)
{
    char text[4096];

    (void)snprintf(text, sizeof text, "{\"templateID\":\"base\"%s%s}", members[0] ? "," : "",
                   members);
    *body = json_loads(text, 0, NULL);
    assert_non_null(*body);
    return create_request_parse(*body, is_v2, &limits, r, err);
}

static const struct {
    const char *members;
    int code;
    const char *message; /* its beginning */
} refusals[] = {
    { "\"timeout\":0", ABX_INVALID_ARGUMENT, "Timeout must be greater than 0" },
    { "\"timeout\":-5", ABX_INVALID_ARGUMENT, "Timeout must be greater than 0" },
    { "\"timeout\":86401", ABX_INVALID_ARGUMENT, "Timeout cannot be greater than 24 hours" },
    { "\"timeout\":\"5\"", ABX_INVALID_ARGUMENT, "Error when parsing request: 'timeout'" },
    { "\"timeout\":1.5", ABX_INVALID_ARGUMENT, "Error when parsing request: 'timeout'" },
    { "\"timeout\":99999999999", ABX_INVALID_ARGUMENT, "Error when parsing request: 'timeout'" },
    { "\"metadata\":[]", ABX_INVALID_ARGUMENT, "Error when parsing request: 'metadata'" },
    { "\"metadata\":{\"a\":1}", ABX_INVALID_ARGUMENT, "Error when parsing request: 'metadata'" },
    { "\"metadata\":{\"a\":null}", ABX_INVALID_ARGUMENT, "Error when parsing request: 'metadata'" },
    { "\"envVars\":{\"a\":true}", ABX_INVALID_ARGUMENT, "Error when parsing request: 'envVars'" },
    { "\"envVars\":{\"\":\"x\"}", ABX_INVALID_ARGUMENT, "envVars: ''" },
    { "\"envVars\":{\"A=B\":\"x\"}", ABX_INVALID_ARGUMENT, "envVars: 'A=B'" },
    { "\"mcp\":\"x\"", ABX_INVALID_ARGUMENT, "Error when parsing request: 'mcp'" },
    { "\"allow_internet_access\":1", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'allow_internet_access'" },
    { "\"autoPauseMemory\":false", ABX_INVALID_ARGUMENT,
      "autoPauseMemory=false only applies when autoPause is true." },
    { "\"autoPause\":true,\"autoPauseMemory\":false,\"autoResume\":{\"enabled\":true}",
      ABX_INVALID_ARGUMENT,
      "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with autoResume: " },
    { "\"autoResume\":true", ABX_INVALID_ARGUMENT, "Error when parsing request: 'autoResume'" },
    { "\"cpuCount\":0", ABX_INVALID_ARGUMENT, "cpuCount cannot be less than 1" },
    { "\"memoryMB\":15", ABX_INVALID_ARGUMENT, "memoryMB cannot be less than 16" },
    { "\"memoryMB\":-1", ABX_INVALID_ARGUMENT, "memoryMB cannot be less than 16" },
    { "\"diskSizeMB\":15", ABX_INVALID_ARGUMENT, "diskSizeMB cannot be less than 16" },
    { "\"cpuCount\":9", ABX_INVALID_ARGUMENT, "cpuCount cannot be greater than 8" },
    { "\"memoryMB\":4097", ABX_INVALID_ARGUMENT, "memoryMB cannot be greater than 4096" },
    { "\"diskSizeMB\":20481", ABX_INVALID_ARGUMENT, "diskSizeMB cannot be greater than 20480" },
    { "\"gpu\":1", ABX_UNIMPLEMENTED, "gpu is not available" },
    { "\"volumeMounts\":[{\"name\":\"v\",\"path\":\"/x\"}]", ABX_INVALID_ARGUMENT,
      "invalid mounts:\n\t- volume mount #0: volume 'v' not found" },
    { "\"volumeMounts\":[{\"name\":\"v\"}]", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'volumeMounts'" },
    { "\"iam\":{\"tokens\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{},\"f\":{}}}",
      ABX_INVALID_ARGUMENT, "iam.tokens: too many tokens: 6 (max 5)" },
    { "\"iam\":{\"tokens\":{\"a\":{\"tokenType\":\"JWT-SVID\"}}}", ABX_INVALID_ARGUMENT,
      "iam.tokens.a.audience: audience is required" },
    { "\"iam\":{\"tokens\":{\"a\":{\"audience\":\"x\",\"tokenType\":\"JWT\"}}}",
      ABX_INVALID_ARGUMENT, "iam.tokens.a.tokenType: only \"JWT-SVID\" is supported" },
    { "\"iam\":{\"tokens\":{\"a\":{\"audience\":\"x\",\"tokenType\":\"JWT-SVID\"}}}",
      ABX_UNIMPLEMENTED, "iam is not available" },
    { "\"network\":{\"denyout\":[\"0.0.0.0/0\"]}", ABX_INVALID_ARGUMENT,
      "network: there is no member 'denyout'" },
    { "\"network\":{\"allow_internet_access\":false}", ABX_INVALID_ARGUMENT,
      "network: there is no member 'allow_internet_access'" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tsl\":{}}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: egressProxy: there is no member 'tsl'" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{\"enabled\":true,\"ca\":"
      "\"\"}}}",
      ABX_INVALID_ARGUMENT, "Invalid egress proxy config: tls: there is no member 'ca'" },
    { "\"network\":{\"denyOut\":[\"example.com\"]}", ABX_INVALID_ARGUMENT,
      "invalid denied CIDR example.com" },
    { "\"network\":{\"denyOut\":[\"1.2.3.4/33\"]}", ABX_INVALID_ARGUMENT, "invalid denied CIDR" },
    { "\"network\":{\"allowOut\":[\"not valid\"]}", ABX_INVALID_ARGUMENT,
      "invalid allowed address not valid" },
    { "\"network\":{\"allowOut\":[\"example.com\"]}", ABX_INVALID_ARGUMENT,
      "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to "
      "block all other traffic." },
    { "\"network\":{\"allowOut\":[1]}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.allowOut'" },
    { "\"network\":{\"dnsServers\":[\"dns\"]}", ABX_INVALID_ARGUMENT, "invalid DNS server dns" },
    { "\"network\":{\"maskRequestHost\":\"a b\"}", ABX_INVALID_ARGUMENT,
      "mask request host is not valid: a b" },
    { "\"network\":{\"maskRequestHost\":\"\\u00fc.test\"}", ABX_INVALID_ARGUMENT,
      "mask request host '\xc3\xbc.test' is not ASCII." },
    { "\"network\":{\"egressProxy\":{\"address\":\"x\"}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: 'address' has to be HOST:PORT" },
    { "\"network\":{\"egressProxy\":{\"address\":\"2a0f::1:1080\"}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: '2a0f::1' is no host (IPv6 addresses" },
    { "\"network\":{\"egressProxy\":{\"address\":\"[1.2.3.4]:1080\"}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: '[1.2.3.4]' is no host" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":true}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: 'tls' has to be an object" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{}}}", ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: 'tls' has to be an object with a boolean 'enabled'" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{\"enabled\":true,"
      "\"serverName\":\"*.x.test\"}}}",
      ABX_INVALID_ARGUMENT, "Invalid egress proxy config: 'tls.serverName' has to be" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{\"enabled\":true,"
      "\"caCert\":\"MIIB\"}}}",
      ABX_INVALID_ARGUMENT,
      "Invalid egress proxy config: 'tls.caCert' has to be certificates in PEM, at most 16384 "
      "bytes" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{\"enabled\":false,"
      "\"caCert\":\"-----BEGIN CERTIFICATE-----\\nMIIB\\n\"}}}",
      ABX_INVALID_ARGUMENT, "Invalid egress proxy config: 'tls.caCert' has to be" },
    { "\"network\":{\"egressProxy\":{\"address\":\"x.test:1\",\"tls\":{\"enabled\":true,"
      "\"caCert\":\"-----BEGIN CERTIFICATE-----\\nMI?B\\n-----END CERTIFICATE-----\\n\"}}}",
      ABX_INVALID_ARGUMENT, "Invalid egress proxy config: 'tls.caCert' has to be" },
    { "\"network\":{\"httpsPorts\":[443,49983]}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.httpsPorts' has to be" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":{\"A\":\"Bearer "
      "${e2b.secrets.my-key} ${e2b.identity.tokens.t_1}\"}}}]}}",
      ABX_UNIMPLEMENTED, "rules for 'x.test': header transforms are not available" },
    { "\"network\":{\"rules\":{\"-x.test\":[]}}", ABX_INVALID_ARGUMENT, "rules: invalid domain" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{}},{\"transform\":{}}]}}",
      ABX_INVALID_ARGUMENT, "rules for 'x.test': only one transform per domain" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":{\"a b\":\"c\"}}}]}}",
      ABX_INVALID_ARGUMENT, "rules for 'x.test': invalid header name 'a b'" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":{\"a\":\"c\\n\"}}}]}}",
      ABX_INVALID_ARGUMENT, "rules for 'x.test': invalid value of header 'a'" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":{\"a\":\"${x}\"}}}]}}",
      ABX_INVALID_ARGUMENT, "Network transform header contains a malformed E2B placeholder." },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":{\"a\":\"${e2b.secrets.\"}}}"
      "]}}",
      ABX_INVALID_ARGUMENT, "Network transform header contains a malformed E2B placeholder." },
    { "\"network\":{\"allowPublicTraffic\":\"no\"}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.allowPublicTraffic'" },
    { "\"secure\":\"yes\"", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'secure' has to be" },
    { "\"secure\":1", ABX_INVALID_ARGUMENT, "Error when parsing request: 'secure' has to be" },
    { "\"mcp\":[]", ABX_INVALID_ARGUMENT, "Error when parsing request: 'mcp' has to be" },
    { "\"autoPause\":1", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'autoPause' has to be" },
    { "\"autoPauseMemory\":\"no\"", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'autoPauseMemory' has to be" },
    { "\"autoResume\":[]", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'autoResume' has to be" },
    { "\"envVars\":[]", ABX_INVALID_ARGUMENT, "Error when parsing request: 'envVars' has to be" },
    { "\"metadata\":\"a\"", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'metadata' has to be" },
    { "\"cpuCount\":\"2\"", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'cpuCount' has to be" },
    { "\"cpuCount\":true", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'cpuCount' has to be" },
    { "\"memoryMB\":512.5", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'memoryMB' has to be" },
    { "\"diskSizeMB\":[]", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'diskSizeMB' has to be" },
    { "\"volumeMounts\":{}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'volumeMounts' has to be" },
    { "\"iam\":[]", ABX_INVALID_ARGUMENT, "Error when parsing request: 'iam' has to be" },
    { "\"network\":[]", ABX_INVALID_ARGUMENT, "Error when parsing request: 'network' has to be" },
    { "\"timeout\":true", ABX_INVALID_ARGUMENT, "Error when parsing request: 'timeout' has to be" },
    { "\"allow_internet_access\":true,\"allowInternetAccess\":false", ABX_INVALID_ARGUMENT,
      "allow_internet_access and allowInternetAccess are not the same" },
    { "\"allowInternetAccess\":0", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'allowInternetAccess'" },
    { "\"allow_internet_access\":\"true\"", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'allow_internet_access' has to be" },
    { "\"autoResume\":{\"enabled\":1}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'autoResume.enabled' has to be" },
    { "\"iam\":{\"tokens\":{\"a\":1}}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'iam.tokens.a' has to be" },
    { "\"volumeMounts\":[1]", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'volumeMounts' has to be" },
    { "\"network\":{\"egressProxy\":\"x\"}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.egressProxy' has to be" },
    { "\"network\":{\"httpsPorts\":443}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.httpsPorts' has to be" },
    { "\"network\":{\"httpsPorts\":[\"443\"]}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.httpsPorts' has to be" },
    { "\"network\":{\"httpsPorts\":[443,0]}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.httpsPorts' has to be" },
    { "\"network\":{\"httpsPorts\":{}}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.httpsPorts' has to be" },
    { "\"network\":{\"rules\":[]}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.rules' has to be" },
    { "\"network\":{\"denyOut\":\"x\"}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.denyOut' has to be" },
    { "\"network\":{\"maskRequestHost\":1}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: 'network.maskRequestHost' has to be" },
    { "\"network\":{\"rules\":{\"x.test\":[1]}}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: each of the rules for 'x.test' has to be" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":1}]}}", ABX_INVALID_ARGUMENT,
      "Error when parsing request: rules for 'x.test': 'transform' has to be" },
    { "\"network\":{\"rules\":{\"x.test\":[{\"transform\":{\"headers\":[]}}]}}",
      ABX_INVALID_ARGUMENT,
      "Error when parsing request: rules for 'x.test': 'transform.headers' has to be" },
};

static void refusals_have_the_documented_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        _cleanup_(create_request_done) struct create_request r;
        _cleanup_(json_unrefp) json_t *body = NULL;
        struct abx_err err = { 0 };
        int code = parse(refusals[i].members, true, &r, &body, &err);

        if (code != refusals[i].code ||
            strncmp(err.msg, refusals[i].message, strlen(refusals[i].message)) != 0)
            fail_msg("%s: %d '%s'", refusals[i].members, code, err.msg);
    }
}

static void good_ones_are_taken(void **state)
{
    static const char *const good[] = {
        "",
        "\"timeout\":null,\"metadata\":null,\"envVars\":null,\"network\":null,\"mcp\":null",
        "\"autoPause\":false,\"autoPauseMemory\":true,\"autoResume\":{\"enabled\":false}",
        "\"autoResume\":{\"enabled\":true}",
        "\"autoPause\":true,\"autoResume\":{\"enabled\":true}",
        "\"autoPause\":true,\"autoPauseMemory\":false",
        "\"volumeMounts\":[],\"iam\":{},\"gpu\":null",
        "\"gpu\":0",
        "\"unknown\":{\"x\":1}",
        "\"network\":{\"denyOut\":[\"0.0.0.0/0\",\"::/0\",\"1.2.3.4\"],"
        "\"allowOut\":[\"*.example.com\",\"8.8.8.8\",\"10.0.0.0/8\"]}",
        "\"network\":{\"maskRequestHost\":\"localhost:${PORT}\",\"httpsPorts\":[443,8443]}",

        "\"network\":{\"httpsPorts\":null,\"egressProxy\":null,\"rules\":{\"x.test\":[{},"
        "{\"transform\":null},{\"transform\":{\"headers\":null}}]}}",
        "\"network\":{\"egressProxy\":{\"address\":\"[2a0f::1]:1080\"}}",
        "\"network\":{\"egressProxy\":{\"address\":\"1.2.3.4:1080\"}}",
        "\"network\":{\"egressProxy\":{\"address\":\"1.2.3.4:1080\",\"tls\":null}}",
        "\"network\":{\"egressProxy\":{\"address\":\"1.2.3.4:1080\",\"tls\":{\"enabled\":true,"
        "\"serverName\":\"2a0f::1\",\"caCert\":\"-----BEGIN CERTIFICATE-----\\nMIIB\\n"
        "-----END CERTIFICATE-----\\n\"}}}",
        "\"mcp\":{},\"secure\":null,\"cpuCount\":1,\"memoryMB\":16,\"diskSizeMB\":16",
        "\"timeout\":86400,\"cpuCount\":8,\"memoryMB\":4096,\"diskSizeMB\":20480",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        _cleanup_(create_request_done) struct create_request r;
        _cleanup_(json_unrefp) json_t *body = NULL;
        struct abx_err err = { 0 };

        if (parse(good[i], true, &r, &body, &err) != 0)
            fail_msg("%s: '%s'", good[i], err.msg);
    }
}

static void defaults_differ_between_the_versions(void **state)
{
    struct create_request r;
    json_t *body;
    struct abx_err err;

    (void)state;
    assert_int_equal(parse("", true, &r, &body, &err), 0);
    assert_int_equal(r.timeout_s, 300);
    assert_true(r.is_secure);
    assert_string_equal(r.template_text, "base");
    assert_int_equal(r.cpu_count, 2);
    assert_int_equal(r.memory_mb, 1024);
    assert_int_equal(r.disk_mb, 10240);
    create_request_done(&r);
    json_decref(body);
    assert_int_equal(parse("", false, &r, &body, &err), 0);
    assert_int_equal(r.timeout_s, 15);
    assert_true(r.is_secure);
    create_request_done(&r);
    json_decref(body);
    assert_int_equal(parse("\"secure\":false", false, &r, &body, &err), 0);
    assert_false(r.is_secure);
    create_request_done(&r);
    json_decref(body);
    assert_int_equal(parse("\"secure\":false", true, &r, &body, &err), 0);
    assert_true(r.is_secure);
    create_request_done(&r);
    json_decref(body);
}

static void private_traffic_needs_secure_in_the_first_version(void **state)
{
    struct create_request r;
    json_t *body;
    struct abx_err err;

    (void)state;
    assert_int_equal(parse("\"secure\":false,\"network\":{\"allowPublicTraffic\":false}", false, &r,
                           &body, &err),
                     ABX_INVALID_ARGUMENT);
    assert_string_equal(err.msg, "You cannot create a sandbox without public access unless you "
                                 "enable secure envd access via 'secure' flag.");
    create_request_done(&r);
    json_decref(body);
    assert_int_equal(parse("\"network\":{\"allowPublicTraffic\":false}", false, &r, &body, &err),
                     0);
    create_request_done(&r);
    json_decref(body);
}

static void what_is_kept_is_what_came(void **state)
{
    _cleanup_(create_request_done) struct create_request r;
    _cleanup_(json_unrefp) json_t *body = NULL;
    _cleanup_(freep) char *text = NULL;
    struct abx_err err;

    (void)state;
    assert_int_equal(
        parse("\"metadata\":{\"a\":\"b\"},\"envVars\":{\"SECRET\":\"s3\"},"
              "\"allow_internet_access\":null,\"allowInternetAccess\":false,\"mcp\":{\"x\":1},"
              "\"network\":{\"allowPublicTraffic\":true}",
              true, &r, &body, &err),
        0);
    text = json_dumps(r.config, JSON_COMPACT);
    assert_string_equal(text,
                        "{\"metadata\":{\"a\":\"b\"},\"mcp\":{\"x\":1},\"allowInternetAccess\":"
                        "false,\"network\":{\"allowPublicTraffic\":true},\"lifecycle\":"
                        "{\"autoResume\":false,\"onTimeout\":\"kill\"}}");
    assert_string_equal(json_string_value(json_object_get(r.envs, "SECRET")), "s3");
}

static void large_maps_are_refused_by_name(void **state)
{
    static const char *const names[] = { "metadata", "envVars" };
    size_t n = CREATE_METADATA_MAX + 1;
    char *value = calloc(1, n + 1);

    (void)state;
    memset(value, 'x', n);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_(create_request_done) struct create_request r;
        json_t *body = json_pack("{s:s,s:{s:s}}", "templateID", "base", names[i], "k", value);
        struct abx_err err;

        assert_int_equal(create_request_parse(body, true, &limits, &r, &err), ABX_INVALID_ARGUMENT);
        assert_non_null(strstr(err.msg, names[i]));
        assert_non_null(strstr(err.msg, "too large"));
        json_decref(body);
    }
    free(value);
}

/* In the message to the engine each has its own bytes. */
static void many_small_variables_are_refused_too(void **state)
{
    _cleanup_(create_request_done) struct create_request r;
    _cleanup_(json_unrefp) json_t *envs = json_object();
    _cleanup_(json_unrefp) json_t *body =
        json_pack("{s:s,s:O}", "templateID", "base", "envVars", envs);
    struct abx_err err;
    char name[16];

    (void)state;
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(json_object_set_new(envs, name, json_string("")), 0);
    }
    assert_int_equal(create_request_parse(body, true, &limits, &r, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "envVars is too large"));
}

static void a_template_is_needed(void **state)
{
    static const char *const texts[] = { "{}", "{\"templateID\":1}", "{\"templateID\":null}",
                                         "[]" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _cleanup_(create_request_done) struct create_request r;
        _cleanup_(json_unrefp) json_t *body = json_loads(texts[i], 0, NULL);
        struct abx_err err;

        assert_int_equal(create_request_parse(body, true, &limits, &r, &err), ABX_INVALID_ARGUMENT);
        assert_memory_equal(err.msg, "Error when parsing request: ", 28);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_have_the_documented_texts),
        cmocka_unit_test(good_ones_are_taken),
        cmocka_unit_test(defaults_differ_between_the_versions),
        cmocka_unit_test(private_traffic_needs_secure_in_the_first_version),
        cmocka_unit_test(what_is_kept_is_what_came),
        cmocka_unit_test(large_maps_are_refused_by_name),
        cmocka_unit_test(many_small_variables_are_refused_too),
        cmocka_unit_test(a_template_is_needed),
    };

    return cmocka_run_group_tests_name("control_create_request", tests, NULL, NULL);
}
