/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/retain: the plan for every keep; what is kept still verifies; nothing goes while a
 * manifest cannot be read, while the run belongs to another, or while a save is under way.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/record.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

/* Rows as text: "1m" a manifest of attempt 1, "1d" a damaged one, "1r" a retired one, "1s" a seal
 * or an abort; in capitals where it has to be marked. */
static void test_c8_plan(void **state)
{
    (void)state;
    static const struct {
        int64_t keep;
        const char *rows;
    } cases[] = {
        {3, ""},
        {3, "1m"},
        {1, "1m"},
        {0, "1m1m1m1m"},
        {-1, "1m1m1m1m"},
        {INT64_MIN, "1m1m1m1m"},
        {1, "1M1M1M1m"},
        {2, "1M1M1m1m"},
        {3, "1M1m1m1m"},
        {4, "1m1m1m1m"},
        {INT64_MAX, "1m1m1m1m"},
        {1, "1r1M1m"},
        {2, "1m1r1r1m"},
        {1, "1M1s1m1s"},
        {1, "1M1m1s2m"},         /* the newest of the attempt before stays */
        {1, "1M1M1s2M2m1s3M3m"}, /* but not that of every attempt */
        {2, "1M1M1s2m2s3m"},
        {2, "1M1m1s2m2m"},
        {3, "1M1m1s2m2m"},
        {1, "1M1m1s2s3s4m"}, /* attempts without one do not count */
        {1, "1s2s"},
        {1, "1m1s2r3m"}, /* nor do those whose ones are retired */
        {1, "1M1m1d"},   /* a damaged one counts for nothing, and stays until it is replaced */
        {1, "1M1D1m"},
        {2, "1m1d1m"},
        {2, "1M1D1m1m"},
        {0, "1m1d1m"},
        {1, "1d1d"},
        {1, "1M1m1D1s2D2s3m"}, /* nor for what there is to step back to */
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct hf_retain_row rows[16] = {{.attempt = 0}};
        size_t n = strlen(cases[i].rows) / 2, marked = 0, want = 0;
        for (size_t k = 0; k < n; k++) {
            char kind = cases[i].rows[2 * k + 1];
            rows[k] = (struct hf_retain_row){.attempt = (uint32_t)(cases[i].rows[2 * k] - '0'),
                                             .number = (uint32_t)k + 1,
                                             .manifest = strchr("mMrdD", kind) != NULL,
                                             .damaged = strchr("dD", kind) != NULL,
                                             .retired = kind == 'r',
                                             .retire = k % 2 == 0};
            want += kind == 'M' || kind == 'D';
        }
        marked = hf_retain_plan(rows, n, cases[i].keep);
        for (size_t k = 0; k < n; k++) {
            if (rows[k].retire != (strchr("MD", cases[i].rows[2 * k + 1]) != NULL)) {
                fail_msg("keep %lld of %s: row %zu", (long long)cases[i].keep, cases[i].rows, k);
            }
        }
        assert_int_equal(marked, want);
    }
}

struct job {
    struct bench b;
    struct hf_claim one;
    char *root;
    struct hf_manifest m[8]; /* by number */
};

/* Saves number n: one file that every checkpoint changes, one that none does. */
static void save(struct job *j, const struct hf_claim *claim, uint32_t n,
                 const struct hf_manifest *parent, struct hf_manifest *ret)
{
    char *p = hf_asprintf("%s/changing", j->root);
    put_noise(p, 9000, claim->attempt * 100 + n);
    free(p);
    struct hf_save_in in = save_of(&j->b, claim, n, j->root);
    in.parent = parent;
    must_save(&in, ret);
    save_in_release(&in);
}

static void job_open(struct job *j, uint32_t saves)
{
    memset(j, 0, sizeof(*j));
    bench_open(&j->b, NULL);
    j->one = must_claim(&j->b, 1);
    j->root = bench_path(&j->b, "ckpt");
    char *p = hf_asprintf("%s/frozen", j->root);
    put_noise(p, 9000, 1);
    free(p);
    for (uint32_t n = 1; n <= saves; n++) {
        save(j, &j->one, n, n > 1 ? &j->m[n - 1] : NULL, &j->m[n]);
    }
}

static void job_close(struct job *j)
{
    for (size_t i = 0; i < HF_COUNT(j->m); i++) {
        hf_manifest_release(&j->m[i]);
    }
    hf_claim_release(&j->one);
    free(j->root);
    bench_close(&j->b);
}

static enum hf_rc verify(struct job *j, const struct hf_manifest *m)
{
    uint64_t bytes = 0;
    return hf_verify(&j->b.run, NULL, m, &bytes, NULL);
}

