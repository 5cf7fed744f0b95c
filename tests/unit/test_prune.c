/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/prune and pin: what a person may remove and keep by hand, also while an attempt runs;
 * what is refused; left-over uploads; pins against removals, at every call.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/pin.h"
#include "checkpoint/prune.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define PER_SAVE 3 /* blocks of the file that every save changes */

struct job {
    struct bench b;
    struct hf_claim one;
    char *root;
    struct hf_manifest m[8]; /* of attempt 1, by number */
};

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

static void end_of(struct job *j, const struct hf_claim *claim)
{
    static char outcome[] = "preempted", replacement[] = "unknown";
    struct hf_end end = {.outcome = outcome, .replacement = replacement, .exit_code = -1};
    struct hf_err err;
    memcpy(end.nonce, claim->nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&j->b.run, NULL, claim->attempt, &end, &err), HF_OK, &err);
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

/* Removes "A-N A-N..." and says how many blocks went; *why gets the message of a refusal. */
static enum hf_rc rm(struct job *j, const char *ids, bool even_last, uint64_t *ret_blocks,
                     struct hf_err *why)
{
    struct hf_ckpt_id list[8];
    struct hf_prune_in in = {.run = &j->b.run, .ids = list, .even_last = even_last};
    unsigned a = 0, n = 0;
    int used = 0;
    for (const char *p = ids; sscanf(p, "%u-%u%n", &a, &n, &used) == 2; p += used) {
        list[in.n_ids++] = (struct hf_ckpt_id){.attempt = a, .number = n};
    }
    struct hf_prune_report r = {.len = 0};
    enum hf_rc rc = hf_prune(&in, NULL, &r, why);
    *ret_blocks = r.blocks;
    hf_prune_report_release(&r);
    return rc;
}

static void must_rm(struct job *j, const char *ids, uint64_t want_blocks)
{
    struct hf_err err = {.code = HF_OK};
    uint64_t blocks = 0;
    expect_rc(rm(j, ids, false, &blocks, &err), HF_OK, &err);
    assert_int_equal(blocks, want_blocks);
}

static void refuses(struct job *j, const char *ids, bool even_last, enum hf_rc want,
                    const char *text)
{
    struct hf_err err = {.code = HF_OK};
    uint64_t blocks = 0;
    size_t before = store_count(j->b.store, "job/");
    expect_rc(rm(j, ids, even_last, &blocks, &err), want, &err);
    if (strstr(err.msg, text) == NULL) {
        fail_msg("'%s' does not say '%s'", err.msg, text);
    }
    assert_int_equal(store_count(j->b.store, "job/"), before); /* nothing was marked either */
}

static void what_may_go_goes(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 5);
    end_of(&j, &j.one);
    must_rm(&j, "1-2 1-4", 2 * PER_SAVE);
    must_rm(&j, "1-2", 0);        /* again: nothing is left to do */
    must_rm(&j, "1-1", PER_SAVE); /* the unchanged file's blocks lie there, and stay */
    assert_int_equal(verify(&j, &j.m[3]), HF_OK);
    assert_int_equal(verify(&j, &j.m[5]), HF_OK);
    assert_int_equal(verify(&j, &j.m[4]), HF_ECORRUPT);
    assert_int_equal(store_count(j.b.store, "job/checkpoints/"), 5 + 3 * 2);
    refuses(&j, "1-9", false, HF_ENOTFOUND, "no checkpoint 1-9");
    refuses(&j, "1-3 2-1", false, HF_ENOTFOUND, "no checkpoint 2-1");
    refuses(&j, "1-3 1-5", false, HF_EDENIED, "1-5 is the last good one");
    uint64_t blocks = 0;
    struct hf_err err;
    expect_rc(rm(&j, "1-3 1-5", true, &blocks, &err), HF_OK, &err);
    assert_int_equal(blocks, 3 + 2 * PER_SAVE);
    assert_int_equal(store_count(j.b.store, "job/data/"), 0);
    job_close(&j);
}

