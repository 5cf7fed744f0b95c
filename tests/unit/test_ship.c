/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/ship over a store in memory that can fail: the newest save wins and the last is never
 * dropped, what a failed one leaves standing, lost replies, a run that was taken over, the local
 * journal, and the folders that go.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_loop.h"
#include "tests/unit/support_ship.h"

static void one_after_the_other(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    assert_int_equal(hf_ship_verdict(s.ship)->kind, HF_VERDICT_NONE);
    assert_int_equal(hf_ship_verdict(s.ship)->step, -1);
    assert_true(hf_ship_idle(s.ship));
    for (int64_t step = 10; step <= 30; step += 10) {
        ship_add(&s, step);
        assert_false(hf_ship_idle(s.ship));
        ship_until_idle(&s);
        const struct hf_verdict *v = &s.last;
        uint32_t number = (uint32_t)(step / 10);
        assert_int_equal(v->kind, HF_VERDICT_LOCAL);
        assert_int_equal(v->step, step);
        assert_int_equal(v->attempt, 1);
        assert_int_equal(v->number, number);
        assert_int_equal(v->bytes, SHIP_BYTES);
        /* Blocks that the one before it has are not sent again. */
        assert_int_equal(v->bytes_sent, number == 1 ? 4096 + SHIP_BYTES - 8192 : SHIP_BYTES - 8192);
        assert_string_equal(v->reason, "every");
        assert_string_equal(v->why, "");
        assert_int_equal(ship_step_of(&s, 1, number), step);
        assert_int_equal(ship_unshipped(&s), 0);
        assert_int_equal(hf_ship_committed(s.ship), number);
        assert_true(hf_ship_has(s.ship, 1, 0, step));
        assert_false(hf_ship_has(s.ship, 1, 0, step - 10));
        /* The folder of the one before is ours and no longer needed. */
        assert_true(ship_folder_there(&s, step));
        assert_false(step > 10 && ship_folder_there(&s, step - 10));
    }
    ship_story(&s, "S10 S20 S30 ");
    assert_true(s.idles >= 3);
    assert_int_equal(s.superseded, 0);
    ship_close(&s);
}

static void a_store_that_outlives_the_machine(void **state)
{
    (void)state;
    struct ship_scene s;
    struct hf_store *store = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:ship", &(struct hf_store_cfg){.survives = true}, &store, &err),
              HF_OK, &err);
    ship_open(&s, store);
    ship_begin(&s, false, NULL);
    ship_add(&s, 1);
    ship_until_idle(&s);
    assert_int_equal(s.last.kind, HF_VERDICT_DURABLE);
    assert_string_equal(hf_verdict_name(s.last.kind), "durable");
    ship_close(&s);
}

/* While one is under way, of those that come only the newest is kept. */
static void the_newest_wins(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    ship_add(&s, 1);
    ship_until_has(&s, 1);
    for (int64_t step = 2; step <= 5; step++) {
        ship_add(&s, step);
        ship_until_has(&s, step);
    }
    assert_string_equal(s.story, "K2 K3 K4 ");
    assert_true(hf_ship_has(s.ship, 1, 0, 1));
    assert_true(hf_ship_has(s.ship, 1, 0, 5));
    assert_false(hf_ship_has(s.ship, 1, 0, 4));
    ship_release_pool(&s);
    ship_story(&s, "K2 K3 K4 S1 S5 ");
    assert_int_equal(ship_step_of(&s, 1, 2), 5);
    assert_int_equal(ship_unshipped(&s), 0);
    ship_close(&s);
}

