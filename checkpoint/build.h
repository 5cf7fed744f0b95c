/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the files of a manifest under names of their own, beside where they belong, from verified
 * blocks. Blocking, worker threads. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_BUILD_H
#define HF_CHECKPOINT_BUILD_H

#include "checkpoint/lineage.h"

/* Where one root is built. */
struct hf_site {
    bool skip;     /* the root is right already: nothing is built */
    char *sibling; /* absolute path of the new file or folder; owned */
    char *name;    /* its last part, in `dir`, when the root is a file; owned; else NULL */
    int dir;       /* open: the new folder, or the folder that holds the new file; else -1 */
};

/* Builds all that is not skipped: makes the sites, fills them, flushes them, sets modes. The
 * sites' `sibling` are set. *ret_bytes: written. On failure what was made
 * is left; the caller removes the siblings. */
enum hf_rc hf_build(const struct hf_run *run, const struct hf_call *c, const struct hf_manifest *m,
                    struct hf_site *sites, uint64_t *ret_bytes, struct hf_err *err) HF_MUST_USE;

/* What the names of all that is made beside a root begin with: the root's own path, or, where that
 * leaves no room in a name, a shorter one that belongs to it alone. Owned by the caller. */
char *hf_sibling_stem(const char *path);

/* Removes a file or a tree, folders without permissions included; missing is success. */
enum hf_rc hf_remove_all(const char *path, struct hf_err *err) HF_MUST_USE;

/* Opens the folder of `path` (relative, hf_path_is_inside) below `dir`, following no link, and
 * says what its last part is (borrowed from path). -1: errno. */
int hf_open_parent(int dir, const char *path, const char **ret_name);

#endif
