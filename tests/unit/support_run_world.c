/* SPDX-License-Identifier: Apache-2.0
 *
 * A run and its model side by side: the store that can go away, the trainer's files, saves, and the
 * looks that compare the two. One thread.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "checkpoint/build.h"
#include "checkpoint/restore.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_run_world.h"

/* ---- a store that goes away at a call, for ever, with or without having done it ---- */

static bool cuts(struct rw_knife *k, bool *ret_do)
{
    bool now = !k->gone && k->left > 0 && --k->left == 0;
    *ret_do = !k->gone && (!now || k->after);
    k->gone = k->gone || now;
    return k->gone;
}

static enum hf_rc cut_off(struct hf_err *err)
{
    return hf_fail(err, HF_ECANCELED, "the store is gone");
}

static enum hf_rc knife_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct rw_knife *k = (struct rw_knife *)s;
    bool act = false;
    return cuts(k, &act) ? cut_off(err) : hf_store_get(k->inner, c, key, ret, err);
}

static enum hf_rc knife_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct rw_knife *k = (struct rw_knife *)s;
    bool act = false;
    bool cut = cuts(k, &act);
    enum hf_rc rc = act ? hf_store_put(k->inner, c, key, data, flags, err) : HF_OK;
    return cut ? cut_off(err) : rc;
}

static enum hf_rc knife_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                             hf_list_fn *each, void *user, struct hf_err *err)
{
    struct rw_knife *k = (struct rw_knife *)s;
    bool act = false;
    return cuts(k, &act) ? cut_off(err) : hf_store_list(k->inner, c, prefix, each, user, err);
}

static enum hf_rc knife_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                               struct hf_err *err)
{
    struct rw_knife *k = (struct rw_knife *)s;
    bool act = false;
    bool cut = cuts(k, &act);
    enum hf_rc rc = act ? hf_store_remove(k->inner, c, key, err) : HF_OK;
    return cut ? cut_off(err) : rc;
}

const struct hf_store_ops rw_knife_ops = {.size = sizeof(struct hf_store_ops),
                                          .scheme = "knife",
                                          .get = knife_get,
                                          .put = knife_put,
                                          .list = knife_list,
                                          .remove = knife_remove};

/* ---- the world ---- */

uint64_t rw_roll(struct rw *w, uint64_t n)
{
    w->x = w->x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w->x >> 33) % n;
}

void rw_note(struct rw *w, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    enum hf_rc rc = hf_buf_addf(&w->log, NULL, "%s\n", text);
    (void)rc;
}

/* Sometimes the store goes away in the next operation. */
void rw_arm(struct rw *w, uint64_t one_in, uint64_t calls)
{
    w->knife.left = rw_roll(w, one_in) == 0 ? 1 + rw_roll(w, calls) : 0;
    w->knife.after = rw_roll(w, 2) == 0;
    if (w->knife.left > 0) {
        rw_note(w, "  (the store goes away at call %llu%s)", (unsigned long long)w->knife.left,
                w->knife.after ? ", done" : "");
    }
}

/* Whether it went; then it is back. */
bool rw_disarm(struct rw *w)
{
    bool gone = w->knife.gone;
    w->knife.left = 0;
    w->knife.gone = false;
    w->cut += gone ? 1 : 0;
    return gone;
}

bool rw_there(struct rw *w, const char *key)
{
    struct hf_buf text;
    hf_buf_init(&text, 1 << 20);
    enum hf_rc rc = hf_store_get(w->b.store, NULL, key, &text, NULL);
    hf_buf_release(&text);
    return rc == HF_OK;
}

static size_t object_of(struct rw *w, uint32_t attempt, uint32_t number, struct rm_piece p)
{
    size_t at = rm_object_make(&w->m, attempt, number, p);
    rm_key(&w->m, at, w->keys[at]);
    return at;
}

/* ---- the trainer's files ---- */

static char *file_path(const struct rw *w, unsigned f)
{
    return hf_asprintf("%s/f%u", w->root, f);
}

