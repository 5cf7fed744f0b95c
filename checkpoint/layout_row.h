/* SPDX-License-Identifier: Apache-2.0
 *
 * What the layouts' rows are made of: a folder as it was listed, an entry that is looked at, and
 * the small questions that many rows ask. For checkpoint/layout*.c alone. Blocking, worker threads.
 */
#ifndef HF_CHECKPOINT_LAYOUT_ROW_H
#define HF_CHECKPOINT_LAYOUT_ROW_H

#include "checkpoint/container.h"
#include "checkpoint/layout.h"

struct hf_item {
    char *name;
    bool dir, link, regular;
    uint64_t size;
    int64_t mtime_ns;
};

/* A folder's entries, sorted by name. len 0 and fd -1 after a failure. */
struct hf_folder {
    char *path; /* without a slash at its end */
    int fd;
    struct hf_item *items;
    size_t len, room;
};
enum hf_rc hf_folder_open(const char *path, struct hf_folder *ret, struct hf_err *err) HF_MUST_USE;
/* A folder inside another; links are not followed. */
enum hf_rc hf_folder_open_in(const struct hf_folder *f, const char *name, struct hf_folder *ret,
                             struct hf_err *err) HF_MUST_USE;
void hf_folder_close(struct hf_folder *f);
const struct hf_item *hf_folder_find(const struct hf_folder *f, const char *name);
bool hf_folder_has(const struct hf_folder *f, const char *name); /* a regular file */
bool hf_folder_has_dir(const struct hf_folder *f, const char *name);
bool hf_folder_has_like(const struct hf_folder *f, const char *pattern); /* a regular file */
/* The first entry that is not before `name`; f->len: none. */
size_t hf_folder_from(const struct hf_folder *f, const char *name);
/* The next regular file that is hf_name_like the pattern; *at is 0 for the first. NULL: no more. */
const struct hf_item *hf_folder_next_like(const struct hf_folder *f, const char *pattern,
                                          size_t *at, int64_t *numbers);
/* The same of names that are `start`, byte by byte, and then hf_name_like `rest`. */
const struct hf_item *hf_folder_next_after(const struct hf_folder *f, const char *start,
                                           const char *rest, size_t *at, int64_t *numbers);
/* At most `max` bytes of a regular file, with a NUL behind them; NULL: not there, not readable.
 * Owned by the caller. */
char *hf_folder_read(const struct hf_folder *f, const char *name, size_t max, size_t *ret_len);
/* The same of a small text file (4 KiB), blanks at its ends taken off. */
char *hf_folder_text(const struct hf_folder *f, const char *name);

/* One entry under judgement. */
struct hf_scene {
    const struct hf_folder *in; /* the folder it lies in */
    const struct hf_item *item;
    struct hf_folder inside;     /* its own entries, for a folder */
    uint32_t world;              /* 0: unknown */
    struct hf_layout_look *look; /* to be filled: state, step, world, why, roots beside `path` */
};

struct hf_layout_row {
    const char *name;
    bool dir; /* a row for folders, else for files */
    bool (*is)(const struct hf_scene *s);
    void (*judge)(struct hf_scene *s);
};
extern const struct hf_layout_row hf_layout_rows[];
extern const size_t hf_layout_n_rows;

/* Sets state and reason; the state that was set first stays, but for WHOLE and UNSURE. */
void hf_scene_say(struct hf_scene *s, enum hf_layout_state state, const char *fmt, ...)
    HF_PRINTF(3, 4);
/* The named file is there and its container is not short; else PARTIAL. */
bool hf_scene_need(struct hf_scene *s, const char *name);
bool hf_scene_need_in(struct hf_scene *s, const struct hf_folder *f, const char *name);
/* Adds an entry of the folder it lies in to the roots, if there is one of that name. */
void hf_scene_add_root(struct hf_scene *s, const char *name);
/* Of files that are one checkpoint, the one that gives `path`; the roots begin anew. */
void hf_scene_name_after(struct hf_scene *s, const char *name);

