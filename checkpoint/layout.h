/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts: how each framework lays a checkpoint out on the disk, and when what lies there is
 * complete. One table, one row a layout; a row knows its checkpoints by names and content, and its
 * own sign of completeness. Read only: nothing is ever written, moved or opened for writing, and no
 * link is followed out of the folder looked at. Blocking; worker threads, or a command.
 */
#ifndef HF_CHECKPOINT_LAYOUT_H
#define HF_CHECKPOINT_LAYOUT_H

#include "base/err.h"
#include "base/mem.h"

enum hf_layout_state {
    HF_LAYOUT_WHOLE,   /* complete by the layout's own sign */
    HF_LAYOUT_PARTIAL, /* of a known layout, and something is missing, short or marked unfinished */
    HF_LAYOUT_UNSURE,  /* could be complete; the layout has no sign: a rename into place, or quiet
                        * with no writer, has to tell */
    HF_LAYOUT_FOREIGN  /* no checkpoint: logs, settings, a folder with a number and nothing in it */
};
const char *hf_layout_state_name(enum hf_layout_state s); /* "whole", "partial", ... */

/* One checkpoint as it lies there. Strings are owned (hf_layout_look_release). */
struct hf_layout_look {
    const char *layout; /* the row's name, static: "hf-trainer", "dcp", ...; "unknown" */
    enum hf_layout_state state;
    char *path;           /* absolute: what a resume would name */
    int64_t step;         /* -1: it does not say */
    uint32_t world;       /* ranks whose files it must have; 0: it does not say */
    struct hf_strv roots; /* absolute, none inside another: `path` and what belongs to it beside it
                           * (tracker, "latest", the other ranks' files) */
    char why[256];        /* what is missing, or by which sign it is whole */
};
void hf_layout_look_release(struct hf_layout_look *l);

/* Looks at one file or folder. world: ranks of the running job, 0: unknown. HF_ENOTFOUND: nothing
 * there (any more). What cannot be read is PARTIAL with the reason, not an error. */
enum hf_rc hf_layout_judge(const char *path, uint32_t world, struct hf_layout_look *ret,
                           struct hf_err *err) HF_MUST_USE;

/* Bytes of the files below the roots, as they lie there now. */
uint64_t hf_layout_bytes(const struct hf_layout_look *l);

struct hf_layout_looks {
    struct hf_layout_look *items;
    size_t len, room;
};
void hf_layout_looks_release(struct hf_layout_looks *l);

/* Everything in a checkpoint folder, one look a checkpoint (files of several ranks joined), FOREIGN
 * entries too, ordered by step as a number, then by time of change. HF_ENOTFOUND: no such folder.
 * HF_EINVAL: it is a file. */
enum hf_rc hf_layout_scan(const char *dir, uint32_t world, struct hf_layout_looks *ret,
                          struct hf_err *err) HF_MUST_USE;

#endif
