/* config_resolve.h - the layers of a config, most specific first (abx/config.h). */
#pragma once

#include "transport/config.h"
#include "transport/config_table.h"
#include "transport/toml.h"

/* A config under construction: refs is 0, `values` has CONFIG_COUNT elements. */
abx_config *config_new(void);
/* Frees one that nobody refers to; NULL allowed. */
void config_free(abx_config *config);
static inline _unused_ void config_freep(abx_config **config)
{
    config_free(*config);
}

/* Takes a value from a layer unless it is blank or an earlier layer had one. `origin` is copied; `line` of a file, 0 =
 * none. Checked by the row's type; the error names origin, line and key. */
int config_take(abx_config *config, int row, struct slice text, const char *origin, unsigned line,
                struct abx_err *err);

/* The layers of files below options and environment, in order (config_files.c). */
int config_take_files(abx_config *config, struct abx_err *err);

/* Path of a file in ~/.abx ("" = the folder). NOT_FOUND when there is no home. */
int config_home_path(const char *name, char *to, size_t size, struct abx_err *err);
/* May a key of config.toml have a value of that type? INVALID_ARGUMENT. */
int config_check_type(const struct config_row *row, enum toml_type type, struct abx_err *err);
