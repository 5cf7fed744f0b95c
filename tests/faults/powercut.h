/* SPDX-License-Identifier: Apache-2.0
 *
 * A crash layer under the file store, for tests. The store's calls that change files are recorded
 * (the test program is linked with --wrap); afterwards the folder can be made anew as a power cut
 * after any of them could have left it: what was flushed is there, what was not is kept, dropped
 * or garbled. Harsher than most filesystems: flushing a file does not keep its name, flushing a
 * folder keeps the names in it alone, and names that were not flushed are lost in any order.
 */
#ifndef HF_TESTS_POWERCUT_H
#define HF_TESTS_POWERCUT_H

#include "base/prelude.h"

enum cut_how {
    CUT_DROP,   /* nothing that was not flushed is there */
    CUT_KEEP,   /* all of it is */
    CUT_PREFIX, /* of each folder's names the first few; of each file's bytes the first few */
    CUT_RANDOM, /* any of the names; bytes kept, dropped or garbled */
    CUT_HOWS
};

void cut_record(const char *root); /* from now on; the folder is empty and lasting */
void cut_stop(void);
size_t cut_ops(void); /* recorded so far */
/* Makes `folder`, which does not exist, as a cut before op number `op` could leave it. */
void cut_make(const char *folder, size_t op, enum cut_how how, uint64_t seed);
void cut_forget(void);

#endif
