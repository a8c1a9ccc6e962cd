/* sandbox_man.c - prints the manual page abx-sandbox(1) from the table of commands (cli/spec.h), at build time. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/spec.h"

/* Text of a line: '-' is a minus that can be copied, a backslash is one, and nothing begins with a control character. */
static void put_text(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && (text[i] == '.' || text[i] == '\''))
            (void)fputs("\\&", stdout);
        if (text[i] == '\\')
            (void)fputs("\\e", stdout);
        else if (text[i] == '-')
            (void)fputs("\\-", stdout);
        else
            (void)putchar(text[i]);
    }
}

/* Where a sentence ends: ". " and what begins another. "DIR/. stands" is one. */
static const char *sentence_end(const char *text)
{
    const char *end = strstr(text, ". ");

    while (end && !isupper((unsigned char)end[2]))
        end = strstr(end + 1, ". ");
    return end;
}

/* Paragraphs, a sentence a line. */
static void put_paragraphs(const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        const char *end = sentence_end(text);

        if (end && (size_t)(end - text) < n)
            n = (size_t)(end - text) + 1;
        put_text(text, n);
        (void)putchar('\n');
        text += n;
        if (strncmp(text, "\n\n", 2) == 0)
            (void)puts(".Pp");
        text += strspn(text, " \n");
    }
}

static void put_sentence(const char *text)
{
    (void)putchar(toupper((unsigned char)*text));
    put_text(text + 1, strlen(text + 1));
    (void)puts(".");
}

static void put_options(uint64_t set, bool connection)
{
    bool is_open = false;

    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct spec_option *o = &spec_options[i];

        if (!(set & SPEC_BIT(i)) || o->is_connection != connection)
            continue;
        if (!is_open)
            (void)puts(".Bl -tag -width Ds");
        is_open = true;
        (void)fputs(".It ", stdout);
        if (o->letter)
            (void)printf("Fl %c , ", o->letter);
        (void)printf("Fl \\-");
        put_text(o->name, strlen(o->name));
        if (o->value) {
            (void)fputs(" Ar ", stdout);
            put_text(o->value, strlen(o->value));
        }
        (void)putchar('\n');
        put_sentence(o->help);
    }
    if (is_open)
        (void)puts(".El");
}

static void put_synopsis(const struct spec_command *c)
{
    (void)printf(".Nm abx\n.Cm %s\n.Op Ar option ...\n", c->name);
    if (*c->arguments) {
        (void)fputs(".Ar ", stdout);
        put_text(c->arguments, strlen(c->arguments));
        (void)putchar('\n');
    }
}

static void put_command(const struct spec_command *c)
{
    (void)printf(".Ss abx %s\n", c->name);
    if (c->alias[0]) {
        (void)fputs("Short:", stdout);
        for (size_t i = 0; i < ARRAY_SIZE(c->alias) && c->alias[i]; i++)
            (void)printf("%s abx %s", i ? "," : "", c->alias[i]);
        (void)puts(".\n.Pp");
    }
    put_sentence(c->summary);
    if (c->text) {
        (void)puts(".Pp");
        put_paragraphs(c->text);
    }
    put_options(c->options, false);
}

int main(void)
{
    const struct spec_command *c;

    (void)puts(".\\\" Made from src/cli/spec.c by man/sandbox_man.c: change those.\n"
               ".Dd November 30, 2026\n.Dt ABX-SANDBOX 1\n.Os\n"
               ".Sh NAME\n.Nm abx-sandbox\n.Nd use sandboxes from the command line\n.Sh SYNOPSIS");
    for (size_t i = 0; (c = spec_at(i)) != NULL; i++)
        put_synopsis(c);
    (void)puts(
        ".Sh DESCRIPTION\n"
        "The client commands of\n.Xr abx 1\n"
        "work against every service that speaks the E2B protocol.\n"
        "Where and as whom they connect is told by options, the environment, configuration "
        "files or the service running on this machine, in this order;\n.Cm abx config\n"
        "shows and changes it,\n.Cm abx whoami\ntries it.\n"
        ".Pp\nResults go to standard output, messages to standard error.\n"
        "Text that a sandbox or a service made up is printed without control characters; only "
        "what\n.Cm exec , shell , run , cat\nand\n.Cm cp\npass through is left as it is.\n"
        ".Pp\nA\n.Ar SIZE\nis a whole number of MiB, or one with K, M, G or T, which are powers of "
        "1024; "
        "Ki, Mi, Gi and Ti are the same.\nWhat is no whole MiB is rounded down.\n"
        "A\n.Ar DURATION\nis a whole number of seconds, or one with s, m, h or d.\n"
        ".Sh COMMANDS");
    for (size_t i = 0; (c = spec_at(i)) != NULL; i++)
        put_command(c);
    (void)puts(".Sh OPTIONS OF ALL COMMANDS");
    put_options(UINT64_MAX >> (64 - OPT_COUNT), true);
    (void)puts(".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
               ".It Ev E2B_API_KEY , E2B_API_URL , E2B_DOMAIN , E2B_SANDBOX_URL\n"
               "As for E2B's own clients.\n.Cm abx config list\n"
               "names all variables and keys, and where each value comes from.\n"
               ".It Ev ABX_PROFILE\nThe profile, as\n.Fl \\-profile .\n"
               ".It Ev NO_COLOR\nNo colours when it is set and not empty.\n"
               ".El\n"
               ".Sh EXIT STATUS\n.Bl -tag -width Ds\n"
               ".It 0\nDone.\n.It 1\nGeneral failure.\n"
               ".It 2\nBad usage, or a value that abx itself does not take; what the service "
               "refuses is 1.\n.It 3\nNo credentials, or the service refuses them.\n"
               ".It 4\nNot found.\n.It 5\nOut of time.\n.It 6\nA quota or rate limit was hit.\n"
               ".It 128 + N\nEnded by signal N.\n.El\n.Pp\n"
               ".Cm exec , shell\nand\n.Cm run\nreturn the command's own status,\n"
               "or 127 when there is no such command and 126 when it cannot be executed.\n"
               "With\n.Fl \\-json\na failure is one JSON document too:\n"
               ".Dl {\\(dqerror\\(dq: {\\(dqcode\\(dq: ..., \\(dqmessage\\(dq: ..., "
               "\\(dqhttp_status\\(dq: ..., "
               "\\(dqhint\\(dq: ...}}\n"
               ".Sh EXAMPLES\n.Bd -literal\n"
               "abx run 'python3 --version'\n"
               "id=$(abx create --timeout 1h --metadata job=build)\n"
               "abx cp ./project $id:project\n"
               "abx exec $id --cwd project -- make -j4\n"
               "abx cp $id:project/out ./out\n"
               "tar cz data | abx exec $id 'tar xz -C /tmp'\n"
               "abx sh $id\n"
               "abx kill --all --metadata job=build --yes\n"
               ".Ed\n.Sh SEE ALSO\n.Xr abx 1");
    return fflush(stdout) != 0;
}
