/* envd_error.c - errors of envd and of the gateway in front of it. See envd.h. */
#include <string.h>

#include "base/str.h"
#include "e2b/errors.h"
#include "e2b/jsondoc.h"
#include "protocol/envd.h"

#define TEXT_MAX 400u

struct status_row {
    int status;
    int code;
    enum abx_reason reason;
};

/* Plain answers: the table of client.md 2.6, and the reasons of statuses that it does not list. */
static const struct status_row statuses[] = {
    { 400, ABX_INVALID_ARGUMENT, ABX_REASON_NONE },
    { 401, ABX_UNAUTHENTICATED, ABX_REASON_NONE },
    { 403, ABX_PERMISSION_DENIED, ABX_REASON_NONE },
    { 404, ABX_NOT_FOUND, ABX_REASON_NONE },
    { 405, ABX_UNIMPLEMENTED, ABX_REASON_METHOD },
    { 406, ABX_INVALID_ARGUMENT, ABX_REASON_NOT_ACCEPTABLE },
    { 409, ABX_ALREADY_EXISTS, ABX_REASON_CONFLICT },
    { 410, ABX_DATA_LOSS, ABX_REASON_SAVED_STATE },
    { 413, ABX_RESOURCE_EXHAUSTED, ABX_REASON_TOO_LARGE },
    { 415, ABX_INVALID_ARGUMENT, ABX_REASON_MEDIA_TYPE },
    { 416, ABX_OUT_OF_RANGE, ABX_REASON_RANGE },
    { 417, ABX_INVALID_ARGUMENT, ABX_REASON_EXPECTATION },
    { 429, ABX_RESOURCE_EXHAUSTED, ABX_REASON_RATE_LIMITED },
    { 499, ABX_CANCELED, ABX_REASON_NONE },
    { 500, ABX_INTERNAL, ABX_REASON_NONE },
    { 501, ABX_UNIMPLEMENTED, ABX_REASON_NONE },
    { 502, ABX_UNAVAILABLE, ABX_REASON_UPSTREAM },
    { 503, ABX_UNAVAILABLE, ABX_REASON_BUSY },
    { 504, ABX_DEADLINE_EXCEEDED, ABX_REASON_NONE },
    { 505, ABX_UNIMPLEMENTED, ABX_REASON_NONE },
    { 507, ABX_RESOURCE_EXHAUSTED, ABX_REASON_DISK_FULL },
};

static const struct status_row *row_find(int64_t status)
{
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        if (statuses[i].status == status)
            return &statuses[i];
    return NULL;
}

/* Text for a message: trimmed, cut between characters. */
static struct slice text_fit(struct slice s)
{
    while (s.n > 0 && s.p[0] <= ' ')
        s = slice_of(s.p + 1, s.n - 1);
    while (s.n > 0 && s.p[s.n - 1] <= ' ')
        s.n--;
    if (s.n > TEXT_MAX) {
        s.n = TEXT_MAX;
        while (s.n > 0 && (s.p[s.n] & 0xc0) == 0x80)
            s.n--;
    }
    return s;
}

static bool has_text(struct slice s, const char *text)
{
    return s.p && s.n > 0 && memmem(s.p, s.n, text, strlen(text)) != NULL;
}

static struct slice member_text(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return v && json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                                  : slice_of(NULL, 0);
}

static int fill(struct abx_err *err, int code, enum abx_reason reason, int status,
                struct slice message)
{
    struct slice text = text_fit(message);

    if (text.n == 0 || !utf8_is_valid(text))
        (void)err_set(err, code, "HTTP status %d", status);
    else
        (void)err_set(err, code, "%.*s", (int)text.n, (const char *)text.p);
    if (err)
        err->reason = reason;
    return code;
}

/* {"code":"not_found","message":"..."}: false when it is no such object. */
static bool coded(const json_t *object, int status, struct abx_err *err)
{
    struct slice name = member_text(object, "code"), text;
    const struct status_row *row = row_find(status);
    enum abx_reason reason = ABX_REASON_NONE;
    int code;

    if (name.n == 0)
        return false;
    code = err_code_from_name((const char *)name.p);
    /* The status may say more than the code: a full disk, a limit. */
    if (row && row->code == code &&
        (row->reason == ABX_REASON_DISK_FULL || row->reason == ABX_REASON_TOO_LARGE))
        reason = row->reason;
    text = text_fit(member_text(object, "message"));
    if (text.n > 0)
        (void)err_set(err, code, "%.*s", (int)text.n, (const char *)text.p);
    else
        (void)err_set(err, code, "%s", err_code_name(code));
    if (err)
        err->reason = reason;
    return true;
}

static int plain(int status, struct slice message, struct abx_err *err)
{
    const struct status_row *row = row_find(status);
    enum abx_reason reason = row ? row->reason : ABX_REASON_NONE;

    if (status == 502 && has_text(message, "was not found"))
        reason = ABX_REASON_SANDBOX_GONE;
    else if (status == 502 && has_text(message, "port is not open"))
        reason = ABX_REASON_PORT_CLOSED;
    return fill(err, row ? row->code : ABX_UNKNOWN, reason, status, message);
}

int envd_error_from_answer(int status, struct slice body, bool *ret_is_coded, struct abx_err *err)
{
    _cleanup_(json_unrefp) json_t *doc = NULL;
    const json_t *code;

    if (ret_is_coded)
        *ret_is_coded = false;
    if (body.n == 0 || jsondoc_parse(body, &doc, NULL) < 0 || !json_is_object(doc))
        return plain(status, body, err);
    code = json_object_get(doc, "code");
    if (coded(doc, status, err)) {
        if (ret_is_coded)
            *ret_is_coded = true;
        return err ? err->code : err_code_from_name(json_string_value(code));
    }
    /* A gateway's integer code is meant more than the status around it. */
    if (code && json_is_integer(code) && row_find(json_integer_value(code)))
        status = (int)json_integer_value(code);
    return plain(status, member_text(doc, "message"), err);
}

int envd_error_from_end(struct slice message, bool *ret_is_malformed, struct abx_err *err)
{
    _cleanup_(json_unrefp) json_t *doc = NULL;
    const json_t *error;

    *ret_is_malformed = false;
    if (jsondoc_parse(message, &doc, NULL) < 0 || !json_is_object(doc)) {
        *ret_is_malformed = true;
        return err_reason(err, ABX_REASON_PROTOCOL, "the end-of-stream message is no JSON object");
    }
    error = json_object_get(doc, "error");
    if (!error || json_is_null(error))
        return 0;
    if (json_is_object(error) && coded(error, 0, err))
        return err_code_from_name(json_string_value(json_object_get(error, "code")));
    *ret_is_malformed = true;
    return err_reason(err, ABX_REASON_PROTOCOL,
                      "the end-of-stream message has an error without a code");
}
