/* client_commands.h - the commands of the client: the one list that `abx` and libexec/abx-client share.
 *
 * `abx` itself stays small and starts fast; what talks to a service as a client is in abx-client, which links libabx and is
 * executed in its place. X(NAME, SUMMARY, FUNCTION): the function is in abx-client only.
 */
#pragma once

#define CLIENT_COMMANDS(X) X("config", "read and change the configuration of clients", cmd_config)
