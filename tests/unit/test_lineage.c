/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/lineage: one winner of a claim; after the seal nothing that an older attempt does
 * changes what is chosen, and nothing that it committed before is passed over; what counts when
 * choosing; ends, heartbeats, judgements.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

static struct hf_store *open_mem(void)
{
    struct hf_store *s = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:lineage", NULL, &s, &err), HF_OK, &err);
    return s;
}

static void must_seal(const struct bench *b, const struct hf_claim *mine)
{
    struct hf_err err;
    expect_rc(hf_lineage_seal(&b->run, NULL, mine, &err), HF_OK, &err);
}

/* What is chosen, as "attempt-number"; "none", or the name of the failure. */
static const char *choice(const struct bench *b, const struct hf_claim *mine, uint32_t skip)
{
    static char text[32];
    struct hf_manifest m;
    struct hf_err err;
    enum hf_rc rc = hf_lineage_choose(&b->run, NULL, mine, skip, &m, &err);
    if (rc != HF_OK) {
        return rc == HF_ENOTFOUND ? "none" : hf_rc_name(rc);
    }
    snprintf(text, sizeof(text), "%u-%u", m.attempt, m.number);
    hf_manifest_release(&m);
    return text;
}

static void next_is(const struct bench *b, uint32_t attempt, uint32_t number, bool sealed)
{
    uint32_t n = 0;
    bool is = false;
    struct hf_err err;
    expect_rc(hf_lineage_next_number(&b->run, NULL, attempt, &n, &is, &err), HF_OK, &err);
    assert_int_equal(n, number);
    assert_int_equal(is, sealed);
}

static void runs_are_opened(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_err err;
    bool created = false;
    expect_rc(hf_run_open(&b.run, NULL, &created, &err), HF_OK, &err);
    assert_true(created);
    assert_true((b.store->caps & HF_STORE_CREATE_ONLY) != 0);
    assert_int_equal(store_count(b.store, "job/"), 1);
    expect_rc(hf_run_open(&b.run, NULL, &created, &err), HF_OK, &err);
    assert_false(created);
    expect_rc(hf_run_open(&b.run, NULL, NULL, &err), HF_OK, &err);
    static const struct {
        const char *text;
        enum hf_rc want;
    } rows[] = {
        {"{\"format\":2,\"features\":[],\"type\":\"run\"}", HF_ENOTSUP},
        {"{\"format\":1,\"features\":[\"x\"],\"type\":\"run\"}", HF_ENOTSUP},
        {"{\"format\":1,\"features\":[],\"type\":\"run\",\"hash\":\"blake3\",\"cipher\":\"none\"}",
         HF_ENOTSUP},
        {"{\"format\":1,\"features\":[],\"type\":\"run\",\"hash\":\"sha256\",\"cipher\":\"gcm\"}",
         HF_ENOTSUP},
        {"{\"format\":1,\"features\":[],\"type\":\"run\",\"hash\":\"sha256\"}", HF_ECORRUPT},
        {"", HF_ECORRUPT},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        store_set(b.store, "job/run.json", rows[i].text);
        expect_rc(hf_run_open(&b.run, NULL, &created, &err), rows[i].want, &err);
        assert_true(strstr(err.msg, "'job'") != NULL);
    }
    bench_close(&b);
    bench_take(&b, store_with_flaws(open_mem(), FLAW_OVERWRITES));
    expect_rc(hf_run_open(&b.run, NULL, &created, &err), HF_OK, &err);
    assert_true((b.store->caps & HF_STORE_CREATE_ONLY) == 0);
    struct hf_claim c = must_claim(&b, 1);
    struct hf_claim other = make_claim(1);
    expect_rc(hf_lineage_claim(&b.run, NULL, &other, &err), HF_EEXISTS, &err);
    hf_claim_release(&c);
    hf_claim_release(&other);
    bench_close(&b);
}

