/* http_head.c - response heads as libcurl hands them over, line by line (also those it makes from HTTP/2).
 *
 * Strict where two readers could differ: names are tokens, no folded lines, no control bytes, one length, and
 * not a length beside a transfer coding (RFC 9112 6.3). Limits: 100 fields, 64 KiB. 1xx heads are dropped.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "transport/http_internal.h"
#include "wire/http1_head.h"
#include "wire/http_date.h"

void head_init(struct head_parser *p)
{
    buf_init(&p->mem, 2 * HTTP_HEAD_BYTES);
    head_reset(p);
}

void head_done(struct head_parser *p)
{
    buf_done(&p->mem);
}

void head_reset(struct head_parser *p)
{
    buf_reset(&p->mem);
    p->count = 0;
    p->bytes = 0;
    p->status = 0;
    p->version = 0;
    p->why[0] = '\0';
}

static enum head_result head_bad(struct head_parser *p, const char *why)
{
    (void)snprintf(p->why, sizeof p->why, "%s", why);
    return HEAD_BAD;
}

static enum head_result head_status_line(struct head_parser *p, struct slice line)
{
    uint64_t status;
    size_t at;

    head_reset(p);
    p->bytes = line.n;
    if (slice_starts_with(line, "HTTP/1.1 "))
        p->version = 11;
    else if (slice_starts_with(line, "HTTP/1.0 "))
        p->version = 10;
    else if (slice_starts_with(line, "HTTP/2 "))
        p->version = 20;
    else
        return head_bad(p, "status line is not of HTTP/1.x or HTTP/2");
    at = p->version == 20 ? 7 : 9;
    if (line.n < at + 3 || !str_parse_u64(slice_of(line.p + at, 3), 999, &status) || status < 100 ||
        (line.n > at + 3 && line.p[at + 3] != ' '))
        return head_bad(p, "status is not a number from 100 to 999");
    p->status = (int)status;
    return HEAD_MORE;
}

static const char *head_find(const struct head_parser *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp((const char *)p->mem.mem + p->mem.off + p->fields[i].name, name) == 0)
            return (const char *)p->mem.mem + p->mem.off + p->fields[i].value;
    return NULL;
}

static enum head_result head_field(struct head_parser *p, struct slice line)
{
    const uint8_t *colon = memchr(line.p, ':', line.n);
    struct slice name, value;
    struct head_field *f;
    const char *other;
    uint64_t length;
    char *text;
    size_t at;

    if (!colon || colon == line.p)
        return head_bad(p, "a header line has no name");
    name = slice_of(line.p, (size_t)(colon - line.p));
    value = slice_trim(slice_of(colon + 1, line.n - name.n - 1));
    if (!http1_is_token(name))
        return head_bad(p, "a header's name has a forbidden byte");
    for (size_t i = 0; i < value.n; i++)
        if ((value.p[i] < 0x20 && value.p[i] != '\t') || value.p[i] == 0x7f)
            return head_bad(p, "a header's value has a control byte");
    if (p->count == HTTP_HEADERS_MAX)
        return head_bad(p, "more than 100 header fields");
    at = p->mem.len;
    if (buf_append_slice(&p->mem, name) != BUF_OK || buf_append_byte(&p->mem, 0) != BUF_OK ||
        buf_append_slice(&p->mem, value) != BUF_OK || buf_append_byte(&p->mem, 0) != BUF_OK)
        return head_bad(p, "header over 64 KiB");
    text = (char *)buf_data(&p->mem) + at;
    for (size_t i = 0; i < name.n; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            text[i] = (char)(text[i] + ('a' - 'A'));
    if (strcmp(text, "content-length") == 0) {
        other = head_find(p, "content-length");
        if (!str_parse_u64(value, INT64_MAX, &length))
            return head_bad(p, "content-length is not a number of bytes");
        if (other && strcmp(other, text + name.n + 1) != 0)
            return head_bad(p, "two lengths of the body");
    }
    f = &p->fields[p->count++];
    f->name = at;
    f->value = at + name.n + 1;
    return HEAD_MORE;
}

static enum head_result head_end(struct head_parser *p)
{
    char *mem = (char *)buf_data(&p->mem);

    if (p->status < 200) {
        if (p->status == 101)
            return head_bad(p, "the server switched protocols unasked");
        head_reset(p);
        return HEAD_MORE;
    }
    if (p->version < 20 && head_find(p, "content-length") && head_find(p, "transfer-encoding"))
        return head_bad(p, "both content-length and transfer-encoding");
    for (size_t i = 0; i < p->count; i++)
        p->pairs[i] = (struct abx_pair){ mem + p->fields[i].name, mem + p->fields[i].value };
    return HEAD_DONE;
}

enum head_result head_line(struct head_parser *p, struct slice line)
{
    if (line.n == 0 || line.p[line.n - 1] != '\n')
        return HEAD_MORE; /* the connection ended within a line: libcurl says so next */
    while (line.n > 0 && (line.p[line.n - 1] == '\n' || line.p[line.n - 1] == '\r'))
        line.n--;
    if (p->status == 0) {
        if (line.n == 0)
            return HEAD_MORE;
        return head_status_line(p, line);
    }
    p->bytes += line.n + 2;
    if (p->bytes > HTTP_HEAD_BYTES)
        return head_bad(p, "header over 64 KiB");
    if (line.n == 0)
        return head_end(p);
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return head_bad(p, "a folded header line");
    return head_field(p, line);
}

const char *http_head_get(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (strcmp(head->headers[i].key, name) == 0)
            return head->headers[i].value;
    return NULL;
}

int64_t head_retry_after_ms(const char *value, int64_t now_ms)
{
    uint64_t seconds;
    time_t when;

    if (str_parse_u64(slice_str(value), INT32_MAX, &seconds))
        return (int64_t)seconds * 1000;
    if (!http_date_parse(slice_str(value), &when))
        return -1;
    return MAX((int64_t)when * 1000 - now_ms, INT64_C(0));
}
