/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of simulated preemptions of one run: no time passes, the store is in memory, the rest
 * is the product's own code. Attempts save, fail, die anywhere; dead ones come back as zombies;
 * retention runs; blocks rot. After each hand-off the invariants of the design are checked: what
 * was reported is never passed over (1, 2), a zombie changes nothing (3), content is that of one
 * attempt and one version (4), something good always stands (5), decisions are never deleted.
 * 600 preemptions in `make check`, 10,000 in the long form. The seed is printed.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/retain.h"
#include "supervisor/handoff.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define ZOMBIES 6
#define KEPT    64 /* versions that are remembered; far more than retention leaves */

struct version {
    uint64_t number; /* 0: a free place */
    char hash[HF_ID_STRLEN];
    uint32_t attempt, checkpoint;
    bool acked, rotten;
};

struct attempt {
    struct hf_claim claim;
    struct hf_manifest last; /* its own newest, or what it restored */
    uint32_t next;
};

struct world {
    struct bench b;
    struct hf_store *inner; /* below the faults */
    char *root;
    uint64_t x; /* random state */
    uint64_t version;
    struct version versions[KEPT];
    struct attempt zombies[ZOMBIES];
    uint64_t decisions; /* keys that were seen at the last count */
    /* what happened, so that a run without any of it is noticed */
    unsigned saved, failures, lost_replies, stepped_back, zombie_tries, retained, all_rotten;
};

static uint64_t next(struct world *w, uint64_t n)
{
    w->x = w->x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w->x >> 33) % n;
}

static struct version *version_of(struct world *w, uint64_t number)
{
    struct version *v = &w->versions[number % KEPT];
    return v->number == number ? v : NULL;
}

/* The newest that was reported and has not rotted; NULL: none. */
static struct version *newest_good(struct world *w)
{
    struct version *best = NULL;
    for (size_t i = 0; i < KEPT; i++) {
        struct version *v = &w->versions[i];
        if (v->number != 0 && v->acked && !v->rotten &&
            (best == NULL || v->number > best->number)) {
            best = v;
        }
    }
    return best;
}

static void write_state(struct world *w, uint64_t version)
{
    HF_CLEANUP(hf_freep) char *frozen = hf_asprintf("%s/frozen.bin", w->root);
    HF_CLEANUP(hf_freep) char *weights = hf_asprintf("%s/weights.pt", w->root);
    put_noise(frozen, 900, 1);
    put_noise(weights, 300, (unsigned)version + 10);
}

static const char *weights_hash(const struct hf_manifest *m)
{
    for (uint32_t i = 0; i < m->n_files; i++) {
        if (strcmp(m->files[i].path, "weights.pt") == 0) {
            return m->files[i].hash;
        }
    }
    fail_msg("a manifest without its weights");
    return "";
}

static enum hf_rc save(struct world *w, struct attempt *a, uint64_t version)
{
    struct hf_save_in in = save_of(&w->b, &a->claim, a->next, w->root);
    in.step = (int64_t)version;
    in.lanes = 1;
    in.parent = a->last.attempt > 0 ? &a->last : NULL;
    struct hf_manifest m;
    enum hf_rc rc = hf_save(&in, NULL, &m, NULL);
    save_in_release(&in);
    if (rc == HF_OK) {
        hf_manifest_release(&a->last);
        a->last = m;
        a->next = m.number + 1;
    }
    return rc;
}

/* One save with whatever goes wrong. False: the attempt dies in it. */
static bool try_save(struct world *w, struct attempt *a)
{
    uint64_t number = ++w->version;
    write_state(w, number);
    struct version *v = &w->versions[number % KEPT];
    *v = (struct version){.number = number};
    uint64_t fate = next(w, 10);
    bool dies = fate == 0;
    if (fate < 3) {
        enum hf_store_fault_kind kind = fate == 2 ? HF_SFAULT_LOST_REPLY : HF_SFAULT_FAIL;
        hf_store_fault_set(w->b.store, kind, 1 + next(w, 12), dies);
        w->lost_replies += fate == 2 ? 1 : 0;
        w->failures += fate == 1 ? 1 : 0;
    }
    enum hf_rc rc = save(w, a, number); /* one call that fails is tried again inside */
    hf_store_fault_set(w->b.store, HF_SFAULT_FAIL, 0, false);
    assert_true(rc == HF_OK || dies);
    if (rc == HF_OK) {
        *v = (struct version){.number = number,
                              .acked = true,
                              .attempt = a->last.attempt,
                              .checkpoint = a->last.number};
        memcpy(v->hash, weights_hash(&a->last), sizeof(v->hash));
        w->saved++;
    }
    return !dies;
}

