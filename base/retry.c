/* SPDX-License-Identifier: Apache-2.0
 *
 * Retry by class. Pure arithmetic over its arguments: no clock, no random source, no state but the
 * caller's struct. Any thread.
 */
#include "base/prelude.h"

#include "base/clock.h"
#include "base/retry.h"

bool hf_retry_transient(enum hf_rc code)
{
    return code == HF_EAGAIN || code == HF_ETIMEOUT || code == HF_EIO;
}

/* min(cap, base * 2^shift) without overflow. */
static uint64_t upper_bound_ms(const struct hf_retry *r, uint32_t shift)
{
    uint64_t bound = r->base_ms;
    for (uint32_t i = 0; i < shift && i < 32 && bound < r->cap_ms; i++) {
        bound *= 2;
    }
    return bound < r->cap_ms ? bound : r->cap_ms;
}

bool hf_retry_next(struct hf_retry *r, const struct hf_err *err, uint64_t random, uint64_t now_ns,
                   uint64_t deadline_ns, uint32_t *ret_delay_ms)
{
    uint32_t failed_before = r->done;
    if (r->done < UINT32_MAX) {
        r->done++;
    }
    if (!hf_retry_transient(err->code) || (r->tries != 0 && r->done >= r->tries)) {
        return false;
    }
    uint64_t delay_ms = random % (upper_bound_ms(r, failed_before) + 1);
    uint64_t wish_max_ms = (uint64_t)r->cap_ms * 10;
    uint64_t wish_ms = err->retry_after_ms < wish_max_ms ? err->retry_after_ms : wish_max_ms;
    if (delay_ms < wish_ms) {
        delay_ms = wish_ms;
    }
    if (delay_ms > UINT32_MAX) {
        delay_ms = UINT32_MAX;
    }
    if (deadline_ns != 0 && now_ns + delay_ms * HF_MS >= deadline_ns) {
        return false;
    }
    *ret_delay_ms = (uint32_t)delay_ms;
    return true;
}
