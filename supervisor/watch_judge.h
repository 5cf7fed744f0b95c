/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at watched checkpoint folders and says which checkpoint is to be shipped now, if any; it is
 * held at once (supervisor/held.h). Blocking: worker threads; a judge is used by one at a time.
 */
#ifndef HF_SUPERVISOR_WATCH_JUDGE_H
#define HF_SUPERVISOR_WATCH_JUDGE_H

#include "base/prelude.h"

#include "checkpoint/layout.h"
#include "supervisor/held.h"
#include "supervisor/writers.h"

/* What decides whether a checkpoint is complete. */
struct hf_facts {
    enum hf_layout_state state;
    bool renamed;            /* into its place, as it is now */
    uint64_t still_ms;       /* for so long nothing of it has changed */
    uint64_t quiet_ms;       /* --checkpoint-quiet */
    enum hf_writers writers; /* ended: as of then */
    bool ended;              /* every process of the tree is gone: still_ms is as of then */
    bool clean;              /* ended, by itself and without an error */
};
enum hf_ready {
    HF_READY,
    HF_NOT_YET, /* time, or a writer that ends, may make it so */
    HF_NEVER    /* unless something is written to it */
};
enum hf_ready hf_judge_ready(const struct hf_facts *f);

/* What decides which of several is the newest. */
struct hf_cand {
    int64_t step;      /* -1: unknown */
    int64_t newest_ns; /* the latest time of change */
    unsigned kind;     /* enum hf_kind: a lower one goes first */
};
enum hf_kind {
    HF_KIND_PLAIN,
    HF_KIND_UNKNOWN, /* of no known layout: it may be no checkpoint at all */
    HF_KIND_BEST     /* named as a copy of the best one, which is an older one */
};
bool hf_judge_newer(const struct hf_cand *a, const struct hf_cand *b);
size_t hf_judge_newest(const struct hf_cand *c, size_t n); /* n > 0 */
bool hf_is_best(const char *name);                         /* "model_best.pt", "best", "Best-v1" */

struct hf_judge;
/* attempt_dir: where its memory is kept (watched.json). */
struct hf_judge *hf_judge_new(const char *attempt_dir);
void hf_judge_free(struct hf_judge *j); /* NULL is fine */

/* What is in the folders now is old, whatever it is. Before the command starts. */
enum hf_rc hf_judge_baseline(const char *attempt_dir, const struct hf_strv *dirs, uint32_t world,
                             struct hf_err *err) HF_MUST_USE;

struct hf_judge_in {
    const struct hf_strv *dirs; /* absolute */
    const char *key;            /* for hf_hold_take */
    uint32_t attempt;
    const char *token; /* of the tree */
    uint32_t world;
    uint64_t quiet_ms;
    struct hf_strv renamed; /* paths that were renamed into place since the last look */
    bool hints_lost;        /* there may be others: times of change tell */
    bool once_more;         /* what was taken last was not shipped: take it again */
    bool ended, clean;
    uint64_t ended_ns; /* CLOCK_BOOTTIME */
};

struct hf_judge_out {
    bool any;          /* the next six are filled */
    int64_t newest_ns; /* the latest time of change of a file, by the filesystem's clock */
    struct hf_layout_look look;
    struct hf_strv roots; /* of the look, those that can be stored */
    struct hf_stamps stamps;
    struct hf_hold hold; /* folder NULL: it could not be held, and why_not says why */
    char why_not[256];
    struct hf_strv finished; /* files of the newest checkpoint that is not complete: nobody writes
                              * them any more */
    bool making;             /* something is just being written */
    uint64_t again_ms;       /* look again after this time; 0: when something happens */
    struct hf_strv folders;  /* in checkpoints: worth watching too */
    char trouble[256];       /* what could not be looked at; "" */
};
void hf_judge_out_release(struct hf_judge_out *out);

/* One look. Troubles with single folders are told in ret->trouble. */
void hf_judge_look(struct hf_judge *j, const struct hf_judge_in *in, struct hf_judge_out *ret);

#endif
