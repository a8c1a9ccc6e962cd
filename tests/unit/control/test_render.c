/* JSON of sandboxes, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/render.h"
#include "e2b/jsondoc.h"
#include "e2b/tokens.h"

#define ACCESS "337481f0625be9459e4cea37d5cbe9b2c5c72f5f03a3e0b29c3f40d7cd525215"
#define TRAFFIC "3d6e7719b67f9b1f198509e9067f6db4c7b6e11748676583701a7130d961188f"
#define COMMON                                                                                     \
    "\"templateID\":\"tpl\",\"sandboxID\":\"i0123456789abcdefghij\",\"clientID\":\"node\","        \
    "\"alias\":\"base\",\"envdVersion\":\"0.6.13\",\"state\":\"running\",\"startedAt\":"           \
    "\"1970-01-01T00:00:01.000Z\",\"endAt\":\"1970-01-01T00:05:01.500Z\",\"cpuCount\":2,"          \
    "\"memoryMB\":1024,\"diskSizeMB\":10240,\"metadata\":{\"a\":\"\xc3\xbc\"}"

static uint8_t seed[TOKEN_SEED_SIZE];
static const struct render_context context = { seed, "node", "sbx.test", "http://127.0.0.1:1" };

static struct sandbox make(const char *config, bool is_secure, bool is_traffic_private)
{
    struct sandbox sb = { .id = "i0123456789abcdefghij",
                          .template_id = "tpl",
                          .alias = "base",
                          .started_ms = 1000,
                          .end_ms = 301500,
                          .cpu_count = 2,
                          .memory_mb = 1024,
                          .disk_mb = 10240,
                          .is_secure = is_secure,
                          .is_traffic_private = is_traffic_private };

    for (size_t i = 0; i < sizeof seed; i++)
        seed[i] = (uint8_t)i;
    sb.config = json_loads(config, 0, NULL);
    assert_non_null(sb.config);
    return sb;
}

static void check(json_t *(*render)(const struct render_context *, const struct sandbox *),
                  struct sandbox sb, const char *want)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(65536);

    assert_int_equal(render_text(render(&context, &sb), &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), want);
    json_decref(sb.config);
}

#define CODECS "\"abxCodecs\":[\"json\",\"proto\"]"
#define CONFIG                                                                                     \
    "{\"metadata\":{\"a\":\"\xc3\xbc\"},\"network\":{\"allowOut\":[]},\"lifecycle\":"              \
    "{\"autoResume\":false,\"onTimeout\":\"kill\"},\"mcp\":{\"secret\":1}}"

static void a_create_is_answered_with_tokens_and_where_to_go(void **state)
{
    (void)state;
    check(render_sandbox, make(CONFIG, true, true),
          "{" COMMON ",\"domain\":\"sbx.test\",\"envdUrl\":\"http://127.0.0.1:1\","
          "\"envdAccessToken\":\"" ACCESS "\",\"trafficAccessToken\":\"" TRAFFIC "\"," CODECS "}");
    check(render_sandbox, make(CONFIG, false, false),
          "{" COMMON ",\"domain\":\"sbx.test\",\"envdUrl\":\"http://127.0.0.1:1\"," CODECS "}");
}

static void details_have_the_settings_too(void **state)
{
    (void)state;
    check(render_detail, make(CONFIG, true, false),
          "{" COMMON ",\"domain\":\"sbx.test\",\"envdUrl\":\"http://127.0.0.1:1\","
          "\"envdAccessToken\":\"" ACCESS "\"," CODECS
          ",\"network\":{\"allowOut\":[]},\"lifecycle\":"
          "{\"autoResume\":false,\"onTimeout\":\"kill\"},\"allowInternetAccess\":null}");
}

static void lists_have_no_tokens(void **state)
{
    (void)state;
    check(render_listed, make(CONFIG, true, true),
          "{" COMMON ",\"envdUrl\":\"http://127.0.0.1:1\",\"domain\":\"sbx.test\"}");
}

static void a_full_buffer_is_an_error(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(10);
    struct abx_err err;

    (void)state;
    assert_int_equal(render_text(json_pack("{s:s}", "a", "0123456789"), &b, &err),
                     ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(render_text(NULL, &b, &err), ABX_RESOURCE_EXHAUSTED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_is_answered_with_tokens_and_where_to_go),
        cmocka_unit_test(details_have_the_settings_too),
        cmocka_unit_test(lists_have_no_tokens),
        cmocka_unit_test(a_full_buffer_is_an_error),
    };

    return cmocka_run_group_tests_name("control_render", tests, NULL, NULL);
}
