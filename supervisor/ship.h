/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipper of one attempt: takes saves that the trainer reported complete, notes them in the
 * local journal, and commits them one after the other. One is in flight and at most one waits:
 * the newest wins, so the final save is never dropped. Loop thread only; the work is done on
 * the pools given.
 */
#ifndef HF_SUPERVISOR_SHIP_H
#define HF_SUPERVISOR_SHIP_H

#include "base/prelude.h"

#include "base/work.h"
#include "supervisor/journal.h"

enum hf_verdict_kind {
    HF_VERDICT_NONE,    /* nothing was ever saved or tried */
    HF_VERDICT_DURABLE, /* committed in a store that outlives the machine */
    HF_VERDICT_LOCAL,   /* committed in a store that does not */
    HF_VERDICT_STALE,   /* this save failed; an older checkpoint stands */
    HF_VERDICT_LOST     /* this save failed, and there is no other */
};
const char *hf_verdict_name(enum hf_verdict_kind kind); /* "durable", ... "none" */

/* What a save really achieved. */
struct hf_verdict {
    enum hf_verdict_kind kind;
    int64_t step;             /* of the checkpoint that stands; -1: unknown or none */
    int64_t tried_step;       /* of the save that was tried */
    uint32_t attempt, number; /* of the checkpoint that stands; 0: none */
    uint64_t bytes;           /* of the checkpoint that stands */
    uint64_t bytes_sent;      /* uploaded for this save */
    /* From "the trainer reported it" to the commit's acknowledgement, or to the last failed try. */
    uint64_t took_ms;
    uint64_t at_ns; /* CLOCK_BOOTTIME; 0: never */
    int64_t at_wall_ms;
    char reason[16]; /* why the save was made */
    char why[256];   /* the step that failed, or what a committed one leaves out; "" */
};

struct hf_ship;

struct hf_ship_cfg {
    struct hf_loop *loop;
    struct hf_scope *scope;
    struct hf_pool *local_pool, *ship_pool; /* one thread each */
    const struct hf_run *run;
    const struct hf_claim *claim;
    const char *attempt_dir;
    const char *save_dir; /* shipped folders below it are removed once a newer one is committed */
    uint32_t block_bytes, lanes;
    bool adopted; /* numbers and serials go on from what is there; so does an unshipped save */
};

struct hf_ship_cb {
    /* Once per save that was tried. resume_path is borrowed, NULL unless it was committed. */
    void (*settled)(void *user, const struct hf_verdict *v, const char *resume_path);
    void (*skipped)(void *user, int64_t step); /* a waiting save gave way to a newer one */
    void (*idle)(void *user);                  /* nothing is queued any more */
    void (*superseded)(void *user); /* the lineage was taken over: no more saves are tried */
    void (*unheld)(void *user, const struct hf_strv *held); /* nothing is read from there any more;
                                                             * may be NULL */
};

/* base: what was restored, or NULL; copied parts are kept, the manifest itself is taken. All of
 * cfg is borrowed for the shipper's life. */
struct hf_ship *hf_ship_new(const struct hf_ship_cfg *cfg, const struct hf_ship_cb *cb, void *user,
                            struct hf_manifest *base_taken);
/* Only when idle or after its scope was cancelled and has reported. NULL is fine. */
void hf_ship_free(struct hf_ship *s);

/* Takes a save. Its stamps are taken here if it has none. */
void hf_ship_add(struct hf_ship *s, struct hf_saved *save_taken);
/* Files that are complete, of a save that is still being written: they are put ahead, so that the
 * commit after its last part has little left to do. A hint: nothing is reported, what changes
 * later is read again, what is never named is swept by retention. */
void hf_ship_early(struct hf_ship *s, const struct hf_strv *paths);
/* Room is short: folders of saves that failed go now, oldest first, until a checkpoint of `need`
 * bytes fits. Never the newest that was committed or reported, nor one that is queued. */
void hf_ship_trim(struct hf_ship *s, uint64_t need);
/* That save will not become whole: unless a save is queued, what runs is cancelled. */
void hf_ship_early_drop(struct hf_ship *s);
/* Whether that very save is shipped last, under way, or waiting. */
bool hf_ship_has(const struct hf_ship *s, uint32_t life, uint64_t request, int64_t step);
bool hf_ship_idle(const struct hf_ship *s);
/* Whether a save is under way or waiting; *ret_step: of the newest. */
bool hf_ship_pending(const struct hf_ship *s, int64_t *ret_step);
/* A notice's deadline (CLOCK_BOOTTIME, 0: none): how long failed tries are repeated. */
void hf_ship_deadline(struct hf_ship *s, uint64_t deadline_ns);
/* No further tries; what runs is cancelled. idle follows. */
void hf_ship_stop(struct hf_ship *s);
/* The last verdict; kind NONE (with the base's step and number, if any) before the first. A second
 * save of a notice (reason "window") that fails is reported as any other, and leaves the first
 * one's verdict here. */
const struct hf_verdict *hf_ship_verdict(const struct hf_ship *s);
uint32_t hf_ship_committed(const struct hf_ship *s); /* checkpoints that this shipper committed */

#endif
