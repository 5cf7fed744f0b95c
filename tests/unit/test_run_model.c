/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/ against a reference model (support_run_model.h): random lives of a run over a store
 * in memory. Claims that race, saves of every shape, aborts, ends, take-overs that die half way,
 * zombies, pins, removals by hand, collection, retention with every `keep`, blocks and records that
 * rot, and the store going away at any call of any of these. After every step the store holds
 * exactly the blocks that the model says; what is listed and pinned agrees; nothing that a live
 * manifest needs has gone; and the newest good one comes back byte for byte. A failure prints the
 * seed (HOLDFAST_TEST_SEED) and the operations that led to it.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/prune.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_run_world.h"

#define STEPS 60 /* of one run's life */

static void give_up_number(struct rw *w, struct rm_attempt *a)
{
    struct hf_decision d = {.kind = HF_DECISION_ABORT};
    struct hf_err err = {.code = HF_OK};
    bool used = rm_find(&w->m, a->claim.attempt, a->next) != NULL;
    bool zombie = a->claim.attempt < w->m.top;
    memcpy(d.nonce, a->claim.nonce, sizeof(d.nonce));
    rw_note(w, "abort %u-%u", a->claim.attempt, a->next);
    enum hf_rc rc = hf_lineage_decide(&w->run, NULL, &a->claim, a->next, &d, &err);
    const struct rm_ckpt *k = rm_find(&w->m, a->claim.attempt, a->next);
    bool lost = k != NULL && k->garbled; /* nobody can tell whose it was */
    expect_rc(rc, zombie || lost ? HF_EEXISTS : used ? HF_EAGAIN : HF_OK, &err);
    if (rc == HF_OK) {
        rm_decide(&w->m, a->claim.attempt, a->next++, HF_DECISION_ABORT);
    }
}

/* ---- removals ---- */

struct removal {
    bool takes[RM_CKPTS]; /* by index */
    bool sweeps;          /* and then blocks go */
    bool by_owner;
    enum hf_rc want;
};

static bool waits_for_word(struct rw *w, const struct removal *r)
{
    bool waits = false;
    for (size_t i = 0; i < w->m.n_ckpts; i++) {
        const struct rm_ckpt *k = &w->m.ckpts[i];
        waits = waits || (k->garbled && !k->retired && !r->takes[i]);
    }
    return waits;
}

static void close_pins(struct rm_ckpt *k)
{
    k->pins += k->pin != HF_PIN_CLOSED ? 1 : 0;
    k->pin = HF_PIN_CLOSED;
}

/* Applies what was planned; after a cut what of it was done, which must be a first part of it. */
static uint64_t settle(struct rw *w, const struct removal *r, bool cut)
{
    struct rm_ckpt was[RM_CKPTS];
    memcpy(was, w->m.ckpts, sizeof(was));
    uint64_t gone = 0;
    bool doomed[RM_OBJECTS] = {false};
    for (size_t i = 0; i < w->m.n_ckpts; i++) {
        if (r->takes[i]) {
            close_pins(&w->m.ckpts[i]);
            w->m.ckpts[i].retired = true;
        }
    }
    for (size_t i = 0; r->sweeps && i < w->m.n_objects; i++) {
        doomed[i] = rm_object_is_waste(&w->m, i, r->by_owner);
    }
    for (size_t i = 0; i < w->m.n_objects; i++) {
        if (doomed[i] && (!cut || !rw_there(w, w->keys[i]))) {
            w->m.objects[i].there = false;
            gone++;
        }
    }
    bool marked_all = true;
    for (size_t i = 0; cut && i < w->m.n_ckpts; i++) {
        struct rm_ckpt *k = &w->m.ckpts[i];
        if (!r->takes[i]) {
            continue;
        }
        uint32_t n = 0;
        enum hf_pin_state pin = HF_PIN_NONE;
        struct hf_err err;
        expect_rc(hf_pin_get(&w->b.run, NULL, k->attempt, k->number, &pin, &n, &err), HF_OK, &err);
        bool retired = hf_lineage_is_retired(&w->b.run, NULL, k->attempt, k->number);
        assert_true(!retired || pin == HF_PIN_CLOSED); /* nobody can pin what goes */
        k->retired = retired;
        k->pin = pin == HF_PIN_CLOSED ? k->pin : was[i].pin;
        k->pins = pin == HF_PIN_CLOSED ? k->pins : was[i].pins;
        marked_all = marked_all && retired;
    }
    assert_true(gone == 0 || marked_all); /* marks first, then blocks */
    w->removed += (unsigned)gone;
    return gone;
}