/* The last good one is the newest of which every block is there, and not just the newest. */
static void test_c10_the_last_good_one_stays(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 3);
    end_of(&j, &j.one);
    for (uint32_t i = 0; i < j.m[3].n_blocks; i++) {
        char key[HF_KEY_MAX];
        struct hf_err err;
        if (strstr(j.m[3].blocks[i].where, "-000003-") != NULL) {
            hf_key_block(key, "job", &j.m[3].blocks[i]);
            expect_rc(hf_store_remove(j.b.store, NULL, key, &err), HF_OK, &err);
            break;
        }
    }
    refuses(&j, "1-2", false, HF_EDENIED, "1-2 is the last good one");
    must_rm(&j, "1-3", PER_SAVE - 1); /* the damaged one may go */
    refuses(&j, "1-2", false, HF_EDENIED, "1-2 is the last good one");
    must_rm(&j, "1-1", PER_SAVE);
    assert_int_equal(verify(&j, &j.m[2]), HF_OK);
    job_close(&j);
}

static void test_c6_what_a_running_attempt_builds_upon_stays(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 4);
    /* Attempt 1 lives: whoever says --even-last, too. */
    refuses(&j, "1-4", true, HF_EDENIED, "attempt 1 builds upon");
    must_rm(&j, "1-3", PER_SAVE);
    struct hf_err err;
    struct hf_claim two = must_claim(&j.b, 2);
    expect_rc(hf_lineage_seal(&j.b.run, NULL, &two, &err), HF_OK, &err);
    /* Attempt 2 has not chosen yet: it may still step back to any. */
    refuses(&j, "1-1", false, HF_EAGAIN, "attempt 2 has not said yet");
    expect_rc(hf_lineage_put_base(&j.b.run, NULL, &two, &j.m[2], &err), HF_OK, &err);
    refuses(&j, "1-2", true, HF_EDENIED, "attempt 2 builds upon");
    must_rm(&j, "1-1", PER_SAVE);
    /* A save under way: its blocks are named by nobody yet, and stay. */
    char *coming =
        hf_asprintf("job/data/000002-000001-%.8s/ab/%s.raw", two.nonce, j.m[1].blocks[0].id);
    store_set(j.b.store, coming, "x");
    must_rm(&j, "1-1", 0);
    store_holds(j.b.store, coming, "x");
    struct hf_manifest first;
    save(&j, &two, 1, &j.m[2], &first);
    /* Its own file's; what the other file needs is named by attempt 2 now. And what was uploaded
     * for 2-1 and is not in it. */
    must_rm(&j, "1-2", PER_SAVE + 1);
    store_holds(j.b.store, coming, NULL);
    assert_int_equal(verify(&j, &first), HF_OK);
    hf_manifest_release(&first);
    hf_claim_release(&two);
    free(coming);
    job_close(&j);
}

/* What was marked and not removed yet, when an attempt has chosen it just before. */
static void a_retired_base_keeps_its_blocks(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 3);
    struct hf_err err;
    struct hf_claim two = must_claim(&j.b, 2);
    expect_rc(hf_lineage_seal(&j.b.run, NULL, &two, &err), HF_OK, &err);
    expect_rc(hf_lineage_put_base(&j.b.run, NULL, &two, &j.m[2], &err), HF_OK, &err);
    char key[HF_KEY_MAX];
    store_set(j.b.store, hf_key_retired(key, "job", 1, 2), "{}");
    store_set(j.b.store, hf_key_retired(key, "job", 1, 1), "{}");
    must_rm(&j, "1-1", PER_SAVE);
    assert_int_equal(verify(&j, &j.m[2]), HF_OK);
    hf_claim_release(&two);
    job_close(&j);
}

static void collect(struct job *j, bool dry, uint64_t want_blocks, uint64_t want_bytes)
{
    struct hf_prune_in in = {.run = &j->b.run, .dry_run = dry};
    struct hf_prune_report r;
    struct hf_err err;
    expect_rc(hf_prune(&in, NULL, &r, &err), HF_OK, &err);
    assert_int_equal(r.blocks, want_blocks);
    assert_int_equal(r.bytes, want_bytes);
    hf_prune_report_release(&r);
}

