/* SPDX-License-Identifier: Apache-2.0
 *
 * What was put ahead of a save: a table of files with the ids of their blocks, and the blocks.
 * Worker threads, one at a time. It must never remember a block whose put did not succeed: a
 * failure forgets everything.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/early.h"
#include "checkpoint/snapshot.h"

/* A file that changed a moment ago may change again within the same tick of the clock that
 * stamps it, and would look the same afterwards. */
#define SETTLED_MS 20

struct ahead {
    char *path;
    uint64_t size, inode;
    int64_t mtime_ns;
    char (*ids)[HF_ID_STRLEN];
};

struct hf_early {
    uint32_t attempt, number;
    char nonce[HF_NONCE_STRLEN];
    uint64_t block_bytes, bytes;
    struct hf_blocks *blocks; /* the parent's, and what was put; NULL: nothing was taken */
    struct ahead *files;      /* sorted by path */
    size_t len, room;
};

struct hf_early *hf_early_new(void)
{
    return HF_NEW(struct hf_early);
}

static void forget(struct hf_early *e)
{
    for (size_t i = 0; i < e->len; i++) {
        hf_free(e->files[i].path);
        hf_free(e->files[i].ids);
    }
    hf_free(e->files);
    hf_blocks_free(e->blocks);
    *e = (struct hf_early){.number = 0};
}

void hf_early_free(struct hf_early *e)
{
    if (e != NULL) {
        forget(e);
        hf_free(e);
    }
}

bool hf_early_fits(const struct hf_early *e, const struct hf_claim *claim, uint32_t number,
                   uint64_t block_bytes)
{
    return e != NULL && e->blocks != NULL && e->attempt == claim->attempt && e->number == number &&
           e->block_bytes == block_bytes && strcmp(e->nonce, claim->nonce) == 0;
}

uint64_t hf_early_bytes(const struct hf_early *e)
{
    return e->bytes;
}

/* Where the path is, or belongs. */
static size_t place_of(const struct hf_early *e, const char *path, bool *ret_there)
{
    size_t lo = 0, hi = e->len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(e->files[mid].path, path);
        if (order == 0) {
            *ret_there = true;
            return mid;
        }
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    *ret_there = false;
    return lo;
}

static bool is_same(const struct ahead *f, const struct hf_entry *now)
{
    return f->size == now->size && f->mtime_ns == now->mtime_ns && f->inode == now->inode;
}

const char (*hf_early_find(const struct hf_early *e, const char *path,
                           const struct hf_entry *now))[HF_ID_STRLEN]
{
    bool there = false;
    size_t at = place_of(e, path, &there);
    const struct ahead *f = there && is_same(&e->files[at], now) ? &e->files[at] : NULL;
    for (size_t i = 0; f == NULL && i < e->len; i++) { /* renamed since, or its folder was */
        f = is_same(&e->files[i], now) ? &e->files[i] : NULL;
    }
    return f != NULL ? (const char(*)[HF_ID_STRLEN])f->ids : NULL;
}

void hf_early_lend(const struct hf_early *e, struct hf_blocks *to)
{
    char mine[HF_PREFIX_STRLEN];
    hf_prefix_of(mine, e->attempt, e->number, e->nonce);
    for (size_t i = 0; i < hf_blocks_len(e->blocks); i++) {
        const struct hf_block *b = hf_blocks_at(e->blocks, i);
        if (strcmp(b->where, mine) == 0) { /* a parent's are the save's own to name */
            bool news = hf_blocks_claim(to, b);
            (void)news;
        }
    }
}

static void remember(void *user, char *path_taken, const struct hf_entry *entry,
                     const char (*ids)[HF_ID_STRLEN], size_t n)
{
    struct hf_early *e = user;
    bool there = false;
    size_t at = place_of(e, path_taken, &there);
    if (there) { /* it has changed since it was taken first */
        hf_free(e->files[at].path);
        hf_free(e->files[at].ids);
    } else {
        if (e->len == e->room) {
            e->room = e->room > 0 ? 2 * e->room : 64;
            e->files = hf_realloc(e->files, e->room * sizeof(*e->files));
        }
        memmove(&e->files[at + 1], &e->files[at], (e->len - at) * sizeof(*e->files));
        e->len++;
    }
    struct ahead *f = &e->files[at];
    *f = (struct ahead){.path = path_taken,
                        .size = entry->size,
                        .inode = entry->inode,
                        .mtime_ns = entry->mtime_ns};
    f->ids = hf_calloc(n, sizeof(*f->ids));
    memcpy(f->ids, ids, n * sizeof(*f->ids));
}

static void begin(struct hf_early *e, const struct hf_save_in *in, uint64_t block_bytes)
{
    if (hf_early_fits(e, in->claim, in->number, block_bytes)) {
        return;
    }
    forget(e);
    e->attempt = in->claim->attempt;
    e->number = in->number;
    memcpy(e->nonce, in->claim->nonce, sizeof(e->nonce));
    e->block_bytes = block_bytes;
    e->blocks = hf_blocks_new();
    if (in->parent != NULL) {
        hf_blocks_know(e->blocks, in->parent);
    }
}

enum hf_rc hf_early_take(struct hf_early *e, const struct hf_save_in *in, const struct hf_call *c,
                         struct hf_err *err)
{
    begin(e, in, in->block_bytes > 0 ? in->block_bytes : HF_BLOCK_BYTES);
    HF_TRY(hf_call_wait(c, SETTLED_MS, err));
    char where[HF_PREFIX_STRLEN];
    hf_prefix_of(where, e->attempt, e->number, e->nonce);
    struct hf_snapshot_in snap = {.save = in,
                                  .call = c,
                                  .where = where,
                                  .block_bytes = e->block_bytes,
                                  .blocks = e->blocks,
                                  .early = e};
    int64_t settled_ns = (hf_wall_ms() - SETTLED_MS / 2) * (int64_t)HF_MS;
    enum hf_rc rc = hf_snapshot_ahead(&snap, settled_ns, remember, e, &e->bytes, err);
    if (rc != HF_OK) {
        forget(e);
        return hf_wrap(err, rc, "ship ahead of save %u", in->number);
    }
    return HF_OK;
}