void rw_write_disk(const struct rw *w, const struct rm_content *c)
{
    struct hf_err err;
    expect_rc(hf_remove_all(w->root, &err), HF_OK, &err);
    expect_rc(hf_fs_mkdirs(w->root, 0755, &err), HF_OK, &err);
    for (unsigned f = 0; f < RM_FILES; f++) {
        if (f > 0 && c->files[f].n == 0) {
            continue; /* the first may be empty, the others are not there then */
        }
        HF_CLEANUP(hf_freep) char *path = file_path(w, f);
        HF_CLEANUP(hf_closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        assert_true(fd >= 0);
        off_t size = 0;
        for (uint32_t i = 0; i < c->files[f].n; i++) {
            struct rm_piece p = c->files[f].pieces[i];
            unsigned char bytes[RM_BLOCK];
            rm_bytes(p, bytes);
            if (p.seed != 0) {
                assert_int_equal(pwrite(fd, bytes, p.len, size), p.len);
            }
            size += p.len;
        }
        assert_int_equal(ftruncate(fd, size), 0);
    }
}

bool rw_disk_is(const struct rw *w, const struct rm_content *c)
{
    bool same = true;
    for (unsigned f = 0; f < RM_FILES; f++) {
        HF_CLEANUP(hf_freep) char *path = file_path(w, f);
        struct hf_buf got;
        hf_buf_init(&got, 1 << 20);
        enum hf_rc rc = hf_fs_read(path, &got, NULL);
        same = same && rc == (f > 0 && c->files[f].n == 0 ? HF_ENOTFOUND : HF_OK);
        size_t at = 0;
        for (uint32_t i = 0; i < c->files[f].n && same; i++) {
            unsigned char bytes[RM_BLOCK];
            struct rm_piece p = c->files[f].pieces[i];
            rm_bytes(p, bytes);
            same = at + p.len <= got.len && memcmp(got.data + at, bytes, p.len) == 0;
            at += p.len;
        }
        same = same && at == got.len;
        hf_buf_release(&got);
    }
    return same;
}

static void new_file(struct rw *w, struct rm_file *f)
{
    f->n = (uint32_t)rw_roll(w, RM_PIECES + 1);
    for (uint32_t i = 0; i < f->n; i++) {
        bool last = i + 1 == f->n;
        f->pieces[i] = (struct rm_piece){
            .seed = ++w->seeds, .len = last ? 1 + (uint32_t)rw_roll(w, RM_BLOCK) : RM_BLOCK};
    }
}

/* The training goes on: everything new, nothing, a block, a hole, what there was, twice the same.
 */
static void train(struct rw *w)
{
    struct rm_content *c = &w->disk;
    struct rm_file *f = &c->files[rw_roll(w, RM_FILES)];
    switch (rw_roll(w, 6)) {
    case 0:
        for (unsigned i = 0; i < RM_FILES; i++) {
            new_file(w, &c->files[i]);
        }
        break;
    case 1:
        break;
    case 2:
        if (f->n > 0) {
            f->pieces[rw_roll(w, f->n)].seed = ++w->seeds;
        }
        break;
    case 3:
        if (f->n > 0) {
            f->pieces[rw_roll(w, f->n)].seed = 0;
        }
        break;
    case 4:
        if (w->m.n_ckpts > 0) {
            const struct rm_ckpt *k = &w->m.ckpts[rw_roll(w, w->m.n_ckpts)];
            *c = k->kind == HF_DECISION_MANIFEST ? k->content : *c;
        }
        break;
    default:
        *f = c->files[rw_roll(w, RM_FILES)];
        break;
    }
}

/* ---- saves ---- */

/* What a save has to store, and what it refers to. */
struct shipment {
    uint32_t attempt, number;
    uint32_t parent_a, parent_n;
    size_t refs[RM_FILES * RM_PIECES];
    size_t n_refs;
    bool sent[RM_FILES * RM_PIECES];
    uint64_t bytes, bytes_sent;
};

static void plan_shipment(struct rw *w, const struct rm_attempt *a, struct shipment *s)
{
    *s = (struct shipment){.attempt = a->claim.attempt,
                           .number = a->next,
                           .parent_a = a->last_a,
                           .parent_n = a->last_n};
    const struct rm_ckpt *own = NULL; /* earlier tries of unknown outcome */
    while ((own = rm_find(&w->m, s->attempt, s->number)) != NULL) {
        if (own->kind == HF_DECISION_MANIFEST) { /* after one that is damaged: nothing */
            s->parent_a = own->garbled ? 0 : s->attempt;
            s->parent_n = own->garbled ? 0 : s->number;
        }
        s->number++;
    }
    const struct rm_ckpt *parent = rm_find(&w->m, s->parent_a, s->parent_n);
    for (unsigned i = 0; i < RM_FILES * RM_PIECES; i++) {
        const struct rm_file *f = &w->disk.files[i / RM_PIECES];
        struct rm_piece p = f->pieces[i % RM_PIECES];
        if (i % RM_PIECES >= f->n) {
            continue;
        }
        s->bytes += p.len;
        size_t at = RM_OBJECTS;
        for (size_t r = 0; p.seed != 0 && parent != NULL && r < parent->n_refs; r++) {
            const struct rm_piece *q = &w->m.objects[parent->refs[r]].piece;
            at = q->seed == p.seed && q->len == p.len ? parent->refs[r] : at;
        }
        bool sent = at == RM_OBJECTS;
        at = sent && p.seed != 0 ? object_of(w, s->attempt, s->number, p) : at;
        bool twice = p.seed == 0;
        for (size_t r = 0; r < s->n_refs; r++) {
            twice = twice || s->refs[r] == at;
        }
        if (!twice) {
            s->sent[s->n_refs] = sent;
            s->refs[s->n_refs++] = at;
            s->bytes_sent += sent ? p.len : 0;
        }
    }
}

/* What of it has been put, by a look; `all`: it must be. */
static void blocks_are_put(struct rw *w, const struct shipment *s, bool all)
{
    for (size_t i = 0; i < s->n_refs; i++) {
        struct rm_object *o = &w->m.objects[s->refs[i]];
        struct hf_buf text;
        hf_buf_init(&text, RM_BLOCK);
        unsigned char bytes[RM_BLOCK];
        rm_bytes(o->piece, bytes);
        bool is = s->sent[i] &&
                  hf_store_get(w->b.store, NULL, w->keys[s->refs[i]], &text, NULL) == HF_OK &&
                  text.len == o->piece.len && memcmp(text.data, bytes, text.len) == 0;
        hf_buf_release(&text);
        assert_true(is || !all || !s->sent[i]);
        if (is) {
            o->there = o->right = o->full = true;
            o->harmed = false;
        }
    }
}

static void is_committed(struct rw *w, const struct shipment *s)
{
    struct rm_ckpt *k = rm_decide(&w->m, s->attempt, s->number, HF_DECISION_MANIFEST);
    k->content = w->disk;
    k->n_refs = s->n_refs;
    memcpy(k->refs, s->refs, sizeof(k->refs));
}

static void manifest_is(struct rw *w, const struct shipment *s, const struct hf_manifest *m)
{
    assert_int_equal(m->number, s->number);
    assert_int_equal(m->parent_attempt, s->parent_a);
    assert_int_equal(m->parent_number, s->parent_n);
    assert_int_equal(m->bytes, s->bytes);
    assert_int_equal(m->bytes_sent, s->bytes_sent);
    size_t stored = 0;
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        char key[HF_KEY_MAX];
        bool known = hf_block_is_zero(&m->blocks[i]);
        stored += known ? 0 : 1;
        hf_key_block(key, "job", &m->blocks[i]);
        for (size_t r = 0; r < s->n_refs && !known; r++) {
            known = strcmp(key, w->keys[s->refs[r]]) == 0;
        }
        assert_true(known);
    }
    assert_int_equal(stored, s->n_refs);
}

