/* fuzz_rpc.h - message types of the RPC targets; the input's first byte chooses one. */
#pragma once

#include "fuzz.h"
#include "schema/filesystem.pb-c.h"
#include "schema/process.pb-c.h"
#include "wire/rpc.h"

static const ProtobufCMessageDescriptor *const fuzz_types[] = {
    &process__start_request__descriptor,        &process__start_response__descriptor,
    &process__send_input_request__descriptor,   &process__stream_input_request__descriptor,
    &process__send_signal_request__descriptor,  &process__list_response__descriptor,
    &filesystem__list_dir_response__descriptor, &filesystem__watch_dir_response__descriptor,
    &filesystem__list_dir_request__descriptor,
};

static inline const ProtobufCMessageDescriptor *fuzz_type(struct slice *in)
{
    const ProtobufCMessageDescriptor *type = fuzz_types[0];

    if (in->n > 0) {
        type = fuzz_types[in->p[0] % ARRAY_SIZE(fuzz_types)];
        *in = slice_of(in->p + 1, in->n - 1);
    }
    return type;
}
