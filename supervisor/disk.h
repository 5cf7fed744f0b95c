/* SPDX-License-Identifier: Apache-2.0
 *
 * Room on the filesystems that a run writes to, and what is to be said of it. hf_disk_look may
 * block (a network filesystem): worker threads. The rest is pure.
 */
#ifndef HF_SUPERVISOR_DISK_H
#define HF_SUPERVISOR_DISK_H

#include "base/prelude.h"

#include "base/err.h"

struct hf_disk {
    uint64_t device; /* tells filesystems apart */
    uint64_t free_bytes, total_bytes;
};

/* Of the filesystem that holds the path, or the nearest folder above it that is there. */
enum hf_rc hf_disk_look(const char *path, struct hf_disk *ret, struct hf_err *err) HF_MUST_USE;

enum hf_disk_word {
    HF_DISK_FINE,
    HF_DISK_LOW, /* less than two checkpoints fit */
    HF_DISK_FULL /* nine tenths are used, and fewer than ten checkpoints fit */
};
/* need: a checkpoint's bytes; 0: not known, and nothing is said. */
enum hf_disk_word hf_disk_judge(const struct hf_disk *d, uint64_t need);

/* Whether what is kept for comfort must go: less than 1.1 checkpoints fit. */
bool hf_disk_is_short(const struct hf_disk *d, uint64_t need);

#endif
