/* fuzz_sniff.c - first bytes of a connection, whole and growing: a name has only characters of names, and what was said
 * of the beginning is not taken back when more comes. */
#include "egress/sniff.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[SNIFF_NAME_SIZE] = "", again[SNIFF_NAME_SIZE] = "";
    enum sniff whole;

    if (size > SNIFF_MAX)
        return 0;
    for (size_t n = 0; n <= size; n += 1 + n / 8) {
        uint8_t *copy = fuzz_exact(slice_of(data, n));
        enum sniff s = sniff(slice_of(copy, n), name);

        free(copy);
        if (s == SNIFF_MORE)
            continue;
        if (s == SNIFF_NAME) {
            FUZZ_CHECK(strlen(name) > 0 && strlen(name) < sizeof(name));
            FUZZ_CHECK(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-._") == strlen(name));
        }
        whole = sniff(slice_of(data, size), again);
        FUZZ_CHECK(whole == s && (s != SNIFF_NAME || strcmp(name, again) == 0));
        break;
    }
    return 0;
}
