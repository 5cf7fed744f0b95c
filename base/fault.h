/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault points. A test build (-DHF_TEST_FAULTS) fails the Nth call of a domain, chosen by the
 * environment: HOLDFAST_FAULT="file:17" (that call alone fails) or "file:17+" (it and all later
 * ones). In a product build hf_fault is constant false. Unit tests set the same by
 * hf_fault_arm. Domains: "file", "store", "spawn".
 */
#ifndef HF_BASE_FAULT_H
#define HF_BASE_FAULT_H

#include "base/prelude.h"

#ifdef HF_TEST_FAULTS
/* True when the call about to be made must be failed instead; counts the call. Any thread. */
bool hf_fault(const char *domain);
/* Fails call number `nth` (1 is the next one) of the domain; 0 disarms. Resets the count. */
void hf_fault_arm(const char *domain, uint64_t nth, bool and_later);
/* Calls counted since the last arm; whether the armed one was reached. */
uint64_t hf_fault_count(const char *domain);
bool hf_fault_fired(const char *domain);
#else
static inline bool hf_fault(const char *domain)
{
    (void)domain;
    return false;
}
#endif

#endif