static void left_overs_are_collected(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 2);
    struct hf_err err;
    char id[HF_ID_STRLEN];
    memset(id, 'c', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    /* 3: aborted; 4: the seal's, or a zombie's; 5: beyond it. */
    for (int n = 3; n <= 5; n++) {
        char *key = hf_asprintf("job/data/000001-%06d-01234567/cc/%s.raw", n, id);
        store_set(j.b.store, key, "12345");
        free(key);
    }
    collect(&j, false, 0, 0); /* attempt 1 lives: any of them may be on its way */
    struct hf_decision abort = {.kind = HF_DECISION_ABORT};
    memcpy(abort.nonce, j.one.nonce, sizeof(abort.nonce));
    expect_rc(hf_lineage_decide(&j.b.run, NULL, &j.one, 3, &abort, &err), HF_OK, &err);
    collect(&j, true, 1, 5);
    collect(&j, false, 1, 5);
    struct hf_claim two = must_claim(&j.b, 2);
    expect_rc(hf_lineage_seal(&j.b.run, NULL, &two, &err), HF_OK, &err);
    expect_rc(hf_lineage_put_base(&j.b.run, NULL, &two, &j.m[2], &err), HF_OK, &err);
    collect(&j, true, 2, 10);
    collect(&j, true, 2, 10); /* a dry run removes nothing */
    collect(&j, false, 2, 10);
    collect(&j, false, 0, 0);
    assert_int_equal(verify(&j, &j.m[1]), HF_OK);
    assert_int_equal(verify(&j, &j.m[2]), HF_OK);
    hf_claim_release(&two);
    job_close(&j);
}

static void what_is_damaged_can_be_given_up(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 4);
    char key[HF_KEY_MAX];
    store_set(j.b.store, hf_key_decision(key, "job", 1, 2), "{}");
    refuses(&j, "1-1", false, HF_ECORRUPT, "checkpoint 1-2");
    must_rm(&j, "1-2", PER_SAVE);
    must_rm(&j, "1-1", PER_SAVE);
    /* The newest one of an attempt that runs: its supervisor still builds upon it. */
    store_set(j.b.store, hf_key_decision(key, "job", 1, 4), "{}");
    refuses(&j, "1-4", true, HF_EDENIED, "attempt 1 builds upon");
    end_of(&j, &j.one);
    refuses(&j, "1-4 1-3", false, HF_EDENIED, "1-3 is the last good one");
    must_rm(&j, "1-4", PER_SAVE);
    assert_int_equal(verify(&j, &j.m[3]), HF_OK);
    job_close(&j);
}

static void pin(struct job *j, uint32_t number, bool pinned, enum hf_rc want)
{
    struct hf_err err = {.code = HF_OK};
    expect_rc(hf_pin_set(&j->b.run, NULL, 1, number, pinned, &err), want, &err);
}

static enum hf_pin_state pin_of(struct job *j, uint32_t number, uint32_t want_n)
{
    enum hf_pin_state state = HF_PIN_NONE;
    uint32_t n = 0;
    struct hf_err err;
    expect_rc(hf_pin_get(&j->b.run, NULL, 1, number, &state, &n, &err), HF_OK, &err);
    assert_int_equal(n, want_n);
    return state;
}

static void pins(void **state)
{
    (void)state;
    struct job j;
    job_open(&j, 4);
    assert_int_equal(pin_of(&j, 1, 0), HF_PIN_NONE);
    pin(&j, 1, false, HF_OK);
    assert_int_equal(pin_of(&j, 1, 0), HF_PIN_NONE);
    pin(&j, 1, true, HF_OK);
    pin(&j, 1, true, HF_OK);
    assert_int_equal(pin_of(&j, 1, 1), HF_PIN_PINNED);
    pin(&j, 9, true, HF_ENOTFOUND);
    refuses(&j, "1-1", true, HF_EDENIED, "is pinned");
    /* Retention goes around it. */
    uint64_t removed = 0;
    struct hf_err err;
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 1, &removed, &err), HF_OK, &err);
    assert_int_equal(removed, 2 * PER_SAVE);
    assert_int_equal(verify(&j, &j.m[1]), HF_OK);
    assert_int_equal(verify(&j, &j.m[4]), HF_OK);
    assert_int_equal(pin_of(&j, 2, 1), HF_PIN_CLOSED);
    pin(&j, 2, true, HF_EEXISTS);
    pin(&j, 1, false, HF_OK);
    pin(&j, 1, true, HF_OK);
    pin(&j, 1, false, HF_OK);
    assert_int_equal(pin_of(&j, 1, 4), HF_PIN_UNPINNED);
    expect_rc(hf_retain(&j.b.run, NULL, &j.one, 1, &removed, &err), HF_OK, &err);
    assert_int_equal(removed, PER_SAVE);
    assert_int_equal(pin_of(&j, 1, 5), HF_PIN_CLOSED);
    /* A pin that cannot be read is one. */
    char key[HF_KEY_MAX];
    pin(&j, 4, true, HF_OK);
    store_set(j.b.store, hf_key_pin(key, "job", 1, 4, 1), "?");
    assert_int_equal(pin_of(&j, 4, 1), HF_PIN_PINNED);
    job_close(&j);
}

