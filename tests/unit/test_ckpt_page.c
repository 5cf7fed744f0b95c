/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast ckpt for people: the lines of ls, show and verify for every kind of row that a store
 * may hold, and of inspect for every verdict; what a name may do to a terminal.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "checkpoint/pin.h"
#include "supervisor/cmd.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_cmd.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_status.h"

static struct bench b;
static char *uri, *nowhere;

static int setup(void **state)
{
    (void)state;
    bench_open(&b, NULL);
    uri = hf_asprintf("file://%s/store", b.folder);
    nowhere = bench_path(&b, "state");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bench_close(&b);
    hf_free(uri);
    hf_free(nowhere);
    return 0;
}

#define CKPT(...) TELL("ckpt", "--state-dir", nowhere, "--store", uri, __VA_ARGS__)

static void decide(const struct hf_claim *c, uint32_t number, enum hf_decision_kind kind)
{
    struct hf_err err;
    struct hf_decision d = {.kind = kind, .by_attempt = c->attempt};
    memcpy(d.nonce, c->nonce, sizeof(d.nonce));
    expect_rc(hf_lineage_decide(&b.run, NULL, c, number, &d, &err), HF_OK, &err);
}

/* 1-1 stands, 1-2 is given up, 1-3 is retired, 1-4 damaged, 1-5 sealed by attempt 2; 2-1 whole and
 * pinned. */
static void fill(void)
{
    struct hf_err err;
    struct hf_claim c = must_claim(&b, 1);
    must_commit(&b, &c, 1);
    decide(&c, 2, HF_DECISION_ABORT);
    must_commit(&b, &c, 3);
    must_commit(&b, &c, 4);
    char key[HF_KEY_MAX];
    HF_CLEANUP(hf_freep)
    char *damaged = hf_asprintf("%s/store/%s", b.folder, hf_key_decision(key, "job", 1, 4));
    put_text(damaged, "{\"format\":1");
    store_set(b.store, hf_key_retired(key, "job", 1, 3), "{}");
    hf_claim_release(&c);
    c = must_claim(&b, 2);
    expect_rc(hf_lineage_seal(&b.run, NULL, &c, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *root = bench_path(&b, "ckpt");
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
    put_noise(file, 9000, 1);
    struct hf_save_in in = save_of(&b, &c, 1, root);
    struct hf_manifest m = {0};
    must_save(&in, &m);
    hf_manifest_release(&m);
    save_in_release(&in);
    expect_rc(hf_pin_set(&b.run, NULL, 2, 1, true, &err), HF_OK, &err);
    hf_claim_release(&c);
}

static void rows(void **state)
{
    (void)state;
    fill();
    struct told t = CKPT("ls", "job");
    told_status(&t, HF_EXIT_OK);
    HF_CLEANUP(hf_freep) char *text = without_times(t.out);
    static const char *const lines[] = {
        "CHECKPOINT         STEP          BYTES   FILES  REASON    WHEN\n",
        "  1-1              1200           8269       7  every     TIME\n",
        "  1-2                 -              -       -  aborted\n",
        "  1-3              1200           8269       7  every     TIME  (removed)\n",
        "  1-4                 -              -       -  DAMAGED\n",
        "  1-5                 -              -       -  sealed\n",
        "  2-1      ",
        "TIME  (pinned)\n",
    };
    for (size_t i = 0; i < HF_COUNT(lines); i++) {
        must_say(text, lines[i]);
    }
    told_release(&t);
    t = CKPT("ls", "job", "--json");
    cJSON *all = told_json(&t);
    static const char *const kinds[] = {"checkpoint", "aborted", "checkpoint",
                                        "damaged",    "sealed",  "checkpoint"};
    const cJSON *row = hf_json_opt(all, "checkpoints")->child;
    for (size_t i = 0; i < HF_COUNT(kinds); i++, row = row->next) {
        assert_non_null(row);
        assert_string_equal(hf_json_opt_str(row, "kind", ""), kinds[i]);
        assert_int_equal(hf_json_opt_int(row, "number", 0), i < 5 ? i + 1 : 1);
        assert_int_equal(hf_json_opt_bool(row, "pinned", false), i == 5);
        assert_int_equal(hf_json_opt_bool(row, "retired", false), i == 2);
    }
    assert_null(row);
    hf_json_free(all);
    told_release(&t);
}

static void shown(void **state)
{
    (void)state;
    fill();
    struct told t = CKPT("show", "job", "1-1");
    told_status(&t, HF_EXIT_OK);
    must_say(t.out, "               0  /home/someone/ckpt/step-1200\n");
    must_say(t.out, "            4173  /home/someone/ckpt/step-1200/a/w.bin\n");
    must_say(t.out, "               0  /home/someone/ckpt/latest\n");
    must_be_plain(t.out, "show");
    told_release(&t);
    static const struct {
        const char *id, *says;
    } others[] = {{"1-2", "aborted\n"}, {"1-4", "DAMAGED\n"}, {"1-5", "sealed\n"}};
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        t = CKPT("show", "job", others[i].id);
        told_status(&t, HF_EXIT_OK);
        must_say(t.out, others[i].says);
        assert_int_equal(strcspn(t.out, "\n") + 1, strlen(t.out)); /* that line and no other */
        told_release(&t);
    }
    t = CKPT("show", "job", "7-1");
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "has no checkpoint 7-1; 'holdfast ckpt ls job' shows them");
    told_release(&t);
}

