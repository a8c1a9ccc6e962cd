/* http_fail.c - libcurl's results as errors that name host and phase, and what of them may be tried again. */
#include <string.h>

#include "transport/http_internal.h"

static bool is_tls_result(CURLcode result)
{
    switch ((int)result) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_ENGINE_SETFAILED:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_USE_SSL_FAILED:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_SHUTDOWN_FAILED:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_CLIENTCERT:
        return true;
    default:
        return false;
    }
}

/* Bytes that are no HTTP, as opposed to a connection that ended. libcurl has one code for both in chunks. */
static bool is_protocol_result(const struct http_exchange *x, CURLcode result)
{
    switch ((int)result) {
    case CURLE_UNSUPPORTED_PROTOCOL: /* an answer of HTTP/0.9 */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_CHUNK_FAILED:
        return true;
    case CURLE_RECV_ERROR:
        return strstr(x->error_text, "chunked-encoding") != NULL;
    default:
        return false;
    }
}

/* libcurl of Debian 12 says "out of memory" for a header line over its 100 KiB. */
static bool is_head_too_large(const struct http_exchange *x, CURLcode result)
{
#if LIBCURL_VERSION_NUM >= 0x080600
    if (result == CURLE_TOO_LARGE)
        return true;
#endif
    return result == CURLE_OUT_OF_MEMORY && x->is_sent && !x->has_head && x->head.bytes > 0;
}

const char *fail_phase(struct http_exchange *x)
{
    curl_off_t resolved = 0;

    if (x->has_head)
        return "body";
    if (x->is_sent)
        return "wait for the answer";
    if (pool_is_connected(x))
        return x->is_https ? "TLS handshake" : "connect";
    if (x->fd >= 0)
        return "connect";
    if (pool_is_full(x->pool))
        return "wait for a connection";
    (void)curl_easy_getinfo(x->easy, CURLINFO_NAMELOOKUP_TIME_T, &resolved);
    return resolved > 0 ? "wait for a connection" : "name resolution";
}

static const char *detail(const struct http_exchange *x, CURLcode result)
{
    return x->error_text[0] ? x->error_text : curl_easy_strerror(result);
}

void fail_make(struct http_exchange *x, CURLcode result, struct abx_err *err)
{
    const char *host = x->host;
    long sys = 0;

    (void)curl_easy_getinfo(x->easy, CURLINFO_OS_ERRNO, &sys);
    if (is_head_too_large(x, result)) {
        (void)err_reason(err, ABX_REASON_PROTOCOL, "%s: answer: header over 64 KiB", host);
    } else if (result == CURLE_OUT_OF_MEMORY) {
        (void)err_oom(err);
    } else if (x->source_error != 0) {
        (void)err_set(err, x->source_error, "%s: request body: %s", host, x->source_why);
    } else if (x->is_bad_head) {
        (void)err_reason(err, ABX_REASON_PROTOCOL, "%s: answer: %s", host, x->head.why);
    } else if (x->is_resend) {
        (void)err_reason(err, ABX_REASON_DISCONNECTED,
                         "%s: wait for the answer: the connection ended after the request was sent",
                         host);
    } else if (result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_RESOLVE_PROXY) {
        (void)err_reason(err, ABX_REASON_NAME, "%s: name resolution: %s", host, detail(x, result));
    } else if (is_tls_result(result)) {
        (void)err_reason(err, ABX_REASON_TLS, "%s: TLS handshake: %s", host, detail(x, result));
    } else if (!x->is_sent && result == CURLE_URL_MALFORMAT) {
        (void)err_set(err, ABX_INVALID_ARGUMENT, "url: %s", detail(x, result));
    } else if (!x->is_sent && sys != 0) {
        (void)err_reason(err, ABX_REASON_CONNECT, "%s: connect: %s", host, strerror((int)sys));
    } else if (!x->is_sent) {
        (void)err_reason(err, ABX_REASON_CONNECT, "%s: connect: %s", host, detail(x, result));
    } else if (is_protocol_result(x, result)) {
        (void)err_reason(err, ABX_REASON_PROTOCOL, "%s: %s: %s", host, fail_phase(x),
                         detail(x, result));
    } else {
        (void)err_reason(err, ABX_REASON_DISCONNECTED, "%s: %s: %s", host, fail_phase(x),
                         detail(x, result));
    }
    err->sys = (int)sys;
}

bool fail_is_connect_retry(const struct http_exchange *x, CURLcode result)
{
    if (x->is_sent || x->is_canceled)
        return false;
    switch ((int)result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
        return true;
    default:
        return false;
    }
}

bool fail_is_lost(const struct http_exchange *x, CURLcode result)
{
    if (!x->is_sent || x->has_head || x->is_bad_head || x->source_error != 0)
        return false;
    if (x->is_resend)
        return true;
    switch ((int)result) {
    case CURLE_OK: /* without a head */
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2: /* GOAWAY and the end of the connection, too */
    case CURLE_HTTP2_STREAM:
    case CURLE_PARTIAL_FILE:
        return true;
    case CURLE_RECV_ERROR:
        return !is_protocol_result(x, result);
    default:
        return false;
    }
}
