/* SPDX-License-Identifier: Apache-2.0
 *
 * Shipping ahead: blocks of files that are finished are put while the rest of their checkpoint is
 * still being written. They lie under the prefix of the number that the save will use, so that
 * retention sweeps what is never named. Blocking, worker threads; one thread at a time. What is
 * remembered is what this process put under this one number, and nothing else: no listing is ever
 * asked.
 */
#ifndef HF_CHECKPOINT_EARLY_H
#define HF_CHECKPOINT_EARLY_H

#include "checkpoint/save.h"

struct hf_early;

struct hf_early *hf_early_new(void);
void hf_early_free(struct hf_early *e); /* NULL is fine */

/* Reads, hashes and puts the files below in->roots that have not changed for a moment. Of `in`
 * run, claim, number, parent, roots, block_bytes and lanes are looked at. What was taken for
 * another number is forgotten first; after a failure all is, and the save reads everything
 * itself. A file that changes later is not used: its size, time or inode tell. */
enum hf_rc hf_early_take(struct hf_early *e, const struct hf_save_in *in, const struct hf_call *c,
                         struct hf_err *err) HF_MUST_USE;
/* Whether what was taken is for this number of this claim, in blocks of this size. NULL: no. */
bool hf_early_fits(const struct hf_early *e, const struct hf_claim *claim, uint32_t number,
                   uint64_t block_bytes);
uint64_t hf_early_bytes(const struct hf_early *e); /* that were put */

/* For checkpoint/ alone. The ids of a file's blocks, if it was taken just as it is now, under
 * whatever name, else NULL; and the blocks that were put. */
struct hf_entry;
struct hf_blocks;
const char (*hf_early_find(const struct hf_early *e, const char *path,
                           const struct hf_entry *now))[HF_ID_STRLEN];
void hf_early_lend(const struct hf_early *e, struct hf_blocks *to);

#endif
