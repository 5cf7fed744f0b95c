/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: a few equal threads that take items off one counter until none is left. The calling
 * thread is one of them. For blocks: each item is read, hashed and stored by one thread, so that
 * it stays in one core's cache. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_LANES_H
#define HF_CHECKPOINT_LANES_H

#include "cloud/store.h"

/* What a lane has for itself. */
struct hf_lane {
    struct hf_mspan room; /* room_bytes, page-aligned; content is left over from the last item */
    struct hf_buf buf;    /* at most buf_bytes; emptied before each item */
};

struct hf_lanes {
    const char *name; /* of the threads, at most 13 bytes */
    const struct hf_call *call;
    size_t items;
    uint32_t lanes; /* 0: hf_lanes_default() */
    size_t room_bytes, buf_bytes;
    enum hf_rc (*item)(void *user, struct hf_lane *lane, size_t index, struct hf_err *err);
    void *user;
};

/* Calls item for 0..items-1, each once, in no order, until one fails: its error, the first, is
 * returned, and items under way are waited for. The call's cancel flag and deadline are looked
 * at before each item. HF_EFULL: no memory for a single lane; with fewer lanes than asked it
 * goes on. */
enum hf_rc hf_lanes_run(const struct hf_lanes *in, struct hf_err *err) HF_MUST_USE;

uint32_t hf_lanes_default(void); /* min(4, processors) */

#endif
