/* test_role_args.c - options of every role and of one, and what is refused. */
#include "test.h"

#include "net/role_args.h"

#define ARGS_MAX 16

struct own {
    const char *text;
    bool flag;
    int fd;
    uint32_t ms;
    size_t size, n_parsed;
};

static int parse(void *own, const char *value, struct abx_err *err)
{
    if (strcmp(value, "bad") == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "--many: bad");
    ((struct own *)own)->n_parsed++;
    return 0;
}

static const struct role_option table[] = {
    { "text", ROLE_ARG_TEXT, offsetof(struct own, text), NULL },
    { "flag", ROLE_ARG_FLAG, offsetof(struct own, flag), NULL },
    { "fd", ROLE_ARG_FD, offsetof(struct own, fd), NULL },
    { "ms", ROLE_ARG_U32, offsetof(struct own, ms), NULL },
    { "size", ROLE_ARG_SIZE, offsetof(struct own, size), NULL },
    { "many", ROLE_ARG_PARSE, 0, parse },
};

static int run(const char *const *args, struct own *own, struct role_args *common,
               struct abx_err *err)
{
    char *argv[ARGS_MAX + 2] = { (char[]){ "role" } };
    int n = 1;

    for (; args[n - 1]; n++)
        argv[n] = (char *)(uintptr_t)args[n - 1];
    return role_args_parse(n, argv, table, ARRAY_SIZE(table), own, common, err);
}

static void both_tables_are_read(void **state)
{
    const char *args[] = { "--table-sock", "t",      "--size=9", "--engine-sock", "e",
                           "--flag",       "--many", "1",        "--uid",         "77",
                           "--fd",         "3",      "--many=2", "--ms=4",        NULL };
    struct own own = { .text = "default" };
    struct role_args common;
    struct abx_err err = { 0 };

    (void)state;
    if (run(args, &own, &common, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(common.table_path, "t");
    assert_string_equal(common.engine_path, "e");
    assert_int_equal(common.confine.uid, 77);
    assert_int_equal(common.confine.gid, 0);
    assert_null(common.confine.root);
    assert_int_equal(common.heartbeat_fd, -1);
    assert_string_equal(own.text, "default");
    assert_true(own.flag);
    assert_int_equal(own.fd, 3);
    assert_int_equal(own.ms, 4);
    assert_int_equal(own.size, 9);
    assert_int_equal(own.n_parsed, 2);
}

static void what_is_wrong_is_refused(void **state)
{
    static const struct {
        const char *args[ARGS_MAX];
        const char *words;
    } rows[] = {
        { { "--table-sock", "t" }, "--help" },
        { { "--engine-sock", "e" }, "--help" },
        { { "--table-sock", "t", "--engine-sock", "e", "more" }, "--help" },
        { { "--table-sock", "t", "--engine-sock", "e", "--other" }, "--help" },
        { { "--table-sock", "t", "--engine-sock" }, "--help" },
        { { "--table-sock", "t", "--engine-sock", "e", "--uid", "x" }, "--uid: 'x' is no number" },
        { { "--table-sock", "t", "--engine-sock", "e", "--fd", "-1" }, "--fd: '-1' is no number" },
        { { "--table-sock", "t", "--engine-sock", "e", "--size", "2147483648" }, "is no number" },
        { { "--table-sock", "t", "--engine-sock", "e", "--many", "bad" }, "--many: bad" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct own own = { 0 };
        struct role_args common;
        struct abx_err err = { 0 };

        if (run(rows[i].args, &own, &common, &err) != ABX_INVALID_ARGUMENT ||
            !strstr(err.msg, rows[i].words))
            fail_msg("row %zu: %s", i, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_tables_are_read),
        cmocka_unit_test(what_is_wrong_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
