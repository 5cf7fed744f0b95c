/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests/unit/test_run_model.c: a run in a store in memory beside its model. What happens goes
 * through a store that may go away at any call; what is compared is read from below it.
 */
#ifndef HF_TESTS_SUPPORT_RUN_WORLD_H
#define HF_TESTS_SUPPORT_RUN_WORLD_H

#include "base/prelude.h"

#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_run_model.h"

/* A store that goes away at a call, for ever, with or without having done it. */
struct rw_knife {
    struct hf_store store;
    struct hf_store *inner;
    uint64_t left; /* calls until it cuts; 0: never */
    bool after, gone;
};
extern const struct hf_store_ops rw_knife_ops;

struct rw {
    uint64_t x, seed;
    struct bench b;
    struct rw_knife knife;
    struct hf_run run; /* through the knife */
    char *root;
    struct rm m;
    char keys[RM_OBJECTS][HF_KEY_MAX];
    uint32_t owner; /* the attempt that trains; 0: none */
    struct rm_content disk;
    uint32_t seeds;
    struct hf_buf log;
    bool done;
    unsigned saves, cut, unknown, removed, refused, damaged, stepped_back, zombies;
};

uint64_t rw_roll(struct rw *w, uint64_t n); /* 0 to n - 1 */
void rw_note(struct rw *w, const char *fmt, ...) HF_PRINTF(2, 3);
/* Sometimes, once in so many times, the store goes away in what comes next, at one of so many
 * calls. disarm: whether it did; then it is back. */
void rw_arm(struct rw *w, uint64_t one_in, uint64_t calls);
bool rw_disarm(struct rw *w);
bool rw_there(struct rw *w, const char *key);
void rw_write_disk(const struct rw *w, const struct rm_content *c);
bool rw_disk_is(const struct rw *w, const struct rm_content *c);
/* Trains and saves as that attempt, and tells the model. */
void rw_save(struct rw *w, struct rm_attempt *a);
/* The store holds exactly the blocks that the model says, what live manifests need is there, and
 * listing, pins and claims are as the model has them. */
void rw_agrees(struct rw *w);
/* Any manifest that stands verifies, or does not, as the model says; the newest good one, without
 * a claim, comes back byte for byte. */
void rw_restores_agree(struct rw *w);

#endif
