/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts whose checkpoint is a folder: what must be in it, and in which order its framework
 * writes. Every file of a folder is also looked at by itself afterwards (layout.c): here stands
 * only what has to be there. Blocking, read only. Sources: the frameworks' own code (docs/ckpt.md).
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fsx.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/layout_row.h"

static bool named(const struct hf_scene *s, const char *pattern)
{
    return hf_name_like(s->item->name, pattern, NULL);
}

/* ---- Orbax: a temporary name, then a rename ---- */

bool hf_is_orbax(const struct hf_scene *s)
{
    return strstr(s->item->name, ".orbax-checkpoint-tmp") != NULL ||
           hf_folder_has(&s->inside, "_CHECKPOINT_METADATA");
}

void hf_judge_orbax(struct hf_scene *s)
{
    if (strstr(s->item->name, ".orbax-checkpoint-tmp") != NULL) {
        /* "<step>.orbax-checkpoint-tmp-<n>": the last number is not the step. */
        s->look->step = strtoll(s->item->name, NULL, 10);
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "its name says that it is not finished");
        return;
    }
    if (!hf_scene_need(s, "_CHECKPOINT_METADATA")) {
        return;
    }
    if (s->inside.len == 1) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "nothing but its metadata");
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE, "renamed into place by the framework");
}

/* ---- torch.distributed.checkpoint ---- */

bool hf_is_dcp(const struct hf_scene *s)
{
    return hf_folder_has(&s->inside, ".metadata") ||
           hf_folder_has_like(&s->inside, "__#_#.distcp") ||
           hf_folder_has(&s->inside, ".metadata.tmp");
}

void hf_judge_dcp(struct hf_scene *s)
{
    if (hf_scene_need_dcp(s, &s->inside)) {
        hf_scene_say(s, HF_LAYOUT_WHOLE,
                     "'.metadata', which is written last, and every file that it names");
    }
}

bool hf_is_lightning_dir(const struct hf_scene *s)
{
    return (named(s, "*.ckpt") || hf_folder_has(&s->inside, "meta.pt")) && hf_is_dcp(s);
}

void hf_judge_lightning_dir(struct hf_scene *s)
{
    if (hf_scene_need_dcp(s, &s->inside) && hf_scene_need(s, "meta.pt")) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'meta.pt', which is written last, and all shards");
    }
}

/* ---- model weights, as Transformers and Accelerate write them ---- */

static enum hf_rc index_names(const struct hf_folder *f, const char *name, struct hf_strv *ret)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", f->path, name);
    struct hf_buf text;
    hf_buf_init(&text, 64u << 20);
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    enum hf_rc rc = hf_fs_read(path, &text, NULL);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&text), 64u << 20, &json, NULL);
    }
    const cJSON *map = rc == HF_OK ? hf_json_opt(json, "weight_map") : NULL;
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, map)
    {
        if (cJSON_IsString(one) && !hf_strv_has(ret, one->valuestring)) {
            hf_strv_add(ret, one->valuestring);
        }
    }
    hf_buf_release(&text);
    return rc;
}

/* The index and every shard that it names. */
static bool need_index(struct hf_scene *s, const char *index)
{
    struct hf_strv names = {0};
    bool whole = hf_scene_need(s, index) && index_names(&s->inside, index, &names) == HF_OK;
    for (size_t i = 0; i < names.len && whole; i++) {
        whole = hf_scene_need(s, names.items[i]);
    }
    if (whole && names.len == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' names no shards", index);
        whole = false;
    }
    hf_strv_clear(&names);
    return whole;
}

