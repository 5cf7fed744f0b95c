/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of watched folders: checkpoints as frameworks lay them out, made by hand.
 */
#ifndef HF_TESTS_SUPPORT_WATCH_H
#define HF_TESTS_SUPPORT_WATCH_H

#include "base/prelude.h"

/* DIR/checkpoint-STEP by the names of the HF trainer. whole false: without the file that is written
 * last. */
void watch_hf(const char *dir, int step, bool whole);
/* The file that is written last. */
void watch_hf_finish(const char *dir, int step);
/* A file in no known format; in place. */
void watch_odd(const char *dir, const char *name, const char *text);
/* Until the clock that filesystems take their times from is past the last change. */
void next_tick(const char *path);

#endif
