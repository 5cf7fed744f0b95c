/* SPDX-License-Identifier: Apache-2.0
 *
 * A watched checkpoint folder: files and folders that are renamed into place are complete
 * (other layouts come later). inotify with a re-scan, so that an event that was lost costs a
 * little time and no checkpoint. Loop thread only.
 */
#ifndef HF_SUPERVISOR_WATCHDIR_H
#define HF_SUPERVISOR_WATCHDIR_H

#include "base/prelude.h"

#include "base/loop.h"
#include "base/mem.h"

struct hf_watchdir;

struct hf_watchdir_cb {
    /* A new entry is in place. path is absolute; step is the last number in its name, -1
     * without one. Rarely an entry is reported twice. */
    void (*found)(void *user, const char *path, int64_t step);
};

/* dirs: folders to watch; one that is not there yet is looked for at each re-scan. What is in
 * them now is taken as old. HF_EINVAL: a path that is there and is no folder. */
enum hf_rc hf_watchdir_start(struct hf_loop *loop, const struct hf_strv *dirs,
                             const struct hf_watchdir_cb *cb, void *user, struct hf_watchdir **ret,
                             struct hf_err *err) HF_MUST_USE;
/* Looks now; found may be called from inside. */
void hf_watchdir_scan(struct hf_watchdir *w);
void hf_watchdir_stop(struct hf_watchdir *w); /* NULL is fine; run the loop once more */

/* Pure: the last run of digits in a name, -1 without one or past 2^53. "step_0900" is 900. */
int64_t hf_step_of_name(const char *name);

#endif