static bool need_dcp_dir(struct hf_scene *s, const char *name)
{
    struct hf_folder f;
    if (hf_folder_open_in(&s->inside, name, &f, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is missing", name);
        return false;
    }
    bool whole = hf_scene_need_dcp(s, &f);
    hf_folder_close(&f);
    return whole;
}

static bool need_deepspeed(struct hf_scene *s, const struct hf_folder *f);

/* A DeepSpeed tag inside: "global_stepN", or Accelerate's "pytorch_model". -1: none. */
static int deepspeed_inside(struct hf_scene *s)
{
    for (size_t i = 0; i < s->inside.len; i++) {
        const struct hf_item *item = &s->inside.items[i];
        struct hf_folder f;
        if (!item->dir ||
            (!hf_name_like(item->name, "global_step#", NULL) &&
             strcmp(item->name, "pytorch_model") != 0) ||
            hf_folder_open_in(&s->inside, item->name, &f, NULL) != HF_OK) {
            continue;
        }
        bool tag = hf_folder_has_like(&f, "*_model_states.pt");
        bool whole = tag && need_deepspeed(s, &f);
        hf_folder_close(&f);
        if (tag) {
            return whole ? 1 : 0;
        }
    }
    return -1;
}

static bool need_weights(struct hf_scene *s)
{
    static const char *const alone[] = {"model.safetensors",         "pytorch_model.bin",
                                        "adapter_model.safetensors", "adapter_model.bin",
                                        "pytorch_model_fsdp.bin",    "tf_model.h5"};
    static const char *const indexes[] = {"model.safetensors.index.json",
                                          "pytorch_model.bin.index.json"};
    int deepspeed = deepspeed_inside(s);
    if (deepspeed >= 0) {
        return deepspeed == 1;
    }
    if (hf_folder_has_dir(&s->inside, "pytorch_model_fsdp_0")) {
        return need_dcp_dir(s, "pytorch_model_fsdp_0");
    }
    for (size_t i = 0; i < HF_COUNT(indexes); i++) {
        if (hf_folder_has(&s->inside, indexes[i])) {
            return need_index(s, indexes[i]);
        }
    }
    bool shards = hf_folder_has_like(&s->inside, "model-#-of-#.safetensors") ||
                  hf_folder_has_like(&s->inside, "pytorch_model-#-of-#.bin");
    for (size_t i = 0; i < HF_COUNT(alone) && !shards; i++) {
        if (hf_folder_has(&s->inside, alone[i])) {
            return hf_scene_need(s, alone[i]);
        }
    }
    hf_scene_say(s, HF_LAYOUT_PARTIAL, shards ? "shards without their index" : "no model weights");
    return false;
}

static bool need_fsdp_optimizer(struct hf_scene *s)
{
    return !hf_folder_has_dir(&s->inside, "pytorch_model_fsdp_0") || need_dcp_dir(s, "optimizer_0");
}

/* ---- Accelerate: the random states of every rank come last ---- */

#define STATES "random_states_#.pkl"

bool hf_is_accelerate(const struct hf_scene *s)
{
    return hf_folder_has_like(&s->inside, STATES) || named(s, "checkpoint_#");
}

void hf_judge_accelerate(struct hf_scene *s)
{
    if (!need_weights(s) || !need_fsdp_optimizer(s)) {
        return;
    }
    uint32_t ranks = hf_scene_need_row(s, &s->inside, STATES, s->world);
    if (ranks == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "no '" STATES "' yet");
        return;
    }
    s->look->world = ranks;
    hf_scene_say(s, HF_LAYOUT_WHOLE, "the weights, and the random states of %u rank%s", ranks,
                 ranks == 1 ? "" : "s");
}

/* ---- Transformers' Trainer: trainer_state.json comes last on rank 0 ---- */

#define SENTINEL "checkpoint-is-incomplete.txt"

bool hf_is_trainer(const struct hf_scene *s)
{
    return named(s, "*checkpoint-#") &&
           (s->inside.len == 0 || hf_folder_has(&s->inside, "trainer_state.json") ||
            hf_folder_has(&s->inside, "config.json") || hf_folder_has(&s->inside, SENTINEL) ||
            hf_folder_has(&s->inside, "training_args.bin") ||
            hf_folder_has_like(&s->inside, "*.safetensors") ||
            hf_folder_has_like(&s->inside, "pytorch_model*.bin"));
}

/* Optimizer, scheduler and random states are there together, or not at all (save_only_model). */
static bool need_training_state(struct hf_scene *s, bool *ret_any)
{
    const struct hf_folder *f = &s->inside;
    bool deepspeed = hf_folder_has_like(f, "zero_to_fp32.py") || deepspeed_inside(s) >= 0;
    bool optimizer = hf_folder_has(f, "optimizer.pt") || hf_folder_has(f, "optimizer.bin") ||
                     hf_folder_has_dir(f, "optimizer_0") || deepspeed;
    bool scheduler = hf_folder_has(f, "scheduler.pt");
    uint32_t ranks = hf_scene_need_row(s, f, "rng_state_#.pth", s->world > 1 ? s->world : 0);
    bool one = hf_folder_has(f, "rng_state.pth");
    if (s->look->state == HF_LAYOUT_PARTIAL) {
        return false;
    }
    *ret_any = optimizer || scheduler || ranks > 0 || one;
    if (!*ret_any) {
        return true;
    }
    const char *missing = !optimizer                 ? "'optimizer.pt'"
                          : !scheduler && !deepspeed ? "'scheduler.pt'"
                          : ranks == 0 && !one       ? "'rng_state.pth'"
                                                     : NULL;
    if (missing != NULL) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "%s is missing", missing);
        return false;
    }
    if (s->world > 1 && ranks == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "the random states of %u ranks are missing", s->world);
        return false;
    }
    s->look->world = ranks > 0 ? ranks : 1;
    return true;
}

