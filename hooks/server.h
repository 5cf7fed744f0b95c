/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's side of hook protocol 1 (docs/protocols.md): the control file, the socket,
 * and the rank agreement. One per attempt; a supervisor that comes back opens the same folder
 * again. Loop thread only.
 */
#ifndef HF_HOOKS_SERVER_H
#define HF_HOOKS_SERVER_H

#include "base/loop.h"
#include "base/mem.h"

struct hf_hooks;

struct hf_hook_save {
    uint64_t request; /* 0: the trainer's own save */
    uint32_t life;
    int64_t step;
    uint32_t world;
    uint32_t *ranks; /* ascending, all of 0..world-1 */
    uint32_t n_ranks;
    struct hf_strv paths; /* absolute, distinct, as reported */
};

enum hf_request_end {
    HF_REQUEST_SAVED,    /* every rank has saved at the target */
    HF_REQUEST_CANCELED, /* void: why says so; nothing was saved by it */
    HF_REQUEST_EXPIRED   /* the deadline passed without every rank's save */
};

struct hf_hooks_cb {
    /* A rank shook hands (framework may be ""). life rises when ranks restart. After a
     * supervisor's restart it comes again for ranks that come back. */
    void (*joined)(void *user, uint32_t rank, uint32_t world, uint32_t life, const char *framework);
    /* Every rank of the world has reported a save for the same step, life and request. Paths
     * are complete on disk. Borrowed during the call. After a supervisor's restart the last save
     * may come again; a save for a request that has ended as canceled or expired may still come. */
    void (*saved)(void *user, const struct hf_hook_save *save);
    /* One rank has reported its part, others are still to follow: its paths are complete on disk.
     * A hint, to read them ahead: the save may never become whole. Borrowed; may be NULL. */
    void (*part)(void *user, const struct hf_strv *paths);
    /* Once per request; for HF_REQUEST_SAVED it follows the saved callback. */
    void (*request_ended)(void *user, uint64_t request, enum hf_request_end how, const char *why);
    /* The trainer says which step it does next: the saved step + 1, or 0. */
    void (*resumed)(void *user, uint32_t rank, int64_t step);
    void (*done)(void *user); /* every rank said done; once a life */
    /* A hello was refused, or a connection was dropped for what it sent or did not read. pid as
     * this process sees it, 0: not visible. At most 100 times; may be NULL. */
    void (*refused)(void *user, int32_t pid, const char *why);
};

struct hf_hooks_cfg {
    /* The attempt's folder: control file "c" and socket "s" go there. */
    const char *dir;
    const char *run;
    uint32_t attempt;
    const char *save_dir;    /* absolute: run.path() makes fresh folders in it */
    const char *resume_path; /* absolute, or NULL: nothing to resume from */
    int64_t resume_step;     /* the step that was saved there, -1: unknown */
};

/* Creates (or, after a supervisor's restart, reopens) the control file and listens. A request that
 * was undecided is cancelled; one that had its target goes on: see status.request, its callbacks
 * follow. */
enum hf_rc hf_hooks_open(struct hf_loop *loop, const struct hf_hooks_cfg *cfg,
                         const struct hf_hooks_cb *cb, void *user, struct hf_hooks **ret,
                         struct hf_err *err) HF_MUST_USE;
/* Removes the socket; leaves the control file. No callback follows. NULL is fine; run the loop
 * once more before closing it. */
void hf_hooks_close(struct hf_hooks *h);

/* Adds HOLDFAST_CONTROL, HOLDFAST_SOCKET, HOLDFAST_SAVE_DIR to an environment list. */
void hf_hooks_env(const struct hf_hooks *h, struct hf_strv *env);

/* Raises a request: raise, fence, read, decide; then returns with its id in *ret_id. Blocks for
 * about 10 ms (a memory barrier on every processor). leave: ranks wait after it for
 * hf_hooks_release. deadline_ns: CLOCK_BOOTTIME, 0: none (a periodic save; then it expires after
 * 10 minutes). Ranks that wait for a release of an earlier request go on.
 * HF_ENOTFOUND: no living rank has shaken hands; HF_EAGAIN: one is in flight; HF_ECANCELED:
 * cancelled at once, err says why. No callback follows any of these. */
enum hf_rc hf_hooks_request(struct hf_hooks *h, uint64_t deadline_ns, bool leave,
                            const char *reason, uint64_t *ret_id, struct hf_err *err) HF_MUST_USE;
/* For the request in flight: the deadline may only come nearer, leave may only become true.
 * Nothing in flight: no effect. */
void hf_hooks_hurry(struct hf_hooks *h, uint64_t deadline_ns, bool leave);
/* Ends the waiting of ranks that saved for a leaving request: true = leave now (exit 75), false
 * = go on. true reaches every rank at its next boundary, also those that have not saved, and
 * holds (no request is taken) until release(false). */
void hf_hooks_release(struct hf_hooks *h, bool leave);
/* What handshakes of the next life name as the newest complete checkpoint: ranks of one life all
 * get what was newest when its first rank shook hands. NULL: none. */
void hf_hooks_set_newest(struct hf_hooks *h, const char *resume_path, int64_t step);

/* A living rank of the current life, by the credentials of its socket. */
struct hf_hook_peer {
    uint32_t rank;
    int32_t pid; /* as this process sees it; 0: of another pid namespace, not visible from here */
};
/* Returns how many were put into out[max]. */
size_t hf_hooks_peers(const struct hf_hooks *h, struct hf_hook_peer *out, size_t max);

struct hf_hooks_status {
    uint32_t world;  /* declared; 0: nobody shook hands */
    uint32_t joined; /* ranks with a live connection or a live pid */
    uint32_t life;
    int64_t step;             /* the highest published, -1: none */
    uint64_t step_changed_ns; /* when `step` was last seen to rise */
    bool all_done;
    uint64_t request; /* in flight, 0: none */
};
/* Reads the control file now. */
void hf_hooks_get_status(struct hf_hooks *h, struct hf_hooks_status *ret);

#endif
