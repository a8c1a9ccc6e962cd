/* Log lines: each is one whole line, whatever is logged. */
#include "test_dir.h"

#include "base/fd.h"
#include "base/log.h"

/* Runs `fn` with stderr going to a file; its text without the time at the start. */
static void captured(struct test_dir *d, void (*fn)(void), struct buf *b)
{
    int saved = dup(STDERR_FILENO);
    int fd = openat(d->fd, "log", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(saved >= 0 && fd >= 0);
    (void)dup2(fd, STDERR_FILENO);
    fn();
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(fd);
    buf_reset(b);
    assert_int_equal(file_read(d->fd, "log", b, NULL), 0);
}

static void form(const char *format)
{
    if (format)
        (void)setenv("ABX_LOG_FORMAT", format, 1);
    else
        (void)unsetenv("ABX_LOG_FORMAT");
    (void)setenv("ABX_LOG_LEVEL", "info", 1);
    log_init("role");
}

static void plain_event(void)
{
    log_info("sandbox started", "id", "i1", "ms", "12", NULL);
}

static void text_form(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);

    form(NULL);
    captured(*state, plain_event, &b);
    assert_true(b.len > 24);
    assert_string_equal(buf_cstr(&b) + 24,
                        " info role msg=\"sandbox started\" id=\"i1\" ms=\"12\"\n");
    assert_int_equal(buf_cstr(&b)[23], 'Z');
}

static void json_form(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);

    form("json");
    captured(*state, plain_event, &b);
    assert_int_equal(strncmp(buf_cstr(&b), "{\"time\":\"20", 11), 0);
    assert_string_equal(strstr(buf_cstr(&b), ",\"level\""),
                        ",\"level\":\"info\",\"role\":\"role\",\"msg\":\"sandbox "
                        "started\",\"id\":\"i1\",\"ms\":\"12\"}\n");
}

static void hostile_event(void)
{
    log_error("a\nb \"x\" \\ \x1b[31m \x7f", "k", "\xc3\xa4\xc2\x9bm", "bad", "\xff\xfe", "cut",
              "\xc3", NULL);
}

static void values_cannot_forge_lines(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);

    form("json");
    captured(*state, hostile_event, &b);
    assert_non_null(
        strstr(buf_cstr(&b), "\"msg\":\"a\\u000ab \\\"x\\\" \\\\ \\u001b[31m \\u007f\""));
    assert_non_null(
        strstr(buf_cstr(&b),
               "\"k\":\"\xc3\xa4\\u009bm\",\"bad\":\"\\u00ff\\u00fe\",\"cut\":\"\\u00c3\"}\n"));
    assert_ptr_equal(memchr(buf_data(&b), '\n', b.len), buf_data(&b) + b.len - 1);
}

static char huge[20000];

static void huge_event(void)
{
    log_warn(huge, "a", huge, "b", huge, "c", huge, "d", huge, "e", huge, "f", huge, "g", huge, "h",
             huge, "i", huge, "last", "x", NULL);
}

/* However long, a line is whole: quotes closed, one line feed, not over 8 KiB. */
static void long_values_keep_the_line_whole(void **state)
{
    static const char *const fill[] = { "x", "\n", "\xc3\xa4", "\xff" };

    for (size_t i = 0; i < ARRAY_SIZE(fill); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);
        size_t n = strlen(fill[i]);

        form("json");
        for (size_t k = 0; k + n < sizeof huge; k += n)
            memcpy(huge + k, fill[i], n);
        captured(*state, huge_event, &b);
        assert_true(b.len <= 8192);
        assert_true(b.len > 5000);
        assert_non_null(strstr(buf_cstr(&b), "...\","));
        assert_string_equal(buf_cstr(&b) + b.len - 13, ",\"last\":\"x\"}\n");
        assert_ptr_equal(memchr(buf_data(&b), '\n', b.len), buf_data(&b) + b.len - 1);
    }
}

static void levels_event(void)
{
    errno = EDOM;
    log_error("m1", NULL);
    log_warn("m2", NULL);
    log_info("m3", NULL);
    log_debug("m4", NULL);
    assert_int_equal(errno, EDOM);
}

static void levels_filter(void **state)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);

        (void)setenv("ABX_LOG_LEVEL", names[i], 1);
        log_init("role");
        assert_true(log_is_on((enum log_level)i));
        captured(*state, levels_event, &b);
        for (size_t k = 1; k <= 4; k++) {
            char text[16];

            (void)snprintf(text, sizeof text, "m%zu", k);
            assert_int_equal(strstr(buf_cstr(&b), text) != NULL, k <= i + 1);
        }
    }
    (void)setenv("ABX_LOG_LEVEL", "nonsense", 1);
    log_set_level(LOG_WARN);
    log_init("role");
    assert_false(log_is_on(LOG_INFO));
    assert_true(log_is_on(LOG_WARN));
}

static void err_event(void)
{
    struct abx_err err;

    (void)err_set(&err, ABX_NOT_FOUND, "no '%s'", "x");
    log_err("cannot start", &err);
}

static void errors_are_logged_with_code(void **state)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);

    form(NULL);
    captured(*state, err_event, &b);
    assert_string_equal(buf_cstr(&b) + 24,
                        " error role msg=\"cannot start\" code=\"not_found\" error=\"no 'x'\"\n");
}

#define DIR_TEST(t) cmocka_unit_test_setup_teardown(t, dir_setup, dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIR_TEST(text_form),
        DIR_TEST(json_form),
        DIR_TEST(values_cannot_forge_lines),
        DIR_TEST(long_values_keep_the_line_whole),
        DIR_TEST(levels_filter),
        DIR_TEST(errors_are_logged_with_code),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
