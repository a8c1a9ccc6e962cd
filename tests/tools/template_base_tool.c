/* template_base_tool.c - drives template_base_build for tests/system/test_template_base.py.
 *
 * usage: template_base_tool KEY=VALUE...   keys: cache, recipe, etc_apt, os_release, suite, with (may repeat)
 *
 * Prints the template's folder. Exit status: that of the error.
 */
#include <stdio.h>
#include <string.h>

#include "cli/template_base.h"

int main(int argc, char **argv)
{
    const char *with[TEMPLATE_WITH_MAX];
    struct template_base_opts opts = { .with = with, .progress_fd = 2 };
    const struct {
        const char *key;
        const char **value;
    } keys[] = {
        { "cache", &opts.cache_dir }, { "recipe", &opts.recipe_dir },
        { "etc_apt", &opts.etc_apt }, { "os_release", &opts.os_release },
        { "suite", &opts.suite },
    };
    struct abx_err err = { 0 };
    char dir[PATH_MAX];

    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value || opts.with_count == ARRAY_SIZE(with))
            return 2;
        *value++ = '\0';
        if (strcmp(argv[i], "with") == 0)
            with[opts.with_count++] = value;
        for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
            if (strcmp(argv[i], keys[k].key) == 0)
                *keys[k].value = value;
        }
    }
    if (template_base_build(&opts, dir, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return err_exit_status(&err);
    }
    (void)puts(dir);
    return 0;
}
