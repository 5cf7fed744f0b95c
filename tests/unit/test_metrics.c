/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics' text and sums: every family once, what is not known left out, labels escaped, and
 * each event counted where it belongs. The file and the format as a whole are tests/e2e's part.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "supervisor/metrics.h"

static char *text_of(const struct hf_metrics_view *v)
{
    struct hf_buf out;
    hf_buf_init(&out, 65536);
    assert_int_equal(hf_metrics_text(v, &out, NULL), HF_OK);
    char *text = hf_strdup(hf_buf_str(&out));
    hf_buf_release(&out);
    return text;
}

static void has(const char *text, const char *line)
{
    HF_CLEANUP(hf_freep) char *whole = hf_asprintf("\n%s\n", line);
    if (strstr(text, whole) == NULL) {
        fail_msg("no line '%s' in:%s", line, text);
    }
}

static void has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("'%s' is in: %s", part, text);
    }
}

static void test_unknown_is_left_out(void **state)
{
    (void)state;
    struct hf_metrics_view v = {.run = "r",
                                .store_kind = "local",
                                .state = HF_JOB_PREPARING,
                                .step = -1,
                                .save_age_ms = -1,
                                .store_silent_ms = -1};
    HF_CLEANUP(hf_freep) char *text = text_of(&v);
    has(text, "holdfast_up{run=\"r\"} 0");
    has(text, "holdfast_state{run=\"r\",state=\"preparing\"} 1");
    has(text, "holdfast_state{run=\"r\",state=\"running\"} 0");
    has(text, "holdfast_run_info{run=\"r\",store_kind=\"local\",provider=\"none\"} 1");
    has(text, "holdfast_saves_total{run=\"r\",verdict=\"durable\"} 0");
    has_not(text, "_step");
    has_not(text, "checkpoint_");
    has_not(text, "metadata_");
    has_not(text, "timestamp_seconds");
    has_not(text, "store_silent");
    has_not(text, "protected");
}

static void test_all(void **state)
{
    (void)state;
    struct hf_verdict save = {.kind = HF_VERDICT_DURABLE,
                              .step = 100,
                              .attempt = 2,
                              .number = 7,
                              .bytes = 12345,
                              .took_ms = 1050,
                              .at_wall_ms = 1700000000250};
    /* B6: one number for each kind of answer. */
    struct hf_watch_status watch = {.health = HF_WATCH_BLIND,
                                    .not_found = 9,
                                    .told = 1,
                                    .tokens = 2,
                                    .server_errors = 3,
                                    .timeouts = 4,
                                    .refused = 5,
                                    .unauthorized = 6,
                                    .others = 7};
    struct hf_metrics_view v = {.run = "r",
                                .provider = "a\"w\\s\n",
                                .store_kind = "durable",
                                .up = true,
                                .state = HF_JOB_RUNNING,
                                .since_wall_ms = 1699999999999,
                                .attempt = 2,
                                .step = 120,
                                .step_wall_ms = 1700000001000,
                                .save = &save,
                                .save_age_ms = 5,
                                .deadline_wall_ms = 1700000100000,
                                .protected_known = true,
                                .is_protected = true,
                                .watch = &watch,
                                .events_dropped = 3,
                                .log_dropped = 77,
                                .log_not_stored = 78};
    HF_CLEANUP(hf_freep) char *text = text_of(&v);
    static const char *const lines[] = {
        "holdfast_up{run=\"r\"} 1",
        "holdfast_run_info{run=\"r\",store_kind=\"durable\",provider=\"a\\\"w\\\\s\\n\"} 1",
        "holdfast_state_since_timestamp_seconds{run=\"r\"} 1699999999.999",
        "holdfast_attempt{run=\"r\"} 2",
        "holdfast_step{run=\"r\"} 120",
        "holdfast_checkpoint_size_bytes{run=\"r\"} 12345",
        "holdfast_checkpoint_step{run=\"r\"} 100",
        "holdfast_checkpoint_duration_seconds{run=\"r\"} 1.050",
        "holdfast_checkpoint_age_seconds{run=\"r\"} 0.005",
        "holdfast_checkpoint_last_success_timestamp_seconds{run=\"r\"} 1700000000.250",
        "holdfast_notice_standing{run=\"r\"} 1",
        "holdfast_metadata_watch{run=\"r\",health=\"blind\"} 1",
        "holdfast_metadata_watch{run=\"r\",health=\"seeing\"} 0",
        "holdfast_metadata_requests_total{run=\"r\",result=\"404\"} 9",
        "holdfast_metadata_requests_total{run=\"r\",result=\"200\"} 1",
        "holdfast_metadata_requests_total{run=\"r\",result=\"token\"} 2",
        "holdfast_metadata_requests_total{run=\"r\",result=\"5xx\"} 3",
        "holdfast_metadata_requests_total{run=\"r\",result=\"timeout\"} 4",
        "holdfast_metadata_requests_total{run=\"r\",result=\"refused\"} 5",
        "holdfast_metadata_requests_total{run=\"r\",result=\"401\"} 6",
        "holdfast_metadata_requests_total{run=\"r\",result=\"other\"} 7",
        "holdfast_store_silent_seconds{run=\"r\"} 0.000",
        "holdfast_protected{run=\"r\"} 1",
        "holdfast_events_dropped_total{run=\"r\"} 3",
        "holdfast_log_dropped_bytes{run=\"r\"} 77",
        "holdfast_log_not_stored_bytes{run=\"r\"} 78",
    };
    for (size_t i = 0; i < HF_COUNT(lines); i++) {
        has(text, lines[i]);
    }
}