static void verified(void **state)
{
    (void)state;
    fill();
    struct told t = CKPT("verify", "job");
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.out, "1-1: DAMAGED: "); /* its blocks were never put */
    must_say(t.out, "1-4: DAMAGED: the record cannot be read\n");
    must_say(t.out, "2-1: whole, 9000 bytes read\n");
    must_not_say(t.out, "1-2:");
    must_not_say(t.out, "1-3:");
    told_release(&t);
    t = CKPT("verify", "job", "2-1");
    told_status(&t, HF_EXIT_OK);
    assert_string_equal(t.out, "2-1: whole, 9000 bytes read\n");
    told_release(&t);
    t = CKPT("verify", "job", "--json");
    told_status(&t, HF_EXIT_FAIL);
    cJSON *all = told_json(&t);
    size_t n = 0;
    for (const cJSON *r = hf_json_opt(all, "checkpoints")->child; r != NULL; r = r->next, n++) {
        bool whole = hf_json_opt_int(r, "attempt", 0) == 2;
        assert_int_equal(hf_json_opt_bool(r, "whole", !whole), whole);
        assert_int_equal(hf_json_opt_str(r, "why", NULL) == NULL, whole);
    }
    assert_int_equal(n, 3);
    hf_json_free(all);
    told_release(&t);
}

/* A run that is not there is not whole: also for the verbs that change something. */
static void no_such_run(void **state)
{
    (void)state;
    fill();
    static const char *const words[][3] = {
        {"ls", "jb"},         {"show", "jb", "1-1"},  {"verify", "jb"}, {"rm", "jb", "1-1"},
        {"pin", "jb", "1-1"}, {"unpin", "jb", "1-1"}, {"gc", "jb"},
    };
    for (size_t i = 0; i < HF_COUNT(words); i++) {
        struct told t = CKPT(words[i][0], words[i][1], words[i][2]);
        told_status(&t, HF_EXIT_FAIL);
        must_say(t.err, "no run 'jb' is in store 'file://");
        assert_string_equal(t.out, "");
        told_release(&t);
    }
}

static void inspected(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *dir = bench_path(&b, "out");
    static const struct {
        const char *path, *text;
    } files[] = {
        {"checkpoint-10/model.safetensors", "x"}, /* cut off */
        {"checkpoint-20/trainer_state.json", "{"},
        {"notes.txt", "hello"},
        {"step_5/w.bin", "12345"},
        {"we\x1b[31mird\n\xff", "x"},
    };
    struct told t = TELL("ckpt", "inspect", dir);
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "nothing to inspect");
    must_say(t.err, "Name the folder that the training program saves into.");
    told_release(&t);
    struct hf_err err;
    expect_rc(hf_fs_mkdirs(dir, 0700, &err), HF_OK, &err);
    t = TELL("ckpt", "inspect", dir);
    told_status(&t, HF_EXIT_FAIL);
    assert_string_equal(t.out, "nothing is in it\n");
    told_release(&t);
    for (size_t i = 0; i < HF_COUNT(files); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, files[i].path);
        put_text(path, files[i].text);
    }
    t = TELL("ckpt", "inspect", dir);
    told_status(&t, HF_EXIT_FAIL);
    must_be_plain(t.out, "inspect");
    must_say(t.out,
             "checkpoint-10\n    partial, layout hf-trainer, step 10, 1 bytes\n    would not "
             "be shipped: ");
    must_say(t.out, "checkpoint-20\n    partial, layout hf-trainer, step 20, 1 bytes\n");
    must_say(t.out, "notes.txt\n    foreign, layout none\n    no checkpoint: ");
    must_say(t.out,
             "step_5\n    unsure, layout unknown, step 5, 5 bytes\n    would be shipped once "
             "it was renamed into place, or is quiet and nobody writes: ");
    must_say(t.out, "we\\x1b[31mird\\n\\xff\n");
    told_release(&t);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {CASE(rows), CASE(shown), CASE(verified), CASE(no_such_run),
                                       CASE(inspected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
