/* fuzz_guest_files_head.c - six lines as Range, If-Range, If-Match, If-Modified-Since, Accept-Encoding and
 * a metadata value. */
#include "fuzz.h"
#include "guest/envd/files_head.h"

static const char *const names[] = { "range",           "if-range",
                                     "if-none-match",   "if-modified-since",
                                     "accept-encoding", "x-metadata-k" };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_exact(slice_of(data, size));
    struct slice rest = slice_of(copy, size);
    struct http1_field fields[ARRAY_SIZE(names)];
    struct http1_head head = { .fields = fields };
    struct metadata *m = NULL;
    uint64_t begin, end;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const uint8_t *lf = rest.n > 0 ? memchr(rest.p, '\n', rest.n) : NULL;
        size_t line = lf ? (size_t)(lf - rest.p) : rest.n;
        head.fields[head.n_fields].name = slice_str(names[i]);
        head.fields[head.n_fields++].value = slice_trim(slice_of(rest.p, line));
        rest = slice_of(rest.p + line + (lf != NULL), rest.n - line - (lf != NULL));
    }
    switch (files_range(&head, "\"1-2-3\"", 1000, 500, &begin, &end)) {
    case FILES_WHOLE:
        FUZZ_CHECK(begin == 0 && end == 500);
        break;
    case FILES_PART:
        FUZZ_CHECK(begin < end && end <= 500);
        break;
    case FILES_UNSATISFIABLE:
        break;
    }
    (void)files_conditions(&head, "\"1-2-3\"", 1000);
    (void)files_coding(&head);
    if (metadata_parse(&head, &m, &n, NULL) == 0)
        metadata_free(m, n);
    free(copy);
    return 0;
}
