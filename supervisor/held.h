/* SPDX-License-Identifier: Apache-2.0
 *
 * Held checkpoints: a complete checkpoint in a watched folder is cloned (FICLONE) or hard-linked
 * before the training program may prune or overwrite it, and shipped from there. All in folders
 * ".holdfast-held" on the same filesystem. Blocking; worker threads.
 */
#ifndef HF_SUPERVISOR_HELD_H
#define HF_SUPERVISOR_HELD_H

#include "base/prelude.h"

#include "checkpoint/save.h"

/* Our own folder for the watched folder `dir` (absolute), made if it is not there: "name" in the
 * folder above `dir`, where programs that take every entry of `dir` for a checkpoint do not see it
 * (Accelerate reads a number out of each name and fails without one). If that is another filesystem
 * or cannot be written: in `dir` itself, unless `inside` is false: HF_ENOTSUP. */
enum hf_rc hf_beside(const char *dir, const char *name, bool inside, char **ret,
                     struct hf_err *err) HF_MUST_USE;

struct hf_hold_in {
    const char *dir; /* the watched folder */
    const char *key; /* tells runs apart that share a filesystem; no slash */
    uint32_t attempt;
    bool inside; /* see hf_beside */
    const struct hf_strv *roots;
};

struct hf_hold {
    char *folder;         /* what hf_held_drop takes; owned */
    struct hf_strv paths; /* of each root, where it is held */
    bool cloned;
    uint64_t bytes; /* sum of the regular files' sizes */
};
void hf_hold_release(struct hf_hold *h);

/* Holds the roots as `stamps` has them. On HF_OK the stamps fit both the roots and what is held:
 * inodes that cannot be equal are 0 in them. HF_EAGAIN: a root is not, or no longer, as the stamps
 * say. HF_ENOTSUP: neither clones nor links can be made here. Nothing is left on failure. */
enum hf_rc hf_hold_take(const struct hf_hold_in *in, struct hf_stamps *stamps, struct hf_hold *ret,
                        struct hf_err *err) HF_MUST_USE;

/* Are all of them still there? False for none. */
bool hf_held_there(const struct hf_strv *paths);

/* Gives up one held checkpoint: it is renamed first, so that a reader finds all of it or nothing.
 * What cannot be removed stays until the next clean-up. */
void hf_held_drop(const char *folder);

/* Removes what attempt `attempt` of `key` (0: any attempt) holds for these watched folders. */
void hf_held_clean(const struct hf_strv *dirs, const char *key, uint32_t attempt);

/* Bytes that an ordinary user may still write on the filesystem of `path`; UINT64_MAX when that
 * cannot be told. */
uint64_t hf_free_bytes(const char *path);

#endif
