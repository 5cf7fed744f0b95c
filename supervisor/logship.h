/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries an attempt's log from the ring in its folder to pieces in the store, at most 5 s behind.
 * Loop thread; reading, packing and putting is done on a pool of its own, so that a store that
 * hangs holds up nothing else. A piece at most every HF_LOGSHIP_EVERY_MS, sooner when a whole one
 * (HF_LOG_PIECE_MAX) has come meanwhile. What a failing store did not take is tried again; more
 * than HF_LOGSHIP_BEHIND_MAX is passed over, and the next piece says how much.
 */
#ifndef HF_SUPERVISOR_LOGSHIP_H
#define HF_SUPERVISOR_LOGSHIP_H

#include "base/prelude.h"

#include "base/work.h"
#include "checkpoint/lineage.h"

#define HF_LOGSHIP_EVERY_MS   UINT64_C(3000) /* and 2 s for the put: 5 s behind */
#define HF_LOGSHIP_BEHIND_MAX (UINT64_C(64) * 1024 * 1024)

struct hf_logship;

struct hf_logship_cfg {
    struct hf_loop *loop;
    struct hf_scope *scope;
    struct hf_pool *pool;     /* one thread */
    const struct hf_run *run; /* borrowed */
    const char *dir;          /* the attempt's folder */
    uint32_t attempt;
    const char *nonce; /* the claim's */
};

struct hf_logship_cb {
    /* After hf_logship_finish: all is out, or the time is up, or hf_logship_stop. Once. */
    void (*finished)(void *user);
    /* The store took a piece again (err NULL), or none any more, after it did. */
    void (*trouble)(void *user, const struct hf_err *err);
};

struct hf_logship_status {
    uint32_t pieces;      /* the last one's number, 0: none or not known yet */
    uint64_t offset;      /* of the output, that is in the store */
    uint64_t missing;     /* bytes passed over by this supervisor */
    int64_t last_wall_ms; /* when there was last nothing left to put; 0: never */
    bool failing;
};

/* Finds the last piece of an attempt that was taken over by itself. *cfg and *cb are copied. */
struct hf_logship *hf_logship_new(const struct hf_logship_cfg *cfg, const struct hf_logship_cb *cb,
                                  void *user);
void hf_logship_free(struct hf_logship *s); /* gives up what is not out. NULL is fine */

void hf_logship_hurry(struct hf_logship *s); /* looks now. NULL is fine */
/* No more output will come: puts all that is left, for limit_ms at most. */
void hf_logship_finish(struct hf_logship *s, uint64_t limit_ms);
void hf_logship_stop(struct hf_logship *s); /* the same with no time at all */
bool hf_logship_finished(const struct hf_logship *s);
void hf_logship_get_status(const struct hf_logship *s, struct hf_logship_status *ret);

#endif
