/* test_identity.c - the frame that a guest gets, host names. Delivery is in tests/system. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/identity.h"

static Abx__Ipc__GuestFrame *decode(struct buf *b)
{
    return abx__ipc__guest_frame__unpack(NULL, b->len, buf_data(b));
}

static void identity_is_sent_whole_with_its_own_id(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(IDENTITY_BYTES_MAX);
    Abx__Ipc__Identity id = ABX__IPC__IDENTITY__INIT;
    char token[] = "secret", lie[] = "other";
    Abx__Ipc__GuestFrame *f;

    (void)state;
    id.access_token = token;
    id.sandbox_id = lie;
    assert_int_equal(identity_encode(&id, "i1", &b, NULL), 0);
    f = decode(&b);
    assert_non_null(f);
    assert_int_equal(f->version, 1);
    assert_int_equal(f->body_case, ABX__IPC__GUEST_FRAME__BODY_IDENTITY);
    assert_string_equal(f->identity->sandbox_id, "i1");
    assert_string_equal(f->identity->access_token, "secret");
    abx__ipc__guest_frame__free_unpacked(f, NULL);
}

static void a_create_without_identity_still_has_one(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(IDENTITY_BYTES_MAX);
    Abx__Ipc__GuestFrame *f;

    (void)state;
    assert_int_equal(identity_encode(NULL, "i2", &b, NULL), 0);
    f = decode(&b);
    assert_non_null(f);
    assert_string_equal(f->identity->sandbox_id, "i2");
    abx__ipc__guest_frame__free_unpacked(f, NULL);
}

static void too_large_an_identity_is_refused(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(64);
    Abx__Ipc__Identity id = ABX__IPC__IDENTITY__INIT;
    char token[80];
    struct abx_err e;

    (void)state;
    memset(token, 't', sizeof token);
    token[sizeof token - 1] = '\0';
    id.access_token = token;
    assert_int_equal(identity_encode(&id, "i3", &b, &e), ABX_RESOURCE_EXHAUSTED);
    assert_int_equal(e.reason, ABX_REASON_TOO_LARGE);
}

static void host_names_are_checked(void **state)
{
    char name[66];

    (void)state;
    assert_true(hostname_is_valid("a-B.9"));
    assert_false(hostname_is_valid(""));
    assert_false(hostname_is_valid("a b"));
    assert_false(hostname_is_valid("a\n127.0.0.1 evil"));
    memset(name, 'a', sizeof name);
    name[64] = '\0';
    assert_true(hostname_is_valid(name));
    name[64] = 'a';
    name[65] = '\0';
    assert_false(hostname_is_valid(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_is_sent_whole_with_its_own_id),
        cmocka_unit_test(a_create_without_identity_still_has_one),
        cmocka_unit_test(too_large_an_identity_is_refused),
        cmocka_unit_test(host_names_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
