/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a set of files into blocks, by lanes: each block is read, hashed and, unless it is known,
 * put. Proves that no file changed meanwhile. Blocking, worker threads. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_SNAPSHOT_H
#define HF_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/blocks.h"
#include "checkpoint/fileset.h"
#include "checkpoint/save.h"

struct hf_snapshot_in {
    const struct hf_save_in *save;
    const struct hf_call *call;
    const char *where; /* the folder for new blocks */
    uint64_t block_bytes;
    struct hf_blocks *blocks; /* knows the parent's; learns the new ones */
};

struct hf_snapshot {
    struct hf_fileset set;
    size_t *first;             /* of each entry: index of its first id */
    char (*ids)[HF_ID_STRLEN]; /* of the blocks of regular files, in order */
    size_t n_ids;
    uint64_t bytes_sent; /* of blocks that were put */
};

/* HF_EAGAIN "changed while read": a file changed again while it was read for the second time, or
 * is not as in->save->expect has it. HF_EINVAL: nothing but folders. */
enum hf_rc hf_snapshot_take(const struct hf_snapshot_in *in, struct hf_snapshot *ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_snapshot_release(struct hf_snapshot *s);

/* How many blocks a file of that size has. */
uint64_t hf_piece_count(uint64_t size, uint64_t block_bytes);

#endif
