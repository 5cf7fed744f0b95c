/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts whose folder is completed by a word of its framework: a commit in the metadata, a tracker
 * beside it, a file that says "done"; and any other folder. Every file of a folder is also looked
 * at by itself afterwards (layout.c). Blocking, read only. Sources: the frameworks' own code
 * (docs/ckpt.md).
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/layout_row.h"

static bool named(const struct hf_scene *s, const char *pattern)
{
    return hf_name_like(s->item->name, pattern, NULL);
}

/* ---- Orbax: a temporary name, then a rename; or a commit file ---- */

#define TEMPORARY ".orbax-checkpoint-tmp"
#define COMMIT    "commit_success.txt"
#define METADATA  "_CHECKPOINT_METADATA"
#define ITEM_MAX  (1u << 20)

bool hf_is_orbax(const struct hf_scene *s)
{
    return strstr(s->item->name, TEMPORARY) != NULL || hf_folder_has(&s->inside, METADATA) ||
           hf_folder_has(&s->inside, COMMIT);
}

/* Arrays in an OCDBT store: its manifest, and what tells the names of the arrays. */
static bool need_arrays(struct hf_scene *s, const struct hf_folder *f)
{
    bool store = hf_folder_has_dir(f, "ocdbt.process_0") || hf_folder_has(f, "manifest.ocdbt");
    return !store ||
           (hf_scene_need_in(s, f, "manifest.ocdbt") && hf_scene_need_in(s, f, "_METADATA"));
}

static bool need_json(struct hf_scene *s, const struct hf_folder *f, const char *name)
{
    size_t len = 0;
    HF_CLEANUP(hf_freep) char *text = hf_folder_read(f, name, ITEM_MAX, &len);
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    if (text == NULL ||
        hf_json_parse((struct hf_span){.ptr = text, .len = len}, ITEM_MAX, &json, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is damaged", name);
        return false;
    }
    return true;
}

/* The store's data files have names that only it can tell, but none is empty; what is told of each
 * process's arrays is JSON without the ending. */
static bool need_data(struct hf_scene *s, const struct hf_folder *f, unsigned depth)
{
    bool whole = true;
    bool data = hf_name_ends(f->path, "/d");
    bool json = hf_name_ends(f->path, "/array_metadatas");
    for (size_t i = 0; i < f->len && whole; i++) {
        const struct hf_item *item = &f->items[i];
        struct hf_folder inner;
        if (item->regular && data && item->size == 0) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is empty", item->name);
            whole = false;
        } else if (item->regular && json) {
            whole = need_json(s, f, item->name);
        } else if (item->dir && depth > 0 &&
                   hf_folder_open_in(f, item->name, &inner, NULL) == HF_OK) {
            whole = need_data(s, &inner, depth - 1);
            hf_folder_close(&inner);
        }
    }
    return whole;
}

static bool has_content(const struct hf_folder *f)
{
    for (size_t i = 0; i < f->len; i++) {
        if ((f->items[i].regular || f->items[i].dir) && strcmp(f->items[i].name, COMMIT) != 0) {
            return true;
        }
    }
    return false;
}

/* An item's folder: something is in it, and its own commit file where the whole has one. */
static bool need_item(struct hf_scene *s, const char *name, bool commits)
{
    struct hf_folder f;
    if (hf_folder_open_in(&s->inside, name, &f, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is missing", name);
        return false;
    }
    bool whole = true;
    if (!has_content(&f) || (commits && !hf_folder_has(&f, COMMIT))) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is not committed", name);
        whole = false;
    }
    whole = whole && need_arrays(s, &f) && need_data(s, &f, 2);
    hf_folder_close(&f);
    return whole;
}

/* Some item has a commit file, so the whole must have one. */
static bool any_commit(const struct hf_scene *s)
{
    bool found = hf_folder_has(&s->inside, COMMIT);
    for (size_t i = 0; i < s->inside.len && !found; i++) {
        struct hf_folder f;
        if (s->inside.items[i].dir &&
            hf_folder_open_in(&s->inside, s->inside.items[i].name, &f, NULL) == HF_OK) {
            found = hf_folder_has(&f, COMMIT);
            hf_folder_close(&f);
        }
    }
    return found;
}

