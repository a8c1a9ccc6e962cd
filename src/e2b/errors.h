/* errors.h - JSON bodies of errors, exactly as E2B's clients read them (e2b.md 1.1, 2.4, 4.4).
 *
 * Every error body is {"code":<int>,"message":<str>}; the gateway's 502 bodies carry the sandbox id
 * (and port) first. Clients look for the texts below.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "wire/json.h"

#define E2B_TEXT_SANDBOX_GONE "The sandbox was not found"
#define E2B_TEXT_PORT_CLOSED "The sandbox is running but port is not open"
#define E2B_TEXT_TRANSITION "The sandbox is still transitioning. Try again in a moment."
#define E2B_TEXT_RESERVED                                                                          \
    "This endpoint is reserved for the E2B control plane and is not reachable through the "        \
    "sandbox URL"
#define E2B_TEXT_ENVD_UNAUTHORIZED                                                                 \
    "unauthorized access, please provide a valid access token or method signing if supported"
#define E2B_TEXT_KEY_MISSING "authorization header is missing"
#define E2B_TEXT_KEY_FORMAT "Invalid API key format"
#define E2B_TEXT_KEY_UNKNOWN "Cannot get the team for the given API key"
#define E2B_TEXT_BAD_ID "Invalid sandbox ID"
/* Format for the name of a field that decides something. */
#define E2B_TEXT_REPEATED "%s must not be given more than once"

/* {"code":404,"message":"..."} */
enum buf_status e2b_error_body(struct buf *b, int http_status, const char *message);
/* Status and message of `err`. */
enum buf_status e2b_error_body_from(struct buf *b, const struct abx_err *err);
/* 502 of the gateway: {"sandboxId":"..","message":"The sandbox was not found","code":502} */
enum buf_status e2b_sandbox_gone_body(struct buf *b, const char *sandbox_id);
/* 502: {"sandboxId":"..","message":"The sandbox is running but port is not open","port":N,..} */
enum buf_status e2b_port_closed_body(struct buf *b, const char *sandbox_id, uint16_t port);
