/* answer.c - answers that the gateway gives itself (e2b.md 2.4). */
#include <string.h>

#include "base/str.h"
#include "e2b/errors.h"
#include "gateway/internal.h"

#define BODY_MAX 4096u
#define FIELDS_MAX 10

static const struct http1_field cors_origin = { SLICE_LIT("Access-Control-Allow-Origin"),
                                                SLICE_LIT("*") };
static const struct http1_field cors_expose = {
    SLICE_LIT("Access-Control-Expose-Headers"),
    SLICE_LIT("X-Next-Token, X-Total-Running, Should-Retry, Retry-After, Abx-Request-Id")
};

/* What every answer carries, relayed ones too. */
void answer_fields_set(struct request *r)
{
    r->answer_fields[0] = cors_origin;
    r->answer_fields[1] = cors_expose;
    r->answer_fields[2] =
        (struct http1_field){ SLICE_LIT("Abx-Request-Id"), slice_str(r->request_id) };
}

/* `policy` empty: none. */
static void answer_as(struct request *r, int status, int should_retry, struct slice type,
                      struct slice policy, struct slice body)
{
    struct http1_field fields[FIELDS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < ANSWER_FIELDS; i++)
        fields[n++] = r->answer_fields[i];
    if (body.n > 0)
        fields[n++] = (struct http1_field){ SLICE_LIT("Content-Type"), type };
    if (policy.n > 0)
        fields[n++] = (struct http1_field){ SLICE_LIT("Content-Security-Policy"), policy };
    if (should_retry >= 0)
        fields[n++] = (struct http1_field){ SLICE_LIT("Should-Retry"),
                                            should_retry ? SLICE_LIT("true") : SLICE_LIT("false") };
    if (should_retry > 0 && (status == 429 || status == 503))
        fields[n++] = (struct http1_field){ SLICE_LIT("Retry-After"), SLICE_LIT("1") };
    r->status = status;
    r->answered_ns = time_mono_ns();
    http_exchange_send(r->ex, status, fields, n, body);
}

void answer(struct request *r, int status, int should_retry, struct slice json)
{
    answer_as(r, status, should_retry, SLICE_LIT("application/json; charset=utf-8"),
              (struct slice){ 0 }, json);
}

static bool contains(struct slice s, const char *part)
{
    return s.n > 0 && memmem(s.p, s.n, part, strlen(part)) != NULL;
}

/* A person looks at a port of a sandbox with a browser; programs get JSON whatever they accept. */
static bool wants_page(const struct request *r)
{
    const struct http1_head *head = http_exchange_head(r->ex);

    return contains(http1_head_value(head, "user-agent"), "Mozilla/") &&
           contains(http1_head_value(head, "accept"), "text/html");
}

static void put_html(struct buf *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            (void)buf_append_str(b, "&lt;");
        else if (*text == '&')
            (void)buf_append_str(b, "&amp;");
        else
            (void)buf_append_byte(b, (uint8_t)*text);
    }
}

/* An error about a sandbox: `json` for programs, `message` for people. */
static void answer_about_sandbox(struct request *r, int status, int should_retry,
                                 const char *message, struct slice json)
{
    _cleanup_(buf_done) struct buf page = BUF_INIT(BODY_MAX);

    if (!wants_page(r)) {
        answer(r, status, should_retry, json);
        return;
    }
    (void)buf_printf(&page,
                     "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width\">"
                     "<title>%d %s</title></head>\n<body><h1>%d %s</h1>\n<p>",
                     status, http1_reason(status), status, http1_reason(status));
    put_html(&page, message);
    (void)buf_append_str(&page, "</p>\n<p>Sandbox <code>");
    put_html(&page, r->route.id);
    (void)buf_printf(&page, "</code>, port %u</p></body></html>\n", r->route.port);
    answer_as(r, status, should_retry, SLICE_LIT("text/html; charset=utf-8"),
              SLICE_LIT("default-src 'none'"), buf_slice(&page));
}

void answer_error(struct request *r, int status, int should_retry, const char *message)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(BODY_MAX);

    (void)e2b_error_body(&body, status, message);
    r->is_failure = status >= 500;
    answer(r, status, should_retry, buf_slice(&body));
}

void answer_sandbox_error(struct request *r, int status, int should_retry, const char *message)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(BODY_MAX);

    (void)buf_append_str(&body, "{\"sandboxId\":");
    (void)json_string_put(&body, slice_str(r->route.id));
    (void)buf_append_str(&body, ",\"message\":");
    (void)json_string_put(&body, slice_str(message));
    (void)buf_printf(&body, ",\"code\":%d}", status);
    r->is_failure = status >= 500;
    answer_about_sandbox(r, status, should_retry, message, buf_slice(&body));
}

/* Trying again is of no use. */
void answer_gone(struct request *r)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(BODY_MAX);

    request_trouble(r, COUNT_UPSTREAM_GONE);
    (void)e2b_sandbox_gone_body(&body, r->route.id);
    answer_about_sandbox(r, 502, 0, E2B_TEXT_SANDBOX_GONE, buf_slice(&body));
}

void answer_port_closed(struct request *r, bool should_retry)
{
    _cleanup_(buf_done) struct buf body = BUF_INIT(BODY_MAX);

    request_trouble(r, COUNT_UPSTREAM_CLOSED);
    (void)e2b_port_closed_body(&body, r->route.id, r->route.port);
    answer_about_sandbox(r, 502, should_retry, E2B_TEXT_PORT_CLOSED, buf_slice(&body));
}

void answer_options(struct request *r)
{
    static const struct slice methods = SLICE_LIT("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    const struct http1_head *head = http_exchange_head(r->ex);
    struct slice wanted = http1_head_value(head, "access-control-request-headers");
    struct http1_field fields[FIELDS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < ANSWER_FIELDS; i++)
        fields[n++] = r->answer_fields[i];
    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Allow-Methods"), methods };
    /* "*" would leave Authorization out. */
    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Allow-Headers"),
                                        wanted.n > 0 ? wanted : SLICE_LIT("*") };
    fields[n++] = (struct http1_field){ SLICE_LIT("Access-Control-Max-Age"), SLICE_LIT("7200") };
    r->status = 204;
    r->answered_ns = time_mono_ns();
    http_exchange_send(r->ex, 204, fields, n, (struct slice){ 0 });
}