static void claims_come_in_order(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:x");
    struct hf_err err;
    uint32_t highest = 7;
    struct hf_claim got;
    expect_rc(hf_lineage_highest(&b.run, NULL, &highest, &got, &err), HF_OK, &err);
    assert_int_equal(highest, 0);
    expect_rc(hf_lineage_get_claim(&b.run, NULL, 1, &got, &err), HF_ENOTFOUND, &err);
    struct hf_claim early = make_claim(2);
    expect_rc(hf_lineage_claim(&b.run, NULL, &early, &err), HF_EINVAL, &err);
    struct hf_claim none = make_claim(0);
    expect_rc(hf_lineage_claim(&b.run, NULL, &none, &err), HF_EINVAL, &err);
    struct hf_claim one = must_claim(&b, 1);
    expect_rc(hf_lineage_claim(&b.run, NULL, &early, &err), HF_OK, &err);
    expect_rc(hf_lineage_claim(&b.run, NULL, &early, &err), HF_OK, &err);
    struct hf_claim late = make_claim(2);
    expect_rc(hf_lineage_claim(&b.run, NULL, &late, &err), HF_EEXISTS, &err);
    expect_rc(hf_lineage_highest(&b.run, NULL, &highest, &got, &err), HF_OK, &err);
    assert_int_equal(highest, 2);
    assert_string_equal(got.nonce, early.nonce);
    assert_string_equal(got.command.items[1], "--lr=\xff");
    hf_claim_release(&got);
    bool over = false;
    expect_rc(hf_lineage_superseded(&b.run, NULL, 1, &over, &err), HF_OK, &err);
    assert_true(over);
    expect_rc(hf_lineage_superseded(&b.run, NULL, 2, &over, &err), HF_OK, &err);
    assert_false(over);
    hf_claim_release(&early);
    hf_claim_release(&none);
    hf_claim_release(&one);
    hf_claim_release(&late);
    bench_close(&b);
}

struct claimant {
    const struct bench *bench;
    enum hf_rc rc;
};

static void *claim_main(void *arg)
{
    struct claimant *me = arg;
    struct hf_claim c = make_claim(1);
    me->rc = hf_lineage_claim(&me->bench->run, NULL, &c, NULL);
    hf_claim_release(&c);
    return NULL;
}

static void one_claimant_wins(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct bench b;
        bench_open(&b, round % 2 == 0 ? NULL : "mem:x");
        struct claimant claimants[6];
        pthread_t threads[6];
        for (int i = 0; i < 6; i++) {
            claimants[i] = (struct claimant){.bench = &b};
            assert_int_equal(pthread_create(&threads[i], NULL, claim_main, &claimants[i]), 0);
        }
        int won = 0;
        for (int i = 0; i < 6; i++) {
            pthread_join(threads[i], NULL);
            won += claimants[i].rc == HF_OK;
            assert_true(claimants[i].rc == HF_OK || claimants[i].rc == HF_EEXISTS);
        }
        assert_int_equal(won, 1);
        bench_close(&b);
    }
}

static void seals_end_a_row(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:x");
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    next_is(&b, 1, 1, false);
    must_commit(&b, &one, 1);
    struct hf_decision abort_it = {.kind = HF_DECISION_ABORT};
    memcpy(abort_it.nonce, one.nonce, sizeof(one.nonce));
    expect_rc(hf_lineage_decide(&b.run, NULL, &one, 2, &abort_it, &err), HF_OK, &err);
    must_commit(&b, &one, 3);
    next_is(&b, 1, 4, false);
    struct hf_claim two = must_claim(&b, 2);
    assert_string_equal(choice(&b, &two, 0), "invalid");        /* not sealed yet */
    expect_rc(try_commit(&b, &one, 4, &err), HF_EEXISTS, &err); /* it looks for a higher claim */
    must_seal(&b, &two);
    next_is(&b, 1, 4, true);
    must_seal(&b, &two);
    next_is(&b, 1, 4, true);
    struct hf_decision d;
    expect_rc(hf_lineage_get_decision(&b.run, NULL, 1, 4, &d, &err), HF_OK, &err);
    assert_int_equal(d.kind, HF_DECISION_SEAL);
    assert_int_equal(d.by_attempt, 2);
    assert_string_equal(d.nonce, two.nonce);
    assert_string_equal(choice(&b, &two, 0), "1-3");
    assert_string_equal(choice(&b, &two, 1), "1-1");
    assert_string_equal(choice(&b, &two, 2), "none");
    /* One without a single checkpoint is sealed too, and looked through. */
    struct hf_claim three = must_claim(&b, 3);
    must_seal(&b, &three);
    next_is(&b, 2, 1, true);
    assert_string_equal(choice(&b, &three, 0), "1-3");
    hf_claim_release(&one);
    hf_claim_release(&two);
    hf_claim_release(&three);
    bench_close(&b);
}

