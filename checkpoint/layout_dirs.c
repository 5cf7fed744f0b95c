/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts whose checkpoint is a folder, and complete by what is in it: torch, Lightning,
 * Transformers, Accelerate, DeepSpeed. Every file of a folder is also looked at by itself
 * afterwards (layout.c): here stands only what has to be there. Blocking, read only. Sources: the
 * frameworks' own code (docs/ckpt.md).
 */
#include "base/prelude.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/layout_row.h"

#define INDEX_MAX (64u << 20)
#define MP_MAX    4096 /* model-parallel ranks */

static bool named(const struct hf_scene *s, const char *pattern)
{
    return hf_name_like(s->item->name, pattern, NULL);
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

/* ---- DeepSpeed: a file or two a rank; "latest" proves nothing ---- */

#define MODEL "mp_rank_#_model_states.pt"
#define SHARE "zero_pp_rank_#_mp_rank_#_model_states.pt" /* ZeRO-3: of each rank */

/* How many model-parallel ranks the names speak of; `which` is the '#' that says so. */
static uint32_t mp_ranks(const struct hf_folder *f, const char *pattern, unsigned which)
{
    uint32_t top = 0;
    size_t at = 0;
    int64_t n[4] = {0};
    while (hf_folder_next_like(f, pattern, &at, n) != NULL) {
        top = n[which] < MP_MAX && n[which] + 1 > top ? (uint32_t)n[which] + 1 : top;
    }
    return top;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The files of the optimizer, of every rank of every model-parallel rank, and the model's. */
static bool need_grid(struct hf_scene *s, const struct hf_folder *f, const char *prefix,
                      uint32_t *ret)
{
    HF_CLEANUP(hf_freep)
    char *all = hf_asprintf("%szero_pp_rank_#_mp_rank_#_optim_states.pt", prefix);
    bool stage3 = hf_folder_has_like(f, SHARE);
    uint32_t mps =
        larger(mp_ranks(f, all, 1), larger(mp_ranks(f, MODEL, 0), mp_ranks(f, SHARE, 1)));
    uint32_t ranks = 0;
    for (uint32_t mp = 0; mp < mps; mp++) {
        HF_CLEANUP(hf_freep)
        char *model = hf_asprintf("mp_rank_%02u_model_states.pt", mp);
        HF_CLEANUP(hf_freep)
        char *share = hf_asprintf("zero_pp_rank_#_mp_rank_%02u_model_states.pt", mp);
        HF_CLEANUP(hf_freep)
        char *row = hf_asprintf("%szero_pp_rank_#_mp_rank_%02u_optim_states.pt", prefix, mp);
        uint32_t n = hf_scene_need_row(s, f, row, ranks);
        if (n == 0 || (mp > 0 && n != ranks)) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "of '%s' not as many as of rank 0", row);
            return false;
        }
        ranks = n;
        if (stage3 ? hf_scene_need_row(s, f, share, ranks) != ranks
                   : !hf_scene_need_in(s, f, model)) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "of '%s' not %u", share, ranks);
            return false;
        }
    }
    *ret = mps * ranks;
    return true;
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
        uint32_t files = hf_folder_has_like(f, SHARE) ? 0 : hf_scene_need_row(s, f, MODEL, 0);
        hf_scene_say(s, files > 0 ? HF_LAYOUT_UNSURE : HF_LAYOUT_PARTIAL, "%s",
                     files > 0 ? "no optimizer files: without ZeRO that is all"
                               : "neither '" MODEL "' alone nor optimizer files");
        return files > 0;
    }
    uint32_t ranks = 0;
    if (!need_grid(s, f, prefix, &ranks)) {
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

static bool is_tag(const struct hf_scene *s, const char *name)
{
    struct hf_folder f;
    if (!hf_folder_has_dir(&s->inside, name) ||
        hf_folder_open_in(&s->inside, name, &f, NULL) != HF_OK) {
        return false;
    }
    bool tag =
        hf_folder_has_like(&f, "*_model_states.pt") || hf_folder_has_like(&f, "*_optim_states.pt");
    hf_folder_close(&f);
    return tag;
}

/* A tag inside a checkpoint of another framework: the one that "latest" names, else any. Owned by
 * the caller; NULL: none. */
static char *tag_inside(const struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *latest = hf_folder_text(&s->inside, "latest");
    if (latest != NULL && is_tag(s, latest)) {
        return hf_strdup(latest);
    }
    for (size_t i = 0; i < s->inside.len; i++) {
        const char *name = s->inside.items[i].name;
        if ((hf_name_like(name, "global_step#", NULL) || strcmp(name, "pytorch_model") == 0 ||
             strcmp(name, "checkpoint") == 0) &&
            is_tag(s, name)) {
            return hf_strdup(name);
        }
    }
    return NULL;
}

/* The tag, and "latest", without which DeepSpeed starts from nothing and says so in a warning. */
static bool need_tag(struct hf_scene *s, const char *tag)
{
    struct hf_folder f;
    HF_CLEANUP(hf_freep) char *latest = hf_folder_text(&s->inside, "latest");
    if (hf_folder_open_in(&s->inside, tag, &f, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' cannot be read", tag);
        return false;
    }
    bool whole = need_deepspeed(s, &f);
    hf_folder_close(&f);
    if (whole && (latest == NULL || strcmp(latest, tag) != 0)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'latest' does not name '%s'", tag);
        whole = false;
    }
    return whole;
}

/* ---- Lightning: torch.distributed.checkpoint and meta.pt, or a DeepSpeed tag ---- */

bool hf_is_lightning_dir(const struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *tag = tag_inside(s);
    return (named(s, "*.ckpt") && (hf_is_dcp(s) || tag != NULL)) ||
           (hf_folder_has(&s->inside, "meta.pt") && hf_is_dcp(s));
}

void hf_judge_lightning_dir(struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *tag = hf_is_dcp(s) ? NULL : tag_inside(s);
    if (tag != NULL) {
        if (need_tag(s, tag)) {
            hf_scene_say(s, HF_LAYOUT_WHOLE, "'latest', and the DeepSpeed files that it names");
        }
        return;
    }
    if (hf_scene_need_dcp(s, &s->inside) && hf_scene_need(s, "meta.pt")) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'meta.pt', which is written last, and all shards");
    }
}

/* ---- model weights, as Transformers and Accelerate write them ---- */

/* The shards that an index names, each once; false: it cannot be read. */
static bool index_names(const struct hf_folder *f, const char *name, struct hf_strv *ret)
{
    size_t len = 0;
    HF_CLEANUP(hf_freep) char *text = hf_folder_read(f, name, INDEX_MAX, &len);
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    if (text == NULL ||
        hf_json_parse((struct hf_span){.ptr = text, .len = len}, INDEX_MAX, &json, NULL) != HF_OK) {
        return false;
    }
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, hf_json_opt(json, "weight_map"))
    {
        if (cJSON_IsString(one) && !hf_strv_has(ret, one->valuestring)) {
            hf_strv_add(ret, one->valuestring);
        }
    }
    return ret->len > 0;
}

