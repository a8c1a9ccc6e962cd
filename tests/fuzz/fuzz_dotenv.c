/* fuzz_dotenv.c - the input as .env file; positions have to be in order and inside. */
#include "fuzz.h"
#include "transport/dotenv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *text = fuzz_exact(slice_of(data, size));
    struct dotenv d;
    size_t end = 0;

    for (int expand = 0; expand < 2; expand++) {
        end = 0;
        if (dotenv_parse(slice_of(text, size), expand != 0, &d, NULL) == 0) {
            for (size_t i = 0; i < d.count; i++) {
                const struct dotenv_line *line = &d.lines[i];

                FUZZ_CHECK(line->start >= end && line->end > line->start && line->end <= size);
                end = line->end;
                if (line->key)
                    FUZZ_CHECK(dotenv_find(&d, line->key));
            }
        }
        dotenv_done(&d);
    }
    free(text);
    return 0;
}
