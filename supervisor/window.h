/* SPDX-License-Identifier: Apache-2.0
 *
 * What a notice's window is still good for, from measured durations: a second save as late as is
 * safe, and whether there is time to ask for one at all. Pure.
 */
#ifndef HF_SUPERVISOR_WINDOW_H
#define HF_SUPERVISOR_WINDOW_H

#include "base/prelude.h"

#define HF_WINDOW_MARGIN_MS 3000 /* kept free beside one and a half times what a save takes */
#define HF_WINDOW_GAIN_MS   1000 /* a second save that comes sooner is not worth its cost */

/* When a second save is to be asked for (CLOCK_BOOTTIME ns), so that it is committed by
 * leave_by_ns, the deadline less what ending the tree takes. capture_ms: from the request to the
 * last rank's report; ship_ms: from that report to the commit. 0: there is no time for one. */
uint64_t hf_window_second_at(uint64_t leave_by_ns, uint64_t now_ns, uint64_t capture_ms,
                             uint64_t ship_ms);

/* Whether a save that is asked for now, behind one that is just being shipped, can be committed
 * by leave_by_ns. Without a measurement (both 0): yes. */
bool hf_window_has_time(uint64_t leave_by_ns, uint64_t now_ns, uint64_t capture_ms,
                        uint64_t ship_ms);

#endif