/* The index and every shard that it names. */
static bool need_index(struct hf_scene *s, const char *index)
{
    struct hf_strv names = {0};
    bool whole = hf_scene_need(s, index);
    if (whole && !index_names(&s->inside, index, &names)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' names no shards", index);
        whole = false;
    }
    for (size_t i = 0; i < names.len && whole; i++) {
        whole = hf_scene_need(s, names.items[i]);
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

/* Something that may be weights: data that is none of the files of the training's state. */
static bool some_weights(const struct hf_folder *f)
{
    static const char *const state[] = {"optimizer*", "scheduler*",     "scaler*",
                                        "rng_state*", "random_states*", "sampler*",
                                        "training_*", "dl_state_dict*", "custom_checkpoint_*"};
    static const char *const data[] = {"*.safetensors", "*.bin", "*.pt", "*.pth", "*.h5"};
    for (size_t i = 0; i < f->len; i++) {
        const char *name = f->items[i].name;
        bool weights = false;
        for (size_t k = 0; k < HF_COUNT(data) && f->items[i].regular; k++) {
            weights = weights || hf_name_like(name, data[k], NULL);
        }
        for (size_t k = 0; k < HF_COUNT(state); k++) {
            weights = weights && !hf_name_like(name, state[k], NULL);
        }
        if (weights) {
            return true;
        }
    }
    return false;
}

/* Adapters in a folder each, a pipeline's models in a folder each, names of the user's own: what
 * there must be is not known, that there is something is. */
static bool some_weights_inside(const struct hf_scene *s)
{
    bool found = some_weights(&s->inside);
    for (size_t i = 0; i < s->inside.len && !found; i++) {
        struct hf_folder f;
        if (s->inside.items[i].dir && strcmp(s->inside.items[i].name, "optimizer_0") != 0 &&
            hf_folder_open_in(&s->inside, s->inside.items[i].name, &f, NULL) == HF_OK) {
            found = some_weights(&f);
            hf_folder_close(&f);
        }
    }
    return found;
}

static bool need_weights(struct hf_scene *s)
{
    static const char *const alone[] = {"model.safetensors", "pytorch_model.bin",
                                        "pytorch_model_fsdp.bin", "tf_model.h5"};
    static const char *const adapters[] = {"adapter_model.safetensors", "adapter_model.bin"};
    static const char *const indexes[] = {"model.safetensors.index.json",
                                          "pytorch_model.bin.index.json"};
    HF_CLEANUP(hf_freep) char *tag = tag_inside(s);
    if (tag != NULL) {
        return need_tag(s, tag);
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
    for (size_t i = 0; i < HF_COUNT(adapters); i++) {
        if (hf_folder_has(&s->inside, adapters[i])) {
            return hf_scene_need(s, adapters[i]) && hf_scene_need(s, "adapter_config.json");
        }
    }
    if (shards || !some_weights_inside(s)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, shards ? "shards without their index" : "no weights");
        return false;
    }
    return true;
}

static bool need_fsdp_optimizer(struct hf_scene *s)
{
    return !hf_folder_has_dir(&s->inside, "pytorch_model_fsdp_0") || need_dcp_dir(s, "optimizer_0");
}

static bool has_optimizer(const struct hf_scene *s)
{
    HF_CLEANUP(hf_freep) char *tag = tag_inside(s);
    return tag != NULL || hf_folder_has(&s->inside, "optimizer.pt") ||
           hf_folder_has(&s->inside, "optimizer.bin") ||
           hf_folder_has_dir(&s->inside, "optimizer_0");
}

/* Others here have the training's state. */
static bool others_have_state(const struct hf_scene *s)
{
    static const char *const files[] = {"optimizer.pt", "optimizer.bin", "scheduler.pt",
                                        "rng_state.pth", "rng_state_0.pth"};
    return hf_scene_others_have(s, NULL, files, HF_COUNT(files));
}

/* ---- Accelerate: the random states of every rank come last ---- */

#define STATES "random_states_#.pkl"

bool hf_is_accelerate(const struct hf_scene *s)
{
    /* Others (Ray) name folders so as well. */
    return hf_folder_has_like(&s->inside, STATES) ||
           (named(s, "checkpoint_#") &&
            (s->inside.len == 0 || hf_folder_has_like(&s->inside, "model*.safetensors") ||
             hf_folder_has_like(&s->inside, "pytorch_model*") ||
             hf_folder_has_dir(&s->inside, "pytorch_model_fsdp_0") ||
             hf_folder_has(&s->inside, "optimizer.bin")));
}

void hf_judge_accelerate(struct hf_scene *s)
{
    if (!need_weights(s) || !need_fsdp_optimizer(s)) {
        return;
    }
    if (hf_folder_has(&s->inside, "scheduler.bin") && !has_optimizer(s)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'optimizer.bin' is missing");
        return;
    }
    if (!has_optimizer(s) && others_have_state(s)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "without an optimizer, which others here have");
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
            hf_folder_has_dir(&s->inside, "pytorch_model_fsdp_0") ||
            hf_folder_has_like(&s->inside, "*.safetensors") ||
            hf_folder_has_like(&s->inside, "pytorch_model*.bin"));
}

/* Optimizer, scheduler and random states are there together, or not at all (save_only_model). */
static bool need_training_state(struct hf_scene *s, bool *ret_any)
{
    const struct hf_folder *f = &s->inside;
    HF_CLEANUP(hf_freep) char *tag = tag_inside(s);
    bool optimizer = has_optimizer(s);
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
    const char *missing = !optimizer                  ? "'optimizer.pt'"
                          : !scheduler && tag == NULL ? "'scheduler.pt'"
                          : ranks == 0 && !one        ? "'rng_state.pth'"
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
    if (!state && others_have_state(s)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "without the training's state, which others here have");
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE,
                 state ? "weights, optimizer, random states, and 'trainer_state.json' after them"
                       : "weights and 'trainer_state.json'; saved without the training's state");
}