static void a_failed_save(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    ship_no_patience(&s);
    ship_add(&s, 1);
    ship_story(&s, "F1 ");
    assert_int_equal(s.last.kind, HF_VERDICT_LOST);
    assert_int_equal(s.last.step, -1);
    assert_int_equal(s.last.number, 0);
    assert_non_null(strstr(s.last.why, "the store failed"));
    assert_int_equal(hf_ship_committed(s.ship), 0);
    assert_int_equal(ship_unshipped(&s), 1); /* the next supervisor may still have it */
    assert_true(ship_folder_there(&s, 1));
    ship_break_store(&s, HF_SFAULT_FAIL, 0);
    ship_add(&s, 2);
    ship_story(&s, "S2 ");
    assert_int_equal(s.last.number, 1);
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    ship_no_patience(&s);
    ship_add(&s, 3);
    ship_story(&s, "F3 ");
    assert_int_equal(s.last.kind, HF_VERDICT_STALE);
    assert_int_equal(s.last.step, 2); /* what stands */
    assert_int_equal(s.last.tried_step, 3);
    assert_int_equal(s.last.number, 1);
    assert_int_equal(s.last.bytes, SHIP_BYTES);
    assert_int_equal(ship_unshipped(&s), 3);
    assert_true(ship_folder_there(&s, 2));
    assert_int_equal(s.superseded, 0);
    ship_close(&s);
}

/* A failed try that a newer save waits for is not repeated. */
static void a_newer_save_goes_first(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    ship_add(&s, 1);
    ship_until_has(&s, 1);
    HF_CLEANUP(hf_freep) char *gone = hf_asprintf("%s/step-1", s.save_dir);
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(gone, &err), HF_OK, &err);
    ship_add(&s, 2);
    ship_until_has(&s, 2);
    ship_release_pool(&s);
    ship_story(&s, "F1 S2 ");
    assert_int_equal(s.last.number, 1);
    ship_close(&s);
}

/* In the pause after a failed try, a newer save takes the place of the one that failed. */
static void a_newer_save_ends_the_pause(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    ship_add(&s, 1);
    ship_until_has(&s, 1);
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/step-1/weights", s.save_dir);
    put_text(file, "changed since it was reported"); /* fails again at every try */
    ship_release_pool(&s);
    ship_pass_pool(&s); /* its one thread: the failed try is reported before */
    assert_string_equal(s.story, "");
    assert_false(hf_ship_idle(s.ship));
    ship_add(&s, 2);
    ship_story(&s, "K1 S2 ");
    assert_int_equal(ship_step_of(&s, 1, 1), 2);
    ship_close(&s);
}

/* What changed since the trainer reported it is never shipped as that save. */
static void a_changed_save_is_not_shipped(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    ship_add(&s, 1);
    ship_until_has(&s, 1);
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/step-1/weights", s.save_dir);
    put_text(file, "changed");
    ship_no_patience(&s);
    ship_release_pool(&s);
    ship_story(&s, "F1 ");
    assert_non_null(strstr(s.last.why, "changed"));
    assert_int_equal(s.last.kind, HF_VERDICT_LOST);
    ship_close(&s);
}

/* Each store call of a save in turn: not done, or done with the reply lost. It is shipped. */
static void every_single_fault_is_survived(void **state)
{
    (void)state;
    for (int kind = HF_SFAULT_FAIL; kind <= HF_SFAULT_LOST_REPLY; kind++) {
        for (uint64_t nth = 1;; nth++) {
            struct ship_scene s;
            ship_new(&s);
            hf_store_fault_set(s.bench.store, (enum hf_store_fault_kind)kind, nth, false);
            ship_add(&s, 1);
            ship_until_idle(&s);
            uint64_t calls = hf_store_fault_calls(s.bench.store);
            hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
            if (strcmp(s.story, "S1 ") != 0) {
                fail_msg("fault %d at call %ju: %s %s", kind, (uintmax_t)nth, s.story, s.last.why);
            }
            assert_int_equal(ship_step_of(&s, 1, s.last.number), 1);
            ship_add(&s, 2);
            ship_story(&s, "S1 S2 ");
            ship_close(&s);
            if (calls < nth) {
                assert_true(nth > 4);
                break;
            }
        }
    }
}

/* The store goes silent at each call in turn, for the rest of the save, and comes back for the
 * next one: whatever was stored of the first, the second is the newest, and nothing is taken for
 * another's. */
