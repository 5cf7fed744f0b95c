/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank agreement, the supervisor's half, pure: at which step do all ranks save, and what has
 * become of a request. The ranks' half is hooks/c/agree_step.h. Any thread.
 */
#ifndef HF_HOOKS_AGREE_H
#define HF_HOOKS_AGREE_H

#include "base/prelude.h"

#include "base/err.h"

/* What was read of one rank. */
struct hf_agree_rank {
    uint32_t rank;
    bool alive;       /* its process or its connection */
    bool done;        /* it said that its training is complete */
    bool named_files; /* its message about the save for this request has come */
    bool connected;
    uint32_t gave_up; /* request id that it stopped waiting for, 0: none */
    int64_t step;     /* last boundary reached, -1: none */
    int64_t last;     /* the last step that there will be, -1: unknown */
    uint64_t hold;    /* words of agree_step.h */
    uint64_t saved;
};

struct hf_agree_view {
    const struct hf_agree_rank *ranks; /* those that have joined this life */
    size_t n_ranks;
    uint32_t world;       /* as declared; 0: ranks disagree about it */
    uint64_t now_ns;      /* CLOCK_BOOTTIME */
    uint64_t deadline_ns; /* 0: none */
    uint64_t step_ns;     /* measured time of one step, 0: unknown */
    bool fenced;          /* every processor has passed a full barrier since the raise */
};

/* The step at which all ranks are to save for request `id`. HF_ECANCELED: the request must be
 * cancelled, err says why. */
enum hf_rc hf_agree_decide(const struct hf_agree_view *view, uint32_t id, int64_t *ret_target,
                           struct hf_err *err) HF_MUST_USE;

/* After the target was written. HF_OK: every rank has saved there and named its files;
 * HF_EAGAIN: not yet; HF_ETIMEOUT: the deadline has passed; HF_ECANCELED: it cannot happen any
 * more. The last two say why (err). */
enum hf_rc hf_agree_watch(const struct hf_agree_view *view, uint32_t id, int64_t target,
                          struct hf_err *err) HF_MUST_USE;

#endif
