/* template_base.h - `abx template build-base`: the template `base`, made on this machine.
 *
 * mmdebstrap makes it from the machine's own Debian or Ubuntu archive; the recipe is in
 * share/template/base. The result is built once per content of its inputs and lies in
 *
 *     <cache>/templates/base-<sha256>/rootfs          root's tree, a read-only layer from then on
 *     <cache>/templates/base-<sha256>/template.json   what it is
 *
 * A build works in <cache>/templates/tmp.XXXXXX; that is renamed when whole and removed when not.
 */
#pragma once

#include <limits.h>

#include "base/err.h"

#define TEMPLATE_CACHE_DIR "/var/cache/abx"
#define TEMPLATE_WITH_MAX 256

struct template_base_opts {
    const char *suite;       /* release to build, NULL = the machine's */
    const char *const *with; /* more packages, at most TEMPLATE_WITH_MAX */
    size_t with_count;
    const char *cache_dir;  /* NULL = TEMPLATE_CACHE_DIR */
    const char *recipe_dir; /* NULL = beside this program or where it was installed */
    const char *etc_apt;    /* NULL = /etc/apt */
    const char *os_release; /* NULL = /etc/os-release */
    int progress_fd;        /* progress lines for a person; -1 = none */
};

/* Builds the template unless it is there, and writes its folder into `ret_dir`. Blocks for minutes;
 * SIGINT, SIGTERM and SIGHUP stop it (ABX_CANCELED). A second builder waits for the first. Errors:
 * ABX_INVALID_ARGUMENT (a name, an apt entry), ABX_FAILED_PRECONDITION (not root, not Debian or
 * Ubuntu, a tool missing), ABX_UNKNOWN (a step failed; its last lines were shown as progress). */
int template_base_build(const struct template_base_opts *opts, char ret_dir[PATH_MAX],
                        struct abx_err *err);
