/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the supervisor that decide, each against a slow and independent statement of the
 * same rule: standing notices (all short rows of words from all sources, and long random ones),
 * the notice's window and --every in 128-bit arithmetic, hangs from the whole history, and every
 * ending there can be. HOLDFAST_TEST_SEED=n repeats the random ones.
 */
#include "base/prelude.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "supervisor/every.h"
#include "supervisor/sup.h"
#include "supervisor/window.h"

__extension__ typedef unsigned __int128 wide;

static uint64_t seed_now;

static uint64_t rnd(uint64_t below)
{
    seed_now = seed_now * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed_now >> 33) % below;
}

static uint64_t sow(void)
{
    const char *text = getenv("HOLDFAST_TEST_SEED");
    seed_now = text != NULL ? strtoull(text, NULL, 10) : hf_random_u64() % 1000000;
    return seed_now;
}

/* ---- standing notices ---- */

/* The job machine is left out: what it would be told is kept. */
static enum hf_job_event fired[8];
static size_t n_fired;

void hf_job_event(struct hf_sup *sup, enum hf_job_event ev)
{
    (void)sup;
    assert_true(n_fired < HF_COUNT(fired));
    fired[n_fired++] = ev;
}

const char *hf_job_state_name(enum hf_job_state s)
{
    (void)s;
    return "";
}

const char *hf_job_event_name(enum hf_job_event e)
{
    (void)e;
    return "";
}

#define SOURCES 3
#define ROW_MAX 64

/* One word from a source. */
struct word {
    int source, id;
    bool told; /* else withdrawn */
    unsigned how;
    uint64_t deadline_ns;
};

/* What stands after a row of words, from its text alone: for each source the words since it last
 * was empty; the nearest deadline among them; withdrawn by the newest id, unless it is for good. */
struct expected {
    bool notice, guessed, either;
    uint64_t deadline_ns;
    bool withdrawn; /* the last word took the last notice away */
};

struct one {
    bool stands, for_good, guessed;
    int id;
    uint64_t deadline_ns;
};

static struct one source_after(const struct word *row, size_t n, int source)
{
    size_t from = 0;
    struct one s = {0};
    for (size_t i = 0; i < n; i++) {
        if (row[i].source != source) {
            continue;
        }
        if (row[i].told) {
            s.stands = true;
            s.id = row[i].id;
            s.for_good = s.for_good || (row[i].how & HF_NOTICE_FOR_GOOD) != 0;
        } else if (s.stands && row[i].id == s.id && !s.for_good) {
            s = (struct one){0};
            from = i + 1;
        }
    }
    s.deadline_ns = UINT64_MAX;
    for (size_t i = from; i < n; i++) {
        if (row[i].source == source && row[i].told && row[i].deadline_ns < s.deadline_ns) {
            s.deadline_ns = row[i].deadline_ns;
            s.guessed = (row[i].how & HF_NOTICE_GUESSED) != 0;
        }
    }
    return s;
}

static struct expected expect(const struct word *row, size_t n)
{
    struct expected e = {.deadline_ns = UINT64_MAX};
    bool guessed[2] = {false, false};
    for (int s = 0; s < SOURCES; s++) {
        struct one o = source_after(row, n, s);
        if (o.stands) {
            e.notice = true;
            e.deadline_ns = o.deadline_ns < e.deadline_ns ? o.deadline_ns : e.deadline_ns;
        }
    }
    for (int s = 0; s < SOURCES; s++) {
        struct one o = source_after(row, n, s);
        if (o.stands && o.deadline_ns == e.deadline_ns) {
            guessed[o.guessed] = true;
        }
    }
    e.guessed = guessed[1];
    e.either = guessed[0] && guessed[1];
    if (!e.notice && n > 0 && !row[n - 1].told) {
        e.withdrawn = source_after(row, n - 1, row[n - 1].source).stands;
    }
    return e;
}

static const char *const source_names[SOURCES] = {"signal", "file", "aws"};

static void say(struct hf_sup *sup, const struct word *x)
{
    struct hf_notice n = {.kind = HF_NOTICE_RECLAIM};
    snprintf(n.source, sizeof(n.source), "%s", source_names[x->source]);
    snprintf(n.id, sizeof(n.id), "id-%d", x->id);
    n_fired = 0;
    if (x->told) {
        hf_sup_notice(sup, &n, x->deadline_ns, x->how);
    } else {
        hf_sup_withdrawn(sup, &n);
    }
}

