/* SPDX-License-Identifier: Apache-2.0
 *
 * Retry by class, pure: what a failure's code means, how long to wait, when to give up. Callers
 * never decide by themselves. Any thread.
 */
#ifndef HF_BASE_RETRY_H
#define HF_BASE_RETRY_H

#include "base/err.h"

struct hf_retry {
    uint32_t base_ms; /* the first delay's upper bound */
    uint32_t cap_ms;  /* no delay is longer (a server's own wish excepted, up to 10 times that) */
    uint32_t tries;   /* in all, the first included; 0: no limit but the deadline */
    uint32_t done;    /* tries that failed so far */
};

/* Codes worth another try: HF_EAGAIN, HF_ETIMEOUT, HF_EIO. */
bool hf_retry_transient(enum hf_rc code);

/* After a failure, which it counts in r->done: true and *ret_delay_ms (full jitter: uniform in
 * [0, min(cap, base * 2^failures before this one)], but not below err->retry_after_ms) when it
 * should be tried again; false when the class says no or all `tries` are used up. `random` is any
 * 64-bit random number; now_ns and deadline_ns (0: none) are CLOCK_BOOTTIME: a delay that would
 * reach the deadline gives false. */
bool hf_retry_next(struct hf_retry *r, const struct hf_err *err, uint64_t random, uint64_t now_ns,
                   uint64_t deadline_ns, uint32_t *ret_delay_ms);

#endif
