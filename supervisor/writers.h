/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a process of our tree has a file open for writing, through /proc. Blocking; worker
 * threads.
 */
#ifndef HF_SUPERVISOR_WRITERS_H
#define HF_SUPERVISOR_WRITERS_H

#include "base/prelude.h"

#include "checkpoint/save.h"

enum hf_writers {
    HF_WRITERS_NONE,
    HF_WRITERS_SOME,
    HF_WRITERS_UNKNOWN /* a process of the tree does not let us look */
};

/* The processes are those that bear HOLDFAST_TOKEN=token; the files are those of the stamps, which
 * lie on one filesystem. */
enum hf_writers hf_writers_of(const char *token, const struct hf_stamps *stamps);

#endif
