/* seccomp_arm64.c - arm64 began without the legacy calls: nothing beyond the common table. */
#if defined(__aarch64__)

#include "engine/seccomp.h"

const int seccomp_arch_allowed[] = { -1 };
const int seccomp_arch_refused[] = { -1 };

#endif
