/* fuzz_ipc_frame.c - decoding a frame of another process: no crash, bounded memory, and what decodes
 * can be encoded.
 */
#include "fuzz.h"
#include "net/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Abx__Ipc__Frame *f = size <= IPC_FRAME_MAX ? ipc_frame_decode(data, size) : NULL;
    static uint8_t out[IPC_FRAME_MAX];
    struct abx_err e;

    if (!f)
        return 0;
    if (f->body_case == ABX__IPC__FRAME__BODY_ERROR)
        ipc_error_decode(f->error, &e);
    (void)ipc_frame_encode(f, out);
    abx__ipc__frame__free_unpacked(f, NULL);
    return 0;
}
