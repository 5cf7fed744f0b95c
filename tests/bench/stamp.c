/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints CLOCK_BOOTTIME in nanoseconds as the first thing that it does: when an exec took effect.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

int main(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    printf("%" PRIu64 "\n", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    return 0;
}