/* An owner that does not look at the claims before its commit: a paused one that had looked. */
static enum hf_rc blind_commit(const struct bench *b, const struct hf_claim *claim, uint32_t number)
{
    struct hf_decision d = {.kind = HF_DECISION_MANIFEST};
    make_manifest(&d.manifest, claim->attempt, number, claim->nonce);
    char *text = hf_decision_print(&d);
    hf_decision_release(&d);
    char key[HF_KEY_MAX];
    enum hf_rc rc =
        hf_store_create(b->store, NULL, hf_key_decision(key, "job", claim->attempt, number),
                        text_of(text), NULL, NULL);
    free(text);
    return rc;
}

struct zombie {
    const struct bench *bench;
    const struct hf_claim *claim;
    atomic_uint committed;
    enum hf_rc last;
};

static void *zombie_main(void *arg)
{
    struct zombie *z = arg;
    for (uint32_t n = 1; n < 100000; n++) {
        z->last = blind_commit(z->bench, z->claim, n);
        if (z->last != HF_OK) {
            break;
        }
        atomic_store(&z->committed, n);
        /* A save takes longer than a look; a claimant always catches up. */
        nanosleep(&(struct timespec){.tv_nsec = (long)(hf_random_u64() % 3000000)}, NULL);
    }
    return NULL;
}

/* Whatever the owner was told is committed is what the claimant chooses, to the very last one. */
/* Who takes over after many attempts does not look at each of them: a base says that its owner has
 * sealed all below. Where it is missing, or another's, the walk goes on. */
static void old_attempts_are_not_walked_again(void **state)
{
    (void)state;
    struct bench b;
    struct hf_err err;
    struct hf_store *mem = NULL;
    expect_rc(hf_store_open("mem:many", NULL, &mem, &err), HF_OK, &err);
    bench_take(&b, hf_store_faulty(mem));
    uint64_t calls[61] = {0};
    for (uint32_t a = 1; a <= 60; a++) {
        struct hf_claim claim = must_claim(&b, a);
        hf_store_fault_set(b.store, HF_SFAULT_FAIL, 0, false);
        must_seal(&b, &claim);
        calls[a] = hf_store_fault_calls(b.store);
        if (a % 20 != 0) { /* 20 and 40 died before they chose */
            expect_rc(hf_lineage_put_base(&b.run, NULL, &claim, NULL, &err), HF_OK, &err);
        }
        hf_claim_release(&claim);
    }
    assert_true(calls[19] == calls[3] && calls[59] == calls[3] && calls[40] == calls[3]);
    assert_true(calls[21] > calls[19] && calls[22] == calls[19]);
    for (uint32_t a = 1; a < 60; a++) {
        next_is(&b, a, 1, true);
    }
    /* A base that is not its claimant's proves nothing. */
    struct hf_claim last = must_claim(&b, 61);
    must_seal(&b, &last);
    struct hf_claim forged = last;
    memset(forged.nonce, 'f', sizeof(forged.nonce) - 1);
    expect_rc(hf_lineage_put_base(&b.run, NULL, &forged, NULL, &err), HF_OK, &err);
    hf_claim_release(&last);
    last = must_claim(&b, 62);
    hf_store_fault_set(b.store, HF_SFAULT_FAIL, 0, false);
    must_seal(&b, &last);
    assert_true(hf_store_fault_calls(b.store) > calls[59]);
    hf_claim_release(&last);
    bench_close(&b);
}

