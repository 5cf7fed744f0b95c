/* SPDX-License-Identifier: Apache-2.0
 *
 * A save: read the files into blocks, then commit a manifest that names them, last and create-only.
 * Worker threads. It writes nothing that an older checkpoint needs, so that any failure leaves the
 * last good one as it was.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "checkpoint/blocks.h"
#include "checkpoint/early.h"
#include "checkpoint/objects.h"
#include "checkpoint/record.h"
#include "checkpoint/save.h"
#include "checkpoint/snapshot.h"

#define LINKS_MAX 40 /* as the kernel follows */

struct saving {
    const struct hf_save_in *in;
    const struct hf_call *call;
    uint32_t number;
    const struct hf_manifest *parent;
    struct hf_decision earlier; /* our own, found under the number that we were given */
    struct hf_blocks *blocks;
    struct hf_snapshot snap;
    uint64_t block_bytes;
    uint64_t ahead; /* bytes that had been put before */
};

static enum hf_rc check_in(const struct hf_save_in *in, struct hf_err *err)
{
    if (in->roots.len == 0) {
        return hf_fail(err, HF_EINVAL, "there is nothing to save");
    }
    if (in->number == 0 || in->number > HF_NUMBER_MAX || in->block_bytes > HF_BLOCK_MAX ||
        in->resume_path == NULL || !hf_path_is_root(in->resume_path)) {
        return hf_fail(err, HF_EINVAL, "number, block size or resume path is out of range");
    }
    HF_TRY(hf_roots_check(&in->roots, err));
    if (in->sources.len != 0 && in->sources.len != in->roots.len) {
        return hf_fail(err, HF_EINVAL, "%zu sources for %zu roots", in->sources.len, in->roots.len);
    }
    for (uint32_t i = 0; i < in->world; i++) {
        if (i >= in->n_ranks || in->ranks[i] != i) {
            return hf_fail(err, HF_EINVAL, "rank %" PRIu32 " of %" PRIu32 " is missing", i,
                           in->world);
        }
    }
    if (in->n_ranks != in->world) {
        return hf_fail(err, HF_EINVAL, "%" PRIu32 " ranks instead of %" PRIu32, in->n_ranks,
                       in->world);
    }
    return HF_OK;
}

/* Finds the number to use. A decision of our own under it is an earlier try whose reply was lost:
 * it stands, and only it may be the parent, since older ones may be retired by now. */
static enum hf_rc find_number(struct saving *s, struct hf_err *err)
{
    const struct hf_claim *mine = s->in->claim;
    for (;;) {
        struct hf_decision d;
        struct hf_err missing;
        enum hf_rc rc = HF_ECORRUPT;
        for (int look = 0; look < 2 && rc == HF_ECORRUPT; look++) { /* two prove damage */
            rc = hf_lineage_get_decision(s->in->run, s->call, mine->attempt, s->number, &d,
                                         &missing);
        }
        if (rc == HF_ENOTFOUND) {
            return HF_OK;
        }
        if (rc == HF_ECORRUPT) { /* used up, and what it made of older ones nobody knows */
            s->number++;
            s->parent = NULL;
            continue;
        }
        if (rc != HF_OK) {
            return hf_err_give(err, &missing);
        }
        if (d.kind == HF_DECISION_SEAL || strcmp(d.nonce, mine->nonce) != 0) {
            hf_decision_release(&d);
            return hf_fail(err, HF_EEXISTS,
                           "checkpoint %" PRIu32 " of attempt %" PRIu32 ": the run was taken over",
                           s->number, mine->attempt);
        }
        s->number++;
        if (d.kind != HF_DECISION_MANIFEST) {
            hf_decision_release(&d);
            continue;
        }
        hf_decision_release(&s->earlier);
        s->earlier = d;
        s->parent = &s->earlier.manifest;
    }
}

