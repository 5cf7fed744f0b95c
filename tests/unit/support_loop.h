/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a loop in tests: until a condition holds or a deadline passes, and a clean end.
 */
#ifndef HF_TESTS_SUPPORT_LOOP_H
#define HF_TESTS_SUPPORT_LOOP_H

#include "base/loop.h"

typedef bool hf_test_cond_fn(void *user);

/* Runs the loop, looking at the condition every 2 ms. False: it did not hold within timeout_ms. */
bool hf_test_run_until(struct hf_loop *loop, hf_test_cond_fn *cond, void *user,
                       uint64_t timeout_ms);

/* Closes; the test fails with the reason when something is left open. */
void hf_test_loop_close(struct hf_loop *loop);

#endif
