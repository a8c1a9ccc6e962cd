/* fuzz_engine_text.c - the engine's readers of files: template.json and records. What a record reader
 * accepts has to come out of the writer as it went in.
 */
#include "engine/template.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(2 * RECORD_BYTES_MAX);
    struct template t;
    struct record r, again;

    if (template_decode(slice_of(data, size), &t))
        FUZZ_CHECK(t.name[0] != '\0' && t.digest[0] != '\0');
    if (record_decode(slice_of(data, size), &r)) {
        FUZZ_CHECK(record_encode(&r, &b) == BUF_OK);
        FUZZ_CHECK(record_decode(buf_slice(&b), &again));
        FUZZ_CHECK(again.pid == r.pid && again.phase == r.phase && again.is_frozen == r.is_frozen);
    }
    return 0;
}
