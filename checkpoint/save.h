/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving: a set of files becomes a checkpoint. Files are cut at fixed offsets, read, hashed and
 * put by a few equal lanes (threads); a block that the parent names is not sent again; the
 * manifest is committed last, create-only. Blocking, worker threads only. Memory: lanes *
 * block_bytes.
 */
#ifndef HF_CHECKPOINT_SAVE_H
#define HF_CHECKPOINT_SAVE_H

#include "checkpoint/lineage.h"

#define HF_BLOCK_BYTES (16u << 20)

/* One listed file of a save, to prove later that nothing changed since it was reported. */
struct hf_stamp {
    char *path; /* absolute */
    uint64_t size;
    int64_t mtime_ns;
    uint64_t inode; /* 0: any, for what is a copy */
};
struct hf_stamps {
    struct hf_stamp *items;
    size_t len;
    struct hf_strv left_out; /* what lies there and cannot be saved: no part of the comparison */
};
/* Lists roots (files or folders, links not followed) with size, mtime and inode; sorted by
 * path. HF_EINVAL for a root that is not absolute, HF_ENOTFOUND for a missing one, HF_ENOTSUP
 * for one that is a socket or a device; below a root those are left out. */
enum hf_rc hf_stamps_take(const struct hf_strv *roots, struct hf_stamps *ret,
                          struct hf_err *err) HF_MUST_USE;
bool hf_stamps_equal(
    const struct hf_stamps *a, const struct hf_stamps *b,
    const char **ret_which); /* ret_which: first path that differs, borrowed from a or b */
void hf_stamps_release(struct hf_stamps *s);

struct hf_early;
struct hf_save_in {
    const struct hf_run *run;
    const struct hf_claim *claim; /* the owner's */
    uint32_t number;              /* the next undecided one */
    uint32_t life;
    uint64_t request;
    int64_t step;
    const char *reason, *strategy;
    uint32_t world;
    const uint32_t *ranks;
    uint32_t n_ranks;
    struct hf_strv roots;             /* absolute paths */
    struct hf_strv sources;           /* empty; or where each root is read from: a copy or a link of
                                       * it. Everything is recorded, and expected, as the root's */
    const char *resume_path;          /* absolute */
    const struct hf_manifest *parent; /* may be NULL; its blocks may be referred to */
    const struct hf_stamps
        *expect; /* may be NULL; else the files must still be so, before and after reading */
    const struct hf_early *early;         /* may be NULL: what was put ahead */
    uint32_t block_bytes;                 /* 0: HF_BLOCK_BYTES */
    uint32_t lanes;                       /* 0: min(4, processors) */
    atomic_uint_fast64_t *progress_bytes; /* may be NULL; grows as blocks are safe */
};

/* On HF_OK *ret is the committed manifest (owned by the caller). Failures commit nothing and
 * harm nothing older: HF_EAGAIN with "changed while read" when a source file changed,
 * HF_EEXISTS when the lineage was taken over, HF_EINVAL when ranks are missing or the set is
 * empty, HF_EFULL when there are more files or blocks than one manifest can name. After a failure
 * the same number is used again: if an earlier try, of unknown outcome, had been stored after all,
 * ret->number is the next free one and that try the parent. */
enum hf_rc hf_save(const struct hf_save_in *in, const struct hf_call *c, struct hf_manifest *ret,
                   struct hf_err *err) HF_MUST_USE;

#endif