/* Whether that path is in the set; *ret_entry may then be a link. */
static bool find_entry(const struct saving *s, const char *path, const struct hf_entry **ret_entry)
{
    for (size_t i = 0; i < s->snap.set.len; i++) {
        const struct hf_entry *e = &s->snap.set.items[i];
        const char *root = s->in->roots.items[e->root];
        size_t len = strlen(root);
        if (strncmp(path, root, len) == 0 &&
            (path[len] == '/' ? e->path[0] != '\0' && strcmp(path + len + 1, e->path) == 0
                              : path[len] == '\0' && e->path[0] == '\0')) {
            *ret_entry = e;
            return true;
        }
    }
    return false;
}

/* A program that is told to resume from a link must find there what was saved, on a machine that
 * has nothing else. */
static enum hf_rc check_resume(const struct saving *s, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_strdup(s->in->resume_path);
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct hf_entry *e = NULL;
        if (find_entry(s, path, &e) ? e->kind != HF_FILE_SYMLINK : i == 0) {
            return HF_OK;
        }
        if (e == NULL) {
            enum hf_rc rc =
                hf_fail(err, HF_EINVAL, "the link '%s' leads to '%s', which is not saved",
                        s->in->resume_path, path);
            return hf_hint(err, rc, "Save what it points to, or report that path instead.");
        }
        char *next = hf_link_leads(path, e->target);
        hf_free(path);
        path = next;
    }
    return hf_fail(err, HF_EINVAL, "the link '%s' leads nowhere", s->in->resume_path);
}

static void fill_head(const struct saving *s, struct hf_manifest *m)
{
    const struct hf_save_in *in = s->in;
    m->attempt = in->claim->attempt;
    m->number = s->number;
    memcpy(m->nonce, in->claim->nonce, sizeof(m->nonce));
    m->life = in->life;
    m->request = in->request;
    m->step = in->step;
    m->reason = hf_strdup(in->reason);
    m->strategy = hf_strdup(in->strategy);
    m->world = in->world;
    m->n_ranks = in->n_ranks;
    m->ranks = hf_calloc(in->n_ranks, sizeof(uint32_t));
    for (uint32_t i = 0; i < in->n_ranks; i++) {
        m->ranks[i] = in->ranks[i];
    }
    m->at_wall_ms = hf_wall_ms();
    m->resume_path = hf_strdup(in->resume_path);
    m->parent_attempt = s->parent != NULL ? s->parent->attempt : 0;
    m->parent_number = s->parent != NULL ? s->parent->number : 0;
    m->bytes_sent = s->snap.bytes_sent + s->ahead;
}

/* The manifest's block for an id; it gets its index on first use. */
static uint32_t use_block(const struct saving *s, struct hf_manifest *m, uint32_t *index_of,
                          const char *id)
{
    size_t known = hf_blocks_find(s->blocks, id);
    if (index_of[known] == 0) {
        m->blocks[m->n_blocks++] = *hf_blocks_at(s->blocks, known);
        index_of[known] = m->n_blocks;
    }
    return index_of[known] - 1;
}

static void fill_file(const struct saving *s, struct hf_manifest *m, uint32_t *index_of, size_t i)
{
    const struct hf_entry *e = &s->snap.set.items[i];
    struct hf_file *f = &m->files[m->n_files++];
    *f = (struct hf_file){.root = e->root,
                          .path = hf_strdup(e->path),
                          .kind = e->kind,
                          .mode = e->mode,
                          .size = e->size,
                          .target = hf_strdup(e->target)};
    if (e->kind != HF_FILE_REGULAR) {
        return;
    }
    f->n_extents = (uint32_t)hf_piece_count(e->size, s->block_bytes);
    f->extents = hf_calloc(f->n_extents, sizeof(struct hf_extent));
    for (uint32_t k = 0; k < f->n_extents; k++) {
        uint32_t block = use_block(s, m, index_of, s->snap.ids[s->snap.first[i] + k]);
        f->extents[k] = (struct hf_extent){
            .off = k * s->block_bytes, .len = m->blocks[block].len, .block = block};
    }
    hf_file_hash(f, m->blocks, f->hash);
    m->bytes += f->size;
}

