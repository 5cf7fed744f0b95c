/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/job: walks the machine's table. The actions are not called: what they do is tested
 * end to end.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/job.h"

static enum hf_job_state target(int state, int event)
{
    return hf_job_edges[state][event].to;
}

/* Marks every state that can be reached from `from`, itself included. */
static void reach(int from, bool seen[HF_JOB_STATES])
{
    if (seen[from]) {
        return;
    }
    seen[from] = true;
    for (int e = 0; e < HF_JOB_EVENTS; e++) {
        if (target(from, e) != HF_JOB_NONE) {
            reach((int)target(from, e), seen);
        }
    }
}

static void all_reachable_and_ending(void **state)
{
    (void)state;
    bool from_start[HF_JOB_STATES] = {false};
    reach(HF_JOB_NONE, from_start);
    for (int s = 0; s < HF_JOB_STATES; s++) {
        const char *name = hf_job_state_name((enum hf_job_state)s);
        bool seen[HF_JOB_STATES] = {false};
        reach(s, seen);
        if (!from_start[s] || !seen[HF_JOB_ENDED]) {
            fail_msg("%s: reached %d, ends %d", name, from_start[s], seen[HF_JOB_ENDED]);
        }
    }
}

static void ended_is_the_end(void **state)
{
    (void)state;
    for (int e = 0; e < HF_JOB_EVENTS; e++) {
        enum hf_job_state to = target(HF_JOB_ENDED, e);
        assert_true(to == HF_JOB_NONE || to == HF_JOB_ENDED);
        assert_null(hf_job_edges[HF_JOB_ENDED][e].act);
    }
}

static void nothing_leads_back_to_none(void **state)
{
    (void)state;
    for (int s = 0; s < HF_JOB_STATES; s++) {
        for (int e = 0; e < HF_JOB_EVENTS; e++) {
            assert_true((int)target(s, e) >= 0 && (int)target(s, e) < HF_JOB_STATES);
            /* No action without an edge. */
            assert_true(target(s, e) != HF_JOB_NONE || hf_job_edges[s][e].act == NULL);
            /* The start happens once, from nothing. */
            assert_int_equal(target(s, e) != HF_JOB_NONE && e == HF_EV_BEGIN,
                             s == HF_JOB_NONE && e == HF_EV_BEGIN);
        }
    }
}

/* From outside, at any time: a state that does not expect them would lose a notice or a person. */
static void outside_events_are_always_taken(void **state)
{
    (void)state;
    static const enum hf_job_event any_time[] = {HF_EV_NOTICE, HF_EV_WITHDRAWN, HF_EV_FORCE};
    for (int s = HF_JOB_PREPARING; s <= HF_JOB_ENDED; s++) {
        for (size_t i = 0; i < HF_COUNT(any_time); i++) {
            if (target(s, (int)any_time[i]) == HF_JOB_NONE) {
                fail_msg("%s has no edge on %s", hf_job_state_name((enum hf_job_state)s),
                         hf_job_event_name(any_time[i]));
            }
        }
    }
}

/* While the command's tree may live, its end and the keeper's death are taken; a person's force
 * always leads to stopping, and a timer that was started while leaving may fire until the end. */
static void while_the_tree_lives(void **state)
{
    (void)state;
    static const enum hf_job_state living[] = {HF_JOB_STARTING, HF_JOB_RUNNING, HF_JOB_LEAVING,
                                               HF_JOB_STOPPING, HF_JOB_DRAINING};
    for (size_t i = 0; i < HF_COUNT(living); i++) {
        assert_int_equal(target(living[i], HF_EV_GONE), HF_JOB_SETTLING);
        assert_int_equal(target(living[i], HF_EV_LOST), HF_JOB_STOPPING);
        assert_int_equal(target(living[i], HF_EV_FORCE), HF_JOB_STOPPING);
        assert_non_null(hf_job_edges[living[i]][HF_EV_FORCE].act);
        assert_non_null(hf_job_edges[living[i]][HF_EV_LOST].act);
    }
    for (int s = HF_JOB_LEAVING; s <= HF_JOB_ENDED; s++) {
        assert_int_not_equal(target(s, HF_EV_OVERTIME), HF_JOB_NONE);
    }
    static const enum hf_job_state may_exit[] = {HF_JOB_RUNNING, HF_JOB_LEAVING, HF_JOB_STOPPING};
    for (size_t i = 0; i < HF_COUNT(may_exit); i++) {
        assert_int_not_equal(target(may_exit[i], HF_EV_EXITED), HF_JOB_NONE);
        assert_non_null(hf_job_edges[may_exit[i]][HF_EV_EXITED].act);
    }
}

/* The tree is settled exactly once: nothing but its end leads there, nothing but "settled" out. */
static void settling_is_a_gate(void **state)
{
    (void)state;
    for (int s = 0; s < HF_JOB_STATES; s++) {
        for (int e = 0; e < HF_JOB_EVENTS; e++) {
            if (s != HF_JOB_SETTLING && target(s, e) == HF_JOB_SETTLING) {
                assert_int_equal(e, HF_EV_GONE);
            }
            if (s == HF_JOB_SETTLING && target(s, e) != HF_JOB_NONE && e != HF_EV_SETTLED) {
                assert_int_equal(target(s, e), HF_JOB_SETTLING);
            }
        }
    }
    assert_int_equal(target(HF_JOB_SETTLING, HF_EV_SETTLED), HF_JOB_PAUSING);
    /* Nothing starts the command again while the tree of the last attempt may live. */
    for (int s = 0; s < HF_JOB_STATES; s++) {
        for (int e = 0; e < HF_JOB_EVENTS; e++) {
            if (target(s, e) == HF_JOB_PREPARING && s != HF_JOB_PREPARING) {
                assert_true(s == HF_JOB_NONE || s == HF_JOB_PAUSING);
            }
        }
    }
}

static void names(void **state)
{
    (void)state;
    for (int s = 0; s < HF_JOB_STATES; s++) {
        const char *name = hf_job_state_name((enum hf_job_state)s);
        assert_non_null(name);
        assert_string_not_equal(name, "unknown");
        for (int other = 0; other < s; other++) {
            assert_string_not_equal(name, hf_job_state_name((enum hf_job_state)other));
        }
    }
    for (int e = 0; e < HF_JOB_EVENTS; e++) {
        const char *name = hf_job_event_name((enum hf_job_event)e);
        assert_non_null(name);
        assert_string_not_equal(name, "unknown");
        for (int other = 0; other < e; other++) {
            assert_string_not_equal(name, hf_job_event_name((enum hf_job_event)other));
        }
    }
    assert_string_equal(hf_job_state_name(HF_JOB_STATES), "unknown");
    assert_string_equal(hf_job_event_name(HF_JOB_EVENTS), "unknown");
    /* Spot checks: the lists stand in the order of the enumerations. */
    assert_string_equal(hf_job_state_name(HF_JOB_LEAVING), "leaving");
    assert_string_equal(hf_job_state_name(HF_JOB_ENDED), "ended");
    assert_string_equal(hf_job_event_name(HF_EV_NOTICE), "notice");
    assert_string_equal(hf_job_event_name(HF_EV_OVER), "over");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reachable_and_ending),
        cmocka_unit_test(ended_is_the_end),
        cmocka_unit_test(nothing_leads_back_to_none),
        cmocka_unit_test(outside_events_are_always_taken),
        cmocka_unit_test(while_the_tree_lives),
        cmocka_unit_test(settling_is_a_gate),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
