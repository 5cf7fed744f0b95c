/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a store: what fits in a notice as a table, and a measurement of a store in memory that
 * works, fails at each of its calls, overwrites, or gives wrong bytes back: nothing stays behind.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/measure.h"
#include "support_conform_store.h"

#define BLOCK (UINT64_C(8) << 20)

static void fits(void **state)
{
    (void)state;
    static const struct {
        uint64_t bps;
        double small_ms;
        uint32_t seconds;
        uint64_t want;
    } rows[] = {
        {1000, 0, 30, 30000}, {1000, 250, 30, 29000}, {1000, 7500, 30, 0},
        {1000, 8000, 30, 0},  {0, 1, 300, 0},         {1000000000, 25, 120, 119900000000},
        {1000, 250, 1, 0},    {1000, 0, 0, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_measure m = {.put_bps = rows[i].bps, .small_put_ms = rows[i].small_ms};
        assert_int_equal(hf_measure_fits(&m, rows[i].seconds), rows[i].want);
    }
}

static struct hf_store *memory(void)
{
    struct hf_store *s = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:m", NULL, &s, &err), HF_OK, &err);
    return s;
}

static enum hf_rc visit(struct hf_store *s, const struct hf_call *c, struct hf_measure *ret,
                        struct hf_err *err)
{
    struct hf_measure_in in = {
        .store = s, .call = c, .block_bytes = BLOCK, .lanes = 2, .stage_ms = 1};
    return hf_measure(&in, ret, err);
}

static void a_store_that_works(void **state)
{
    (void)state;
    struct hf_store *s = memory();
    store_set(s, "run/mine", "stays");
    struct hf_measure m;
    struct hf_err err;
    uint64_t start = hf_now_ns();
    expect_rc(visit(s, NULL, &m, &err), HF_OK, &err);
    uint64_t took = hf_now_ns() - start;
    assert_int_equal(m.lanes, 2);
    assert_true(m.create_only && m.small_put_ms > 0);
    assert_true(m.put_bytes >= BLOCK && m.put_bytes % BLOCK == 0);
    assert_true(m.get_bytes >= BLOCK && m.get_bytes <= m.put_bytes);
    /* No rate is higher than all its bytes in all the time allow, nor lower than in the whole. */
    assert_true((double)m.put_bps >= (double)m.put_bytes / ((double)took / HF_SEC));
    assert_true((double)m.get_bps >= (double)m.get_bytes / ((double)took / HF_SEC));
    assert_true(m.hash_bps > 0);
    store_holds(s, "run/mine", "stays");
    assert_int_equal(store_count(s, ""), 1);
    hf_store_close(s);
}

static void a_fault_at_every_call(void **state)
{
    (void)state;
    static const enum hf_store_fault_kind kinds[] = {HF_SFAULT_FAIL, HF_SFAULT_LOST_REPLY};
    for (size_t k = 0; k < HF_COUNT(kinds); k++) {
        bool fired = true;
        for (uint64_t nth = 1; fired; nth++) {
            struct hf_store *s = hf_store_faulty(memory());
            struct hf_measure m;
            struct hf_err err = {.code = HF_OK};
            hf_store_fault_set(s, kinds[k], nth, false);
            enum hf_rc rc = visit(s, NULL, &m, &err);
            fired = hf_store_fault_calls(s) >= nth;
            hf_store_fault_set(s, HF_SFAULT_FAIL, 0, false);
            /* One that fails the cleaning is told, and only that may leave something. */
            if (strstr(err.msg, "could not be removed") == NULL) {
                if (store_count(s, "") != 0) {
                    fail_msg("call %u, kind %zu: %s", (unsigned)nth, k, err.msg);
                }
            } else {
                assert_int_not_equal(rc, HF_OK);
                assert_true(store_count(s, "doctor-") > 0 || kinds[k] == HF_SFAULT_LOST_REPLY);
            }
            hf_store_close(s);
            assert_true(nth < 100);
        }
    }
}

static void interrupted(void **state)
{
    (void)state;
    struct hf_store *s = memory();
    struct hf_op op = {.canceled = false};
    struct hf_call c = {.op = &op};
    struct hf_measure m;
    struct hf_err err;
    hf_op_cancel(&op);
    expect_rc(visit(s, &c, &m, &err), HF_ECANCELED, &err);
    assert_int_equal(store_count(s, ""), 0);
    hf_store_close(s);
}

static void stores_with_flaws(void **state)
{
    (void)state;
    struct hf_measure m;
    struct hf_err err;
    struct hf_store *s = store_with_flaws(memory(), FLAW_OVERWRITES);
    expect_rc(visit(s, NULL, &m, &err), HF_OK, &err);
    assert_false(m.create_only);
    assert_int_equal(store_count(s, ""), 0);
    hf_store_close(s);
    s = store_with_flaws(memory(), FLAW_READ_ONLY);
    expect_rc(visit(s, NULL, &m, &err), HF_EDENIED, &err);
    hf_store_close(s);
    s = store_with_flaws(memory(), FLAW_FORGETS);
    expect_rc(visit(s, NULL, &m, &err), HF_ENOTFOUND, &err);
    assert_int_equal(store_count(s, ""), 0);
    hf_store_close(s);
    s = store_with_flaws(memory(), FLAW_FLIPS);
    expect_rc(visit(s, NULL, &m, &err), HF_ECORRUPT, &err);
    assert_int_equal(store_count(s, ""), 0);
    hf_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits),
        cmocka_unit_test(a_store_that_works),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(stores_with_flaws),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
