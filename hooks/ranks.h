/* SPDX-License-Identifier: Apache-2.0
 *
 * Which processes are the ranks: slots, lives, proofs of life, and what each life resumes from.
 *
 * A life is one set of rank processes that train together. It ends when a rank that had joined it
 * is replaced by another process; everything that belongs to an older life is history. What a life
 * resumes from is fixed when its first rank joins and is the same for all its ranks. All of it is
 * in the control file too, so that the next supervisor goes on with it. Loop thread.
 */
#ifndef HF_HOOKS_RANKS_H
#define HF_HOOKS_RANKS_H

#include "base/prelude.h"

#include "hooks/control.h"
#include "hooks/linesock.h"
#include "hooks/proto.h"

struct hf_member {
    bool used;
    bool left;      /* it said bye */
    bool announced; /* the owner was told of it by this supervisor */
    bool done;
    int32_t pid;              /* as this process sees it, 0: not visible */
    int pidfd;                /* -1: none */
    int64_t resumed;          /* the step that it said it goes on from, -1: not yet */
    struct hf_lineconn *conn; /* NULL: not connected */
};

struct hf_ranks {
    struct hf_control *control; /* borrowed */
    struct hf_member members[HFW_SLOTS];
    bool world_clash; /* ranks of this life declared different worlds */
    char *newest_path;
    int64_t newest_step;
};

/* Takes over the ranks that the control file knows, if it was found. */
void hf_ranks_init(struct hf_ranks *r, struct hf_control *control);
void hf_ranks_release(struct hf_ranks *r); /* zeroed and never initialised is fine */
/* From the next life on. HF_EINVAL: longer than 4095 bytes; nothing changes then. */
enum hf_rc hf_ranks_set_newest(struct hf_ranks *r, const char *path, int64_t step,
                               struct hf_err *err) HF_MUST_USE;

enum hf_join { HF_JOIN_BACK, HF_JOIN_NEW, HF_JOIN_NEW_LIFE };
/* A hello. HF_EDENIED: refused, err says why. The slot is this process's from here on. */
enum hf_rc hf_ranks_join(struct hf_ranks *r, const struct hf_hook_msg *hello,
                         struct hf_lineconn *conn, uint32_t *ret_slot, enum hf_join *ret_how,
                         struct hf_err *err) HF_MUST_USE;

bool hf_ranks_alive(const struct hf_member *m);
/* Part of the current life. */
bool hf_ranks_current(const struct hf_ranks *r, uint32_t slot);
/* True when two ranks of this life said that they go on from different steps. */
bool hf_ranks_resume_clash(const struct hf_ranks *r);
/* Fills `out` (room for HFW_SLOTS) with the current life's ranks as they are now; *ret_slots gets
 * their slots. named_files is left false. Returns how many. */
size_t hf_ranks_read(const struct hf_ranks *r, struct hf_agree_rank *out, uint32_t *ret_slots);
/* World size of the current life, 0: none joined, or they disagree. */
uint32_t hf_ranks_world(const struct hf_ranks *r);

#endif