static void rot(struct world *w, const struct attempt *a)
{
    struct version *v = version_of(w, (uint64_t)a->last.step);
    if (v == NULL || !v->acked || a->last.attempt != a->claim.attempt) {
        return;
    }
    for (uint32_t i = 0; i < a->last.n_blocks; i++) {
        const struct hf_block *block = &a->last.blocks[i];
        char prefix[HF_PREFIX_STRLEN];
        hf_prefix_of(prefix, a->last.attempt, a->last.number, a->last.nonce);
        if (strcmp(block->where, prefix) != 0 || block->len == 900) {
            continue; /* another checkpoint has it too */
        }
        char key[HF_KEY_MAX];
        struct hf_span bad = {"rotten", 6};
        struct hf_err err;
        expect_rc(hf_store_put(w->inner, NULL, hf_key_block(key, w->b.run.name, block), bad,
                               HF_PUT_REPLACE, &err),
                  HF_OK, &err);
        v->rotten = true;
        return;
    }
}

/* The present attempt dies and may come back. */
static void die(struct world *w, struct attempt *a)
{
    struct attempt *z = &w->zombies[next(w, ZOMBIES)];
    hf_claim_release(&z->claim);
    hf_manifest_release(&z->last);
    *z = *a;
    *a = (struct attempt){.next = 1};
}

static void zombie_acts(struct world *w)
{
    struct attempt *z = &w->zombies[next(w, ZOMBIES)];
    if (z->claim.attempt == 0) {
        return;
    }
    struct hf_claim highest;
    uint32_t n = 0;
    struct hf_err err;
    expect_rc(hf_lineage_highest(&w->b.run, NULL, &n, &highest, &err), HF_OK, &err);
    hf_claim_release(&highest);
    if (n <= z->claim.attempt) {
        return; /* nobody has taken over yet */
    }
    write_state(w, UINT64_C(1) << 30);
    assert_int_equal(save(w, z, UINT64_C(1) << 30), HF_EEXISTS);
    uint64_t removed = 0;
    assert_int_equal(hf_retain(&w->b.run, NULL, &z->claim, 1, &removed, NULL), HF_EEXISTS);
    assert_int_equal(removed, 0);
    w->zombie_tries++;
}

static void check_restored(struct world *w, const struct hf_restored *r)
{
    const struct version *good = newest_good(w);
    if (good != NULL) {
        assert_true(r->any);
        assert_true((uint64_t)r->manifest.step >= good->number);
    }
    if (!r->any) {
        return;
    }
    const struct hf_manifest *m = &r->manifest;
    const struct version *v = version_of(w, (uint64_t)m->step);
    assert_non_null(v);
    assert_false(v->rotten);
    if (v->acked) {
        assert_int_equal(v->attempt, m->attempt);
        assert_int_equal(v->checkpoint, m->number);
        assert_string_equal(v->hash, weights_hash(m));
    }
    HF_CLEANUP(hf_freep) char *got = tree_text(w->root);
    write_state(w, (uint64_t)m->step);
    HF_CLEANUP(hf_freep) char *want = tree_text(w->root);
    assert_string_equal(got, want);
    /* An unreported save that was stored all the same counts from now on. */
    struct version *stands = version_of(w, (uint64_t)m->step);
    if (!stands->acked) {
        stands->acked = true;
        stands->attempt = m->attempt;
        stands->checkpoint = m->number;
        memcpy(stands->hash, weights_hash(m), sizeof(stands->hash));
    }
}

