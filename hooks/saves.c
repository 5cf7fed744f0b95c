/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins the ranks' reports to whole saves. Loop thread, no input or output. Must never call a save
 * whole that lacks a rank or mixes lives, requests or turns.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/mem.h"
#include "hooks/saves.h"

static bool same_key(const struct hf_save_key *a, const struct hf_save_key *b)
{
    return a->request == b->request && a->life == b->life && a->step == b->step &&
           a->turn == b->turn;
}

static void empty_entry(struct hf_save_entry *e)
{
    hf_strv_clear(&e->paths);
    memset(e, 0, sizeof *e);
}

/* A free entry, else the oldest whole one, else the oldest. */
static bool better_victim(const struct hf_save_entry *a, const struct hf_save_entry *b)
{
    if (a->used != b->used) {
        return !a->used;
    }
    if (a->whole != b->whole) {
        return a->whole;
    }
    return a->order < b->order;
}

static struct hf_save_entry *get_entry(struct hf_saves *s, const struct hf_save_key *key)
{
    struct hf_save_entry *victim = &s->entries[0];
    for (size_t i = 0; i < HF_SAVES_OPEN; i++) {
        struct hf_save_entry *e = &s->entries[i];
        if (e->used && same_key(&e->key, key)) {
            return e;
        }
        if (better_victim(e, victim)) {
            victim = e;
        }
    }
    empty_entry(victim);
    victim->used = true;
    victim->key = *key;
    victim->order = ++s->order;
    return victim;
}

bool hf_saves_add(struct hf_saves *s, const struct hf_save_key *key, uint32_t slot, uint32_t world,
                  const struct hf_strv *paths, struct hf_hook_save *ret)
{
    struct hf_save_entry *e = get_entry(s, key);
    if (slot >= HFW_SLOTS || e->whole || e->seen[slot]) {
        return false;
    }
    e->seen[slot] = true;
    e->n_ranks++;
    for (size_t i = 0; i < paths->len; i++) {
        if (!hf_strv_has(&e->paths, paths->items[i])) {
            hf_strv_add(&e->paths, paths->items[i]);
        }
    }
    if (e->n_ranks != world) {
        return false;
    }
    e->whole = true;
    *ret = (struct hf_hook_save){.request = key->request,
                                 .life = key->life,
                                 .step = key->step,
                                 .world = world,
                                 .n_ranks = world,
                                 .paths = e->paths};
    e->paths = (struct hf_strv){0};
    ret->ranks = hf_calloc(world, sizeof ret->ranks[0]);
    for (uint32_t i = 0; i < world; i++) {
        ret->ranks[i] = i; /* a slot is one rank, and ranks are below the world size */
    }
    return true;
}

bool hf_saves_has(const struct hf_saves *s, uint64_t request, uint32_t life, uint32_t slot)
{
    for (size_t i = 0; i < HF_SAVES_OPEN; i++) {
        const struct hf_save_entry *e = &s->entries[i];
        if (e->used && e->key.request == request && e->key.life == life && e->seen[slot]) {
            return true;
        }
    }
    return false;
}

void hf_saves_clear(struct hf_saves *s)
{
    for (size_t i = 0; i < HF_SAVES_OPEN; i++) {
        empty_entry(&s->entries[i]);
    }
}

void hf_hook_save_release(struct hf_hook_save *save)
{
    hf_free(save->ranks);
    hf_strv_clear(&save->paths);
    *save = (struct hf_hook_save){0};
}
