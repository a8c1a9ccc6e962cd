/* template.h - the templates on this machine: <folder>/<name>-<hash>/{rootfs,template.json}.
 *
 * template.json is written by our own builder: one flat object of strings, whole numbers and arrays
 * of strings, at most 256 KiB. Unknown keys are ignored, everything that is not strictly this form
 * is refused. `name` and `digest` are needed. A folder that cannot be read as a template is skipped.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "engine/record.h"

#define TEMPLATE_PATH_SIZE 1024

struct template
{
    char name[RECORD_TEMPLATE_SIZE];
    char digest[RECORD_TEMPLATE_SIZE];
    char folder[RECORD_TEMPLATE_SIZE]; /* name of its folder, unique; what records hold */
    char rootfs[TEMPLATE_PATH_SIZE];   /* absolute */
    char suite[32];
    char default_user[33];
    char default_workdir[256];
    int64_t created_ms;
    uint64_t size_bytes;
};

struct templates {
    struct template *list; /* newest first within a name, names in order */
    size_t n;
};

/* Fills name, digest, suite, default_*, created_ms and size_bytes. */
bool template_decode(struct slice json, struct template *ret);

/* Reads all templates below the folders of `path` ("DIR[:DIR]", absolute; missing ones are empty).
 * Replaces what `t` held. */
int templates_scan(struct templates *t, const char *path, struct abx_err *err);
void templates_done(struct templates *t);
/* By folder, digest or name (then the newest); NULL when there is none. Borrowed until the next
 * scan. */
const struct template *templates_find(const struct templates *t, const char *name);
