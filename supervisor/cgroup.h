/* SPDX-License-Identifier: Apache-2.0
 *
 * A cgroup (v2) of its own for an attempt's command, so that its whole tree can be killed at one
 * stroke, whatever it forks meanwhile: cgroup.kill (Linux 5.14). Made below the keeper's own
 * cgroup, where that may be written (delegated, or root); no controller is enabled, so limits stay
 * as they were and the rule of "no internal processes" does not apply. Where it cannot be had
 * nothing is lost: the tree is walked. Source: the kernel's admin-guide/cgroup-v2. Any thread.
 */
#ifndef HF_SUPERVISOR_CGROUP_H
#define HF_SUPERVISOR_CGROUP_H

#include "base/prelude.h"

#include "base/err.h"

struct hf_cgroup {
    char *dir; /* NULL: there is none */
    int procs; /* its cgroup.procs, for writing; -1 */
};

/* Pure: our own cgroup2 folder, from the texts of /proc/self/mountinfo and /proc/self/cgroup. NULL:
 * no cgroup2 is mounted, or ours is not below what is mounted. The caller's to free. */
char *hf_cgroup_folder(const char *mountinfo, const char *self_cgroup);

/* Makes "holdfast-<pid>-<part of the token>" below our own. HF_ENOTSUP and the like: no cgroup;
 * *ret is then none. Left-overs of keepers that are gone are removed on the way. */
enum hf_rc hf_cgroup_make(const char *token, struct hf_cgroup *ret, struct hf_err *err) HF_MUST_USE;
/* Moves the calling process in. Async-signal-safe; for a child between fork and exec. False: it
 * could not (or there is no cgroup), and it stays where it was. */
bool hf_cgroup_enter(const struct hf_cgroup *g);
/* SIGKILL to everything in it, what is being forked included. False: that was not possible. */
bool hf_cgroup_kill(const struct hf_cgroup *g);
/* Removes it and what was made below it, where they are empty; lets go of it. */
void hf_cgroup_release(struct hf_cgroup *g);

/* What a dead keeper left: kills all in the cgroup that the keeper.json of that attempt's folder
 * names, on this boot and for this token alone, waits up to timeout_ms until it is empty, and
 * removes it. Blocks. No cgroup: nothing happens. */
void hf_cgroup_end(const char *attempt_dir, const char *token, uint32_t timeout_ms);

#endif
