/* SPDX-License-Identifier: Apache-2.0
 *
 * A metadata service for rehearsals: AWS's real protocol and timing (IMDSv2 tokens, 404 while
 * calm, instance-action JSON, Date) on loopback, by libmicrohttpd in a thread of its own. Used
 * by `holdfast drill` and by tests. Functions may be called from one thread; counters are
 * atomic.
 */
#ifndef HF_CLOUD_REHEARSE_H
#define HF_CLOUD_REHEARSE_H

#include "base/err.h"

struct hf_rehearsal;

/* Listens on 127.0.0.1:port (0: any free). */
enum hf_rc hf_rehearsal_start(uint16_t port, struct hf_rehearsal **ret,
                              struct hf_err *err) HF_MUST_USE;
uint16_t hf_rehearsal_port(const struct hf_rehearsal *r);
/* From now on spot/instance-action answers 200 with this action and (now + lead_ms) rounded
 * down to a second, as AWS does; hf_rehearsal_seen_ns starts anew. action: at most 15 bytes. */
void hf_rehearsal_notice(struct hf_rehearsal *r, const char *action, uint64_t lead_ms);
/* From now on events/recommendations/rebalance answers 200 with the present time. */
void hf_rehearsal_hint(struct hf_rehearsal *r);
void hf_rehearsal_calm(struct hf_rehearsal *r); /* 404 again, both */
/* From now on requests meet faults (cloud/chaos.h), the same ones for the same seed. */
void hf_rehearsal_chaos(struct hf_rehearsal *r, uint64_t seed);
uint64_t hf_rehearsal_faults(const struct hf_rehearsal *r); /* so far */
/* CLOCK_BOOTTIME ns of the first answer that carried the notice; 0: not yet. */
uint64_t hf_rehearsal_seen_ns(const struct hf_rehearsal *r);
uint64_t hf_rehearsal_requests(const struct hf_rehearsal *r);
void hf_rehearsal_stop(struct hf_rehearsal *r); /* NULL is fine */

#endif
