/* fuzz_apt_sources.c - both forms of apt's entries, and os-release. */
#include <stdlib.h>

#include "cli/apt_sources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct os_release os = { "ubuntu", "noble" };
    struct apt_sources s = { 0 };

    (void)os_release_parse(text, &os, NULL);
    (void)apt_sources_parse_list(&s, text, "fuzz", NULL);
    (void)apt_sources_parse_deb822(&s, text, "fuzz", NULL);
    for (size_t i = 0; i < s.count; i++) {
        char *public = apt_uri_public(s.items[i].uri);

        if (apt_source_suffix(&s.items[i], &os) && apt_source_components(&s.items[i], &os)[0] == 0)
            abort(); /* an archive without components */
        free(public);
    }
    apt_sources_done(&s);
    return 0;
}