static void lost_replies_are_settled_as_ours(void **state)
{
    (void)state;
    bool was_stored = false;
    for (uint64_t nth = 1;; nth++) {
        struct ship_scene s;
        ship_new(&s);
        ship_break_store(&s, HF_SFAULT_LOST_REPLY, nth);
        ship_no_patience(&s);
        ship_add(&s, 1);
        ship_until_idle(&s);
        bool fired = hf_store_fault_calls(s.bench.store) >= nth;
        ship_break_store(&s, HF_SFAULT_FAIL, 0);
        hf_ship_deadline(s.ship, 0);
        struct hf_decision d = {0};
        bool stored = hf_lineage_get_decision(&s.bench.run, NULL, 1, 1, &d, NULL) == HF_OK;
        hf_decision_release(&d);
        was_stored = was_stored || (stored && s.last.kind == HF_VERDICT_LOST);
        ship_add(&s, 2);
        ship_until_idle(&s);
        assert_int_equal(s.superseded, 0);
        assert_int_equal(s.last.kind, HF_VERDICT_LOCAL);
        assert_int_equal(s.last.step, 2);
        assert_int_equal(s.last.number, stored ? 2 : 1);
        assert_int_equal(ship_step_of(&s, 1, s.last.number), 2);
        ship_close(&s);
        if (!fired) {
            break;
        }
    }
    assert_true(was_stored);
}

static void taken_over(bool sealed, bool after_a_commit)
{
    struct ship_scene s;
    ship_new(&s);
    if (after_a_commit) {
        ship_add(&s, 1);
        ship_story(&s, "S1 ");
    }
    struct hf_err err;
    struct hf_claim other = must_claim(&s.bench, 2);
    if (sealed) {
        expect_rc(hf_lineage_seal(&s.bench.run, NULL, &other, &err), HF_OK, &err);
    }
    ship_add(&s, 2);
    ship_story(&s, "F2 ! ");
    assert_int_equal(s.last.kind, after_a_commit ? HF_VERDICT_STALE : HF_VERDICT_LOST);
    assert_non_null(strstr(s.last.why, "taken over"));
    assert_int_equal(s.superseded, 1);
    /* For ever. */
    ship_add(&s, 3);
    ship_story(&s, "F3 ");
    assert_int_equal(s.superseded, 1);
    struct hf_manifest m = {0};
    expect_rc(hf_lineage_seal(&s.bench.run, NULL, &other, &err), HF_OK, &err);
    enum hf_rc rc = hf_lineage_choose(&s.bench.run, NULL, &other, 0, &m, &err);
    expect_rc(rc, after_a_commit ? HF_OK : HF_ENOTFOUND, &err);
    assert_int_equal(m.step, after_a_commit ? 1 : 0);
    hf_manifest_release(&m);
    hf_claim_release(&other);
    ship_close(&s);
}

static void superseded_stops(void **state)
{
    (void)state;
    taken_over(false, false);
    taken_over(false, true);
    taken_over(true, false);
    taken_over(true, true);
}

/* What was restored stands until something newer does; its folder goes only if it is ours. */
static void from_a_base(void **state)
{
    (void)state;
    for (int ours = 0; ours < 2; ours++) {
        struct ship_scene s;
        struct hf_store *store = NULL;
        struct hf_err err;
        expect_rc(hf_store_open("mem:ship", NULL, &store, &err), HF_OK, &err);
        ship_open(&s, hf_store_faulty(store));
        struct hf_manifest base = {0};
        make_manifest(&base, 1, 7, s.claim.nonce);
        hf_claim_release(&s.claim);
        s.claim = must_claim(&s.bench, 2);
        hf_free(base.resume_path);
        base.step = 70;
        base.resume_path = ours == 1 ? ship_folder(&s, 70) : bench_path(&s.bench, "own/70");
        HF_CLEANUP(hf_freep) char *restored = hf_strdup(base.resume_path);
        expect_rc(hf_fs_mkdirs(restored, 0700, &err), HF_OK, &err);
        ship_begin(&s, false, &base);
        hf_manifest_release(&base); /* taken: nothing is left in it */
        assert_int_equal(hf_ship_verdict(s.ship)->kind, HF_VERDICT_NONE);
        assert_int_equal(hf_ship_verdict(s.ship)->step, 70);
        assert_int_equal(hf_ship_verdict(s.ship)->number, 7);
        ship_break_store(&s, HF_SFAULT_FAIL, 1);
        ship_no_patience(&s);
        ship_add(&s, 80);
        ship_story(&s, "F80 ");
        assert_int_equal(s.last.kind, HF_VERDICT_STALE);
        assert_int_equal(s.last.step, 70);
        assert_true(hf_fs_exists(restored));
        ship_break_store(&s, HF_SFAULT_FAIL, 0);
        ship_add(&s, 90);
        ship_story(&s, "S90 ");
        assert_int_equal(hf_fs_exists(restored), ours == 0);
        ship_close(&s);
    }
}

