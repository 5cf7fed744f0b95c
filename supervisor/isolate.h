/* SPDX-License-Identifier: Apache-2.0
 *
 * A drill's "new machine": what an attempt created or changed in the user's folders is hidden
 * for the next attempt and put right at the end. As root in a private mount namespace with an
 * overlay; otherwise by a journal and renames on the same disk. Interrupted drills are undone
 * from the journal. Blocking; called by the drill before and between attempts, on its only
 * thread.
 */
#ifndef HF_SUPERVISOR_ISOLATE_H
#define HF_SUPERVISOR_ISOLATE_H

#include "base/err.h"
#include "base/mem.h"

struct hf_isolate;

enum hf_isolate_mode { HF_ISOLATE_OVERLAY = 1, HF_ISOLATE_JOURNAL };

/* dirs: absolute folders whose content an attempt may change (the working folder,
 * --checkpoint-dir); they may be missing or lie inside one another. work: an absolute folder of
 * the drill's own, made if missing, in which all that must outlive an attempt has to be kept
 * (store, state, sockets); it may lie inside one of dirs and stays reachable, but none of dirs
 * may lie inside it. Before the process has a second thread and a child; the process stays in its
 * working folder by path, in a mount namespace of its own if the mode is overlay. *ret_notes
 * (may hold something already): sentences on what cannot be isolated, for the person, said
 * first. *ret is released by hf_isolate_end alone.
 *
 * HF_EEXISTS: recover first. HF_EAGAIN: another drill works in `work`. HF_ENOTSUP: what cannot be
 * isolated, and the remedy: a file outside the working folder that may be overwritten and is too
 * big to be copied (limits in isolate_guard.c), more than 200,000 files. On failure nothing of
 * the user's was changed. */
enum hf_rc hf_isolate_begin(const struct hf_strv *dirs, const char *work, struct hf_isolate **ret,
                            struct hf_strv *ret_notes, struct hf_err *err) HF_MUST_USE;
enum hf_isolate_mode hf_isolate_mode(const struct hf_isolate *iso);
/* Every process of the attempt is dead: hide what it made, put back what it changed. HF_EIO names
 * what stands in the way or cannot be put back; nothing is hidden in the latter case, and nothing
 * is ever lost. hf_isolate_end is still to be called. The caller's working folder is entered
 * anew. */
enum hf_rc hf_isolate_new_machine(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
/* The drill is over: the user's folders are as they were at begin; all that the drill's attempts
 * made is removed. Releases iso (NULL is fine) also when it fails; then hf_isolate_recover tries
 * again. HF_EIO may name a file that cannot be put back; all others were. */
enum hf_rc hf_isolate_end(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
/* Undoes an interrupted drill found under `work`, once its processes are dead; one look at the
 * disk when there is nothing. *ret_undone (may be NULL): whether there was one. What was created
 * or changed in the user's folders since the last new machine may be the person's own by now: it
 * is moved aside, not removed (hf_isolate_kept). HF_EAGAIN: that drill, or a process that
 * inherited its lock, still lives; nothing was done. */
enum hf_rc hf_isolate_recover(const char *work, bool *ret_undone, struct hf_err *err) HF_MUST_USE;
/* Adds the folders that recoveries under `work` left for the person and that are still there. */
void hf_isolate_kept(const char *work, struct hf_strv *ret);

#endif
