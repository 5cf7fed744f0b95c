/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: which checkpoints may go (pure), and the deleting of their blocks. A retired
 * decision stays for ever; only blocks go. The last good checkpoint always stays. Blocking
 * (hf_retain), worker threads only.
 */
#ifndef HF_CHECKPOINT_RETAIN_H
#define HF_CHECKPOINT_RETAIN_H

#include "checkpoint/lineage.h"

struct hf_retain_row {
    uint32_t attempt, number;
    bool manifest; /* or damaged, so that nobody knows; else a seal or an abort */
    bool seal;
    bool damaged; /* cannot be read */
    bool retired;
    bool pinned; /* found out when it was to be retired: it stays */
    bool retire; /* out: should be retired now */
};
/* Pure. rows ascend by (attempt, number). Marks every live manifest but the newest `keep` (at
 * least one), and never the newest of the two highest attempts that have one: the parent of the
 * next save, and what there is to step back to from a whole attempt that proves damaged. One that
 * is damaged itself counts for nothing, and goes once `keep` newer good ones are there. keep <= 0
 * keeps all. Returns how many were marked. */
size_t hf_retain_plan(struct hf_retain_row *rows, size_t n, int64_t keep);

/* Retires what the plan says (create-only marks), but for the newest of which every block is there,
 * then removes blocks that no live manifest names
 * of decided numbers. What is pinned stays. Does nothing when all are kept, nor while mine has
 * committed nothing: its base may be an older one. If a manifest that stands cannot be read nothing
 * is deleted (HF_ECORRUPT). *ret_removed counts blocks. Safe to kill anywhere and to repeat. Only
 * decided numbers of attempts <= mine->attempt are touched, never one in flight. HF_EEXISTS: mine
 * was taken over, nothing is touched. Not at the same time as a save of `mine` whose parent is not
 * its newest manifest. */
enum hf_rc hf_retain(const struct hf_run *run, const struct hf_call *c, const struct hf_claim *mine,
                     int64_t keep, uint64_t *ret_removed, struct hf_err *err) HF_MUST_USE;

#endif
