/* admin.c - see admin.h. */
#include "control/admin.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "control/table.h"
#include "net/ipc.h"

#define KEYS_PAGE 200u
#define LIFETIME_MAX_S (100 * INT64_C(366) * 86400)

/* One operation that waits for a completion. */
struct pending {
    struct control *c;
    admin_done_fn done;
    void *user;
    json_t *reply; /* to be given when the write is done */
};

static json_t *error_reply(const struct abx_err *err)
{
    return json_pack("{s:{s:s,s:s}}", "error", "code", err_code_name(err->code), "message",
                     err->msg);
}

static void give(admin_done_fn done, void *user, json_t *reply)
{
    done(user, reply);
    json_decref(reply);
}

static void fail(admin_done_fn done, void *user, const struct abx_err *err)
{
    give(done, user, error_reply(err));
}

static struct pending *pending_new(struct control *c, admin_done_fn done, void *user)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (p)
        *p = (struct pending){ .c = c, .done = done, .user = user };
    return p;
}

static void pending_end(struct pending *p, json_t *reply)
{
    p->done(p->user, reply);
    json_decref(reply);
    json_decref(p->reply);
    free(p);
}

static json_t *time_or_null(int64_t ms)
{
    char text[RFC3339_SIZE];

    if (ms == 0)
        return json_null();
    time_format_rfc3339(ms, text);
    return json_string(text);
}

/* --- info --------------------------------------------------------------------------------------- */

static void run_info(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    bool is_up =
        c->driver && c->driver->ops->is_up(c->driver) && lifecycle_is_compared(c->lifecycle);

    (void)request;
    give(done, user,
         json_pack("{s:s,s:s,s:b,s:I,s:I}", "release", ABX_VERSION, "instance", c->opts.instance,
                   "engine_up", is_up, "sandboxes", (json_int_t)lifecycle_count(c->lifecycle),
                   "gateways", (json_int_t)table_gateways(c->table)));
}

/* --- keys --------------------------------------------------------------------------------------- */

static void on_written(void *user, const struct abx_err *failure)
{
    struct pending *p = user;

    pending_end(p, failure ? error_reply(failure) : json_incref(p->reply));
}

static int take_scopes(const json_t *request, unsigned *ret, struct abx_err *err)
{
    const json_t *list = json_object_get(request, "scopes"), *item;
    unsigned all = 0, one;
    size_t i;

    *ret = SCOPES_ALL;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "'scopes' is a list of names");
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);

        if (!name || !scopes_parse(slice_str(name), &one))
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "unknown scope '%.64s': it is sandbox:read, sandbox:write, "
                           "template:read, template:write or metrics:read",
                           name ? name : "?");
        all |= one;
    }
    *ret = all;
    return 0;
}

static int take_expiry(const json_t *request, int64_t *ret, struct abx_err *err)
{
    const json_t *v = json_object_get(request, "expires_in_s");
    int64_t s = json_integer_value(v);

    *ret = 0;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || s < 1 || s > LIFETIME_MAX_S)
        return err_set(err, ABX_INVALID_ARGUMENT, "'expires_in_s' is a number of seconds");
    *ret = time_wall_ms() + s * 1000;
    return 0;
}

static void run_key_create(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    const char *team = json_string_value(json_object_get(request, "team"));
    struct pending *p = pending_new(c, done, user);
    char text[API_KEY_SIZE];
    const struct key *key;
    unsigned scopes;
    int64_t expires_ms;
    struct abx_err err = { 0 };
    int r = p ? 0 : err_oom(&err);

    if (r == 0 && team && strcmp(team, TEAM_SLUG) != 0)
        r = err_set(&err, ABX_NOT_FOUND, "there is no team '%.64s'", team);
    if (r == 0)
        r = take_scopes(request, &scopes, &err);
    if (r == 0)
        r = take_expiry(request, &expires_ms, &err);
    if (r == 0)
        r = keyring_add(c->keys, c->team, name ? name : "", scopes, expires_ms, text, &key,
                        on_written, p, &err);
    if (r < 0) {
        free(p);
        fail(done, user, &err);
        return;
    }
    p->reply = json_pack("{s:s,s:s,s:s,s:o}", "id", key->id, "key", text, "name", key->name,
                         "created_at", time_or_null(key->created_ms));
    explicit_bzero(text, sizeof text);
    log_info("key made", "id", key->id, "name", key->name, NULL);
}

