/* SPDX-License-Identifier: Apache-2.0
 *
 * Status: what may be said for each combination of a word in status.json and what is seen now. A
 * state is repeated only while somebody can vouch for it; all else is unknown, with since when.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "supervisor/status_read.h"

#define WROTE_BOOT 5000000
#define WROTE      "2026-01-02T03:04:05.000Z"

static int64_t wrote_ms(void)
{
    int64_t ms = 0;
    assert_int_equal(hf_utc_parse(WROTE, &ms, NULL), HF_OK);
    return ms;
}

static cJSON *word(const char *state)
{
    cJSON *obj = hf_json_obj();
    cJSON *ranks = hf_json_obj();
    hf_json_add_str(obj, "state", state);
    hf_json_add_str(obj, "since", "2026-01-02T03:00:00.000Z");
    hf_json_add_str(obj, "outcome", strcmp(state, "ended") == 0 ? "preempted" : NULL);
    hf_json_add_null(obj, "exit_status");
    hf_json_add_int(ranks, "step", 120);
    hf_json_add_str(ranks, "step_at", "2026-01-02T03:04:04.600Z");
    hf_json_add(obj, "ranks", ranks);
    hf_json_add_str(obj, "heartbeat", "2026-01-02T03:04:02.000Z");
    hf_json_add_str(obj, "updated", WROTE);
    hf_json_add_int(obj, "updated_boot_ms", WROTE_BOOT);
    return obj;
}

static bool has_evidence(const cJSON *obj, const char *part)
{
    const cJSON *list = hf_json_opt(obj, "evidence");
    for (const cJSON *e = list->child; e != NULL; e = e->next) {
        if (strstr(hf_json_opt_str(e, "what", ""), part) != NULL) {
            assert_non_null(hf_json_opt_str(e, "at", NULL));
            assert_non_null(hf_json_opt(e, "at_age_s"));
            return true;
        }
    }
    return false;
}

/* Rows: the word, what is seen, after how many ms of CLOCK_BOOTTIME and of the wall clock. */
static void test_judge(void **state)
{
    (void)state;
    enum { NO = HF_SEEN_NOT_LOOKED, ALIVE = HF_SEEN_ALIVE, GONE = HF_SEEN_GONE };
    static const struct {
        const char *word;
        bool locked, same_boot;
        int supervisor, keeper;
        int64_t boot_ms, wall_ms;
        const char *state, *since, *evidence;
    } rows[] = {
        {"running", true, true, ALIVE, ALIVE, 400, 400, "running", "2026-01-02T03:00:00.000Z",
         "step 120 told by the trainer"},
        {"running", true, true, ALIVE, ALIVE, 400, 400, "running", NULL, "keeper pid 77 is alive"},
        {"running", true, true, ALIVE, ALIVE, 400, 400, "running", NULL, "heartbeat acknowledged"},
        {"running", false, true, GONE, ALIVE, 900, 900, "unknown", WROTE,
         "goes on without a supervisor"},
        {"running", false, true, GONE, GONE, 900, 900, "unknown", WROTE, "pid 77 is gone"},
        {"running", false, true, GONE, GONE, 900, 900, "unknown", WROTE,
         "no supervisor lives here"},
        {"running", false, false, NO, NO, 900, 900, "unknown", WROTE, "started anew"},
        /* The lock is held, and nothing is written any more: it hangs, or is stopped. */
        {"running", true, true, ALIVE, ALIVE, 30001, 30001, "unknown", WROTE,
         "holds the run's lock"},
        {"running", true, true, ALIVE, ALIVE, 29000, 29000, "running", NULL,
         "holds the run's lock"},
        /* The wall clock stepped an hour, either way: nothing is older or younger for it. */
        {"running", true, true, ALIVE, ALIVE, 500, 3600500, "running", NULL, "told by the trainer"},
        {"running", true, true, ALIVE, ALIVE, 500, -3599500, "running", NULL,
         "told by the trainer"},
        {"running", true, true, ALIVE, ALIVE, 40000, -3560000, "unknown", WROTE, "lock"},
        /* M5: a start that takes long is a start, not a preemption. */
        {"preparing", true, true, ALIVE, NO, 1500, 1500, "preparing", "2026-01-02T03:00:00.000Z",
         "lock"},
        {"ended", false, true, GONE, GONE, 999999, 999999, "ended", "2026-01-02T03:00:00.000Z",
         "status written"},
        {"ended", true, true, ALIVE, GONE, 10, 10, "ended", NULL, "lock"},
        {"ended", true, true, GONE, GONE, 9999, 9999, "preparing", "", "holds the run's lock"},
        {"ended", true, true, NO, NO, 9999, 9999, "preparing", "", "holds the run's lock"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        cJSON *obj = word(rows[i].word);
        struct hf_status_seen seen = {.locked = rows[i].locked,
                                      .same_boot = rows[i].same_boot,
                                      .boot_ms = (uint64_t)(WROTE_BOOT + rows[i].boot_ms),
                                      .wall_ms = wrote_ms() + rows[i].wall_ms,
                                      .supervisor = (enum hf_seen)rows[i].supervisor,
                                      .keeper = (enum hf_seen)rows[i].keeper,
                                      .keeper_pid = 77};
        hf_status_judge(obj, &seen);
        const char *since = hf_json_opt_str(obj, "since", "");
        bool as_told = rows[i].since == NULL || strcmp(since, rows[i].since) == 0;
        if (strcmp(hf_json_opt_str(obj, "state", ""), rows[i].state) != 0 || !as_told ||
            !has_evidence(obj, rows[i].evidence)) {
            char *text = hf_json_print(obj);
            fail_msg("row %zu: %s", i, text);
        }
        assert_string_equal(hf_json_opt_str(obj, "last_state", ""), rows[i].word);
        assert_true(hf_json_opt_bool(obj, "supervised", false) == rows[i].locked);
        if (rows[i].same_boot) {
            assert_int_equal(hf_json_opt_int(obj, "updated_age_s", -1), rows[i].boot_ms / 1000);
            assert_int_equal(hf_json_opt_int(obj, "heartbeat_age_s", -1),
                             (rows[i].boot_ms + 3000) / 1000);
        }
        hf_json_free(obj);
    }
}

static void test_no_word(void **state)
{
    (void)state;
    cJSON *obj = hf_json_obj();
    struct hf_status_seen seen = {.wall_ms = wrote_ms()};
    hf_status_judge(obj, &seen);
    assert_string_equal(hf_json_opt_str(obj, "last_state", ""), "none");
    hf_json_free(obj);
}

static void test_exit_is_kept(void **state)
{
    (void)state;
    cJSON *obj = word("running");
    struct hf_status_seen seen = {.same_boot = true,
                                  .boot_ms = WROTE_BOOT,
                                  .wall_ms = wrote_ms(),
                                  .keeper = HF_SEEN_GONE,
                                  .exit_noted = true};
    hf_status_judge(obj, &seen);
    assert_true(has_evidence(obj, "the command has ended; its exit status is kept"));
    hf_json_free(obj);
}

static void test_ago(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {{0, "0.0 s ago"},    {420, "0.4 s ago"},  {9999, "9.9 s ago"},
                {12345, "12 s ago"}, {59999, "59 s ago"}, {192500, "3m12s ago"},
                {3600000, "1h ago"}, {-30000, "in 30 s"}, {-400, "in 0.4 s"}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char out[HF_AGO_STRLEN];
        assert_string_equal(hf_ago_format(rows[i].ms, out), rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_no_word),
        cmocka_unit_test(test_exit_is_kept),
        cmocka_unit_test(test_ago),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
