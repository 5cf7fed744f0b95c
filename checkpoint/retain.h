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
    bool manifest; /* else a seal or an abort */
    bool retired;
    bool retire; /* out: should be retired now */
};
/* Pure. rows ascend by (attempt, number). Marks every live manifest but the newest `keep` (at
 * least one), and never the newest of the two highest attempts that have one: the parent of the
 * next save, and what there is to step back to from a whole attempt that proves damaged. keep <=
 * 0 keeps all. Returns how many were marked. */
size_t hf_retain_plan(struct hf_retain_row *rows, size_t n, int64_t keep);

/* Retires what the plan says (create-only marks), then removes blocks of retired checkpoints, and
 * of numbers that were sealed or aborted, that no live manifest names. Does nothing while mine
 * has committed nothing: its base may be an older one. If any manifest cannot be read nothing is
 * deleted. *ret_removed counts blocks. Safe to kill anywhere and to repeat. Only decided numbers
 * of attempts <= mine->attempt are touched, never one in flight. HF_EEXISTS: mine was taken
 * over, nothing is touched. Not at the same time as a save of `mine` whose parent is not its
 * newest manifest. */
enum hf_rc hf_retain(const struct hf_run *run, const struct hf_call *c, const struct hf_claim *mine,
                     int64_t keep, uint64_t *ret_removed, struct hf_err *err) HF_MUST_USE;

#endif
