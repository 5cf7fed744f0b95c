/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/layout: for each layout a complete checkpoint, simulated in small. Then each of its
 * files is taken away, made a link, emptied, cut by a byte and cut to half: none of that may be
 * called whole, but for a table of what a layout's sign cannot show, with the reason. The table is
 * held to as well: an exception that is none fails. Times are put back, so that no verdict rests on
 * them.
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
#include "base/mem.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

#define END                  \
    {                        \
        NULL, MAKE_RAW, NULL \
    }
#define STATE "{\"global_step\": 5, \"log_history\": [{\"grad_norm\": NaN}]}"
#define INDEX                                                                \
    "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": " \
    "\"model-00002-of-00002.safetensors\"}}"
#define SHARDS "}X\x0c__0_0.distcp}X\x0c__1_0.distcp"
#define RENAMED \
    "{\"item_handlers\": {\"state\": \"S\", \"extra\": \"J\"}, \"commit_timestamp_nsecs\": 17}"

/* clang-format off */
static const struct made torch[] = {{"ckpt.pt", MAKE_ZIP64, NULL}, END};
static const struct made npz[] = {{"state.npz", MAKE_ZIP, NULL}, END};
static const struct made lightning[] = {{"epoch=1-step=5.ckpt", MAKE_ZIP64, NULL}, END};
static const struct made timm[] = {{"recovery-5-100.pth.tar", MAKE_ZIP64, NULL}, END};
static const struct made tensors[] = {{"model.safetensors", MAKE_TENSORS, NULL}, END};
static const struct made keras[] = {{"m-5.keras", MAKE_ZIP, NULL}, END};
static const struct made weights[] = {{"e05.weights.h5", MAKE_HDF5, NULL}, END};
static const struct made keras_backup[] = {
    {"latest.weights.h5.bkp", MAKE_HDF5, NULL},
    {"training_metadata.json.bkp", MAKE_TEXT, "{\"epoch\": 1}"},
    {"latest.weights.h5", MAKE_HDF5, NULL},
    {"training_metadata.json", MAKE_TEXT, "{\"epoch\": 2}"}, END};
static const struct made tensorflow[] = {
    {"ckpt-5.data-00000-of-00002", MAKE_RAW, NULL},
    {"ckpt-5.data-00001-of-00002", MAKE_RAW, NULL},
    {"ckpt-5.index", MAKE_TABLE, NULL},
    {"checkpoint", MAKE_TEXT, "model_checkpoint_path: \"ckpt-5\"\n"}, END};
static const struct made composer[] = {
    {"ep01-ba5-rank0.pt", MAKE_ZIP64, NULL}, {"ep01-ba5-rank1.pt", MAKE_ZIP64, NULL}, END};
static const struct made orbax[] = {
    {"5/_CHECKPOINT_METADATA", MAKE_TEXT, RENAMED},
    {"5/state/_METADATA", MAKE_TEXT, "{\"tree_metadata\": {}}"},
    {"5/state/manifest.ocdbt", MAKE_MANIFEST, NULL},
    {"5/state/d/0123", MAKE_RAW, NULL},
    {"5/state/ocdbt.process_0/manifest.ocdbt", MAKE_MANIFEST, NULL},
    {"5/extra/metadata", MAKE_TEXT, "{\"x\": 1}"}, END};
static const struct made orbax_commit[] = {
    {"5/_CHECKPOINT_METADATA", MAKE_TEXT, RENAMED},
    {"5/state/_METADATA", MAKE_TEXT, "{\"tree_metadata\": {}}"},
    {"5/state/manifest.ocdbt", MAKE_MANIFEST, NULL},
    {"5/state/ocdbt.process_0/manifest.ocdbt", MAKE_MANIFEST, NULL},
    {"5/state/commit_success.txt", MAKE_TEXT, "committed"},
    {"5/extra/metadata", MAKE_TEXT, "{\"x\": 1}"},
    {"5/extra/commit_success.txt", MAKE_TEXT, "committed"},
    {"5/commit_success.txt", MAKE_TEXT, "committed"}, END};
static const struct made dcp[] = {
    {"step-5/__0_0.distcp", MAKE_ZIPS, NULL},
    {"step-5/__1_0.distcp", MAKE_ZIPS, NULL},
    {"step-5/__2_0.distcp", MAKE_TEXT, ""},
    {"step-5/.metadata", MAKE_PICKLE, SHARDS}, END};
