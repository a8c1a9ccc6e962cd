/* test_acs3.c - the published example, a vector of our own, and what both leave open. */
#include "e2b/acs3.h"
#include "test.h"

#include "base/str.h"

static void check(const struct acs3_request *q, const char *key_id, const char *secret,
                  const char *want)
{
    struct buf b = BUF_INIT(4096);
    struct abx_err err = { 0 };

    if (acs3_authorization(q, key_id, secret, &b, &err) < 0)
        fail_msg("%s", err.msg);
    test_text(q->action, buf_cstr(&b), want);
    buf_done(&b);
}

static void published_example(void **state)
{
    static const struct acs3_request q = {
        .method = "POST",
        .host = { (const uint8_t *)"ecs.cn-shanghai.aliyuncs.com", 28 },
        .path = { (const uint8_t *)"/", 1 },
        .action = "RunInstances",
        .version = "2014-05-26",
        .date = "2023-10-26T10:22:32Z",
        .nonce = "3156853299f313e23d1673dc12e1703d",
    };
    struct acs3_request with_query = q;

    with_query.query = slice_str(
        "ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai");
    check(&with_query, "YourAccessKeyId", "YourAccessKeySecret",
          "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;"
          "x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature="
          "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0");
    with_query.path = SLICE_LIT(""); /* is "/" */
    with_query.query = slice_str(    /* the order of sending does not count */
                                 "RegionId=cn%2dshanghai&&ImageId=win2019_1809_x64_dtc_zh-cn_40G_"
                                 "alibase_20230811.vhd&");
    check(&with_query, "YourAccessKeyId", "YourAccessKeySecret",
          "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;"
          "x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature="
          "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0");
}

static struct acs3_request second(void)
{
    return (struct acs3_request){
        .method = "POST",
        .host = SLICE_LIT("api.sandbox.example"),
        .path = SLICE_LIT("/sandboxes/i%20abc/timeout"),
        .query = SLICE_LIT("b=&%c3%bc=%C3%BC&a=x+y*~"),
        .content_type = "application/json",
        .body = SLICE_LIT("{\"timeout\":60}"),
        .action = "SetTimeout",
        .version = "2026-05-09",
        .date = "2026-01-02T03:04:05Z",
        .nonce = "n-1",
    };
}

static void second_vector(void **state)
{
    struct acs3_request q = second();
    struct buf b = BUF_INIT(4096);
    char hash[ACS3_HASH_SIZE];

    assert_int_equal(acs3_canonical(&q, &b, NULL), 0);
    acs3_hash(buf_slice(&b), hash);
    assert_string_equal(hash, "2202485d4a97eda664cd36baefde0981d93d3c87d430e895de8b7014e3ef49d4");
    buf_done(&b);
    check(&q, "id", "secret",
          "ACS3-HMAC-SHA256 Credential=id,SignedHeaders=content-type;host;x-acs-action;"
          "x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature="
          "c05d1cca2c291dc7edf4cb651f1a940f3b2ab122079e091295a6212a7878dec7");
    q.path = SLICE_LIT("/sandboxes/i abc/timeout"); /* sent unencoded, it signs the same */
    check(&q, "id", "secret",
          "ACS3-HMAC-SHA256 Credential=id,SignedHeaders=content-type;host;x-acs-action;"
          "x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature="
          "c05d1cca2c291dc7edf4cb651f1a940f3b2ab122079e091295a6212a7878dec7");
}

static void a_security_token_is_signed(void **state)
{
    struct acs3_request q = second();
    struct buf b = BUF_INIT(4096);

    q.security_token = " token ";
    q.query = SLICE_LIT("a-b=1&a=2&a=1");
    assert_int_equal(acs3_canonical(&q, &b, NULL), 0);
    test_text("canonical", buf_cstr(&b),
              "POST\n/sandboxes/i%20abc/timeout\na=1&a=2&a-b=1\n"
              "content-type:application/json\nhost:api.sandbox.example\nx-acs-action:SetTimeout\n"
              "x-acs-content-sha256:"
              "8eb6ec5ea2e2544a162e45bf799a8c2b5f0b6b14f7a91fe127747a0b43b677fa\n"
              "x-acs-date:2026-01-02T03:04:05Z\nx-acs-security-token:token\n"
              "x-acs-signature-nonce:n-1\nx-acs-version:2026-05-09\n\n"
              "content-type;host;x-acs-action;x-acs-content-sha256;x-acs-date;"
              "x-acs-security-token;x-acs-signature-nonce;x-acs-version\n"
              "8eb6ec5ea2e2544a162e45bf799a8c2b5f0b6b14f7a91fe127747a0b43b677fa");
    buf_done(&b);
}

static void malformed_encoding_and_length_are_refused(void **state)
{
    struct acs3_request q = second();
    struct buf b = BUF_INIT(4096), small = BUF_INIT(100);
    struct abx_err err = { 0 };

    q.path = SLICE_LIT("/a%zz");
    assert_int_equal(acs3_canonical(&q, &b, &err), ABX_INVALID_ARGUMENT);
    assert_non_null(strstr(err.msg, "%zz"));
    q = second();
    q.query = SLICE_LIT("a=%2");
    assert_int_equal(acs3_canonical(&q, &b, &err), ABX_INVALID_ARGUMENT);
    q = second();
    assert_int_equal(acs3_canonical(&q, &small, &err), ABX_RESOURCE_EXHAUSTED);
    buf_done(&b);
    buf_done(&small);
}

static void date_is_in_whole_seconds(void **state)
{
    char date[ACS3_DATE_SIZE];

    acs3_date(INT64_C(1767323045999), date);
    assert_string_equal(date, "2026-01-02T03:04:05Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_example),
        cmocka_unit_test(second_vector),
        cmocka_unit_test(a_security_token_is_signed),
        cmocka_unit_test(malformed_encoding_and_length_are_refused),
        cmocka_unit_test(date_is_in_whole_seconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
