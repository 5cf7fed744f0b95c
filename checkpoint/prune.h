/* SPDX-License-Identifier: Apache-2.0
 *
 * Removing by hand, from outside of any attempt, also while one runs elsewhere. What a running
 * attempt builds upon, what is pinned and the last good checkpoint stay. Blocking, worker threads
 * or a command's main thread.
 */
#ifndef HF_CHECKPOINT_PRUNE_H
#define HF_CHECKPOINT_PRUNE_H

#include "checkpoint/lineage.h"

struct hf_ckpt_id {
    uint32_t attempt, number;
};

struct hf_prune_in {
    const struct hf_run *run;
    const struct hf_ckpt_id *ids; /* to be retired; none: only what nobody needs goes */
    size_t n_ids;
    bool even_last; /* the last good one too, unless a running attempt builds upon it */
    bool dry_run;   /* nothing is marked or removed; without ids */
};

/* What went, or would go, of one checkpoint's folder. */
struct hf_pruned {
    uint32_t attempt, number;
    uint64_t blocks, bytes;
};
struct hf_prune_report {
    struct hf_pruned *items; /* ascending */
    size_t len;
    uint64_t blocks, bytes;
};
void hf_prune_report_release(struct hf_prune_report *r);

/* All ids are checked before any is retired. HF_ENOTFOUND: no such checkpoint. HF_EDENIED: it is
 * the last good one, pinned, or what a running attempt builds upon. HF_EAGAIN: an attempt is just
 * starting; nothing was removed, ask again. HF_ECORRUPT: a manifest that is not given up cannot be
 * read, so nobody knows what it needs. After a failure what was retired stays retired, and the
 * next call removes it. */
enum hf_rc hf_prune(const struct hf_prune_in *in, const struct hf_call *c,
                    struct hf_prune_report *ret, struct hf_err *err) HF_MUST_USE;

#endif
