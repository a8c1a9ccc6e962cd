/* config_resolve.h - the layers of a config, most specific first (abx/config.h). */
#pragma once

#include "transport/config.h"
#include "transport/config_table.h"

/* A config under construction: refs is 0, `values` has CONFIG_COUNT elements. */
abx_config *config_new(void);
/* Frees one that nobody refers to; NULL allowed. */
void config_free(abx_config *config);
static inline _unused_ void config_freep(abx_config **config)
{
    config_free(*config);
}

/* Takes a value from a layer unless it is blank or an earlier layer had one. `origin` is copied. Checked by the
 * row's type; the error names origin and key. */
int config_take(abx_config *config, int row, struct slice text, const char *origin,
                struct abx_err *err);

/* The layers of files below options and environment, in order (config_files.c). */
int config_take_files(abx_config *config, struct abx_err *err);
