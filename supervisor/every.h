/* SPDX-License-Identifier: Apache-2.0
 *
 * How often to save (--every auto): Young's and Daly's rule, the square root of twice a save's
 * cost times the mean time between notices. Pure.
 */
#ifndef HF_SUPERVISOR_EVERY_H
#define HF_SUPERVISOR_EVERY_H

#include "base/prelude.h"

#define HF_EVERY_LEAST_MS UINT64_C(60000)
#define HF_EVERY_MOST_MS  UINT64_C(3600000)
#define HF_EVERY_FIRST_MS UINT64_C(300000) /* until a save has been measured */

/* What a save costs the training: the time that the ranks are held, and a tenth of what shipping
 * takes beside it. */
uint64_t hf_every_cost_ms(uint64_t held_ms, uint64_t ship_ms);
/* The mean time between notices: `notices` of them in lived_ms, and one in three hours counted
 * with them, so that few observations say little. From ten minutes to a week. */
uint64_t hf_every_mean_ms(uint64_t lived_ms, uint32_t notices);
/* sqrt(2 * cost * mean), from HF_EVERY_LEAST_MS to HF_EVERY_MOST_MS. */
uint64_t hf_every_best_ms(uint64_t cost_ms, uint64_t mean_ms);
/* By more than a fifth. */
bool hf_every_differs(uint64_t was_ms, uint64_t is_ms);

#endif
