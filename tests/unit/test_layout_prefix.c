/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/layout while it happens: for every row of the table the file operations of its
 * framework (simulated; docs/ckpt.md has the order), each file empty, half, a byte short and done.
 * A folder is judged after every single one, in the framework's order and in seeded orders of what
 * it leaves open: whole only when everything is there, and then until something is removed; the
 * checkpoint before stays what it was. Then the older one is pruned file by file in any order, and
 * nothing that is called whole lacks a file or has one of another.
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
#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/layout_row.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

#define OPS_MAX 16
#define PIECES  4
#define ORDERS  5

enum flags {
    LATE = 1,  /* comes after the sign: whole without it */
    SPARE = 2, /* its removal is not noticed (docs/ckpt.md: what the sign cannot show) */
    MOVE = 4   /* text: the new name */
};

/* '@' stands for the step, in names and texts. What has one phase may come in any order. */
struct op {
    unsigned phase;
    const char *name;
    enum make make;
    const char *text;
    unsigned flags;
};

#define STATE "{\"global_step\": @, \"log_history\": [{\"grad_norm\": NaN}]}"
#define INDEX                                                                \
    "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": " \
    "\"model-00002-of-00002.safetensors\"}}"
#define SHARDS  "}X\x0c__0_0.distcp}X\x0c__1_0.distcp"
#define TRACKER "latest_checkpointed_iteration.txt"
#define ORBAX(time)                                                                               \
    "{\"item_handlers\": {\"state\": \"S\", \"extra\": \"J\"}, \"commit_timestamp_nsecs\": " time \
    "}"

