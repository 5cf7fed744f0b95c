/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/window: when a second save is due, and whether there is time for one at all.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "supervisor/window.h"

#define NOW (1000 * HF_SEC)

static void when_the_second_save_is_due(void **state)
{
    (void)state;
    static const struct {
        uint64_t left_ms, capture_ms, ship_ms;
        int64_t due_ms; /* from now; -1: never */
    } rows[] = {
        {118000, 1000, 1000, 112000}, /* AWS: two minutes, less what ending takes */
        {118000, 0, 0, 115000},
        {118000, 10000, 10000, 85000},
        {118000, 1, 0, 114998}, /* half a millisecond is rounded up */
        {23000, 500, 500, 18500},
        {23000, 12000, 0, 2000},
        {23000, 12667, 0, -1}, /* less than a second of training */
        {4000, 0, 0, 1000},
        {3999, 0, 0, -1},
        {0, 0, 0, -1},
        {2000, UINT64_MAX, UINT64_MAX, -1},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        uint64_t at = hf_window_second_at(NOW + rows[i].left_ms * HF_MS, NOW, rows[i].capture_ms,
                                          rows[i].ship_ms);
        int64_t due_ms = at == 0 ? -1 : (int64_t)((at - NOW) / HF_MS);
        if (due_ms != rows[i].due_ms) {
            fail_msg("row %zu: due in %lld ms", i, (long long)due_ms);
        }
    }
}

static void a_deadline_that_is_past(void **state)
{
    (void)state;
    assert_int_equal(hf_window_second_at(NOW - HF_SEC, NOW, 10, 10), 0);
    assert_int_equal(hf_window_second_at(0, NOW, 10, 10), 0);
    assert_false(hf_window_has_time(NOW - HF_SEC, NOW, 10, 10));
}

/* Row B11: of AWS's two minutes at least 80 % are trained in, if a save takes up to 12 s. */
static void b11_how_much_of_the_window_is_used(void **state)
{
    (void)state;
    uint64_t deadline = NOW + 120 * HF_SEC;
    for (uint64_t takes_ms = 0; takes_ms <= 12000; takes_ms += 500) {
        uint64_t at = hf_window_second_at(deadline - 2 * HF_SEC, NOW, takes_ms / 2, takes_ms / 2);
        assert_true(at >= NOW + 96 * HF_SEC);
        assert_true(at + takes_ms * HF_MS <= deadline - 5 * HF_SEC);
    }
}

static void whether_there_is_time_for_a_save(void **state)
{
    (void)state;
    static const struct {
        uint64_t left_ms, capture_ms, ship_ms;
        bool time;
    } rows[] = {
        {0, 0, 0, true}, /* nothing measured: it is tried */
        {10000, 2000, 4000, true}, {9999, 2000, 4000, false},
        {10000, 0, 5000, true},    {10000, 0, 5001, false},
        {10000, 10001, 0, false},  {10000, UINT64_MAX, UINT64_MAX, false},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        if (hf_window_has_time(NOW + rows[i].left_ms * HF_MS, NOW, rows[i].capture_ms,
                               rows[i].ship_ms) != rows[i].time) {
            fail_msg("row %zu", i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(when_the_second_save_is_due),
        cmocka_unit_test(a_deadline_that_is_past),
        cmocka_unit_test(b11_how_much_of_the_window_is_used),
        cmocka_unit_test(whether_there_is_time_for_a_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
