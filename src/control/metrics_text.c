/* metrics_text.c - see metrics_text.h. */
#include "control/metrics_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    struct buf *b;
    bool is_bad; /* something did not fit */
};

static void put(struct text *t, const char *fmt, ...) _printf_(2, 3);

static void put(struct text *t, const char *fmt, ...)
{
    char line[512];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(line) || buf_append(t->b, line, (size_t)n) != BUF_OK)
        t->is_bad = true;
}

static const char *const routes[COUNT_ROUTES_] = {
    [COUNT_ROUTE_CONTROL] = "control",
    [COUNT_ROUTE_ENVD] = "envd",
    [COUNT_ROUTE_PORT] = "port",
    [COUNT_ROUTE_NONE] = "none",
};

static const char *const classes[COUNT_CLASSES_] = {
    [COUNT_CLASS_ABORTED] = "aborted", [COUNT_CLASS_1XX] = "1xx", [COUNT_CLASS_2XX] = "2xx",
    [COUNT_CLASS_3XX] = "3xx",         [COUNT_CLASS_4XX] = "4xx", [COUNT_CLASS_5XX] = "5xx",
};

static const char *const upstream_kinds[COUNT_UPSTREAMS_] = {
    [COUNT_UPSTREAM_GONE] = "gone",       [COUNT_UPSTREAM_CLOSED] = "closed",
    [COUNT_UPSTREAM_TIMEOUT] = "timeout", [COUNT_UPSTREAM_TLS] = "tls",
    [COUNT_UPSTREAM_BROKEN] = "broken",   [COUNT_UPSTREAM_UNAVAILABLE] = "unavailable",
    [COUNT_UPSTREAM_CONTROL] = "control",
};

static const char *const limits[COUNT_LIMITS_] = {
    [COUNT_LIMIT_CLIENT] = "client",
    [COUNT_LIMIT_SANDBOX] = "sandbox",
    [COUNT_LIMIT_KEY] = "key",
};

static const char *const kill_reasons[COUNT_KILLS_] = {
    [COUNT_KILL_REQUEST] = "request", [COUNT_KILL_TIMEOUT] = "timeout",
    [COUNT_KILL_FAILED] = "failed",   [COUNT_KILL_DIED] = "died",
    [COUNT_KILL_OTHER] = "other",
};

static const char *const denied_kinds[COUNT_DENIEDS_] = {
    [COUNT_DENIED_CONNECTIONS] = "connection",
    [COUNT_DENIED_NAMES] = "name",
    [COUNT_DENIED_DATAGRAMS] = "datagram",
};

static const char *const question_results[COUNT_QUESTIONS_] = {
    [COUNT_QUESTION_ANSWERED] = "answered",
    [COUNT_QUESTION_FAILED] = "failed",
    [COUNT_QUESTION_REFUSED] = "refused",
    [COUNT_QUESTION_INVALID] = "invalid",
};

/* A copy of a block, so that what belongs together is read once; zeros of one that is of another release. */
static void read_block(const void *from, void *to, size_t size)
{
    const uint64_t *words = from;
    uint64_t *copy = to;

    memset(to, 0, size);
    if (count_get(&words[0]) != COUNTERS_LAYOUT)
        return;
    for (size_t k = 0; k < size / sizeof(*words); k++)
        copy[k] = count_get(&words[k]);
}

static void add_up(struct gateway_counters *sum, const struct gateway_counters *one)
{
    const uint64_t *from = (const uint64_t *)(const void *)one;
    uint64_t *to = (uint64_t *)(void *)sum;

    for (size_t k = 0; k < sizeof(*sum) / sizeof(*to); k++)
        to[k] += from[k];
}

static void head(struct text *t, const char *prefix, const char *name, const char *type,
                 const char *help)
{
    put(t, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, type);
}

/* `labels` without braces, may be empty. */
static void histogram(struct text *t, const char *name, const char *labels,
                      const struct histogram *h)
{
    const char *comma = *labels ? "," : "";
    const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    uint64_t n = 0;

    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        char bound[24] = "+Inf";

        n += h->buckets[i];
        if (i < HISTOGRAM_BOUNDS)
            (void)snprintf(bound, sizeof(bound), "%g", (double)histogram_bounds_us[i] / 1e6);
        put(t, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, labels, comma, bound, n);
    }
    put(t, "%s_sum%s%s%s %" PRIu64 ".%06" PRIu64 "\n", name, open, labels, close,
        h->sum_us / 1000000, h->sum_us % 1000000);
    put(t, "%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, n);
}

/* What gateways count, for each of `n` processes with the label (prefix abx_gateway_), or their sum. */
struct gateway_family {
    const char *prefix; /* of the names */
    const struct gateway_counters *of;
    size_t n;
    bool has_label;
};

