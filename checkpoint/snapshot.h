/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a set of files into blocks, by lanes: each block is read, hashed and, unless it is known,
 * put. Proves that no file changed meanwhile. Blocking, worker threads. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_SNAPSHOT_H
#define HF_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/blocks.h"
#include "checkpoint/early.h"
#include "checkpoint/fileset.h"
#include "checkpoint/save.h"

struct hf_snapshot_in {
    const struct hf_save_in *save;
    const struct hf_call *call;
    const char *where; /* the folder for new blocks */
    uint64_t block_bytes;
    struct hf_blocks *blocks;     /* knows the parent's; learns the new ones */
    const struct hf_early *early; /* what need not be read again; may be NULL */
};

struct hf_snapshot {
    struct hf_fileset set;
    size_t *first;             /* of each entry: index of its first id */
    char (*ids)[HF_ID_STRLEN]; /* of the blocks of regular files, in order */
    size_t n_ids;
    uint64_t bytes_sent; /* of blocks that were put */
};

/* HF_EAGAIN "changed while read": a file changed again while it was read for the second time, or
 * is not as in->save->expect has it. HF_EINVAL: no file at all. HF_EFULL:
 * more files than a manifest can name. */
enum hf_rc hf_snapshot_take(const struct hf_snapshot_in *in, struct hf_snapshot *ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_snapshot_release(struct hf_snapshot *s);

/* Reads and puts the files below the roots that have not changed since settled_ns (wall clock),
 * and tells of each that stayed as it was until it had been read. Nothing is proved yet: that is
 * for the save. *ret_sent grows by the bytes that were put. */
typedef void hf_snapshot_file_fn(void *user, char *path_taken, const struct hf_entry *entry,
                                 const char (*ids)[HF_ID_STRLEN], size_t n);
enum hf_rc hf_snapshot_ahead(const struct hf_snapshot_in *in, int64_t settled_ns,
                             hf_snapshot_file_fn *each, void *user, uint64_t *ret_sent,
                             struct hf_err *err) HF_MUST_USE;

/* How many blocks a file of that size has. */
uint64_t hf_piece_count(uint64_t size, uint64_t block_bytes);

#endif
