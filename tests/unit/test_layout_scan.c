/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/layout, a folder at a time: order by step, what is no checkpoint, links, trackers, and
 * marks of being unfinished.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "checkpoint/layout_row.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

/* ---- steps and order ---- */

static void test_d1_steps_in_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t step;
    } names[] = {
        {"9", 9},
        {"0900000", 900000},
        {"handpicked", -1},
        {"checkpoint-500", 500},
        {"run-checkpoint-500", 500},
        {"global_step500", 500},
        {"iter_0000123", 123},
        {"iteration_00000005", 5},
        {"step-1000.pt", 1000},
        {"step_9000.pth.tar", 9000},
        {"ep1-ba500", 500},
        {"model.ckpt-100.index", 100},
        {"v1.5-step3.ckpt", 3},
        {"epoch=1-step=500.ckpt", 500},
        {"epoch=1-step=500-v1.ckpt", 500},
        {"epoch=3-val_loss=0.25.ckpt", 3},
        {"epoch=3-step=40-val_loss=-7.30.ckpt", 40},
        {"gpt--val_loss=2.17-step=500-consumed_samples=4000.0-last.ckpt", 500},
        {"epoch_3_iter_77.pth", 77},
        {"last.ckpt", -1},
        {"last-v1.ckpt", -1},
        {"model_v1.5.pt", -1},
        {"loss-0.25.pt", -1},
        {"9007199254740991", INT64_C(9007199254740991)},
        {"9007199254740992", -1},
        {"99999999999999999999999999", -1},
        {"step=99999999999999999999999999", -1},
        {"", -1},
        {".", -1},
        {"..", -1},
        {".5", 5},
        {"-v1", -1},
        {"step", -1},
        {"step=", -1},
    };
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        if (hf_name_step(names[i].name) != names[i].step) {
            fail_msg("'%s': %lld, and not %lld", names[i].name,
                     (long long)hf_name_step(names[i].name), (long long)names[i].step);
        }
    }
}

static void expect_order(const struct hf_layout_looks *looks, const char *const *names, size_t n)
{
    assert_int_equal(looks->len, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(strrchr(looks->items[i].path, '/') + 1, names[i]);
    }
}

