/* config_tool.c - one reader of the configuration over texts from standard input, for comparison with others.
 *
 *   config_tool dotenv|dotenv-expand|toml < records
 *
 * A record is its size (32 bit, big endian) and the text. Answers, in lines: "ok" with the number of
 * values, then for each hex of path, name and value ("-" = none); or "error" and why.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "transport/dotenv.h"
#include "transport/toml.h"

static void print_hex(const char *text, char end)
{
    if (!text)
        (void)putchar('-');
    for (; text && *text; text++)
        (void)printf("%02x", (unsigned char)*text);
    (void)putchar(end);
}

static void run_dotenv(struct slice text, bool expand)
{
    struct abx_err err = { 0 };
    struct dotenv d;
    size_t n = 0;

    if (dotenv_parse(text, expand, &d, &err) < 0) {
        (void)printf("error %s\n", err.msg);
        dotenv_done(&d);
        return;
    }
    for (size_t i = 0; i < d.count; i++)
        n += d.lines[i].key != NULL;
    (void)printf("ok %zu\n", n);
    for (size_t i = 0; i < d.count; i++) {
        if (!d.lines[i].key)
            continue;
        print_hex("", ' ');
        print_hex(d.lines[i].key, ' ');
        print_hex(d.lines[i].value, '\n');
    }
    dotenv_done(&d);
}

static void run_toml(struct slice text)
{
    static const char types[] = "sifba"; /* of enum toml_type */
    struct abx_err err = { 0 };
    struct toml t;

    if (toml_parse(text, &t, &err) < 0) {
        (void)printf("error %s\n", err.msg);
    } else {
        (void)printf("ok %zu\n", t.key_count);
        for (size_t i = 0; i < t.key_count; i++) {
            print_hex(t.keys[i].path, ' ');
            print_hex(t.keys[i].name, ' ');
            (void)putchar(types[t.keys[i].type]);
            print_hex(t.keys[i].text, '\n');
        }
    }
    toml_done(&t);
}

int main(int argc, char **argv)
{
    static uint8_t text[TOML_MAX * 2];
    uint8_t size[4];

    if (argc != 2)
        return 2;
    while (fd_read_all(STDIN_FILENO, size, sizeof size) == sizeof size) {
        size_t n = (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3];

        if (n > sizeof text || fd_read_all(STDIN_FILENO, text, n) != (ssize_t)n)
            return 1;
        if (strcmp(argv[1], "toml") == 0)
            run_toml(slice_of(text, n));
        else
            run_dotenv(slice_of(text, n), strcmp(argv[1], "dotenv-expand") == 0);
    }
    return fflush(stdout) != 0;
}
