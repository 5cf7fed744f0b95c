/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of the entries of watched folders: each with the prints of its files, so that new
 * content is told from old and from what is merely being removed. Kept in the attempt's folder
 * (watched.json), since a supervisor that takes the attempt over must know it too. Blocking; one
 * user at a time, worker threads.
 */
#ifndef HF_SUPERVISOR_KNOWN_H
#define HF_SUPERVISOR_KNOWN_H

#include "base/prelude.h"

#include "checkpoint/save.h"

struct hf_known {
    char *path;
    int64_t step;     /* -1: unknown */
    uint64_t *prints; /* sorted; one for each file and link: path, size, time of change, inode */
    size_t n_prints;
    int64_t newest_ns; /* the latest time of change of a file */
    uint64_t since_ns; /* CLOCK_BOOTTIME: since when it is as it is */
    bool done;         /* as it is, it is old, or was taken, or gave way to a newer one */
    bool grown;        /* it is not done, but a part of it was before */
    bool open;         /* as it is, a process had it open for writing when last looked at */
    bool renamed;      /* as it is, it was renamed into its place */
    bool seen;         /* for hf_knowns_drop_unseen */
};

struct hf_knowns {
    struct hf_known *items;
    size_t len, room;
};

void hf_knowns_release(struct hf_knowns *k);
struct hf_known *hf_known_find(const struct hf_knowns *k, const char *path); /* NULL: not known */

/* Notes how the entry is now and marks it as seen. Files that went change nothing; a new or changed
 * one makes it anew: not done, since now_ns. Valid until the next call. */
struct hf_known *hf_known_note(struct hf_knowns *k, const char *path, int64_t step,
                               const struct hf_stamps *stamps, uint64_t now_ns);

/* Forgets what was not seen since the last call. */
void hf_knowns_drop_unseen(struct hf_knowns *k);

/* Those that are done, but for `except` (a path, may be NULL). HF_ENOTFOUND: no such file. */
enum hf_rc hf_knowns_save(const struct hf_knowns *k, const char *except, const char *file,
                          struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_knowns_load(struct hf_knowns *k, const char *file, struct hf_err *err) HF_MUST_USE;

#endif