static void a_seal_and_a_zombie(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct bench b;
        bench_take(&b, round % 3 == 0 ? store_with_flaws(open_mem(), FLAW_BLIND) : open_mem());
        struct hf_claim one = must_claim(&b, 1);
        struct zombie z = {.bench = &b, .claim = &one};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, zombie_main, &z), 0);
        uint64_t end_ns = hf_now_ns() + 2 * HF_SEC;
        while (atomic_load(&z.committed) < (unsigned)round % 7 && hf_now_ns() < end_ns) {
            sched_yield();
        }
        struct hf_claim two = must_claim(&b, 2);
        must_seal(&b, &two);
        char chosen[32];
        snprintf(chosen, sizeof(chosen), "%s", choice(&b, &two, 0));
        pthread_join(thread, NULL);
        assert_int_equal(z.last, HF_EEXISTS);
        char want[32] = "none";
        if (z.committed > 0) {
            snprintf(want, sizeof(want), "1-%u", z.committed);
        }
        assert_string_equal(chosen, want);
        assert_string_equal(choice(&b, &two, 0), want);
        hf_claim_release(&one);
        hf_claim_release(&two);
        bench_close(&b);
    }
}

static void put_raw(const struct bench *b, uint32_t attempt, uint32_t number, const char *text)
{
    char key[HF_KEY_MAX];
    store_set(b->store, hf_key_decision(key, "job", attempt, number), text);
}

static void retire(const struct bench *b, uint32_t attempt, uint32_t number)
{
    char key[HF_KEY_MAX];
    store_set(b->store, hf_key_retired(key, "job", attempt, number), "{}");
}

static void what_counts_when_choosing(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    for (uint32_t n = 1; n <= 11; n++) {
        must_commit(&b, &one, n);
    }
    struct hf_claim two = must_claim(&b, 2);
    must_seal(&b, &two);
    assert_string_equal(choice(&b, &two, 0), "1-11"); /* 11 is more than 9 */
    must_commit(&b, &two, 1);
    must_commit(&b, &two, 2);
    /* One that speaks with another nonce than the claim's does not count. */
    struct hf_claim stranger = make_claim(2);
    assert_int_equal(blind_commit(&b, &stranger, 3), HF_OK);
    struct hf_claim three = must_claim(&b, 3);
    must_seal(&b, &three);
    next_is(&b, 2, 4, true);
    assert_string_equal(choice(&b, &three, 0), "2-2");
    retire(&b, 2, 2);
    assert_true(hf_lineage_is_retired(&b.run, NULL, 2, 2));
    assert_false(hf_lineage_is_retired(&b.run, NULL, 2, 1));
    assert_string_equal(choice(&b, &three, 0), "2-1");
    /* A damaged one is named, not passed over in silence. */
    put_raw(&b, 2, 1, "{\"format\":1");
    assert_string_equal(choice(&b, &three, 0), "corrupt");
    assert_string_equal(choice(&b, &three, 1), "1-11");
    assert_string_equal(choice(&b, &three, 2), "1-10");
    char key[HF_KEY_MAX];
    expect_rc(hf_store_remove(b.store, NULL, hf_key_decision(key, "job", 1, 11), &err), HF_OK,
              &err);
    assert_string_equal(choice(&b, &three, 1), "corrupt");
    assert_string_equal(choice(&b, &three, 2), "1-10");
    /* The manifest of another checkpoint under this name is damage as well. */
    char *text = NULL;
    struct hf_decision d;
    expect_rc(hf_lineage_get_decision(&b.run, NULL, 1, 10, &d, &err), HF_OK, &err);
    text = hf_decision_print(&d);
    hf_decision_release(&d);
    put_raw(&b, 1, 9, text);
    free(text);
    expect_rc(hf_lineage_get_decision(&b.run, NULL, 1, 9, &d, &err), HF_ECORRUPT, &err);
    hf_claim_release(&one);
    hf_claim_release(&two);
    hf_claim_release(&three);
    hf_claim_release(&stranger);
    bench_close(&b);
}

