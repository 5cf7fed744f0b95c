/* SPDX-License-Identifier: Apache-2.0
 *
 * A training program without training, for bench.py. `steps cost N`: calls holdfast_step N times
 * and prints the nanoseconds a call took. `steps watch`: a boundary every millisecond; prints
 * CLOCK_BOOTTIME at the first that asks for a save, and leaves.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "holdfast.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int cost(struct holdfast *run, int64_t steps)
{
    uint64_t begun = now_ns();
    for (int64_t step = 0; step < steps; step++) {
        if (holdfast_step(run, step) != HOLDFAST_GO_ON) {
            return 1;
        }
    }
    printf("%s %.2f\n", holdfast_active(run) ? "active" : "outside",
           (double)(now_ns() - begun) / (double)steps);
    holdfast_done(run);
    return 0;
}

static int watch(struct holdfast *run)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    for (int64_t step = 0;; step++) {
        (void)nanosleep(&millisecond, NULL);
        enum holdfast_verb verb = holdfast_step(run, step);
        if (verb == HOLDFAST_SAVE) {
            printf("%" PRIu64 "\n", now_ns());
            (void)fflush(stdout);
            const char *dir = holdfast_path(run, step);
            char path[4200];
            (void)snprintf(path, sizeof path, "%s/state", dir != NULL ? dir : ".");
            FILE *f = fopen(path, "w");
            if (f == NULL || fputs("state\n", f) < 0 || fclose(f) != 0) {
                return 1;
            }
            verb = holdfast_saved(run, NULL);
        }
        if (verb == HOLDFAST_LEAVE) {
            return HOLDFAST_EXIT_LEAVE;
        }
    }
}

int main(int argc, char **argv)
{
    struct holdfast *run = holdfast_init(NULL);
    int status = 2;
    if (argc == 3 && strcmp(argv[1], "cost") == 0) {
        status = cost(run, strtoll(argv[2], NULL, 10));
    } else if (argc == 2 && strcmp(argv[1], "watch") == 0) {
        status = watch(run);
    }
    holdfast_close(run);
    return status;
}
