/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of --every auto. Pure: no clock is read, nothing is kept. Values are bounded
 * before they are multiplied.
 */
#include "base/prelude.h"

#include "supervisor/every.h"

#define MINUTE_MS     UINT64_C(60000)
#define HOUR_MS       (60 * MINUTE_MS)
#define PRIOR_MS      (3 * HOUR_MS)
#define MEAN_LEAST_MS (10 * MINUTE_MS)
#define MEAN_MOST_MS  (7 * 24 * HOUR_MS)
#define COST_MOST_MS  HOUR_MS
#define SHIP_SHARE    10

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* Rounded down; by bisection, since x is below 2^52. */
static uint64_t root_of(uint64_t x)
{
    uint64_t lo = 0, hi = UINT64_C(1) << 26;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (mid * mid <= x) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

uint64_t hf_every_cost_ms(uint64_t held_ms, uint64_t ship_ms)
{
    return clamp(held_ms, 0, COST_MOST_MS) + clamp(ship_ms, 0, COST_MOST_MS) / SHIP_SHARE;
}

uint64_t hf_every_mean_ms(uint64_t lived_ms, uint32_t notices)
{
    uint64_t most_lived = MEAN_MOST_MS * ((uint64_t)notices + 1);
    uint64_t lived = lived_ms < most_lived ? lived_ms : most_lived;
    return clamp((PRIOR_MS + lived) / ((uint64_t)notices + 1), MEAN_LEAST_MS, MEAN_MOST_MS);
}

uint64_t hf_every_best_ms(uint64_t cost_ms, uint64_t mean_ms)
{
    uint64_t product =
        2 * clamp(cost_ms, 0, COST_MOST_MS) * clamp(mean_ms, MEAN_LEAST_MS, MEAN_MOST_MS);
    return clamp(root_of(product), HF_EVERY_LEAST_MS, HF_EVERY_MOST_MS);
}

bool hf_every_differs(uint64_t was_ms, uint64_t is_ms)
{
    uint64_t apart = was_ms > is_ms ? was_ms - is_ms : is_ms - was_ms;
    return apart * 5 > was_ms;
}
