/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts whose checkpoint is one file, or a few that lie beside each other. Blocking, read only.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/layout_row.h"

static bool named(const struct hf_scene *s, const char *pattern)
{
    return hf_name_like(s->item->name, pattern, NULL);
}

/* ---- no checkpoints ---- */

bool hf_is_no_checkpoint(const struct hf_scene *s)
{
    static const char *const patterns[] = {"events.out.tfevents*",
                                           "*.log",
                                           "*.txt",
                                           "*.csv",
                                           "*.yaml",
                                           "*.yml",
                                           "*.md",
                                           "*.py",
                                           "*.sh",
                                           "*.out",
                                           "*.err",
                                           "*.json",
                                           "*.jsonl",
                                           "*.lock",
                                           "*.html",
                                           "*.png",
                                           "*.toml",
                                           "*.cfg",
                                           "*.ini",
                                           "latest",
                                           "latest_universal",
                                           "checkpoint",
                                           "*-unfinished"};
    for (size_t i = 0; i < HF_COUNT(patterns); i++) {
        if (named(s, patterns[i])) {
            return true;
        }
    }
    return s->item->name[0] == '.';
}

void hf_judge_no_checkpoint(struct hf_scene *s)
{
    hf_scene_say(s, HF_LAYOUT_FOREIGN, "by its name no checkpoint");
}

/* ---- one file that knows its length ---- */

static void say_box(struct hf_scene *s, const struct hf_box_look *box)
{
    if (box->state == HF_BOX_SHORT) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "%s", box->why);
    } else if (box->state == HF_BOX_WHOLE) {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "the file ends where it says");
    } else {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "a format that does not tell its own length");
    }
}

void hf_judge_box(struct hf_scene *s)
{
    struct hf_box_look box;
    hf_box_judge(s->in->fd, s->item->name, &box);
    say_box(s, &box);
}

bool hf_is_keras(const struct hf_scene *s)
{
    return named(s, "*.keras") || named(s, "*.weights.h5") || named(s, "*.h5") ||
           named(s, "*.hdf5");
}

bool hf_is_timm(const struct hf_scene *s)
{
    return named(s, "*.pth.tar");
}

static struct hf_box_look box_of(const struct hf_scene *s)
{
    struct hf_box_look box;
    hf_box_judge(s->in->fd, s->item->name, &box);
    return box;
}

/* Lightning's and MindSpore's files have the same ending; only the former is a zip. */
bool hf_is_lightning(const struct hf_scene *s)
{
    return named(s, "*.ckpt") && (s->item->size == 0 || box_of(s).box == HF_BOX_ZIP);
}

bool hf_is_torch(const struct hf_scene *s)
{
    return named(s, "*.pt") || named(s, "*.pth") || named(s, "*.bin") || named(s, "*.npz") ||
           named(s, "*.nemo");
}

bool hf_is_safetensors(const struct hf_scene *s)
{
    return named(s, "*.safetensors");
}

bool hf_is_any_file(const struct hf_scene *s)
{
    (void)s;
    return true;
}

void hf_judge_any_file(struct hf_scene *s)
{
    static const char *const unfinished[] = {"*.tmp",   "*.part", "*.incomplete",
                                             "*.tmp.*", "tmp*",   "*.temp"};
    for (size_t i = 0; i < HF_COUNT(unfinished); i++) {
        if (named(s, unfinished[i])) {
            hf_scene_say(s, HF_LAYOUT_FOREIGN, "by its name a file that is not finished");
            return;
        }
    }
    if (s->item->size == 0) {
        hf_scene_say(s, HF_LAYOUT_FOREIGN, "empty");
        return;
    }
    hf_judge_box(s);
}

/* ---- Composer: a file a rank ---- */

#define COMPOSER "ep#-ba#-rank#.pt"

bool hf_is_composer(const struct hf_scene *s)
{
    return named(s, COMPOSER);
}

/* Links that name a file of this checkpoint belong to it: see the scan. */
void hf_judge_composer(struct hf_scene *s)
{
    int64_t n[4];
    if (!hf_name_like(s->item->name, COMPOSER, n)) {
        return;
    }
    HF_CLEANUP(hf_freep)
    char *pattern = hf_asprintf("ep%" PRId64 "-ba%" PRId64 "-rank#.pt", n[0], n[1]);
    HF_CLEANUP(hf_freep)
    char *first = hf_asprintf("ep%" PRId64 "-ba%" PRId64 "-rank0.pt", n[0], n[1]);
    s->look->step = n[1];
    if (hf_folder_has(s->in, first)) {
        hf_free(s->look->path);
        s->look->path = hf_asprintf("%s/%s", s->in->path, first);
        hf_strv_clear(&s->look->roots);
        hf_strv_add(&s->look->roots, s->look->path);
    }
    uint32_t ranks = hf_scene_need_row(s, s->in, pattern, s->world);
    if (ranks == 0) {
        return;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        HF_CLEANUP(hf_freep)
        char *name = hf_asprintf("ep%" PRId64 "-ba%" PRId64 "-rank%u.pt", n[0], n[1], i);
        hf_scene_add_root(s, name);
    }
    s->look->world = ranks;
    if (s->world == 0) {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "the files of %u ranks; how many there are is not known",
                     ranks);
    } else {
        hf_scene_say(s, HF_LAYOUT_WHOLE, "the files of all %u ranks", ranks);
    }
}

