/* client.h - what the commands of abx-client share.
 *
 * They use include/abx and base only. Exit statuses: 0 done, 1 general failure, 2 bad usage, 3 credentials, 4 not
 * found, 5 timeout, 6 quota or limit.
 */
#pragma once

#include "abx/config.h"
#include "abx/error.h"
#include "cli/cli.h"

int cmd_config(int argc, char **argv);

/* Prints "abx: <message>" to stderr and returns the exit status that fits. */
int client_fail(const struct abx_error *error);