static void fill_manifest(const struct saving *s, struct hf_manifest *m)
{
    const struct hf_fileset *set = &s->snap.set;
    fill_head(s, m);
    m->n_roots = (uint32_t)s->in->roots.len;
    m->roots = hf_calloc(m->n_roots, sizeof(struct hf_root));
    for (uint32_t i = 0; i < m->n_roots; i++) {
        m->roots[i].path = hf_strdup(s->in->roots.items[i]);
    }
    size_t known = hf_blocks_len(s->blocks);
    uint32_t *index_of = hf_calloc(known, sizeof(uint32_t));
    m->blocks = hf_calloc(known, sizeof(struct hf_block));
    m->files = hf_calloc(set->len, sizeof(struct hf_file));
    for (size_t i = 0; i < set->len; i++) {
        if (set->items[i].path[0] == '\0') {
            m->roots[set->items[i].root].kind = set->items[i].kind;
        }
        fill_file(s, m, index_of, i);
    }
    /* A copy that is read instead of the roots has none of it. */
    bool copy = s->in->sources.len > 0 && s->in->expect != NULL;
    const struct hf_strv *out = copy ? &s->in->expect->left_out : &set->left_out;
    for (size_t i = 0; i < out->len; i++) {
        hf_strv_add(&m->left_out, out->items[i]);
    }
    hf_free(index_of);
}

static enum hf_rc commit(const struct saving *s, struct hf_manifest *ret, struct hf_err *err)
{
    struct hf_decision d = {.kind = HF_DECISION_MANIFEST};
    fill_manifest(s, &d.manifest);
    memcpy(d.nonce, d.manifest.nonce, sizeof(d.nonce));
    struct hf_err odd;
    enum hf_rc rc = hf_manifest_check(&d.manifest, &odd);
    if (rc != HF_OK) { /* it would be refused at the restore */
        rc = hf_fail(err, HF_EINVAL, "this set of files cannot be saved: %s", odd.msg);
    }
    if (rc == HF_OK) {
        rc = hf_lineage_decide(s->in->run, s->call, s->in->claim, s->number, &d, err);
    }
    if (rc == HF_OK) {
        *ret = d.manifest;
    } else {
        hf_decision_release(&d);
    }
    return rc;
}

static enum hf_rc save(struct saving *s, struct hf_manifest *ret, struct hf_err *err)
{
    HF_TRY(find_number(s, err));
    if (s->parent != NULL) {
        hf_blocks_know(s->blocks, s->parent);
    }
    char where[HF_PREFIX_STRLEN];
    hf_prefix_of(where, s->in->claim->attempt, s->number, s->in->claim->nonce);
    struct hf_snapshot_in in = {.save = s->in,
                                .call = s->call,
                                .where = where,
                                .block_bytes = s->block_bytes,
                                .blocks = s->blocks};
    /* Another number than the one it was put under: an earlier try stands, and it is left alone. */
    if (hf_early_fits(s->in->early, s->in->claim, s->number, s->block_bytes)) {
        hf_early_lend(s->in->early, s->blocks);
        in.early = s->in->early;
        s->ahead = hf_early_bytes(s->in->early);
    }
    HF_TRY(hf_snapshot_take(&in, &s->snap, err));
    HF_TRY(check_resume(s, err));
    return commit(s, ret, err);
}

enum hf_rc hf_save(const struct hf_save_in *in, const struct hf_call *c, struct hf_manifest *ret,
                   struct hf_err *err)
{
    HF_TRY(check_in(in, err));
    struct saving s = {.in = in, .call = c, .number = in->number, .parent = in->parent};
    s.block_bytes = in->block_bytes > 0 ? in->block_bytes : HF_BLOCK_BYTES;
    s.blocks = hf_blocks_new();
    enum hf_rc rc = save(&s, ret, err);
    hf_blocks_free(s.blocks);
    hf_snapshot_release(&s.snap);
    hf_decision_release(&s.earlier);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "save %" PRIu32, in->number);
}