static void a_save_that_is_not_there(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    HF_CLEANUP(hf_freep) char *nowhere = bench_path(&s.bench, "none");
    hf_ship_add(s.ship, ship_saved(nowhere, 4));
    ship_story(&s, "F4 ");
    assert_int_equal(s.last.kind, HF_VERDICT_LOST);
    assert_non_null(strstr(s.last.why, nowhere));
    /* Without a journal there is no recovery, but the save itself is shipped. */
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(s.attempt_dir, &err), HF_OK, &err);
    ship_add(&s, 5);
    ship_story(&s, "S5 ");
    ship_close(&s);
}

/* A supervisor that comes back: what its predecessor had noted is taken up, numbers go on. */
static void adopted(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_add(&s, 1);
    ship_story(&s, "S1 ");
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    ship_no_patience(&s);
    ship_add(&s, 2);
    ship_story(&s, "F2 ");
    hf_ship_free(s.ship);
    ship_break_store(&s, HF_SFAULT_FAIL, 0);
    ship_begin(&s, true, NULL);
    ship_story(&s, "S2 ");
    assert_int_equal(s.last.number, 2);
    ship_add(&s, 3);
    ship_story(&s, "S3 ");
    assert_int_equal(s.last.number, 3);
    assert_int_equal(ship_unshipped(&s), 0);
    /* Nothing was left: nothing is shipped, and it says so. */
    hf_ship_free(s.ship);
    int idles = s.idles;
    ship_begin(&s, true, NULL);
    ship_story(&s, "");
    assert_int_equal(s.idles, idles + 1);
    hf_ship_free(s.ship);
    /* The run was taken over while nobody was there. */
    struct hf_err err;
    struct hf_claim other = must_claim(&s.bench, 2);
    expect_rc(hf_lineage_seal(&s.bench.run, NULL, &other, &err), HF_OK, &err);
    ship_begin(&s, true, NULL);
    ship_until_idle(&s);
    ship_add(&s, 4);
    ship_story(&s, "F4 ! ");
    hf_claim_release(&other);
    ship_close(&s);
}

static bool calls_are_made(void *user)
{
    struct ship_scene *s = user;
    return hf_store_fault_calls(s->bench.store) >= 1;
}

static bool said_idle(void *user)
{
    return ((struct ship_scene *)user)->idles > 0;
}

static void stopped(void **state)
{
    (void)state;
    /* In a call that hangs: it is cancelled. */
    struct ship_scene s;
    ship_new(&s);
    ship_break_store(&s, HF_SFAULT_HANG, 1);
    ship_add(&s, 1);
    assert_true(hf_test_run_until(&s.loop, calls_are_made, &s, SHIP_WAIT_MS));
    ship_add(&s, 2);
    ship_until_has(&s, 2);
    hf_ship_stop(s.ship);
    assert_string_equal(s.story, "");
    ship_story(&s, "F1 ");
    assert_true(s.idles > 0);
    ship_add(&s, 3);
    ship_story(&s, "F3 ");
    ship_close(&s);
    /* In the pause before another try: idle follows, from the loop. */
    ship_new(&s);
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    ship_add(&s, 1);
    while (hf_store_fault_calls(s.bench.store) < 4) {
        (void)hf_test_run_until(&s.loop, calls_are_made, &s, 5);
    }
    s.idles = 0;
    hf_ship_stop(s.ship);
    assert_int_equal(s.idles, 0);
    assert_true(hf_test_run_until(&s.loop, said_idle, &s, SHIP_WAIT_MS));
    assert_int_equal(s.superseded, 0);
    ship_close(&s);
    hf_ship_free(NULL);
}

/* ---- parts of a save to come ---- */

#define UNIQUE 2 /* blocks of a folder: the first two are the same */

