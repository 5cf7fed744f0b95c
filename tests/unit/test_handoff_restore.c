/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/handoff, the state: a save that a dead attempt had not shipped is committed as that
 * attempt's, the newest checkpoint is restored, damage steps back, and trouble judges nothing.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/journal.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_handoff.h"

/* ---- what was not shipped ---- */

/* The trainer's folder for that step; owned by the caller. */
static char *root_of(const struct handoff_scene *s, int64_t step)
{
    HF_CLEANUP(hf_freep) char *name = hf_asprintf("ckpt/step-%lld", (long long)step);
    return bench_path(&s->bench, name);
}

/* The trainer's folder with 9000 bytes, noted as saved at that step. */
static void note_save(const struct handoff_scene *s, const char *dir, int64_t step)
{
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *root = root_of(s, step);
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
    put_noise(file, 9000, 1);
    struct hf_saved *v = HF_NEW(struct hf_saved);
    v->serial = (uint64_t)step;
    v->step = step;
    v->request = 4;
    v->reason = hf_strdup("notice");
    v->strategy = hf_strdup("watch");
    v->resume_path = hf_strdup(root);
    hf_strv_add(&v->roots, root);
    expect_rc(hf_stamps_take(&v->roots, &v->stamps, &err), HF_OK, &err);
    expect_rc(hf_journal_put_save(dir, v, &err), HF_OK, &err);
    hf_saved_free(v);
}

/* An attempt that had shipped one checkpoint, of step 100. */
static char *shipped_attempt(struct handoff_scene *s)
{
    handoff_claim_as(s, 1, HERE);
    HF_CLEANUP(hf_freep) char *root = bench_path(&s->bench, "ckpt/step-100");
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
    put_noise(file, 9000, 1);
    struct hf_save_in in = save_of(&s->bench, &s->last, 1, root);
    struct hf_manifest m = {0};
    must_save(&in, &m);
    hf_manifest_release(&m);
    save_in_release(&in);
    return handoff_journal(s);
}

static void a_save_is_recovered(void **state)
{
    (void)state;
    for (int mem = 0; mem < 2; mem++) {
        struct handoff_scene s;
        struct hf_err err;
        struct hf_store *store = NULL;
        expect_rc(mem == 1 ? hf_store_open("mem:x", NULL, &store, &err) : HF_OK, HF_OK, &err);
        handoff_open(&s, store);
        HF_CLEANUP(hf_freep) char *dir = shipped_attempt(&s);
        note_save(&s, dir, 150);
        note_save(&s, dir, 200);
        handoff_expect(&s, HF_HANDOFF_CLAIMED);
        assert_true(s.out.recovered);
        assert_int_equal(s.out.recovered_step, 200);
        assert_string_equal(s.out.why, "");
        struct hf_decision d = {0};
        expect_rc(hf_lineage_get_decision(&s.bench.run, NULL, 1, 2, &d, &err), HF_OK, &err);
        assert_string_equal(d.manifest.nonce, s.last.nonce); /* attempt 1's own */
        assert_string_equal(d.manifest.reason, "recovered");
        assert_int_equal(d.manifest.step, 200);
        assert_int_equal(d.manifest.request, 4);
        assert_int_equal(d.manifest.parent_number, 1);
        assert_int_equal(d.manifest.bytes_sent, 0); /* its blocks were all there */
        hf_decision_release(&d);
        struct hf_restored r = {0};
        expect_rc(hf_handoff_restore(&s.bench.run, &handoff_no_limit, &s.out.claim, &r, &err),
                  HF_OK, &err);
        assert_int_equal(r.manifest.step, 200);
        hf_restored_release(&r);
        struct hf_saved *left = NULL;
        uint64_t serial = 0;
        expect_rc(hf_journal_unshipped(dir, &left, &serial, &err), HF_OK, &err);
        assert_null(left);
        handoff_close(&s);
    }
}