static void retain(struct rw *w, struct rm_attempt *a)
{
    static const int64_t keeps[] = {-1, 0, 1, 1, 2, 2, 3, INT64_MAX};
    int64_t keep = keeps[rw_roll(w, HF_COUNT(keeps))];
    struct removal r = {.by_owner = true, .want = HF_OK};
    bool zombie = a->claim.attempt < w->m.top;
    bool own = false;
    for (size_t i = 0; i < w->m.n_ckpts; i++) {
        own = own || (w->m.ckpts[i].attempt == a->claim.attempt && rm_live(&w->m.ckpts[i]));
    }
    if (keep > 0 && zombie) {
        r.want = HF_EEXISTS;
    } else if (keep > 0 && own) {
        for (size_t i = 0; i < w->m.n_ckpts; i++) {
            const struct rm_ckpt *k = &w->m.ckpts[i];
            r.takes[i] = rm_retention_takes(&w->m, k, keep) && k->pin != HF_PIN_PINNED;
        }
        r.sweeps = !waits_for_word(w, &r);
        r.want = r.sweeps ? HF_OK : HF_ECORRUPT;
    }
    rw_note(w, "retain %lld by %u", (long long)keep, a->claim.attempt);
    rw_arm(w, 4, 60);
    uint64_t removed = 0;
    struct hf_err err = {.code = HF_OK};
    const struct rm_ckpt *good = rm_newest_whole(&w->m);
    enum hf_rc rc = hf_retain(&w->run, NULL, &a->claim, keep, &removed, &err);
    bool cut = rw_disarm(w);
    expect_rc(rc, cut ? HF_ECANCELED : r.want, &err);
    uint64_t gone = settle(w, &r, cut);
    assert_true(cut || rc != HF_OK || removed == gone);
    assert_true(good == NULL || !good->retired);
}

static void collect(struct rw *w, struct hf_prune_in *in, struct removal *r)
{
    struct hf_prune_report report = {.len = 0};
    struct hf_err err = {.code = HF_OK};
    const struct rm_ckpt *good = rm_newest_whole(&w->m);
    rw_arm(w, 4, 60);
    enum hf_rc rc = hf_prune(in, NULL, &report, &err);
    bool cut = rw_disarm(w);
    expect_rc(rc, cut ? HF_ECANCELED : r->want, &err);
    w->refused += rc == HF_EDENIED ? 1 : 0;
    if (in->dry_run) {
        uint64_t waste = 0;
        for (size_t i = 0; i < w->m.n_objects; i++) {
            waste += rm_object_is_waste(&w->m, i, false) ? 1 : 0;
        }
        assert_true(rc != HF_OK || report.blocks == waste);
    } else {
        uint64_t gone = settle(w, r, cut);
        assert_true(rc != HF_OK || report.blocks == gone);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < report.len; i++) {
        sum += report.items[i].blocks;
    }
    assert_int_equal(sum, report.blocks);
    hf_prune_report_release(&report);
    assert_true(good == NULL || in->even_last || !good->retired);
}

/* What a person is told who wants these gone, in the order in which it is looked at. */
static enum hf_rc answer(struct rw *w, const struct hf_prune_in *in, struct removal *r)
{
    bool unknown = false;
    const struct rm_ckpt *parent = rm_running_parent(&w->m, &unknown);
    const struct rm_ckpt *last = rm_newest_whole(&w->m);
    for (size_t i = 0; i < in->n_ids; i++) {
        const struct rm_ckpt *k = rm_find(&w->m, in->ids[i].attempt, in->ids[i].number);
        if (k != NULL && k->kind == HF_DECISION_MANIFEST && !k->retired) {
            r->takes[k - w->m.ckpts] = true;
        }
    }
    if (unknown || waits_for_word(w, r)) {
        return unknown ? HF_EAGAIN : HF_ECORRUPT;
    }
    for (size_t i = 0; i < in->n_ids; i++) {
        const struct rm_ckpt *k = rm_find(&w->m, in->ids[i].attempt, in->ids[i].number);
        if (k == NULL || k->kind != HF_DECISION_MANIFEST) {
            return HF_ENOTFOUND;
        }
        if (!k->retired &&
            (k == parent || k->pin == HF_PIN_PINNED || (k == last && !in->even_last))) {
            return HF_EDENIED;
        }
    }
    return HF_OK;
}

