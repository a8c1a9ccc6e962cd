/* test_metrics_text.c - series of each gateway, their sums, histograms, and what is left out. */
#include "test.h"

#include <stdlib.h>

#include "control/metrics_text.h"

struct blocks {
    _Alignas(8) uint8_t bytes[3 * COUNTERS_BLOCK];
};

static struct gateway_counters *block(struct blocks *b, size_t i)
{
    return (struct gateway_counters *)(void *)(b->bytes + i * COUNTERS_BLOCK);
}

static char *render(const struct metrics_input *in)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(METRICS_TEXT_MAX);
    struct abx_err err = { 0 };

    if (metrics_text(in, &text, &err) != 0)
        fail_msg("%s", err.msg);
    return slice_dup(buf_slice(&text));
}

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("there is no line '%s'", line);
}

static void gateways_are_told_apart_and_added_up(void **state)
{
    struct blocks *b = calloc(1, sizeof(*b));
    struct control_counters control = { 0 };
    const struct metrics_state states[] = { { "starting", 1 }, { "running", 2 } };
    struct metrics_input in = {
        "1.0", "abc", b->bytes, 3, &control, NULL, states, 2, true, 4, 5, 6
    };
    char *text;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        block(b, i)->layout = i < 2 ? COUNTERS_LAYOUT : 77;
        block(b, i)->requests[COUNT_ROUTE_ENVD][COUNT_CLASS_2XX] = 10 + i;
        histogram_add(&block(b, i)->seconds[COUNT_ROUTE_ENVD], INT64_C(700000));
        histogram_add(&block(b, i)->seconds[COUNT_ROUTE_ENVD], INT64_C(61000000000));
        block(b, i)->limited[COUNT_LIMIT_KEY] = 1;
    }
    count_add(&control.creates[0], 8);
    count_add(&control.creates[8], 2);
    text = render(&in);
    assert_line(text, "abx_info{release=\"1.0\",instance=\"abc\"} 1");
    assert_line(text, "abx_gateway_requests_total{process=\"0\",route=\"envd\",class=\"2xx\"} 10");
    assert_line(text, "abx_gateway_requests_total{process=\"1\",route=\"envd\",class=\"2xx\"} 11");
    /* of another release: nothing that could be believed */
    assert_line(text, "abx_gateway_requests_total{process=\"2\",route=\"envd\",class=\"2xx\"} 0");
    assert_line(text, "abx_requests_total{route=\"envd\",class=\"2xx\"} 21");
    assert_line(text, "abx_limited_total{limit=\"key\"} 2");
    assert_line(text, "abx_request_seconds_bucket{route=\"envd\",le=\"0.0005\"} 0");
    assert_line(text, "abx_request_seconds_bucket{route=\"envd\",le=\"0.001\"} 2");
    assert_line(text, "abx_request_seconds_bucket{route=\"envd\",le=\"30\"} 2");
    assert_line(text, "abx_request_seconds_bucket{route=\"envd\",le=\"+Inf\"} 4");
    assert_line(text, "abx_request_seconds_sum{route=\"envd\"} 122.001400");
    assert_line(text, "abx_request_seconds_count{route=\"envd\"} 4");
    assert_line(text, "abx_create_seconds_count 0");
    assert_line(text, "abx_sandboxes{state=\"running\"} 2");
    assert_line(text, "abx_creates_total{result=\"ok\"} 8");
    assert_line(text, "abx_creates_total{result=\"resource_exhausted\"} 2");
    assert_line(text, "abx_engine_slots_ready 6");
    free(text);
    free(b);
}

static void egress_counts_unless_it_is_of_another_release(void **state)
{
    struct control_counters control = { 0 };
    struct egress_counters egress = { .layout = COUNTERS_LAYOUT, .connections = 3 };
    struct metrics_input in = {
        .release = "1", .instance = "i", .control = &control, .egress = &egress
    };
    char *text;

    (void)state;
    egress.denied[COUNT_DENIED_NAMES] = 4;
    egress.questions[COUNT_QUESTION_ANSWERED] = 5;
    egress.bytes_in = 6;
    text = render(&in);
    assert_line(text, "abx_egress_connections 3");
    assert_line(text, "abx_egress_denied_total{kind=\"name\"} 4");
    assert_line(text, "abx_egress_denied_total{kind=\"datagram\"} 0");
    assert_line(text, "abx_egress_dns_questions_total{result=\"answered\"} 5");
    assert_line(text, "abx_egress_bytes_total{direction=\"in\"} 6");
    assert_line(text, "abx_egress_bytes_total{direction=\"out\"} 0");
    free(text);
    egress.layout++;
    text = render(&in);
    assert_line(text, "abx_egress_connections 0");
    assert_line(text, "abx_egress_bytes_total{direction=\"in\"} 0");
    free(text);
}

static void what_an_absent_engine_would_say_is_left_out(void **state)
{
    struct control_counters control = { 0 };
    struct metrics_input in = { .release = "1", .instance = "i", .control = &control };
    char *text = render(&in);

    (void)state;
    assert_line(text, "abx_engine_up 0");
    assert_null(strstr(text, "abx_engine_sandboxes"));
    assert_null(strstr(text, "abx_gateway_connections{"));
    assert_line(text, "abx_connections 0");
    free(text);
}

static void too_little_room_is_an_error(void **state)
{
    struct control_counters control = { 0 };
    struct metrics_input in = { .release = "1", .instance = "i", .control = &control };

    (void)state;
    for (size_t limit = 0; limit < 2000; limit += 100) {
        _cleanup_(buf_done) struct buf text = BUF_INIT(limit);

        assert_int_equal(metrics_text(&in, &text, NULL), ABX_RESOURCE_EXHAUSTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gateways_are_told_apart_and_added_up),
        cmocka_unit_test(egress_counts_unless_it_is_of_another_release),
        cmocka_unit_test(what_an_absent_engine_would_say_is_left_out),
        cmocka_unit_test(too_little_room_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
