/* config_kit.h - a home and a working folder of its own for each test of the configuration. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "abx/config.h"
#include "test_dir.h"
#include "transport/config.h"
#include "transport/config_table.h"

/* Below the scratch folder: home/.abx, work (the working folder), local (of the local service). */
static inline int config_setup(void **state)
{
    struct test_dir *d;
    char path[128];

    if (dir_setup(state) < 0)
        return -1;
    d = *state;
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        if (config_rows[i].env_scoped)
            (void)unsetenv(config_rows[i].env_scoped);
        if (config_rows[i].key.env)
            (void)unsetenv(config_rows[i].key.env);
        if (config_rows[i].key.env_e2b)
            (void)unsetenv(config_rows[i].key.env_e2b);
    }
    if (mkdirat(d->fd, "home", 0700) < 0 || mkdirat(d->fd, "home/.abx", 0700) < 0 ||
        mkdirat(d->fd, "work", 0700) < 0 || mkdirat(d->fd, "local", 0711) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/home", d->path);
    (void)setenv("HOME", path, 1);
    (void)snprintf(path, sizeof path, "%s/local", d->path);
    (void)setenv("ABX_LOCAL_DIR", path, 1);
    (void)snprintf(path, sizeof path, "%s/work", d->path);
    return chdir(path);
}

static inline int config_teardown(void **state)
{
    return chdir("/") < 0 ? -1 : dir_teardown(state);
}

static inline void config_write(struct test_dir *d, const char *path, const char *text, mode_t mode)
{
    int fd = openat(d->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static inline abx_config *config_load(const struct abx_config_opts *opts)
{
    struct abx_error err = { 0 };
    abx_config *c = NULL;

    if (abx_config_load(opts, &c, &err) != 0)
        fail_msg("%s", err.message);
    return c;
}

/* The value of `key` is `value` (NULL = unset) and comes from `origin`. */
static inline void config_expect(const char *what, const abx_config *c, const char *key,
                                 const char *value, const char *origin)
{
    const char *from = NULL;
    const char *got = abx_config_get(c, key, 1, &from);

    if ((got == NULL) != (value == NULL) || (got && strcmp(got, value) != 0) ||
        strcmp(from, value ? origin : "") != 0)
        fail_msg("%s: %s is %s from '%s', expected %s from '%s'", what, key, got ? got : "unset",
                 from, value ? value : "unset", origin);
}
