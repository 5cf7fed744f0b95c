/* SPDX-License-Identifier: Apache-2.0
 *
 * Before a start: incomplete checkpoints that a dead attempt left in a watched folder are moved
 * aside, since frameworks take the highest name without a look inside. Nothing is deleted.
 * Blocking; worker threads, while no process of the run lives.
 */
#ifndef HF_SUPERVISOR_LEFTOVERS_H
#define HF_SUPERVISOR_LEFTOVERS_H

#include "base/prelude.h"

#include "checkpoint/layout.h"

struct hf_leftover {
    char *path, *to;
    char why[256];
};
struct hf_leftovers {
    struct hf_leftover *items;
    size_t len;
    struct hf_strv troubles; /* a sentence for each that could not be moved */
};
void hf_leftovers_release(struct hf_leftovers *l);

/* What decides about one entry of a folder. */
struct hf_left_facts {
    enum hf_layout_state state;
    int64_t step;      /* -1: unknown */
    int64_t newest_ns; /* its time of change */
    bool marked;       /* it bears a mark of being unfinished */
};
/* Pure. ret_move[i]: entry i is incomplete, and newer than the newest complete one, or marked. */
void hf_leftovers_choose(const struct hf_left_facts *f, size_t n, bool *ret_move);

/* Moves them into "<place>/.holdfast-aside/<UTC time>-<name>", see hf_beside. */
void hf_leftovers_move(const struct hf_strv *dirs, uint32_t world, struct hf_leftovers *ret);

#endif
