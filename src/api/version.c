/* version.c - which libabx this is. */
#include "abx/client.h"

const char *abx_version(void)
{
    return ABX_VERSION;
}