static void print_row(const struct word *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        print_message("  %s %s id-%d how %u deadline %llu\n", source_names[row[i].source],
                      row[i].told ? "tells" : "withdraws", row[i].id, row[i].how,
                      (unsigned long long)row[i].deadline_ns);
    }
}

static void check_row(struct hf_sup *sup, const struct word *row, size_t n)
{
    const struct hf_leaving *lv = &sup->leaving;
    struct expected e = expect(row, n);
    bool told = row[n - 1].told;
    size_t events = told || e.withdrawn ? 1 : 0;
    bool right = lv->notice == e.notice && n_fired == events;
    right = right && (!e.notice ||
                      (lv->deadline_ns == e.deadline_ns && (e.either || lv->guessed == e.guessed)));
    right = right && (events == 0 || fired[0] == (told ? HF_EV_NOTICE : HF_EV_WITHDRAWN));
    if (!right) {
        print_row(row, n);
        fail_msg("stands %d, deadline %llu, guessed %d, %zu events; not %d, %llu, %d, %zu",
                 lv->notice, (unsigned long long)lv->deadline_ns, lv->guessed, n_fired, e.notice,
                 (unsigned long long)e.deadline_ns, e.guessed, events);
    }
    if (e.notice) { /* the ranks answer before the tree is ended, that before the deadline */
        assert_true(hf_sup_answer_by(sup) < hf_sup_leave_by(sup));
        assert_true(hf_sup_leave_by(sup) <= lv->deadline_ns);
        uint64_t given = lv->deadline_ns > lv->seen_ns ? lv->deadline_ns - lv->seen_ns : 0;
        assert_true(given <= 2 * HF_END_MS * HF_MS ||
                    hf_sup_leave_by(sup) == lv->deadline_ns - HF_END_MS * HF_MS);
    }
}

static struct hf_sup *quiet_sup(void)
{
    struct hf_sup *sup = HF_NEW(struct hf_sup);
    sup->log = (struct hf_log){.fd = 2, .min = HF_LOG_ERROR, .prefix = ""};
    sup->state = HF_JOB_RUNNING;
    assert_int_equal(hf_loop_init(&sup->loop, NULL), HF_OK);
    return sup;
}

static void sup_free(struct hf_sup *sup)
{
    hf_timer_close(&sup->leave_by);
    hf_loop_drain(&sup->loop);
    assert_int_equal(hf_loop_close(&sup->loop, NULL), HF_OK);
    hf_free(sup);
}

/* All words: a source tells (near, far; guessed, told, for good) or withdraws, one of two ids. */
static size_t all_words(struct word *out)
{
    static const unsigned hows[] = {HF_NOTICE_TOLD, HF_NOTICE_GUESSED, HF_NOTICE_FOR_GOOD};
    size_t n = 0;
    uint64_t base = hf_now_ns() + 60 * HF_SEC;
    for (int s = 0; s < SOURCES; s++) {
        for (int id = 0; id < 2; id++) {
            out[n++] = (struct word){.source = s, .id = id};
            for (size_t h = 0; h < HF_COUNT(hows); h++) {
                for (uint64_t far = 0; far < 2; far++) {
                    out[n++] =
                        (struct word){.source = s,
                                      .id = id,
                                      .told = true,
                                      .how = hows[h],
                                      .deadline_ns = base + (far * 30 + (uint64_t)s) * HF_SEC};
                }
            }
        }
    }
    return n;
}

static void every_row_of_three_words(void **state)
{
    (void)state;
    struct word words[ROW_MAX];
    size_t n = all_words(words);
    struct hf_sup *sup = quiet_sup();
    struct hf_leaving before[3];
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            for (size_t c = 0; c < n; c++) {
                struct word row[3] = {words[a], words[b], words[c]};
                /* What the words before left is kept: each row costs one word, mostly. */
                size_t from = c > 0 ? 2 : 0;
                sup->leaving = from > 0 ? before[2] : (struct hf_leaving){0};
                for (size_t i = from; i < 3; i++) {
                    before[i] = sup->leaving;
                    say(sup, &row[i]);
                    check_row(sup, row, i + 1);
                }
            }
        }
    }
    sup_free(sup);
}