static void remove_by_hand(struct rw *w)
{
    struct hf_ckpt_id ids[3];
    struct hf_prune_in in = {.run = &w->run, .ids = ids, .n_ids = 1 + rw_roll(w, 3)};
    struct removal r = {.sweeps = true};
    in.even_last = rw_roll(w, 6) == 0;
    for (size_t i = 0; i < in.n_ids; i++) {
        const struct rm_ckpt *k = w->m.n_ckpts > 0 && rw_roll(w, 12) > 0
                                      ? &w->m.ckpts[rw_roll(w, w->m.n_ckpts)]
                                      : &(struct rm_ckpt){.attempt = 1, .number = 99};
        ids[i] = (struct hf_ckpt_id){.attempt = k->attempt, .number = k->number};
        rw_note(w, "rm %u-%u%s", k->attempt, k->number, in.even_last ? " even the last" : "");
    }
    r.want = answer(w, &in, &r);
    if (r.want != HF_OK) {
        memset(r.takes, 0, sizeof(r.takes)); /* all or none */
        r.sweeps = false;
    }
    collect(w, &in, &r);
}

static void collect_waste(struct rw *w)
{
    struct hf_prune_in in = {.run = &w->run, .dry_run = rw_roll(w, 3) == 0};
    struct removal r = {.sweeps = true};
    r.want = answer(w, &in, &r);
    r.sweeps = r.want == HF_OK;
    rw_note(w, "gc%s", in.dry_run ? " dry" : "");
    collect(w, &in, &r);
}

static void pin(struct rw *w)
{
    uint32_t attempt = w->m.top > 0 ? 1 + (uint32_t)rw_roll(w, w->m.top) : 1;
    uint32_t number = 1 + (uint32_t)rw_roll(w, 5);
    bool pinned = rw_roll(w, 3) > 0;
    struct rm_ckpt *k = rm_find(&w->m, attempt, number);
    struct hf_err err = {.code = HF_OK};
    enum hf_rc want = k == NULL || k->kind != HF_DECISION_MANIFEST ? HF_ENOTFOUND
                      : k->retired || k->pin == HF_PIN_CLOSED      ? HF_EEXISTS
                                                                   : HF_OK;
    rw_note(w, "%s %u-%u", pinned ? "pin" : "unpin", attempt, number);
    expect_rc(hf_pin_set(&w->run, NULL, attempt, number, pinned, &err), want, &err);
    enum hf_pin_state to = pinned ? HF_PIN_PINNED : HF_PIN_UNPINNED;
    if (want == HF_OK && k->pin != to && (pinned || k->pin != HF_PIN_NONE)) {
        k->pin = to;
        k->pins++;
    }
}

/* ---- damage ---- */

static void harm_object(struct rw *w)
{
    struct rm_object *o = w->m.n_objects > 0 ? &w->m.objects[rw_roll(w, w->m.n_objects)] : NULL;
    if (o == NULL || !o->there) {
        return;
    }
    const char *key = w->keys[o - w->m.objects];
    unsigned char bytes[RM_BLOCK];
    struct hf_err err;
    rm_bytes(o->piece, bytes);
    bytes[rw_roll(w, o->piece.len)] ^= (unsigned char)(1u << rw_roll(w, 8));
    uint64_t how = rw_roll(w, 3);
    struct hf_span data = {.ptr = bytes, .len = how == 1 ? rw_roll(w, o->piece.len) : o->piece.len};
    rw_note(w, "%s %s", how == 0 ? "lose" : how == 1 ? "cut" : "flip", key);
    expect_rc(how == 0 ? hf_store_remove(w->b.store, NULL, key, &err)
                       : hf_store_put(w->b.store, NULL, key, data, HF_PUT_REPLACE, &err),
              HF_OK, &err);
    o->harmed = true;
    o->there = how != 0;
    o->full = how == 2;
    o->right = false;
    w->damaged++;
}

