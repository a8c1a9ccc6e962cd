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

static enum log_level max_level = LOG_INFO;
static bool is_json;
static const char *role_name = "abx";

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_init(const char *role)
{
    const char *level = getenv("ABX_LOG_LEVEL");
    const char *format = getenv("ABX_LOG_FORMAT");

    role_name = role;
    for (size_t i = 0; level && i < ARRAY_SIZE(level_names); i++)
        if (strcmp(level, level_names[i]) == 0)
            max_level = (enum log_level)i;
    is_json = format && strcmp(format, "json") == 0;
}

void log_set_level(enum log_level level)
{
    max_level = level;
}

bool log_is_on(enum log_level level)
{
    return level <= max_level;
}

/* A quoted string valid in both formats; bytes that are not printable ASCII or UTF-8 are escaped. */
static void put_quoted(struct buf *b, const char *s)
{
    bool is_utf8 = utf8_is_valid(slice_str(s));

    (void)buf_append_byte(b, '"');
    for (; *s; s++) {
        uint8_t c = (uint8_t)*s;

        if (c == '"' || c == '\\')
            (void)buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_utf8))
            (void)buf_printf(b, "\\u%04x", c);
        else
            (void)buf_append_byte(b, c);
    }
    (void)buf_append_byte(b, '"');
}

static void put_pair(struct buf *b, const char *key, const char *value)
{
    if (is_json)
        (void)buf_printf(b, ",\"%s\":", key);
    else
        (void)buf_printf(b, " %s=", key);
    put_quoted(b, value);
}

void log_event(enum log_level level, const char *msg, ...)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(LINE_MAX_BYTES);
    char time[RFC3339_SIZE];
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
}

void log_err(const char *msg, const struct abx_err *err)
{
    log_event(LOG_ERROR, msg, "code", err_code_name(err->code), "error", err->msg, NULL);
}
