/* command_table.h - inside of command.c and command_output.c. */
#pragma once

#include "guest/daemon/command.h"
#include "guest/daemon/report.h"

struct commands {
    uv_loop_t *loop;
    uv_timer_t tick; /* runs while any reader is attached */
    struct spawner *spawner;
    struct reports *reports;
    struct command *list; /* newest first */
    size_t n_commands;
    size_t n_ended;
    size_t n_readers;
    size_t n_pipes_grown;
};

/* Watches the pipes in c->pipes[].fd. */
int command_pipes_open(struct command *c, struct abx_err *err);
/* Takes what the pipes hold now. */
void command_pipes_drain(struct command *c);
void command_pipes_close(struct command *c);
/* Tells every reader. They may detach in it. */
void command_tell(struct command *c);

/* Has it ended by now? */
void command_check_end(struct command *c);
/* One of its loop handles is released. */
void command_handle_closed(struct command *c);