static void long_random_rows(void **state)
{
    (void)state;
    uint64_t seed = sow();
    print_message("seed %llu\n", (unsigned long long)seed);
    struct hf_sup *sup = quiet_sup();
    uint64_t base = hf_now_ns() + 60 * HF_SEC;
    for (int round = 0; round < 100; round++) {
        struct word row[ROW_MAX];
        sup->leaving = (struct hf_leaving){0};
        for (size_t i = 0; i < ROW_MAX; i++) {
            bool good = rnd(24) == 0;
            row[i] = (struct word){.source = (int)rnd(SOURCES),
                                   .id = (int)rnd(3),
                                   .told = rnd(2) == 0,
                                   .how = (unsigned)rnd(2) * HF_NOTICE_GUESSED + good,
                                   .deadline_ns = base + rnd(1000) * HF_SEC};
            say(sup, &row[i]);
            check_row(sup, row, i + 1);
        }
    }
    sup_free(sup);
}

/* A source too many is passed over; it harms none of those that stand. */
static void more_sources_than_places(void **state)
{
    (void)state;
    struct hf_sup *sup = quiet_sup();
    uint64_t base = hf_now_ns() + 60 * HF_SEC;
    for (int i = 0; i < HF_NOTICE_SOURCES + 3; i++) {
        struct hf_notice n = {.kind = HF_NOTICE_RECLAIM, .id = "x"};
        snprintf(n.source, sizeof(n.source), "extra-%c", 'a' + i);
        n_fired = 0;
        hf_sup_notice(sup, &n, base - (uint64_t)i * HF_SEC, HF_NOTICE_TOLD);
        int last = i < HF_NOTICE_SOURCES ? i : HF_NOTICE_SOURCES - 1;
        assert_int_equal(sup->leaving.deadline_ns, base - (uint64_t)last * HF_SEC);
        assert_int_equal(n_fired, i < HF_NOTICE_SOURCES);
    }
    for (int i = HF_NOTICE_SOURCES + 2; i >= 0; i--) {
        struct hf_notice n = {.kind = HF_NOTICE_RECLAIM, .id = "x"};
        snprintf(n.source, sizeof(n.source), "extra-%c", 'a' + i);
        hf_sup_withdrawn(sup, &n);
        assert_int_equal(sup->leaving.notice, i > 0);
    }
    sup_free(sup);
}

/* ---- the window and --every, in wide numbers ---- */

static const uint64_t times_ms[] = {0,
                                    1,
                                    2,
                                    3,
                                    49,
                                    50,
                                    999,
                                    1000,
                                    1001,
                                    1999,
                                    2000,
                                    3000,
                                    4000,
                                    12667,
                                    59999,
                                    60000,
                                    599999,
                                    600000,
                                    3600000,
                                    3600001,
                                    10800000,
                                    604800000,
                                    604800001,
                                    UINT64_C(2592000000),
                                    UINT64_C(2592000001),
                                    UINT64_C(1) << 40,
                                    UINT64_MAX / 2,
                                    UINT64_MAX};

static wide least(wide a, wide b)
{
    return a < b ? a : b;
}

static void the_window_in_wide_numbers(void **state)
{
    (void)state;
    const wide month = (wide)30 * 24 * 3600 * 1000;
    size_t due = 0;
    for (size_t l = 0; l + 2 < HF_COUNT(times_ms); l++) {
        uint64_t now = 5000 * HF_SEC + l * 7;
        uint64_t by = now + times_ms[l] * HF_MS;
        for (size_t c = 0; c < HF_COUNT(times_ms); c++) {
            for (size_t s = 0; s < HF_COUNT(times_ms); s++) {
                wide takes = least(times_ms[c], month) + least(times_ms[s], month);
                /* The latest instant from which one and a half times that, and 3 s, fit. */
                wide need = (takes * 3 + 1) / 2 * HF_MS + (wide)3000 * HF_MS;
                bool fits = (wide)by >= need && (wide)by - need >= (wide)now + HF_SEC;
                uint64_t at = hf_window_second_at(by, now, times_ms[c], times_ms[s]);
                assert_true(at == (fits ? (uint64_t)((wide)by - need) : 0));
                due += fits;
                wide both = (least(times_ms[c], month) + 2 * least(times_ms[s], month)) * HF_MS;
                bool time = takes == 0 || (wide)by >= (wide)now + both;
                assert_true(hf_window_has_time(by, now, times_ms[c], times_ms[s]) == time);
            }
        }
    }
    assert_true(due > 1000);
}

