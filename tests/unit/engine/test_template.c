/* test_template.c - the strict reader of template.json, scanning folders. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "engine/template.h"

#define GOOD                                                                                       \
    "{\"name\":\"base\",\"digest\":\"ab12\",\"created\":\"2026-11-30T08:00:00.250Z\","             \
    "\"suite\":\"bookworm\",\"size_bytes\":123,\"default_user\":\"user\","                         \
    "\"default_workdir\":\"/home/\\\"user\\\"\",\"packages\":[\"a\",\"b\"],\"later\":\"x\"}\n"

static bool decode(const char *text, struct template *t)
{
    return template_decode(slice_str(text), t);
}

static void builder_text_is_read(void **state)
{
    struct template t;

    (void)state;
    assert_true(decode(GOOD, &t));
    assert_string_equal(t.name, "base");
    assert_string_equal(t.digest, "ab12");
    assert_string_equal(t.suite, "bookworm");
    assert_string_equal(t.default_user, "user");
    assert_string_equal(t.default_workdir, "/home/\"user\"");
    assert_true(t.size_bytes == 123);
    assert_true(t.created_ms == 1796025600250);
    assert_true(decode(" { \"digest\" : \"d\" , \"name\":\"n\", \"packages\": [ ] } ", &t));
}

static void anything_else_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"name\":\"base\"}",
        "{\"name\":\"\",\"digest\":\"d\"}",
        "{\"name\":\"n\",\"digest\":\"d\"} x",
        "{\"name\":\"n\",\"digest\":\"d\",}",
        "{\"name\":\"n\",\"digest\":\"d\",\"size_bytes\":-1}",
        "{\"name\":\"n\",\"digest\":\"d\",\"size_bytes\":01}",
        "{\"name\":\"n\",\"digest\":\"d\",\"size_bytes\":1.5}",
        "{\"name\":\"n\",\"digest\":\"d\",\"created\":\"yesterday\"}",
        "{\"name\":\"n\",\"digest\":\"d\",\"x\":{}}",
        "{\"name\":\"n\",\"digest\":\"d\",\"x\":[1]}",
        "{\"name\":\"n\\u0041\",\"digest\":\"d\"}",
        "{\"name\":\"n\t\",\"digest\":\"d\"}",
        "{\"name\":\"\xff\",\"digest\":\"d\"}",
        "{\"name\":1,\"digest\":\"d\"}",
    };
    struct template t;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (decode(bad[i], &t))
            fail_msg("accepted %s", bad[i]);
    for (size_t n = 0; n + 2 < sizeof GOOD; n++)
        assert_false(template_decode(slice_of(GOOD, n), &t));
}

static void too_long_a_name_is_refused(void **state)
{
    char text[400], name[RECORD_TEMPLATE_SIZE + 1];
    struct template t;

    (void)state;
    memset(name, 'n', sizeof name);
    for (size_t n = RECORD_TEMPLATE_SIZE - 1; n <= RECORD_TEMPLATE_SIZE; n++) {
        name[n] = '\0';
        (void)snprintf(text, sizeof text, "{\"name\":\"%s\",\"digest\":\"d\"}", name);
        assert_int_equal(decode(text, &t), n < RECORD_TEMPLATE_SIZE);
        name[n] = 'n';
    }
}

static void make(int dirfd, const char *folder, const char *name, const char *created)
{
    char path[128], text[256];

    (void)snprintf(path, sizeof path, "%s/rootfs", folder);
    assert_int_equal(path_mkdirs(dirfd, path, 0755, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/template.json", folder);
    (void)snprintf(text, sizeof text, "{\"name\":\"%s\",\"digest\":\"d-%s\",\"created\":\"%s\"}",
                   name, folder, created);
    assert_int_equal(file_replace(dirfd, path, text, strlen(text), 0644, false, NULL), 0);
}

static void folders_are_scanned_and_the_newest_name_wins(void **state)
{
    char dir[] = "/tmp/abx-test-template.XXXXXX", path[128];
    _cleanup_(closep) int fd = -EBADF;
    struct templates t = { 0 };

    (void)state;
    assert_non_null(mkdtemp(dir));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make(fd, "base-1", "base", "2026-01-01T00:00:00Z");
    make(fd, "base-2", "base", "2026-02-01T00:00:00Z");
    make(fd, "alpha-1", "alpha", "2026-01-01T00:00:00Z");
    make(fd, "tmp.123", "", "2026-01-01T00:00:00Z"); /* not a template */
    assert_int_equal(mkdirat(fd, "empty", 0755), 0);
    (void)snprintf(path, sizeof path, "/nonexistent/dir:%s", dir);
    assert_int_equal(templates_scan(&t, path, NULL), 0);
    assert_int_equal(t.n, 3);
    assert_string_equal(t.list[0].name, "alpha");
    assert_string_equal(templates_find(&t, "base")->folder, "base-2");
    assert_string_equal(templates_find(&t, "base-1")->folder, "base-1");
    assert_string_equal(templates_find(&t, "d-base-1")->folder, "base-1");
    assert_null(templates_find(&t, "empty"));
    assert_int_equal(templates_scan(&t, "relative", NULL), ABX_INVALID_ARGUMENT);
    assert_int_equal(t.n, 3); /* kept */
    templates_done(&t);
    fd_close(fd);
    fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(path_remove_tree(fd, dir + strlen("/tmp/"), NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builder_text_is_read),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(too_long_a_name_is_refused),
        cmocka_unit_test(folders_are_scanned_and_the_newest_name_wins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
