/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank agreement: the supervisor's rules alone, as tables, and the words. Every interleaving with
 * the ranks' half is in test_interleave.c.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "hooks/agree.h"
#include "hooks/c/agree_step.h"

#define RANKS 3
#define ID    7

/* --- the rules alone ------------------------------------------------------ */

static struct hf_agree_rank rank_at(uint32_t rank, int64_t step)
{
    return (struct hf_agree_rank){
        .rank = rank, .alive = true, .connected = true, .step = step, .last = -1};
}

struct decide_row {
    const char *name;
    int64_t steps[RANKS];
    uint32_t world;
    bool hold;     /* all hold at steps[0] */
    bool unfenced; /* no barrier could be had */
    int64_t last;  /* of rank 1; 0: unknown */
    int odd;       /* 1: rank 1 done, 2: rank 1 dead */
    uint64_t deadline_ns, step_ns;
    int64_t target; /* -1: cancelled */
    const char *why;
};

static const struct decide_row decide_rows[] = {
    {"highest + 1", {4, 6, 5}, 3, .target = 7},
    {"without a fence + 2", {4, 6, 5}, 3, .unfenced = true, .target = 8},
    {"all hold at one step", {6, 6, 6}, 3, .hold = true, .target = 6},
    {"held, without a fence", {6, 6, 6}, 3, .hold = true, .unfenced = true, .target = 6},
    {"held at different steps", {6, 6, 5}, 3, .hold = true, .target = 7},
    {"one rank has not begun", {-1, 3, 3}, 3, .target = 4},
    {"nobody has begun", {-1, -1, -1}, 3, .target = -1, .why = "no rank has finished a step"},
    {"one rank is missing", {1, 1, 1}, 4, .target = -1, .why = "only 3 of 4 ranks"},
    {"worlds differ", {1, 1, 1}, 0, .target = -1, .why = "disagree"},
    {"one is done", {1, 1, 1}, 3, .odd = 1, .target = -1, .why = "rank 1 has finished"},
    {"one is dead", {1, 1, 1}, 3, .odd = 2, .target = -1, .why = "rank 1 has exited"},
    {"the last step is next", {8, 8, 8}, 3, .last = 9, .target = 9},
    {"beyond the last step", {9, 9, 9}, 3, .last = 9, .target = -1, .why = "the last one is 9"},
    {"held at the last step", {9, 9, 9}, 3, .hold = true, .last = 9, .target = 9},
    {"spread fits", {1, 3, 3}, 3, .deadline_ns = 1000, .step_ns = 400, .target = 4},
    {"spread too wide",
     {1, 9, 3},
     3,
     .deadline_ns = 1000,
     .step_ns = 200,
     .target = -1,
     .why = "8 steps behind"},
    {"spread, time unknown", {1, 9, 3}, 3, .deadline_ns = 1000, .target = 10},
    {"spread, no deadline", {1, 9, 3}, 3, .step_ns = 1000, .target = 10},
    {"step near the bound",
     {HFW_STEP_MAX, HFW_STEP_MAX, HFW_STEP_MAX},
     3,
     .target = -1,
     .why = "too high"},
};

static void test_decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(decide_rows); i++) {
        const struct decide_row *row = &decide_rows[i];
        struct hf_agree_rank ranks[RANKS];
        for (uint32_t r = 0; r < RANKS; r++) {
            ranks[r] = rank_at(r, row->steps[r]);
            ranks[r].hold = row->hold ? hfw_pack(HFW_RAISED, ID, row->steps[r]) : 0;
        }
        ranks[1].last = row->last ? row->last : -1;
        ranks[1].done = row->odd == 1;
        ranks[1].alive = row->odd != 2;
        struct hf_agree_view view = {.ranks = ranks,
                                     .n_ranks = RANKS,
                                     .world = row->world,
                                     .deadline_ns = row->deadline_ns,
                                     .step_ns = row->step_ns,
                                     .fenced = !row->unfenced};
        struct hf_err err = {0};
        int64_t target = -1;
        enum hf_rc rc = hf_agree_decide(&view, ID, &target, &err);
        if (target != row->target || (rc == HF_OK) != (row->target >= 0) ||
            (row->why && !strstr(err.msg, row->why))) {
            fail_msg("%s: target %lld, '%s'", row->name, (long long)target, err.msg);
        }
    }
}

