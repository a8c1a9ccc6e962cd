/* guest.h - the two programs of the guest image; main.c picks one by argv[1] (e2b/guest_abi.h). */
#pragma once

/* PID 1: reaps, forks a supervisor for each command, restarts the daemon. Never returns. */
int init_main(void);

/* The daemon: serves envd. Returns the exit status; PID 1 then starts it again. */
int daemon_main(void);
