/* test_apt_sources.c - both forms of apt's entries, and which of them are the machine's archive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/apt_sources.h"

static const struct os_release debian = { "debian", "bookworm" };
static const struct os_release ubuntu = { "ubuntu", "noble" };

/* All entries of a file as "URI SUITE [COMPONENTS] SIGNED-BY ARCHS;" */
static void assert_entries(int (*parse)(struct apt_sources *, struct slice, const char *,
                                        struct abx_err *),
                           const char *text, const char *expected)
{
    struct apt_sources s = { 0 };
    struct abx_err err = { 0 };
    struct buf got = BUF_INIT(65536);

    assert_int_equal(parse(&s, slice_str(text), "file", &err), 0);
    for (size_t i = 0; i < s.count; i++) {
        const struct apt_source *e = &s.items[i];
        assert_int_equal(buf_printf(&got, "%s %s [%s] %s %s;", e->uri, e->suite, e->components,
                                    e->signed_by, e->archs),
                         BUF_OK);
    }
    assert_string_equal(buf_cstr(&got), expected);
    buf_done(&got);
    apt_sources_done(&s);
}

static void assert_refused(int (*parse)(struct apt_sources *, struct slice, const char *,
                                        struct abx_err *),
                           const char *text, const char *message)
{
    struct apt_sources s = { 0 };
    struct abx_err err = { 0 };

    assert_int_equal(parse(&s, slice_str(text), "file", &err), ABX_INVALID_ARGUMENT);
    assert_string_equal(err.msg, message);
    apt_sources_done(&s);
}

static void list_takes_words_options_and_comments(void **state)
{
    (void)state;
    assert_entries(
        apt_sources_parse_list,
        "# deb http://off.example bookworm main\n"
        "\n"
        "deb http://a.example/debian  bookworm\tmain  contrib # and more\n"
        "deb-src http://a.example/debian bookworm main\n"
        "deb [ arch=amd64,arm64 signed-by=/k.gpg trusted=no ] https://b.example sid main\n"
        "deb cdrom:[Debian 12 disc]/ bookworm main\n"
        "deb http://flat.example ./",
        "http://a.example/debian bookworm [main contrib]  ;"
        "https://b.example sid [main] /k.gpg amd64 arm64;"
        "http://flat.example ./ []  ;");
    assert_entries(apt_sources_parse_list, "", "");
}

static void list_refuses_what_apt_refuses(void **state)
{
    (void)state;
    assert_refused(apt_sources_parse_list, "\nrpm http://a.example x main\n",
                   "file:2: unknown type of entry");
    assert_refused(apt_sources_parse_list, "deb [arch=amd64 http://a.example x main\n",
                   "file:1: '[' without ']'");
    assert_refused(apt_sources_parse_list, "deb http://a.example\n", "file:1: no URI or suite");
}

static void deb822_multiplies_uris_and_suites(void **state)
{
    (void)state;
    assert_entries(apt_sources_parse_deb822,
                   "# comment\n"
                   "types: deb deb-src\n"
                   "URIs: http://a.example http://b.example\n"
                   "Suites: bookworm\n"
                   "# in the middle\n"
                   " bookworm-updates\n"
                   "X-Other: one\n"
                   " two\n"
                   "Components: main\n"
                   " contrib\n"
                   "Signed-By: /k.gpg\n"
                   "\n \n"
                   "Types: deb-src\nURIs: http://c.example\nSuites: x\n\n"
                   "Enabled: no\nTypes: deb\nURIs: http://d.example\nSuites: x\n\n"
                   "Types: deb\nURIs: http://e.example\nSuites: y\nArchitectures: amd64 arm64\n"
                   "Signed-By:\n -----BEGIN PGP-----\n .\n abc",
                   "http://a.example bookworm [main contrib] /k.gpg ;"
                   "http://a.example bookworm-updates [main contrib] /k.gpg ;"
                   "http://b.example bookworm [main contrib] /k.gpg ;"
                   "http://b.example bookworm-updates [main contrib] /k.gpg ;"
                   "http://e.example y [] - amd64 arm64;");
}

static void deb822_refuses_what_apt_refuses(void **state)
{
    (void)state;
    assert_refused(apt_sources_parse_deb822, "Types: deb\nnonsense\n", "file:2: no ':'");
    assert_refused(apt_sources_parse_deb822, " x\n", "file:1: value without a field");
    assert_refused(apt_sources_parse_deb822, "Types: deb\nSuites: x\n",
                   "file: entry without URIs or Suites");
}