void rw_save(struct rw *w, struct rm_attempt *a)
{
    struct shipment s;
    struct hf_manifest m;
    struct hf_err err = {.code = HF_OK};
    bool zombie = a->claim.attempt < w->m.top;
    train(w);
    rw_write_disk(w, &w->disk);
    plan_shipment(w, a, &s);
    rw_note(w, "save %u-%u upon %u-%u", s.attempt, s.number, s.parent_a, s.parent_n);
    rw_arm(w, 4, 30);
    struct hf_save_in in = save_of(&w->b, &a->claim, a->next, w->root);
    in.run = &w->run;
    in.block_bytes = RM_BLOCK;
    in.lanes = 1;
    in.parent = a->last_a > 0 ? &a->parent : NULL;
    enum hf_rc rc = hf_save(&in, NULL, &m, &err);
    save_in_release(&in);
    bool cut = rw_disarm(w);
    expect_rc(rc, cut ? HF_ECANCELED : zombie ? HF_EEXISTS : HF_OK, &err);
    blocks_are_put(w, &s, rc == HF_OK);
    char key[HF_KEY_MAX];
    if (rc != HF_OK) { /* the reply may have been lost, but for a zombie */
        bool stored = !a->sealed && rw_there(w, hf_key_decision(key, "job", s.attempt, s.number));
        assert_true(!stored || (cut && !zombie));
        if (stored) {
            w->unknown++;
            is_committed(w, &s);
        }
        return;
    }
    w->saves++;
    is_committed(w, &s);
    manifest_is(w, &s, &m);
    hf_manifest_release(&a->parent);
    a->parent = m;
    a->last_a = s.attempt;
    a->last_n = s.number;
    a->next = s.number + 1;
}