/* '#' matches one or more digits, '*' anything, else byte by byte. numbers: what each '#' matched,
 * at most 4 (a number of 2^53 or more does not match); may be NULL. */
bool hf_name_like(const char *name, const char *pattern, int64_t *numbers);
/* The number behind "step", "iteration", "iter" or "epoch", the first of these that is there, else
 * the last number before the name's ending; -1 without one or from 2^53 on. */
int64_t hf_name_step(const char *name);
bool hf_name_ends(const char *name, const char *end);

/* Files named by `pattern`, whose first '#' counts from 0 to the highest without a gap, and up to
 * want - 1 when want is not 0. Returns how many there are; 0 and PARTIAL when one is missing or
 * short; 0 alone when there are none. */
uint32_t hf_scene_need_row(struct hf_scene *s, const struct hf_folder *f, const char *pattern,
                           uint32_t want);
/* A torch.distributed.checkpoint folder: every file that its .metadata names is there. */
bool hf_scene_need_dcp(struct hf_scene *s, const struct hf_folder *f);
/* Whether one of the two newest other folders of such a name has a file that is hf_name_like one of
 * those; sub: in a folder inside that is like that. All checkpoints of a run have what one has: the
 * one without it is half removed. */
bool hf_scene_others_have(const struct hf_scene *s, const char *sub, const char *const *names,
                          size_t n);
/* Logs, settings and marks, by the name alone. */
bool hf_name_is_foreign(const char *name);

/* Rows' functions, by file. */
bool hf_is_orbax(const struct hf_scene *s);
void hf_judge_orbax(struct hf_scene *s);
bool hf_is_paddle_dir(const struct hf_scene *s);
void hf_judge_paddle_dir(struct hf_scene *s);
bool hf_is_trainer(const struct hf_scene *s);
void hf_judge_trainer(struct hf_scene *s);
bool hf_is_accelerate(const struct hf_scene *s);
void hf_judge_accelerate(struct hf_scene *s);
bool hf_is_deepspeed(const struct hf_scene *s);
void hf_judge_deepspeed(struct hf_scene *s);
bool hf_is_megatron(const struct hf_scene *s);
void hf_judge_megatron(struct hf_scene *s);
bool hf_is_mindformers(const struct hf_scene *s);
void hf_judge_mindformers(struct hf_scene *s);
bool hf_is_lightning_dir(const struct hf_scene *s);
void hf_judge_lightning_dir(struct hf_scene *s);
bool hf_is_dcp(const struct hf_scene *s);
void hf_judge_dcp(struct hf_scene *s);
bool hf_is_any_dir(const struct hf_scene *s);
void hf_judge_any_dir(struct hf_scene *s);

bool hf_is_composer(const struct hf_scene *s);
void hf_judge_composer(struct hf_scene *s);
bool hf_is_keras_backup(const struct hf_scene *s);
void hf_judge_keras_backup(struct hf_scene *s);
bool hf_is_keras(const struct hf_scene *s);
bool hf_is_tensorflow(const struct hf_scene *s);
void hf_judge_tensorflow(struct hf_scene *s);
bool hf_is_paddle(const struct hf_scene *s);
void hf_judge_paddle(struct hf_scene *s);
bool hf_is_timm(const struct hf_scene *s);
void hf_judge_timm(struct hf_scene *s);
bool hf_is_lightning(const struct hf_scene *s);
bool hf_is_torch(const struct hf_scene *s);
bool hf_is_safetensors(const struct hf_scene *s);
void hf_judge_box(struct hf_scene *s);
bool hf_is_no_checkpoint(const struct hf_scene *s);
void hf_judge_no_checkpoint(struct hf_scene *s);
bool hf_is_any_file(const struct hf_scene *s);
void hf_judge_any_file(struct hf_scene *s);

#endif
