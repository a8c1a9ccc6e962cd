/* schema.h - tables of the database and how older ones become newer. Internal to store/.
 *
 * Steps are only ever added. Step i leads from version i to i + 1; the version stands in the table
 * `meta`. Before an existing database is changed, a copy of it is written beside it
 * (<path>.before-<new version>). A newer database than the last step is refused.
 */
#pragma once

#include "store/db.h"

struct schema_steps {
    const char *const *sql;
    unsigned n;
};

extern const struct schema_steps schema_steps;

int schema_migrate(struct db *d, const char *path, const struct schema_steps *steps,
                   struct abx_err *err);