static void harm_record(struct rw *w)
{
    struct rm_ckpt *k = w->m.n_ckpts > 0 ? &w->m.ckpts[rw_roll(w, w->m.n_ckpts)] : NULL;
    char key[HF_KEY_MAX];
    if (k == NULL || k->kind != HF_DECISION_MANIFEST) {
        return;
    }
    if (k->pins > 0 && rw_roll(w, 2) == 0) {
        rw_note(w, "garble the pin of %u-%u", k->attempt, k->number);
        store_set(w->b.store, hf_key_pin(key, "job", k->attempt, k->number, k->pins), "?");
        k->pin = HF_PIN_PINNED; /* to be sure */
    } else if (k->retired) {
        store_set(w->b.store, hf_key_retired(key, "job", k->attempt, k->number), "");
    } else {
        rw_note(w, "garble %u-%u", k->attempt, k->number);
        store_set(w->b.store, hf_key_decision(key, "job", k->attempt, k->number), "{}");
        k->garbled = true;
    }
    w->damaged++;
}

/* ---- claims ---- */

static struct rm_attempt *claim_next(struct rw *w, enum hf_claim_kind kind, bool fresh)
{
    struct hf_claim one = make_claim(w->m.top + 1);
    struct hf_claim two = make_claim(w->m.top + 1);
    struct hf_claim far = make_claim(w->m.top + 2);
    struct hf_err err = {.code = HF_OK};
    one.kind = kind;
    one.fresh = fresh;
    assert_int_equal(hf_lineage_claim(&w->run, NULL, &far, &err), HF_EINVAL);
    expect_rc(hf_lineage_claim(&w->run, NULL, &one, &err), HF_OK, &err);
    assert_int_equal(hf_lineage_claim(&w->run, NULL, &two, &err), HF_EEXISTS);
    expect_rc(hf_lineage_claim(&w->run, NULL, &one, &err), HF_OK, &err); /* its own, again */
    hf_claim_release(&two);
    hf_claim_release(&far);
    struct rm_attempt *a = &w->m.attempts[++w->m.top];
    *a = (struct rm_attempt){.claim = one, .next = 1, .parent = {.step = -1}};
    w->owner = 0;
    return a;
}

static void seal(struct rw *w, const struct rm_attempt *mine, bool *ret_cut)
{
    struct hf_err err = {.code = HF_OK};
    rw_arm(w, 5, 25);
    enum hf_rc rc = hf_lineage_seal(&w->run, NULL, &mine->claim, &err);
    *ret_cut = rw_disarm(w);
    expect_rc(rc, *ret_cut ? HF_ECANCELED : HF_OK, &err);
    for (uint32_t a = 1; a < mine->claim.attempt; a++) {
        struct rm_attempt *low = &w->m.attempts[a];
        char key[HF_KEY_MAX];
        uint32_t n = rm_free_number(&w->m, a, 1);
        bool put = rw_there(w, hf_key_decision(key, "job", a, n));
        assert_true(*ret_cut || low->claim.kind != HF_CLAIM_RUN || low->sealed || put);
        if (put) {
            assert_false(low->sealed);
            rm_decide(&w->m, a, n, HF_DECISION_SEAL);
            low->sealed = true;
        }
    }
}

/* What is restored: what lies on the disk already, and is equal, needs nothing of the store. */
static struct rm_ckpt *expected(struct rw *w, const struct hf_claim *mine, uint32_t *ret_passed)
{
    *ret_passed = 0;
    for (struct rm_ckpt *k = rm_older(&w->m, mine, NULL); k != NULL; k = rm_older(&w->m, mine, k)) {
        if (rm_good(&w->m, k) || (!k->garbled && rw_disk_is(w, &k->content))) {
            return k;
        }
        ++*ret_passed;
    }
    return NULL;
}

