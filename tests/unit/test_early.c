/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/early: parts of a save that are put ahead. What the save then need not read or send;
 * files that change in between; numbers and parents that do not fit; failures; what retention
 * makes of blocks that nobody names.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "checkpoint/early.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define PART 10000 /* bytes: three blocks */

struct scene {
    struct bench b;
    struct hf_store *faulty;
    struct hf_claim claim;
    struct hf_early *early;
    char *root;
};

static void open_scene(struct scene *s)
{
    struct hf_store *mem = NULL;
    struct hf_err err;
    *s = (struct scene){.early = hf_early_new()};
    expect_rc(hf_store_open("mem:early", NULL, &mem, &err), HF_OK, &err);
    s->faulty = hf_store_faulty(mem);
    bench_take(&s->b, s->faulty);
    s->claim = must_claim(&s->b, 1);
    s->root = bench_path(&s->b, "ckpt");
}

static void close_scene(struct scene *s)
{
    hf_early_free(s->early);
    hf_claim_release(&s->claim);
    free(s->root);
    bench_close(&s->b);
}

static char *part_path(const struct scene *s, int rank)
{
    return hf_asprintf("%s/rank%d.bin", s->root, rank);
}

/* Of an old time, so that it counts as finished. */
static void put_part(const struct scene *s, int rank, unsigned seed)
{
    char *path = part_path(s, rank);
    put_noise(path, PART, seed);
    struct timespec old[2] = {{.tv_sec = 1000000 + (time_t)seed},
                              {.tv_sec = 1000000 + (time_t)seed}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    free(path);
}

static enum hf_rc take(struct scene *s, uint32_t number, const char *path,
                       const struct hf_manifest *parent, struct hf_err *err)
{
    struct hf_save_in in = save_of(&s->b, &s->claim, number, path);
    in.parent = parent;
    enum hf_rc rc = hf_early_take(s->early, &in, NULL, err);
    save_in_release(&in);
    return rc;
}

static void must_take(struct scene *s, uint32_t number, int rank)
{
    struct hf_err err;
    char *path = part_path(s, rank);
    expect_rc(take(s, number, path, NULL, &err), HF_OK, &err);
    free(path);
}

/* Saves the folder, and verifies what was committed; returns the number of store calls. */
static uint64_t save(struct scene *s, uint32_t number, const struct hf_manifest *parent,
                     struct hf_manifest *ret)
{
    struct hf_save_in in = save_of(&s->b, &s->claim, number, s->root);
    struct hf_err err;
    uint64_t bytes = 0;
    in.early = s->early;
    in.parent = parent;
    hf_store_fault_set(s->faulty, HF_SFAULT_FAIL, 0, false);
    must_save(&in, ret);
    uint64_t calls = hf_store_fault_calls(s->faulty);
    expect_rc(hf_verify(&s->b.run, NULL, ret, &bytes, &err), HF_OK, &err);
    assert_int_equal(bytes, ret->bytes);
    save_in_release(&in);
    return calls;
}

static void what_was_put_ahead_is_not_sent_again(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    for (int rank = 0; rank < 4; rank++) {
        put_part(&s, rank, 10 + (unsigned)rank);
    }
    must_take(&s, 1, 0);
    must_take(&s, 1, 1);
    must_take(&s, 1, 1); /* told again: nothing is sent */
    assert_int_equal(hf_early_bytes(s.early), 2 * PART);
    assert_int_equal(store_count(s.b.store, "job/data/"), 6);
    struct hf_manifest with;
    struct hf_manifest without;
    uint64_t few = save(&s, 1, NULL, &with);
    assert_int_equal(with.bytes, 4 * PART);
    assert_int_equal(with.bytes_sent, 4 * PART);
    assert_int_equal(store_count(s.b.store, "job/data/"), 12);
    hf_early_free(s.early);
    s.early = NULL;
    uint64_t all = save(&s, 2, NULL, &without);
    assert_int_equal(all - few, 6);
    for (uint32_t i = 0; i < with.n_files; i++) {
        assert_string_equal(with.files[i].hash, without.files[i].hash);
    }
    hf_manifest_release(&with);
    hf_manifest_release(&without);
    close_scene(&s);
}

static void a_file_that_changed_is_read_again(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    put_part(&s, 0, 1);
    put_part(&s, 1, 2);
    must_take(&s, 1, 0);
    must_take(&s, 1, 1);
    put_part(&s, 1, 3);
    struct hf_manifest m;
    save(&s, 1, NULL, &m); /* verifies that what is named is there */
    char *path = part_path(&s, 1);
    hf_manifest_release(&m);
    put_text(path, "and it is shorter at last");
    struct hf_manifest second;
    save(&s, 2, NULL, &second);
    assert_int_equal(second.bytes, PART + 25);
    free(path);
    hf_manifest_release(&second);
    close_scene(&s);
}

/* A file that is still being written is left to the save. */
static void what_changed_a_moment_ago_is_left_alone(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    char *path = part_path(&s, 0);
    put_noise(path, PART, 1);
    struct timespec soon[2] = {{.tv_sec = time(NULL) + 60}, {.tv_sec = time(NULL) + 60}};
    assert_int_equal(utimensat(AT_FDCWD, path, soon, 0), 0);
    must_take(&s, 1, 0);
    assert_int_equal(hf_early_bytes(s.early), 0);
    assert_int_equal(store_count(s.b.store, "job/data/"), 0);
    struct hf_manifest m;
    save(&s, 1, NULL, &m);
    assert_int_equal(m.bytes_sent, PART);
    free(path);
    hf_manifest_release(&m);
    close_scene(&s);
}

/* Only the parent's blocks, and this number's own, may be named. */
static void of_another_number_nothing_is_used(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    put_part(&s, 0, 1);
    must_take(&s, 1, 0);
    assert_false(hf_early_fits(s.early, &s.claim, 2, 4096));
    assert_false(hf_early_fits(s.early, &s.claim, 1, 8192));
    assert_false(hf_early_fits(NULL, &s.claim, 1, 4096));
    struct hf_claim other = make_claim(1);
    assert_false(hf_early_fits(s.early, &other, 1, 4096));
    hf_claim_release(&other);
    struct hf_manifest m;
    save(&s, 2, NULL, &m);
    for (uint32_t i = 0; i < m.n_blocks; i++) {
        assert_memory_equal(m.blocks[i].where, "000001-000002-", 14);
    }
    hf_manifest_release(&m);
    /* Taken for the next number, the first one's is forgotten. */
    put_part(&s, 1, 2);
    must_take(&s, 3, 1);
    assert_int_equal(hf_early_bytes(s.early), PART);
    close_scene(&s);
}

static void the_parents_blocks_are_not_put_ahead(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    put_part(&s, 0, 1);
    struct hf_manifest parent;
    save(&s, 1, NULL, &parent);
    struct hf_err err;
    expect_rc(take(&s, 2, s.root, &parent, &err), HF_OK, &err);
    assert_int_equal(hf_early_bytes(s.early), 0);
    struct hf_manifest m;
    save(&s, 2, &parent, &m);
    assert_int_equal(m.bytes_sent, 0);
    assert_memory_equal(m.blocks[0].where, "000001-000001-", 14);
    hf_manifest_release(&m);
    /* The same, but the save is made without that parent: it sends what it names. */
    hf_early_free(s.early);
    s.early = hf_early_new();
    expect_rc(take(&s, 3, s.root, &parent, &err), HF_OK, &err);
    struct hf_manifest alone;
    save(&s, 3, NULL, &alone);
    assert_memory_equal(alone.blocks[0].where, "000001-000003-", 14);
    hf_manifest_release(&alone);
    hf_manifest_release(&parent);
    close_scene(&s);
}

/* Whichever put fails: what is named in the end is there. */
static void a_failure_forgets_everything(void **state)
{
    (void)state;
    static const enum hf_store_fault_kind kinds[] = {HF_SFAULT_FAIL, HF_SFAULT_LOST_REPLY,
                                                     HF_SFAULT_HANG};
    for (size_t k = 0; k < HF_COUNT(kinds); k++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            struct scene s;
            struct hf_err err;
            open_scene(&s);
            put_part(&s, 0, 1);
            put_part(&s, 1, 2);
            must_take(&s, 1, 0);
            hf_store_fault_set(s.faulty, kinds[k], nth, true);
            char *path = part_path(&s, 1);
            assert_int_not_equal(take(&s, 1, path, NULL, &err), HF_OK);
            free(path);
            assert_false(hf_early_fits(s.early, &s.claim, 1, 4096));
            struct hf_manifest m;
            save(&s, 1, NULL, &m);
            assert_int_equal(m.bytes_sent, 2 * PART);
            hf_manifest_release(&m);
            close_scene(&s);
        }
    }
}

