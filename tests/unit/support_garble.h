/* SPDX-License-Identifier: Apache-2.0
 *
 * Damage to a JSON text, every kind of it in turn: cut at each byte, each byte changed, and each
 * value taken away or replaced by every value of another type.
 */
#ifndef HF_TESTS_SUPPORT_GARBLE_H
#define HF_TESTS_SUPPORT_GARBLE_H

#include "base/prelude.h"

#include <stddef.h>

/* One damaged text; `what` names the damage for a failure's message. */
typedef void garble_fn(void *user, const char *text, size_t len, const char *what);

/* All prefixes, the empty one included, the whole text not. */
void garble_cuts(const char *text, garble_fn *each, void *user);
/* Each byte in turn with one bit changed; which one goes round. */
void garble_bytes(const char *text, garble_fn *each, void *user);
/* Each value: taken away, and replaced by null, true, -1, 0.5, 1e300, 2^53-1, "", "x", [] and {}
 * (also where the value was of that type). What still reads the same is left out. */
void garble_values(const char *text, garble_fn *each, void *user);

#endif
