/* SPDX-License-Identifier: Apache-2.0
 *
 * Watched checkpoint folders, for programs that save by themselves. inotify gives hints only; a
 * worker looks (supervisor/watch_judge.h) and says what is complete; what was found is held until
 * it is shipped. Loop thread only.
 */
#ifndef HF_SUPERVISOR_WATCHDIR_H
#define HF_SUPERVISOR_WATCHDIR_H

#include "base/prelude.h"

#include "base/work.h"
#include "supervisor/watch_judge.h"

struct hf_watchdir;

struct hf_watchdir_cfg {
    struct hf_loop *loop;
    struct hf_pool *pool;       /* of one thread: looks */
    const struct hf_strv *dirs; /* absolute (hf_watchdir_paths) */
    const char *attempt_dir;
    const char *key; /* for hf_hold_take */
    uint32_t attempt;
    const char *token; /* of the tree */
    uint64_t quiet_ms;
    bool adopted; /* what appeared while nobody watched is new too */
};

struct hf_watchdir_cb {
    /* A complete checkpoint that is new; `out` is borrowed, but its members may be taken out. */
    void (*found)(void *user, struct hf_judge_out *out);
    /* Files of a checkpoint that is still being written, which have their content. Borrowed. */
    void (*finished)(void *user, const struct hf_strv *paths);
    /* Once for each kind of trouble: a sentence. */
    void (*trouble)(void *user, const char *what);
    /* A held checkpoint was given up, since too little space was free. */
    void (*dropped)(void *user, const char *folder, uint64_t bytes, uint64_t free_bytes);
    /* A look has ended: hf_watchdir_calm may have changed. */
    void (*looked)(void *user);
    uint32_t (*world)(void *user); /* ranks of the running job, 0: unknown */
};

/* The folders as seen from `folder`: absolute, each once. */
void hf_watchdir_paths(const char *folder, const struct hf_strv *dirs, struct hf_strv *ret);

/* All of cfg is borrowed for the watcher's life. */
enum hf_rc hf_watchdir_start(const struct hf_watchdir_cfg *cfg, const struct hf_watchdir_cb *cb,
                             void *user, struct hf_watchdir **ret, struct hf_err *err) HF_MUST_USE;
/* Looks now. */
void hf_watchdir_scan(struct hf_watchdir *w);
/* Time is short: looks now, and waits for what is just being written, but for no other. */
void hf_watchdir_final(struct hf_watchdir *w);
/* The tree is gone, `clean` if it ended by itself without an error: the last look. */
void hf_watchdir_ended(struct hf_watchdir *w, bool clean);
/* Nothing is looked at that was asked for by scan, final or ended, and nothing waited for. */
bool hf_watchdir_calm(const struct hf_watchdir *w);
/* What was found last could not be shipped: it is found again by the next look. */
void hf_watchdir_once_more(struct hf_watchdir *w);
/* A held checkpoint is needed no more. held: its paths; nothing for none. */
void hf_watchdir_unhold(struct hf_watchdir *w, const struct hf_strv *held);
/* NULL is fine; a look under way ends in the background. */
void hf_watchdir_stop(struct hf_watchdir *w);

#endif
