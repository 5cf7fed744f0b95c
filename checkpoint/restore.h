/* SPDX-License-Identifier: Apache-2.0
 *
 * Restoring and verifying. Every block's hash is checked before a file gets its name: a root is
 * built in a sibling folder ("PATH.holdfast-new-…"), verified, then exchanged; equal files
 * stay, what is in the way is moved aside ("PATH.holdfast-aside-UTC"), never overwritten.
 * Blocking, worker threads only.
 */
#ifndef HF_CHECKPOINT_RESTORE_H
#define HF_CHECKPOINT_RESTORE_H

#include "checkpoint/lineage.h"

struct hf_restore_report {
    uint64_t bytes;       /* written */
    uint64_t bytes_kept;  /* already there and equal */
    struct hf_strv aside; /* absolute paths of what was moved away */
};
void hf_restore_report_release(struct hf_restore_report *r);

/* HF_ECORRUPT: a block's hash was wrong twice, or it is confirmed absent: the checkpoint is
 * damaged; nothing was exchanged. Anything else (a store that fails, a full disk) says nothing
 * about the checkpoint. Left-over siblings of an interrupted restore are removed first. Roots
 * that are complete and equal already are left untouched (bytes_kept). */
enum hf_rc hf_restore(const struct hf_run *run, const struct hf_call *c,
                      const struct hf_manifest *m, struct hf_restore_report *ret,
                      struct hf_err *err) HF_MUST_USE;

/* Reads every block and checks it; writes nothing. */
enum hf_rc hf_verify(const struct hf_run *run, const struct hf_call *c, const struct hf_manifest *m,
                     uint64_t *ret_bytes, struct hf_err *err) HF_MUST_USE;

#endif