static void every_in_wide_numbers(void **state)
{
    (void)state;
    const wide hour = 3600000;
    static const uint32_t notices[] = {0, 1, 2, 3, 17, 59, 60, 1000, UINT32_MAX - 1, UINT32_MAX};
    for (size_t a = 0; a < HF_COUNT(times_ms); a++) {
        for (size_t b = 0; b < HF_COUNT(times_ms); b++) {
            wide x = least(times_ms[a], hour);
            wide y = times_ms[b] < 600000 ? 600000 : least(times_ms[b], 7 * 24 * hour);
            uint64_t best = hf_every_best_ms(times_ms[a], times_ms[b]);
            assert_true(best >= 60000 && best <= hour);
            /* The root, rounded down, where no bound was met. */
            assert_true(best == 60000 || (wide)best * best <= 2 * x * y);
            assert_true(best == hour || ((wide)best + 1) * (best + 1) > 2 * x * y);
            wide cost = least(times_ms[a], hour) + least(times_ms[b], hour) / 10;
            assert_true(hf_every_cost_ms(times_ms[a], times_ms[b]) == cost);
            wide apart = times_ms[a] > times_ms[b] ? (wide)times_ms[a] - times_ms[b]
                                                   : (wide)times_ms[b] - times_ms[a];
            /* Intervals are an hour at most; beyond that no promise is made. */
            if (times_ms[a] <= hour && times_ms[b] <= hour) {
                assert_true(hf_every_differs(times_ms[a], times_ms[b]) ==
                            (apart * 5 > times_ms[a]));
            }
        }
        for (size_t n = 0; n < HF_COUNT(notices); n++) {
            wide mean = ((wide)3 * hour + times_ms[a]) / ((wide)notices[n] + 1);
            mean = mean < 600000 ? 600000 : least(mean, 7 * 24 * hour);
            assert_true(hf_every_mean_ms(times_ms[a], notices[n]) == mean);
        }
    }
}

/* ---- hangs ---- */

#define LOOKS 400

struct look_at {
    uint64_t at_ns;
    struct hf_hang_look look;
};

/* The last look before or at `end` that showed sign s, from the whole history. `from`: the look at
 * which all began anew. */
static size_t last_sign(const struct look_at *h, size_t from, size_t end, int s)
{
    size_t last = from;
    for (size_t i = from + 1; i <= end; i++) {
        int64_t grown = h[i].look.value[s] - h[last].look.value[s];
        int64_t idle = (int64_t)((h[i].at_ns - h[last].at_ns) / HF_MS);
        bool noise = s == HF_SIGN_CPU && grown >= 0 && grown <= 100 + idle / 100;
        last = grown != 0 && !noise ? i : last;
    }
    return last;
}

static bool hangs_after(const struct look_at *h, size_t n, uint64_t limit_ns)
{
    size_t from = 0;
    for (size_t i = 1; i < n; i++) {
        bool slept = h[i].at_ns - h[i - 1].at_ns > 30 * HF_SEC;
        from = slept || h[i].look.held ? i : from;
    }
    if (from == n - 1) {
        return false;
    }
    for (int s = 0; s < HF_SIGNS; s++) {
        if (h[n - 1].at_ns - h[last_sign(h, from, n - 1, s)].at_ns < limit_ns) {
            return false;
        }
    }
    return true;
}

static void hangs_from_the_whole_history(void **state)
{
    (void)state;
    uint64_t seed = sow();
    size_t hung = 0;
    for (int round = 0; round < 60; round++) {
        static struct look_at h[LOOKS];
        struct hf_hang judge = {0};
        struct hf_hang_look now = {0};
        uint64_t at = HF_SEC;
        uint64_t limit = (1 + rnd(40)) * HF_SEC;
        uint64_t calm = 2 + rnd(120); /* how rare a sign is */
        for (size_t i = 0; i < LOOKS; i++) {
            at += rnd(200) == 0 ? (29 + rnd(4)) * HF_SEC : HF_SEC + rnd(100) * HF_MS;
            for (int s = 0; s < HF_SIGNS; s++) {
                now.value[s] += s == HF_SIGN_CPU ? (int64_t)rnd(12) : 0;
                now.value[s] += rnd(calm) == 0 ? (int64_t)rnd(400) - 100 : 0;
            }
            now.held = rnd(150) == 0;
            h[i] = (struct look_at){.at_ns = at, .look = now};
            bool got = hf_hang_judge(&judge, &now, at, limit);
            if (got != hangs_after(h, i + 1, limit)) {
                fail_msg("seed %llu, round %d, look %zu: judged %d", (unsigned long long)seed,
                         round, i, got);
            }
            hung += got;
        }
    }
    assert_true(hung > 100);
}

/* ---- endings ---- */

/* Bits of an ending, in the order in which they outweigh each other. */
static void ending_of(unsigned bits, int status, struct hf_ending *e)
{
    *e = (struct hf_ending){
        .superseded = bits & 1,
        .not_started = bits & 2,
        .done = bits & 4,
        .in_peace = bits & 8,
        .notice = bits & 16,
        .interrupted = bits & 32,
        .hung = bits & 64,
        .beyond_start = bits & 128,
        .progressed = bits & 256,
        .has_status = status >= 0,
        .status = status >= 0 ? status : 0,
    };
}

