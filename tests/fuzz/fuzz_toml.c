/* fuzz_toml.c - the input as config.toml; positions have to be in order and inside. */
#include "fuzz.h"
#include "transport/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *text = fuzz_exact(slice_of(data, size));
    struct toml t;
    size_t end = 0;

    if (toml_parse(slice_of(text, size), &t, NULL) == 0) {
        FUZZ_CHECK(t.table_count > 0 && t.tables[0].path[0] == '\0');
        for (size_t i = 0; i < t.key_count; i++) {
            const struct toml_key *k = &t.keys[i];

            FUZZ_CHECK(k->line_start >= end && k->value_start > k->line_start &&
                       k->value_end > k->value_start && k->line_end >= k->value_end &&
                       k->line_end <= size);
            end = k->line_end;
            FUZZ_CHECK(toml_find(&t, k->path, k->name) == k);
        }
        for (size_t i = 0; i < t.table_count; i++)
            FUZZ_CHECK(toml_find_table(&t, t.tables[i].path) == &t.tables[i] &&
                       t.tables[i].end <= size);
    }
    toml_done(&t);
    free(text);
    return 0;
}
