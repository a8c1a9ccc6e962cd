/* The store as control uses it: queued writes, claims of idempotency keys, loading after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/str.h"
#include "store/queue.h"
#include "store_test.h"

struct result {
    int calls;
    int code;
    enum store_claim claim;
    int status;
    char sandbox_id[32];
    char body[64];
};

static void on_created(void *user, const struct store_created *c, const struct abx_err *failure)
{
    struct result *r = user;

    r->calls++;
    r->code = failure ? failure->code : 0;
    if (!c)
        return;
    r->claim = c->claim;
    r->status = c->status;
    (void)snprintf(r->sandbox_id, sizeof r->sandbox_id, "%s", c->sandbox_id);
    (void)snprintf(r->body, sizeof r->body, "%s", c->body);
}

static void on_done(void *user, const struct abx_err *failure)
{
    struct result *r = user;

    r->calls++;
    r->code = failure ? failure->code : 0;
}

/* Runs the loop until `r` was called. */
static void wait_for(struct result *r)
{
    while (r->calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static struct store_sandbox row(const char *id, const char *key)
{
    return (struct store_sandbox){
        .id = id,
        .team = "t1",
        .template_id = "tpl",
        .build_id = "b1",
        .digest = "d1",
        .alias = "base",
        .state = "creating",
        .is_secure = true,
        .created_ms = 1000,
        .config = "{\"metadata\":{}}",
        .idempotency_key = key,
    };
}

static struct result create(const char *id, const char *key, const char *hash)
{
    struct store_sandbox sb = row(id, key);
    struct abx_err err = { 0 };
    struct result r = { 0 };

    assert_int_equal(store_sandbox_create(store, &sb, hash, on_created, &r, &err), 0);
    assert_int_equal(r.calls, 0);
    wait_for(&r);
    return r;
}

struct loaded {
    size_t n;
    char ids[8][32], states[8][16], config[64], key[64], copy[32], to[32];
    int64_t end_ms;
    uint32_t memory_mb;
    bool is_secure;
};

static void on_row(void *user, const struct store_sandbox *sb)
{
    struct loaded *l = user;

    (void)snprintf(l->ids[l->n], 32, "%s", sb->id);
    (void)snprintf(l->states[l->n], 16, "%s", sb->state);
    (void)snprintf(l->config, sizeof l->config, "%s", sb->config);
    (void)snprintf(l->key, sizeof l->key, "%s", sb->idempotency_key);
    (void)snprintf(l->copy, sizeof l->copy, "%s", sb->rollback_copy);
    (void)snprintf(l->to, sizeof l->to, "%s", sb->rollback_to);
    l->end_ms = sb->end_ms;
    l->memory_mb = sb->memory_mb;
    l->is_secure = sb->is_secure;
    l->n++;
}

static struct loaded load(void)
{
    struct loaded l = { 0 };
    struct abx_err err = { 0 };

    reopen();
    assert_int_equal(store_sandbox_load(store, on_row, &l, &err), 0);
    return l;
}

static void rows_survive_in_every_state(void **state)
{
    struct store_sandbox sb = row("i1", NULL);
    struct store_sandbox other = row("i2", NULL);
    struct store_event event = { "e1", "sandbox.lifecycle.created", "{}", 5 };
    struct abx_err err = { 0 };
    struct result r = { 0 };
    struct loaded l;

    (void)state;
    assert_int_equal(create("i1", NULL, "").claim, STORE_NEW);
    assert_int_equal(create("i2", NULL, "").claim, STORE_NEW);
    assert_int_equal(create("i3", NULL, "").claim, STORE_NEW);
    assert_int_equal(create("i4", NULL, "").claim, STORE_NEW);
    sb.started_ms = 2000;
    sb.end_ms = 302000;
    sb.memory_mb = 512;
    sb.execution_id = "x1";
    assert_int_equal(store_sandbox_run(store, &sb, NULL, &event, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, 0);
    assert_int_equal(store_sandbox_killing(store, &other, NULL, &err), 0);
    sb.id = "i3";
    event.id = "e2";
    r = (struct result){ 0 };
    assert_int_equal(store_sandbox_remove(store, &sb, &event, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, 0);
    l = load();
    assert_int_equal(l.n, 3);
    assert_string_equal(l.ids[0], "i1");
    assert_string_equal(l.states[0], "running");
    assert_string_equal(l.states[1], "killing");
    assert_string_equal(l.ids[2], "i4");
    assert_string_equal(l.states[2], "creating");
    assert_true(l.is_secure);
    assert_string_equal(l.config, "{\"metadata\":{}}");
    assert_string_equal(l.key, "");
}

static void an_extension_survives(void **state)
{
    struct store_sandbox sb = row("i1", NULL);
    struct abx_err err = { 0 };
    struct result r = { 0 };
    struct loaded l;

    (void)state;
    (void)create("i1", "", "");
    sb.end_ms = 77;
    assert_int_equal(store_sandbox_extend(store, &sb, NULL, on_done, &r, &err), 0);
    wait_for(&r);
    l = load();
    assert_int_equal(l.end_ms, 77);
}

typedef int (*change_fn)(struct store_sandbox *sb, struct result *r, struct abx_err *err);

static int note(struct store_sandbox *sb, struct result *r, struct abx_err *err)
{
    sb->rollback_copy = "icopy";
    sb->rollback_to = "isnapshot";
    return store_sandbox_note_rollback(store, sb, on_done, r, err);
}

static int take_off(struct store_sandbox *sb, struct result *r, struct abx_err *err)
{
    sb->rollback_copy = sb->rollback_to = NULL;
    return store_sandbox_note_rollback(store, sb, on_done, r, err);
}

static int run(struct store_sandbox *sb, struct result *r, struct abx_err *err)
{
    return store_sandbox_run(store, sb, NULL, NULL, on_done, r, err);
}

static int pause_it(struct store_sandbox *sb, struct result *r, struct abx_err *err)
{
    sb->pause_mode = "filesystem";
    return store_sandbox_pause(store, sb, NULL, on_done, r, err);
}

static void where_it_goes_is_kept_until_it_is_there(void **state)
{
    static const struct {
        change_fn change;
        const char *state, *copy, *to;
    } steps[] = {
        { note, "creating", "icopy", "isnapshot" }, { take_off, "creating", "", "" },
        { note, "creating", "icopy", "isnapshot" }, { run, "running", "", "" },
        { note, "running", "icopy", "isnapshot" },  { pause_it, "paused", "", "" },
        { note, "paused", "icopy", "isnapshot" },   { run, "running", "", "" },
    };
    struct store_sandbox sb = row("i1", NULL);
    struct result none = { 0 };
    struct abx_err err = { 0 };

    (void)state;
    assert_int_equal(create("i1", NULL, "").claim, STORE_NEW);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct result r = { 0 };
        struct loaded l;

        assert_int_equal(steps[i].change(&sb, &r, &err), 0);
        wait_for(&r);
        assert_int_equal(r.code, 0);
        l = load();
        assert_int_equal(l.n, 1);
        assert_string_equal(l.states[0], steps[i].state);
        assert_string_equal(l.copy, steps[i].copy);
        assert_string_equal(l.to, steps[i].to);
    }
    sb.id = "inone";
    assert_int_equal(note(&sb, &none, &err), 0);
    wait_for(&none);
    assert_int_equal(none.code, ABX_INTERNAL);
}

static void a_key_is_claimed_by_the_first_and_gives_its_answer(void **state)
{
    struct store_sandbox sb = row("i1", "key-1");
    struct store_answer answer = { 201, "{\"a\":1}" };
    struct abx_err err = { 0 };
    struct result r;

    (void)state;
    assert_int_equal(create("i1", "key-1", "h1").claim, STORE_NEW);
    r = create("i2", "key-1", "h1");
    assert_int_equal(r.claim, STORE_SAME);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.sandbox_id, "i1");
    assert_int_equal(create("i3", "key-1", "h2").claim, STORE_OTHER);
    r = (struct result){ 0 };
    assert_int_equal(store_sandbox_run(store, &sb, &answer, NULL, on_done, &r, &err), 0);
    wait_for(&r);
    reopen();
    r = create("i4", "key-1", "h1");
    assert_int_equal(r.claim, STORE_SAME);
    assert_int_equal(r.status, 201);
    assert_string_equal(r.body, "{\"a\":1}");
    assert_string_equal(r.sandbox_id, "i1");
    assert_int_equal(load().n, 1);
}

static void keys_of_other_teams_are_other_keys(void **state)
{
    struct store_sandbox sb = row("i2", "key-1");
    struct abx_err err = { 0 };
    struct result r = { 0 };

    (void)state;
    assert_int_equal(create("i1", "key-1", "h1").claim, STORE_NEW);
    sb.team = "t2";
    assert_int_equal(store_sandbox_create(store, &sb, "h2", on_created, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.claim, STORE_NEW);
}

static void a_forgotten_key_can_be_claimed_again(void **state)
{
    struct store_sandbox sb = row("i1", "key-1");
    struct store_answer forget = { 0, NULL };
    struct abx_err err = { 0 };

    (void)state;
    assert_int_equal(create("i1", "key-1", "h1").claim, STORE_NEW);
    assert_int_equal(store_sandbox_killing(store, &sb, &forget, &err), 0);
    assert_int_equal(create("i2", "key-1", "h2").claim, STORE_NEW);
}

static void a_failed_write_of_a_batch_takes_no_other_with_it(void **state)
{
    struct store_sandbox sb[14];
    char ids[14][8];
    struct result r[14] = { 0 };
    struct abx_err err = { 0 };
    struct loaded l;

    (void)state;
    for (int i = 0; i < 14; i++) {
        /* Every odd one repeats the id before it, which the primary key refuses; it carries an
         * idempotency key, which must not stay claimed. */
        (void)snprintf(ids[i], sizeof ids[i], "i%d", i / 2);
        sb[i] = row(ids[i], i % 2 ? "key" : NULL);
        assert_int_equal(store_sandbox_create(store, &sb[i], "h", on_created, &r[i], &err), 0);
    }
    for (int i = 0; i < 14; i++) {
        wait_for(&r[i]);
        assert_int_equal(r[i].code, i % 2 ? ABX_ALREADY_EXISTS : 0);
    }
    assert_int_equal(create("i99", "key", "other").claim, STORE_NEW);
    l = load();
    assert_int_equal(l.n, 8);
}

struct failure {
    int calls;
    enum abx_reason reason;
    char text[ABX_ERR_MSG_MAX];
};

static void on_failed(void *user, const struct store_created *c, const struct abx_err *failure)
{
    struct failure *f = user;

    (void)c;
    f->calls++;
    f->reason = failure ? failure->reason : ABX_REASON_NONE;
    (void)snprintf(f->text, sizeof f->text, "%s", failure ? failure->msg : "");
}

/* SQLite ends the transaction by itself then, of one write or of several. */
static void a_full_disk_is_what_a_write_fails_with(void **state)
{
    static char config[1 << 20];
    struct store_sandbox small[] = { row("i1", NULL), row("i2", NULL) }, large = row("i3", NULL);
    struct failure failed[4] = { 0 };
    struct abx_err err = { 0 };
    char path[80];
    sqlite3 *other;

    (void)state;
    memset(config, 'x', sizeof config - 1);
    large.config = config;
    assert_int_equal(db_script(queue_db(store), "PRAGMA max_page_count = 100", &err), 0);
    /* Somebody else writes: what comes after the first write waits for it and is a batch then. */
    (void)snprintf(path, sizeof path, "%s/abx.db", dir);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_sandbox_create(store, i < 2 ? &small[i] : &large, "h", on_failed,
                                              &failed[i], &err),
                         0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    while (failed[2].calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(failed[2].reason, ABX_REASON_DISK_FULL);
    assert_non_null(strstr(failed[2].text, "database or disk is full"));
    for (int i = 0; i < 2; i++) /* in the batch or before it */
        assert_true(failed[i].calls == 1 && (failed[i].reason == ABX_REASON_NONE ||
                                             failed[i].reason == ABX_REASON_DISK_FULL));

    assert_int_equal(store_sandbox_create(store, &large, "h", on_failed, &failed[3], &err), 0);
    while (failed[3].calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(failed[3].reason, ABX_REASON_DISK_FULL);
    assert_int_equal(create("i4", NULL, "h").code, 0); /* and what comes behind goes well */
}

static void a_full_queue_refuses_creates_but_no_removal(void **state)
{
    struct store_sandbox sb = row("i1", NULL);
    struct abx_err err = { 0 };
    struct result r = { 0 }, removed = { 0 };
    int refused = 0, accepted = 0;
    char path[80];
    sqlite3 *other;

    (void)state;
    /* Somebody else writes: the writer waits for that, up to 5 s. */
    (void)snprintf(path, sizeof path, "%s/abx.db", dir);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (unsigned i = 0; i < 2 * STORE_QUEUE_MAX && refused == 0; i++) {
        if (store_sandbox_extend(store, &sb, NULL, on_done, &r, &err) < 0)
            refused++;
        else
            accepted++;
    }
    assert_int_equal(refused, 1);
    assert_int_equal(err.reason, ABX_REASON_BUSY);
    assert_int_equal(store_sandbox_remove(store, &sb, NULL, on_done, &removed, &err), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    wait_for(&removed);
    assert_int_equal(r.calls, accepted);
}

static void closing_finishes_what_is_queued(void **state)
{
    struct store_sandbox sb = row("i1", NULL);
    struct abx_err err = { 0 };
    struct result r = { 0 };

    (void)state;
    assert_int_equal(store_sandbox_create(store, &sb, "", on_created, &r, &err), 0);
    reopen();
    assert_int_equal(r.calls, 1);
    assert_int_equal(load().n, 1);
}

struct follower {
    struct result second;
    int pushed;
    struct abx_err err;
};

static void on_first(void *user, const struct abx_err *failure)
{
    struct follower *f = user;
    struct store_sandbox sb = row("i1", NULL);

    assert_null(failure);
    f->pushed = store_sandbox_extend(store, &sb, NULL, on_done, &f->second, &f->err);
}

/* A completion that never comes would be waited for. */
static void what_is_queued_while_it_closes_is_refused(void **state)
{
    struct store_sandbox sb = row("i1", NULL);
    struct follower f = { 0 };

    (void)state;
    assert_int_equal(create("i1", NULL, "").code, 0);
    assert_int_equal(store_sandbox_extend(store, &sb, NULL, on_first, &f, NULL), 0);
    reopen();
    assert_int_equal(f.pushed, ABX_UNAVAILABLE);
    assert_string_equal(f.err.msg, "the store is closing");
    assert_int_equal(f.second.calls, 0);
}

static void old_keys_are_pruned(void **state)
{
    struct store_pruning what = { .of[STORE_PRUNED_KEYS].before_ms = 1000, .step = 10 };
    struct abx_err err = { 0 };
    struct result r = { 0 };

    (void)state;
    assert_int_equal(create("i1", "key-1", "h1").claim, STORE_NEW);
    assert_int_equal(store_prune(store, &what, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(create("i2", "key-1", "h1").claim, STORE_SAME);
    r = (struct result){ 0 };
    what.of[STORE_PRUNED_KEYS].before_ms = 1001;
    assert_int_equal(store_prune(store, &what, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(create("i2", "key-1", "h1").claim, STORE_NEW);
}

/* Of the answered ones the oldest go; one whose create still runs stays. */
static void too_many_keys_are_pruned(void **state)
{
    struct store_pruning what = { .of[STORE_PRUNED_KEYS].kept = 5, .step = 3 };
    const struct store_answer answer = { 201, "{}" };
    struct abx_err err = { 0 };
    char id[16], key[16];

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct store_sandbox sb = row(id, key);
        struct result r = { 0 };

        (void)snprintf(id, sizeof id, "i%d", i);
        (void)snprintf(key, sizeof key, "key-%d", i);
        sb.created_ms = i;
        assert_int_equal(store_sandbox_create(store, &sb, "h", on_created, &r, &err), 0);
        wait_for(&r);
        r = (struct result){ 0 };
        if (i == 2)
            continue;
        assert_int_equal(store_sandbox_run(store, &sb, &answer, NULL, on_done, &r, &err), 0);
        wait_for(&r);
    }
    for (int i = 0; i < 3; i++) {
        struct result r = { 0 };

        assert_int_equal(store_prune(store, &what, on_done, &r, &err), 0);
        wait_for(&r);
    }
    for (int i = 0; i < 10; i++) {
        (void)snprintf(id, sizeof id, "new%d", i);
        (void)snprintf(key, sizeof key, "key-%d", i);
        assert_int_equal(create(id, key, "h").claim, i == 2 || i >= 5 ? STORE_SAME : STORE_NEW);
    }
}

struct keys {
    size_t n;
    struct store_key last;
    char hash[16], scopes[32], id[16];
};

static void on_key(void *user, const struct store_key *key)
{
    struct keys *k = user;

    k->n++;
    k->last = *key;
    (void)snprintf(k->hash, sizeof k->hash, "%s", key->hash);
    (void)snprintf(k->scopes, sizeof k->scopes, "%s", key->scopes);
    (void)snprintf(k->id, sizeof k->id, "%s", key->id);
}

static void keys_are_kept_with_their_times(void **state)
{
    struct store_key key = { .id = "k1",
                             .name = "n",
                             .hash = "h",
                             .mask = "m",
                             .scopes = "admin",
                             .created_ms = 5,
                             .expires_ms = 9 };
    struct abx_err err = { 0 };
    struct result r = { 0 };
    struct keys k = { 0 };
    char team[40];

    (void)state;
    assert_int_equal(store_team_ensure(store, "default", "t1", team, sizeof team, &err), 0);
    key.team = team;
    assert_int_equal(store_key_add(store, &key, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, 0);
    assert_int_equal(store_key_used(store, "k1", 6, &err), 0);
    r = (struct result){ 0 };
    assert_int_equal(store_key_revoke(store, "k1", 7, on_done, &r, &err), 0);
    wait_for(&r);
    /* The first revocation counts. */
    r = (struct result){ 0 };
    assert_int_equal(store_key_revoke(store, "k1", 8, on_done, &r, &err), 0);
    wait_for(&r);
    reopen();
    assert_int_equal(store_key_load(store, on_key, &k, &err), 0);
    assert_int_equal(k.n, 1);
    assert_string_equal(k.hash, "h");
    assert_string_equal(k.scopes, "admin");
    assert_int_equal(k.last.created_ms, 5);
    assert_int_equal(k.last.last_used_ms, 6);
    assert_int_equal(k.last.expires_ms, 9);
    assert_int_equal(k.last.revoked_ms, 7);
    r = (struct result){ 0 };
    assert_int_equal(store_key_add(store, &key, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, ABX_ALREADY_EXISTS);
}

struct templates {
    size_t n;
    char id[16], build[16], digest[16], tag[16];
};

static void on_template(void *user, const struct store_template *t)
{
    struct templates *l = user;

    l->n++;
    (void)snprintf(l->id, sizeof l->id, "%s", t->id);
    (void)snprintf(l->build, sizeof l->build, "%s", t->build_id);
    (void)snprintf(l->digest, sizeof l->digest, "%s", t->digest);
    (void)snprintf(l->tag, sizeof l->tag, "%s", t->tag);
}

static void a_tag_moves_to_the_newest_build(void **state)
{
    struct store_template t = {
        .id = "tpl",
        .name = "base",
        .tag = "default",
        .build_id = "b1",
        .digest = "d1",
        .created_ms = 1,
    };
    struct abx_err err = { 0 };
    struct result r = { 0 };
    struct templates l = { 0 };
    char team[40];

    (void)state;
    assert_int_equal(store_team_ensure(store, "default", "t1", team, sizeof team, &err), 0);
    t.team = team;
    assert_int_equal(store_template_put(store, &t, on_done, &r, &err), 0);
    wait_for(&r);
    t.build_id = "b2";
    t.digest = "d2";
    r = (struct result){ 0 };
    assert_int_equal(store_template_put(store, &t, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, 0);
    reopen();
    assert_int_equal(store_template_load(store, on_template, &l, &err), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.id, "tpl");
    assert_string_equal(l.build, "b2");
    assert_string_equal(l.digest, "d2");
    assert_string_equal(l.tag, "default");
    /* Back to the first: that build has its id already. */
    t.build_id = "b3";
    t.digest = "d1";
    r = (struct result){ 0 };
    assert_int_equal(store_template_put(store, &t, on_done, &r, &err), 0);
    wait_for(&r);
    assert_int_equal(r.code, 0);
    reopen();
    assert_int_equal(store_template_load(store, on_template, &l, &err), 0);
    assert_string_equal(l.build, "b1");
}

static void values_and_teams_are_made_once(void **state)
{
    struct abx_err err = { 0 };
    char a[40], b[40], small[2];

    (void)state;
    assert_int_equal(store_meta_ensure(store, "seed", "first", a, sizeof a, &err), 0);
    assert_int_equal(store_team_ensure(store, "default", "t1", b, sizeof b, &err), 0);
    reopen();
    assert_int_equal(store_meta_ensure(store, "seed", "second", a, sizeof a, &err), 0);
    assert_string_equal(a, "first");
    assert_int_equal(store_team_ensure(store, "default", "t2", b, sizeof b, &err), 0);
    assert_string_equal(b, "t1");
    assert_int_equal(store_meta_ensure(store, "seed", "", small, sizeof small, &err),
                     ABX_DATA_LOSS);
}

struct read_events {
    unsigned calls;
    size_t n;
    char ids[4][16];
    char sandbox[16];
    int64_t last_ms;
};

static void on_events(void *user, const struct store_event *events, size_t n,
                      const struct abx_err *failure)
{
    struct read_events *r = user;

    assert_null(failure);
    assert_true(n <= ARRAY_SIZE(r->ids));
    r->calls++;
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(r->ids[i], sizeof r->ids[i], "%s", events[i].id);
        (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", events[i].sandbox_id);
        assert_string_equal(events[i].data, "{\"a\":1}");
        assert_string_equal(events[i].team, "t1");
        r->last_ms = events[i].time_ms;
    }
}

static struct read_events read_events(const char *team, const char *sandbox, uint32_t offset,
                                      uint32_t limit, bool is_ascending)
{
    struct store_event_filter f = { team, sandbox, offset, limit, is_ascending };
    struct read_events r = { 0 };
    struct abx_err err = { 0 };

    assert_int_equal(store_events(store, &f, on_events, &r, &err), 0);
    while (r.calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(r.calls, 1);
    return r;
}

static void events_are_read_in_order_and_in_pages(void **state)
{
    static const char *const ids[] = { "e2", "e1", "e3" }; /* the first two in one millisecond */
    struct read_events r;
    struct result done = { 0 };
    struct abx_err err = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct store_sandbox sb = row(i == 1 ? "i2" : "i1", NULL);
        struct store_event event = {
            .id = ids[i], .type = "t", .data = "{\"a\":1}", .time_ms = i / 2
        };

        assert_int_equal(store_sandbox_extend(store, &sb, &event, on_done, &done, &err), 0);
    }
    /* Sees what was queued before it. */
    r = read_events("t1", "", 0, 4, false);
    assert_int_equal(r.n, 3);
    assert_string_equal(r.ids[0], "e3");
    assert_string_equal(r.ids[2], "e2");
    assert_int_equal(r.last_ms, 0);
    r = read_events("t1", "", 1, 1, true);
    assert_int_equal(r.n, 1);
    assert_string_equal(r.ids[0], "e1");
    assert_string_equal(r.sandbox, "i2");
    r = read_events("t1", "i1", 0, 4, true);
    assert_int_equal(r.n, 2);
    assert_string_equal(r.ids[0], "e2");
    assert_string_equal(r.ids[1], "e3");
    assert_int_equal(read_events("t1", "i1", 2, 4, false).n, 0);
    assert_int_equal(read_events("other", "", 0, 4, false).n, 0);
}

static void count_snapshot(void *user, const struct store_snapshot *t)
{
    unsigned *n = user;

    assert_string_equal(t->id, *n == 0 ? "i1" : "i2");
    assert_string_equal(t->name, "n");
    assert_string_equal(t->digest, "d");
    assert_int_equal(t->disk_mb, 7);
    (*n)++;
}

static void snapshots_are_kept(void **state)
{
    struct store_snapshot t = { .id = "i2",
                                .team = "t",
                                .name = "n",
                                .sandbox_id = "s",
                                .build_id = "b",
                                .digest = "d",
                                .alias = "a",
                                .disk_mb = 7,
                                .created_ms = 2 };
    struct result done = { 0 };
    struct abx_err err = { 0 };
    unsigned n = 0;

    (void)state;
    assert_int_equal(store_snapshot_add(store, &t, on_done, &done, &err), 0);
    t.id = "i1";
    t.created_ms = 1;
    assert_int_equal(store_snapshot_add(store, &t, on_done, &done, &err), 0);
    reopen();
    assert_int_equal(store_snapshot_load(store, count_snapshot, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(store_snapshot_remove(store, "i2", on_done, &done, &err), 0);
    reopen();
    n = 0;
    assert_int_equal(store_snapshot_load(store, count_snapshot, &n, &err), 0);
    assert_int_equal(n, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(rows_survive_in_every_state),
        TEST(an_extension_survives),
        TEST(where_it_goes_is_kept_until_it_is_there),
        TEST(a_key_is_claimed_by_the_first_and_gives_its_answer),
        TEST(keys_of_other_teams_are_other_keys),
        TEST(a_forgotten_key_can_be_claimed_again),
        TEST(a_failed_write_of_a_batch_takes_no_other_with_it),
        TEST(a_full_disk_is_what_a_write_fails_with),
        TEST(a_full_queue_refuses_creates_but_no_removal),
        TEST(closing_finishes_what_is_queued),
        TEST(what_is_queued_while_it_closes_is_refused),
        TEST(old_keys_are_pruned),
        TEST(too_many_keys_are_pruned),
        TEST(events_are_read_in_order_and_in_pages),
        TEST(snapshots_are_kept),
        TEST(keys_are_kept_with_their_times),
        TEST(a_tag_moves_to_the_newest_build),
        TEST(values_and_teams_are_made_once),
    };

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
