/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers for tests: xorshift64* (Vigna 2016), whose whole state is one number.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "support_seed.h"

uint64_t hf_test_seed(void)
{
    const char *text = getenv("HOLDFAST_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : hf_random_u64();
    seed = seed != 0 ? seed : 1;
    print_message("HOLDFAST_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

uint64_t hf_test_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

size_t hf_test_below(uint64_t *state, size_t n)
{
    return (size_t)((hf_test_random(state) >> 16) % n);
}
