/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults drawn by a hash of seed and position: nothing is kept between two requests, so threads
 * need no lock. Pure, any thread.
 */
#include "base/prelude.h"

#include "cloud/chaos.h"

#define IN_A_ROW 3

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of
 * the result. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

enum hf_chaos hf_chaos_of(uint64_t seed, uint64_t nth)
{
    if (nth % IN_A_ROW == IN_A_ROW - 1) {
        return HF_CHAOS_NONE;
    }
    return (enum hf_chaos)(mix(seed ^ mix(nth)) % HF_CHAOS_KINDS);
}