static void check_exit_status(const struct hf_ending *e, enum hf_outcome o, int exit_status)
{
    assert_in_range(exit_status, 0, 255);
    bool bad = o == HF_OUTCOME_FAILED || o == HF_OUTCOME_VANISHED || o == HF_OUTCOME_HUNG ||
               o == HF_OUTCOME_SUPERSEDED || o == HF_OUTCOME_NOT_STARTED;
    assert_true(!bad || exit_status != 0); /* no failure looks like a success */
    if (o == HF_OUTCOME_PREEMPTED) {
        assert_int_equal(exit_status, HF_EXIT_AGAIN);
    }
    if (e->has_status && o == HF_OUTCOME_FAILED) { /* passed on, 128+n for signals */
        int low = e->status & 0x7f;
        assert_int_equal(exit_status, low != 0 ? 128 + low : e->status >> 8);
    }
}

static void check_ending(unsigned bits, int status)
{
    struct hf_ending e;
    ending_of(bits, status, &e);
    enum hf_outcome o = hf_outcome_of(&e);
    bool finished = o == HF_OUTCOME_FINISHED, stopped = o == HF_OUTCOME_STOPPED;
    assert_string_not_equal(hf_outcome_name(o), "unknown");
    assert_int_equal(o == HF_OUTCOME_SUPERSEDED, e.superseded);
    if (!e.superseded && !e.not_started) {
        assert_true(!e.done || finished);
        assert_true(e.done || e.in_peace || !e.notice || o == HF_OUTCOME_PREEMPTED);
        assert_true(!finished || e.done || e.in_peace || status == 0);
        assert_true(!stopped || e.interrupted);
    }
    check_exit_status(&e, o, hf_exit_status_of(&e, o));
    for (uint32_t crashes = 0; crashes < 4; crashes++) {
        uint32_t after = crashes;
        struct hf_next n = hf_relaunch_decide(&e, o, 2, bits * 77, &after);
        bool crash = o == HF_OUTCOME_FAILED || o == HF_OUTCOME_VANISHED || o == HF_OUTCOME_HUNG;
        bool again = crash && e.beyond_start && (e.progressed || crashes < 2);
        assert_int_equal(n.again, again);
        assert_int_equal(n.close, finished || stopped);
        assert_true(!n.close || n.kind == (finished ? HF_CLAIM_FINISHED : HF_CLAIM_STOPPED));
        assert_int_equal(n.exit_status, hf_exit_status_of(&e, o));
        assert_int_equal(after, !again ? crashes : e.progressed ? 0 : crashes + 1);
        assert_true(!again || (n.delay_ms >= 500 && n.delay_ms <= 60000));
    }
}

static void every_ending_there_can_be(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 512; bits++) {
        check_ending(bits, -1);
        for (int code = 0; code < 256; code++) {
            check_ending(bits, code << 8);
        }
        for (int sig = 1; sig < 65; sig++) {
            check_ending(bits, sig);
            check_ending(bits, sig | 0x80);
        }
    }
}

/* Crashes with progress or without, in any pattern: never more than the limit in a row. */
static void rows_of_crashes(void **state)
{
    (void)state;
    struct hf_ending e = {.has_status = true, .status = 1 << 8, .beyond_start = true};
    for (uint32_t limit = 0; limit < 5; limit++) {
        for (unsigned pattern = 0; pattern < 1u << 10; pattern++) {
            uint32_t crashes = 0;
            unsigned in_a_row = 0, started = 0;
            for (unsigned i = 0; i < 10; i++) {
                e.progressed = pattern >> i & 1;
                in_a_row = e.progressed ? 0 : in_a_row + 1;
                bool again = hf_relaunch_decide(&e, HF_OUTCOME_FAILED, limit, i, &crashes).again;
                assert_int_equal(again, limit > 0 && in_a_row <= limit);
                if (!again) {
                    break;
                }
                started++;
            }
            assert_true(started <= 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_three_words),  cmocka_unit_test(long_random_rows),
        cmocka_unit_test(more_sources_than_places),  cmocka_unit_test(the_window_in_wide_numbers),
        cmocka_unit_test(every_in_wide_numbers),     cmocka_unit_test(hangs_from_the_whole_history),
        cmocka_unit_test(every_ending_there_can_be), cmocka_unit_test(rows_of_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
