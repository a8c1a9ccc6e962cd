/* http1_encode.c - writing heads and chunk headers, and what a proxy drops. */
#include "wire/http1_head.h"

struct reason_row {
    int status;
    const char *text;
};

/* IANA's registry, what this project and its clients use of it. */
static const struct reason_row reasons[] = {
    { 100, "Continue" },
    { 101, "Switching Protocols" },
    { 200, "OK" },
    { 201, "Created" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 205, "Reset Content" },
    { 206, "Partial Content" },
    { 300, "Multiple Choices" },
    { 301, "Moved Permanently" },
    { 302, "Found" },
    { 303, "See Other" },
    { 304, "Not Modified" },
    { 307, "Temporary Redirect" },
    { 308, "Permanent Redirect" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 402, "Payment Required" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 410, "Gone" },
    { 411, "Length Required" },
    { 412, "Precondition Failed" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 416, "Range Not Satisfiable" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "Unprocessable Content" },
    { 425, "Too Early" },
    { 426, "Upgrade Required" },
    { 428, "Precondition Required" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 499, "Client Closed Request" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 502, "Bad Gateway" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" },
    { 507, "Insufficient Storage" },
};

const char *http1_reason(int status)
{
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

/* Appends all parts or none. */
static enum buf_status put_parts(struct buf *b, const struct slice *parts, size_t n_parts)
{
    enum buf_status s;
    size_t n = 0;
    uint8_t *to;

    for (size_t i = 0; i < n_parts; i++)
        if (__builtin_add_overflow(n, parts[i].n, &n))
            return BUF_LIMIT;
    to = buf_reserve(b, n, &s);
    if (!to)
        return s;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n > 0)
            memcpy(to, parts[i].p, parts[i].n);
        to += parts[i].n;
    }
    buf_commit(b, n);
    return BUF_OK;
}

enum buf_status http1_request_line(struct buf *b, struct slice method, struct slice target)
{
    struct slice parts[] = { method, SLICE_LIT(" "), target, SLICE_LIT(" HTTP/1.1\r\n") };

    if (!http1_is_token(method) || !http1_is_target(target) || target.n > HTTP1_TARGET_MAX)
        return BUF_LIMIT;
    return put_parts(b, parts, ARRAY_SIZE(parts));
}

enum buf_status http1_status_line(struct buf *b, int status)
{
    char digits[3];
    struct slice parts[] = { SLICE_LIT("HTTP/1.1 "), slice_of(digits, 3), SLICE_LIT(" "),
                             slice_str(http1_reason(status)), SLICE_LIT("\r\n") };

    if (status < 100 || status > 999)
        return BUF_LIMIT;
    digits[0] = (char)('0' + status / 100);
    digits[1] = (char)('0' + status / 10 % 10);
    digits[2] = (char)('0' + status % 10);
    return put_parts(b, parts, ARRAY_SIZE(parts));
}

enum buf_status http1_field_put(struct buf *b, struct slice name, struct slice value)
{
    struct slice parts[] = { name, SLICE_LIT(": "), value, SLICE_LIT("\r\n") };

    if (!http1_is_token(name) || !http1_is_value(value))
        return BUF_LIMIT;
    return put_parts(b, parts, ARRAY_SIZE(parts));
}

enum buf_status http1_head_end(struct buf *b)
{
    return buf_append(b, "\r\n", 2);
}

size_t http1_chunk_begin(char to[19], size_t n)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = 1;

    for (size_t rest = n >> 4; rest > 0; rest >>= 4)
        len++;
    for (size_t i = len; i-- > 0; n >>= 4)
        to[i] = digits[n & 15];
    to[len] = '\r';
    to[len + 1] = '\n';
    to[len + 2] = '\0';
    return len + 2;
}

/* Fields about one connection only, whatever Connection lists (RFC 9110 7.6.1). */
static bool is_always_dropped(struct slice name)
{
    static const struct slice names[] = {
        SLICE_LIT("connection"), SLICE_LIT("keep-alive"), SLICE_LIT("transfer-encoding"),
        SLICE_LIT("te"),         SLICE_LIT("trailer"),    SLICE_LIT("upgrade"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (name.n == names[i].n && slice_ieq(name, names[i]))
            return true;
    return name.n >= 6 && slice_ieq_str(slice_of(name.p, 6), "proxy-");
}

/* Fields that a sender can't have dropped: a request without them means something else. */
static bool is_never_dropped(struct slice name)
{
    return slice_ieq_str(name, "host") || slice_ieq_str(name, "content-length");
}

bool http1_is_hop_by_hop(struct slice name, struct slice connection)
{
    if (is_always_dropped(name))
        return true;
    return !is_never_dropped(name) && http1_list_has(connection, name);
}

bool http1_head_is_hop_by_hop(const struct http1_head *head, struct slice name)
{
    if (is_always_dropped(name))
        return true;
    if (is_never_dropped(name))
        return false;
    for (size_t i = 0; i < head->n_fields; i++)
        if (slice_ieq_str(head->fields[i].name, "connection") &&
            http1_list_has(head->fields[i].value, name))
            return true;
    return false;
}
