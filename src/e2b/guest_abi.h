/* guest_abi.h - what the engine and the guest image must agree on (no functions).
 *
 * The spawner executes the same static image twice inside a sandbox: PID 1 with argv
 * {"abx-guest", "init"}, and the daemon with argv {"abx-guest", "daemon"} as its first child (made
 * before exec, so that the engine could put both into their cgroups). PID 1 reaps everything, forks
 * a supervisor for each command on the daemon's word and executes the daemon again (through
 * GUEST_FD_SELF) when it dies. It lives in the cgroup `user`, the daemon in `guest`; commands inherit or enter
 * `user`'s subgroups. A process restarted by PID 1 on cgroup v1 stays in `user`: degraded, not
 * broken.
 */
#pragma once

/* File descriptors in both processes. */
#define GUEST_FD_ENVD 3    /* listening TCP socket of envd, port 49983 */
#define GUEST_FD_CONTROL 4 /* listening abstract SEQPACKET socket; obey peers with pid 0 only */
#define GUEST_FD_INIT 5    /* PID 1's end of the SEQPACKET pair between init and daemon */
#define GUEST_FD_DAEMON 6  /* the daemon's end; PID 1 keeps it for the daemon's successor */
#define GUEST_FD_SELF 7    /* the image, O_PATH, cloexec off in PID 1 only */
#define GUEST_FD_COUNT 5

/* Abstract address of the control channel (without the leading NUL). */
#define GUEST_CONTROL_NAME "abx-guest-control"

/* The same of the datagram socket to which the daemon reports (abx.ipc.GuestReport). The host's end is made with the
 * network namespace, and again when its reader was restarted. */
#define GUEST_REPORT_NAME "abx-report"
#define GUEST_REPORT_MAX 16384 /* bytes of a datagram */

#define GUEST_ENVD_PORT 49983
#define GUEST_SERVER_PORT 9000
#define GUEST_TERMINAL_PORT 9001
#define GUEST_INTERPRETER_PORT 49999

/* Environment that the engine gives both; nothing else is in it. */
#define GUEST_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* cgroup v2 subtree of the sandbox, mounted inside; missing when the host has no v2 tree. */
#define GUEST_CGROUP_DIR "/sys/fs/cgroup"
#define GUEST_CGROUP_USER GUEST_CGROUP_DIR "/user"
#define GUEST_CGROUP_GUEST GUEST_CGROUP_DIR "/guest"

/* envd's version as reported to clients (e2b.md 4.5: unlocks every feature gate of the SDKs). */
#define E2B_ENVD_VERSION "0.6.13"
