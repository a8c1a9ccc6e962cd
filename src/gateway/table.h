/* table.h - the sandboxes that control told this gateway about.
 *
 * Rows are found by id. A row that left the table lives on while requests are inside it (n_active),
 * so that Remove is answered only when every socket of the sandbox is closed; table_row_unref frees
 * it then. Each connection to control begins a new generation: when control says that it has sent
 * all rows, those of earlier generations are gone.
 */
#pragma once

#include "base/err.h"
#include "e2b/ids.h"
#include "gateway/keys.h"
#include "schema/ipc.pb-c.h"

struct ports;   /* upstream.h */
struct request; /* internal.h */
struct hold;    /* pause.c */

enum row_state { ROW_CREATING, ROW_RUNNING, ROW_PAUSING, ROW_PAUSED, ROW_KILLING };

struct row {
    struct row *next; /* in its bucket */
    char id[SANDBOX_ID_SIZE];
    enum row_state state;
    uint64_t generation;
    char *access_token;    /* never NULL; "" = none */
    char *traffic_token;   /* never NULL; "" = none */
    char *mask_host;       /* never NULL; "" = none */
    uint16_t *https_ports; /* whose servers speak TLS */
    size_t n_https_ports;
    struct key_use *key; /* of the key that made it; a reference */
    struct ports *ports;
    struct request *active; /* requests with a connection into the sandbox */
    size_t n_active;
    bool auto_resume;  /* traffic wakes it when it is paused */
    bool is_waking;    /* control has been asked to */
    uint64_t wake_at;  /* loop time before which control is not asked again */
    struct hold *hold; /* pause.c; NULL: no Hold waits for its answer */
    bool is_in_table;
    bool owes_done; /* a Remove waits for its answer */
    uint64_t remove_seq;
    uint64_t remove_link; /* generation of the connection that it came over */
};

struct table {
    struct row **buckets;
    size_t n_buckets; /* power of two */
    size_t n_rows;
    struct key_uses keys;
    uint64_t generation;
    bool is_synced;  /* control has sent all rows over the present connection */
    bool was_synced; /* rows are worth something: there was a whole table once */
};

int table_init(struct table *t, struct abx_err *err);
/* Frees the rows that are left in it; none may be active. */
void table_done(struct table *t);
/* NULL if none. Borrowed. */
struct row *table_find(const struct table *t, const char *id);
/* Adds or changes a row. INVALID_ARGUMENT for a bad id. */
int table_put(struct table *t, const Abx__Ipc__Entry *entry, struct row **ret, struct abx_err *err);
/* Takes it out of the table; free it with table_row_free once it is not active. */
void table_take_out(struct table *t, struct row *row);
void table_row_free(struct row *row);
/* Does the server on that port speak TLS? Never envd. */
bool table_row_is_https(const struct row *row, uint16_t port);
/* Calls fn for each row until it returns false; fn may take out the row that it was given. */
void table_each(struct table *t, bool (*fn)(void *user, struct row *row), void *user);
