/* fields.c - see fields.h. */
#include "gateway/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"

#define PORT_MARK "${PORT}"
#define TEXT_MAX 8192u
#define ID_BYTES 16
#define MASK_MAX 512

void request_id_get(struct id_source *ids, const struct http1_head *head, char to[REQUEST_ID_SIZE])
{
    struct slice id = http1_head_value(head, "abx-request-id");
    bool is_good = id.n > 0 && id.n <= REQUEST_ID_MAX;

    for (size_t i = 0; is_good && i < id.n; i++) {
        uint8_t c = id.p[i];

        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
    }
    if (is_good) {
        memcpy(to, id.p, id.n);
        to[id.n] = '\0';
        return;
    }
    if (ids->left < ID_BYTES) {
        random_bytes(ids->bytes, sizeof(ids->bytes));
        ids->left = sizeof(ids->bytes);
    }
    ids->left -= ID_BYTES;
    hex_encode(ids->bytes + ids->left, ID_BYTES, to);
}

static bool is_ours(struct slice name)
{
    static const struct slice names[] = {
        SLICE_LIT("abx-request-id"),
        SLICE_LIT("x-forwarded-for"),
        SLICE_LIT("x-forwarded-proto"),
        SLICE_LIT("x-forwarded-host"),
        SLICE_LIT("content-length"),
        SLICE_LIT("expect"),
        SLICE_LIT("host"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (name.n == names[i].n && slice_ieq(name, names[i]))
            return true;
    return false;
}

static void add(struct upstream_fields *f, struct slice name, struct slice value)
{
    if (f->n < UPSTREAM_FIELDS_MAX)
        f->list[f->n++] = (struct http1_field){ name, value };
}

/* Appends to the text and returns the piece; the text's memory was reserved, it does not move. */
static struct slice keep(struct upstream_fields *f, struct slice a, struct slice b)
{
    size_t at = f->text.len;

    if (buf_append_slice(&f->text, a) != BUF_OK || buf_append_slice(&f->text, b) != BUF_OK)
        buf_truncate(&f->text, at);
    return slice_of(buf_data(&f->text) + at, f->text.len - at);
}

static struct slice masked_host(struct upstream_fields *f, const char *mask, uint16_t port)
{
    const char *mark = strstr(mask, PORT_MARK);
    size_t at = f->text.len;
    char number[8];

    if (!mark)
        return slice_str(mask);
    (void)snprintf(number, sizeof(number), "%u", port);
    (void)keep(f, slice_of(mask, (size_t)(mark - mask)), slice_str(number));
    (void)keep(f, slice_str(mark + strlen(PORT_MARK)), (struct slice){ 0 });
    return slice_of(buf_data(&f->text) + at, f->text.len - at);
}

/* `host` as the upstream gets it; a mask hides the client's from a proxy's mouth, too. */
static void add_forwarded(const struct http_exchange *ex, struct slice host, bool is_masked,
                          struct upstream_fields *f)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct slice peer = slice_str(http_exchange_peer(ex));
    bool is_proxy =
        slice_starts_with(peer, "127.") || slice_eq_str(peer, "::1") || slice_eq_str(peer, "unix");
    struct slice before =
        is_proxy ? http1_head_value(head, "x-forwarded-for") : (struct slice){ 0 };
    struct slice proto =
        is_proxy ? http1_head_value(head, "x-forwarded-proto") : (struct slice){ 0 };
    struct slice given_host =
        is_proxy && !is_masked ? http1_head_value(head, "x-forwarded-host") : (struct slice){ 0 };

    if (before.n > 0 && before.n + peer.n + 2 < FORWARDED_FOR_MAX) {
        size_t at = f->text.len;

        (void)keep(f, before, SLICE_LIT(", "));
        (void)keep(f, peer, (struct slice){ 0 });
        peer = slice_of(buf_data(&f->text) + at, f->text.len - at);
    }
    add(f, SLICE_LIT("X-Forwarded-For"), peer);
    add(f, SLICE_LIT("X-Forwarded-Proto"),
        proto.n > 0                   ? proto
        : http_exchange_is_secure(ex) ? SLICE_LIT("https")
                                      : SLICE_LIT("http"));
    add(f, SLICE_LIT("X-Forwarded-Host"), given_host.n > 0 ? given_host : host);
}

int upstream_fields_make(const struct http_exchange *ex, const char *request_id,
                         const char *mask_host, uint16_t port, bool allow_upgrade,
                         struct upstream_fields *ret, struct abx_err *err)
{
    const struct http1_head *head = http_exchange_head(ex);
    struct slice host = head->host;
    bool has_text = *mask_host || http1_head_find(head, "x-forwarded-for");

    ret->n = 0;
    buf_init(&ret->text, TEXT_MAX);
    if (has_text && !buf_reserve(&ret->text, FORWARDED_FOR_MAX + MASK_MAX + 64, NULL))
        return err_oom(err);
    if (*mask_host && strlen(mask_host) <= MASK_MAX)
        host = masked_host(ret, mask_host, port);
    add(ret, SLICE_LIT("Host"), host);
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *field = &head->fields[i];
        bool is_upgrade =
            allow_upgrade && head->is_upgrade && slice_ieq_str(field->name, "upgrade");

        if (is_ours(field->name) || (!is_upgrade && http1_head_is_hop_by_hop(head, field->name)))
            continue;
        add(ret, field->name, field->value);
    }
    add_forwarded(ex, host, *mask_host != '\0', ret);
    add(ret, SLICE_LIT("Abx-Request-Id"), slice_str(request_id));
    return 0;
}

void upstream_fields_done(struct upstream_fields *f)
{
    buf_done(&f->text);
}
