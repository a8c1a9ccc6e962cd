/* fuzz_guest_report.c - what a sandbox says of its processes, made lines of its logs: no crash, texts within bounds. */
#include "e2b/guest_abi.h"
#include "egress/report.h"
#include "fuzz.h"
#include "wire/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Abx__Ipc__GuestReport *report;
    ProtobufCMessage *m = NULL;
    struct report_text t;

    if (size > GUEST_REPORT_MAX ||
        rpc_proto_decode(&abx__ipc__guest_report__descriptor, slice_of(data, size), &m, NULL))
        return 0;
    report = (const Abx__Ipc__GuestReport *)m;
    for (size_t i = 0; i < report->n_lines; i++) {
        size_t n = 0;

        report_line(report->lines[i], &t);
        FUZZ_CHECK(strnlen(t.message, sizeof t.message) < sizeof t.message);
        while (t.pairs[n])
            n += 2;
        FUZZ_CHECK(n < REPORT_PAIRS);
    }
    rpc_message_free(m);
    return 0;
}