static void what_cannot_be_recovered(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct handoff_scene s;
        struct hf_err err;
        handoff_open(&s, NULL);
        HF_CLEANUP(hf_freep) char *dir = shipped_attempt(&s);
        note_save(&s, dir, 200);
        HF_CLEANUP(hf_freep) char *root = bench_path(&s.bench, "ckpt/step-200");
        HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
        HF_CLEANUP(hf_freep) char *more = hf_asprintf("%s/more", root);
        if (how == 0) {
            put_noise(file, 9000, 2); /* written since */
        } else if (how == 1) {
            put_text(more, "added since");
        } else {
            expect_rc(hf_fs_remove_tree(root, &err), HF_OK, &err);
        }
        handoff_expect(&s, HF_HANDOFF_CLAIMED);
        assert_false(s.out.recovered);
        assert_string_not_equal(s.out.why, "");
        struct hf_restored r = {0};
        expect_rc(hf_handoff_restore(&s.bench.run, &handoff_no_limit, &s.out.claim, &r, &err),
                  HF_OK, &err);
        assert_int_equal(r.manifest.step, 100); /* the last good one stands */
        hf_restored_release(&r);
        handoff_close(&s);
    }
}

/* A run that somebody else has sealed already takes nothing more. */
static void a_sealed_attempt_is_left_alone(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct hf_err err;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = shipped_attempt(&s);
    note_save(&s, dir, 200);
    struct hf_claim sealer = make_claim(2);
    expect_rc(hf_lineage_seal(&s.bench.run, NULL, &sealer, &err), HF_OK, &err);
    hf_claim_release(&sealer);
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_false(s.out.recovered);
    assert_non_null(strstr(s.out.why, "sealed"));
    handoff_close(&s);
}

/* ---- what is restored ---- */

/* Saves that attempt's checkpoint of step 100 * number, in a folder of its own. */
static void ship_one(struct handoff_scene *s, uint32_t number)
{
    HF_CLEANUP(hf_freep) char *root = root_of(s, (int64_t)number * 100);
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
    put_noise(file, 9000, number);
    struct hf_save_in in = save_of(&s->bench, &s->last, number, root);
    struct hf_manifest m = {0};
    must_save(&in, &m);
    hf_manifest_release(&m);
    save_in_release(&in);
}

/* Attempt 1 with n checkpoints, ended; attempt 2 is claimed and in s->out; the trainer's folders
 * are gone, as on a new machine. */
static void two_attempts(struct handoff_scene *s, struct hf_store *store_taken, uint32_t n)
{
    struct hf_err err;
    handoff_open(s, store_taken);
    handoff_claim_as(s, 1, ELSEWHERE);
    for (uint32_t i = 1; i <= n; i++) {
        ship_one(s, i);
    }
    handoff_end_as(s, "preempted");
    HF_CLEANUP(hf_freep) char *trees = bench_path(&s->bench, "ckpt");
    expect_rc(hf_fs_remove_tree(trees, &err), HF_OK, &err);
    handoff_expect(s, HF_HANDOFF_CLAIMED);
}

static enum hf_rc restore(struct handoff_scene *s, struct hf_restored *r, struct hf_err *err)
{
    return hf_handoff_restore(&s->bench.run, &handoff_no_limit, &s->out.claim, r, err);
}

/* Overwrites the only block that this checkpoint uploaded, or its decision. */
static void damage(const struct handoff_scene *s, uint32_t number, bool decision)
{
    char key[HF_KEY_MAX];
    struct hf_err err;
    if (decision) {
        store_set(s->bench.store, hf_key_decision(key, "job", 1, number), "{\"format\":1,");
        return;
    }
    struct hf_decision d = {0};
    expect_rc(hf_lineage_get_decision(&s->bench.run, NULL, 1, number, &d, &err), HF_OK, &err);
    store_set(s->bench.store, hf_key_block(key, "job", &d.manifest.blocks[0]), "rot");
    hf_decision_release(&d);
}

