/* commands.h - one function for each row of the table in cli/spec.h. Each returns the exit status. */
#pragma once

#include "cli/client/session.h"

/* The command that `argv` names: parses, connects, runs. -1 when the table has none of that name. */
int client_run(int argc, char **argv);

int cmd_run(struct session *s);
int cmd_sandbox_create(struct session *s);
int cmd_sandbox_list(struct session *s);
int cmd_sandbox_info(struct session *s);
int cmd_sandbox_exec(struct session *s);
int cmd_sandbox_shell(struct session *s);
int cmd_sandbox_cp(struct session *s);
int cmd_sandbox_cat(struct session *s);
int cmd_sandbox_logs(struct session *s);
int cmd_sandbox_metrics(struct session *s);
int cmd_sandbox_connect(struct session *s);
int cmd_sandbox_timeout(struct session *s);
int cmd_sandbox_pause(struct session *s);
int cmd_sandbox_resume(struct session *s);
int cmd_sandbox_fork(struct session *s);
int cmd_sandbox_snapshot(struct session *s);
int cmd_sandbox_rollback(struct session *s);
int cmd_sandbox_kill(struct session *s);
int cmd_whoami(struct session *s);
