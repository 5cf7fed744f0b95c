/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/relaunch: what an ending means, the exit status that is passed on, and how crashes
 * are counted. Pure.
 */
#include "base/prelude.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/relaunch.h"

#define EXITED(code) ((code) << 8)
#define KILLED(sig)  (sig)
#define CORE         0x80

static const struct {
    const char *what;
    struct hf_ending e;
    enum hf_outcome outcome;
    int status;
} ends[] = {
    {"exit 0", {.has_status = true}, HF_OUTCOME_FINISHED, 0},
    {"exit 0, said done", {.has_status = true, .done = true}, HF_OUTCOME_FINISHED, 0},
    {"done, then a failing exit",
     {.has_status = true, .status = EXITED(3), .done = true},
     HF_OUTCOME_FINISHED,
     3},
    {"done, then killed",
     {.has_status = true, .status = KILLED(SIGKILL), .done = true},
     HF_OUTCOME_FINISHED,
     137},
    {"done, no status", {.done = true}, HF_OUTCOME_FINISHED, 0},
    {"done on a notice",
     {.has_status = true, .done = true, .notice = true},
     HF_OUTCOME_FINISHED,
     0},
    {"exit 1", {.has_status = true, .status = EXITED(1)}, HF_OUTCOME_FAILED, 1},
    {"exit 255", {.has_status = true, .status = EXITED(255)}, HF_OUTCOME_FAILED, 255},
    {"segmentation fault",
     {.has_status = true, .status = KILLED(SIGSEGV) | CORE},
     HF_OUTCOME_FAILED,
     139},
    {"killed", {.has_status = true, .status = KILLED(SIGKILL)}, HF_OUTCOME_FAILED, 137},
    {"terminated", {.has_status = true, .status = KILLED(SIGTERM)}, HF_OUTCOME_FAILED, 143},
    {"exit 75: start me again",
     {.has_status = true, .status = EXITED(75)},
     HF_OUTCOME_PREEMPTED,
     75},
    {"exit 0 on a notice", {.has_status = true, .notice = true}, HF_OUTCOME_PREEMPTED, 75},
    {"exit 1 on a notice",
     {.has_status = true, .status = EXITED(1), .notice = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"killed on a notice",
     {.has_status = true, .status = KILLED(SIGKILL), .notice = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"A14: preempted after half a minute: no rule asks how long it ran",
     {.has_status = true, .status = KILLED(SIGKILL), .notice = true, .forced = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"A14: the same with a checkpoint",
     {.has_status = true, .notice = true, .beyond_start = true, .progressed = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"Q5: exit 0 on a notice, no done-mark",
     {.has_status = true, .notice = true, .beyond_start = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"exit 0, and a notice after it",
     {.has_status = true, .notice = true, .in_peace = true},
     HF_OUTCOME_FINISHED,
     0},
    {"exit 0 soon after Ctrl-C",
     {.has_status = true, .interrupted = true, .in_peace = true},
     HF_OUTCOME_STOPPED,
     0},
    {"hung, killed",
     {.has_status = true, .status = KILLED(SIGKILL), .hung = true, .forced = true},
     HF_OUTCOME_HUNG,
     137},
    {"hung, left with 75",
     {.has_status = true, .status = EXITED(75), .hung = true},
     HF_OUTCOME_HUNG,
     75},
    {"hung, exit 0 is no success", {.has_status = true, .hung = true}, HF_OUTCOME_HUNG, 137},
    {"hung, then a notice",
     {.has_status = true, .status = KILLED(SIGKILL), .hung = true, .notice = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"hung, then said done",
     {.has_status = true, .hung = true, .done = true},
     HF_OUTCOME_FINISHED,
     0},
    {"no status on a notice", {.notice = true}, HF_OUTCOME_PREEMPTED, 75},
    {"notice before the start", {.notice = true, .not_started = true}, HF_OUTCOME_PREEMPTED, 75},
    {"interrupted, exit 0", {.has_status = true, .interrupted = true}, HF_OUTCOME_STOPPED, 0},
    {"interrupted, exit 1",
     {.has_status = true, .status = EXITED(1), .interrupted = true},
     HF_OUTCOME_STOPPED,
     1},
    {"interrupted, by the signal",
     {.has_status = true, .status = KILLED(SIGINT), .interrupted = true},
     HF_OUTCOME_STOPPED,
     130},
    {"interrupted, no status", {.interrupted = true}, HF_OUTCOME_STOPPED, 130},
    {"interrupted before the start",
     {.interrupted = true, .not_started = true},
     HF_OUTCOME_STOPPED,
     130},
    {"interrupted on a notice",
     {.has_status = true, .interrupted = true, .notice = true},
     HF_OUTCOME_PREEMPTED,
     75},
    {"interrupted when done",
     {.has_status = true, .interrupted = true, .done = true},
     HF_OUTCOME_FINISHED,
     0},
    {"keeper killed", {.has_status = false}, HF_OUTCOME_VANISHED, 125},
    {"superseded", {.superseded = true}, HF_OUTCOME_SUPERSEDED, 125},
    {"superseded beats everything",
     {.has_status = true, .superseded = true, .done = true, .notice = true, .exec_errno = 2},
     HF_OUTCOME_SUPERSEDED,
     125},
    {"no such command", {.exec_errno = ENOENT}, HF_OUTCOME_NOT_STARTED, 127},
    {"not executable", {.exec_errno = EACCES}, HF_OUTCOME_NOT_STARTED, 126},
    {"not a program", {.exec_errno = ENOEXEC}, HF_OUTCOME_NOT_STARTED, 126},
    {"no such command, on a notice",
     {.exec_errno = ENOENT, .notice = true},
     HF_OUTCOME_NOT_STARTED,
     127},
    {"the restore failed", {.not_started = true}, HF_OUTCOME_NOT_STARTED, 125},
};

static void endings(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(ends); i++) {
        enum hf_outcome o = hf_outcome_of(&ends[i].e);
        int status = hf_exit_status_of(&ends[i].e, o);
        if (o != ends[i].outcome || status != ends[i].status) {
            fail_msg("%s: %s, %d", ends[i].what, hf_outcome_name(o), status);
        }
    }
}

static void names(void **state)
{
    (void)state;
    for (int o = HF_OUTCOME_FINISHED; o <= HF_OUTCOME_NOT_STARTED; o++) {
        assert_string_not_equal(hf_outcome_name((enum hf_outcome)o), "unknown");
        for (int other = HF_OUTCOME_FINISHED; other < o; other++) {
            assert_string_not_equal(hf_outcome_name((enum hf_outcome)o),
                                    hf_outcome_name((enum hf_outcome)other));
        }
    }
    assert_string_equal(hf_outcome_name((enum hf_outcome)0), "unknown");
    assert_string_equal(hf_outcome_name((enum hf_outcome)99), "unknown");
}

static const struct hf_ending crash = {.has_status = true, .status = EXITED(1)};

/* What each outcome leads to when the attempt got beyond its start and crashes are left. */
static void decisions(void **state)
{
    (void)state;
    static const struct {
        enum hf_outcome o;
        bool again, close;
        enum hf_claim_kind kind;
    } rows[] = {
        {HF_OUTCOME_FINISHED, false, true, HF_CLAIM_FINISHED},
        {HF_OUTCOME_STOPPED, false, true, HF_CLAIM_STOPPED},
        {HF_OUTCOME_FAILED, true, false, HF_CLAIM_RUN},
        {HF_OUTCOME_VANISHED, true, false, HF_CLAIM_RUN},
        {HF_OUTCOME_PREEMPTED, false, false, HF_CLAIM_RUN},
        {HF_OUTCOME_SUPERSEDED, false, false, HF_CLAIM_RUN},
        {HF_OUTCOME_NOT_STARTED, false, false, HF_CLAIM_RUN},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        for (int beyond = 0; beyond < 2; beyond++) {
            struct hf_ending e = crash;
            e.beyond_start = beyond == 1;
            uint32_t crashes = 1;
            struct hf_next next = hf_relaunch_decide(&e, rows[i].o, 3, 0, &crashes);
            bool again = rows[i].again && e.beyond_start;
            if (next.again != again || next.close != rows[i].close ||
                (next.close && next.kind != rows[i].kind)) {
                fail_msg("%s: again %d, close %d", hf_outcome_name(rows[i].o), next.again,
                         next.close);
            }
            assert_int_equal(next.exit_status, hf_exit_status_of(&e, rows[i].o));
            assert_int_equal(crashes, again ? 2 : 1);
        }
    }
}

/* Each letter is one attempt: c crashes without progress, p with progress, n is preempted, s
 * crashes before its start. '+' was started again, '-' was not. */
static void crash_budget(void **state)
{
    (void)state;
    static const struct {
        uint32_t max;
        const char *attempts, *again;
    } rows[] = {
        {3, "cccc", "+++-"},   {3, "cccpcccc", "+++++++-"},   {0, "c", "-"},
        {0, "p", "-"},         {1, "pppppp", "++++++"},       {1, "pcc", "++-"},
        {3, "ccncc", "++-+-"}, {3, "cnnnnnncc", "+------++"}, {3, "s", "-"},
        {3, "cscc", "+-++"},   {2, "pccc", "+++-"},           {2, "ccpc", "++++"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        uint32_t crashes = 0;
        for (size_t k = 0; rows[i].attempts[k] != '\0'; k++) {
            char kind = rows[i].attempts[k];
            struct hf_ending e = crash;
            e.beyond_start = kind != 's';
            e.progressed = kind == 'p';
            e.notice = kind == 'n';
            uint32_t before = crashes;
            struct hf_next next =
                hf_relaunch_decide(&e, hf_outcome_of(&e), rows[i].max, 5, &crashes);
            if (next.again != (rows[i].again[k] == '+')) {
                fail_msg("row %zu, attempt %zu: %d", i, k, next.again);
            }
            assert_true(next.again || next.exit_status == (kind == 'n' ? 75 : 1));
            assert_true(kind != 'n' || crashes == before);
        }
    }
}

/* One second, then twice as long each time, up to a minute; the upper half of it by chance. */
static void delays(void **state)
{
    (void)state;
    struct hf_ending e = crash;
    e.beyond_start = true;
    uint32_t full = 1000;
    for (uint32_t n = 0; n < 12; n++) {
        uint32_t least = UINT32_MAX;
        uint32_t most = 0;
        for (uint64_t random = 0; random < 70000; random += 7) {
            uint32_t crashes = n;
            struct hf_next next =
                hf_relaunch_decide(&e, HF_OUTCOME_FAILED, UINT32_MAX, random, &crashes);
            assert_true(next.again);
            least = next.delay_ms < least ? next.delay_ms : least;
            most = next.delay_ms > most ? next.delay_ms : most;
        }
        assert_int_equal(least, full / 2);
        assert_true(most <= full && most > full - 20);
        uint32_t crashes = n;
        struct hf_next next =
            hf_relaunch_decide(&e, HF_OUTCOME_FAILED, UINT32_MAX, UINT64_MAX, &crashes);
        assert_true(next.delay_ms >= full / 2 && next.delay_ms <= full);
        full = full * 2 > 60000 || n >= 5 ? 60000 : full * 2;
    }
}

static void says_how_it_ended(void **state)
{
    (void)state;
    static const struct {
        struct hf_ending e;
        const char *words;
    } cases[] = {
        {{.has_status = true}, "exited with 0"},
        {{.has_status = true, .status = EXITED(3)}, "exited with 3"},
        {{.has_status = true, .status = EXITED(3), .forced = true},
         "exited with 3, after SIGKILL to what it had left"},
        {{.has_status = true, .status = KILLED(SIGKILL)}, "killed by signal 9 (SIGKILL)"},
        {{.has_status = true, .status = KILLED(SIGTERM)}, "killed by signal 15 (SIGTERM)"},
        {{.has_status = true, .status = KILLED(SIGSEGV) | CORE}, "killed by signal 11 (SIGSEGV)"},
        {{.has_status = true, .status = KILLED(40)}, "killed by signal 40 (SIG?)"},
        {{.has_status = true, .status = KILLED(SIGKILL), .forced = true},
         "killed by holdfast (SIGKILL), as it did not end by itself"},
        {{.exec_errno = ENOENT, .has_status = true, .status = EXITED(127)},
         "could not be executed"},
        {{.not_started = true}, "was not started"},
        {{.notice = true}, "ended without a status"},
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        char out[HF_ENDING_STRLEN];
        assert_string_equal(hf_ending_words(&cases[i].e, out), cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_how_it_ended),
        cmocka_unit_test(endings),
        cmocka_unit_test(names),
        cmocka_unit_test(decisions),
        cmocka_unit_test(crash_budget),
        cmocka_unit_test(delays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
