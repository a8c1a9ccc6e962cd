/* exchange_tool.c - drives http_start for the system tests: what abx_http_request does not offer.
 *
 * usage: exchange_tool [gzip=1] [pause=1] [keyed=1] [skip_502=1] [method=M] [body=T] [ca=FILE] URL...
 * One exchange after the other; prints a JSON line for each. A URL with the fragment #http1 goes by HTTP/1.1 only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abx/abx.h"
#include "base/str.h"
#include "transport/http.h"

struct run {
    int status, version;
    size_t bytes, sum;
    char encoding[64];
    size_t pauses;
    bool is_done, has_pauses, is_paused;
    struct abx_err err;
};

static void on_head(void *user, const struct http_head *head)
{
    struct run *r = user;
    const char *encoding = http_head_get(head, "content-encoding");

    r->status = head->status;
    r->version = head->version;
    (void)snprintf(r->encoding, sizeof r->encoding, "%s", encoding ? encoding : "");
}

static bool on_body(void *user, struct slice data)
{
    struct run *r = user;

    if (r->has_pauses && !r->is_paused) { /* each piece only when it comes the second time */
        r->is_paused = true;
        r->pauses++;
        return false;
    }
    r->is_paused = false;
    r->bytes += data.n;
    for (size_t i = 0; i < data.n; i++)
        r->sum += data.p[i];
    return true;
}

static void on_done(void *user, const struct abx_err *err)
{
    struct run *r = user;

    r->err = *err;
    r->is_done = true;
}

static const char *argument(int argc, char **argv, const char *name)
{
    size_t n = strlen(name);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct http_sink sink = { on_head, on_body, on_done };
    struct abx_config_opts opts = ABX_CONFIG_OPTS_INIT;
    const char *body = argument(argc, argv, "body"), *method = argument(argc, argv, "method");
    abx_client *client;
    abx_config *config;
    struct abx_error err;

    opts.ca_file = argument(argc, argv, "ca");
    if (abx_config_load(&opts, &config, &err) < 0 || abx_client_new(NULL, &client, &err) < 0) {
        fprintf(stderr, "exchange_tool: %s\n", err.message);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        struct http_spec spec = { .config = config,
                                  .method = method ? method : "GET",
                                  .url = argv[i] };
        struct run run = { 0 };
        struct http_exchange *x;

        if (strncmp(argv[i], "http", 4) != 0 || strchr(argv[i], '/') == NULL)
            continue;
        run.has_pauses = argument(argc, argv, "pause") != NULL;
        spec.body = slice_str(body);
        spec.accept_gzip = argument(argc, argv, "gzip") != NULL;
        spec.http1_only = strstr(argv[i], "#http1") != NULL;
        spec.skip_502_retry = argument(argc, argv, "skip_502") != NULL;
        spec.retry = argument(argc, argv, "keyed") ? HTTP_RETRY_KEYED : HTTP_RETRY_CONNECT;
        spec.deadline_ns = time_mono_ns() + 60 * NSEC_PER_SEC;
        if (http_start(client, &spec, &sink, &run, &x, &run.err) < 0)
            run.is_done = true;
        while (!run.is_done) {
            (void)abx_client_wait(client, 1000);
            if (run.is_paused && !run.is_done)
                http_resume(x);
        }
        printf("{\"code\": %d, \"reason\": %d, \"status\": %d, \"version\": %d, \"bytes\": %zu, "
               "\"sum\": %zu, \"encoding\": \"%s\", \"pauses\": %zu, \"message\": \"%s\"}\n",
               run.err.code, (int)run.err.reason, run.status, run.version, run.bytes, run.sum,
               run.encoding, run.pauses, run.err.msg);
    }
    abx_client_free(client);
    abx_config_unref(config);
    return 0;
}