static void early(struct ship_scene *s, const char *folder)
{
    struct hf_strv paths = {0};
    hf_strv_add(&paths, folder);
    hf_ship_early(s->ship, &paths);
    hf_strv_clear(&paths);
}

static void a_part_is_put_ahead(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    HF_CLEANUP(hf_freep) char *folder = ship_folder(&s, 10);
    early(&s, folder);
    assert_false(hf_ship_idle(s.ship));
    ship_story(&s, "");
    assert_int_equal(store_count(s.bench.store, "job/data/000001-000001-"), UNIQUE);
    assert_int_equal(hf_ship_verdict(s.ship)->kind, HF_VERDICT_NONE);
    hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
    hf_ship_add(s.ship, ship_saved(folder, 10));
    ship_story(&s, "S10 ");
    assert_true(hf_store_fault_calls(s.bench.store) <= 3); /* no block was put */
    assert_int_equal(s.last.bytes_sent, 4096 + SHIP_BYTES - 8192);
    assert_int_equal(ship_step_of(&s, 1, 1), 10);
    /* The next number begins anew. */
    HF_CLEANUP(hf_freep) char *next = ship_folder(&s, 20);
    early(&s, next);
    ship_story(&s, "");
    hf_ship_add(s.ship, ship_saved(next, 20));
    ship_story(&s, "S20 ");
    assert_int_equal(store_count(s.bench.store, "job/data/000001-000002-"), 1);
    assert_int_equal(s.last.bytes_sent, SHIP_BYTES - 8192);
    ship_close(&s);
}

/* A part that comes while an older save is on its way belongs to the number after it. */
static void a_part_waits_for_the_save_before_it(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    ship_add(&s, 10);
    ship_until_has(&s, 10);
    HF_CLEANUP(hf_freep) char *folder = ship_folder(&s, 20);
    early(&s, folder);
    ship_release_pool(&s);
    ship_story(&s, "S10 ");
    assert_int_equal(store_count(s.bench.store, "job/data/000001-000001-"), UNIQUE);
    assert_int_equal(store_count(s.bench.store, "job/data/000001-000002-"), 1);
    hf_ship_add(s.ship, ship_saved(folder, 20));
    ship_story(&s, "S20 ");
    assert_int_equal(ship_step_of(&s, 1, 2), 20);
    ship_close(&s);
}

static void a_part_of_nothing_gives_way(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    HF_CLEANUP(hf_freep) char *folder = ship_folder(&s, 10);
    early(&s, folder);
    assert_false(hf_ship_idle(s.ship));
    ship_add(&s, 20);
    ship_until_has(&s, 20);
    ship_release_pool(&s);
    ship_story(&s, "S20 ");
    assert_int_equal(store_count(s.bench.store, "job/data/"), UNIQUE); /* none of step 10's */
    /* Given up by name, nothing is put either. */
    ship_hold_pool(&s);
    early(&s, folder);
    hf_ship_early_drop(s.ship);
    ship_release_pool(&s);
    ship_story(&s, "");
    assert_int_equal(store_count(s.bench.store, "job/data/"), UNIQUE);
    ship_close(&s);
}

static void a_part_that_fails_costs_nothing(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    HF_CLEANUP(hf_freep) char *folder = ship_folder(&s, 10);
    ship_break_store(&s, HF_SFAULT_FAIL, 2);
    early(&s, folder);
    early(&s, "/no/such/folder");
    ship_story(&s, "");
    ship_break_store(&s, HF_SFAULT_FAIL, 0);
    hf_ship_add(s.ship, ship_saved(folder, 10));
    ship_story(&s, "S10 ");
    assert_int_equal(s.last.bytes_sent, 4096 + SHIP_BYTES - 8192);
    ship_close(&s);
}

/* ---- a notice's second save; room ---- */

static void a_failed_second_save_leaves_the_first_verdict(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_add(&s, 10);
    ship_story(&s, "S10 ");
    HF_CLEANUP(hf_freep) char *folder = ship_folder(&s, 20);
    struct hf_saved *second = ship_saved(folder, 20);
    hf_free(second->reason);
    second->reason = hf_strdup("window");
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    ship_no_patience(&s);
    hf_ship_add(s.ship, second);
    ship_story(&s, "F20 ");
    assert_int_equal(s.last.kind, HF_VERDICT_STALE);
    assert_int_equal(s.last.step, 10);
    assert_string_equal(s.last.reason, "window");
    assert_int_equal(hf_ship_verdict(s.ship)->kind, HF_VERDICT_LOCAL);
    assert_int_equal(hf_ship_verdict(s.ship)->step, 10);
    ship_break_store(&s, HF_SFAULT_FAIL, 0);
    ship_close(&s);
}