/* Chooses and restores, past what is damaged. */
static void restore_newest(struct rw *w, struct rm_attempt *a)
{
    uint32_t passed = 0;
    uint32_t skip = 0;
    const struct rm_ckpt *want = expected(w, &a->claim, &passed);
    struct hf_err err = {.code = HF_OK};
    for (;; skip++) {
        struct hf_manifest m = {.step = -1};
        struct hf_restore_report report = {.bytes = 0};
        enum hf_rc rc = hf_lineage_choose(&w->run, NULL, &a->claim, skip, &m, &err);
        if (rc == HF_ENOTFOUND) {
            assert_null(want);
            break;
        }
        rc = rc == HF_OK ? hf_restore(&w->run, NULL, &m, &report, &err) : rc;
        hf_restore_report_release(&report);
        if (rc == HF_OK) {
            assert_true(want != NULL && want->attempt == m.attempt && want->number == m.number);
            hf_manifest_release(&a->parent);
            a->parent = m;
            a->last_a = m.attempt;
            a->last_n = m.number;
            assert_true(rw_disk_is(w, &want->content));
            w->disk = want->content;
            break;
        }
        hf_manifest_release(&m);
        expect_rc(rc, HF_ECORRUPT, &err);
    }
    assert_int_equal(skip, passed);
    w->stepped_back += passed > 0 && want != NULL ? 1 : 0;
}

static void take_over(struct rw *w)
{
    if (w->m.top >= RM_ATTEMPTS - 1) {
        return;
    }
    bool cut = false;
    uint64_t dies = rw_roll(w, 12); /* after the claim, the seal, the restore */
    struct rm_attempt *a = claim_next(w, HF_CLAIM_RUN, rw_roll(w, 15) == 0);
    rw_note(w, "attempt %u%s, dies %llu", w->m.top, a->claim.fresh ? " fresh" : "",
            (unsigned long long)dies);
    if (dies == 0) {
        return;
    }
    seal(w, a, &cut);
    if (cut || dies == 1) {
        return;
    }
    struct hf_err err = {.code = HF_OK};
    if (rw_roll(w, 3) > 0) { /* another machine */
        expect_rc(hf_remove_all(w->root, &err), HF_OK, &err);
    }
    restore_newest(w, a);
    if (dies == 2) {
        return;
    }
    expect_rc(
        hf_lineage_put_base(&w->run, NULL, &a->claim, a->last_a > 0 ? &a->parent : NULL, &err),
        HF_OK, &err);
    a->has_base = true;
    a->base_attempt = a->last_a;
    a->base_number = a->last_n;
    w->owner = w->m.top;
}

static void leave(struct rw *w)
{
    static char outcome[] = "preempted", replacement[] = "unknown";
    struct hf_end end = {.outcome = outcome, .replacement = replacement, .exit_code = -1};
    struct rm_attempt *a = &w->m.attempts[w->owner];
    struct hf_err err;
    bool told = rw_roll(w, 2) == 0;
    rw_note(w, "attempt %u goes%s", w->owner, told ? " and says so" : "");
    if (told) {
        memcpy(end.nonce, a->claim.nonce, sizeof(end.nonce));
        expect_rc(hf_lineage_end(&w->run, NULL, w->owner, &end, &err), HF_OK, &err);
        a->ended = true;
    } else if (rw_roll(w, 8) == 0 && w->m.top < RM_ATTEMPTS - 1) {
        rw_note(w, "finished");
        claim_next(w, HF_CLAIM_FINISHED, false);
    }
    w->owner = 0;
}

/* Nobody but the highest is told to go on. */
static void beat(struct rw *w)
{
    for (uint32_t n = 1; n <= w->m.top; n++) {
        bool over = false;
        struct hf_err err;
        struct hf_beat put = {.counter = ++w->seeds, .step = -1};
        struct hf_beat got = {.counter = 0};
        const struct hf_claim *claim = &w->m.attempts[n].claim;
        expect_rc(hf_lineage_beat(&w->run, NULL, claim, &put, &over, &err), HF_OK, &err);
        assert_int_equal(over, n < w->m.top);
        expect_rc(hf_lineage_get_beat(&w->run, NULL, claim, &got, &err), HF_OK, &err);
        assert_int_equal(got.counter, put.counter);
    }
}

/* ---- lives ---- */

