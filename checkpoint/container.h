/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a file that a framework wrote is all there, by what its format says about its own length.
 * Only the ends are read, and a header. Read only; blocking, worker threads. For checkpoint/ alone.
 * Sources: zip (PKWARE APPNOTE 6.3.10, 4.3.14-16), safetensors (its README), HDF5 (file format
 * specification 3.0, II.A), pickle (Python's pickletools), OCDBT (TensorStore's format page), table
 * (LevelDB's doc/table_format.md), torch before 1.6 (torch/serialization.py).
 */
#ifndef HF_CHECKPOINT_CONTAINER_H
#define HF_CHECKPOINT_CONTAINER_H

#include "base/prelude.h"

enum hf_box {
    HF_BOX_OTHER,
    HF_BOX_ZIP,
    HF_BOX_SAFETENSORS,
    HF_BOX_HDF5,
    HF_BOX_PICKLE,
    HF_BOX_JSON,
    HF_BOX_MANIFEST, /* of an OCDBT store, as Orbax has it */
    HF_BOX_TABLE     /* TensorFlow's index, a sorted table as LevelDB has it */
};
enum hf_box_state {
    HF_BOX_WHOLE,  /* it says so itself */
    HF_BOX_SHORT,  /* cut, empty where it may not be, or not readable */
    HF_BOX_UNKNOWN /* the format has no way to say */
};

struct hf_box_look {
    enum hf_box box;
    enum hf_box_state state;
    uint64_t size;
    char why[128]; /* when SHORT: what is wrong */
};

/* name: in dirfd, no link is followed. The box is told by content, for safetensors, JSON, an index
 * and ".distcp" (zips in a row) by the name; a file that is empty, or begins with zeros or as
 * another format, is SHORT when its name rules that out. Never fails: a file that is gone or cannot
 * be read is SHORT with the reason. */
void hf_box_judge(int dirfd, const char *name, struct hf_box_look *ret);

/* The same on bytes in memory, for tests and fuzzing. Pure. */
void hf_box_judge_bytes(const void *data, size_t len, const char *name, struct hf_box_look *ret);

#endif