/* `process="0",` or nothing. */
static const char *process_label(const struct gateway_family *f, size_t i, char to[32])
{
    to[0] = '\0';
    if (f->has_label)
        (void)snprintf(to, 32, "process=\"%zu\",", i);
    return to;
}

static void put_plain(struct text *t, const struct gateway_family *f, size_t i, const char *name,
                      uint64_t value)
{
    if (f->has_label)
        put(t, "%s%s{process=\"%zu\"} %" PRIu64 "\n", f->prefix, name, i, value);
    else
        put(t, "%s%s %" PRIu64 "\n", f->prefix, name, value);
}

static void put_requests(struct text *t, const struct gateway_family *f)
{
    char label[32], labels[64], name[64];

    head(t, f->prefix, "requests_total", "counter", "Requests that are over.");
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < COUNT_ROUTES_; k++)
            for (size_t c = 0; c < COUNT_CLASSES_; c++)
                put(t, "%srequests_total{%sroute=\"%s\",class=\"%s\"} %" PRIu64 "\n", f->prefix,
                    process_label(f, i, label), routes[k], classes[c], f->of[i].requests[k][c]);
    head(t, f->prefix, "request_seconds", "histogram",
         "Time from a request's head to that of its answer.");
    (void)snprintf(name, sizeof(name), "%srequest_seconds", f->prefix);
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < COUNT_ROUTES_; k++) {
            (void)snprintf(labels, sizeof(labels), "%sroute=\"%s\"", process_label(f, i, label),
                           routes[k]);
            histogram(t, name, labels, &f->of[i].seconds[k]);
        }
    head(t, f->prefix, "bytes_total", "counter",
         "Bytes of bodies and of switched protocols, from clients (in) and to them (out).");
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < COUNT_ROUTES_; k++) {
            const char *process = process_label(f, i, label);

            put(t, "%sbytes_total{%sroute=\"%s\",direction=\"in\"} %" PRIu64 "\n", f->prefix,
                process, routes[k], f->of[i].bytes_in[k]);
            put(t, "%sbytes_total{%sroute=\"%s\",direction=\"out\"} %" PRIu64 "\n", f->prefix,
                process, routes[k], f->of[i].bytes_out[k]);
        }
}

static void put_gateways(struct text *t, const struct gateway_family *f)
{
    char label[32];

    head(t, f->prefix, "starts_total", "counter", "Starts of gateway processes.");
    for (size_t i = 0; i < f->n; i++)
        put_plain(t, f, i, "starts_total", f->of[i].starts);
    head(t, f->prefix, "connections", "gauge", "Connections of clients at present.");
    for (size_t i = 0; i < f->n; i++)
        put_plain(t, f, i, "connections", f->of[i].connections);
    head(t, f->prefix, "accepted_connections_total", "counter",
         "Connections of clients that were accepted.");
    for (size_t i = 0; i < f->n; i++)
        put_plain(t, f, i, "accepted_connections_total", f->of[i].connections_total);
    put_requests(t, f);
    head(t, f->prefix, "upstream_errors_total", "counter",
         "Requests that failed behind the gateway.");
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < COUNT_UPSTREAMS_; k++)
            put(t, "%supstream_errors_total{%skind=\"%s\"} %" PRIu64 "\n", f->prefix,
                process_label(f, i, label), upstream_kinds[k], f->of[i].upstream_errors[k]);
    head(t, f->prefix, "limited_total", "counter",
         "Connections and requests answered 429 because of a limit on connections.");
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < COUNT_LIMITS_; k++)
            put(t, "%slimited_total{%slimit=\"%s\"} %" PRIu64 "\n", f->prefix,
                process_label(f, i, label), limits[k], f->of[i].limited[k]);
}

static void put_control(struct text *t, const struct metrics_input *in)
{
    const struct control_counters *c = in->control;

    head(t, "abx_", "control_starts_total", "counter", "Starts of the control process.");
    put(t, "abx_control_starts_total %" PRIu64 "\n", count_get(&c->starts));
    head(t, "abx_", "sandboxes", "gauge", "Sandboxes by state.");
    for (size_t i = 0; i < in->n_states; i++)
        put(t, "abx_sandboxes{state=\"%s\"} %" PRIu64 "\n", in->states[i].name, in->states[i].n);
    head(t, "abx_", "creates_total", "counter", "Creates by result: ok, or the error's code.");
    for (size_t i = 0; i < COUNT_RESULTS; i++)
        put(t, "abx_creates_total{result=\"%s\"} %" PRIu64 "\n",
            i == 0 ? "ok" : err_code_name(-1000 - (int)i), count_get(&c->creates[i]));
    head(t, "abx_", "create_seconds", "histogram",
         "Time from a create's request to the running sandbox.");
    histogram(t, "abx_create_seconds", "", &c->create_seconds);
    head(t, "abx_", "kills_total", "counter", "Sandboxes that ended, by reason.");
    for (size_t i = 0; i < COUNT_KILLS_; i++)
        put(t, "abx_kills_total{reason=\"%s\"} %" PRIu64 "\n", kill_reasons[i],
            count_get(&c->kills[i]));
    head(t, "abx_", "kill_seconds", "histogram",
         "Time from the decision to end a sandbox until nothing of it was left.");
    histogram(t, "abx_kill_seconds", "", &c->kill_seconds);
    head(t, "abx_", "control_limited_total", "counter",
         "Requests answered 429 because their API key had as many under way as it may.");
    put(t, "abx_control_limited_total %" PRIu64 "\n", count_get(&c->limited));
}