static void test_d1_order_by_number(void **state)
{
    (void)state;
    static const char *const made[] = {"100000", "10", "handpicked", "0900000", "9"};
    static const char *const want[] = {"handpicked", "9", "10", "100000", "0900000"};
    char *folder = temp_folder();
    for (size_t i = 0; i < HF_COUNT(made); i++) {
        char *name = hf_asprintf("%s/model.pt", made[i]);
        put_in(folder, name, MAKE_ZIP64, NULL);
        free(name);
    }
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_order(&looks, want, HF_COUNT(want));
    assert_int_equal(looks.items[0].step, -1);
    assert_int_equal(looks.items[4].step, 900000);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* Equal steps, or none: by time of change. The time of several files is that of the named one. */
static void test_d1_order_by_time(void **state)
{
    (void)state;
    static const char *const want[] = {"a.pt", "b.pt", "checkpoint-2.pth.tar",
                                       "recovery-3-900.pth.tar", "checkpoint-3.pth.tar"};
    char *folder = temp_folder();
    for (size_t i = 0; i < HF_COUNT(want); i++) {
        put_in(folder, want[i], MAKE_ZIP64, NULL);
        put_mtime(folder, want[i], (time_t)(1000 + i));
    }
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_order(&looks, want, HF_COUNT(want));
    hf_layout_looks_release(&looks);
    put_mtime(folder, "a.pt", 5000);
    looks = scan_folder(folder, 0);
    assert_string_equal(strrchr(looks.items[0].path, '/'), "/b.pt");
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* ---- what is no checkpoint ---- */

static void test_c3_a_number_is_no_checkpoint(void **state)
{
    (void)state;
    static const char *const none[] = {"99999",   "88888",
                                       "logs",    "77777",
                                       "a.yaml",  "events.out.tfevents.1",
                                       "out.log", "latest",
                                       ".hidden", "training_args.bin",
                                       "nothing"};
    char *folder = temp_folder();
    make_dir(folder, "99999");
    make_dir(folder, "88888/deep/er");
    put_in(folder, "logs/model.pt", MAKE_ZIP64, NULL);
    put_in(folder, "77777/metrics.csv", MAKE_TEXT, "a,b\n");
    put_in(folder, "77777/tb/events.out.tfevents.1", MAKE_RAW, NULL);
    put_in(folder, "a.yaml", MAKE_TEXT, "a: 1\n");
    put_in(folder, "events.out.tfevents.1", MAKE_RAW, NULL);
    put_in(folder, "out.log", MAKE_TEXT, "x");
    put_in(folder, "latest", MAKE_TEXT, "nothing");
    put_in(folder, ".hidden/model.pt", MAKE_ZIP64, NULL);
    put_in(folder, "training_args.bin", MAKE_ZIP64, NULL);
    put_in(folder, "nothing", MAKE_TEXT, "");
    put_in(folder, "10/model.pt", MAKE_ZIP64, NULL);
    struct hf_layout_looks looks = scan_folder(folder, 0);
    assert_int_equal(looks.len, HF_COUNT(none) + 1);
    for (size_t i = 0; i < HF_COUNT(none); i++) {
        expect_state(&looks, none[i], HF_LAYOUT_FOREIGN);
    }
    expect_state(&looks, "10", HF_LAYOUT_UNSURE);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* A name that several tools use: its content tells which, and else nobody claims it. */
static void test_names_of_others(void **state)
{
    (void)state;
    static const struct {
        const char *dir, *file;
        const char *layout;
        enum hf_layout_state state;
    } cases[] = {
        {"checkpoint_000005", "checkpoint.pkl", "unknown", HF_LAYOUT_UNSURE},
        {"checkpoint_5", "model.safetensors", "accelerate", HF_LAYOUT_PARTIAL},
        {"iter_000005", "model.pt", "unknown", HF_LAYOUT_UNSURE},
        {"iter_0000005", "mp_rank_00/model_optim_rng.pt", "megatron", HF_LAYOUT_UNSURE},
        {"iteration_5", "a.safetensors", "mindformers", HF_LAYOUT_PARTIAL},
        {"checkpoint-5", "adapter/adapter_model.safetensors", "unknown", HF_LAYOUT_UNSURE},
        {"checkpoint-6", "model.safetensors", "hf-trainer", HF_LAYOUT_PARTIAL},
        {"checkpoint-7", "checkpoint-is-incomplete.txt", "hf-trainer", HF_LAYOUT_PARTIAL},
        {"global_step5", "mp_rank_00_model_states.pt", "deepspeed", HF_LAYOUT_UNSURE},
        {"global_step6", "zero_pp_rank_0_mp_rank_01_model_states.pt", "deepspeed",
         HF_LAYOUT_PARTIAL},
        {"step-9", ".metadata.tmp", "dcp", HF_LAYOUT_PARTIAL},
    };
    char *folder = temp_folder();
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        char *name = hf_asprintf("%s/%s", cases[i].dir, cases[i].file);
        enum make make = strstr(name, ".safetensors") != NULL ? MAKE_TENSORS : MAKE_ZIP64;
        put_in(folder, name, strstr(name, ".txt") != NULL ? MAKE_RAW : make, NULL);
        free(name);
    }
    make_dir(folder, "checkpoint-8");
    make_dir(folder, "checkpoint_8");
    struct hf_layout_looks looks = scan_folder(folder, 0);
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        expect_state(&looks, cases[i].dir, cases[i].state);
        assert_string_equal(find_look(&looks, cases[i].dir)->layout, cases[i].layout);
    }
    expect_state(&looks, "checkpoint-8", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "checkpoint_8", HF_LAYOUT_PARTIAL);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* An index of another program, and one of TensorFlow without its data. */
static void test_files_of_others(void **state)
{
    (void)state;
    char *folder = temp_folder();
    put_in(folder, "faiss.index", MAKE_RAW, NULL);
    put_in(folder, "ckpt-1.index", MAKE_TABLE, NULL);
    put_in(folder, "a*b#.data-00000-of-00001", MAKE_RAW, NULL);
    put_in(folder, "a*b#.index", MAKE_TABLE, NULL);
    put_in(folder, "aXb1.data-00000-of-00001", MAKE_RAW, NULL);
    put_in(folder, "mindspore-5.ckpt", MAKE_RAW, NULL);
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_state(&looks, "faiss.index", HF_LAYOUT_UNSURE);
    expect_state(&looks, "ckpt-1.index", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "a*b#.index", HF_LAYOUT_WHOLE);
    assert_int_equal(find_look(&looks, "a*b#.index")->roots.len, 2);
    expect_state(&looks, "aXb1.data-00000-of-00001", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "mindspore-5.ckpt", HF_LAYOUT_UNSURE);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* What torch wrote with two ranks, of which the second had nothing to save. */
static void test_dcp_as_torch_wrote_it(void **state)
{
    (void)state;
    char *folder = temp_folder();
    static const char *const files[][2] = {{"torch-dcp.metadata", "step-9/.metadata"},
                                           {"torch-dcp.distcp", "step-9/__0_0.distcp"}};
    for (size_t i = HF_COUNT(files); i > 0; i--) {
        struct hf_buf b;
        read_sample(files[i - 1][0], &b);
        char *path = hf_asprintf("%s/%s", folder, files[i - 1][1]);
        put_file(path, b.data, b.len);
        free(path);
        hf_buf_release(&b);
    }
    put_in(folder, "step-9/__1_0.distcp", MAKE_TEXT, "");
    put_mtime(folder, "step-9/__1_0.distcp", 1000);
    struct hf_layout_look l = look_at_path(folder, "step-9", 2);
    assert_int_equal(l.state, HF_LAYOUT_WHOLE);
    hf_layout_look_release(&l);
    /* Overwritten: the old '.metadata' stands until the end. */
    put_mtime(folder, "step-9/.metadata", 2000);
    l = look_at_path(folder, "step-9", 2);
    assert_int_equal(l.state, HF_LAYOUT_UNSURE);
    hf_layout_look_release(&l);
    remove_tree(folder);
}

/* Keras writes over its only copy, but for double_checkpoint: then it reads the copy before. */
static void test_c10_keras_spare_copies(void **state)
{
    (void)state;
    char *folder = temp_folder();
    put_in(folder, "latest.weights.h5", MAKE_RAW, NULL);
    put_in(folder, "training_metadata.json", MAKE_TEXT, "{\"epoch\": 2}");
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_state(&looks, "latest.weights.h5", HF_LAYOUT_PARTIAL);
    hf_layout_looks_release(&looks);
    put_in(folder, "latest.weights.h5.bkp", MAKE_HDF5, NULL);
    put_in(folder, "training_metadata.json.bkp", MAKE_TEXT, "{\"epoch\": 1}");
    looks = scan_folder(folder, 0);
    assert_int_equal(looks.len, 1);
    expect_state(&looks, "latest.weights.h5", HF_LAYOUT_UNSURE);
    assert_int_equal(looks.items[0].roots.len, 4);
    hf_layout_looks_release(&looks);
    put_in(folder, "latest.weights.h5.bkp", MAKE_RAW, NULL);
    looks = scan_folder(folder, 0);
    expect_state(&looks, "latest.weights.h5", HF_LAYOUT_PARTIAL);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* ---- links ---- */

static void test_o2_links(void **state)
{
    (void)state;
    char *folder = temp_folder();
    char *absolute = hf_asprintf("%s/epoch=0-step=2.ckpt", folder);
    put_in(folder, "epoch=0-step=1.ckpt", MAKE_ZIP64, NULL);
    put_in(folder, "epoch=0-step=2.ckpt", MAKE_ZIP64, NULL);
    put_in(folder, "checkpoint-3/model.safetensors", MAKE_TENSORS, NULL);
    put_in(folder, "checkpoint-3/trainer_state.json", MAKE_TEXT, "{}");
    put_in(folder, "ep0-ba4-rank0.pt", MAKE_ZIP64, NULL);
    put_in(folder, "ep0-ba4-rank1.pt", MAKE_ZIP64, NULL);
    link_in(folder, "epoch=0-step=2.ckpt", "last.ckpt");
    link_in(folder, ".//./epoch=0-step=1.ckpt", "a-last.ckpt");
    link_in(folder, absolute, "best.ckpt");
    link_in(folder, "checkpoint-3/", "latest");
    link_in(folder, "ep0-ba4-rank0.pt", "latest-rank0.pt");
    link_in(folder, "ep0-ba4-rank1.pt", "latest-rank1.pt");
    static const char *const strangers[] = {"dangling.ckpt", "outside.ckpt", "loop.ckpt", "up.ckpt",
                                            "self"};
    link_in(folder, "gone.ckpt", strangers[0]);
    link_in(folder, "/etc/passwd", strangers[1]);
    link_in(folder, "loop.ckpt", strangers[2]);
    link_in(folder, "../epoch=0-step=1.ckpt", strangers[3]);
    link_in(folder, ".", strangers[4]);

    struct hf_layout_looks looks = scan_folder(folder, 2);
    assert_int_equal(looks.len, 4 + HF_COUNT(strangers));
    for (size_t i = 0; i < HF_COUNT(strangers); i++) {
        expect_state(&looks, strangers[i], HF_LAYOUT_FOREIGN);
    }
    static const struct {
        const char *look, *root;
    } roots[] = {{"epoch=0-step=2.ckpt", "last.ckpt"},    {"epoch=0-step=1.ckpt", "a-last.ckpt"},
                 {"epoch=0-step=2.ckpt", "best.ckpt"},    {"checkpoint-3", "latest"},
                 {"ep0-ba4-rank0.pt", "latest-rank0.pt"}, {"ep0-ba4-rank0.pt", "latest-rank1.pt"}};
    for (size_t i = 0; i < HF_COUNT(roots); i++) {
        expect_state(&looks, roots[i].look, HF_LAYOUT_WHOLE);
        if (!has_root(find_look(&looks, roots[i].look), roots[i].root)) {
            fail_msg("'%s' does not belong to '%s'", roots[i].root, roots[i].look);
        }
    }
    hf_layout_looks_release(&looks);

    /* The same of one alone; and a link is never a checkpoint, wherever it leads. */
    struct hf_layout_look l = look_at_path(folder, "epoch=0-step=2.ckpt", 2);
    assert_true(has_root(&l, "last.ckpt") && has_root(&l, "best.ckpt"));
    assert_false(has_root(&l, "a-last.ckpt"));
    hf_layout_look_release(&l);
    l = look_at_path(folder, "last.ckpt", 2);
    assert_int_equal(l.state, HF_LAYOUT_FOREIGN);
    hf_layout_look_release(&l);
    free(absolute);
    remove_tree(folder);
}

/* A checkpoint's own files as links: they are not followed, so they are missing. */
static void test_o2_content_behind_links(void **state)
{
    (void)state;
    char *folder = temp_folder();
    char *target = hf_asprintf("%s/elsewhere.safetensors", folder);
    put_in(folder, "elsewhere.safetensors", MAKE_TENSORS, NULL);
    put_in(folder, "out/checkpoint-3/trainer_state.json", MAKE_TEXT, "{}");
    link_in(folder, target, "out/checkpoint-3/model.safetensors");
    put_in(folder, "out/global_step5/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL);
    put_in(folder, "out/global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL);
    put_in(folder, "tracker", MAKE_TEXT, "global_step5");
    link_in(folder, "../tracker", "out/latest");
    char *out = hf_asprintf("%s/out", folder);
    struct hf_layout_looks looks = scan_folder(out, 0);
    expect_state(&looks, "checkpoint-3", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "global_step5", HF_LAYOUT_WHOLE);
    assert_false(has_root(find_look(&looks, "global_step5"), "latest"));
    hf_layout_looks_release(&looks);
    free(out);
    free(target);
    remove_tree(folder);
}

/* ---- trackers ---- */

static void test_trackers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum hf_layout_state at_100, at_200;
        bool with_100, with_200;
    } cases[] = {
        {"100", HF_LAYOUT_WHOLE, HF_LAYOUT_UNSURE, true, false},
        {"200\n", HF_LAYOUT_WHOLE, HF_LAYOUT_WHOLE, false, true},
        {" 0000200 ", HF_LAYOUT_WHOLE, HF_LAYOUT_WHOLE, false, true},
        {"300", HF_LAYOUT_WHOLE, HF_LAYOUT_WHOLE, false, false},
        {"10", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false}, /* cut */
        {"", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false},
        {"release", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false},
        {"200x", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false},
        {"-1", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false},
        {"99999999999999999999", HF_LAYOUT_UNSURE, HF_LAYOUT_UNSURE, false, false},
    };
    static const char tracker[] = "latest_checkpointed_iteration.txt";
    char *folder = temp_folder();
    put_in(folder, "iter_0000100/mp_rank_00/model_optim_rng.pt", MAKE_ZIP64, NULL);
    put_in(folder, "iter_0000200/mp_rank_00/model_optim_rng.pt", MAKE_ZIP64, NULL);
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        put_in(folder, tracker, MAKE_TEXT, cases[i].text);
        struct hf_layout_looks looks = scan_folder(folder, 0);
        expect_state(&looks, "iter_0000100", cases[i].at_100);
        expect_state(&looks, "iter_0000200", cases[i].at_200);
        assert_int_equal(has_root(&looks.items[looks.len - 2], tracker), cases[i].with_100);
        assert_int_equal(has_root(&looks.items[looks.len - 1], tracker), cases[i].with_200);
        bool owned = cases[i].with_100 || cases[i].with_200;
        assert_int_equal(looks.len, owned ? 2 : 3);
        hf_layout_looks_release(&looks);
    }
    remove_tree(folder);
}

/* ---- unfinished ---- */

static void test_marks_of_being_unfinished(void **state)
{
    (void)state;
    static const struct {
        const char *file, *mark;
        const char *look;
        enum hf_layout_state state;
    } cases[] = {
        {"step=1.ckpt", "step=1-unfinished", "step=1.ckpt", HF_LAYOUT_PARTIAL},
        {"step=2-EMA.ckpt", "step=2-unfinished", "step=2-EMA.ckpt", HF_LAYOUT_PARTIAL},
        {"step=3.ckpt", "step=3.ckpt-unfinished", "step=3.ckpt", HF_LAYOUT_PARTIAL},
        {"loss=0.4-step=4/m.pt", "loss=0.4-step=4-unfinished", "loss=0.4-step=4",
         HF_LAYOUT_PARTIAL},
        {"step=5.nemo", "step=5-unfinished", "step=5.nemo", HF_LAYOUT_PARTIAL},
        {"step=6.ckpt", "step=66-unfinished", "step=6.ckpt", HF_LAYOUT_WHOLE},
        {"7.tmp/m.pt", NULL, "7.tmp", HF_LAYOUT_PARTIAL},
        {"8.incomplete/m.pt", NULL, "8.incomplete", HF_LAYOUT_PARTIAL},
        {"tmp-checkpoint-9/trainer_state.json", NULL, "tmp-checkpoint-9", HF_LAYOUT_PARTIAL},
        {"tmp-checkpoint-10/model.safetensors", NULL, "tmp-checkpoint-10", HF_LAYOUT_PARTIAL},
        {"11.orbax-checkpoint-tmp-7/state/m.pt", NULL, "11.orbax-checkpoint-tmp-7",
         HF_LAYOUT_PARTIAL},
        {"tmp.pth.tar", NULL, "tmp.pth.tar", HF_LAYOUT_PARTIAL},
        {"recovery_tmp.pth.tar", NULL, "recovery_tmp.pth.tar", HF_LAYOUT_PARTIAL},
        {"a.pt.tmp", NULL, "a.pt.tmp", HF_LAYOUT_FOREIGN},
        {"ck.data-00000-of-00001.tempstate123", NULL, "ck.data-00000-of-00001.tempstate123",
         HF_LAYOUT_FOREIGN},
    };
    char *folder = temp_folder();
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        bool tensors = strstr(cases[i].file, ".safetensors") != NULL;
        bool json = strstr(cases[i].file, ".json") != NULL;
        put_in(folder, cases[i].file,
               tensors ? MAKE_TENSORS
               : json  ? MAKE_TEXT
                       : MAKE_ZIP64,
               json ? "{}" : NULL);
        if (cases[i].mark != NULL) {
            put_in(folder, cases[i].mark, MAKE_TEXT, "");
        }
    }
    struct hf_layout_looks looks = scan_folder(folder, 0);
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        expect_state(&looks, cases[i].look, cases[i].state);
    }
    assert_int_equal(find_look(&looks, "11.orbax-checkpoint-tmp-7")->step, 11);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* save_total_limit removes the older ones, file by file; a kill may come between. With no other
 * that has the training's state, all were saved without it. */
static void test_half_removed_trainer_folders(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "trainer_state.json", "optimizer.pt",
                                        "scheduler.pt", "rng_state.pth"};
    char *folder = temp_folder();
    for (int step = 1; step <= 3; step++) {
        for (size_t i = 0; i < (step < 3 ? 2 : HF_COUNT(names)); i++) {
            HF_CLEANUP(hf_freep)
            char *file =
                hf_asprintf("%scheckpoint-%d/%s", step == 1 ? "other-" : "", step, names[i]);
            put_in(folder, file,
                   i == 0   ? MAKE_TENSORS
                   : i == 1 ? MAKE_TEXT
                            : MAKE_ZIP64,
                   i == 1 ? "{}" : NULL);
        }
    }
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_state(&looks, "other-checkpoint-1", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "checkpoint-2", HF_LAYOUT_PARTIAL);
    expect_state(&looks, "checkpoint-3", HF_LAYOUT_WHOLE);
    hf_layout_looks_release(&looks);
    remove_tree(hf_asprintf("%s/checkpoint-3", folder));
    looks = scan_folder(folder, 0);
    expect_state(&looks, "checkpoint-2", HF_LAYOUT_WHOLE);
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_d1_steps_in_names),
        cmocka_unit_test(test_d1_order_by_number),
        cmocka_unit_test(test_d1_order_by_time),
        cmocka_unit_test(test_c3_a_number_is_no_checkpoint),
        cmocka_unit_test(test_names_of_others),
        cmocka_unit_test(test_files_of_others),
        cmocka_unit_test(test_dcp_as_torch_wrote_it),
        cmocka_unit_test(test_c10_keras_spare_copies),
        cmocka_unit_test(test_o2_links),
        cmocka_unit_test(test_o2_content_behind_links),
        cmocka_unit_test(test_trackers),
        cmocka_unit_test(test_marks_of_being_unfinished),
        cmocka_unit_test(test_half_removed_trainer_folders),
    };
    return cmocka_run_group_tests_name("layout_scan", tests, NULL, NULL);
}
