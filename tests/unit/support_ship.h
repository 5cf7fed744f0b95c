/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of supervisor/ship: one attempt with its store, its folders, its loop and its
 * shipper; what the shipper calls back is a story in letters.
 */
#ifndef HF_TESTS_SUPPORT_SHIP_H
#define HF_TESTS_SUPPORT_SHIP_H

#include "base/prelude.h"

#include <pthread.h>

#include "supervisor/ship.h"
#include "tests/unit/support_checkpoint.h"

#define SHIP_WAIT_MS 30000
#define SHIP_BYTES   9000 /* of one save: three blocks */

struct ship_scene {
    struct bench bench;
    struct hf_loop loop;
    struct hf_scope scope;
    struct hf_pool *local_pool, *ship_pool;
    struct hf_claim claim;
    char *attempt_dir, *save_dir;
    struct hf_ship *ship;
    struct hf_verdict last;
    int settled, superseded, idles;
    bool gave_path;
    char story[256]; /* S9 settled well, F9 failed, K9 skipped, ! superseded; the step behind it */
    int64_t want_step;
    /* what holds the ship pool's only thread */
    pthread_mutex_t lock;
    bool open, held;
    int passed; /* items that have left it */
};

/* Attempt 1 is claimed; there is no shipper yet. */
void ship_open(struct ship_scene *s, struct hf_store *store_taken);
void ship_begin(struct ship_scene *s, bool adopted, struct hf_manifest *base);
void ship_close(struct ship_scene *s);
/* Both, over a store in memory that can fail (ship_break_store). */
void ship_new(struct ship_scene *s);

/* save_dir/step-N with a file that differs from step to step in its last block only. */
char *ship_folder(const struct ship_scene *s, int64_t step);
struct hf_saved *ship_saved(const char *folder, int64_t step);
void ship_add(struct ship_scene *s, int64_t step); /* makes the folder, gives the save */

void ship_until_idle(struct ship_scene *s);
/* Until idle; the story must be this one, and begins anew. */
void ship_story(struct ship_scene *s, const char *story);

/* Fails every store call that comes, from the nth on; 0: none any more. */
void ship_break_store(struct ship_scene *s, enum hf_store_fault_kind kind, uint64_t nth);
/* Tries are given up at once, as when a notice's deadline is here. */
void ship_no_patience(struct ship_scene *s);

void ship_hold_pool(struct ship_scene *s); /* nothing is sent until it is released */
void ship_release_pool(struct ship_scene *s);
void ship_pass_pool(struct ship_scene *s);
void ship_until_has(struct ship_scene *s, int64_t step);

/* The serial of the newest unshipped save in the journal; 0: none. */
uint64_t ship_unshipped(const struct ship_scene *s);
/* The step of a committed checkpoint; -2: another decision. */
int64_t ship_step_of(const struct ship_scene *s, uint32_t attempt, uint32_t number);
bool ship_folder_there(const struct ship_scene *s, int64_t step);

#endif