void hf_judge_trainer(struct hf_scene *s)
{
    bool state = false;
    if (hf_folder_find(&s->inside, SENTINEL) != NULL) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'" SENTINEL "' says so");
        return;
    }
    if (!need_weights(s) || !need_fsdp_optimizer(s) || !need_training_state(s, &state) ||
        !hf_scene_need(s, "trainer_state.json")) {
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE,
                 state ? "weights, optimizer, random states, and 'trainer_state.json' after them"
                       : "weights and 'trainer_state.json'; saved without the training's state");
}

/* ---- DeepSpeed: a file or two a rank; "latest" proves nothing ---- */

static bool need_grid(struct hf_scene *s, const struct hf_folder *f, const char *prefix,
                      uint32_t *ret)
{
    uint32_t ranks = 0;
    for (uint32_t mp = 0;; mp++) {
        HF_CLEANUP(hf_freep)
        char *model = hf_asprintf("mp_rank_%02u_model_states.pt", mp);
        HF_CLEANUP(hf_freep)
        char *first = hf_asprintf("%szero_pp_rank_0_mp_rank_%02u_optim_states.pt", prefix, mp);
        HF_CLEANUP(hf_freep)
        char *row = hf_asprintf("%szero_pp_rank_#_mp_rank_%02u_optim_states.pt", prefix, mp);
        bool any = hf_folder_has(f, model) || hf_folder_has_like(f, row);
        if (!any) {
            *ret = mp * ranks;
            return true;
        }
        uint32_t n = hf_scene_need_row(s, f, row, ranks);
        if (n == 0 || (mp > 0 && n != ranks)) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is missing", first);
            return false;
        }
        ranks = n;
    }
}

static bool need_deepspeed(struct hf_scene *s, const struct hf_folder *f)
{
    static const char *const prefixes[] = {"bf16_", "fp16_", ""};
    const char *prefix = NULL;
    for (size_t i = 0; i < HF_COUNT(prefixes) && prefix == NULL; i++) {
        HF_CLEANUP(hf_freep)
        char *like = hf_asprintf("%szero_pp_rank_#_mp_rank_#_optim_states.pt", prefixes[i]);
        prefix = hf_folder_has_like(f, like) ? prefixes[i] : NULL;
    }
    if (prefix == NULL) {
        /* No ZeRO: the optimizer is in the model's file. Or its files are still to come. */
        uint32_t files = hf_scene_need_row(s, f, "mp_rank_#_model_states.pt", 0);
        if (files > 0) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "no optimizer files: without ZeRO that is all");
        } else {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "no 'mp_rank_00_model_states.pt'");
        }
        return files > 0;
    }
    uint32_t ranks = 0;
    if (!need_grid(s, f, prefix, &ranks)) {
        return false;
    }
    /* ZeRO-3: each rank's share of the model has a file of its own. */
    bool stage3 = hf_folder_has_like(f, "zero_pp_rank_#_mp_rank_#_model_states.pt");
    if (!stage3 && hf_scene_need_row(s, f, "mp_rank_#_model_states.pt", 0) == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "no 'mp_rank_00_model_states.pt'");
        return false;
    }
    if (stage3 && hf_scene_need_row(s, f, "zero_pp_rank_#_mp_rank_00_model_states.pt", 0) == 0) {
        return false;
    }
    if (s->world > 0 && ranks < s->world) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "optimizer files of %u of %u ranks", ranks, s->world);
        return false;
    }
    s->look->world = ranks;
    return true;
}

bool hf_is_deepspeed(const struct hf_scene *s)
{
    return hf_folder_has_like(&s->inside, "*_optim_states.pt") ||
           hf_folder_has_like(&s->inside, "*mp_rank_#_model_states.pt");
}

void hf_judge_deepspeed(struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *latest = hf_folder_text(s->in, "latest");
    if (latest != NULL && strcmp(latest, s->item->name) == 0) {
        hf_scene_add_root(s, "latest");
    }
    if (need_deepspeed(s, &s->inside)) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "the model's and the optimizer's files of %u rank%s",
                     s->look->world, s->look->world == 1 ? "" : "s");
    }
}

