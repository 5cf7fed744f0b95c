/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a notice's window. Pure: no clock is read, nothing is kept. It must never
 * promise time that is not there, so every doubt is rounded towards the earlier end.
 */
#include "base/prelude.h"

#include "base/clock.h"
#include "supervisor/window.h"

#define FAR_MS (UINT64_C(30) * 24 * 3600 * 1000)

static uint64_t at_most(uint64_t ms)
{
    return ms < FAR_MS ? ms : FAR_MS;
}

uint64_t hf_window_second_at(uint64_t leave_by_ns, uint64_t now_ns, uint64_t capture_ms,
                             uint64_t ship_ms)
{
    uint64_t takes_ms = at_most(capture_ms) + at_most(ship_ms);
    uint64_t need_ns = (takes_ms + takes_ms / 2 + takes_ms % 2 + HF_WINDOW_MARGIN_MS) * HF_MS;
    if (leave_by_ns < need_ns) {
        return 0;
    }
    uint64_t at_ns = leave_by_ns - need_ns;
    return at_ns >= now_ns + HF_WINDOW_GAIN_MS * HF_MS ? at_ns : 0;
}

bool hf_window_has_time(uint64_t leave_by_ns, uint64_t now_ns, uint64_t capture_ms,
                        uint64_t ship_ms)
{
    if (capture_ms == 0 && ship_ms == 0) {
        return true;
    }
    /* The one under way may have only just begun. */
    uint64_t need_ns = (at_most(capture_ms) + 2 * at_most(ship_ms)) * HF_MS;
    return leave_by_ns >= now_ns + need_ns;
}
