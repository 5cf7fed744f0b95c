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

bool hf_name_is_foreign(const char *name)
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
                                           "training_args.bin",
                                           "*.bkp",
                                           "*-unfinished"};
    for (size_t i = 0; i < HF_COUNT(patterns); i++) {
        if (hf_name_like(name, patterns[i], NULL)) {
            return true;
        }
    }
    return name[0] == '.';
}

bool hf_is_no_checkpoint(const struct hf_scene *s)
{
    return hf_name_is_foreign(s->item->name);
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

/* "recovery-E-B" lies between the ends of epochs E - 1 and E: it is as far as E, and older. */
void hf_judge_timm(struct hf_scene *s)
{
    int64_t n[4];
    if (hf_name_like(s->item->name, "recovery-#-#.pth.tar", n)) {
        s->look->step = n[0];
    }
    hf_judge_box(s);
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

void hf_judge_composer(struct hf_scene *s)
{
    int64_t n[4] = {0};
    const char *name = s->item->name;
    if (!hf_name_like(name, COMPOSER, n)) {
        return;
    }
    size_t stem = (size_t)(strstr(name, "-rank") - name);
    HF_CLEANUP(hf_freep) char *pattern = hf_asprintf("%.*s-rank#.pt", (int)stem, name);
    HF_CLEANUP(hf_freep) char *first = hf_asprintf("%.*s-rank0.pt", (int)stem, name);
    s->look->step = n[1];
    hf_scene_name_after(s, hf_folder_has(s->in, first) ? first : name);
    size_t at = 0;
    for (const struct hf_item *item = hf_folder_next_like(s->in, pattern, &at, NULL); item != NULL;
         item = hf_folder_next_like(s->in, pattern, &at, NULL)) {
        hf_scene_add_root(s, item->name);
    }
    uint32_t ranks = hf_scene_need_row(s, s->in, pattern, s->world);
    if (ranks == 0) {
        return;
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

#define SPARE_WEIGHTS  "latest.weights.h5.bkp"
#define SPARE_METADATA "training_metadata.json.bkp"

/* With double_checkpoint the weights before are kept, and read when the newest cannot be. */
static bool has_spare(const struct hf_scene *s)
{
    struct hf_box_look box;
    hf_box_judge(s->in->fd, SPARE_WEIGHTS, &box);
    return box.state == HF_BOX_WHOLE && hf_folder_has(s->in, SPARE_METADATA);
}

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
    hf_scene_add_root(s, SPARE_WEIGHTS);
    hf_scene_add_root(s, SPARE_METADATA);
    struct hf_box_look weights;
    hf_box_judge(s->in->fd, s->item->name, &weights);
    if (weights.state == HF_BOX_SHORT && has_spare(s)) {
        hf_scene_say(s, HF_LAYOUT_UNSURE, "%s; Keras then reads the copies before it", weights.why);
        return;
    }
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

#define PIECES ".data-#-of-#"

static size_t tensorflow_stem(const char *name)
{
    const char *cut = strstr(name, ".data-");
    return cut != NULL ? (size_t)(cut - name) : strlen(name) - strlen(".index");
}

/* Other programs have files with this ending as well. */
bool hf_is_tensorflow(const struct hf_scene *s)
{
    const char *name = s->item->name;
    if (named(s, "*.data-#-of-#")) {
        return true;
    }
    if (!named(s, "*.index")) {
        return false;
    }
    HF_CLEANUP(hf_freep) char *stem = hf_strndup(name, tensorflow_stem(name));
    size_t at = 0;
    return box_of(s).box == HF_BOX_TABLE ||
           hf_folder_next_after(s->in, stem, PIECES, &at, NULL) != NULL;
}

/* The pieces that are there, and how many their names say there must be. */
static void count_pieces(struct hf_scene *s, const char *stem, int64_t *ret_seen, int64_t *ret_all)
{
    size_t at = 0;
    int64_t n[4] = {0};
    *ret_seen = 0;
    *ret_all = 0;
    for (const struct hf_item *item = hf_folder_next_after(s->in, stem, PIECES, &at, n);
         item != NULL; item = hf_folder_next_after(s->in, stem, PIECES, &at, n)) {
        ++*ret_seen;
        *ret_all = n[1] > *ret_all ? n[1] : *ret_all;
        hf_scene_add_root(s, item->name);
    }
}

void hf_judge_tensorflow(struct hf_scene *s)
{
    const char *name = s->item->name;
    HF_CLEANUP(hf_freep) char *stem = hf_strndup(name, tensorflow_stem(name));
    HF_CLEANUP(hf_freep) char *index = hf_asprintf("%s.index", stem);
    HF_CLEANUP(hf_freep) char *graph = hf_asprintf("%s.meta", stem);
    int64_t seen = 0;
    int64_t all = 0;
    s->look->step = hf_name_step(index);
    hf_scene_name_after(s, hf_folder_has(s->in, index) ? index : name);
    count_pieces(s, stem, &seen, &all);
    hf_scene_add_root(s, graph);
    HF_CLEANUP(hf_freep) char *quoted = hf_asprintf("\"%s\"", stem);
    HF_CLEANUP(hf_freep) char *tracker = hf_folder_text(s->in, "checkpoint");
    if (tracker != NULL && strstr(tracker, quoted) != NULL) {
        hf_scene_add_root(s, "checkpoint");
    }
    if (!hf_scene_need_in(s, s->in, index)) {
        return;
    }
    struct hf_box_look box;
    hf_box_judge(s->in->fd, index, &box);
    if (box.box != HF_BOX_TABLE) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is cut", index);
    } else if (seen == 0 || seen != all) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "%" PRId64 " of %" PRId64 " data files", seen, all);
    } else {
        hf_scene_say(s, HF_LAYOUT_WHOLE,
                     "all data files, and the index that is written after them");
    }
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
    hf_scene_name_after(s, hf_folder_has(s->in, params) ? params : name);
    hf_scene_add_root(s, opt);
    if (!hf_scene_need_in(s, s->in, params) ||
        (hf_folder_has(s->in, opt) && !hf_scene_need_in(s, s->in, opt))) {
        return;
    }
    hf_scene_say(s, HF_LAYOUT_UNSURE, "a format that does not tell its own length");
}
