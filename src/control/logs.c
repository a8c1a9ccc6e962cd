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

static bool may_write(struct control *c)
{
    struct logs_budget *b = &c->logs_budget;
    uint64_t now = uv_now(c->loop), more = (now - b->at_ms) * LOGS_PER_SECOND / 1000;
    char n[24];

    if (more > 0 || b->at_ms == 0) {
        b->left = b->at_ms == 0 ? LOGS_BURST : (unsigned)MIN(b->left + more, (uint64_t)LOGS_BURST);
        b->at_ms = now;
    }
    if (b->left == 0) {
        b->n_dropped++;
        return false;
    }
    if (b->n_dropped > 0 && b->left > LOGS_PER_SECOND) {
        (void)snprintf(n, sizeof n, "%" PRIu64, b->n_dropped);
        log_warn("too many lines for the logs of sandboxes, some are left out", "lines", n, NULL);
        b->n_dropped = 0;
    }
    b->left--;
    return true;
}

/* Names come from sandboxes: what is not UTF-8 (also a character that was cut) cannot be shown as JSON. */
static void make_clean(char *text)
{
    size_t n = strlen(text), at = 0;

    if (utf8_is_valid(slice_str(text)))
        return;
    for (; at < n; at++)
        if ((unsigned char)text[at] >= 0x80)
            text[at] = '?';
}

static struct slice cut(const char *text)
{
    struct slice s = slice_str(text);

    s.n = MIN(s.n, (size_t)VALUE_MAX);
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

    if (!sb || !may_write(c))
        return;
    (void)snprintf(message, sizeof message, "%.*s", (int)VALUE_MAX, log->message);
    make_clean(message);
    line = (struct store_log){
        .sandbox_id = sb->id,
        .team = sb->team,
        .time_ms = time_wall_ms(),
        .level =
            log->level <= ABX__IPC__LOG__LEVEL__ERROR ? (enum store_level)log->level : STORE_ERROR,
        .logger = "egress",
        .message = message,
    };
    if (put_fields(&fields, log) == BUF_OK)
        line.fields = buf_cstr(&fields);
    if (!line.fields || store_log_add(c->store, &line, &err) < 0)
        c->logs_budget.n_dropped++;
}
