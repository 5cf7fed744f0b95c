/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/hang: which rows of looks are a hang. Pure; time is a number.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "supervisor/hang.h"

#define LIMIT_S 60

/* A look each second; what has grown since the start: nothing, unless a row says so. */
struct life {
    const char *what;
    int every_s[HF_SIGNS]; /* that sign grows so often; 0: never */
    int cpu_ms_a_s;        /* processor time that is used each second */
    int cpu_drop_at_s;     /* a process ends: the sum falls. 0: never */
    int held_until_s;
    int sleep_at_s, sleep_s; /* no look for that long */
    int from_s, until_s;     /* the hang is seen first at, and is gone at; 0: never */
};

static const struct life lives[] = {
    {.what = "nothing moves", .from_s = 60},
    {.what = "steps", .every_s = {[HF_SIGN_STEP] = 59}},
    {.what = "steps, too slow", .every_s = {[HF_SIGN_STEP] = 100}, .from_s = 60, .until_s = 100},
    {.what = "output alone", .every_s = {[HF_SIGN_OUTPUT] = 30}},
    {.what = "checkpoints alone", .every_s = {[HF_SIGN_SAVE] = 50}},
    {.what = "it computes", .cpu_ms_a_s = 500},
    {.what = "a twentieth of a processor", .cpu_ms_a_s = 50},
    {.what = "a watchdog thread's noise", .cpu_ms_a_s = 5, .from_s = 60},
    {.what = "a process of it ends", .cpu_drop_at_s = 40, .from_s = 100},
    {.what = "held by a debugger", .held_until_s = 90, .from_s = 149},
    {.what = "the machine slept", .sleep_at_s = 50, .sleep_s = 3600, .from_s = 3710},
    {.what = "a look that is a little late", .sleep_at_s = 50, .sleep_s = 20, .from_s = 70},
};

static void judges(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(lives); i++) {
        const struct life *l = &lives[i];
        struct hf_hang h = {0};
        int from = 0;
        int until = 0;
        for (int s = 0; s < 4000 && until == 0; s++) {
            if (s > l->sleep_at_s && s < l->sleep_at_s + l->sleep_s) {
                continue;
            }
            struct hf_hang_look look = {.held = l->held_until_s != 0 && s < l->held_until_s};
            for (int k = 0; k < HF_SIGNS; k++) {
                look.value[k] = l->every_s[k] != 0 ? 7 + s / l->every_s[k] : 7;
            }
            look.value[HF_SIGN_CPU] += 1000 + (int64_t)s * l->cpu_ms_a_s;
            if (l->cpu_drop_at_s != 0 && s >= l->cpu_drop_at_s) {
                look.value[HF_SIGN_CPU] -= 400;
            }
            uint64_t now = (uint64_t)(5 + s) * HF_SEC;
            bool hangs = hf_hang_judge(&h, &look, now, LIMIT_S * HF_SEC);
            if (hangs && from == 0) {
                from = s;
            } else if (!hangs && from != 0) {
                until = s;
            }
        }
        if (from != l->from_s || until != l->until_s) {
            fail_msg("%s: a hang from %d s until %d s", l->what, from, until);
        }
    }
}

static void names(void **state)
{
    (void)state;
    for (int s = 0; s < HF_SIGNS; s++) {
        assert_string_not_equal(hf_hang_sign_name((enum hf_hang_sign)s), "unknown");
    }
    assert_string_equal(hf_hang_sign_name(HF_SIGNS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judges), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