/* clang-format off */
static const struct scenario {
    const char *layout;
    const char *path;
    uint32_t world;
    enum hf_layout_state end;
    struct op ops[OPS_MAX];
} scenarios[] = {
    {"torch", "ckpt.pt", 0, HF_LAYOUT_WHOLE, {{1, "ckpt.pt", MAKE_ZIP64, NULL, 0}}},
    {"torch", "state-@.npz", 0, HF_LAYOUT_WHOLE, {{1, "state-@.npz", MAKE_ZIP, NULL, 0}}},
    {"lightning", "epoch=1-step=@.ckpt", 0, HF_LAYOUT_WHOLE,
     {{1, "epoch=1-step=@.ckpt", MAKE_ZIP64, NULL, 0}}},
    {"timm", "last.pth.tar", 0, HF_LAYOUT_WHOLE,
     {{1, "tmp.pth.tar", MAKE_ZIP64, NULL, 0}, {2, "tmp.pth.tar", 0, "last.pth.tar", MOVE}}},
    {"safetensors", "model-@.safetensors", 0, HF_LAYOUT_WHOLE,
     {{1, "model-@.safetensors", MAKE_TENSORS, NULL, 0}}},
    {"keras", "m-@.keras", 0, HF_LAYOUT_WHOLE, {{1, "m-@.keras", MAKE_ZIP, NULL, 0}}},
    {"keras", "e@.weights.h5", 0, HF_LAYOUT_WHOLE, {{1, "e@.weights.h5", MAKE_HDF5, NULL, 0}}},
    {"keras-backup", "latest.weights.h5", 0, HF_LAYOUT_WHOLE,
     {{1, "latest.weights.h5", 0, "latest.weights.h5.bkp", MOVE | SPARE},
      {2, "training_metadata.json", 0, "training_metadata.json.bkp", MOVE | SPARE},
      {3, "latest.weights.h5", MAKE_HDF5, NULL, 0},
      {4, "training_metadata.json", MAKE_TEXT, "{\"epoch\": @}", 0}}},
    {"keras-backup", "latest.weights.h5", 0, HF_LAYOUT_WHOLE,
     {{1, "latest.weights.h5", MAKE_HDF5, NULL, 0},
      {2, "training_metadata.json", MAKE_TEXT, "{\"epoch\": @}", 0}}},
    {"tensorflow", "ckpt-@.index", 0, HF_LAYOUT_WHOLE,
     {{1, "ckpt-@.data-00000-of-00002", MAKE_RAW, NULL, 0},
      {1, "ckpt-@.data-00001-of-00002", MAKE_RAW, NULL, 0},
      {2, "ckpt-@.index", MAKE_TABLE, NULL, 0},
      {3, "checkpoint", MAKE_TEXT, "model_checkpoint_path: \"ckpt-@\"\n", LATE}}},
    {"composer", "ep1-ba@-rank0.pt", 3, HF_LAYOUT_WHOLE,
     {{1, "ep1-ba@-rank0.pt", MAKE_ZIP64, NULL, 0},
      {1, "ep1-ba@-rank1.pt", MAKE_ZIP64, NULL, 0},
      {1, "ep1-ba@-rank2.pt", MAKE_ZIP64, NULL, 0}}},
    {"composer", "ep1-ba@-rank0.pt", 0, HF_LAYOUT_UNSURE,
     {{1, "ep1-ba@-rank0.pt", MAKE_ZIP64, NULL, 0}, {1, "ep1-ba@-rank1.pt", MAKE_ZIP64, NULL, 0}}},
    {"orbax", "@", 0, HF_LAYOUT_WHOLE,
     {{1, "@.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", MAKE_TEXT, ORBAX("null"), 0},
      {2, "@.orbax-checkpoint-tmp/state/_METADATA", MAKE_TEXT, "{\"tree_metadata\": {}}", 0},
      {2, "@.orbax-checkpoint-tmp/state/d/0123", MAKE_RAW, NULL, SPARE},
      {2, "@.orbax-checkpoint-tmp/state/ocdbt.process_0/manifest.ocdbt", MAKE_MANIFEST, NULL,
       SPARE},
      {2, "@.orbax-checkpoint-tmp/state/manifest.ocdbt", MAKE_MANIFEST, NULL, 0},
      {2, "@.orbax-checkpoint-tmp/extra/metadata", MAKE_TEXT, "{\"x\": 1}", 0},
      {3, "@.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", MAKE_TEXT, ORBAX("17"), 0},
      {4, "@.orbax-checkpoint-tmp", 0, "@", MOVE}}},
    {"orbax", "@", 0, HF_LAYOUT_WHOLE,
     {{1, "@/_CHECKPOINT_METADATA", MAKE_TEXT, ORBAX("null"), 0},
      {2, "@/state/_METADATA", MAKE_TEXT, "{\"tree_metadata\": {}}", 0},
      {2, "@/state/manifest.ocdbt", MAKE_MANIFEST, NULL, 0},
      {2, "@/state/ocdbt.process_0/manifest.ocdbt", MAKE_MANIFEST, NULL, SPARE},
      {2, "@/extra/metadata", MAKE_TEXT, "{\"x\": 1}", 0},
      {3, "@/state/commit_success.txt", MAKE_TEXT, "committed", 0},
      {3, "@/extra/commit_success.txt", MAKE_TEXT, "committed", 0},
      {4, "@/_CHECKPOINT_METADATA", MAKE_TEXT, ORBAX("17"), 0},
      {5, "@/commit_success.txt", MAKE_TEXT, "", 0}}},
    {"dcp", "step-@", 0, HF_LAYOUT_WHOLE,
     {{1, "step-@/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "step-@/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "step-@/__2_0.distcp", MAKE_TEXT, "", SPARE},
      {2, "step-@/.metadata.tmp", MAKE_PICKLE, SHARDS, 0},
      {3, "step-@/.metadata.tmp", 0, "step-@/.metadata", MOVE}}},
    {"unknown", "iter_00000@", 0, HF_LAYOUT_UNSURE,
     {{1, "iter_00000@/model/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "iter_00000@/model/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {2, "iter_00000@/model/.metadata", MAKE_PICKLE, SHARDS, 0}}},
    {"lightning-sharded", "epoch=0-step=@.ckpt", 0, HF_LAYOUT_WHOLE,
     {{1, "epoch=0-step=@.ckpt/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "epoch=0-step=@.ckpt/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {2, "epoch=0-step=@.ckpt/.metadata", MAKE_PICKLE, SHARDS, 0},
      {3, "epoch=0-step=@.ckpt/meta.pt", MAKE_ZIP64, NULL, 0}}},
    {"lightning-sharded", "step=@.ckpt", 2, HF_LAYOUT_WHOLE,
     {{1, "step=@.ckpt/checkpoint/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "step=@.ckpt/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "step=@.ckpt/checkpoint/zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {2, "step=@.ckpt/latest", MAKE_TEXT, "checkpoint", 0}}},
    {"hf-trainer", "checkpoint-@", 1, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/config.json", MAKE_TEXT, "{\"a\": 1}", SPARE},
      {1, "checkpoint-@/model.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "checkpoint-@/training_args.bin", MAKE_ZIP64, NULL, SPARE},
      {1, "checkpoint-@/optimizer.pt", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint-@/scheduler.pt", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint-@/rng_state.pth", MAKE_ZIP64, NULL, 0},
      {2, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    /* Rank 1 may be later than rank 0 with its last file. */
    {"hf-trainer", "checkpoint-@", 2, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/model-00001-of-00002.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "checkpoint-@/model-00002-of-00002.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "checkpoint-@/model.safetensors.index.json", MAKE_TEXT, INDEX, 0},
      {1, "checkpoint-@/optimizer.pt", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint-@/scheduler.pt", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint-@/scaler.pt", MAKE_ZIP64, NULL, SPARE},
      {1, "checkpoint-@/rng_state_0.pth", MAKE_ZIP64, NULL, 0},
      {2, "checkpoint-@/rng_state_1.pth", MAKE_ZIP64, NULL, 0},
      {2, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    {"hf-trainer", "run-checkpoint-@", 0, HF_LAYOUT_WHOLE,
     {{1, "run-checkpoint-@/adapter_model.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "run-checkpoint-@/adapter_config.json", MAKE_TEXT, "{\"r\": 8}", 0},
      {1, "run-checkpoint-@/optimizer.pt", MAKE_ZIP64, NULL, 0},
      {1, "run-checkpoint-@/scheduler.pt", MAKE_ZIP64, NULL, 0},
      {1, "run-checkpoint-@/rng_state.pth", MAKE_ZIP64, NULL, 0},
      {2, "run-checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    {"hf-trainer", "checkpoint-@", 0, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/pytorch_model.bin", MAKE_ZIP64, NULL, 0},
      {2, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    {"hf-trainer", "checkpoint-@", 2, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/global_step@/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint-@/global_step@/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64,
       NULL, 0},
      {1, "checkpoint-@/global_step@/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64,
       NULL, 0},
      {2, "checkpoint-@/latest", MAKE_TEXT, "global_step@", 0},
      {3, "checkpoint-@/rng_state_0.pth", MAKE_ZIP64, NULL, 0},
      {3, "checkpoint-@/rng_state_1.pth", MAKE_ZIP64, NULL, 0},
      {3, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    {"hf-trainer", "checkpoint-@", 2, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/pytorch_model_fsdp_0/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "checkpoint-@/pytorch_model_fsdp_0/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {2, "checkpoint-@/pytorch_model_fsdp_0/.metadata", MAKE_PICKLE, SHARDS, 0},
      {3, "checkpoint-@/optimizer_0/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {3, "checkpoint-@/optimizer_0/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {4, "checkpoint-@/optimizer_0/.metadata", MAKE_PICKLE, SHARDS, 0},
      {5, "checkpoint-@/scheduler.pt", MAKE_ZIP64, NULL, 0},
      {6, "checkpoint-@/rng_state_0.pth", MAKE_ZIP64, NULL, 0},
      {6, "checkpoint-@/rng_state_1.pth", MAKE_ZIP64, NULL, 0},
      {6, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0}}},
    {"accelerate", "checkpoint_@", 2, HF_LAYOUT_WHOLE,
     {{1, "checkpoint_@/model.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "checkpoint_@/optimizer.bin", MAKE_ZIP64, NULL, 0},
      {1, "checkpoint_@/scheduler.bin", MAKE_ZIP64, NULL, SPARE},
      {1, "checkpoint_@/sampler.bin", MAKE_ZIP64, NULL, SPARE},
      {2, "checkpoint_@/random_states_0.pkl", MAKE_ZIP64, NULL, 0},
      {2, "checkpoint_@/random_states_1.pkl", MAKE_ZIP64, NULL, 0}}},
    {"accelerate", "checkpoint-@", 1, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/unet/diffusion_pytorch_model.safetensors", MAKE_TENSORS, NULL, 0},
      {2, "checkpoint-@/optimizer.bin", MAKE_ZIP64, NULL, 0},
      {3, "checkpoint-@/scheduler.bin", MAKE_ZIP64, NULL, SPARE},
      {4, "checkpoint-@/random_states_0.pkl", MAKE_ZIP64, NULL, 0}}},
    {"deepspeed", "global_step@", 4, HF_LAYOUT_WHOLE,
     {{1, "global_step@/mp_rank_00_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/mp_rank_01_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/zero_pp_rank_0_mp_rank_01_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/zero_pp_rank_1_mp_rank_01_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {2, "latest", MAKE_TEXT, "global_step@", LATE}}},
    {"deepspeed", "global_step@", 2, HF_LAYOUT_WHOLE,
     {{1, "global_step@/zero_pp_rank_0_mp_rank_00_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/zero_pp_rank_1_mp_rank_00_model_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0},
      {1, "global_step@/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", MAKE_ZIP64, NULL, 0}}},
    {"megatron", "iter_000000@", 0, HF_LAYOUT_WHOLE,
     {{1, "iter_000000@/mp_rank_00_000/model_optim_rng.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_00_001/model_optim_rng.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_01_000/model_optim_rng.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_01_001/model_optim_rng.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_00_000/distrib_optim.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_00_001/distrib_optim.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_01_000/distrib_optim.pt", MAKE_ZIP64, NULL, 0},
      {1, "iter_000000@/mp_rank_01_001/distrib_optim.pt", MAKE_ZIP64, NULL, 0},
      {2, TRACKER, MAKE_TEXT, "@", 0}}},
    {"megatron", "iter_000000@", 0, HF_LAYOUT_WHOLE,
     {{1, "iter_000000@/common.pt", MAKE_ZIP64, NULL, SPARE},
      {1, "iter_000000@/__0_0.distcp", MAKE_ZIPS, NULL, 0},
      {1, "iter_000000@/__1_0.distcp", MAKE_ZIPS, NULL, 0},
      {2, "iter_000000@/.metadata", MAKE_PICKLE, SHARDS, 0},
      {3, "iter_000000@/metadata.json", MAKE_TEXT, "{\"sharded_backend\": \"torch_dist\"}", 0},
      {4, TRACKER, MAKE_TEXT, "@", LATE}}},
    {"mindformers", "iteration_0000000@", 0, HF_LAYOUT_WHOLE,
     {{1, "iteration_0000000@/metadata.json", MAKE_TEXT, "{\"a\": 1}", 0},
      {1, "iteration_0000000@/common.json", MAKE_TEXT, "{\"a\": 1}", 0},
      {1, "iteration_0000000@/llm-model-0000000-0000002.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "iteration_0000000@/llm-model-0000001-0000002.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "iteration_0000000@/llm-opt-0000000-0000002.safetensors", MAKE_TENSORS, NULL, 0},
      {1, "iteration_0000000@/llm-opt-0000001-0000002.safetensors", MAKE_TENSORS, NULL, 0},
      {2, TRACKER, MAKE_TEXT, "@", 0}}},
    {"paddle", "checkpoint-@", 0, HF_LAYOUT_WHOLE,
     {{1, "checkpoint-@/model_state.pdparams", MAKE_PICKLE, NULL, 0},
      {1, "checkpoint-@/optimizer.pdopt", MAKE_PICKLE, NULL, 0},
      {1, "checkpoint-@/scheduler.pdparams", MAKE_PICKLE, NULL, 0},
      {1, "checkpoint-@/trainer_state.json", MAKE_TEXT, STATE, 0},
      {2, "checkpoint-@/.checkpoint_done", MAKE_TEXT, "", 0}}},
    {"paddle", "@.pdparams", 0, HF_LAYOUT_UNSURE,
     {{1, "@.pdparams", MAKE_PICKLE, NULL, 0}, {1, "@.pdopt", MAKE_PICKLE, NULL, 0}}},
    {"unknown", "weights@.dat", 0, HF_LAYOUT_UNSURE, {{1, "weights@.dat", MAKE_RAW, NULL, 0}}},
};
/* clang-format on */

/* One save under way. */
struct saving {
    const struct scenario *sc;
    const char *folder;
    char step;
    size_t n;
    unsigned done[OPS_MAX]; /* pieces of each operation; PIECES: all */
};

static uint64_t random_state;
static time_t ticks; /* of file times: no two operations share one */

static uint64_t roll(uint64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % n;
}

static char *with_step(const char *text, char step)
{
    char *s = hf_strdup(text != NULL ? text : "");
    for (char *p = s; *p != '\0'; p++) {
        *p = *p == '@' ? step : *p;
    }
    return s;
}

static void begin(struct saving *s, const struct scenario *sc, const char *folder, char step)
{
    *s = (struct saving){.sc = sc, .folder = folder, .step = step};
    while (s->n < OPS_MAX && sc->ops[s->n].name != NULL) {
        s->n++;
    }
}

static void move(const struct saving *s, const struct op *op)
{
    HF_CLEANUP(hf_freep) char *from_name = with_step(op->name, s->step);
    HF_CLEANUP(hf_freep) char *to_name = with_step(op->text, s->step);
    HF_CLEANUP(hf_freep) char *from = hf_asprintf("%s/%s", s->folder, from_name);
    HF_CLEANUP(hf_freep) char *to = hf_asprintf("%s/%s", s->folder, to_name);
    if ((op->flags & SPARE) == 0 || access(from, F_OK) == 0) { /* a spare copy of what there is */
        assert_int_equal(rename(from, to), 0);
    }
}

/* Writes the next piece of a file in place: nothing, half, all but a byte, all. */
static void write_piece(const struct saving *s, const struct op *op, unsigned piece)
{
    HF_CLEANUP(hf_freep) char *name = with_step(op->name, s->step);
    HF_CLEANUP(hf_freep) char *text = with_step(op->text, s->step);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", s->folder, name);
    HF_CLEANUP(hf_freep) char *parent = hf_strndup(path, (size_t)(strrchr(path, '/') - path));
    struct hf_err err;
    struct hf_buf b;
    hf_buf_init(&b, 1 << 16);
    make_bytes(op->make, op->text != NULL ? text : NULL, &b);
    size_t ends[PIECES] = {0, b.len / 2, b.len > 0 ? b.len - 1 : 0, b.len};
    size_t from = piece > 0 ? ends[piece - 1] : 0;
    expect_rc(hf_fs_mkdirs(parent, 0755, &err), HF_OK, &err);
    int fd = open(path, O_WRONLY | O_CREAT | (piece == 0 ? O_TRUNC : 0), 0644);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, b.len > 0 ? b.data + from : "", ends[piece] - from, (off_t)from),
                     (ssize_t)(ends[piece] - from));
    close(fd);
    put_mtime(s->folder, name, ++ticks);
    hf_buf_release(&b);
}

/* The next move of the framework: of the operations of the first phase that is not over the first
 * one that is not, or any. False: there is none left. */
static bool advance(struct saving *s, bool any)
{
    size_t open[OPS_MAX];
    size_t n_open = 0;
    unsigned phase = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct op *op = &s->sc->ops[i];
        if (s->done[i] < PIECES && (phase == 0 || op->phase == phase)) {
            phase = op->phase;
            open[n_open++] = i;
        }
    }
    if (n_open == 0) {
        return false;
    }
    size_t at = open[any ? roll(n_open) : 0];
    const struct op *op = &s->sc->ops[at];
    if ((op->flags & MOVE) != 0) {
        move(s, op);
        s->done[at] = PIECES;
    } else {
        write_piece(s, op, s->done[at]);
        s->done[at]++;
    }
    return true;
}

static bool complete(const struct saving *s)
{
    bool all = true;
    for (size_t i = 0; i < s->n; i++) {
        all = all && (s->done[i] == PIECES || (s->sc->ops[i].flags & LATE) != 0);
    }
    return all;
}

/* An empty file is all there once it is. */
static bool is_as_good_as_complete(const struct saving *s)
{
    bool all = true;
    for (size_t i = 0; i < s->n; i++) {
        const struct op *op = &s->sc->ops[i];
        bool empty = (op->flags & MOVE) == 0 && op->make == MAKE_TEXT && op->text[0] == '\0';
        all = all && (s->done[i] == PIECES || (op->flags & LATE) != 0 || (empty && s->done[i] > 0));
    }
    return all;
}

/* Has anything of what was there before been touched? */
static bool untouched(const struct saving *s)
{
    bool none = true;
    for (size_t i = 0; i < s->n; i++) {
        const struct op *op = &s->sc->ops[i];
        none = none && (s->done[i] == 0 || strstr(op->name, "tmp") != NULL);
    }
    return none;
}

static struct hf_layout_look look(const struct saving *s)
{
    HF_CLEANUP(hf_freep) char *path = with_step(s->sc->path, s->step);
    return look_at_path(s->folder, path, s->sc->world);
}

static void fail_so(const struct saving *s, const struct hf_layout_look *l, const char *what)
{
    char text[OPS_MAX + 1] = "";
    for (size_t i = 0; i < s->n; i++) {
        text[i] = (char)('0' + s->done[i]);
    }
    fail_msg("%s '%s' of step %c, pieces %s: %s: %s, %s", s->sc->layout, s->sc->path, s->step, text,
             what, hf_layout_state_name(l->state), l->why);
}

/* Nothing else in the folder is called whole. */
static void others_are_not_whole(const struct saving *s, const char *known, bool known_whole)
{
    struct hf_layout_looks looks = scan_folder(s->folder, s->sc->world);
    HF_CLEANUP(hf_freep) char *old = with_step(s->sc->path, known[0]);
    HF_CLEANUP(hf_freep) char *now = with_step(s->sc->path, s->step);
    for (size_t i = 0; i < looks.len; i++) {
        const struct hf_layout_look *l = &looks.items[i];
        const char *name = strrchr(l->path, '/') + 1;
        bool may = (strcmp(name, now) == 0 && is_as_good_as_complete(s)) ||
                   (strcmp(name, old) == 0 && known_whole) || strcmp(name, "tmp.pth.tar") == 0;
        if (l->state == HF_LAYOUT_WHOLE && !may) {
            fail_so(s, l, l->path);
        }
        for (size_t k = 0; k < l->roots.len && l->state == HF_LAYOUT_WHOLE; k++) {
            const char *root = strrchr(l->roots.items[k], '/') + 1;
            char other = strcmp(name, now) == 0 ? known[0] : s->step;
            if (strcmp(now, old) != 0 && strchr(root, other) != NULL &&
                strchr(name, other) == NULL) {
                fail_so(s, l, l->roots.items[k]);
            }
        }
    }
    hf_layout_looks_release(&looks);
}

/* A save from its first operation to the last. before: the step of a complete one that is there. */
static void run_save(const struct scenario *sc, const char *folder, char step, const char *before,
                     bool any)
{
    struct saving s;
    bool whole = false;
    bool in_place = strchr(sc->path, '@') == NULL;
    begin(&s, sc, folder, step);
    while (advance(&s, any)) {
        struct hf_layout_look l = look(&s);
        bool old = before != NULL && in_place && untouched(&s);
        if (l.state == HF_LAYOUT_WHOLE && !is_as_good_as_complete(&s) && !old) {
            fail_so(&s, &l, "too early");
        }
        if (whole && l.state != HF_LAYOUT_WHOLE) {
            fail_so(&s, &l, "no more");
        }
        whole = l.state == HF_LAYOUT_WHOLE && !old;
        if (complete(&s) && l.state != sc->end) {
            fail_so(&s, &l, "complete");
        }
        if (l.state == sc->end && strcmp(l.layout, sc->layout) != 0) {
            fail_so(&s, &l, l.layout);
        }
        hf_layout_look_release(&l);
        if (before != NULL && !in_place) { /* a tracker that is cut makes nobody partial */
            struct saving old_one;
            begin(&old_one, sc, folder, before[0]);
            l = look(&old_one);
            if (l.state != sc->end && l.state != HF_LAYOUT_UNSURE) {
                fail_so(&s, &l, "the one before");
            }
            hf_layout_look_release(&l);
        }
        others_are_not_whole(&s, before != NULL ? before : "-", before != NULL);
    }
}

/* A file of the step that is pruned, as it lies there; false: it is another's, or was moved. */
static bool prunable(const struct scenario *sc, const struct op *op, char step, char **ret)
{
    bool staged = false; /* what is renamed as a folder */
    for (size_t i = 0; i < OPS_MAX && sc->ops[i].name != NULL; i++) {
        const struct op *m = &sc->ops[i];
        size_t len = strlen(m->name);
        if ((m->flags & MOVE) != 0 && m != op && strncmp(op->name, m->name, len) == 0 &&
            op->name[len] == '/') {
            HF_CLEANUP(hf_freep) char *moved = hf_asprintf("%s%s", m->text, op->name + len);
            *ret = with_step(moved, step);
            return true;
        }
        staged = staged || ((m->flags & MOVE) != 0 && m != op && strcmp(op->name, m->name) == 0);
    }
    const char *name = (op->flags & MOVE) != 0 ? op->text : op->name;
    if (strchr(name, '@') == NULL || staged ||
        ((op->flags & MOVE) != 0 && strcmp(name, sc->path) == 0)) {
        return false;
    }
    *ret = with_step(name, step);
    return true;
}

/* Step 5 goes, file by file in some order, beside step 6. */
static void prune(const struct scenario *sc, const char *folder)
{
    struct saving five, six;
    begin(&five, sc, folder, '5');
    begin(&six, sc, folder, '6');
    for (size_t i = 0; i < six.n; i++) {
        six.done[i] = PIECES;
    }
    size_t left[OPS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < five.n; i++) {
        left[n++] = i;
    }
    bool lacks = false;
    while (n > 0) {
        size_t at = roll(n);
        const struct op *op = &sc->ops[left[at]];
        char *name = NULL;
        left[at] = left[--n];
        if (!prunable(sc, op, '5', &name)) {
            continue;
        }
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", folder, name);
        bool gone = unlink(path) == 0; /* some are written twice */
        lacks = lacks || (gone && (op->flags & SPARE) == 0);
        free(name);
        struct hf_layout_look l = look(&five);
        if (l.state == HF_LAYOUT_WHOLE && lacks) {
            fail_so(&five, &l, "pruned");
        }
        hf_layout_look_release(&l);
        l = look(&six);
        if (l.state != sc->end) {
            fail_so(&six, &l, "while another is pruned");
        }
        hf_layout_look_release(&l);
        others_are_not_whole(&six, "5", !lacks);
    }
    assert_true(lacks);
}

static void in_order(const struct scenario *sc, bool any)
{
    char *folder = temp_folder();
    run_save(sc, folder, '5', NULL, any);
    run_save(sc, folder, '6', "5", any);
    if (strchr(sc->path, '@') != NULL) {
        prune(sc, folder);
    }
    remove_tree(folder);
}

static void test_c1_every_prefix_in_the_frameworks_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(scenarios); i++) {
        in_order(&scenarios[i], false);
    }
}

static void test_c1_every_prefix_in_any_order(void **state)
{
    (void)state;
    const char *seed = getenv("HOLDFAST_TEST_SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : hf_random_u64();
    print_message("again: HOLDFAST_TEST_SEED=%llu\n", (unsigned long long)random_state);
    for (unsigned order = 0; order < ORDERS; order++) {
        for (size_t i = 0; i < HF_COUNT(scenarios); i++) {
            in_order(&scenarios[i], true);
        }
    }
}

static void every_row_has_a_scenario(void **state)
{
    (void)state;
    for (size_t i = 0; i < hf_layout_n_rows; i++) {
        bool has = strcmp(hf_layout_rows[i].name, "none") == 0;
        for (size_t k = 0; k < HF_COUNT(scenarios); k++) {
            has = has || strcmp(hf_layout_rows[i].name, scenarios[k].layout) == 0;
        }
        if (!has) {
            fail_msg("no scenario of '%s'", hf_layout_rows[i].name);
        }
    }
}

int main(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
    }
    ticks = 1700000000;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_a_scenario),
        cmocka_unit_test(test_c1_every_prefix_in_the_frameworks_order),
        cmocka_unit_test(test_c1_every_prefix_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
