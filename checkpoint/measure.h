/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast this machine and a store are together, measured the way a save does its work: lanes
 * that copy, hash and put blocks. For `holdfast doctor`. Blocking, worker threads.
 */
#ifndef HF_CHECKPOINT_MEASURE_H
#define HF_CHECKPOINT_MEASURE_H

#include "cloud/store.h"

#define HF_MEASURE_BYTES_MAX (UINT64_C(1) << 30) /* that are put, and taken away again */

struct hf_measure_in {
    struct hf_store *store;
    const struct hf_call *call; /* its flag ends the measurement; what was put is removed even so */
    uint64_t block_bytes;
    uint32_t lanes;    /* 0: hf_lanes_default() */
    uint32_t stage_ms; /* how long the puts may take, and the gets */
};

/* Bytes a second are of one core for the hash, of all lanes together for the rest. */
struct hf_measure {
    uint64_t hash_bps;
    uint64_t put_bps, put_bytes; /* copied, hashed and stored */
    uint64_t get_bps, get_bytes; /* fetched, and proved equal by their hash */
    double small_put_ms;         /* the median of create-only puts of 4 KiB, one after another */
    uint32_t lanes;
    bool create_only; /* the store keeps the promise; else it is a weaker one */
};

/* Puts below "doctor-<random>/" in the store and removes it again, whatever happens; if it
 * cannot be removed the error names it. HF_ECANCELED; HF_ECORRUPT: a block came back changed; else
 * what the store says. *ret is filled as far as it came. */
enum hf_rc hf_measure(const struct hf_measure_in *in, struct hf_measure *ret,
                      struct hf_err *err) HF_MUST_USE;

/* New bytes that a save can bring to safety in that time, if the store goes on as measured: what
 * is left beside four small puts (the look before it, the manifest, a repetition of each). Pure. */
uint64_t hf_measure_fits(const struct hf_measure *m, uint32_t seconds);

#endif
