/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves that ranks report one by one, joined to whole ones: same life, request, step and turn,
 * every rank of the world. Bounded: the oldest unfinished ones are forgotten. Loop thread.
 */
#ifndef HF_HOOKS_SAVES_H
#define HF_HOOKS_SAVES_H

#include "base/prelude.h"

#include "hooks/c/agree_step.h"
#include "hooks/server.h"

#define HF_SAVES_OPEN 16

struct hf_save_key {
    uint64_t request;
    uint32_t life;
    int64_t step;
    int64_t turn;
};

struct hf_save_entry {
    bool used;
    bool whole; /* was handed out; kept so that a message told again does nothing */
    struct hf_save_key key;
    uint64_t order;
    uint32_t n_ranks;
    bool seen[HFW_SLOTS];
    struct hf_strv paths;
};

/* Zero-initialised is empty. */
struct hf_saves {
    struct hf_save_entry entries[HF_SAVES_OPEN];
    uint64_t order;
};

/* Adds what the rank in `slot` reported. True when that made the save whole, once per save: *ret
 * is then filled; free it by hf_hook_save_release. */
bool hf_saves_add(struct hf_saves *s, const struct hf_save_key *key, uint32_t slot, uint32_t world,
                  const struct hf_strv *paths, struct hf_hook_save *ret);
/* Whether the rank in `slot` has reported its part of request `request` in this life. */
bool hf_saves_has(const struct hf_saves *s, uint64_t request, uint32_t life, uint32_t slot);
void hf_saves_clear(struct hf_saves *s);
void hf_hook_save_release(struct hf_hook_save *save);

#endif
