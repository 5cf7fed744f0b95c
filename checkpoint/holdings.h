/* SPDX-License-Identifier: Apache-2.0
 *
 * All that a run holds, for those who remove something: every decision, the manifests that stand,
 * and the blocks that nobody needs. The order of the calls is the safety: what is to go is marked
 * first, then all that stands is read, then blocks are listed and removed. Blocking, worker
 * threads. For checkpoint/ alone.
 */
#ifndef HF_CHECKPOINT_HOLDINGS_H
#define HF_CHECKPOINT_HOLDINGS_H

#include "checkpoint/retain.h"

/* The undecided numbers of an attempt, from `number` on: may anything still come there? */
struct hf_tail {
    uint32_t number;
    bool over; /* sealed, or the attempt has ended */
};

/* A block, or the rest of an upload, that nobody needs. */
struct hf_doomed {
    char *key;
    uint64_t bytes;
    uint32_t attempt, number; /* whose folder it lies in */
};

struct hf_holdings {
    const struct hf_run *run;
    const struct hf_call *call;
    uint32_t top;                  /* the highest attempt when it was read; 0: none */
    struct hf_retain_row *rows;    /* of every attempt, ascending */
    struct hf_manifest *manifests; /* of each row; empty where it is none, retired or damaged */
    size_t len, room;
    struct hf_tail *tails; /* of attempt 1, 2, ... top */
    struct hf_doomed *doomed;
    size_t n_doomed, doomed_room;
    struct hf_seen_block *seen; /* blocks that live manifests name: which of them are stored */
    size_t n_seen;
};

/* Reads the decisions of all attempts. `ended`: whether an attempt that is not sealed has ended is
 * looked up too. A decision that is damaged, twice, is marked so in its row. HF_ENOTSUP: one is of
 * a newer format. h is zeroed but for run and call; always released. */
enum hf_rc hf_holdings_read(struct hf_holdings *h, bool ended, struct hf_err *err) HF_MUST_USE;
void hf_holdings_release(struct hf_holdings *h);

/* A row by its name; NULL: there is none. */
struct hf_retain_row *hf_holdings_row(const struct hf_holdings *h, uint32_t attempt,
                                      uint32_t number);
/* It stands: a manifest that can be read and is not retired. */
bool hf_row_is_live(const struct hf_retain_row *r);
/* Treats a retired checkpoint as one whose blocks are needed: some attempt builds upon it. */
enum hf_rc hf_holdings_keep(struct hf_holdings *h, uint32_t attempt, uint32_t number,
                            struct hf_err *err) HF_MUST_USE;

/* Marks the rows that say `retire` as retired, for ever, unless they are pinned: then `pinned` is
 * set instead. */
enum hf_rc hf_holdings_mark(struct hf_holdings *h, struct hf_err *err) HF_MUST_USE;

/* Lists the blocks: fills `doomed`, and what is known of the live ones. HF_ECORRUPT: a decision
 * that is not retired is damaged, so that nobody knows which blocks it needs. */
enum hf_rc hf_holdings_list(struct hf_holdings *h, struct hf_err *err) HF_MUST_USE;
/* After listing: the newest that stands and of which every block is stored, with its right length.
 * NULL: none. */
struct hf_retain_row *hf_holdings_last_good(const struct hf_holdings *h);
/* Before marking: takes back the `retire` of the last good one, which newer ones that lack blocks
 * cannot stand in for. Lists the blocks. */
enum hf_rc hf_holdings_spare_last(struct hf_holdings *h, struct hf_err *err) HF_MUST_USE;
/* Removes what is doomed. *ret_removed grows by objects. */
enum hf_rc hf_holdings_remove(const struct hf_holdings *h, uint64_t *ret_removed,
                              struct hf_err *err) HF_MUST_USE;

#endif
