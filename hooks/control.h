/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's hold on the control file (layout: hooks/c/agree_step.h): create or reopen,
 * raise, fence, read, decide. Small local calls; loop thread.
 */
#ifndef HF_HOOKS_CONTROL_H
#define HF_HOOKS_CONTROL_H

#include "base/prelude.h"

#include "base/err.h"
#include "hooks/agree.h"
#include "hooks/c/agree_step.h"

struct hf_control {
    struct hfw_head *head; /* mapped, shared with the ranks */
    struct hfw_slot *slots;
    int fd;
};

/* Creates the file (0600, its blocks allocated), or maps the one that an earlier supervisor of the
 * same attempt made: *ret_found. The epoch rises either way. HF_ECORRUPT: the file is not of this
 * attempt and version. */
enum hf_rc hf_control_open(const char *path, uint32_t attempt, struct hf_control *ret,
                           bool *ret_found, struct hf_err *err) HF_MUST_USE;
void hf_control_close(struct hf_control *c); /* the file stays; closed twice is fine */

uint64_t hf_control_word(const struct hf_control *c);
/* For every word but the end of RAISED. */
void hf_control_set_word(struct hf_control *c, uint64_t word);
/* IDLE for the request id that the word names now, with the epoch. */
void hf_control_set_idle(struct hf_control *c);

/* Replaces RAISED of request `id` by `word`, under flock. HF_ECANCELED: a rank has cancelled it;
 * HF_EAGAIN: some process keeps the lock (tried for 10 ms); the word is unchanged. */
enum hf_rc hf_control_decide(struct hf_control *c, uint32_t id, uint64_t word,
                             struct hf_err *err) HF_MUST_USE;

/* Makes every processor of the machine pass a full barrier (about 10 ms). False where the kernel
 * cannot; then it has waited 1 ms, which empties store buffers in practice. */
bool hf_control_fence(void);

/* The shared fields of one slot; alive, connected and named_files are left alone. */
void hf_control_read(const struct hf_control *c, uint32_t slot, struct hf_agree_rank *ret);
/* Empties a slot for a new incarnation that does not know of it yet. */
void hf_control_grant(struct hf_control *c, uint32_t slot, const struct hfw_slot *owner);

#endif
