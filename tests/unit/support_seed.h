/* SPDX-License-Identifier: Apache-2.0
 *
 * Random tests that can be repeated: one seed a test, printed when it begins (cmocka shows it with
 * a failure), taken from HOLDFAST_TEST_SEED where that is set.
 */
#ifndef HF_TESTS_SUPPORT_SEED_H
#define HF_TESTS_SUPPORT_SEED_H

#include "base/prelude.h"

uint64_t hf_test_seed(void);
/* The next number of the row that *state begins. */
uint64_t hf_test_random(uint64_t *state);
/* Below n, which is not 0. */
size_t hf_test_below(uint64_t *state, size_t n);

#endif
