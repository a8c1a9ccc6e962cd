/* environment.h - the environment of a command (e2b.md 4.1): PATH, HOME, USER, LOGNAME, then the
 * sandbox's own (E2B_SANDBOX, E2B_SANDBOX_ID, E2B_TEMPLATE_ID and what create gave), then the
 * request's; later wins. */
#pragma once

#include "guest/daemon/identity.h"
#include "guest/daemon/users.h"
#include "schema/process.pb-c.h"

#define ENVIRONMENT_MAX 2048 /* variables in one request */

/* "KEY=value" strings, NULL-terminated, owned by the caller: environment_free. INVALID_ARGUMENT for a
 * name that is empty or has '=', and over ENVIRONMENT_MAX. */
int environment_make(const struct identity *id, const struct user *u,
                     const Process__ProcessConfig *config, char ***ret, struct abx_err *err);
void environment_free(char **envp);
DEFINE_CLEANUP(char **, environment_free)