void hf_judge_orbax(struct hf_scene *s)
{
    const char *cut = strstr(s->item->name, TEMPORARY);
    if (cut != NULL) {
        /* "<step>.orbax-checkpoint-tmp-<n>": the last number is not the step. */
        HF_CLEANUP(hf_freep)
        char *stem = hf_strndup(s->item->name, (size_t)(cut - s->item->name));
        s->look->step = hf_name_step(stem);
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "its name says that it is not finished");
        return;
    }
    static const char *const commit[] = {COMMIT};
    bool commits = any_commit(s) || hf_scene_others_have(s, NULL, commit, 1);
    if (!hf_scene_need(s, METADATA) || (commits && !hf_scene_need(s, COMMIT))) {
        return;
    }
    size_t len = 0;
    HF_CLEANUP(hf_freep) char *text = hf_folder_read(&s->inside, METADATA, ITEM_MAX, &len);
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    if (text == NULL ||
        hf_json_parse((struct hf_span){.ptr = text, .len = len}, ITEM_MAX, &json, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'" METADATA "' is damaged");
        return;
    }
    if (cJSON_IsNull(hf_json_opt(json, "commit_timestamp_nsecs"))) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'" METADATA "' has no time of a commit");
        return;
    }
    const cJSON *handlers = hf_json_opt(json, "item_handlers");
    const cJSON *item = NULL;
    bool items = cJSON_IsObject(handlers);
    cJSON_ArrayForEach(item, handlers)
    {
        if (!need_item(s, item->string, commits)) {
            return;
        }
    }
    if (!items && !need_arrays(s, &s->inside)) {
        return;
    }
    if (s->inside.len <= (commits ? 2u : 1u)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "nothing but its metadata");
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE,
                 commits ? "committed by the framework, with every item"
                         : "renamed into place by the framework");
}

/* ---- Megatron and MindFormers: a tracker beside the folders, written last ---- */

#define TRACKER "latest_checkpointed_iteration.txt"

/* The tracker's number; -1: none, cut to nothing, or a word ("release"). */
static int64_t tracked(struct hf_scene *s)
{
    int64_t n[4] = {-1};
    HF_CLEANUP(hf_freep) char *text = hf_folder_text(s->in, TRACKER);
    if (text == NULL || !hf_name_like(text, "#", n)) {
        return -1;
    }
    if (n[0] == s->look->step) {
        hf_scene_add_root(s, TRACKER);
    }
    return n[0];
}

static bool has_rank_dirs(const struct hf_scene *s)
{
    for (size_t i = hf_folder_from(&s->inside, "mp_rank_"); i < s->inside.len; i++) {
        if (s->inside.items[i].dir && hf_name_like(s->inside.items[i].name, "mp_rank_#*", NULL)) {
            return true;
        }
    }
    return false;
}

/* Others (imaginaire) name folders so as well. */
bool hf_is_megatron(const struct hf_scene *s)
{
    return named(s, "iter_#") &&
           (s->inside.len == 0 || hf_is_dcp(s) || hf_folder_has(&s->inside, "metadata.json") ||
            hf_folder_has(&s->inside, "common.pt") || has_rank_dirs(s));
}

/* What each rank's folder has: the model, and the optimizer's own file if any has one. */
static bool need_rank_dir(struct hf_scene *s, const char *name, bool *ret_optimizer)
{
    struct hf_folder f;
    if (hf_folder_open_in(&s->inside, name, &f, NULL) != HF_OK) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' cannot be read", name);
        return false;
    }
    bool whole = hf_scene_need_in(s, &f, "model_optim_rng.pt");
    *ret_optimizer = hf_folder_has(&f, "distrib_optim.pt");
    hf_folder_close(&f);
    return whole;
}

/* "mp_rank_TT[_PPP[_EEE]]": every combination up to the highest number of each has a folder. */
static bool need_rank_dirs(struct hf_scene *s)
{
    static const char *const patterns[] = {"mp_rank_#", "mp_rank_#_#", "mp_rank_#_#_#"};
    int64_t top[3] = {0};
    int64_t dirs = 0;
    int64_t optimizers = 0;
    for (size_t i = 0; i < s->inside.len; i++) {
        const struct hf_item *item = &s->inside.items[i];
        int64_t n[4] = {0};
        bool rank = false;
        for (size_t k = 0; k < HF_COUNT(patterns) && item->dir && !rank; k++) {
            rank = hf_name_like(item->name, patterns[k], n);
        }
        bool optimizer = false;
        if (!rank) {
            continue;
        }
        if (!need_rank_dir(s, item->name, &optimizer)) {
            return false;
        }
        dirs++;
        optimizers += optimizer ? 1 : 0;
        for (size_t k = 0; k < HF_COUNT(top); k++) {
            top[k] = n[k] > top[k] ? n[k] : top[k];
        }
    }
    int64_t all = top[0] < 65536 && top[1] < 65536 && top[2] < 65536
                      ? (top[0] + 1) * (top[1] + 1) * (top[2] + 1)
                      : INT64_MAX;
    if (dirs != all || (optimizers != 0 && optimizers != dirs)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL,
                     "%" PRId64 " of %" PRId64 " ranks, %" PRId64 " with 'distrib_optim.pt'", dirs,
                     all, optimizers);
        return false;
    }
    static const char *const own_file[] = {"distrib_optim.pt"};
    if (optimizers == 0 && hf_scene_others_have(s, "mp_rank_#*", own_file, 1)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "without 'distrib_optim.pt', which others here have");
        return false;
    }
    return true;
}

