/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table of blocks by id: open addressing over an array that only grows. Any thread; one
 * lock.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <string.h>

#include "checkpoint/blocks.h"

struct hf_blocks {
    pthread_mutex_t lock;
    struct hf_block *items;
    size_t len, room;
    size_t *slots;  /* index + 1 into items; 0: free */
    size_t n_slots; /* a power of two, at least twice len */
};

struct hf_blocks *hf_blocks_new(void)
{
    struct hf_blocks *t = HF_NEW(struct hf_blocks);
    pthread_mutex_init(&t->lock, NULL);
    t->room = 64;
    t->items = hf_calloc(t->room, sizeof(struct hf_block));
    t->n_slots = 256;
    t->slots = hf_calloc(t->n_slots, sizeof(size_t));
    return t;
}

void hf_blocks_free(struct hf_blocks *t)
{
    if (t != NULL) {
        pthread_mutex_destroy(&t->lock);
        hf_free(t->items);
        hf_free(t->slots);
        hf_free(t);
    }
}

/* Ids are uniform already: their first digits are a good hash. */
static size_t start_of(const char *id)
{
    size_t h = 0;
    for (int i = 0; i < 16; i++) {
        h = h * 16 + (size_t)(id[i] <= '9' ? id[i] - '0' : id[i] - 'a' + 10);
    }
    return h;
}

/* The slot that holds the id, or the free one where it belongs. */
static size_t slot_of(const struct hf_blocks *t, const char *id)
{
    size_t at = start_of(id) & (t->n_slots - 1);
    while (t->slots[at] != 0 && strcmp(t->items[t->slots[at] - 1].id, id) != 0) {
        at = (at + 1) & (t->n_slots - 1);
    }
    return at;
}

static void grow(struct hf_blocks *t)
{
    if (t->len == t->room) {
        t->room *= 2;
        t->items = hf_realloc(t->items, t->room * sizeof(struct hf_block));
    }
    if (2 * (t->len + 1) <= t->n_slots) {
        return;
    }
    hf_free(t->slots);
    t->n_slots *= 2;
    t->slots = hf_calloc(t->n_slots, sizeof(size_t));
    for (size_t i = 0; i < t->len; i++) {
        t->slots[slot_of(t, t->items[i].id)] = i + 1;
    }
}

bool hf_blocks_claim(struct hf_blocks *t, const struct hf_block *b)
{
    pthread_mutex_lock(&t->lock);
    grow(t);
    size_t slot = slot_of(t, b->id);
    bool news = t->slots[slot] == 0;
    if (news) {
        t->items[t->len++] = *b;
        t->slots[slot] = t->len;
    }
    pthread_mutex_unlock(&t->lock);
    return news;
}

void hf_blocks_know(struct hf_blocks *t, const struct hf_manifest *parent)
{
    for (uint32_t i = 0; i < parent->n_blocks; i++) {
        bool news = hf_blocks_claim(t, &parent->blocks[i]);
        (void)news;
    }
}

bool hf_blocks_knows(const struct hf_blocks *t, const char *id)
{
    return t->slots[slot_of(t, id)] != 0;
}

size_t hf_blocks_find(const struct hf_blocks *t, const char *id)
{
    return t->slots[slot_of(t, id)] - 1;
}

const struct hf_block *hf_blocks_at(const struct hf_blocks *t, size_t index)
{
    return &t->items[index];
}

size_t hf_blocks_len(const struct hf_blocks *t)
{
    return t->len;
}
