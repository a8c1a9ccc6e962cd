/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/str.h"

#define LINE_MAX_BYTES 8192
#define VALUE_MAX_BYTES 1000

static enum log_level max_level = LOG_INFO;
static bool is_json;
static const char *role_name = "abx";
static int failure_fd = -1;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_init(const char *role)
{
    const char *level = getenv("ABX_LOG_LEVEL");
    const char *format = getenv("ABX_LOG_FORMAT");
    const char *failure = getenv("ABX_LOG_FAILURE_FD");
    uint64_t fd;

    role_name = role;
    for (size_t i = 0; level && i < ARRAY_SIZE(level_names); i++)
        if (strcmp(level, level_names[i]) == 0)
            max_level = (enum log_level)i;
    is_json = format && strcmp(format, "json") == 0;
    if (failure && str_parse_u64(slice_str(failure), INT32_MAX, &fd) &&
        fd_set_cloexec((int)fd, true) == 0)
        failure_fd = (int)fd;
    (void)unsetenv("ABX_LOG_FAILURE_FD");
}

void log_set_level(enum log_level level)
{
    max_level = level;
}

bool log_is_on(enum log_level level)
{
    return level <= max_level;
}

/* Is the UTF-8 sequence at s one of U+0080 to U+009F, which terminals obey? */
static bool is_c1(const char *s)
{
    return (uint8_t)s[0] == 0xc2 && (uint8_t)s[1] >= 0x80 && (uint8_t)s[1] <= 0x9f;
}

/* A quoted string valid in both formats; bytes that are not printable ASCII or UTF-8 are escaped.
 * Long ones are cut, so that one value never takes the whole line. */
static enum buf_status put_quoted(struct buf *b, const char *s)
{
    bool is_utf8 = utf8_is_valid(slice_str(s));
    enum buf_status st = buf_append_byte(b, '"');
    const char *end = s + strnlen(s, VALUE_MAX_BYTES);
    bool is_cut = *end != '\0';

    while (is_cut && is_utf8 && end > s && ((uint8_t)*end & 0xc0) == 0x80)
        end--;
    for (; st == BUF_OK && s < end; s++) {
        uint8_t c = (uint8_t)*s;

        if (c == '"' || c == '\\')
            st = buf_printf(b, "\\%c", c);
        else if (is_utf8 && is_c1(s))
            st = buf_printf(b, "\\u%04x", (uint8_t)*++s);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_utf8))
            st = buf_printf(b, "\\u%04x", c);
        else
            st = buf_append_byte(b, c);
    }
    if (st == BUF_OK)
        st = buf_append_str(b, is_cut ? "...\"" : "\"");
    return st;
}

/* Appends the pair, or nothing when it does not fit with the line's end behind it. */
static void put_pair(struct buf *b, const char *key, const char *value)
{
    size_t before = b->len;
    enum buf_status st = buf_printf(b, is_json ? ",\"%s\":" : " %s=", key);

    if (st == BUF_OK)
        st = put_quoted(b, value);
    if (st != BUF_OK || buf_room(b) < sizeof "}\n")
        buf_truncate(b, before);
}

void log_event(enum log_level level, const char *msg, ...)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(LINE_MAX_BYTES);
    char time[RFC3339_SIZE];
    int saved = errno;
    const char *key;
    va_list ap;

    if (!log_is_on(level))
        return;
    time_format_rfc3339(time_wall_ms(), time);
    (void)buf_printf(&b, is_json ? "{\"time\":\"%s\",\"level\":\"%s\",\"role\":\"%s\"" : "%s %s %s",
                     time, level_names[level], role_name);
    put_pair(&b, "msg", msg);
    va_start(ap, msg);
    while ((key = va_arg(ap, const char *)) != NULL) {
        const char *value = va_arg(ap, const char *);

        if (!value)
            break;
        put_pair(&b, key, value);
    }
    va_end(ap);
    (void)buf_append_str(&b, is_json ? "}\n" : "\n");
    (void)fd_write_all(STDERR_FILENO, buf_data(&b), b.len);
    errno = saved;
}

void log_err(const char *msg, const struct abx_err *err)
{
    log_event(LOG_ERROR, msg, "code", err_code_name(err->code), "error", err->msg, NULL);
}

void log_start_failure(const char *msg, const struct abx_err *err)
{
    log_err(msg, err);
    if (failure_fd >= 0)
        (void)fd_write_all(failure_fd, err->msg, strlen(err->msg));
}
