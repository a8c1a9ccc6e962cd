/* What a watcher keeps: the tree of folders, the queue of changes, names that a scan has told. */
#include "test.h"

#include <linux/magic.h>
#include <stdio.h>
#include <string.h>

#include "guest/daemon/entry.h"
#include "guest/daemon/target.h"
#include "guest/daemon/watch_seen.h"
#include "guest/daemon/watcher.h"

static const char *path_of(const struct watch_node *node, const char *name)
{
    static char to[256];

    assert_true(watch_tree_path(node, name, to, sizeof(to)) > 0);
    return to;
}

static void a_renamed_folder_takes_along_what_is_below(void **state)
{
    struct watch_tree t;
    struct watch_node *root, *a, *b, *c;
    char small[6];

    watch_tree_init(&t);
    root = watch_tree_add(&t, 1, NULL, "");
    a = watch_tree_add(&t, 2, root, "a");
    b = watch_tree_add(&t, 3, a, "b");
    c = watch_tree_add(&t, 4, b, "c");
    assert_string_equal(path_of(root, NULL), ".");
    assert_string_equal(path_of(root, "f"), "f");
    assert_string_equal(path_of(c, NULL), "a/b/c");
    assert_string_equal(path_of(c, "f"), "a/b/c/f");
    assert_int_equal(watch_tree_path(c, NULL, small, sizeof(small)), 5);
    assert_int_equal(watch_tree_path(c, "f", small, sizeof(small)), 0);
    assert_int_equal(watch_tree_move(&t, b, root, "B"), BUF_OK);
    assert_string_equal(path_of(c, "f"), "B/c/f");
    assert_null(watch_tree_child(&t, a, "b"));
    assert_ptr_equal(watch_tree_child(&t, root, "B"), b);
    /* Not below itself. */
    assert_int_equal(watch_tree_move(&t, b, c, "x"), BUF_LIMIT);
    assert_int_equal(watch_tree_move(&t, b, b, "x"), BUF_LIMIT);
    assert_string_equal(path_of(c, NULL), "B/c");
    watch_tree_drop(&t, b, NULL, NULL);
    assert_null(watch_tree_find(&t, 4));
    assert_ptr_equal(watch_tree_find(&t, 2), a);
    watch_tree_drop(&t, root, NULL, NULL);
    assert_int_equal(t.n, 0);
    assert_null(t.wds);
}

static void the_one_that_had_the_name_first_is_found_first(void **state)
{
    struct watch_tree t;
    struct watch_node *root, *a, *b;

    watch_tree_init(&t);
    root = watch_tree_add(&t, 1, NULL, "");
    a = watch_tree_add(&t, 2, root, "a");
    b = watch_tree_add(&t, 3, root, "b");
    /* The two change places: told as two renames, one after the other. */
    assert_int_equal(watch_tree_move(&t, a, root, "b"), BUF_OK);
    assert_ptr_equal(watch_tree_child(&t, root, "b"), b);
    assert_int_equal(watch_tree_move(&t, b, root, "a"), BUF_OK);
    assert_ptr_equal(watch_tree_child(&t, root, "b"), a);
    assert_ptr_equal(watch_tree_child(&t, root, "a"), b);
    watch_tree_drop(&t, root, NULL, NULL);
}

static void count(void *user, struct watch_node *node)
{
    ++*(int *)user;
}

static void many_folders_are_found_by_both_keys(void **state)
{
    struct watch_tree t;
    struct watch_node *root, *node;
    char name[16];
    int n = 0;

    watch_tree_init(&t);
    root = watch_tree_add(&t, 1, NULL, "");
    for (int i = 2; i < 3000; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        assert_non_null(watch_tree_add(&t, i, i < 100 ? root : watch_tree_find(&t, i / 30), name));
    }
    for (int i = 2; i < 3000; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        node = watch_tree_find(&t, i);
        assert_ptr_equal(watch_tree_child(&t, node->parent, name), node);
    }
    for (node = root; node; node = watch_tree_next(root, node))
        n++;
    assert_int_equal(n, 2999);
    n = 0;
    watch_tree_drop(&t, watch_tree_find(&t, 5), count, &n);
    assert_int_equal(n, 31);
    watch_tree_drop(&t, root, count, &n);
    assert_int_equal(n, 2999);
}

static void push(struct watch_queue *q, enum watch_op op, const char *name, enum buf_status want)
{
    assert_int_equal(watch_queue_push(q, op, name, strlen(name)), want);
}

static void the_queue_keeps_order_and_joins_repeated_writes(void **state)
{
    static const struct {
        enum watch_op op;
        const char *name;
    } in[] = {
        { WATCH_CREATE, "f" }, { WATCH_CREATE, "f" }, { WATCH_WRITE, "f" }, { WATCH_WRITE, "f" },
        { WATCH_WRITE, "g" },  { WATCH_WRITE, "f" },  { WATCH_CHMOD, "f" }, { WATCH_CHMOD, "f" },
        { WATCH_REMOVE, "f" }, { WATCH_REMOVE, "f" },
    };
    static const char out[] = "1f1f2f2g2f5f3f3f";
    struct watch_budget budget;
    struct watch_queue q;
    char got[64] = "";
    enum watch_op op;
    const char *name;

    watch_budget_init(&budget);
    watch_queue_init(&q, &budget);
    for (size_t i = 0; i < ARRAY_SIZE(in); i++)
        push(&q, in[i].op, in[i].name, BUF_OK);
    for (size_t n = 0; watch_queue_peek(&q, &op, &name); n += 2) {
        (void)snprintf(got + n, sizeof(got) - n, "%d%s", (int)op, name);
        watch_queue_pop(&q);
    }
    assert_string_equal(got, out);
    assert_null(q.records.mem);
    push(&q, WATCH_WRITE, "f", BUF_OK); /* given out means over: the next is another one */
    assert_int_equal(q.n, 1);
    watch_queue_done(&q);
    assert_int_equal(budget.bytes, WATCH_BUDGET_BYTES);
}

