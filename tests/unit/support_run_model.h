/* SPDX-License-Identifier: Apache-2.0
 *
 * A run as one would describe it on paper, for tests/unit/test_run_model.c: which attempts there
 * are, what each number was decided to be, what is pinned and retired, which block lies in whose
 * folder and who needs it. Nothing here asks the product anything.
 */
#ifndef HF_TESTS_SUPPORT_RUN_MODEL_H
#define HF_TESTS_SUPPORT_RUN_MODEL_H

#include "base/prelude.h"

#include "checkpoint/lineage.h"
#include "checkpoint/pin.h"

#define RM_FILES    3
#define RM_PIECES   4 /* blocks a file at most */
#define RM_BLOCK    256
#define RM_ATTEMPTS 24
#define RM_CKPTS    128
#define RM_OBJECTS  1024

/* The bytes of a block, by the seed that they are made of; 0: zeros, which are never stored. */
struct rm_piece {
    uint32_t seed, len;
};
struct rm_file {
    uint32_t n;
    struct rm_piece pieces[RM_PIECES];
};
struct rm_content {
    struct rm_file files[RM_FILES];
};

struct rm_object {
    uint32_t attempt, number; /* whose folder it lies in */
    struct rm_piece piece;
    bool there, right, full; /* as last put; right: its bytes, full: its length */
    bool harmed;             /* by the test */
};

struct rm_ckpt {
    uint32_t attempt, number;
    enum hf_decision_kind kind;
    bool garbled; /* its record, by the test */
    bool retired;
    enum hf_pin_state pin;
    uint32_t pins;
    struct rm_content content;
    size_t refs[RM_FILES * RM_PIECES]; /* objects */
    size_t n_refs;
};

struct rm_attempt {
    struct hf_claim claim;
    bool sealed, ended, has_base;
    uint32_t base_attempt, base_number;
    uint32_t next;             /* as its owner counts */
    uint32_t last_a, last_n;   /* what its owner builds upon; 0, 0: nothing */
    struct hf_manifest parent; /* the same, as its owner has it */
};

struct rm {
    struct rm_attempt attempts[RM_ATTEMPTS + 1]; /* from 1 */
    uint32_t top;
    struct rm_ckpt ckpts[RM_CKPTS]; /* ascending by (attempt, number) */
    size_t n_ckpts;
    struct rm_object objects[RM_OBJECTS];
    size_t n_objects;
};

void rm_release(struct rm *m);
struct rm_ckpt *rm_find(struct rm *m, uint32_t attempt, uint32_t number);
/* In its place; what it refers to is to be filled in. */
struct rm_ckpt *rm_decide(struct rm *m, uint32_t attempt, uint32_t number,
                          enum hf_decision_kind kind);
/* The first number of that attempt without a decision, from `number` on. */
uint32_t rm_free_number(struct rm *m, uint32_t attempt, uint32_t number);
bool rm_live(const struct rm_ckpt *k); /* a manifest that is read and not retired */
bool rm_good(const struct rm *m, const struct rm_ckpt *k);  /* and all its bytes are right */
bool rm_whole(const struct rm *m, const struct rm_ckpt *k); /* and all its blocks are there */
bool rm_needs(const struct rm_ckpt *k, size_t object);
/* The newest that is good; whole; NULL: none. */
struct rm_ckpt *rm_newest_good(struct rm *m);
struct rm_ckpt *rm_newest_whole(struct rm *m);
/* What a new attempt has to restore, in this order, damaged ones too; NULL: no more. */
struct rm_ckpt *rm_older(struct rm *m, const struct hf_claim *mine, const struct rm_ckpt *than);
/* What retention with that `keep` would retire. */
bool rm_retention_takes(struct rm *m, const struct rm_ckpt *k, int64_t keep);
/* What nobody needs, so that a collector may take it. by_owner: retention, which looks at seals
 * alone; else by hand, which looks at ends too and keeps what a running attempt was begun with. */
bool rm_object_is_waste(struct rm *m, size_t object, bool by_owner);
/* What the highest attempt, if it may be running, builds upon; *ret_unknown: it has not said. */
struct rm_ckpt *rm_running_parent(struct rm *m, bool *ret_unknown);
/* The object of that piece in that folder; RM_OBJECTS: none. A new one is not there yet. */
size_t rm_object(const struct rm *m, uint32_t attempt, uint32_t number, struct rm_piece p);
size_t rm_object_make(struct rm *m, uint32_t attempt, uint32_t number, struct rm_piece p);
/* The piece's bytes; its key. */
void rm_bytes(struct rm_piece p, unsigned char out[RM_BLOCK]);
const char *rm_key(const struct rm *m, size_t object, char out[HF_KEY_MAX]);

#endif
