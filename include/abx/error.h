/* error.h - error codes, reasons and the error object of libabx.
 *
 * A fallible function returns 0 (or a count) or one of the codes below, and fills a struct abx_error
 * when one is given. Codes are the 16 codes of the Connect protocol at -1000 - number, so that they
 * never equal -errno. The reason is finer than the code; a call that failed for none of the listed
 * reasons has ABX_REASON_NONE. Nothing here needs to be freed.
 */
#ifndef ABX_ERROR_H
#define ABX_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ABX_EXPORT __attribute__((visibility("default")))
#else
#define ABX_EXPORT
#endif

enum {
    ABX_OK = 0,
    ABX_CANCELED = -1001,
    ABX_UNKNOWN = -1002,
    ABX_INVALID_ARGUMENT = -1003,
    ABX_DEADLINE_EXCEEDED = -1004,
    ABX_NOT_FOUND = -1005,
    ABX_ALREADY_EXISTS = -1006,
    ABX_PERMISSION_DENIED = -1007,
    ABX_RESOURCE_EXHAUSTED = -1008,
    ABX_FAILED_PRECONDITION = -1009,
    ABX_ABORTED = -1010,
    ABX_OUT_OF_RANGE = -1011,
    ABX_UNIMPLEMENTED = -1012,
    ABX_INTERNAL = -1013,
    ABX_UNAVAILABLE = -1014,
    ABX_DATA_LOSS = -1015,
    ABX_UNAUTHENTICATED = -1016
};

enum abx_reason {
    ABX_REASON_NONE = 0,
    /* said by a server */
    ABX_REASON_DISK_FULL,      /* 507, ENOSPC, EDQUOT */
    ABX_REASON_TOO_LARGE,      /* 413, or over a limit of ours that the message names */
    ABX_REASON_RATE_LIMITED,   /* 429 */
    ABX_REASON_SANDBOX_GONE,   /* 502 of the gateway: the sandbox does not run (any more) */
    ABX_REASON_PORT_CLOSED,    /* 502 of the gateway: it runs, nothing listens on the port */
    ABX_REASON_METHOD,         /* 405 */
    ABX_REASON_CONFLICT,       /* 409 */
    ABX_REASON_BUSY,           /* 503 */
    ABX_REASON_UPSTREAM,       /* 502 without a known text */
    ABX_REASON_NOT_ACCEPTABLE, /* 406 */
    ABX_REASON_MEDIA_TYPE,     /* 415 */
    ABX_REASON_RANGE,          /* 416 */
    ABX_REASON_EXPECTATION,    /* 417 */
    /* found by the client */
    ABX_REASON_SANDBOX_NOT_FOUND,  /* 404 of the control plane for a sandbox id */
    ABX_REASON_FILE_NOT_FOUND,     /* 404 or not_found of a files call */
    ABX_REASON_TEMPLATE_NOT_FOUND, /* 404 of a template, a tag, a snapshot */
    ABX_REASON_TEMPLATE_TOO_OLD,   /* the sandbox's envd lacks what was asked for */
    ABX_REASON_NO_CREDENTIALS,     /* no layer of the configuration has a key */
    ABX_REASON_NAME,               /* the host's name could not be resolved */
    ABX_REASON_CONNECT,            /* no connection: refused, unreachable */
    ABX_REASON_TLS,                /* handshake or certificate */
    ABX_REASON_DISCONNECTED,       /* the connection ended before the answer was complete */
    ABX_REASON_PROTOCOL,           /* the answer breaks HTTP, Connect, JSON or their limits */
    ABX_REASON_REQUEST_TIMEOUT,    /* the call's own deadline passed in the client */
    ABX_REASON_COMMAND_TIMEOUT,    /* the command's time is over, said by the sandbox */
    ABX_REASON_SAVED_STATE, /* 410: a paused sandbox's kept state is damaged or gone; kill works */
    ABX_REASON_COUNT_
};

#define ABX_ERROR_MESSAGE_SIZE 512
#define ABX_ERROR_WORD_SIZE 64

/* Filled by failing functions; {0} to begin with. */
struct abx_error {
    int code;                             /* one of the codes above, 0 = no error */
    int reason;                           /* enum abx_reason */
    int http_status;                      /* of the answer that said so, 0 = there was none */
    int sys;                              /* errno of the failed system call, 0 = none */
    char message[ABX_ERROR_MESSAGE_SIZE]; /* UTF-8; names host and phase, or field and limit */
    /* The server's own word for it, for programs: `error_code` of the control plane (e2b.md 1.1), `code` of an agent
     * server ("path_denied"). Letters, digits and "._:-"; "" = none, or longer or with other characters. */
    char error_code[ABX_ERROR_WORD_SIZE];
};

/* Connect's name of a code ("not_found"); "unknown" for anything else, "ok" for 0. Static. */
ABX_EXPORT const char *abx_error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
