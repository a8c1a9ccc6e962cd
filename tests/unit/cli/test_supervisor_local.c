/* test_supervisor_local.c - when a service takes the folder of one that has ended. The folder has to be root's: for another user
 * nothing is ever taken, and that is what is checked then. */
#include "base/str.h"
#include "cli/supervisor_local.h"
#include "test_dir.h"

/* A service with its data dir in the test's folder and no users, so that nothing is asked of a control. */
static void service(struct supervisor_local *l, struct test_dir *d)
{
    char path[128];

    *l = (struct supervisor_local)SUPERVISOR_LOCAL_INIT;
    (void)snprintf(l->info.data_dir, sizeof l->info.data_dir, "%s", d->path);
    (void)snprintf(path, sizeof path, "%s/folder", d->path);
    (void)setenv("ABX_LOCAL_DIR", path, 1);
}

/* As the loop does, `ns` later than the last time. */
static void look_later(struct supervisor_local *l, int64_t ns)
{
    l->looked_ns -= ns;
    l->gone_ns -= l->gone_ns ? ns : 0;
    supervisor_local_look(l);
}

static bool is_ours(const struct supervisor_local *l)
{
    return l->dir.lock_fd >= 0;
}

static void who_was_refused_takes_it_when_the_other_is_gone(void **state)
{
    struct supervisor_local first, second;

    service(&first, *state);
    service(&second, *state);
    if (geteuid() != 0) {
        assert_int_equal(supervisor_local_publish(&first, NULL), ABX_FAILED_PRECONDITION);
        look_later(&first, 2 * LOCAL_GONE_NS);
        look_later(&first, 2 * LOCAL_GONE_NS);
        assert_false(is_ours(&first));
        return;
    }
    assert_int_equal(supervisor_local_publish(&first, NULL), 0);
    assert_int_equal(supervisor_local_publish(&second, NULL), ABX_FAILED_PRECONDITION);
    look_later(&second, 2 * LOCAL_GONE_NS);
    look_later(&second, 2 * LOCAL_GONE_NS);
    assert_false(is_ours(&second));
    supervisor_local_give_up(&first);
    look_later(&second, 2 * LOCAL_GONE_NS); /* it is gone since now, for all that is known */
    assert_false(is_ours(&second));
    /* A restart: it is back before its time is up, and goes again. */
    assert_int_equal(supervisor_local_publish(&first, NULL), 0);
    look_later(&second, LOCAL_GONE_NS / 2);
    supervisor_local_give_up(&first);
    look_later(&second, LOCAL_LOOK_NS);
    look_later(&second, LOCAL_GONE_NS / 2);
    assert_false(is_ours(&second));
    look_later(&second, LOCAL_GONE_NS);
    assert_true(is_ours(&second));
    assert_int_equal(supervisor_local_publish(&first, NULL), ABX_FAILED_PRECONDITION);
    supervisor_local_give_up(&second);
}

static void who_has_not_tried_or_has_stopped_does_not_look(void **state)
{
    struct supervisor_local l;

    service(&l, *state);
    for (int i = 0; i < 3; i++)
        supervisor_local_look(&l);
    assert_int_equal(l.gone_ns, 0);
    if (geteuid() != 0)
        return;
    assert_int_equal(supervisor_local_publish(&l, NULL), 0);
    supervisor_local_give_up(&l);
    for (int i = 0; i < 3; i++)
        supervisor_local_look(&l);
    assert_int_equal(l.gone_ns, 0);
    assert_false(is_ours(&l));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_was_refused_takes_it_when_the_other_is_gone, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(who_has_not_tried_or_has_stopped_does_not_look, dir_setup,
                                        dir_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