static const struct made shards_inside[] = {
    {"iter_000005/model/__0_0.distcp", MAKE_ZIPS, NULL},
    {"iter_000005/model/__1_0.distcp", MAKE_ZIPS, NULL},
    {"iter_000005/model/.metadata", MAKE_PICKLE, SHARDS}, END};
static const struct made lightning_sharded[] = {
    {"epoch=0-step=5.ckpt/__0_0.distcp", MAKE_ZIPS, NULL},
    {"epoch=0-step=5.ckpt/__1_0.distcp", MAKE_ZIPS, NULL},
    {"epoch=0-step=5.ckpt/.metadata", MAKE_PICKLE, SHARDS},
    {"epoch=0-step=5.ckpt/meta.pt", MAKE_ZIP64, NULL}, END};
static const struct made lightning_deepspeed[] = {
    {"step=5.ckpt/checkpoint/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL},
    {"step=5.ckpt/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"step=5.ckpt/latest", MAKE_TEXT, "checkpoint"}, END};
static const struct made trainer[] = {
    {"checkpoint-5/config.json", MAKE_TEXT, "{\"a\": 1}"},
    {"checkpoint-5/model.safetensors", MAKE_TENSORS, NULL},
    {"checkpoint-5/training_args.bin", MAKE_ZIP64, NULL},
    {"checkpoint-5/optimizer.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/scheduler.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made trainer_ranks[] = {
    {"checkpoint-5/model-00001-of-00002.safetensors", MAKE_TENSORS, NULL},
    {"checkpoint-5/model-00002-of-00002.safetensors", MAKE_TENSORS, NULL},
    {"checkpoint-5/model.safetensors.index.json", MAKE_TEXT, INDEX},
    {"checkpoint-5/optimizer.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/scheduler.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/scaler.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state_0.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state_1.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made trainer_adapter[] = {
    {"run-checkpoint-5/adapter_model.safetensors", MAKE_TENSORS, NULL},
    {"run-checkpoint-5/adapter_config.json", MAKE_TEXT, "{\"r\": 8}"},
    {"run-checkpoint-5/optimizer.pt", MAKE_ZIP64, NULL},
    {"run-checkpoint-5/scheduler.pt", MAKE_ZIP64, NULL},
    {"run-checkpoint-5/rng_state.pth", MAKE_ZIP64, NULL},
    {"run-checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made trainer_model_only[] = {
    {"checkpoint-5/pytorch_model.bin", MAKE_ZIP64, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made trainer_deepspeed[] = {
    {"checkpoint-5/global_step5/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/global_step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/latest", MAKE_TEXT, "global_step5"},
    {"checkpoint-5/rng_state_0.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state_1.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made trainer_fsdp[] = {
    {"checkpoint-5/pytorch_model_fsdp_0/__0_0.distcp", MAKE_ZIPS, NULL},
    {"checkpoint-5/pytorch_model_fsdp_0/__1_0.distcp", MAKE_ZIPS, NULL},
    {"checkpoint-5/pytorch_model_fsdp_0/.metadata", MAKE_PICKLE, SHARDS},
    {"checkpoint-5/optimizer_0/__0_0.distcp", MAKE_ZIPS, NULL},
    {"checkpoint-5/optimizer_0/__1_0.distcp", MAKE_ZIPS, NULL},
    {"checkpoint-5/optimizer_0/.metadata", MAKE_PICKLE, SHARDS},
    {"checkpoint-5/scheduler.pt", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state_0.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/rng_state_1.pth", MAKE_ZIP64, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE}, END};
static const struct made accelerate[] = {
    {"checkpoint_5/model.safetensors", MAKE_TENSORS, NULL},
    {"checkpoint_5/optimizer.bin", MAKE_ZIP64, NULL},
    {"checkpoint_5/scheduler.bin", MAKE_ZIP64, NULL},
    {"checkpoint_5/sampler.bin", MAKE_ZIP64, NULL},
    {"checkpoint_5/random_states_0.pkl", MAKE_ZIP64, NULL},
    {"checkpoint_5/random_states_1.pkl", MAKE_ZIP64, NULL}, END};
/* As the training scripts of Diffusers do: the models in folders, by a hook of theirs. */
static const struct made diffusers[] = {
    {"checkpoint-5/unet/config.json", MAKE_TEXT, "{}"},
    {"checkpoint-5/unet/diffusion_pytorch_model.safetensors", MAKE_TENSORS, NULL},
    {"checkpoint-5/optimizer.bin", MAKE_ZIP64, NULL},
    {"checkpoint-5/scheduler.bin", MAKE_ZIP64, NULL},
    {"checkpoint-5/random_states_0.pkl", MAKE_ZIP64, NULL}, END};
static const struct made deepspeed[] = {
    {"global_step5/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/mp_rank_01_model_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/zero_pp_rank_0_mp_rank_01_optim_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/zero_pp_rank_1_mp_rank_01_optim_states.pt", MAKE_ZIP64, NULL},
    {"latest", MAKE_TEXT, "global_step5"}, END};
static const struct made deepspeed_3[] = {
    {"global_step5/zero_pp_rank_0_mp_rank_00_model_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/zero_pp_rank_1_mp_rank_00_model_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL},
    {"global_step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL}, END};
static const struct made megatron[] = {
    {"iter_0000005/mp_rank_00_000/model_optim_rng.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_00_001/model_optim_rng.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_01_000/model_optim_rng.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_01_001/model_optim_rng.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_00_000/distrib_optim.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_00_001/distrib_optim.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_01_000/distrib_optim.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/mp_rank_01_001/distrib_optim.pt", MAKE_ZIP64, NULL},
    {"latest_checkpointed_iteration.txt", MAKE_TEXT, "5"}, END};
static const struct made megatron_dist[] = {
    {"iter_0000005/common.pt", MAKE_ZIP64, NULL},
    {"iter_0000005/__0_0.distcp", MAKE_ZIPS, NULL},
    {"iter_0000005/__1_0.distcp", MAKE_ZIPS, NULL},
    {"iter_0000005/.metadata", MAKE_PICKLE, SHARDS},
    {"iter_0000005/metadata.json", MAKE_TEXT, "{\"sharded_backend\": \"torch_dist\"}"},
    {"latest_checkpointed_iteration.txt", MAKE_TEXT, "5"}, END};
static const struct made mindformers[] = {
    {"iteration_00000005/metadata.json", MAKE_TEXT, "{\"a\": 1}"},
    {"iteration_00000005/common.json", MAKE_TEXT, "{\"a\": 1}"},
    {"iteration_00000005/llm-model-0000000-0000002.safetensors", MAKE_TENSORS, NULL},
    {"iteration_00000005/llm-model-0000001-0000002.safetensors", MAKE_TENSORS, NULL},
    {"iteration_00000005/llm-opt-0000000-0000002.safetensors", MAKE_TENSORS, NULL},
    {"iteration_00000005/llm-opt-0000001-0000002.safetensors", MAKE_TENSORS, NULL},
    {"latest_checkpointed_iteration.txt", MAKE_TEXT, "5"}, END};
static const struct made paddle[] = {
    {"checkpoint-5/model_state.pdparams", MAKE_PICKLE, NULL},
    {"checkpoint-5/optimizer.pdopt", MAKE_PICKLE, NULL},
    {"checkpoint-5/scheduler.pdparams", MAKE_PICKLE, NULL},
    {"checkpoint-5/trainer_state.json", MAKE_TEXT, STATE},
    {"checkpoint-5/.checkpoint_done", MAKE_TEXT, ""}, END};
static const struct made paddle_pair[] = {
    {"5.pdparams", MAKE_PICKLE, NULL}, {"5.pdopt", MAKE_PICKLE, NULL}, END};

static const struct fixture {
    const char *layout;
    const struct made *files;
    const char *path;
    uint32_t world;     /* that the job has; 0: unknown */
    uint32_t ret_world; /* that is told */
    bool unsure;        /* it has no sign: whole can never be said of it */
    const char *beside; /* a root beside the path, or NULL */
} fixtures[] = {
    {"torch", torch, "ckpt.pt", 0, 0, false, NULL},
    {"torch", npz, "state.npz", 0, 0, false, NULL},
    {"lightning", lightning, "epoch=1-step=5.ckpt", 0, 0, false, NULL},
    {"timm", timm, "recovery-5-100.pth.tar", 0, 0, false, NULL},
    {"safetensors", tensors, "model.safetensors", 0, 0, false, NULL},
    {"keras", keras, "m-5.keras", 0, 0, false, NULL},
    {"keras", weights, "e05.weights.h5", 0, 0, false, NULL},
    {"keras-backup", keras_backup, "latest.weights.h5", 0, 0, false, "training_metadata.json.bkp"},
    {"tensorflow", tensorflow, "ckpt-5.index", 0, 0, false, "checkpoint"},
    {"composer", composer, "ep01-ba5-rank0.pt", 2, 2, false, "ep01-ba5-rank1.pt"},
    {"composer", composer, "ep01-ba5-rank1.pt", 0, 2, true, "ep01-ba5-rank1.pt"},
    {"orbax", orbax, "5", 0, 0, false, NULL},
    {"orbax", orbax_commit, "5", 0, 0, false, NULL},
    {"dcp", dcp, "step-5", 0, 0, false, NULL},
    {"unknown", shards_inside, "iter_000005", 0, 0, true, NULL},
    {"lightning-sharded", lightning_sharded, "epoch=0-step=5.ckpt", 0, 0, false, NULL},
    {"lightning-sharded", lightning_deepspeed, "step=5.ckpt", 0, 1, false, NULL},
    {"hf-trainer", trainer, "checkpoint-5", 1, 1, false, NULL},
    {"hf-trainer", trainer_ranks, "checkpoint-5", 2, 2, false, NULL},
    {"hf-trainer", trainer_adapter, "run-checkpoint-5", 0, 1, false, NULL},
    {"hf-trainer", trainer_model_only, "checkpoint-5", 0, 0, false, NULL},
    {"hf-trainer", trainer_deepspeed, "checkpoint-5", 2, 2, false, NULL},
    {"hf-trainer", trainer_fsdp, "checkpoint-5", 2, 2, false, NULL},
    {"accelerate", accelerate, "checkpoint_5", 2, 2, false, NULL},
    {"accelerate", diffusers, "checkpoint-5", 0, 1, false, NULL},
    {"deepspeed", deepspeed, "global_step5", 4, 4, false, "latest"},
    {"deepspeed", deepspeed_3, "global_step5", 2, 2, false, NULL},
    {"megatron", megatron, "iter_0000005", 0, 0, false, "latest_checkpointed_iteration.txt"},
    {"megatron", megatron_dist, "iter_0000005", 0, 0, false, "latest_checkpointed_iteration.txt"},
    {"mindformers", mindformers, "iteration_00000005", 0, 0, false,
     "latest_checkpointed_iteration.txt"},
    {"paddle", paddle, "checkpoint-5", 0, 0, false, NULL},
    {"paddle", paddle_pair, "5.pdparams", 0, 0, true, "5.pdopt"},
};

enum harm { GONE = 1, LINK = 2, EMPTY = 4, CUT = 8, HALF = 16 };

/* What the sign of a layout cannot show. */
static const struct exception {
    const struct made *files;
    const char *name;
    unsigned harms;
    const char *why;
} exceptions[] = {
    {keras_backup, "latest.weights.h5.bkp", 31, "a spare copy that need not be"},
    {keras_backup, "training_metadata.json.bkp", 31, "a spare copy that need not be"},
    {tensorflow, "ckpt-5.data-00000-of-00002", EMPTY | CUT | HALF, "lengths: deep in the index"},
    {tensorflow, "ckpt-5.data-00001-of-00002", EMPTY | CUT | HALF, "lengths: deep in the index"},
    {tensorflow, "checkpoint", 31, "names the newest alone; others are whole without it"},
    {orbax, "5/state/d/0123", GONE | LINK | CUT | HALF, "named in the compressed manifest alone"},
    {orbax, "5/state/ocdbt.process_0/manifest.ocdbt", GONE | LINK, "one of each process, merged"},
    {orbax, "5/extra/metadata", EMPTY | CUT | HALF, "JSON without the name of one"},
    {orbax_commit, "5/state/ocdbt.process_0/manifest.ocdbt", GONE | LINK, "merged already"},
    {orbax_commit, "5/extra/metadata", EMPTY | CUT | HALF, "JSON without the name of one"},
    {orbax_commit, "5/state/commit_success.txt", EMPTY | CUT | HALF, "being there is the sign"},
    {orbax_commit, "5/extra/commit_success.txt", EMPTY | CUT | HALF, "being there is the sign"},
    {orbax_commit, "5/commit_success.txt", EMPTY | CUT | HALF, "being there is the sign"},
    {dcp, "step-5/__2_0.distcp", GONE | LINK, "empty, and not named: nothing is in it"},
    {trainer, "checkpoint-5/config.json", GONE | LINK, "written for models of the library alone"},
    {trainer, "checkpoint-5/training_args.bin", GONE | LINK, "not read at a resume"},
    {trainer_ranks, "checkpoint-5/scaler.pt", GONE | LINK, "written with fp16 alone"},
    {diffusers, "checkpoint-5/unet/config.json", GONE | LINK, "what a hook writes is not known"},
    {accelerate, "checkpoint_5/scheduler.bin", GONE | LINK, "written where there is one"},
    {accelerate, "checkpoint_5/sampler.bin", GONE | LINK, "written where there is one"},
    {diffusers, "checkpoint-5/scheduler.bin", GONE | LINK, "written where there is one"},
    {deepspeed, "latest", 31, "names the newest tag; the others are whole without it"},
    {megatron_dist, "iter_0000005/common.pt", GONE | LINK, "newer versions have none"},
    {megatron_dist, "latest_checkpointed_iteration.txt", 31, "'metadata.json' is the sign"},
};
/* clang-format on */

static unsigned excused(const struct made *files, const char *name)
{
    for (size_t i = 0; i < HF_COUNT(exceptions); i++) {
        if (exceptions[i].files == files && strcmp(exceptions[i].name, name) == 0) {
            return exceptions[i].harms;
        }
    }
    return 0;
}

/* ---- as it is complete ---- */

static void test_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(fixtures); i++) {
        const struct fixture *f = &fixtures[i];
        char *folder = temp_folder();
        make_files(folder, f->files);
        struct hf_layout_look l = look_at_path(folder, f->path, f->world);
        enum hf_layout_state want = f->unsure ? HF_LAYOUT_UNSURE : HF_LAYOUT_WHOLE;
        bool stepless =
            f->files == torch || f->files == npz || f->files == tensors || f->files == keras_backup;
        if (l.state != want || strcmp(l.layout, f->layout) != 0 || l.world != f->ret_world ||
            l.step != (stepless ? -1 : 5) || l.why[0] == '\0' ||
            (f->beside != NULL && !has_root(&l, f->beside))) {
            fail_msg("%s '%s': layout '%s', %s, step %lld, world %u, %zu roots: %s", f->layout,
                     f->path, l.layout, hf_layout_state_name(l.state), (long long)l.step, l.world,
                     l.roots.len, l.why);
        }
        assert_true(l.roots.len == 1 || f->beside != NULL);
        assert_true(hf_layout_bytes(&l) > 0);
        hf_layout_look_release(&l);

        /* The folder as a whole tells the same, once, and nothing of its parts. */
        struct hf_layout_looks all = scan_folder(folder, f->world);
        assert_int_equal(all.len, 1);
        assert_string_equal(all.items[0].layout, f->layout);
        assert_int_equal(all.items[0].state, want);
        hf_layout_looks_release(&all);
        remove_tree(folder);
    }
}

/* Written in the order of its framework, but for its last file: a kill at a late moment. */
static void test_c1_before_the_last_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(fixtures); i++) {
        const struct fixture *f = &fixtures[i];
        size_t n = 0;
        while (f->files[n].name != NULL) {
            n++;
        }
        if (f->unsure || (excused(f->files, f->files[n - 1].name) & GONE) != 0) {
            continue;
        }
        char *folder = temp_folder();
        for (size_t made = 0; made < n; made++) {
            struct hf_layout_look l = look_at_path(folder, f->path, f->world);
            if (l.state == HF_LAYOUT_WHOLE) {
                fail_msg("%s '%s' is whole with %zu of %zu files", f->layout, f->path, made, n);
            }
            hf_layout_look_release(&l);
            make_file(folder, &f->files[made]);
        }
        remove_tree(folder);
    }
}

/* ---- harmed ---- */

struct kept {
    char *path;
    struct hf_buf data;
    struct stat st;
};

static void keep(struct kept *k, const char *folder, const char *name)
{
    struct hf_err err;
    k->path = hf_asprintf("%s/%s", folder, name);
    hf_buf_init(&k->data, 1 << 20);
    expect_rc(hf_fs_read(k->path, &k->data, &err), HF_OK, &err);
    assert_int_equal(lstat(k->path, &k->st), 0);
}

static void put_time(const struct kept *k)
{
    const struct timespec times[2] = {k->st.st_atim, k->st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, k->path, times, 0), 0);
}

static void harm(const struct kept *k, enum harm how)
{
    size_t len = how == EMPTY ? 0 : how == CUT ? k->data.len - 1 : k->data.len / 2;
    if (how == GONE || how == LINK) {
        assert_int_equal(unlink(k->path), 0);
        if (how == LINK) {
            assert_int_equal(symlink("/nowhere/to/be/found", k->path), 0);
        }
        return;
    }
    assert_int_equal(truncate(k->path, (off_t)len), 0);
    put_time(k);
}

static void restore(const struct kept *k)
{
    unlink(k->path);
    put_file(k->path, k->data.len > 0 ? k->data.data : "", k->data.len);
    put_time(k);
}

static void harm_each_way(const struct fixture *f, const char *folder, const char *name)
{
    static const enum harm all[] = {GONE, LINK, EMPTY, CUT, HALF};
    struct kept k;
    keep(&k, folder, name);
    for (size_t i = 0; i < HF_COUNT(all); i++) {
        if (k.data.len == 0 && all[i] != GONE && all[i] != LINK) {
            continue;
        }
        harm(&k, all[i]);
        struct hf_layout_look l = look_at_path(folder, f->path, f->world);
        bool whole = l.state == HF_LAYOUT_WHOLE || (f->unsure && l.state == HF_LAYOUT_UNSURE);
        bool allowed = (excused(f->files, name) & all[i]) != 0;
        /* Of what has no sign, a file that is gone is often no fault: a pair may be a single. */
        if (whole != allowed && !(f->unsure && (all[i] == GONE || all[i] == LINK))) {
            fail_msg("%s '%s', '%s' harmed by %u: %s, %s: %s", f->layout, f->path, name,
                     (unsigned)all[i], l.layout, hf_layout_state_name(l.state), l.why);
        }
        hf_layout_look_release(&l);
        restore(&k);
    }
    struct hf_layout_look l = look_at_path(folder, f->path, f->world);
    assert_int_equal(l.state, f->unsure ? HF_LAYOUT_UNSURE : HF_LAYOUT_WHOLE);
    hf_layout_look_release(&l);
    hf_buf_release(&k.data);
    free(k.path);
}

static void test_c1_every_file_harmed(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(fixtures); i++) {
        char *folder = temp_folder();
        make_files(folder, fixtures[i].files);
        for (const struct made *m = fixtures[i].files; m->name != NULL; m++) {
            harm_each_way(&fixtures[i], folder, m->name);
        }
        remove_tree(folder);
    }
}

/* ---- what the job's number of ranks shows ---- */

static void test_c5_ranks_missing(void **state)
{
    (void)state;
    static const struct made *const by_rank[] = {composer,   trainer_ranks, trainer_deepspeed,
                                                 accelerate, deepspeed,     deepspeed_3};
    for (size_t i = 0; i < HF_COUNT(fixtures); i++) {
        bool told = false;
        for (size_t k = 0; k < HF_COUNT(by_rank); k++) {
            told = told || (fixtures[i].files == by_rank[k] && !fixtures[i].unsure);
        }
        if (!told) {
            continue;
        }
        char *folder = temp_folder();
        make_files(folder, fixtures[i].files);
        struct hf_layout_look l = look_at_path(folder, fixtures[i].path, fixtures[i].world + 1);
        if (l.state != HF_LAYOUT_PARTIAL) {
            fail_msg("%s of %u ranks is %s", fixtures[i].layout, fixtures[i].world + 1,
                     hf_layout_state_name(l.state));
        }
        hf_layout_look_release(&l);
        remove_tree(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_c1_before_the_last_file),
        cmocka_unit_test(test_c1_every_file_harmed),
        cmocka_unit_test(test_c5_ranks_missing),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