static void queues_are_bounded_alone_and_together(void **state)
{
    static char name[4000];
    struct watch_budget budget;
    struct watch_queue q[6];
    size_t i, n = 0;

    memset(name, 'x', sizeof(name) - 1);
    watch_budget_init(&budget);
    for (i = 0; i < ARRAY_SIZE(q); i++)
        watch_queue_init(&q[i], &budget);
    for (i = 0; i < WATCH_QUEUE_EVENTS_MAX; i++)
        push(&q[0], i % 2 ? WATCH_CREATE : WATCH_REMOVE, "f", BUF_OK);
    push(&q[0], WATCH_CREATE, "f", BUF_LIMIT);
    watch_queue_done(&q[0]);
    for (i = 0; i < 5; i++) {
        while (watch_queue_push(&q[i], WATCH_CREATE, name, sizeof(name) - 1) == BUF_OK)
            n++;
    }
    assert_true(n * sizeof(name) < WATCH_BUDGET_BYTES && n * sizeof(name) > WATCH_BUDGET_BYTES / 2);
    push(&q[5], WATCH_CREATE, name, BUF_LIMIT);
    for (i = 0; i < ARRAY_SIZE(q); i++)
        watch_queue_done(&q[i]);
    assert_int_equal(budget.bytes, WATCH_BUDGET_BYTES);
}

static void what_a_scan_told_is_not_told_again_in_its_window(void **state)
{
    struct watch_seen *s = watch_seen_new();

    assert_true(watch_seen_add(s, "b", true) && watch_seen_add(s, "a", false) &&
                watch_seen_add(s, "c", false) && watch_seen_close(s, 100));
    assert_false(watch_seen_is_over(s, 99));
    assert_true(watch_seen_is_over(s, 100));
    assert_false(watch_seen_take(s, "other", WATCH_SEEN_CREATE));
    assert_true(watch_seen_take(s, "a", WATCH_SEEN_CREATE));
    assert_false(watch_seen_take(s, "a", WATCH_SEEN_CREATE));
    assert_false(watch_seen_take(s, "a", WATCH_SEEN_WRITE));
    assert_true(watch_seen_take(s, "b", WATCH_SEEN_WRITE)); /* as often as it is written */
    assert_true(watch_seen_take(s, "b", WATCH_SEEN_WRITE));
    assert_false(watch_seen_take(s, "b", WATCH_SEEN_GONE));
    assert_false(watch_seen_take(s, "b", WATCH_SEEN_WRITE));
    assert_false(watch_seen_take(s, "b", WATCH_SEEN_CREATE));
    assert_true(watch_seen_take(s, "c", WATCH_SEEN_CREATE));
    watch_seen_free(s);
    s = watch_seen_new();
    assert_true(watch_seen_close(s, 0));
    assert_false(watch_seen_take(s, "a", WATCH_SEEN_CREATE));
    watch_seen_free(s);
}

static void network_file_systems_are_known(void **state)
{
    static const long network[] = { NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC,      CIFS_SUPER_MAGIC,
                                    SMB2_SUPER_MAGIC, FUSE_SUPER_MAGIC,     V9FS_MAGIC,
                                    CEPH_SUPER_MAGIC, (int)CIFS_SUPER_MAGIC };
    static const long local[] = { OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, EXT4_SUPER_MAGIC,
                                  BTRFS_SUPER_MAGIC, XFS_SUPER_MAGIC };

    for (size_t i = 0; i < ARRAY_SIZE(network); i++)
        assert_true(watch_is_network(network[i]));
    for (size_t i = 0; i < ARRAY_SIZE(local); i++)
        assert_false(watch_is_network(local[i]));
}

static void temporary_names_of_uploads_are_known(void **state)
{
    assert_true(target_is_temp(".abx-upload-0123"));
    assert_false(target_is_new_temp(".abx-upload-0123"));
    assert_true(target_is_temp(".abx-upload-new-0123") &&
                target_is_new_temp(".abx-upload-new-0123"));
    assert_false(target_is_temp(".abx-uploa") || target_is_temp("x.abx-upload-0123"));
}

static void names_become_text(void **state)
{
    static const char *const cases[][2] = {
        { "", "" },
        { "a\nb \xf0\x9f\x98\x80", "a\nb \xf0\x9f\x98\x80" },
        { "\xff", "\xef\xbf\xbd" },
        { "x\xc3", "x\xef\xbf\xbd" },
        { "\xc3\xa4\xc3\x28", "\xc3\xa4\xef\xbf\xbd(" },
        { "\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "\xed\xa0\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = entry_text(cases[i][0]);
        assert_string_equal(text, cases[i][1]);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_renamed_folder_takes_along_what_is_below),
        cmocka_unit_test(the_one_that_had_the_name_first_is_found_first),
        cmocka_unit_test(many_folders_are_found_by_both_keys),
        cmocka_unit_test(the_queue_keeps_order_and_joins_repeated_writes),
        cmocka_unit_test(queues_are_bounded_alone_and_together),
        cmocka_unit_test(what_a_scan_told_is_not_told_again_in_its_window),
        cmocka_unit_test(network_file_systems_are_known),
        cmocka_unit_test(temporary_names_of_uploads_are_known),
        cmocka_unit_test(names_become_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
