/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/every: against the closed form, its bounds, and what counts as a change.
 */
#include "base/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/every.h"

#define S UINT64_C(1000)
#define M (60 * S)
#define H (60 * M)

static void the_closed_form(void **state)
{
    (void)state;
    for (uint64_t cost = 1; cost <= 2 * H; cost = cost * 3 / 2 + 1) {
        for (uint64_t mean = 1 * M; mean < 60 * 24 * H; mean = mean * 7 / 4) {
            double c = cost > H ? (double)H : (double)cost;
            double m = mean < 10 * M ? (double)(10 * M) : (double)mean;
            m = m > (double)(7 * 24 * H) ? (double)(7 * 24 * H) : m;
            double best = floor(sqrt(2 * c * m));
            best = best < (double)M ? (double)M : best > (double)H ? (double)H : best;
            double got = (double)hf_every_best_ms(cost, mean);
            if (fabs(got - best) > 1) {
                fail_msg("cost %llu, mean %llu: %.0f, not %.0f", (unsigned long long)cost,
                         (unsigned long long)mean, got, best);
            }
        }
    }
}

static void some_that_people_would_expect(void **state)
{
    (void)state;
    static const struct {
        uint64_t cost_ms, mean_ms, best_ms;
    } rows[] = {
        {0, 3 * H, M},           {1 * S, 3 * H, 146969}, /* two and a half minutes */
        {30 * S, 3 * H, 804984}, {5 * M, 3 * H, 2545584},
        {5 * M, 24 * H, H},      {UINT64_MAX, UINT64_MAX, H},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        assert_int_equal(hf_every_best_ms(rows[i].cost_ms, rows[i].mean_ms), rows[i].best_ms);
    }
}

static void the_mean_time_between_notices(void **state)
{
    (void)state;
    static const struct {
        uint64_t lived_ms;
        uint32_t notices;
        uint64_t mean_ms;
    } rows[] = {
        {0, 0, 3 * H},
        {3 * H, 0, 6 * H}, /* calm so far: rarer than thought */
        {1 * H, 1, 2 * H},
        {1 * H, 7, 30 * M},
        {0, 1000, 10 * M},
        {1000 * H, 0, 7 * 24 * H},
        {UINT64_MAX, UINT32_MAX, 7 * 24 * H},
        {97 * H, 99, 1 * H},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        if (hf_every_mean_ms(rows[i].lived_ms, rows[i].notices) != rows[i].mean_ms) {
            fail_msg("row %zu", i);
        }
    }
}

static void what_a_save_costs(void **state)
{
    (void)state;
    assert_int_equal(hf_every_cost_ms(0, 0), 0);
    assert_int_equal(hf_every_cost_ms(700, 3000), 1000);
    assert_int_equal(hf_every_cost_ms(UINT64_MAX, UINT64_MAX), H + H / 10);
}

static void what_is_worth_telling(void **state)
{
    (void)state;
    assert_false(hf_every_differs(100, 100));
    assert_false(hf_every_differs(100, 120));
    assert_false(hf_every_differs(100, 80));
    assert_true(hf_every_differs(100, 121));
    assert_true(hf_every_differs(100, 79));
    assert_true(hf_every_differs(0, 1));
    assert_true(hf_every_differs(H, M));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_closed_form),
        cmocka_unit_test(some_that_people_would_expect),
        cmocka_unit_test(the_mean_time_between_notices),
        cmocka_unit_test(what_a_save_costs),
        cmocka_unit_test(what_is_worth_telling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
