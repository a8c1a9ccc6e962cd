/* local_service.h - finding the service that runs on this machine.
 *
 * `abx serve` writes LOCAL_SERVICE_DIR/<uid>.env for each user who may use it, with a key of its own,
 * the base URL and the domain. The file counts only when nobody else can have made or read it: a
 * regular file of the effective uid or root without any access for group and others, in a folder of root that only
 * root may write to. No link is followed. Nor does one count whose writer has certainly ended (base/process.h).
 */
#pragma once

#include "base/err.h"
#include "base/macro.h"

#define LOCAL_SERVICE_DIR "/run/abx/local" /* ABX_LOCAL_DIR in the environment names another */

struct local_service {
    char *path; /* of the file */
    char *api_key, *base_url, *domain;
    char *refusal; /* why a file that is there is not used; the others are NULL then */
};

/* `*ret` is empty without a file. Done with local_service_done, also after an error. Errors:
 * INVALID_ARGUMENT (a trusted file lacks one of its three values). */
int local_service_find(struct local_service *ret, struct abx_err *err);
void local_service_done(struct local_service *s);
