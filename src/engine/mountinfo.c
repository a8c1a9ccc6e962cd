/* mountinfo.c - see mountinfo.h.
 *
 *     36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
 *     id parent dev root target options [tags] - fstype source super-options
 */
#include "engine/mountinfo.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"

static struct slice take_until(struct slice *s, char end)
{
    const uint8_t *at = s->n > 0 ? memchr(s->p, end, s->n) : NULL;
    struct slice word = *s;

    if (!at) {
        *s = (struct slice){ NULL, 0 };
        return word;
    }
    word.n = (size_t)(at - s->p);
    s->p = at + 1;
    s->n -= word.n + 1;
    return word;
}

static bool is_octal(uint8_t c)
{
    return c >= '0' && c <= '7';
}

/* Copies with \ooo decoded; false when it does not fit. */
static bool unescape(struct slice s, char *to, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = s.p[i];

        if (c == '\\' && s.n - i > 3 && is_octal(s.p[i + 1]) && is_octal(s.p[i + 2]) &&
            is_octal(s.p[i + 3])) {
            c = (uint8_t)((s.p[i + 1] - '0') << 6 | (s.p[i + 2] - '0') << 3 | (s.p[i + 3] - '0'));
            i += 3;
        }
        if (n + 1 >= size)
            return false;
        to[n++] = (char)c;
    }
    to[n] = '\0';
    return true;
}

static bool parse_line(struct slice line, struct mountinfo *ret)
{
    struct slice field[6];
    struct slice word, source;

    for (size_t i = 0; i < ARRAY_SIZE(field); i++)
        field[i] = take_until(&line, ' ');
    do {
        if (line.n == 0)
            return false;
        word = take_until(&line, ' ');
    } while (!slice_eq_str(word, "-"));
    word = take_until(&line, ' ');
    source = take_until(&line, ' ');
    if (!unescape(source, ret->source, sizeof ret->source))
        ret->source[0] = '\0';
    ret->super_options = line;
    return field[3].n > 0 && field[4].n > 0 && word.n > 0 &&
           unescape(field[3], ret->root, sizeof ret->root) &&
           unescape(field[4], ret->target, sizeof ret->target) &&
           unescape(word, ret->fstype, sizeof ret->fstype);
}

bool mountinfo_next(struct slice *rest, struct mountinfo *ret)
{
    while (rest->n > 0)
        if (parse_line(take_until(rest, '\n'), ret))
            return true;
    return false;
}

bool mountinfo_has_word(struct slice list, const char *word)
{
    while (list.n > 0)
        if (slice_eq_str(take_until(&list, ','), word))
            return true;
    return false;
}

bool mountinfo_find(struct slice text, const char *target, struct mountinfo *ret)
{
    struct slice rest = text, last = { NULL, 0 }, before = text;
    struct mountinfo m;

    while (mountinfo_next(&rest, &m)) {
        if (strcmp(m.target, target) == 0)
            last = before;
        before = rest;
    }
    /* The last one listed is on top. */
    return last.n > 0 && mountinfo_next(&last, ret);
}

int mountinfo_read(struct buf *b, struct abx_err *err)
{
    return file_read(AT_FDCWD, "/proc/self/mountinfo", b, err);
}