static void retain(struct job *j, const struct hf_claim *mine, int64_t keep, uint64_t want_removed)
{
    uint64_t removed = 99;
    struct hf_err err;
    expect_rc(hf_retain(&j->b.run, NULL, mine, keep, &removed, &err), HF_OK, &err);
    assert_int_equal(removed, want_removed);
}

static void old_ones_go(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 6);
    assert_int_equal(store_count(j.b.store, "job/data/"), 3 + 6 * 3);
    retain(&j, &j.one, 0, 0);
    retain(&j, &j.one, -1, 0);
    retain(&j, &j.one, 100, 0);
    retain(&j, &j.one, 3, 9);
    for (uint32_t n = 1; n <= 6; n++) {
        assert_int_equal(hf_lineage_is_retired(&j.b.run, NULL, 1, n), n <= 3);
        assert_int_equal(verify(&j, &j.m[n]), n <= 3 ? HF_ECORRUPT : HF_OK);
    }
    /* The unchanged file's blocks lie in the first one's folder, and are named by those left. */
    assert_int_equal(store_count(j.b.store, "job/data/000001-000001-"), 3);
    assert_int_equal(store_count(j.b.store, "job/data/000001-000002-"), 0);
    assert_int_equal(store_count(j.b.store, "job/checkpoints/"),
                     6 + 3 * 2); /* and no pin can come */
    retain(&j, &j.one, 3, 0);
    retain(&j, &j.one, 1, 6);
    assert_int_equal(verify(&j, &j.m[6]), HF_OK);
    retain(&j, &j.one, 1, 0);
    retain(&j, &j.one, 0, 0);
    job_close(&j);
}

static void a_killed_collector_is_completed(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 4);
    struct hf_store *faulty = hf_store_faulty(j.b.store);
    struct hf_run run = {.store = faulty, .name = "job"};
    /* It fails at its nth call, for good, as if killed there. */
    for (uint64_t nth = 1;; nth++) {
        hf_store_fault_set(faulty, HF_SFAULT_FAIL, nth, true);
        uint64_t removed = 0;
        struct hf_call soon = {.deadline_ns = hf_now_ns() + 20 * HF_MS};
        enum hf_rc rc = hf_retain(&run, &soon, &j.one, 2, &removed, NULL);
        hf_store_fault_set(faulty, HF_SFAULT_FAIL, 0, false);
        assert_int_equal(verify(&j, &j.m[4]), HF_OK);
        assert_int_equal(verify(&j, &j.m[3]), HF_OK);
        if (rc == HF_OK) {
            assert_true(nth > 10);
            break;
        }
    }
    retain(&j, &j.one, 2, 0);
    assert_int_equal(store_count(j.b.store, "job/data/"), 3 + 6);
    j.b.store = faulty;
    job_close(&j);
}

static void nothing_goes_while_a_manifest_cannot_be_read(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 4);
    char key[HF_KEY_MAX];
    struct hf_buf good;
    struct hf_err err;
    uint64_t removed = 0;
    hf_buf_init(&good, 1 << 20);
    hf_key_decision(key, "job", 1, 2);
    expect_rc(hf_store_get(j.b.store, NULL, key, &good, &err), HF_OK, &err);
    store_set(j.b.store, key, "{}");
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 3, &removed, &err), HF_ECORRUPT, &err);
    assert_non_null(strstr(err.msg, "checkpoint 1-2"));
    assert_non_null(strstr(err.hint, "ckpt rm job 1-2"));
    assert_int_equal(store_count(j.b.store, "job/data/"), 3 + 4 * 3);
    /* A newer format is no damage: it is never given up by us. */
    char *newer = hf_record_add_sum(strdup("{\"format\":2,\"features\":[]}"));
    store_set(j.b.store, key, newer);
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 1, &removed, &err), HF_ENOTSUP, &err);
    assert_int_equal(store_count(j.b.store, "job/data/"), 3 + 4 * 3);
    free(newer);
    expect_rc(hf_store_put(j.b.store, NULL, key, hf_buf_span(&good), 0, &err), HF_OK, &err);
    retain(&j, &j.one, 1, 9);
    hf_buf_release(&good);
    job_close(&j);
}