/* ---- Keras BackupAndRestore: weights, then a JSON ---- */

bool hf_is_keras_backup(const struct hf_scene *s)
{
    return named(s, "latest.weights.h5");
}

void hf_judge_keras_backup(struct hf_scene *s)
{
    const struct hf_item *json = hf_folder_find(s->in, "training_metadata.json");
    if (json == NULL) {
        /* ModelCheckpoint with such a name is no backup; what is missing cannot be told. */
        hf_judge_box(s);
        if (s->look->state == HF_LAYOUT_WHOLE) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "'training_metadata.json' is not there (yet)");
        }
        return;
    }
    hf_scene_add_root(s, "training_metadata.json");
    if (!hf_scene_need_in(s, s->in, s->item->name) ||
        !hf_scene_need_in(s, s->in, "training_metadata.json")) {
        return;
    }
    if (json->mtime_ns < s->item->mtime_ns) {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "the weights are newer than 'training_metadata.json'");
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE, "the weights, and the JSON that is written after them");
}

/* ---- TensorFlow: an index, and data in pieces ---- */

bool hf_is_tensorflow(const struct hf_scene *s)
{
    return named(s, "*.index") || named(s, "*.data-#-of-#");
}

void hf_judge_tensorflow(struct hf_scene *s)
{
    const char *name = s->item->name;
    const char *cut = strstr(name, ".data-");
    size_t len = cut != NULL ? (size_t)(cut - name) : strlen(name) - strlen(".index");
    HF_CLEANUP(hf_freep) char *stem = hf_strndup(name, len);
    HF_CLEANUP(hf_freep) char *index = hf_asprintf("%s.index", stem);
    s->look->step = hf_name_step(index);
    hf_free(s->look->path);
    s->look->path = hf_asprintf("%s/%s", s->in->path, index);
    hf_strv_clear(&s->look->roots);
    hf_strv_add(&s->look->roots, s->look->path);
    if (!hf_scene_need_in(s, s->in, index)) {
        return;
    }
    int64_t parts = 0;
    int64_t seen = 0;
    for (size_t i = 0; i < s->in->len; i++) {
        const struct hf_item *item = &s->in->items[i];
        int64_t n[4];
        if (strncmp(item->name, stem, len) == 0 &&
            hf_name_like(item->name + len, ".data-#-of-#", n)) {
            parts = n[1];
            seen++;
            hf_scene_add_root(s, item->name);
        }
    }
    HF_CLEANUP(hf_freep) char *tracker = hf_folder_text(s->in, "checkpoint");
    if (tracker != NULL && strstr(tracker, stem) != NULL) {
        hf_scene_add_root(s, "checkpoint");
    }
    if (seen == 0 || seen != parts) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "%" PRId64 " of %" PRId64 " data files", seen, parts);
        return;
    }
    hf_scene_say(s, HF_LAYOUT_WHOLE, "all data files, and the index that is written after them");
}

/* ---- Paddle: parameters and optimizer in two files ---- */

bool hf_is_paddle(const struct hf_scene *s)
{
    return named(s, "*.pdparams") || named(s, "*.pdopt");
}

void hf_judge_paddle(struct hf_scene *s)
{
    const char *name = s->item->name;
    HF_CLEANUP(hf_freep) char *stem = hf_strndup(name, (size_t)(strrchr(name, '.') - name));
    HF_CLEANUP(hf_freep) char *params = hf_asprintf("%s.pdparams", stem);
    HF_CLEANUP(hf_freep) char *opt = hf_asprintf("%s.pdopt", stem);
    hf_free(s->look->path);
    s->look->path = hf_asprintf("%s/%s", s->in->path, params);
    hf_strv_clear(&s->look->roots);
    hf_strv_add(&s->look->roots, s->look->path);
    if (!hf_scene_need_in(s, s->in, params)) {
        return;
    }
    if (hf_folder_has(s->in, opt)) {
        hf_scene_add_root(s, opt);
        if (!hf_scene_need_in(s, s->in, opt)) {
            return;
        }
    }
    hf_scene_say(s, HF_LAYOUT_UNSURE, "a format that does not tell its own length");
}
