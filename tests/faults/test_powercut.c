/* SPDX-License-Identifier: Apache-2.0
 *
 * Power cuts under the file store: three saves, retention, a hand-off and one more save are
 * recorded; then for every call the folder is made as a cut at that moment could have left it, and
 * another machine takes over. What had been reported committed, or something newer, restores bit
 * for bit, and nothing half there is chosen.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/faults/powercut.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define VERSIONS    4
#define REPORTS_MAX 16

/* What the recorded life reported, and before which call. */
struct report {
    size_t op;
    unsigned version;
};

struct story {
    char *folder, *root;
    struct hf_run run;
    struct report reports[REPORTS_MAX];
    size_t n_reports;
    char *trees[VERSIONS + 1]; /* what each version looks like */
};

static void write_version(const struct story *s, unsigned version)
{
    HF_CLEANUP(hf_freep) char *frozen = hf_asprintf("%s/frozen.bin", s->root);
    HF_CLEANUP(hf_freep) char *weights = hf_asprintf("%s/sub/rank0.pt", s->root);
    put_noise(frozen, 3000, 1);
    put_noise(weights, 6000, version + 10);
}

static void save(struct story *s, const struct hf_claim *claim, unsigned version,
                 struct hf_manifest *last)
{
    struct bench b = {.run = s->run};
    write_version(s, version);
    s->trees[version] = tree_text(s->root);
    struct hf_save_in in =
        save_of(&b, claim, last->attempt == claim->attempt ? last->number + 1 : 1, s->root);
    in.step = version;
    in.lanes = 1;
    in.parent = last->attempt > 0 ? last : NULL;
    struct hf_manifest m;
    must_save(&in, &m);
    save_in_release(&in);
    hf_manifest_release(last);
    *last = m;
    assert_true(s->n_reports < REPORTS_MAX);
    s->reports[s->n_reports++] = (struct report){cut_ops(), version};
}

static void live(struct story *s)
{
    struct hf_err err;
    struct hf_manifest last = {.step = -1};
    struct hf_claim one = make_claim(1);
    uint64_t removed = 0;
    expect_rc(hf_run_open(&s->run, NULL, NULL, &err), HF_OK, &err);
    expect_rc(hf_lineage_claim(&s->run, NULL, &one, &err), HF_OK, &err);
    bool superseded = false;
    const struct hf_beat beat = {.counter = 1, .step = -1};
    expect_rc(hf_lineage_beat(&s->run, NULL, &one, &beat, &superseded, &err), HF_OK, &err);
    for (unsigned version = 1; version <= 3; version++) {
        save(s, &one, version, &last);
    }
    expect_rc(hf_retain(&s->run, NULL, &one, 1, &removed, &err), HF_OK, &err);
    assert_true(removed > 0);
    hf_claim_release(&one);
    struct hf_claim two = make_claim(2);
    struct hf_manifest base;
    expect_rc(hf_lineage_claim(&s->run, NULL, &two, &err), HF_OK, &err);
    expect_rc(hf_lineage_seal(&s->run, NULL, &two, &err), HF_OK, &err);
    expect_rc(hf_lineage_choose(&s->run, NULL, &two, 0, &base, &err), HF_OK, &err);
    assert_int_equal(base.step, 3);
    expect_rc(hf_lineage_put_base(&s->run, NULL, &two, &base, &err), HF_OK, &err);
    hf_manifest_release(&base);
    save(s, &two, 4, &last);
    hf_manifest_release(&last);
    hf_claim_release(&two);
}

static unsigned reported_before(const struct story *s, size_t op)
{
    unsigned version = 0;
    for (size_t i = 0; i < s->n_reports && s->reports[i].op <= op; i++) {
        version = s->reports[i].version;
    }
    return version;
}

/* Another machine over that store. Returns the version that it restores, 0: none. */
static unsigned take_over(struct story *s, const char *store)
{
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *uri = hf_asprintf("file://%s", store);
    struct hf_run run = {.name = "job"};
    expect_rc(hf_store_open(uri, NULL, &run.store, &err), HF_OK, &err);
    expect_rc(hf_run_open(&run, NULL, NULL, &err), HF_OK, &err);
    uint32_t highest = 0;
    struct hf_claim last;
    expect_rc(hf_lineage_highest(&run, NULL, &highest, &last, &err), HF_OK, &err);
    hf_claim_release(&last);
    struct hf_claim mine = make_claim(highest + 1);
    expect_rc(hf_lineage_claim(&run, NULL, &mine, &err), HF_OK, &err);
    expect_rc(hf_lineage_seal(&run, NULL, &mine, &err), HF_OK, &err);
    struct hf_manifest m;
    unsigned version = 0;
    enum hf_rc rc = hf_lineage_choose(&run, NULL, &mine, 0, &m, &err);
    if (rc != HF_ENOTFOUND) {
        struct hf_restore_report report;
        expect_rc(rc, HF_OK, &err);
        expect_rc(hf_remove_all(s->root, &err), HF_OK, &err);
        expect_rc(hf_restore(&run, NULL, &m, &report, &err), HF_OK, &err);
        hf_restore_report_release(&report);
        version = (unsigned)m.step;
        hf_manifest_release(&m);
    }
    hf_claim_release(&mine);
    hf_store_close(run.store);
    return version;
}

