/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of files as it lies on the disk: every file, folder and link below some roots, with what
 * tells later whether one has changed. Links are never followed. Blocking, worker threads. For
 * checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_FILESET_H
#define HF_CHECKPOINT_FILESET_H

#include "base/mem.h"
#include "checkpoint/manifest.h"

struct hf_entry {
    uint32_t root; /* index into the roots */
    char *path;    /* below the root; "" for the root itself */
    enum hf_file_kind kind;
    uint32_t mode;
    uint64_t size;    /* of a regular file; else 0 */
    int64_t mtime_ns; /* of a regular file; else 0 */
    uint64_t inode;
    char *target; /* of a link; else NULL */
};

struct hf_fileset {
    struct hf_entry *items;
    size_t len, room;
    struct hf_strv left_out; /* absolute paths of sockets, pipes and devices; at most
                              * HF_LEFT_OUT_MAX */
};

/* Ordered by root, then by hf_path_order. What vanishes while the listing is made is not in it.
 * What is neither file, folder nor link is left out, and named. HF_EINVAL: a root is not absolute
 * and normalised. HF_ENOTFOUND: a root is missing. HF_ENOTSUP names a root that is a socket, a
 * device or a pipe, and what lies too deep. HF_EDENIED as it comes. */
enum hf_rc hf_fileset_list(const struct hf_strv *roots, struct hf_fileset *ret,
                           struct hf_err *err) HF_MUST_USE;
void hf_fileset_release(struct hf_fileset *s);

/* The same file, unchanged? */
bool hf_entry_same(const struct hf_entry *a, const struct hf_entry *b);
/* Below or above by (root, path). */
int hf_entry_order(const struct hf_entry *a, const struct hf_entry *b);
/* "ROOT/PATH", owned by the caller. */
char *hf_entry_path(const struct hf_strv *roots, const struct hf_entry *e);
/* HF_EFULL: however its content is cut, a manifest of the set would be longer than a decision may
 * be; says how many files there are, and what helps. Pure. */
enum hf_rc hf_fileset_fits(const struct hf_fileset *s, uint64_t block_bytes,
                           struct hf_err *err) HF_MUST_USE;

/* Where a link of that absolute path and that target leads, by the letters: empty and "." parts
 * go, ".." takes the part before it away. Owned by the caller. Pure. */
char *hf_link_leads(const char *path, const char *target);

struct hf_stamps;
/* The set as stamps (checkpoint/save.h), sorted by path. */
void hf_stamps_of(const struct hf_strv *roots, const struct hf_fileset *set, struct hf_stamps *ret);

#endif
