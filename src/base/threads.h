/* threads.h - names of the threads that beat for themselves (net/heartbeat.h), by which the supervisor finds them. */
#pragma once

#define SOCKETS_THREAD "abx-sockets"       /* of the engine: makes sockets in sandboxes */
#define STORE_THREAD "abx-store"           /* of control: writes to the database */
#define CHECKPOINT_THREAD "abx-checkpoint" /* of control: from the database's log into it */
