/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge of hangs. Pure. Threads that only wake up to look (a watchdog, a progress bar) use a
 * little processor time for ever: that much is not taken for life.
 */
#include "base/prelude.h"

#include "base/clock.h"
#include "supervisor/hang.h"

#define SLEPT_NS       (30 * HF_SEC)
#define CPU_NOISE_MS   100 /* in all, and */
#define CPU_NOISE_PART 100 /* one hundredth of the time */

const char *hf_hang_sign_name(enum hf_hang_sign s)
{
    static const char *const names[HF_SIGNS] = {"step", "output", "checkpoint", "processor time"};
    return (size_t)s < HF_SIGNS ? names[s] : "unknown";
}

static bool lives(const struct hf_hang *h, enum hf_hang_sign s, int64_t value, uint64_t now_ns)
{
    if (s != HF_SIGN_CPU || value < h->last[s]) {
        return value != h->last[s];
    }
    uint64_t past_ms = (now_ns - h->since_ns[s]) / HF_MS;
    return (uint64_t)(value - h->last[s]) > CPU_NOISE_MS + past_ms / CPU_NOISE_PART;
}

bool hf_hang_judge(struct hf_hang *h, const struct hf_hang_look *look, uint64_t now_ns,
                   uint64_t limit_ns)
{
    bool anew = h->looked_ns == 0 || now_ns - h->looked_ns > SLEPT_NS || look->held;
    bool silent = !anew;
    h->looked_ns = now_ns;
    for (int s = 0; s < HF_SIGNS; s++) {
        if (anew || lives(h, (enum hf_hang_sign)s, look->value[s], now_ns)) {
            h->since_ns[s] = now_ns;
            h->last[s] = look->value[s];
        }
        silent = silent && now_ns - h->since_ns[s] >= limit_ns;
    }
    return silent;
}