static struct hf_claim claim_as(const struct bench *b, uint32_t attempt, enum hf_claim_kind kind,
                                bool fresh)
{
    struct hf_claim c = make_claim(attempt);
    struct hf_err err;
    c.kind = kind;
    c.fresh = fresh;
    expect_rc(hf_lineage_claim(&b->run, NULL, &c, &err), HF_OK, &err);
    must_seal(b, &c);
    return c;
}

static void fresh_and_finished_claims(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:x");
    struct hf_claim c[7];
    c[1] = claim_as(&b, 1, HF_CLAIM_RUN, false);
    must_commit(&b, &c[1], 1);
    c[2] = claim_as(&b, 2, HF_CLAIM_STOPPED, false);
    next_is(&b, 2, 1, false);
    c[3] = claim_as(&b, 3, HF_CLAIM_RUN, false);
    next_is(&b, 2, 1, false); /* there is nothing to seal of a stop */
    assert_string_equal(choice(&b, &c[3], 0), "1-1");
    c[4] = claim_as(&b, 4, HF_CLAIM_RUN, true);
    assert_string_equal(choice(&b, &c[4], 0), "none");
    c[5] = claim_as(&b, 5, HF_CLAIM_RUN, false);
    assert_string_equal(choice(&b, &c[5], 0), "none"); /* nor does who comes after it look below */
    must_commit(&b, &c[5], 1);
    c[6] = claim_as(&b, 6, HF_CLAIM_RUN, false);
    assert_string_equal(choice(&b, &c[6], 0), "5-1");
    assert_string_equal(choice(&b, &c[6], 1), "none");
    for (int i = 1; i <= 6; i++) {
        hf_claim_release(&c[i]);
    }
    bench_close(&b);
    bench_open(&b, "mem:x");
    c[1] = claim_as(&b, 1, HF_CLAIM_RUN, true);
    must_commit(&b, &c[1], 1);
    c[2] = claim_as(&b, 2, HF_CLAIM_RUN, false);
    assert_string_equal(choice(&b, &c[2], 0), "1-1"); /* a fresh attempt's own ones do count */
    hf_claim_release(&c[1]);
    hf_claim_release(&c[2]);
    bench_close(&b);
}

static void decisions(void **state)
{
    (void)state;
    struct hf_store *faulty = hf_store_faulty(open_mem());
    struct bench b;
    bench_take(&b, faulty);
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    struct hf_claim stranger = make_claim(1);
    struct hf_decision d = {.kind = HF_DECISION_ABORT};
    memcpy(d.nonce, stranger.nonce, sizeof(d.nonce));
    expect_rc(hf_lineage_decide(&b.run, NULL, &one, 1, &d, &err), HF_EINTERNAL, &err);
    d.kind = HF_DECISION_SEAL;
    memcpy(d.nonce, one.nonce, sizeof(d.nonce));
    expect_rc(hf_lineage_decide(&b.run, NULL, &one, 1, &d, &err), HF_EINTERNAL, &err);

    /* A lost reply is settled; the same again is fine. */
    hf_store_fault_set(faulty, HF_SFAULT_LOST_REPLY, 2, false);
    must_commit(&b, &one, 1);
    must_commit(&b, &one, 1);
    /* Own nonce with other bytes: an earlier try, of which nothing was known. */
    d.kind = HF_DECISION_ABORT;
    expect_rc(hf_lineage_decide(&b.run, NULL, &one, 1, &d, &err), HF_EAGAIN, &err);
    /* Another's: over. */
    assert_int_equal(blind_commit(&b, &stranger, 2), HF_OK);
    expect_rc(try_commit(&b, &one, 2, &err), HF_EEXISTS, &err);
    /* Where the claims cannot be read nothing is committed. */
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 1, true);
    expect_rc(try_commit(&b, &one, 3, &err), HF_EIO, &err);
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 0, false);
    next_is(&b, 1, 3, false);
    hf_claim_release(&one);
    hf_claim_release(&stranger);
    bench_close(&b);
}