static void put_value(struct text *t, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    head(t, "", name, type, help);
    put(t, "%s %" PRIu64 "\n", name, value);
}

static void put_egress(struct text *t, const struct metrics_input *in)
{
    struct egress_counters c = { 0 };

    if (in->egress)
        read_block(in->egress, &c, sizeof(c));
    put_value(t, "abx_egress_starts_total", "counter", "Starts of the egress process.", c.starts);
    put_value(t, "abx_egress_sandboxes", "gauge", "Sandboxes whose way out egress is.",
              c.sandboxes);
    put_value(t, "abx_egress_connections", "gauge",
              "TCP connections of sandboxes to the outside at present.", c.connections);
    put_value(t, "abx_egress_begun_connections_total", "counter",
              "TCP connections that sandboxes began, refused ones too.", c.connections_total);
    head(t, "abx_egress_", "denied_total", "counter",
         "Connections, questions for names and datagrams that were refused.");
    for (size_t i = 0; i < COUNT_DENIEDS_; i++)
        put(t, "abx_egress_denied_total{kind=\"%s\"} %" PRIu64 "\n", denied_kinds[i], c.denied[i]);
    head(t, "abx_egress_", "dns_questions_total", "counter",
         "Questions of sandboxes for names that are over, by what came of them.");
    for (size_t i = 0; i < COUNT_QUESTIONS_; i++)
        put(t, "abx_egress_dns_questions_total{result=\"%s\"} %" PRIu64 "\n", question_results[i],
            c.questions[i]);
    head(t, "abx_egress_", "bytes_total", "counter",
         "Bytes of connections, from sandboxes (out) and to them (in).");
    put(t, "abx_egress_bytes_total{direction=\"out\"} %" PRIu64 "\n", c.bytes_out);
    put(t, "abx_egress_bytes_total{direction=\"in\"} %" PRIu64 "\n", c.bytes_in);
}

static void put_engine(struct text *t, const struct metrics_input *in)
{
    head(t, "abx_", "engine_up", "gauge", "Does the engine answer?");
    put(t, "abx_engine_up %d\n", in->is_engine_up);
    if (!in->is_engine_up)
        return;
    head(t, "abx_", "engine_sandboxes", "gauge", "Sandboxes that the engine runs.");
    put(t, "abx_engine_sandboxes %" PRIu64 "\n", in->engine_sandboxes);
    head(t, "abx_", "engine_pool_ready", "gauge", "Sandboxes that stand ready in pools.");
    put(t, "abx_engine_pool_ready %" PRIu64 "\n", in->engine_pooled);
    head(t, "abx_", "engine_slots_ready", "gauge", "Slots prepared for creates.");
    put(t, "abx_engine_slots_ready %" PRIu64 "\n", in->engine_slots);
}

int metrics_text(const struct metrics_input *in, struct buf *b, struct abx_err *err)
{
    struct gateway_counters sum = { 0 }, *each = calloc(in->n_gateways + 1, sizeof(*each));
    struct text t = { b, false };
    struct gateway_family family = { "abx_gateway_", each, in->n_gateways, true };

    if (!each)
        return err_oom(err);
    for (size_t i = 0; i < in->n_gateways; i++) {
        read_block(in->gateways + i * COUNTERS_BLOCK, &each[i], sizeof(each[i]));
        add_up(&sum, &each[i]);
    }
    head(&t, "abx_", "info", "gauge", "The service.");
    put(&t, "abx_info{release=\"%s\",instance=\"%s\"} 1\n", in->release, in->instance);
    put_gateways(&t, &family);
    family = (struct gateway_family){ "abx_", &sum, 1, false };
    put_gateways(&t, &family);
    free(each);
    put_control(&t, in);
    put_egress(&t, in);
    put_engine(&t, in);
    return t.is_bad ? err_set(err, ABX_RESOURCE_EXHAUSTED, "the metrics do not fit into memory")
                    : 0;
}