static json_t *key_json(const struct key *key)
{
    char scopes[96];
    json_t *list = json_array();
    struct slice rest, word;

    scopes_format(key->scopes, scopes);
    for (rest = slice_str(scopes); rest.n > 0;) {
        word = rest;
        word.n = 0;
        while (word.n < rest.n && word.p[word.n] != ' ')
            word.n++;
        (void)json_array_append_new(list, json_stringn((const char *)word.p, word.n));
        rest = slice_of(rest.p + word.n, rest.n - word.n);
        if (rest.n > 0)
            rest = slice_of(rest.p + 1, rest.n - 1);
    }
    return json_pack("{s:s,s:s,s:s,s:o,s:s,s:o,s:o,s:o,s:o}", "id", key->id, "name", key->name,
                     "prefix", key->mask, "scopes", list, "team", TEAM_SLUG, "created_at",
                     time_or_null(key->created_ms), "last_used_at", time_or_null(key->last_used_ms),
                     "expires_at", time_or_null(key->expires_ms), "revoked_at",
                     time_or_null(key->revoked_ms));
}

static void run_key_list(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    const char *after = json_string_value(json_object_get(request, "after"));
    json_t *keys = json_array();
    size_t i = 0, n = keyring_count(c->keys);

    while (after && i < n && strcmp(keyring_at(c->keys, i++)->id, after) != 0)
        continue;
    for (; i < n && json_array_size(keys) < KEYS_PAGE; i++)
        if (json_array_append_new(keys, key_json(keyring_at(c->keys, i))) < 0)
            break;
    give(done, user, json_pack("{s:o,s:b}", "keys", keys, "more", i < n));
}

static void run_key_revoke(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    const char *id = json_string_value(json_object_get(request, "id"));
    struct pending *p = pending_new(c, done, user);
    char found[16];
    struct abx_err err = { 0 };
    int r = p ? 0 : err_oom(&err);

    if (r == 0 && !id)
        r = err_set(&err, ABX_INVALID_ARGUMENT, "'id' is missing");
    if (r == 0)
        r = keyring_revoke(c->keys, id, found, on_written, p, &err);
    if (r < 0) {
        free(p);
        fail(done, user, &err);
        return;
    }
    p->reply = json_pack("{s:s}", "id", found);
    log_info("key revoked", "id", found, NULL);
}

static void run_key_check(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    const char *text = json_string_value(json_object_get(request, "key"));
    const struct key *key = text ? keyring_find(c->keys, slice_str(text)) : NULL;
    struct abx_err err = { 0 };

    if (!text)
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "'key' is missing");
    else if (!key)
        (void)err_set(&err, ABX_NOT_FOUND, "there is no such key");
    if (err.code != 0) {
        fail(done, user, &err);
        return;
    }
    give(
        done, user,
        json_pack("{s:s,s:s,s:b}", "id", key->id, "name", key->name, "active", key_is_active(key)));
}

/* --- driver ------------------------------------------------------------------------------------- */

static void on_templates(void *user, const struct abx_err *failure)
{
    struct pending *p = user;
    json_t *list = json_array();

    if (failure) {
        json_decref(list);
        pending_end(p, error_reply(failure));
        return;
    }
    for (size_t i = 0; i < templates_count(p->c->templates); i++) {
        const struct template_entry *e = templates_at(p->c->templates, i);

        if (e->is_present && e->tag[0])
            (void)json_array_append_new(
                list, json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:s}", "name", e->name, "id", e->id,
                                "tag", e->tag, "build", e->build_id, "digest", e->digest,
                                "created_at", time_or_null(e->created_ms), "size_bytes",
                                (json_int_t)e->size_bytes, "suite", e->suite));
    }
    pending_end(p, json_pack("{s:o}", "templates", list));
}

static void run_template_list(struct control *c, const json_t *request, admin_done_fn done,
                              void *user)
{
    struct pending *p = pending_new(c, done, user);
    struct abx_err err = { 0 };
    int r = p ? 0 : err_oom(&err);

    (void)request;
    /* Without a driver (--admin) what the database knows is all there is. */
    if (r == 0 && !c->driver) {
        on_templates(p, NULL);
        return;
    }
    if (r == 0)
        r = templates_refresh(c->templates, on_templates, p, &err);
    if (r < 0) {
        free(p);
        fail(done, user, &err);
    }
}

static void on_audited(void *user, const char *const *findings, size_t n, uint32_t repaired,
                       const struct abx_err *failure)
{
    struct pending *p = user;
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_string(findings[i]));
    if (!failure) {
        pending_end(p, json_pack("{s:o,s:I}", "findings", list, "repaired", (json_int_t)repaired));
        return;
    }
    json_decref(list);
    pending_end(p, error_reply(failure));
}

