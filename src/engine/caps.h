/* caps.h - what capabilities a sandbox may ever have.
 *
 * They count only over what its user namespace owns. The set is Docker's default without NET_RAW and
 * MKNOD, which need the host's user namespace to mean anything here, and AUDIT_WRITE, for which there
 * is no audit socket. All functions are async-signal-safe: 0, or -1 with errno.
 */
#pragma once

#include <linux/capability.h>
#include <stdint.h>

#define CAPS_BIT(cap) (UINT64_C(1) << (cap))
#define CAPS_SANDBOX                                                                               \
    (CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) |                     \
     CAPS_BIT(CAP_FSETID) | CAPS_BIT(CAP_KILL) | CAPS_BIT(CAP_SETGID) | CAPS_BIT(CAP_SETUID) |     \
     CAPS_BIT(CAP_SETPCAP) | CAPS_BIT(CAP_SETFCAP) | CAPS_BIT(CAP_NET_BIND_SERVICE) |              \
     CAPS_BIT(CAP_SYS_CHROOT))

/* Drops all but `keep` from the calling thread's bounding set; needs CAP_SETPCAP. */
int caps_limit_bounding(uint64_t keep);
/* Makes permitted and effective `keep`, inheritable and ambient empty. */
int caps_set(uint64_t keep);
/* Capabilities survive changes of the effective uid from now on (securebits). */
int caps_keep_over_setuid(void);
