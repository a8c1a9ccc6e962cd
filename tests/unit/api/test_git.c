/* Words for the shell, credentials in URLs, git's status and failure texts. */
#include "test.h"

#include "abx/git.h"

static void commands(void **state)
{
    static const char *const args[] = { "commit", "-m", "it's $HOME `x`\nline", "" };
    struct abx_error err;
    char *text = NULL;

    assert_int_equal(abx_git_command("/a b", args, 4, &text, &err), 0);
    assert_string_equal(text, "'git' '-C' '/a b' 'commit' '-m' 'it'\\''s $HOME `x`\nline' ''");
    free(text);
    assert_int_equal(abx_git_command(NULL, args, 1, &text, NULL), 0);
    assert_string_equal(text, "'git' 'commit'");
    free(text);
}

static void urls(void **state)
{
    static const struct {
        const char *url, *user, *password, *want; /* NULL = refused */
    } rows[] = {
        { "https://h/r.git", "u", "p", "https://u:p@h/r.git" },
        { "https://h/r.git", "u@x", "p:/ü", "https://u%40x:p%3A%2F%C3%BC@h/r.git" },
        { "https://old:pw@h/r.git", "u", "p", "https://u:p@h/r.git" },
        { "https://u:p@h/r.git", NULL, NULL, "https://h/r.git" },
        { "HTTP://u@h:80/a@b", NULL, NULL, "HTTP://h:80/a@b" },
        { "https://h", "u", NULL, "https://u@h" },
        { "https://h?x=@", NULL, NULL, "https://h?x=@" },
        { "git@h:r.git", NULL, NULL, "git@h:r.git" },
        { "git@h:r.git", "u", "sesame", NULL },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct abx_error err = { 0 };
        char *text = NULL;
        int r = abx_git_url(rows[i].url, rows[i].user, rows[i].password, &text, &err);

        if (!rows[i].want) {
            assert_int_equal(r, ABX_INVALID_ARGUMENT);
            assert_null(strstr(err.message, rows[i].password));
            continue;
        }
        assert_int_equal(r, 0);
        assert_string_equal(text, rows[i].want);
        free(text);
    }
}

/* The result as one line: branch|upstream|ahead|behind|detached and XY:path<from for each file. */
static void render(const struct abx_git_status *s, struct buf *b)
{
    (void)buf_printf(b, "%s|%s|%lld|%lld|%d", s->branch ? s->branch : "-",
                     s->upstream ? s->upstream : "-", (long long)s->ahead, (long long)s->behind,
                     s->detached);
    for (size_t i = 0; i < s->file_count; i++)
        (void)buf_printf(b, " %c%c:%s%s%s", s->files[i].index, s->files[i].worktree,
                         s->files[i].path, s->files[i].renamed_from ? "<" : "",
                         s->files[i].renamed_from ? s->files[i].renamed_from : "");
}

static void statuses(void **state)
{
    static const char *const rows[][2] = {
        { "", "-|-|0|0|0" },
        { "## main\n", "main|-|0|0|0" },
        { "## main...origin/main\n", "main|origin/main|0|0|0" },
        { "## a/b...o/a/b [ahead 1, behind 22]\n", "a/b|o/a/b|1|22|0" },
        { "## main...origin/main [behind 3]\n", "main|origin/main|0|3|0" },
        { "## main...origin/main [gone]\n", "main|origin/main|0|0|0" },
        { "## HEAD (no branch)\n", "-|-|0|0|1" },
        { "## No commits yet on main\n?? x\n", "main|-|0|0|0 ??:x" },
        { "## m\n M a\nA  b c\nUU d\n", "m|-|0|0|0  M:a A :b c UU:d" },
        { "## m\nR  old -> new\n", "m|-|0|0|0 R :new<old" },
        { "## m\n?? a -> b\n", "m|-|0|0|0 ??:a -> b" },
        { "## m\n?? \"tab\\there\\\"q\\303\\274\"\n", "m|-|0|0|0 ??:tab\there\"q\xc3\xbc" },
        { "## m\nR  \"a -> b\" -> \"c\\n\"\n", "m|-|0|0|0 R :c\n<a -> b" },
        { "## m\r\n?? x\r\n", "m|-|0|0|0 ??:x" },
    };
    static const char *const broken[] = { "x", "?? ", "?? \"open", "?? \"a\\z\"", "?? \"a\"b" };
    struct abx_git_status *s = NULL;
    struct abx_error err;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct buf b = BUF_INIT(1000);

        assert_int_equal(abx_git_status_parse(rows[i][0], &s, &err), 0);
        render(s, &b);
        assert_string_equal(buf_cstr(&b), rows[i][1]);
        abx_git_status_free(s);
        buf_done(&b);
    }
    for (size_t i = 0; i < ARRAY_SIZE(broken); i++)
        assert_int_equal(abx_git_status_parse(broken[i], &s, &err), ABX_INVALID_ARGUMENT);
    abx_git_status_free(NULL);
}

static void failures(void **state)
{
    assert_int_equal(abx_git_failure("", "fatal: Authentication failed for 'https://h/'"), 1);
    assert_int_equal(abx_git_failure("fatal: could not read Username for 'https://h'", ""), 1);
    assert_int_equal(abx_git_failure("", "fatal: The current branch x has no upstream branch."), 2);
    assert_int_equal(
        abx_git_failure("", "There is no tracking information for the current branch."), 2);
    assert_int_equal(abx_git_failure("", "fatal: not a git repository"), 0);
    assert_int_equal(abx_git_failure(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands),
        cmocka_unit_test(urls),
        cmocka_unit_test(statuses),
        cmocka_unit_test(failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