static void run_audit(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    bool repair = json_is_true(json_object_get(request, "repair"));
    struct pending *p = pending_new(c, done, user);
    struct abx_err err = { 0 };
    int r = p ? 0 : err_oom(&err);

    if (r == 0)
        r = c->driver ? c->driver->ops->audit(c->driver, repair, on_audited, p, &err)
                      : err_set(&err, ABX_UNAVAILABLE, "the service does not run");
    if (r < 0) {
        free(p);
        fail(done, user, &err);
    }
}

/* --- dispatch ----------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    void (*run)(struct control *c, const json_t *request, admin_done_fn done, void *user);
} operations[] = {
    { "info", run_info },           { "key.create", run_key_create },
    { "key.list", run_key_list },   { "key.revoke", run_key_revoke },
    { "key.check", run_key_check }, { "template.list", run_template_list },
    { "audit", run_audit },
};

void admin_run(struct control *c, const json_t *request, admin_done_fn done, void *user)
{
    const char *op = json_string_value(json_object_get(request, "op"));
    struct abx_err err;

    for (size_t i = 0; op && i < ARRAY_SIZE(operations); i++) {
        if (strcmp(op, operations[i].op) != 0)
            continue;
        operations[i].run(c, request, done, user);
        return;
    }
    (void)err_set(&err, ABX_UNIMPLEMENTED, "unknown operation '%.64s'", op ? op : "");
    fail(done, user, &err);
}

/* --- socket ------------------------------------------------------------------------------------- */

/* A peer of the admin socket; it outlives its connection while an operation is under way. */
struct peer {
    struct control *c;
    struct ipc_conn *conn; /* NULL once it is closed */
    unsigned refs;
};

struct asked {
    struct peer *peer;
    uint64_t seq;
};

static void peer_unref(struct peer *p)
{
    if (--p->refs == 0)
        free(p);
}

static void on_reply(void *user, json_t *reply)
{
    struct asked *a = user;
    Abx__Ipc__AdminReply message = ABX__IPC__ADMIN_REPLY__INIT;
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    _cleanup_(freep) char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
    struct abx_err err = { 0 };

    if (a->peer->conn) {
        message.json = text;
        frame.body_case = ABX__IPC__FRAME__BODY_ADMIN_REPLY;
        frame.admin_reply = &message;
        if (!text)
            (void)err_oom(&err);
        if (!text || ipc_conn_reply(a->peer->conn, a->seq, &frame, &err) < 0)
            (void)ipc_conn_reply_error(a->peer->conn, a->seq, &err, NULL);
    }
    peer_unref(a->peer);
    free(a);
}

static void on_frame(void *user, struct ipc_conn *conn, const Abx__Ipc__Frame *frame, int *fds,
                     size_t n_fds)
{
    struct peer *p = user;
    json_t *request = NULL;
    struct asked *a = NULL;
    struct abx_err err;

    (void)fds;
    (void)n_fds;
    if (frame->body_case == ABX__IPC__FRAME__BODY_ADMIN)
        request = json_loads(frame->admin->json, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(request))
        a = malloc(sizeof(*a));
    if (!a) {
        (void)err_set(&err, ABX_INVALID_ARGUMENT, "not an operation");
        (void)ipc_conn_reply_error(conn, frame->seq, &err, NULL);
    } else {
        *a = (struct asked){ p, frame->seq };
        p->refs++;
        admin_run(p->c, request, on_reply, a);
    }
    json_decref(request);
}

static void on_close(void *user, struct ipc_conn *conn, const struct abx_err *why)
{
    struct peer *p = user;

    (void)conn;
    (void)why;
    p->conn = NULL;
    peer_unref(p);
}

static void on_accept(void *user, int fd, const struct ucred *cred)
{
    struct peer *p = calloc(1, sizeof(*p));
    struct ipc_handlers handlers = { on_frame, on_close, p };
    struct abx_err err = { 0 };

    (void)cred;
    if (!p) {
        fd_close(fd);
        return;
    }
    p->c = user;
    p->refs = 1;
    if (ipc_conn_new(p->c->loop, fd, &handlers, &p->conn, &err) < 0) {
        log_err("admin connection cannot be accepted", &err);
        free(p);
    }
}

int admin_listen(struct control *c, int fd, const uid_t *uids, size_t n_uids,
                 struct ipc_listener **ret, struct abx_err *err)
{
    return ipc_listener_new(c->loop, fd, uids, n_uids, on_accept, c, ret, err);
}
