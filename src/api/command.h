/* command.h - the stream of one process, of Start and Connect; only for src/api. */
#pragma once

#include "abx/commands.h"
#include "protocol/envd.h"
#include "schema/process.pb-c.h"
#include "transport/call.h"

#define COMMAND_TIMEOUT_MS 60000
#define COMMAND_OUTPUT_MAX (UINT64_C(2) << 30)

struct command_spec {
    const char *procedure;
    const char *user;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response;
    int64_t timeout_ms;            /* ABX_UNSET = COMMAND_TIMEOUT_MS, 0 = none */
    int64_t request_timeout_ms;    /* until the start event */
    uint64_t max_output_bytes;     /* per stream, 0 = COMMAND_OUTPUT_MAX */
    const uint64_t *output_offset; /* NULL = what no one has read */
    bool has_events;
    bool has_output; /* kept for abx_call_command */
};

/* A call whose stream is started with command_start; NULL when out of memory. */
abx_call *command_new(abx_client *client);
int command_start(abx_call *call, const abx_sandbox *sandbox, const struct command_spec *spec,
                  struct abx_err *err);

/* Fills a StartRequest's config from the options; memory is the call's. `program` and its arguments stand for a NULL
 * opts->argv. */
int command_config(abx_call *call, const struct abx_command_opts *opts, const char *program,
                   char **args, size_t arg_count, Process__ProcessConfig *ret, struct abx_err *err);

/* INVALID_ARGUMENT when it picks nothing. `ret` borrows the tag. */
int process_selector(const struct abx_process_ref *process, Process__ProcessSelector *ret,
                     struct abx_err *err);
