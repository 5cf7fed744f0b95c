/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints that something happens in folders, by inotify: in the folders given, in those that are made
 * in them, and in those that are added. A hint is worth a look and no more: events get lost, and
 * some filesystems have none. Loop thread only.
 */
#ifndef HF_SUPERVISOR_WATCH_HINTS_H
#define HF_SUPERVISOR_WATCH_HINTS_H

#include "base/prelude.h"

#include "base/loop.h"
#include "base/mem.h"

struct hf_hints;

struct hf_hints_cb {
    void (*hint)(void *user);
    void (*renamed)(void *user, const char *path); /* into its place; a hint follows */
    void (*lost)(void *user); /* more may have happened than was told; a hint follows */
};

/* dirs: absolute, borrowed. One that is not there is waited for. */
enum hf_rc hf_hints_start(struct hf_loop *loop, const struct hf_strv *dirs,
                          const struct hf_hints_cb *cb, void *user, struct hf_hints **ret,
                          struct hf_err *err) HF_MUST_USE;
/* Looks for folders that were not there; reads what has come. False: one is still not there, or
 * cannot be watched. */
bool hf_hints_refresh(struct hf_hints *h);
void hf_hints_add(struct hf_hints *h, const char *folder); /* up to a bound; twice is fine */
void hf_hints_stop(struct hf_hints *h);                    /* NULL is fine */

#endif