/* ---- what must hold after every step ---- */

struct listing {
    struct rw *w;
    size_t n;
};

static bool see_object(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct listing *l = user;
    bool known = false;
    for (size_t i = 0; i < l->w->m.n_objects && !known; i++) {
        known = l->w->m.objects[i].there && strcmp(l->w->keys[i], key) == 0;
    }
    if (!known) {
        fail_msg("'%s' lies in the store, and nobody put it there, or it was to go", key);
    }
    l->n++;
    return true;
}

static void blocks_agree(struct rw *w)
{
    struct listing l = {.w = w};
    struct hf_err err;
    size_t want = 0;
    expect_rc(hf_store_list(w->b.store, NULL, "job/data/", see_object, &l, &err), HF_OK, &err);
    for (size_t i = 0; i < w->m.n_objects; i++) {
        const struct rm_object *o = &w->m.objects[i];
        want += o->there ? 1 : 0;
        for (size_t k = 0; k < w->m.n_ckpts; k++) {
            if (!o->there && !o->harmed && rm_live(&w->m.ckpts[k]) && rm_needs(&w->m.ckpts[k], i)) {
                fail_msg("'%s' is gone, and %u-%u needs it", w->keys[i], w->m.ckpts[k].attempt,
                         w->m.ckpts[k].number);
            }
        }
    }
    assert_int_equal(l.n, want);
}

static bool see_row(void *user, const struct hf_lineage_row *row)
{
    struct listing *l = user;
    assert_true(l->n < l->w->m.n_ckpts);
    const struct rm_ckpt *k = &l->w->m.ckpts[l->n++];
    bool kind = row->damaged || row->decision->kind == k->kind;
    if (row->attempt != k->attempt || row->number != k->number || !kind ||
        row->damaged != k->garbled || row->retired != k->retired) {
        fail_msg("%u-%u is listed where %u-%u should be, or otherwise", row->attempt, row->number,
                 k->attempt, k->number);
    }
    return true;
}

static void records_agree(struct rw *w)
{
    struct listing l = {.w = w};
    struct hf_err err;
    uint32_t top = 0;
    expect_rc(hf_lineage_walk(&w->b.run, NULL, see_row, &l, &err), HF_OK, &err);
    assert_int_equal(l.n, w->m.n_ckpts);
    expect_rc(hf_lineage_top(&w->b.run, NULL, &top, &err), HF_OK, &err);
    assert_int_equal(top, w->m.top);
    for (size_t i = 0; i < w->m.n_ckpts; i++) {
        const struct rm_ckpt *k = &w->m.ckpts[i];
        enum hf_pin_state state = HF_PIN_NONE;
        uint32_t n = 0;
        expect_rc(hf_pin_get(&w->b.run, NULL, k->attempt, k->number, &state, &n, &err), HF_OK,
                  &err);
        assert_int_equal(state, k->pin);
        assert_int_equal(n, k->pins);
    }
}

/* Any manifest that stands verifies, or does not, as the model says; the newest good one, without
 * a claim, comes back byte for byte. */
void rw_restores_agree(struct rw *w)
{
    struct rm_ckpt *good = rm_newest_good(&w->m);
    struct rm_ckpt *any = w->m.n_ckpts > 0 ? &w->m.ckpts[rw_roll(w, w->m.n_ckpts)] : NULL;
    struct rm_ckpt *both[] = {good, any};
    for (size_t i = 0; i < HF_COUNT(both); i++) {
        struct hf_decision d;
        struct hf_err err;
        struct hf_restore_report report = {.bytes = 0};
        uint64_t bytes = 0;
        if (both[i] == NULL || !rm_live(both[i])) {
            continue;
        }
        expect_rc(
            hf_lineage_get_decision(&w->b.run, NULL, both[i]->attempt, both[i]->number, &d, &err),
            HF_OK, &err);
        enum hf_rc want = rm_good(&w->m, both[i]) ? HF_OK : HF_ECORRUPT;
        expect_rc(hf_verify(&w->b.run, NULL, &d.manifest, &bytes, &err), want, &err);
        if (both[i] == good) {
            expect_rc(hf_remove_all(w->root, &err), HF_OK, &err);
            expect_rc(hf_restore(&w->b.run, NULL, &d.manifest, &report, &err), HF_OK, &err);
            hf_restore_report_release(&report);
            assert_true(rw_disk_is(w, &good->content));
        }
        hf_decision_release(&d);
    }
}

void rw_agrees(struct rw *w)
{
    blocks_agree(w);
    records_agree(w);
}
