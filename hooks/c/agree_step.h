/* SPDX-License-Identifier: Apache-2.0
 *
 * The control file's layout, and what one rank does at a boundary, one access to shared memory at
 * a time. Private to Holdfast: the C client runs it, the supervisor shares the layout, and
 * tests/unit/test_agree.c runs every interleaving of it. C11, no other file of the project.
 *
 * The one word: 3 bits state, 16 bits request id (never 0), 45 bits step.
 *
 *     IDLE    nothing is asked; the step field holds the supervisor's epoch
 *     RAISED  a request is undecided: a rank that sees it holds at its boundary
 *     TARGET  every rank saves at that step
 *     CANCEL  the request is void
 *     LEAVE   end the program now
 *
 * Who writes it: the supervisor; a rank only RAISED -> CANCEL, holding flock on the file. RAISED is
 * left under flock only, so TARGET or CANCEL is written once.
 */
#ifndef HOLDFAST_AGREE_STEP_H
#define HOLDFAST_AGREE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFW_MAGIC      UINT64_C(0x31303066646c6f68) /* "hold" "f001", little-endian */
#define HFW_VERSION    1u
#define HFW_SLOTS      128u
#define HFW_HOLD_MS    2000u
#define HFW_STEP_MAX   ((INT64_C(1) << 45) - 2)
#define HFW_LINE_BYTES 65536u /* longest line on the socket, newline included */

enum hfw_state { HFW_IDLE, HFW_RAISED, HFW_TARGET, HFW_CANCEL, HFW_LEAVE };

/* Written by the supervisor alone, but for `word`. */
struct hfw_head {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of the whole file */
    uint32_t slots;
    uint32_t attempt;
    uint32_t life;
    uint32_t world;
    uint32_t epoch; /* rises with every start of the supervisor */
    uint32_t hold_limit_ms;
    uint8_t pad1[24];
    uint64_t word;        /* offset 64 */
    uint64_t deadline_ns; /* CLOCK_BOOTTIME, of the request that the word names */
    uint64_t leave;       /* id of the request after which ranks leave, 0: none */
    uint8_t pad2[40];
    char reason[64];     /* offset 128; a short text, NUL-terminated */
    int64_t resume_step; /* offset 192: what this life resumes from, -1: nothing */
    uint8_t pad3[56];
    char resume_path[4096]; /* offset 256; a path, NUL-terminated */
    uint8_t pad4[3840];
};

struct hfw_slot {
    /* the supervisor's line, written before the welcome that gives the slot away */
    uint64_t token; /* this incarnation of the rank */
    uint32_t rank;
    int32_t pid;
    uint32_t life;
    uint32_t joined;
    uint8_t pad1[40];
    /* the rank's line */
    int64_t step;     /* offset 64: the last boundary reached, -1: none */
    uint64_t hold;    /* RAISED word with this step: holding there for that request */
    uint64_t saved;   /* TARGET word: saved for that request at that step */
    int64_t last;     /* the last step that there will be, -1: unknown */
    uint32_t gave_up; /* id of a request that it stopped waiting for */
    uint32_t done;
    uint8_t pad2[24];
};

_Static_assert(sizeof(struct hfw_head) == 8192, "control file header");
_Static_assert(offsetof(struct hfw_head, word) == 64, "control file header");
_Static_assert(offsetof(struct hfw_head, reason) == 128, "control file header");
_Static_assert(offsetof(struct hfw_head, resume_path) == 256, "control file header");
_Static_assert(sizeof(struct hfw_slot) == 128, "control file slot");
_Static_assert(offsetof(struct hfw_slot, step) == 64, "control file slot");

#define HFW_SIZE (sizeof(struct hfw_head) + HFW_SLOTS * sizeof(struct hfw_slot))

static inline uint64_t hfw_pack(enum hfw_state state, uint32_t id, int64_t step)
{
    return ((uint64_t)state << 61) | ((uint64_t)(id & 0xffffu) << 45) |
           ((uint64_t)step & ((UINT64_C(1) << 45) - 1));
}

static inline enum hfw_state hfw_state(uint64_t word)
{
    return (enum hfw_state)(word >> 61);
}

static inline uint32_t hfw_id(uint64_t word)
{
    return (uint32_t)(word >> 45) & 0xffffu;
}

static inline int64_t hfw_step(uint64_t word)
{
    return (int64_t)(word & ((UINT64_C(1) << 45) - 1));
}