static void the_newest_is_restored(void **state)
{
    (void)state;
    for (int mem = 0; mem < 2; mem++) {
        struct handoff_scene s;
        struct hf_err err;
        struct hf_store *store = NULL;
        expect_rc(mem == 1 ? hf_store_open("mem:x", NULL, &store, &err) : HF_OK, HF_OK, &err);
        two_attempts(&s, store, 3);
        struct hf_restored r = {0};
        expect_rc(restore(&s, &r, &err), HF_OK, &err);
        assert_true(r.any);
        assert_int_equal(r.manifest.step, 300);
        assert_int_equal(r.damaged.len, 0);
        assert_int_equal(r.report.bytes, 9000);
        HF_CLEANUP(hf_freep) char *root = root_of(&s, 300);
        assert_string_equal(r.manifest.resume_path, root);
        HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
        assert_true(hf_fs_exists(file));
        HF_CLEANUP(hf_freep) char *older = root_of(&s, 200);
        assert_false(hf_fs_exists(older));
        hf_restored_release(&r);
        /* Attempt 1 is sealed: what it commits from now on changes nothing. */
        assert_int_equal(try_commit(&s.bench, &s.last, 4, &err), HF_EEXISTS);
        /* Restored again, all is there already. */
        expect_rc(restore(&s, &r, &err), HF_OK, &err);
        assert_int_equal(r.report.bytes, 0);
        assert_int_equal(r.report.bytes_kept, 9000);
        hf_restored_release(&r);
        store_holds(s.bench.store, "job/attempts/000003.json", NULL);
        handoff_close(&s);
    }
}

static void nothing_to_restore(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct hf_err err;
    struct hf_restored r = {0};
    two_attempts(&s, NULL, 0);
    expect_rc(restore(&s, &r, &err), HF_OK, &err);
    assert_false(r.any);
    hf_restored_release(&r);
    handoff_close(&s);
    /* --fresh: what is there is not looked at, and stays. */
    two_attempts(&s, NULL, 2);
    s.out.claim.fresh = true;
    expect_rc(restore(&s, &r, &err), HF_OK, &err);
    assert_false(r.any);
    hf_restored_release(&r);
    struct hf_decision d = {0};
    expect_rc(hf_lineage_get_decision(&s.bench.run, NULL, 1, 2, &d, &err), HF_OK, &err);
    hf_decision_release(&d);
    handoff_close(&s);
}

/* How many of three checkpoints are damaged, and how. */
static void damage_steps_back(void **state)
{
    (void)state;
    static const struct {
        const char *how; /* for each number from 3 down: b block, d decision, - sound */
        int64_t step;    /* -1: nothing is left */
        size_t damaged;
    } rows[] = {
        {"---", 300, 0}, {"b--", 200, 1}, {"d--", 200, 1}, {"bb-", 100, 2},
        {"dd-", 100, 2}, {"bd-", 100, 2}, {"db-", 100, 2}, {"-bd", 300, 0},
        {"b-b", 200, 1}, {"bbb", -1, 3},  {"ddd", -1, 3},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct handoff_scene s;
        struct hf_err err;
        struct hf_store *store = NULL;
        expect_rc(hf_store_open("mem:x", NULL, &store, &err), HF_OK, &err);
        two_attempts(&s, store, 3);
        for (uint32_t k = 0; k < 3; k++) {
            if (rows[i].how[k] != '-') {
                damage(&s, 3 - k, rows[i].how[k] == 'd');
            }
        }
        struct hf_restored r = {0};
        expect_rc(restore(&s, &r, &err), HF_OK, &err);
        if (r.any != (rows[i].step >= 0) || (r.any && r.manifest.step != rows[i].step) ||
            r.damaged.len != rows[i].damaged) {
            fail_msg("%s: step %lld, %zu damaged", rows[i].how, (long long)r.manifest.step,
                     r.damaged.len);
        }
        for (size_t k = 0; k < r.damaged.len; k++) {
            bool named = strstr(r.damaged.items[k], "damaged") != NULL ||
                         strstr(r.damaged.items[k], "cannot be read") != NULL;
            assert_true(named);
        }
        /* No half of the damaged ones is left where the trainer looks. */
        for (int64_t step = 100; step <= 300; step += 100) {
            HF_CLEANUP(hf_freep) char *root = root_of(&s, step);
            assert_int_equal(hf_fs_exists(root), step == rows[i].step);
        }
        hf_restored_release(&r);
        handoff_close(&s);
    }
}

