/* caps.c - see caps.h. */
#include "engine/caps.h"

#include <errno.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int caps_limit_bounding(uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++) {
        if (keep & CAPS_BIT(cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return errno == EINVAL && cap > 0 ? 0 : -1; /* past the kernel's last one */
    }
    return 0;
}

int caps_set(uint64_t keep)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = {
        { .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
        { .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
    };

    if (syscall(SYS_capset, &head, data) < 0)
        return -1;
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

int caps_keep_over_setuid(void)
{
    int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);

    if (bits < 0)
        return -1;
    return prctl(PR_SET_SECUREBITS, (unsigned long)bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
}