static inline uint64_t hfw_load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void hfw_store(uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

/* The store must be visible to the supervisor before the rank reads the word. */
static inline void hfw_publish(struct hfw_slot *slot, int64_t step)
{
    __atomic_store_n(&slot->step, step, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* What the caller of hfw_rank_next has to do. */
enum hfw_order {
    HFW_AGAIN,    /* call again at once */
    HFW_WAIT,     /* call again after a moment: HFW_EV_LATE once the hold limit has passed */
    HFW_TRY_LOCK, /* try flock, without waiting: HFW_EV_LOCKED or HFW_EV_BUSY, or HFW_EV_HOPELESS
                     when it has been busy for another hold limit */
    HFW_UNLOCK,   /* give the lock back, then call again */
    HFW_GO_ON,
    HFW_SAVE,
    HFW_LEAVE_NOW
};

enum hfw_event { HFW_EV_NONE, HFW_EV_LATE, HFW_EV_LOCKED, HFW_EV_BUSY, HFW_EV_HOPELESS };

enum hfw_at { HFW_AT_PUBLISH, HFW_AT_LOOK, HFW_AT_MARK, HFW_AT_POLL, HFW_AT_LOCK, HFW_AT_CANCEL };

struct hfw_rank {
    enum hfw_at at;
    uint32_t id;       /* of the request that it holds for or saves for */
    uint32_t given_up; /* a request that it does not take part in any more, 0: none */
    int64_t step;
};

static inline void hfw_rank_begin(struct hfw_rank *r, int64_t step)
{
    r->at = HFW_AT_PUBLISH;
    r->step = step;
}

/* What the word means for a rank at r->step. */
static inline enum hfw_order hfw_judge(struct hfw_rank *r, uint64_t word)
{
    enum hfw_state state = hfw_state(word);
    if (state == HFW_LEAVE) {
        return HFW_LEAVE_NOW;
    }
    if (hfw_id(word) == r->given_up) {
        return HFW_GO_ON;
    }
    if (state == HFW_RAISED) {
        r->id = hfw_id(word);
        r->at = HFW_AT_MARK;
        return HFW_AGAIN;
    }
    if (state == HFW_TARGET && hfw_step(word) == r->step) {
        r->id = hfw_id(word);
        return HFW_SAVE;
    }
    return HFW_GO_ON;
}

static inline enum hfw_order hfw_rank_locking(struct hfw_rank *r, struct hfw_slot *slot,
                                              enum hfw_event ev)
{
    if (ev == HFW_EV_LOCKED) {
        r->at = HFW_AT_CANCEL;
        return HFW_AGAIN;
    }
    if (ev == HFW_EV_HOPELESS) { /* a frozen process has the lock: training comes first */
        r->given_up = r->id;
        __atomic_store_n(&slot->gave_up, r->id, __ATOMIC_SEQ_CST);
        return HFW_GO_ON;
    }
    r->at = HFW_AT_POLL;
    return HFW_WAIT;
}

/* One access to shared memory at a time. */
static inline enum hfw_order hfw_rank_next(struct hfw_rank *r, struct hfw_head *head,
                                           struct hfw_slot *slot, enum hfw_event ev)
{
    uint64_t word;
    switch (r->at) {
    case HFW_AT_PUBLISH:
        hfw_publish(slot, r->step);
        r->at = HFW_AT_LOOK;
        return HFW_AGAIN;
    case HFW_AT_LOOK:
        return hfw_judge(r, hfw_load(&head->word));
    case HFW_AT_MARK:
        hfw_store(&slot->hold, hfw_pack(HFW_RAISED, r->id, r->step));
        r->at = HFW_AT_POLL;
        return HFW_AGAIN;
    case HFW_AT_POLL:
        word = hfw_load(&head->word);
        if (hfw_state(word) != HFW_RAISED || hfw_id(word) != r->id) {
            return hfw_judge(r, word);
        }
        if (ev == HFW_EV_LATE) {
            r->at = HFW_AT_LOCK;
            return HFW_TRY_LOCK;
        }
        return HFW_WAIT;
    case HFW_AT_LOCK:
        return hfw_rank_locking(r, slot, ev);
    case HFW_AT_CANCEL:
        word = hfw_load(&head->word);
        if (hfw_state(word) == HFW_RAISED && hfw_id(word) == r->id) {
            hfw_store(&head->word, hfw_pack(HFW_CANCEL, r->id, 0));
        }
        r->at = HFW_AT_POLL;
        return HFW_UNLOCK;
    }
    return HFW_GO_ON;
}

/* After a save for request `id`: wait, go on, or leave. */
static inline enum hfw_order hfw_after_save(uint64_t word, uint64_t leave, uint32_t id)
{
    if (hfw_state(word) == HFW_LEAVE) {
        return HFW_LEAVE_NOW;
    }
    if (hfw_state(word) != HFW_TARGET || hfw_id(word) != id || leave != id) {
        return HFW_GO_ON;
    }
    return HFW_WAIT;
}

#endif