static bool folder_20_is_gone(void *user)
{
    return !ship_folder_there(user, 20);
}

/* Row N4: what gave way leaves the disk while the upload before it is still under way. */
static void n4_what_gave_way_leaves_at_once(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_hold_pool(&s);
    for (int64_t step = 10; step <= 30; step += 10) {
        ship_add(&s, step);
        ship_until_has(&s, step);
    }
    assert_string_equal(s.story, "K20 ");
    int64_t pending = 0;
    assert_true(hf_ship_pending(s.ship, &pending));
    assert_int_equal(pending, 30);
    assert_true(hf_test_run_until(&s.loop, folder_20_is_gone, &s, SHIP_WAIT_MS));
    assert_true(ship_folder_there(&s, 10) && ship_folder_there(&s, 30));
    ship_release_pool(&s);
    ship_story(&s, "K20 S10 S30 ");
    assert_false(hf_ship_pending(s.ship, &pending));
    ship_close(&s);
}

/* Folders of failed saves go, oldest first; never what was committed or reported last. */
static void room_is_made(void **state)
{
    (void)state;
    struct ship_scene s;
    ship_new(&s);
    ship_add(&s, 10);
    ship_story(&s, "S10 ");
    ship_break_store(&s, HF_SFAULT_FAIL, 1);
    for (int64_t step = 20; step <= 40; step += 10) {
        ship_no_patience(&s);
        ship_add(&s, step);
        ship_until_idle(&s);
    }
    ship_story(&s, "F20 F30 F40 ");
    hf_ship_trim(s.ship, 1); /* there is room: nothing goes */
    ship_until_idle(&s);
    assert_true(ship_folder_there(&s, 20) && ship_folder_there(&s, 30));
    hf_ship_trim(s.ship, UINT64_MAX / 2);
    ship_until_idle(&s);
    assert_false(ship_folder_there(&s, 20) || ship_folder_there(&s, 30));
    assert_true(ship_folder_there(&s, 10)); /* committed */
    assert_true(ship_folder_there(&s, 40)); /* what ranks that restart would load */
    ship_break_store(&s, HF_SFAULT_FAIL, 0);
    ship_close(&s);
}

static void names(void **state)
{
    (void)state;
    static const char *const want[] = {"none", "durable", "local", "stale", "lost"};
    for (int k = HF_VERDICT_NONE; k <= HF_VERDICT_LOST; k++) {
        assert_string_equal(hf_verdict_name((enum hf_verdict_kind)k), want[k]);
    }
    assert_string_equal(hf_verdict_name((enum hf_verdict_kind)99), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(a_store_that_outlives_the_machine),
        cmocka_unit_test(the_newest_wins),
        cmocka_unit_test(a_failed_save),
        cmocka_unit_test(a_newer_save_goes_first),
        cmocka_unit_test(a_newer_save_ends_the_pause),
        cmocka_unit_test(a_changed_save_is_not_shipped),
        cmocka_unit_test(every_single_fault_is_survived),
        cmocka_unit_test(lost_replies_are_settled_as_ours),
        cmocka_unit_test(superseded_stops),
        cmocka_unit_test(from_a_base),
        cmocka_unit_test(a_save_that_is_not_there),
        cmocka_unit_test(adopted),
        cmocka_unit_test(stopped),
        cmocka_unit_test(a_part_is_put_ahead),
        cmocka_unit_test(a_part_waits_for_the_save_before_it),
        cmocka_unit_test(a_part_of_nothing_gives_way),
        cmocka_unit_test(a_part_that_fails_costs_nothing),
        cmocka_unit_test(a_failed_second_save_leaves_the_first_verdict),
        cmocka_unit_test(n4_what_gave_way_leaves_at_once),
        cmocka_unit_test(room_is_made),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