static void a_part_that_is_not_there_harms_nothing(void **state)
{
    (void)state;
    struct scene s;
    struct hf_err err;
    open_scene(&s);
    put_part(&s, 0, 1);
    char *path = part_path(&s, 7);
    assert_int_equal(take(&s, 1, path, NULL, &err), HF_ENOTFOUND);
    free(path);
    struct hf_manifest m;
    save(&s, 1, NULL, &m);
    hf_manifest_release(&m);
    close_scene(&s);
}

/* Blocks that were put ahead and never named go with their number. */
static void retention_sweeps_what_was_never_named(void **state)
{
    (void)state;
    struct scene s;
    struct hf_err err;
    uint64_t removed = 0;
    open_scene(&s);
    put_part(&s, 0, 1);
    must_take(&s, 1, 0);
    char *path = part_path(&s, 0);
    put_part(&s, 0, 2); /* all of it is read again */
    free(path);
    struct hf_manifest m[3];
    save(&s, 1, NULL, &m[0]);
    assert_int_equal(store_count(s.b.store, "job/data/000001-000001-"), 6);
    for (uint32_t i = 1; i < 3; i++) {
        put_part(&s, 0, 2 + i);
        save(&s, i + 1, &m[i - 1], &m[i]);
    }
    expect_rc(hf_retain(&s.b.run, NULL, &s.claim, 1, &removed, &err), HF_OK, &err);
    assert_int_equal(store_count(s.b.store, "job/data/000001-000001-"), 0);
    assert_int_equal(store_count(s.b.store, "job/data/000001-000003-"), 3);
    /* A number that is never decided by its owner: sealed, and swept. */
    put_part(&s, 0, 9);
    must_take(&s, 4, 0);
    assert_int_equal(store_count(s.b.store, "job/data/000001-000004-"), 3);
    struct hf_claim next = must_claim(&s.b, 2);
    expect_rc(hf_lineage_seal(&s.b.run, NULL, &next, &err), HF_OK, &err);
    struct hf_save_in in = save_of(&s.b, &next, 1, s.root);
    struct hf_manifest own;
    must_save(&in, &own);
    save_in_release(&in);
    expect_rc(hf_retain(&s.b.run, NULL, &next, 1, &removed, &err), HF_OK, &err);
    assert_int_equal(store_count(s.b.store, "job/data/000001-000004-"), 0);
    hf_manifest_release(&own);
    hf_claim_release(&next);
    for (size_t i = 0; i < HF_COUNT(m); i++) {
        hf_manifest_release(&m[i]);
    }
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_ahead_is_not_sent_again),
        cmocka_unit_test(a_file_that_changed_is_read_again),
        cmocka_unit_test(what_changed_a_moment_ago_is_left_alone),
        cmocka_unit_test(of_another_number_nothing_is_used),
        cmocka_unit_test(the_parents_blocks_are_not_put_ahead),
        cmocka_unit_test(a_failure_forgets_everything),
        cmocka_unit_test(a_part_that_is_not_there_harms_nothing),
        cmocka_unit_test(retention_sweeps_what_was_never_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
