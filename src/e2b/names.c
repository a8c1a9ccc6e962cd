/* names.c - see names.h. */
#include "e2b/names.h"

#include "e2b/ids.h"

/* Copies lower-cased; false when empty, too long or with a character that is not allowed. */
static bool copy_part(struct slice s, bool dot, char to[NAME_PART_SIZE])
{
    if (s.n == 0 || s.n > NAME_PART_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = s.p[i];

        if (c >= 'A' && c <= 'Z')
            c = (uint8_t)(c + 32);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
              (dot && c == '.')))
            return false;
        to[i] = (char)c;
    }
    to[s.n] = '\0';
    return true;
}

static struct slice trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || (s.p[0] >= '\t' && s.p[0] <= '\r')))
        s = slice_of(s.p + 1, s.n - 1);
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || (s.p[s.n - 1] >= '\t' && s.p[s.n - 1] <= '\r')))
        s.n--;
    return s;
}

/* Cuts `s` at the first `c`: the part before it goes to *ret, s keeps the rest. */
static bool cut(struct slice *s, char c, struct slice *ret)
{
    const uint8_t *at = s->n ? memchr(s->p, c, s->n) : NULL;

    if (!at)
        return false;
    *ret = slice_of(s->p, (size_t)(at - s->p));
    *s = slice_of(at + 1, s->n - ret->n - 1);
    return true;
}

const char *template_ref_parse(struct slice s, struct template_ref *ret)
{
    struct slice part;
    struct template_ref r = { 0 };

    s = trim(s);
    if (s.n == 0)
        return "it is empty";
    if (cut(&s, '/', &part) && !copy_part(part, false, r.namespace_))
        return "the namespace may have a-z, 0-9, '-' and '_'";
    if (cut(&s, ':', &part)) {
        if (!copy_part(s, true, r.tag))
            return "the tag may have a-z, 0-9, '-', '_' and '.'";
        if (uuid_is_valid(slice_str(r.tag)))
            return "the tag must not be a UUID";
        s = part;
    }
    if (!copy_part(s, false, r.alias))
        return "the name may have a-z, 0-9, '-' and '_'";
    *ret = r;
    return NULL;
}
