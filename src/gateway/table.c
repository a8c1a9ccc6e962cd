/* table.c - see table.h. */
#include "gateway/table.h"

#include <assert.h>
#include <string.h>

#include "base/str.h"
#include "e2b/hosts.h"

#define BUCKETS_MIN 64

static struct row **bucket_of(const struct table *t, const char *id)
{
    /* Not keyed: ids come from control, not from clients. */
    return &t->buckets[str_hash(id) & (t->n_buckets - 1)];
}

int table_init(struct table *t, struct abx_err *err)
{
    *t = (struct table){ .n_buckets = BUCKETS_MIN };
    t->buckets = calloc(t->n_buckets, sizeof(struct row *));
    return t->buckets ? 0 : err_oom(err);
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->n_buckets && t->buckets; i++) {
        while (t->buckets[i]) {
            struct row *row = t->buckets[i];

            t->buckets[i] = row->next;
            table_row_free(row);
        }
    }
    free(t->buckets);
    *t = (struct table){ 0 };
}

struct row *table_find(const struct table *t, const char *id)
{
    struct row *row = *bucket_of(t, id);

    while (row && strcmp(row->id, id) != 0)
        row = row->next;
    return row;
}

/* More buckets when there are more rows than that; staying small is fine when memory is short. */
static void table_grow(struct table *t)
{
    size_t n = t->n_buckets * 2;
    struct row **old = t->buckets, **new;

    if (t->n_rows < t->n_buckets)
        return;
    new = calloc(n, sizeof(struct row *));
    if (!new)
        return;
    for (size_t i = 0; i < n / 2; i++) {
        while (old[i]) {
            struct row *row = old[i];
            size_t at = str_hash(row->id) & (n - 1);

            old[i] = row->next;
            row->next = new[at];
            new[at] = row;
        }
    }
    free(old);
    t->buckets = new;
    t->n_buckets = n;
}

static int set_text(char **to, const char *text, struct abx_err *err)
{
    char *copy;

    if (*to && strcmp(*to, text) == 0)
        return 0;
    copy = strdup(text);
    if (!copy)
        return err_oom(err);
    free(*to);
    *to = copy;
    return 0;
}

static enum row_state state_of(Abx__Ipc__Entry__State state)
{
    switch (state) {
    case ABX__IPC__ENTRY__STATE__CREATING:
        return ROW_CREATING;
    case ABX__IPC__ENTRY__STATE__RUNNING:
        return ROW_RUNNING;
    case ABX__IPC__ENTRY__STATE__PAUSING:
        return ROW_PAUSING;
    case ABX__IPC__ENTRY__STATE__PAUSED:
        return ROW_PAUSED;
    case ABX__IPC__ENTRY__STATE__KILLING:
        return ROW_KILLING;
    default: /* one that a newer control knows: not to be used */
        return ROW_CREATING;
    }
}

static int set_https_ports(struct row *row, const Abx__Ipc__Entry *entry, struct abx_err *err)
{
    uint16_t *ports;

    for (size_t i = 0; i < entry->n_https_ports; i++)
        if (entry->https_ports[i] == 0 || entry->https_ports[i] > UINT16_MAX)
            return err_set(err, ABX_INVALID_ARGUMENT, "row with a bad port");
    ports = calloc(entry->n_https_ports + 1, sizeof(*ports));
    if (!ports)
        return err_oom(err);
    for (size_t i = 0; i < entry->n_https_ports; i++)
        ports[i] = (uint16_t)entry->https_ports[i];
    free(row->https_ports);
    row->https_ports = ports;
    row->n_https_ports = entry->n_https_ports;
    return 0;
}

bool table_row_is_https(const struct row *row, uint16_t port)
{
    if (port == ENVD_PORT)
        return false;
    for (size_t i = 0; i < row->n_https_ports; i++)
        if (row->https_ports[i] == port)
            return true;
    return false;
}

static int row_set(struct table *t, struct row *row, const Abx__Ipc__Entry *entry,
                   struct abx_err *err)
{
    int r = set_text(&row->access_token, entry->access_token, err);

    if (r == 0)
        r = set_text(&row->traffic_token, entry->traffic_token, err);
    if (r == 0)
        r = set_text(&row->mask_host, entry->mask_request_host, err);
    if (r == 0)
        r = set_https_ports(row, entry, err);
    if (r < 0)
        return r;
    if (!row->key)
        row->key = key_use_get(&t->keys, entry->key_id);
    if (!row->key)
        return err_oom(err);
    row->auto_resume = entry->auto_resume;
    row->state = state_of(entry->state);
    row->generation = t->generation;
    return 0;
}

int table_put(struct table *t, const Abx__Ipc__Entry *entry, struct row **ret, struct abx_err *err)
{
    char id[SANDBOX_ID_SIZE];
    struct row *row, **bucket;
    int r;

    if (!sandbox_id_parse(slice_str(entry->sandbox_id), id) || strcmp(id, entry->sandbox_id) != 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "row with a bad sandbox id");
    row = table_find(t, id);
    if (row) {
        r = row_set(t, row, entry, err);
        if (r == 0)
            *ret = row;
        return r;
    }
    row = calloc(1, sizeof(*row));
    if (!row)
        return err_oom(err);
    memcpy(row->id, id, sizeof(id));
    r = row_set(t, row, entry, err);
    if (r < 0) {
        table_row_free(row);
        return r;
    }
    table_grow(t);
    bucket = bucket_of(t, id);
    row->next = *bucket;
    row->is_in_table = true;
    *bucket = row;
    t->n_rows++;
    *ret = row;
    return 0;
}

void table_take_out(struct table *t, struct row *row)
{
    struct row **at = bucket_of(t, row->id);

    assert(row->is_in_table);
    while (*at != row)
        at = &(*at)->next;
    *at = row->next;
    row->next = NULL;
    row->is_in_table = false;
    t->n_rows--;
}

void table_row_free(struct row *row)
{
    if (!row)
        return;
    assert(row->n_active == 0 && !row->ports);
    free(row->access_token);
    free(row->traffic_token);
    free(row->mask_host);
    free(row->https_ports);
    key_use_put(row->key);
    free(row);
}

void table_each(struct table *t, bool (*fn)(void *user, struct row *row), void *user)
{
    for (size_t i = 0; i < t->n_buckets; i++) {
        struct row *next;

        for (struct row *row = t->buckets[i]; row; row = next) {
            next = row->next;
            if (!fn(user, row))
                return;
        }
    }
}