/* The functions under test only read an entry. */
static struct apt_source source_of(const char *suite, const char *components, const char *signed_by,
                                   const char *archs)
{
    return (struct apt_source){
        .suite = (char *)(uintptr_t)suite,
        .components = (char *)(uintptr_t)components,
        .signed_by = (char *)(uintptr_t)signed_by,
        .archs = (char *)(uintptr_t)archs,
    };
}

static void archive_is_told_from_the_rest(void **state)
{
    static const struct {
        const char *suite, *components, *signed_by, *archs;
        const char *suffix; /* NULL = not ours */
    } cases[] = {
        { "bookworm", "main", "", "", "" },
        { "bookworm", "main contrib", "/usr/share/keyrings/debian-archive-keyring.gpg", "", "" },
        { "bookworm-updates", "main", "", "", "-updates" },
        { "bookworm-security", "main", "", "", "-security" },
        { "stable-security", "main", "", "", "-security" },
        { "bookworm-backports", "main", "", "", NULL },
        { "bookworm-pgdg", "main", "", "", NULL },
        { "bookworms", "main", "", "", NULL },
        { "trixie", "main", "", "", NULL },
        { "nodistro", "main", "", "", NULL },
        { "bookworm", "stable", "", "", NULL }, /* Docker's */
        { "bookworm", "contrib non-free", "", "", NULL },
        { "bookworm", "main", "/usr/share/keyrings/vendor.gpg", "", NULL },
        { "bookworm", "main", "/etc/apt/keyrings/my-debian-archive-keyring.gpg", "", NULL },
        { "bookworm", "main", "-", "", NULL },
        { "bookworm", "main", "", "riscv64", NULL },
        { "bookworm", "main", "", "riscv64 amd64 arm64", "" },
        { "./", "", "", "", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct apt_source src =
            source_of(cases[i].suite, cases[i].components, cases[i].signed_by, cases[i].archs);
        const char *suffix = apt_source_suffix(&src, &debian);
        if (cases[i].suffix)
            assert_string_equal(suffix ? suffix : "(none)", cases[i].suffix);
        else if (suffix)
            fail_msg("'%s %s' was taken", cases[i].suite, cases[i].components);
    }
}

static void ubuntu_has_universe(void **state)
{
    struct apt_source both = source_of("noble-updates", "restricted universe main", "", "");
    struct apt_source universe = source_of("noble", "universe", "", "");

    (void)state;
    assert_string_equal(apt_source_components(&both, &ubuntu), "main universe");
    assert_string_equal(apt_source_suffix(&both, &ubuntu), "-updates");
    assert_string_equal(apt_source_components(&universe, &ubuntu), "universe");
    assert_string_equal(apt_source_components(&universe, &debian), "");
}

static void uri_loses_its_credentials(void **state)
{
    static const char *const cases[][2] = {
        { "http://a.example/debian", "http://a.example/debian" },
        { "https://user:p@ss@a.example:8080/x@y", "https://a.example:8080/x@y" },
        { "https://token@a.example", "https://a.example" },
        { "mirror+file:/etc/apt/mirrors.list", "mirror+file:/etc/apt/mirrors.list" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *public = apt_uri_public(cases[i][0]);
        assert_string_equal(public, cases[i][1]);
        free(public);
    }
}

static void os_release_is_read(void **state)
{
    struct os_release os;
    struct abx_err err = { 0 };

    (void)state;
    assert_int_equal(os_release_parse(SLICE_LIT("NAME=\"X\"\nID=ubuntu\nID_LIKE=debian\n"
                                                "VERSION_CODENAME=\"noble\"\n"),
                                      &os, &err),
                     0);
    assert_string_equal(os.id, "ubuntu");
    assert_string_equal(os.codename, "noble");
    assert_int_equal(os_release_parse(SLICE_LIT("ID=fedora\nID_LIKE=debian\n"), &os, &err),
                     ABX_FAILED_PRECONDITION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_takes_words_options_and_comments),
        cmocka_unit_test(list_refuses_what_apt_refuses),
        cmocka_unit_test(deb822_multiplies_uris_and_suites),
        cmocka_unit_test(deb822_refuses_what_apt_refuses),
        cmocka_unit_test(archive_is_told_from_the_rest),
        cmocka_unit_test(ubuntu_has_universe),
        cmocka_unit_test(uri_loses_its_credentials),
        cmocka_unit_test(os_release_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
