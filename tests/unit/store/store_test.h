/* store_test.h - a store in a folder of its own for each test. */
#pragma once

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "store/store.h"

static char dir[64];
static uv_loop_t loop;
static struct store *store;

static void reopen(void)
{
    struct abx_err err = { 0 };

    store_close(store);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    store = NULL;
    assert_int_equal(store_open(&loop, dir, &store, &err), 0);
}

/* path_remove_tree wants a name in a folder. */
static int remove_dir(void)
{
    _cleanup_(closep) int tmp = open("/tmp", O_DIRECTORY | O_CLOEXEC);

    return path_remove_tree(tmp, dir + strlen("/tmp/"), NULL);
}

static int setup(void **state)
{
    struct abx_err err = { 0 };

    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/abx-store-XXXXXX");
    if (!mkdtemp(dir) || uv_loop_init(&loop) < 0)
        return -1;
    return store_open(&loop, dir, &store, &err);
}

static int teardown(void **state)
{
    (void)state;
    store_close(store);
    store = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) < 0)
        return -1;
    return remove_dir();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
