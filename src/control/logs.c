/* logs.c - see logs.h. */
#include "control/logs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "control/control.h"
#include "wire/json.h"

#define FIELDS_MAX 16u
#define VALUE_MAX 512u /* bytes of a value or message; the rest is cut off */
#define FIELDS_TEXT_MAX (32u << 10)

static const char *const loggers[] = {
    [ABX__IPC__LOG__SOURCE__EGRESS] = "egress",
    [ABX__IPC__LOG__SOURCE__PROCESS] = "process",
};

static bool may_write(struct control *c, Abx__Ipc__Log__Source source)
{
    struct logs_budget *all = &c->logs_budget;
    struct budget *b = &all->of[source];
    char n[24];

    if (!budget_take(b, LOGS_PER_SECOND, LOGS_BURST, uv_now(c->loop))) {
        all->n_dropped++;
        return false;
    }
    if (all->n_dropped > 0 && b->left > LOGS_PER_SECOND) {
        (void)snprintf(n, sizeof n, "%" PRIu64, all->n_dropped);
        log_warn("too many lines for the logs of sandboxes, some are left out", "lines", n, NULL);
        all->n_dropped = 0;
    }
    return true;
}

/* Names and command lines come from sandboxes: what is not UTF-8 cannot be shown as JSON, and what a terminal would obey is not
 * shown to one. A character that was cut is left out. */
static void make_clean(char *text)
{
    size_t n = strlen(text);
    bool is_valid;

    text[n -= utf8_cut_tail(slice_of(text, n))] = '\0';
    is_valid = utf8_is_valid(slice_of(text, n));
    for (size_t at = 0; at < n; at++) {
        unsigned char c = (unsigned char)text[at];

        if (c < 0x20 || c == 0x7f)
            text[at] = ' ';
        else if (c == 0xc2 && is_valid && (unsigned char)text[at + 1] < 0xa0)
            text[at] = text[at + 1] = ' '; /* U+0080 to U+009F */
        else if (c >= 0x80 && !is_valid)
            text[at] = '?';
    }
}

static struct slice cut(const char *text)
{
    struct slice s = slice_str(text);

    if (s.n > VALUE_MAX) {
        s.n = VALUE_MAX;
        s.n -= utf8_cut_tail(s);
    }
    return s;
}

static enum buf_status put_fields(struct buf *b, const Abx__Ipc__Log *log)
{
    enum buf_status status = buf_append_str(b, "{");

    for (size_t i = 0; i < MIN(log->n_fields, (size_t)FIELDS_MAX) && status == BUF_OK; i++) {
        if (i > 0)
            (void)buf_append_str(b, ",");
        (void)json_string_put(b, cut(log->fields[i]->name));
        (void)buf_append_str(b, ":");
        status = json_string_put(b, cut(log->fields[i]->value));
    }
    return status == BUF_OK ? buf_append_str(b, "}") : status;
}

void logs_take(void *user, const Abx__Ipc__Log *log)
{
    _cleanup_(buf_done) struct buf fields = BUF_INIT(FIELDS_TEXT_MAX);
    struct control *c = user;
    const struct sandbox *sb = lifecycle_find(c->lifecycle, log->sandbox_id);
    char message[VALUE_MAX + 1];
    struct store_log line;
    struct abx_err err;

    if (!sb || log->source >= ARRAY_SIZE(loggers) || !may_write(c, log->source))
        return; /* a kind that a newer egress knows */
    (void)snprintf(message, sizeof message, "%.*s", (int)VALUE_MAX, log->message);
    make_clean(message);
    line = (struct store_log){
        .sandbox_id = sb->id,
        .team = sb->team,
        .time_ms = time_wall_ms(),
        .level =
            log->level <= ABX__IPC__LOG__LEVEL__ERROR ? (enum store_level)log->level : STORE_ERROR,
        .logger = loggers[log->source],
        .message = message,
    };
    if (put_fields(&fields, log) == BUF_OK)
        line.fields = buf_cstr(&fields);
    if (!line.fields || store_log_add(c->store, &line, &err) < 0)
        c->logs_budget.n_dropped++;
}