static void test_stale_save_has_no_age(void **state)
{
    (void)state;
    struct hf_verdict save = {
        .kind = HF_VERDICT_STALE, .step = 90, .attempt = 1, .bytes = 5, .at_wall_ms = 1};
    struct hf_metrics_view v = {.run = "r", .store_kind = "local", .save = &save, .step = -1};
    HF_CLEANUP(hf_freep) char *text = text_of(&v);
    has(text, "holdfast_checkpoint_step{run=\"r\"} 90");
    has_not(text, "checkpoint_age");
    has_not(text, "last_success");
}

static void test_text_that_is_too_long(void **state)
{
    (void)state;
    struct hf_metrics_view v = {.run = "r", .store_kind = "local"};
    struct hf_buf out;
    struct hf_err err = {0};
    hf_buf_init(&out, 100);
    assert_int_equal(hf_metrics_text(&v, &out, &err), HF_EFULL);
    hf_buf_release(&out);
}

static bool count(struct hf_metrics_sums *sums, const char *event, const char *json)
{
    cJSON *obj = NULL;
    assert_int_equal(hf_json_parse((struct hf_span){json, strlen(json)}, 1000, &obj, NULL), HF_OK);
    bool soon = hf_metrics_count(sums, event, obj);
    hf_json_free(obj);
    return soon;
}

static void test_counting(void **state)
{
    (void)state;
    struct hf_metrics_sums s = {.restarts = 0};
    assert_true(count(&s, "verdict", "{\"kind\":\"durable\",\"bytes_sent\":70}"));
    assert_true(count(&s, "verdict", "{\"kind\":\"durable\",\"bytes_sent\":7}"));
    assert_true(count(&s, "verdict", "{\"kind\":\"lost\",\"bytes_sent\":-1}"));
    assert_true(count(&s, "verdict", "{}"));
    assert_true(s.saves[HF_VERDICT_DURABLE] == 2 && s.saves[HF_VERDICT_LOST] == 1);
    assert_int_equal(s.saves[HF_VERDICT_STALE] + s.saves[HF_VERDICT_LOCAL], 0);
    assert_int_equal(s.sent_bytes, 77);
    assert_false(count(&s, "save-skipped", "{}"));
    assert_true(count(&s, "relaunch", "{}"));
    assert_false(count(&s, "straggler", "{}"));
    assert_false(count(&s, "saved", "{}"));
    assert_true(count(&s, "watch", "{\"health\":\"blind\"}"));
    assert_true(s.saves_skipped == 1 && s.restarts == 1 && s.stragglers == 1);
    static const char *const sources[] = {"a", "b", "a", "c", "d", "e", "f", "g", "h", "i", "a"};
    for (size_t i = 0; i < HF_COUNT(sources); i++) {
        HF_CLEANUP(hf_freep) char *json = hf_asprintf("{\"source\":\"%s\"}", sources[i]);
        assert_true(count(&s, "notice", json));
    }
    assert_string_equal(s.notices[0].source, "a");
    assert_int_equal(s.notices[0].n, 3);
    assert_string_equal(s.notices[HF_METRICS_SOURCES - 1].source, "other");
    assert_int_equal(s.notices[HF_METRICS_SOURCES - 1].n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_is_left_out),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_stale_save_has_no_age),
        cmocka_unit_test(test_text_that_is_too_long),
        cmocka_unit_test(test_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