static void bases_and_ends(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:x");
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    struct hf_manifest m;
    make_manifest(&m, 1, 4, one.nonce);
    expect_rc(hf_lineage_put_base(&b.run, NULL, &one, NULL, &err), HF_OK, &err);
    expect_rc(hf_lineage_put_base(&b.run, NULL, &one, &m, &err), HF_OK, &err);
    hf_manifest_release(&m);
    struct hf_buf text;
    hf_buf_init(&text, 4096);
    expect_rc(hf_store_get(b.store, NULL, "job/attempts/000001.base.json", &text, &err), HF_OK,
              &err);
    assert_true(strstr(text.data, "\"base\":null") != NULL);
    hf_buf_release(&text);

    struct hf_end end = {.outcome = "finished", .exit_code = 0, .replacement = "unknown"};
    memcpy(end.nonce, one.nonce, sizeof(end.nonce));
    struct hf_end got;
    expect_rc(hf_lineage_get_end(&b.run, NULL, 1, &got, &err), HF_ENOTFOUND, &err);
    expect_rc(hf_lineage_end(&b.run, NULL, 1, &end, &err), HF_OK, &err);
    end.exit_code = 3;
    expect_rc(hf_lineage_end(&b.run, NULL, 1, &end, &err), HF_OK, &err);
    expect_rc(hf_lineage_get_end(&b.run, NULL, 1, &got, &err), HF_OK, &err);
    assert_int_equal(got.exit_code, 0); /* the first one stands */
    hf_end_release(&got);
    end.nonce[0] = end.nonce[0] == '0' ? '1' : '0';
    expect_rc(hf_lineage_end(&b.run, NULL, 1, &end, &err), HF_EEXISTS, &err);
    hf_claim_release(&one);
    bench_close(&b);
}

struct beating {
    const struct bench *bench;
    const struct hf_claim *claim;
    atomic_bool stop;
};

static void *beat_main(void *arg)
{
    struct beating *h = arg;
    for (uint64_t n = 1; !atomic_load(&h->stop); n++) {
        bool over = false;
        enum hf_rc rc = hf_lineage_beat(&h->bench->run, NULL, h->claim,
                                        &(struct hf_beat){.counter = n, .step = -1}, &over, NULL);
        assert_true(rc == HF_OK && !over);
        rc = hf_call_wait(NULL, 20, NULL);
        assert_int_equal(rc, HF_OK);
    }
    return NULL;
}

static void heartbeats(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    struct hf_claim two = make_claim(2);
    bool dead = false;
    /* One that never beat is judged as well. */
    uint64_t began_ns = hf_now_ns();
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 200, &dead, &err), HF_OK, &err);
    assert_true(dead);
    assert_true(hf_now_ns() - began_ns >= 200 * HF_MS);
    struct beating h = {.bench = &b, .claim = &one};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, beat_main, &h), 0);
    for (int i = 0; i < 3; i++) {
        expect_rc(hf_lineage_judge(&b.run, NULL, 1, 400, &dead, &err), HF_OK, &err);
        assert_false(dead);
    }
    atomic_store(&h.stop, true);
    pthread_join(thread, NULL);
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 200, &dead, &err), HF_OK, &err);
    assert_true(dead);
    struct hf_call soon = {.deadline_ns = hf_now_ns() + 50 * HF_MS};
    expect_rc(hf_lineage_judge(&b.run, &soon, 1, 5000, &dead, &err), HF_ETIMEOUT, &err);
    expect_rc(hf_lineage_claim(&b.run, NULL, &two, &err), HF_OK, &err);
    bool over = false;
    struct hf_beat beat = {
        .counter = 99, .every_ms = 10000, .at_wall_ms = 1500, .state = "running", .step = 7};
    struct hf_beat back;
    expect_rc(hf_lineage_beat(&b.run, NULL, &one, &beat, &over, &err), HF_OK, &err);
    assert_true(over);
    expect_rc(hf_lineage_get_beat(&b.run, NULL, &one, &back, &err), HF_OK, &err);
    assert_true(back.counter == 99 && back.every_ms == 10000 && back.at_wall_ms == 1500);
    assert_true(strcmp(back.state, "running") == 0 && back.step == 7);
    struct hf_claim other = make_claim(1); /* of that number, by another machine */
    expect_rc(hf_lineage_get_beat(&b.run, NULL, &other, &back, &err), HF_ENOTFOUND, &err);
    expect_rc(hf_lineage_get_beat(&b.run, NULL, &two, &back, &err), HF_ENOTFOUND, &err);
    hf_claim_release(&other);
    struct hf_end end = {.outcome = "finished", .exit_code = -1, .replacement = "unknown"};
    memcpy(end.nonce, one.nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&b.run, NULL, 1, &end, &err), HF_OK, &err);
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 5000, &dead, &err), HF_OK, &err);
    assert_false(dead);
    assert_int_equal(store_count(b.store, "job/judge-"), 0);
    hf_claim_release(&one);
    hf_claim_release(&two);
    bench_close(&b);
}