static void zombie_acts(struct rw *w)
{
    uint32_t n = w->m.top > 1 ? 1 + (uint32_t)rw_roll(w, w->m.top - 1) : 0;
    struct rm_attempt *z = &w->m.attempts[n];
    if (n == 0 || !z->has_base || z->ended) {
        return;
    }
    rw_note(w, "zombie %u", n);
    w->zombies++;
    switch (rw_roll(w, 3)) {
    case 0:
        rw_save(w, z);
        break;
    case 1:
        retain(w, z);
        break;
    default:
        give_up_number(w, z);
        break;
    }
}

static void step(struct rw *w)
{
    uint64_t what = rw_roll(w, 100);
    struct rm_attempt *own = w->owner > 0 ? &w->m.attempts[w->owner] : NULL;
    if (own == NULL && (w->m.top == 0 || what < 40)) {
        take_over(w);
    } else if (what < 40) {
        rw_save(w, own);
    } else if (what < 44) {
        zombie_acts(w);
    } else if (what < 58 && own != NULL) {
        retain(w, own);
    } else if (what < 68) {
        remove_by_hand(w);
    } else if (what < 75) {
        collect_waste(w);
    } else if (what < 83) {
        pin(w);
    } else if (what < 86 && own != NULL) {
        give_up_number(w, own);
    } else if (what < 89) {
        harm_object(w);
    } else if (what < 91) {
        harm_record(w);
    } else if (what < 93) {
        beat(w);
    } else if (what < 96 && own != NULL) {
        leave(w);
    } else {
        take_over(w); /* also while its predecessor still thinks that it owns the run */
    }
}

static void live(struct rw *w, uint64_t seed)
{
    struct hf_store *mem = NULL;
    struct hf_err err;
    w->x = w->seed = seed;
    expect_rc(hf_store_open("mem:model", NULL, &mem, &err), HF_OK, &err);
    bench_take(&w->b, mem);
    w->knife = (struct rw_knife){.store = {.ops = &rw_knife_ops, .caps = HF_STORE_CREATE_ONLY},
                                 .inner = mem};
    w->run = (struct hf_run){.store = &w->knife.store, .name = "job"};
    w->root = bench_path(&w->b, "ckpt");
    memset(&w->disk, 0, sizeof(w->disk));
    w->owner = 0;
    hf_buf_reset(&w->log);
    for (unsigned i = 0; i < STEPS && w->m.n_ckpts < RM_CKPTS - RM_ATTEMPTS; i++) {
        step(w);
        rw_agrees(w);
        if (i % 6 == 5) {
            rw_restores_agree(w);
        }
    }
    rm_release(&w->m);
    free(w->root);
    bench_close(&w->b);
}

static int setup(void **state)
{
    struct rw *w = calloc(1, sizeof(*w));
    hf_buf_init(&w->log, 1 << 20);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct rw *w = *state;
    if (!w->done) {
        print_message("again: HOLDFAST_TEST_SEED=%llu\n%s", (unsigned long long)w->seed,
                      hf_buf_str(&w->log));
    }
    hf_buf_release(&w->log);
    free(w);
    return 0;
}

static void test_random_lives_agree_with_the_model(void **state)
{
    struct rw *w = *state;
    const char *seed = getenv("HOLDFAST_TEST_SEED");
    unsigned lives = getenv("HOLDFAST_TEST_LONG") != NULL ? 2000 : 50;
    uint64_t first = hf_random_u64() % 1000000000;
    for (unsigned i = 0; i < (seed != NULL ? 1 : lives); i++) {
        live(w, seed != NULL ? strtoull(seed, NULL, 10) : first + i);
    }
    w->done = true;
    print_message("%u saves, %u cuts, %u replies lost, %u blocks removed, %u refusals, %u harmed, "
                  "%u steps back, %u zombies\n",
                  w->saves, w->cut, w->unknown, w->removed, w->refused, w->damaged, w->stepped_back,
                  w->zombies);
    assert_true(seed != NULL || (w->saves > 100 && w->cut > 50 && w->removed > 100 &&
                                 w->refused > 10 && w->damaged > 20));
}

int main(void)
{
    /* Flushing to a disk is what would take the time; it proves nothing here. */
    if (access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_lives_agree_with_the_model, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