static void over_a_hand_off(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 3);
    struct hf_err err;
    uint64_t removed = 0;
    struct hf_claim two = must_claim(&j.b, 2);
    /* The old owner may do nothing any more. */
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 1, &removed, &err), HF_EEXISTS, &err);
    expect_rc(hf_lineage_seal(&j.b.run, NULL, &two, &err), HF_OK, &err);
    /* The new one may do nothing yet: its base may be any of them. */
    retain(&j, &two, 1, 0);
    struct hf_manifest first, second;
    save(&j, &two, 1, &j.m[3], &first);
    /* What a zombie uploads to the sealed number, and what is on its way, named by nobody. */
    store_set(j.b.store, "job/data/000001-000004-01234567/ab/zombie.raw", "x");
    char *zombie = hf_asprintf("job/data/000001-000004-01234567/ab/%s.raw", first.blocks[0].id);
    char *coming = hf_asprintf("job/data/000002-000002-01234567/ab/%s.raw", first.blocks[0].id);
    store_set(j.b.store, zombie, "x");
    store_set(j.b.store, coming, "x");
    retain(&j, &two, 1, 3 + 3 + 1);
    store_holds(j.b.store, zombie, NULL);
    store_holds(j.b.store, coming, "x");
    store_holds(j.b.store, "job/data/000001-000004-01234567/ab/zombie.raw", "x"); /* not ours */
    assert_int_equal(verify(&j, &j.m[3]), HF_OK); /* what there is to step back to */
    assert_int_equal(verify(&j, &first), HF_OK);
    save(&j, &two, 2, &first, &second);
    retain(&j, &two, 1, 3 + 1); /* with what lay there and is not in it */
    assert_int_equal(verify(&j, &second), HF_OK);
    assert_int_equal(verify(&j, &j.m[3]), HF_OK);
    struct hf_claim three = must_claim(&j.b, 3);
    expect_rc(hf_lineage_seal(&j.b.run, NULL, &three, &err), HF_OK, &err);
    struct hf_manifest chosen;
    expect_rc(hf_lineage_choose(&j.b.run, NULL, &three, 0, &chosen, &err), HF_OK, &err);
    assert_int_equal(chosen.number, 2);
    hf_manifest_release(&chosen);
    expect_rc(hf_lineage_choose(&j.b.run, NULL, &three, 1, &chosen, &err), HF_OK, &err);
    assert_int_equal(chosen.attempt, 1);
    assert_int_equal(chosen.number, 3);
    hf_manifest_release(&chosen);
    hf_manifest_release(&first);
    hf_manifest_release(&second);
    hf_claim_release(&two);
    hf_claim_release(&three);
    free(zombie);
    free(coming);
    job_close(&j);
}

/* What nobody can read any more does not make the store grow for ever. */
static void a_damaged_one_goes_once_it_is_replaced(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 5);
    char key[HF_KEY_MAX];
    store_set(j.b.store, hf_key_decision(key, "job", 1, 2), "{}");
    struct hf_err err;
    uint64_t removed = 0;
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 4, &removed, &err), HF_ECORRUPT, &err);
    retain(&j, &j.one, 3, 6);
    assert_true(hf_lineage_is_retired(&j.b.run, NULL, 1, 2));
    for (uint32_t n = 3; n <= 5; n++) {
        assert_int_equal(verify(&j, &j.m[n]), HF_OK);
    }
    job_close(&j);
}

static bool lose_one(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct job *j = user;
    struct hf_err err;
    expect_rc(hf_store_remove(j->b.store, NULL, key, &err), HF_OK, &err);
    return false;
}

/* Newer ones that lack blocks take nobody's place. */
static void test_c10_the_last_good_one_stays(void **state)
{
    (void)state;
    struct job j;
    struct hf_err err;
    job_open(&j, 5);
    for (uint32_t n = 4; n <= 5; n++) {
        char *prefix = hf_asprintf("job/data/000001-%06u-", n);
        expect_rc(hf_store_list(j.b.store, NULL, prefix, lose_one, &j, &err), HF_OK, &err);
        free(prefix);
    }
    retain(&j, &j.one, 1, 2 * 3 + 2); /* 1, 2, and what is left of 4 */
    assert_int_equal(verify(&j, &j.m[3]), HF_OK);
    for (uint32_t n = 1; n <= 5; n++) {
        assert_int_equal(hf_lineage_is_retired(&j.b.run, NULL, 1, n), n != 3 && n != 5);
    }
    save(&j, &j.one, 6, NULL, &j.m[6]); /* from a new start all is whole: the old one may go */
    retain(&j, &j.one, 1, 3 + 3 + 2);
    assert_int_equal(verify(&j, &j.m[6]), HF_OK);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c8_plan),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(a_killed_collector_is_completed),
        cmocka_unit_test(nothing_goes_while_a_manifest_cannot_be_read),
        cmocka_unit_test(a_damaged_one_goes_once_it_is_replaced),
        cmocka_unit_test(test_c10_the_last_good_one_stays),
        cmocka_unit_test(over_a_hand_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
