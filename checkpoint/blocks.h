/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks that one save knows: the parent's, and those that it sends itself. Thread-safe; one
 * id is sent once. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_BLOCKS_H
#define HF_CHECKPOINT_BLOCKS_H

#include "checkpoint/manifest.h"

struct hf_blocks;

struct hf_blocks *hf_blocks_new(void);
void hf_blocks_free(struct hf_blocks *t); /* NULL is fine */
/* Adds the parent's. */
void hf_blocks_know(struct hf_blocks *t, const struct hf_manifest *parent);
/* True: the block was not known; it is now, and the caller has to send it (a save in which that
 * fails commits nothing). False: known, or on its way. */
bool hf_blocks_claim(struct hf_blocks *t, const struct hf_block *b);
/* Whether an id is known; the index of one that must be; the block at an index. Not while lanes
 * run. */
bool hf_blocks_knows(const struct hf_blocks *t, const char *id);
size_t hf_blocks_find(const struct hf_blocks *t, const char *id);
const struct hf_block *hf_blocks_at(const struct hf_blocks *t, size_t index);
size_t hf_blocks_len(const struct hf_blocks *t);

#endif