/* ---- Megatron and MindFormers: a tracker beside the folders, written last ---- */

#define TRACKER "latest_checkpointed_iteration.txt"

/* The tracker's number; -1: none, or cut. */
static int64_t tracked(struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *text = hf_folder_text(s->in, TRACKER);
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return -1;
    }
    int64_t n = strtoll(text, NULL, 10);
    if (n == s->look->step) {
        hf_scene_add_root(s, TRACKER);
    }
    return n;
}

bool hf_is_megatron(const struct hf_scene *s)
{
    return named(s, "iter_#");
}

void hf_judge_megatron(struct hf_scene *s)
{
    bool sharded = hf_is_dcp(s);
    bool tracker = tracked(s) >= s->look->step;
    if (sharded) {
        if (hf_scene_need_dcp(s, &s->inside) && hf_scene_need(s, "metadata.json")) {
            hf_scene_say(s, HF_LAYOUT_WHOLE,
                         "'metadata.json', which is written last, and all shards");
        }
        return;
    }
    uint32_t ranks = 0;
    for (size_t i = 0; i < s->inside.len; i++) {
        const struct hf_item *item = &s->inside.items[i];
        struct hf_folder f;
        if (!item->dir || strncmp(item->name, "mp_rank_", 8) != 0) {
            continue;
        }
        if (hf_folder_open_in(&s->inside, item->name, &f, NULL) != HF_OK) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' cannot be read", item->name);
            return;
        }
        bool whole = hf_scene_need_in(s, &f, "model_optim_rng.pt");
        hf_folder_close(&f);
        if (!whole) {
            return;
        }
        ranks++;
    }
    if (ranks == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "nothing of any rank is there");
    } else if (!tracker) {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "'" TRACKER "' does not name it (yet)");
    } else {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'" TRACKER "', which is written last, names it");
    }
}

bool hf_is_mindformers(const struct hf_scene *s)
{
    return named(s, "iteration_#");
}

void hf_judge_mindformers(struct hf_scene *s)
{
    if (s->inside.len == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "empty");
    } else if (tracked(s) >= s->look->step) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'" TRACKER "', which is written last, names it");
    } else {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "'" TRACKER "' does not name it (yet)");
    }
}

/* ---- PaddleNLP ---- */

bool hf_is_paddle_dir(const struct hf_scene *s)
{
    return hf_folder_has_like(&s->inside, "*.pdparams") ||
           hf_folder_has(&s->inside, ".checkpoint_done");
}

void hf_judge_paddle_dir(struct hf_scene *s)
{
    if (hf_folder_has_like(&s->inside, "*.pdopt") &&
        !hf_folder_has_like(&s->inside, "*.pdparams")) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "an optimizer without its parameters");
    } else if (hf_folder_has(&s->inside, ".checkpoint_done")) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'.checkpoint_done' says so");
    } else if (hf_folder_has(&s->inside, "trainer_state.json")) {
        if (hf_scene_need(s, "trainer_state.json")) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "'trainer_state.json', but no '.checkpoint_done'");
        }
    } else {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "no '.checkpoint_done' (it is optional)");
    }
}

/* ---- any other folder ---- */

bool hf_is_any_dir(const struct hf_scene *s)
{
    (void)s;
    return true;
}

void hf_judge_any_dir(struct hf_scene *s)
{
    static const char *const unfinished[] = {"*.tmp", "*.incomplete", "*.partial",
                                             "tmp-*", "tmp_*",        "*_tmp"};
    static const char *const foreign[] = {"runs",           "logs",        "wandb",      "mlruns",
                                          "lightning_logs", "tensorboard", "__pycache__"};
    for (size_t i = 0; i < HF_COUNT(unfinished); i++) {
        if (named(s, unfinished[i])) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "its name says that it is not finished");
            return;
        }
    }
    for (size_t i = 0; i < HF_COUNT(foreign); i++) {
        if (strcmp(s->item->name, foreign[i]) == 0) {
            hf_scene_say(s, HF_LAYOUT_FOREIGN, "by its name no checkpoint");
            return;
        }
    }
    if (s->item->name[0] == '.') {
        hf_scene_say(s, HF_LAYOUT_FOREIGN, "hidden");
    } else if (s->inside.len == 0) {
        hf_scene_say(s, HF_LAYOUT_FOREIGN, "empty");
    } else {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "no layout that is known here");
    }
}