static void test_hold_of_another_request(void **state)
{
    (void)state;
    struct hf_agree_rank rank = rank_at(0, 6);
    rank.hold = hfw_pack(HFW_RAISED, ID - 1, 6);
    struct hf_agree_view view = {.ranks = &rank, .n_ranks = 1, .world = 1, .fenced = true};
    int64_t target = -1;
    assert_int_equal(hf_agree_decide(&view, ID, &target, NULL), HF_OK);
    assert_int_equal(target, 7);
}

struct watch_row {
    const char *name;
    int64_t step; /* of rank 1; the target is 5 */
    bool saved, named, dead, gone, done, gave_up, late;
    enum hf_rc rc;
    const char *why;
};

static const struct watch_row watch_rows[] = {
    {"on its way", 4, .rc = HF_EAGAIN},
    {"at the target, saving", 5, .rc = HF_EAGAIN},
    {"saved and named", 5, .saved = true, .named = true, .rc = HF_OK},
    {"and went on", 6, .saved = true, .named = true, .rc = HF_OK},
    {"and finished", 6, .saved = true, .named = true, .done = true, .dead = true, .rc = HF_OK},
    {"message on its way", 6, .saved = true, .rc = HF_EAGAIN},
    {"dead, message on its way", 5, .saved = true, .dead = true, .rc = HF_EAGAIN},
    {"dead, no message", 5, .saved = true, .dead = true, .gone = true, .rc = HF_ECANCELED,
     .why = "rank 1 exited"},
    {"dead", 4, .dead = true, .rc = HF_ECANCELED, .why = "rank 1 exited before"},
    {"connection lost, alive", 4, .gone = true, .rc = HF_EAGAIN},
    {"done before", 4, .done = true, .rc = HF_ECANCELED, .why = "rank 1 finished"},
    {"went past", 6, .rc = HF_ECANCELED, .why = "went on past step 5"},
    {"stopped waiting", 4, .gave_up = true, .rc = HF_ECANCELED, .why = "stopped waiting"},
    {"late", 4, .late = true, .rc = HF_ETIMEOUT, .why = "1 of 2 ranks"},
    {"late but complete", 5, .saved = true, .named = true, .late = true, .rc = HF_OK},
};

static void test_watch(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(watch_rows); i++) {
        const struct watch_row *row = &watch_rows[i];
        struct hf_agree_rank ranks[2] = {rank_at(0, 6), rank_at(1, row->step)};
        ranks[0].saved = hfw_pack(HFW_TARGET, ID, 5);
        ranks[0].named_files = true;
        ranks[1].saved = row->saved ? ranks[0].saved : hfw_pack(HFW_TARGET, ID - 1, 5);
        ranks[1].named_files = row->named;
        ranks[1].alive = !row->dead;
        ranks[1].connected = !row->gone;
        ranks[1].done = row->done;
        ranks[1].gave_up = row->gave_up ? ID : ID - 1;
        struct hf_agree_view view = {
            .ranks = ranks, .n_ranks = 2, .world = 2, .now_ns = 10, .deadline_ns = 11};
        view.now_ns += row->late;
        struct hf_err err = {0};
        enum hf_rc rc = hf_agree_watch(&view, ID, 5, &err);
        if (rc != row->rc || (row->why && !strstr(err.msg, row->why))) {
            fail_msg("%s: %s, '%s'", row->name, hf_rc_name(rc), err.msg);
        }
    }
}

static void test_words(void **state)
{
    (void)state;
    uint64_t word = hfw_pack(HFW_LEAVE, 0xffff, HFW_STEP_MAX);
    assert_int_equal(hfw_state(word), HFW_LEAVE);
    assert_int_equal(hfw_id(word), 0xffff);
    assert_int_equal(hfw_step(word), HFW_STEP_MAX);
    assert_int_equal(hfw_id(hfw_pack(HFW_IDLE, 0x10001, 3)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_decide),
        cmocka_unit_test(test_hold_of_another_request),
        cmocka_unit_test(test_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
