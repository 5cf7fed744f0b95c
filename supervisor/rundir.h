/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's state folder: where runs are registered, so that status, ckpt and logs need no
 * --store, and where an attempt's local files live (docs/formats.md). All calls block on small
 * local files; any thread, one at a time an object.
 *
 * - <state>/store/: the default store
 * - <state>/runs/<key>/: key is the run's name (of a long one a part, "~" and six digits; sockets
 *   need short paths); "@" and six digits follow for other stores. In it:
 * - run.json: {name, store}; lock: flock, held by the living supervisor; status.json, events.jsonl
 * - <attempt>/: sockets, control file, log, exit, claim.json, saves.jsonl
 * - save/: folders handed out by run.path()
 */
#ifndef HF_SUPERVISOR_RUNDIR_H
#define HF_SUPERVISOR_RUNDIR_H

#include "base/prelude.h"

#include "base/err.h"
#include "base/mem.h"

struct hf_rundir {
    char *state; /* absolute */
    char *name;
    char *store; /* URI */
    char *dir;   /* <state>/runs/<key> */
    bool default_store;
    int lock_fd; /* -1: not locked */
};

/* Names the run's folder and creates and registers it. store NULL: the default store. *ret is
 * released with hf_rundir_release also after a failure. */
enum hf_rc hf_rundir_open(struct hf_rundir *ret, const char *state, const char *name,
                          const char *store, struct hf_err *err) HF_MUST_USE;
/* Finds a registered run. store NULL: the only one of that name. HF_EINVAL: there are several, or
 * it is no name for a run. HF_ENOTFOUND shows what is registered. */
enum hf_rc hf_rundir_find(struct hf_rundir *ret, const char *state, const char *name,
                          const char *store, struct hf_err *err) HF_MUST_USE;
/* Every registered run, in the order of their keys. *ret_n may be 0. Each is released by the
 * caller, the array with hf_free. */
enum hf_rc hf_rundir_all(const char *state, struct hf_rundir **ret, size_t *ret_n,
                         struct hf_err *err) HF_MUST_USE;
void hf_rundir_release(struct hf_rundir *r); /* gives the lock back */

/* Takes the supervisor's lock: HF_EAGAIN when another supervisor has it, and keeps it for longer
 * than a look at it takes. */
enum hf_rc hf_rundir_lock(struct hf_rundir *r, struct hf_err *err) HF_MUST_USE;
/* Who has the lock, in words: "pid 12, since 2026-01-02T03:04:05Z, attempt 3"; NULL: not known.
 * Owned by the caller. */
char *hf_rundir_owner(const struct hf_rundir *r);
/* Whether a living supervisor holds the lock just now. */
bool hf_rundir_is_locked(const struct hf_rundir *r);

/* Paths; owned by the caller. */
char *hf_rundir_attempt(const struct hf_rundir *r, uint32_t attempt);
char *hf_rundir_file(const struct hf_rundir *r, const char *name);

/* The default name for a folder: its last part, made fit, and four digits of the whole path's hash,
 * so that two folders of one name are two runs. Owned by the caller. */
char *hf_run_name_of_folder(const char *folder);

/* `path` as seen from `folder` (absolute): absolute, without "." and empty parts and without a
 * slash at the end; ".." takes the part before it away. Links are not looked at. Owned by the
 * caller. */
char *hf_path_from(const char *folder, const char *path);

#endif