void hf_judge_megatron(struct hf_scene *s)
{
    bool tracker = tracked(s) >= s->look->step;
    if (hf_is_dcp(s) || hf_folder_has(&s->inside, "metadata.json")) {
        if (hf_scene_need_dcp(s, &s->inside) && hf_scene_need(s, "metadata.json")) {
            hf_scene_say(s, HF_LAYOUT_WHOLE,
                         "'metadata.json', which is written last, and all shards");
        }
        return;
    }
    if (!need_rank_dirs(s)) {
        return;
    }
    if (tracker) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'" TRACKER "', which is written last, names it");
    } else {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "'" TRACKER "' does not name it (yet)");
    }
}

bool hf_is_mindformers(const struct hf_scene *s)
{
    return named(s, "iteration_#");
}

/* Files named "<prefix>-model-0000000-0000008.safetensors": how many there are, and how many their
 * names say there must be. */
static void count_shares(const struct hf_folder *f, const char *pattern, int64_t *ret_seen,
                         int64_t *ret_all)
{
    size_t at = 0;
    int64_t n[4] = {0};
    *ret_seen = 0;
    *ret_all = 0;
    while (hf_folder_next_like(f, pattern, &at, n) != NULL) {
        ++*ret_seen;
        *ret_all = n[1] > *ret_all ? n[1] : *ret_all;
    }
}

void hf_judge_mindformers(struct hf_scene *s)
{
    static const char *const shares[] = {"*-opt-#-#.safetensors"};
    int64_t models = 0;
    int64_t optimizers = 0;
    int64_t all[2] = {0};
    count_shares(&s->inside, "*-model-#-#.safetensors", &models, &all[0]);
    count_shares(&s->inside, shares[0], &optimizers, &all[1]);
    bool tracker = tracked(s) >= s->look->step;
    if (models == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "no '*-model-#-#.safetensors'");
    } else if (optimizers == 0 && hf_scene_others_have(s, NULL, shares, 1)) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "no '%s', which others here have", shares[0]);
    } else if (hf_scene_need(s, "common.json") && hf_scene_need(s, "metadata.json")) {
        if (models != all[0] || optimizers != all[1]) {
            /* Redundant shares may have been left out. */
            hf_scene_say(s, HF_LAYOUT_UNSURE, "shares of %" PRId64 " of %" PRId64 " ranks", models,
                         all[0]);
        } else if (!tracker) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "'" TRACKER "' does not name it (yet)");
        } else {
            hf_scene_say(s, HF_LAYOUT_WHOLE, "'" TRACKER "', which is written last, names it");
        }
    }
}

/* ---- PaddleNLP ---- */

bool hf_is_paddle_dir(const struct hf_scene *s)
{
    return hf_folder_has_like(&s->inside, "*.pdparams") ||
           hf_folder_has_like(&s->inside, "*.pdopt") ||
           hf_folder_has(&s->inside, ".checkpoint_done");
}

void hf_judge_paddle_dir(struct hf_scene *s)
{
    static const char *const training[] = {"scheduler.pdparams", "*.pdopt",
                                           "optimizer*.safetensors"};
    const struct hf_folder *f = &s->inside;
    bool scheduler = hf_folder_has(f, "scheduler.pdparams");
    bool trainer = scheduler || hf_folder_has(f, "trainer_state.json");
    bool optimizer =
        hf_folder_has_like(f, "*.pdopt") || hf_folder_has_like(f, "optimizer*.safetensors");
    size_t at = 0;
    const struct hf_item *item = NULL;
    do {
        item = hf_folder_next_like(f, "*.pdparams", &at, NULL);
    } while (item != NULL && (strcmp(item->name, "scheduler.pdparams") == 0 ||
                              strcmp(item->name, "scaler.pdparams") == 0));
    if (item == NULL && !hf_folder_has_like(f, "*model*.safetensors")) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "no weights");
    } else if (trainer && scheduler != optimizer) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "of optimizer and scheduler only one");
    } else if (!(scheduler && optimizer) &&
               hf_scene_others_have(s, NULL, training, HF_COUNT(training))) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "without the training's state, which others here have");
    } else if (trainer && !hf_scene_need(s, "trainer_state.json")) {
        return;
    } else if (hf_folder_has(f, ".checkpoint_done")) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "'.checkpoint_done' says so");
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

/* Shards in folders of their own, as many trainers have them: what those say of themselves. */
static bool need_shards_inside(struct hf_scene *s)
{
    bool whole = true;
    for (size_t i = 0; i < s->inside.len && whole; i++) {
        struct hf_folder f;
        if (s->inside.items[i].dir &&
            hf_folder_open_in(&s->inside, s->inside.items[i].name, &f, NULL) == HF_OK) {
            whole = !hf_folder_has_like(&f, "__#_#.distcp") || hf_scene_need_dcp(s, &f);
            hf_folder_close(&f);
        }
    }
    return whole;
}

void hf_judge_any_dir(struct hf_scene *s)
{
    static const char *const foreign[] = {"runs",           "logs",        "wandb",      "mlruns",
                                          "lightning_logs", "tensorboard", "__pycache__"};
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
    } else if (need_shards_inside(s)) {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "no layout that is known here");
    }
}