static void cut_at(struct story *s, size_t op, enum cut_how how, uint64_t seed)
{
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *store = hf_asprintf("%s/after", s->folder);
    cut_make(store, op, how, seed);
    unsigned reported = reported_before(s, op);
    unsigned version = take_over(s, store);
    if (version < reported) {
        fail_msg("cut before call %zu (how %d, seed %llu): version %u was reported, %u restored",
                 op, (int)how, (unsigned long long)seed, reported, version);
    }
    if (version > 0) {
        assert_true(version <= VERSIONS);
        char *tree = tree_text(s->root);
        assert_string_equal(tree, s->trees[version]);
        free(tree);
    }
    expect_rc(hf_remove_all(store, &err), HF_OK, &err);
}

static void story_make(struct story *s)
{
    struct hf_err err;
    *s = (struct story){.folder = temp_folder()};
    s->root = hf_asprintf("%s/home/ckpt", s->folder);
    HF_CLEANUP(hf_freep) char *store = hf_asprintf("%s/store", s->folder);
    HF_CLEANUP(hf_freep) char *uri = hf_asprintf("file://%s", store);
    expect_rc(hf_store_open(uri, NULL, &s->run.store, &err), HF_OK, &err);
    s->run.name = "job";
    cut_record(store);
    live(s);
    cut_stop();
    hf_store_close(s->run.store);
}

static void story_end(struct story *s)
{
    struct hf_err err;
    cut_forget();
    expect_rc(hf_remove_all(s->folder, &err), HF_OK, &err);
    for (size_t i = 0; i <= VERSIONS; i++) {
        free(s->trees[i]);
    }
    free(s->folder);
    free(s->root);
}

static void cuts_at_every_call(void **state)
{
    (void)state;
    struct story s;
    story_make(&s);
    assert_int_equal(s.n_reports, VERSIONS);
    assert_true(cut_ops() > 100);
    uint64_t seed = hf_random_u64();
    size_t rounds = getenv("HOLDFAST_TEST_LONG") != NULL ? 30 : 1;
    print_message("%zu calls, seed %llu\n", cut_ops(), (unsigned long long)seed);
    size_t cuts = 0;
    for (size_t op = 0; op <= cut_ops() * rounds; op++) {
        bool first = op <= cut_ops();
        for (int how = first ? 0 : CUT_PREFIX; how < CUT_HOWS; how++) {
            cut_at(&s, op % (cut_ops() + 1), (enum cut_how)how, seed + op);
            cuts++;
        }
    }
    print_message("%zu cuts\n", cuts);
    story_end(&s);
}

/* The layer itself: what is flushed stays, what is not can go. */
static void the_layer_loses_what_was_not_flushed(void **state)
{
    (void)state;
    struct hf_err err;
    char *folder = temp_folder();
    HF_CLEANUP(hf_freep) char *root = hf_asprintf("%s/store", folder);
    HF_CLEANUP(hf_freep) char *uri = hf_asprintf("file://%s", root);
    HF_CLEANUP(hf_freep) char *after = hf_asprintf("%s/after", folder);
    HF_CLEANUP(hf_freep) char *flushed = hf_asprintf("%s/flushed", after);
    HF_CLEANUP(hf_freep) char *loose = hf_asprintf("%s/loose", after);
    struct hf_store *store = NULL;
    expect_rc(hf_store_open(uri, NULL, &store, &err), HF_OK, &err);
    cut_record(root);
    struct hf_span data = {"content", 7};
    expect_rc(hf_store_put(store, NULL, "flushed", data, HF_PUT_CREATE_ONLY, &err), HF_OK, &err);
    expect_rc(hf_store_put(store, NULL, "loose", data, HF_PUT_NO_SYNC, &err), HF_OK, &err);
    cut_stop();
    hf_store_close(store);
    for (int how = 0; how < CUT_HOWS; how++) {
        struct stat st;
        cut_make(after, cut_ops(), (enum cut_how)how, 5);
        assert_int_equal(stat(flushed, &st), 0);
        assert_int_equal(st.st_size, 7);
        if (how == CUT_DROP || how == CUT_KEEP) {
            assert_int_equal(stat(loose, &st) == 0, how == CUT_KEEP);
        }
        expect_rc(hf_remove_all(after, &err), HF_OK, &err);
    }
    cut_forget();
    expect_rc(hf_remove_all(folder, &err), HF_OK, &err);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layer_loses_what_was_not_flushed),
        cmocka_unit_test(cuts_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