/* Who was taken over judges nothing to be damaged. */
static void superseded(void **state)
{
    (void)state;
    for (int decision = 0; decision < 2; decision++) {
        struct handoff_scene s;
        struct hf_err err;
        struct hf_restored r = {0};
        two_attempts(&s, NULL, 2);
        damage(&s, 2, decision == 1);
        struct hf_claim higher = must_claim(&s.bench, 3);
        expect_rc(restore(&s, &r, &err), HF_EEXISTS, &err);
        assert_non_null(strstr(err.msg, "superseded"));
        assert_false(r.any);
        hf_restored_release(&r);
        hf_claim_release(&higher);
        handoff_close(&s);
    }
}

static struct hf_store *faulty_store(void)
{
    struct hf_err err;
    struct hf_store *store = NULL;
    expect_rc(hf_store_open("mem:x", NULL, &store, &err), HF_OK, &err);
    return hf_store_faulty(store);
}

/* A store that fails says nothing about a checkpoint: each call in turn, the newest is restored. */
static void every_single_fault_is_survived(void **state)
{
    (void)state;
    for (int kind = HF_SFAULT_FAIL; kind <= HF_SFAULT_LOST_REPLY; kind++) {
        for (uint64_t nth = 1;; nth++) {
            struct handoff_scene s;
            struct hf_err err;
            struct hf_restored r = {0};
            two_attempts(&s, faulty_store(), 2);
            hf_store_fault_set(s.bench.store, (enum hf_store_fault_kind)kind, nth, false);
            expect_rc(restore(&s, &r, &err), HF_OK, &err);
            uint64_t calls = hf_store_fault_calls(s.bench.store);
            hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
            if (!r.any || r.manifest.step != 200 || r.damaged.len != 0) {
                fail_msg("fault %d at call %ju: %d, %zu", kind, (uintmax_t)nth, r.any,
                         r.damaged.len);
            }
            hf_restored_release(&r);
            handoff_close(&s);
            if (calls < nth) {
                assert_true(nth > 4);
                break;
            }
        }
    }
}

/* It fails for good from each call on: an error, no judgement, and later all is as it was. */
static void a_dead_store_judges_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth += 3) {
        struct handoff_scene s;
        struct hf_err err;
        struct hf_restored r = {0};
        two_attempts(&s, faulty_store(), 2);
        hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, nth, true);
        struct hf_call soon = {.deadline_ns = hf_now_ns() + 50 * HF_MS};
        enum hf_rc rc = hf_handoff_restore(&s.bench.run, &soon, &s.out.claim, &r, &err);
        bool fired = hf_store_fault_calls(s.bench.store) >= nth;
        hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
        assert_int_equal(rc == HF_OK, !fired);
        assert_int_equal(r.damaged.len, 0);
        hf_restored_release(&r);
        expect_rc(restore(&s, &r, &err), HF_OK, &err);
        assert_int_equal(r.manifest.step, 200);
        hf_restored_release(&r);
        handoff_close(&s);
        if (!fired) {
            assert_true(nth > 4);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_is_recovered),
        cmocka_unit_test(what_cannot_be_recovered),
        cmocka_unit_test(a_sealed_attempt_is_left_alone),
        cmocka_unit_test(the_newest_is_restored),
        cmocka_unit_test(nothing_to_restore),
        cmocka_unit_test(damage_steps_back),
        cmocka_unit_test(superseded),
        cmocka_unit_test(every_single_fault_is_survived),
        cmocka_unit_test(a_dead_store_judges_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