static void failed_reads_prove_nothing(void **state)
{
    (void)state;
    struct hf_store *faulty = hf_store_faulty(open_mem());
    struct bench b;
    bench_take(&b, faulty);
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 1, true);
    bool dead = true;
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 100, &dead, &err), HF_ETIMEOUT, &err);
    /* The first reads fail: the judgement takes longer, and is right. */
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 1, false);
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 200, &dead, &err), HF_OK, &err);
    assert_true(dead);
    hf_claim_release(&one);
    bench_close(&b);
    /* Nor does a store that can be read but not written: it may be a stale copy. */
    bench_take(&b, store_with_flaws(open_mem(), FLAW_READ_ONLY));
    expect_rc(hf_lineage_judge(&b.run, NULL, 1, 100, &dead, &err), HF_ETIMEOUT, &err);
    bench_close(&b);
}

struct rows {
    char text[256];
    unsigned stop_after;
    unsigned n;
};

static bool see_row(void *user, const struct hf_lineage_row *row)
{
    struct rows *r = user;
    static const char *const kinds[] = {"m", "a", "s"};
    size_t at = strlen(r->text);
    snprintf(r->text + at, sizeof(r->text) - at, "%u-%u%s%s%s ", row->attempt, row->number,
             row->damaged ? "d" : kinds[row->decision->kind], row->retired ? "r" : "",
             row->stored_bytes > 0 ? "" : "0");
    return ++r->n != r->stop_after;
}

static void walks(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:x");
    struct hf_err err;
    struct rows r = {.n = 0};
    expect_rc(hf_lineage_walk(&b.run, NULL, see_row, &r, &err), HF_OK, &err);
    assert_string_equal(r.text, "");
    struct hf_claim one = must_claim(&b, 1);
    must_commit(&b, &one, 1);
    must_commit(&b, &one, 2);
    must_commit(&b, &one, 3);
    struct hf_claim two = must_claim(&b, 2);
    must_seal(&b, &two);
    must_commit(&b, &two, 1);
    retire(&b, 1, 1);
    put_raw(&b, 1, 2, "gone bad");
    expect_rc(hf_lineage_walk(&b.run, NULL, see_row, &r, &err), HF_OK, &err);
    assert_string_equal(r.text, "1-1mr 1-2d 1-3m 1-4s 2-1m ");
    r = (struct rows){.stop_after = 2};
    expect_rc(hf_lineage_walk(&b.run, NULL, see_row, &r, &err), HF_OK, &err);
    assert_string_equal(r.text, "1-1mr 1-2d ");
    hf_claim_release(&one);
    hf_claim_release(&two);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_opened),
        cmocka_unit_test(claims_come_in_order),
        cmocka_unit_test(one_claimant_wins),
        cmocka_unit_test(seals_end_a_row),
        cmocka_unit_test(old_attempts_are_not_walked_again),
        cmocka_unit_test(a_seal_and_a_zombie),
        cmocka_unit_test(what_counts_when_choosing),
        cmocka_unit_test(fresh_and_finished_claims),
        cmocka_unit_test(decisions),
        cmocka_unit_test(bases_and_ends),
        cmocka_unit_test(heartbeats),
        cmocka_unit_test(failed_reads_prove_nothing),
        cmocka_unit_test(walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