/* Claims, seals, chooses, restores. Everything newer than what was restored is gone for good. */
static void take_over(struct world *w, uint32_t attempt, struct attempt *ret)
{
    struct hf_call call = {.op = NULL};
    struct hf_restored r;
    struct hf_err err = {0};
    bool fresh = newest_good(w) == NULL && next(w, 2) == 0;
    *ret = (struct attempt){.claim = make_claim(attempt), .last = {.step = -1}, .next = 1};
    ret->claim.fresh = fresh;
    expect_rc(hf_lineage_claim(&w->b.run, NULL, &ret->claim, &err), HF_OK, &err);
    if (next(w, 20) == 0) {
        die(w, ret); /* between claim and seal */
        return;
    }
    /* Another machine: what lies on a disk and is equal would not be fetched. */
    expect_rc(hf_remove_all(w->root, &err), HF_OK, &err);
    expect_rc(hf_handoff_restore(&w->b.run, &call, &ret->claim, &r, &err), HF_OK, &err);
    check_restored(w, &r);
    w->stepped_back += r.damaged.len > 0 && r.any ? 1 : 0;
    w->all_rotten += r.damaged.len > 0 && !r.any ? 1 : 0;
    if (r.any) {
        ret->last = r.manifest;
        r.manifest = (struct hf_manifest){.step = -1};
    }
    for (size_t i = 0; i < KEPT; i++) {
        struct version *v = &w->versions[i];
        bool later = !r.any || v->number > (uint64_t)ret->last.step;
        if (v->number != 0 && v->rotten && later) {
            v->acked = false; /* it was passed over, rightly */
        }
    }
    hf_restored_release(&r);
}

static bool count_one(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    uint64_t *n = user;
    *n += strstr(key, ".retired.") == NULL ? 1 : 0;
    return true;
}

static void decisions_stay(struct world *w)
{
    uint64_t n = 0;
    struct hf_err err;
    expect_rc(hf_store_list(w->inner, NULL, "job/checkpoints/", count_one, &n, &err), HF_OK, &err);
    assert_true(n >= w->decisions);
    w->decisions = n;
}

static void retain(struct world *w, const struct attempt *a)
{
    uint64_t removed = 0;
    struct hf_err err;
    int64_t keep = (int64_t)next(w, 4);
    expect_rc(hf_retain(&w->b.run, NULL, &a->claim, keep, &removed, &err), HF_OK, &err);
    w->retained++;
    decisions_stay(w);
    /* What is kept least: the newest; older versions may be gone now. */
    const struct version *newest = newest_good(w);
    for (size_t i = 0; i < KEPT && keep > 0; i++) {
        struct version *v = &w->versions[i];
        if (v->number != 0 && newest != NULL && v->number < newest->number) {
            v->acked = v->acked && v->rotten;
        }
    }
}

static void one_attempt(struct world *w, uint32_t n)
{
    struct attempt a;
    take_over(w, n, &a);
    if (a.claim.attempt == 0) {
        return;
    }
    bool lives = true;
    for (uint64_t saves = next(w, 4); saves > 0 && lives; saves--) {
        lives = try_save(w, &a);
        if (next(w, 3) == 0) {
            zombie_acts(w);
        }
    }
    if (lives && next(w, n < 300 ? 3 : 100) == 0) {
        retain(w, &a);
    }
    if (lives && next(w, 12) == 0) {
        rot(w, &a);
    }
    die(w, &a);
}

static void many_preemptions(void **state)
{
    (void)state;
    struct world w = {.x = hf_random_u64()};
    const char *seed = getenv("HOLDFAST_TEST_SEED");
    w.x = seed != NULL ? strtoull(seed, NULL, 10) : w.x;
    uint32_t total = getenv("HOLDFAST_TEST_LONG") != NULL ? 10000 : 600;
    print_message("again: HOLDFAST_TEST_SEED=%llu\n", (unsigned long long)w.x);
    struct hf_err err;
    expect_rc(hf_store_open("mem:many", NULL, &w.inner, &err), HF_OK, &err);
    bench_take(&w.b, hf_store_faulty(w.inner));
    w.root = hf_asprintf("%s/ckpt", w.b.folder);
    for (uint32_t n = 1; n <= total; n++) {
        one_attempt(&w, n);
    }
    print_message("%u preemptions: %u saves, %u calls failed, %u lost replies, %u steps back, "
                  "%u zombies refused, %u retentions, %u times nothing good was left\n",
                  total, w.saved, w.failures, w.lost_replies, w.stepped_back, w.zombie_tries,
                  w.retained, w.all_rotten);
    assert_true(w.saved > total / 2 && w.failures > 10 && w.lost_replies > 10);
    assert_true(w.stepped_back > 5 && w.zombie_tries > 10 && w.retained > 10);
    for (size_t i = 0; i < ZOMBIES; i++) {
        hf_claim_release(&w.zombies[i].claim);
        hf_manifest_release(&w.zombies[i].last);
    }
    hf_free(w.root);
    bench_close(&w.b);
}

int main(void)
{
    /* Flushing to a disk is what would take the time; it proves nothing here. */
    if (access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_preemptions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
