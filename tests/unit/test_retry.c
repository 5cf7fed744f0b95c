/* SPDX-License-Identifier: Apache-2.0
 *
 * base/retry: which classes are tried again, the bounds of the delay, and when it gives up.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/retry.h"

static void classes(void **state)
{
    (void)state;
    static const struct {
        enum hf_rc code;
        bool again;
    } rows[] = {
        {HF_EAGAIN, true},     {HF_ETIMEOUT, true},  {HF_EIO, true},      {HF_ECANCELED, false},
        {HF_ENOTFOUND, false}, {HF_EEXISTS, false},  {HF_EDENIED, false}, {HF_EINVAL, false},
        {HF_ENOTSUP, false},   {HF_ECORRUPT, false}, {HF_EFULL, false},   {HF_EINTERNAL, false},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_retry r = {.base_ms = 10, .cap_ms = 100};
        struct hf_err err = {.code = rows[i].code};
        uint32_t delay_ms = 77;
        assert_int_equal(hf_retry_transient(rows[i].code), rows[i].again);
        assert_int_equal(hf_retry_next(&r, &err, 5, 0, 0, &delay_ms), rows[i].again);
        assert_int_equal(delay_ms, rows[i].again ? 5 : 77);
        assert_int_equal(r.done, 1);
    }
}

/* The delay for one random number; UINT32_MAX: gave up. */
static void delays(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct hf_retry r;
        uint64_t random;
        uint32_t wish_ms;
        uint64_t now_ms, deadline_ms;
        uint32_t expect_ms;
    } rows[] = {
        {"first, least", {100, 5000, 0, 0}, 0, 0, 0, 0, 0},
        {"first, most", {100, 5000, 0, 0}, 100, 0, 0, 0, 100},
        {"first, wraps round", {100, 5000, 0, 0}, 101, 0, 0, 0, 0},
        {"fourth, most", {100, 5000, 0, 3}, 800, 0, 0, 0, 800},
        {"capped", {100, 5000, 0, 10}, 5000, 0, 0, 0, 5000},
        {"capped, wraps round", {100, 5000, 0, 10}, 5001, 0, 0, 0, 0},
        {"no overflow", {100, 5000, 0, UINT32_MAX}, 4999, 0, 0, 0, 4999},
        {"base over cap", {9000, 5000, 0, 0}, 5000, 0, 0, 0, 5000},
        {"base 0", {0, 5000, 0, 7}, 12345, 0, 0, 0, 0},
        {"all 0", {0, 0, 0, 0}, UINT64_MAX, 0, 0, 0, 0},
        {"server's wish", {100, 5000, 0, 0}, 50, 700, 0, 0, 700},
        {"server's wish below", {100, 5000, 0, 0}, 90, 30, 0, 0, 90},
        {"server's wish over cap", {100, 5000, 0, 0}, 0, 20000, 0, 0, 20000},
        {"server's wish bounded", {100, 5000, 0, 0}, 0, 90000, 0, 0, 50000},
        {"second of three", {100, 5000, 3, 1}, 7, 0, 0, 0, 7},
        {"third of three", {100, 5000, 3, 2}, 7, 0, 0, 0, UINT32_MAX},
        {"only one try", {100, 5000, 1, 0}, 7, 0, 0, 0, UINT32_MAX},
        {"before the deadline", {100, 5000, 0, 0}, 50, 0, 1000, 1051, 50},
        {"at the deadline", {100, 5000, 0, 0}, 50, 0, 1000, 1050, UINT32_MAX},
        {"wish beyond the deadline", {100, 5000, 0, 0}, 0, 60, 1000, 1050, UINT32_MAX},
        {"deadline long past", {100, 5000, 0, 0}, 0, 0, 1000, 10, UINT32_MAX},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_retry r = rows[i].r;
        struct hf_err err = {.code = HF_EAGAIN, .retry_after_ms = rows[i].wish_ms};
        uint32_t delay_ms = UINT32_MAX;
        bool again = hf_retry_next(&r, &err, rows[i].random, rows[i].now_ms * HF_MS,
                                   rows[i].deadline_ms * HF_MS, &delay_ms);
        if (again != (rows[i].expect_ms != UINT32_MAX) || delay_ms != rows[i].expect_ms) {
            fail_msg("%s: %d, %u ms", rows[i].what, again, (unsigned)delay_ms);
        }
    }
}

static void counts_to_the_end(void **state)
{
    (void)state;
    struct hf_retry r = {.base_ms = 1, .cap_ms = 8, .tries = 5};
    struct hf_err err = {.code = HF_EIO};
    uint32_t delay_ms;
    unsigned again = 0;
    while (hf_retry_next(&r, &err, again * 7919, 0, 0, &delay_ms)) {
        assert_true(delay_ms <= 8);
        again++;
    }
    assert_int_equal(again, 4);
    assert_int_equal(r.done, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes),
        cmocka_unit_test(delays),
        cmocka_unit_test(counts_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