/* A store in which somebody pins checkpoint 1-1 just before the nth call. */
struct meddling {
    struct hf_store store;
    struct hf_store *inner;
    unsigned calls, nth;
    enum hf_rc answer; /* of the pin */
};

static void meddle(struct meddling *m)
{
    if (++m->calls == m->nth) {
        struct hf_run run = {.store = m->inner, .name = "job"};
        m->answer = hf_pin_set(&run, NULL, 1, 1, true, NULL);
    }
}

static enum hf_rc meddle_get(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_buf *ret, struct hf_err *err)
{
    meddle((struct meddling *)s);
    return hf_store_get(((struct meddling *)s)->inner, c, key, ret, err);
}

static enum hf_rc meddle_put(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    meddle((struct meddling *)s);
    return hf_store_put(((struct meddling *)s)->inner, c, key, data, flags, err);
}

static enum hf_rc meddle_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                              hf_list_fn *each, void *user, struct hf_err *err)
{
    meddle((struct meddling *)s);
    return hf_store_list(((struct meddling *)s)->inner, c, prefix, each, user, err);
}

static enum hf_rc meddle_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                                struct hf_err *err)
{
    meddle((struct meddling *)s);
    return hf_store_remove(((struct meddling *)s)->inner, c, key, err);
}

static const struct hf_store_ops meddle_ops = {.size = sizeof(struct hf_store_ops),
                                               .scheme = "meddle",
                                               .get = meddle_get,
                                               .put = meddle_put,
                                               .list = meddle_list,
                                               .remove = meddle_remove};

/* Whenever the pin comes: if its owner was told that it holds, nothing of the checkpoint goes. */
static void a_pin_and_a_removal_that_meet(void **state)
{
    (void)state;
    bool held = false, late = false;
    for (unsigned nth = 1;; nth++) {
        struct job j;
        job_open(&j, 3);
        struct meddling m = {.store = {.ops = &meddle_ops, .caps = HF_STORE_CREATE_ONLY},
                             .inner = j.b.store,
                             .nth = nth};
        struct hf_run run = {.store = &m.store, .name = "job"};
        uint64_t removed = 0;
        struct hf_err err;
        expect_rc(hf_retain(&run, NULL, &j.one, 1, &removed, &err), HF_OK, &err);
        bool over = m.calls < nth;
        if (!over) {
            assert_true(m.answer == HF_OK || m.answer == HF_EEXISTS);
            assert_int_equal(verify(&j, &j.m[1]), m.answer == HF_OK ? HF_OK : HF_ECORRUPT);
            assert_int_equal(hf_lineage_is_retired(&j.b.run, NULL, 1, 1), m.answer != HF_OK);
            held = held || m.answer == HF_OK;
            late = late || m.answer == HF_EEXISTS;
        }
        job_close(&j);
        if (over) {
            break;
        }
    }
    assert_true(held && late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_go_goes),
        cmocka_unit_test(test_c10_the_last_good_one_stays),
        cmocka_unit_test(test_c6_what_a_running_attempt_builds_upon_stays),
        cmocka_unit_test(a_retired_base_keeps_its_blocks),
        cmocka_unit_test(left_overs_are_collected),
        cmocka_unit_test(what_is_damaged_can_be_given_up),
        cmocka_unit_test(pins),
        cmocka_unit_test(a_pin_and_a_removal_that_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
