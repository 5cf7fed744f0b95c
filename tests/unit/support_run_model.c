/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference model of a run: plain loops over plain arrays, after the words of the design.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/unit/support_run_model.h"

void rm_release(struct rm *m)
{
    for (uint32_t a = 1; a <= m->top; a++) {
        hf_claim_release(&m->attempts[a].claim);
        hf_manifest_release(&m->attempts[a].parent);
    }
    memset(m, 0, sizeof(*m));
}

static bool newer(const struct rm_ckpt *a, uint32_t attempt, uint32_t number)
{
    return a->attempt != attempt ? a->attempt > attempt : a->number > number;
}

struct rm_ckpt *rm_find(struct rm *m, uint32_t attempt, uint32_t number)
{
    for (size_t i = 0; i < m->n_ckpts; i++) {
        if (m->ckpts[i].attempt == attempt && m->ckpts[i].number == number) {
            return &m->ckpts[i];
        }
    }
    return NULL;
}

struct rm_ckpt *rm_decide(struct rm *m, uint32_t attempt, uint32_t number,
                          enum hf_decision_kind kind)
{
    assert_true(m->n_ckpts < RM_CKPTS);
    assert_null(rm_find(m, attempt, number));
    size_t at = m->n_ckpts++;
    for (; at > 0 && newer(&m->ckpts[at - 1], attempt, number); at--) {
        m->ckpts[at] = m->ckpts[at - 1];
    }
    m->ckpts[at] = (struct rm_ckpt){.attempt = attempt, .number = number, .kind = kind};
    return &m->ckpts[at];
}

uint32_t rm_free_number(struct rm *m, uint32_t attempt, uint32_t number)
{
    while (rm_find(m, attempt, number) != NULL) {
        number++;
    }
    return number;
}

bool rm_live(const struct rm_ckpt *k)
{
    return k->kind == HF_DECISION_MANIFEST && !k->garbled && !k->retired;
}

bool rm_good(const struct rm *m, const struct rm_ckpt *k)
{
    bool good = rm_live(k);
    for (size_t i = 0; i < k->n_refs; i++) {
        const struct rm_object *o = &m->objects[k->refs[i]];
        good = good && o->there && o->right;
    }
    return good;
}

bool rm_whole(const struct rm *m, const struct rm_ckpt *k)
{
    bool whole = rm_live(k);
    for (size_t i = 0; i < k->n_refs; i++) {
        const struct rm_object *o = &m->objects[k->refs[i]];
        whole = whole && o->there && o->full;
    }
    return whole;
}

bool rm_needs(const struct rm_ckpt *k, size_t object)
{
    for (size_t i = 0; i < k->n_refs; i++) {
        if (k->refs[i] == object) {
            return true;
        }
    }
    return false;
}

struct rm_ckpt *rm_newest_good(struct rm *m)
{
    size_t i = m->n_ckpts;
    while (i > 0 && !rm_good(m, &m->ckpts[i - 1])) {
        i--;
    }
    return i > 0 ? &m->ckpts[i - 1] : NULL;
}

struct rm_ckpt *rm_newest_whole(struct rm *m)
{
    size_t i = m->n_ckpts;
    while (i > 0 && !rm_whole(m, &m->ckpts[i - 1])) {
        i--;
    }
    return i > 0 ? &m->ckpts[i - 1] : NULL;
}

struct rm_ckpt *rm_older(struct rm *m, const struct hf_claim *mine, const struct rm_ckpt *than)
{
    uint32_t oldest = mine->fresh ? mine->attempt : 1;
    for (uint32_t a = 1; a < mine->attempt && !mine->fresh; a++) {
        oldest = m->attempts[a].claim.fresh ? a : oldest;
    }
    for (size_t i = than != NULL ? (size_t)(than - m->ckpts) : m->n_ckpts; i > 0; i--) {
        struct rm_ckpt *k = &m->ckpts[i - 1];
        if (k->attempt < mine->attempt && k->attempt >= oldest && !k->retired &&
            k->kind == HF_DECISION_MANIFEST) {
            return k;
        }
    }
    return NULL;
}

bool rm_retention_takes(struct rm *m, const struct rm_ckpt *k, int64_t keep)
{
    int64_t later = 0;      /* live ones that are newer */
    uint32_t above = 0;     /* attempts above that have a live one */
    bool newest_own = true; /* of its attempt */
    uint32_t last = 0;
    for (size_t i = 0; i < m->n_ckpts; i++) {
        const struct rm_ckpt *o = &m->ckpts[i];
        if (!rm_live(o) || !newer(o, k->attempt, k->number)) {
            continue;
        }
        later++;
        newest_own = newest_own && o->attempt != k->attempt;
        above += o->attempt != k->attempt && o->attempt != last ? 1 : 0;
        last = o->attempt;
    }
    if (keep <= 0 || k->kind != HF_DECISION_MANIFEST || k->retired || later < keep ||
        k == rm_newest_whole(m)) {
        return false;
    }
    return k->garbled || !(newest_own && above < 2);
}

struct rm_ckpt *rm_running_parent(struct rm *m, bool *ret_unknown)
{
    const struct rm_attempt *a = &m->attempts[m->top];
    *ret_unknown = false;
    if (m->top == 0 || a->claim.kind != HF_CLAIM_RUN || a->ended) {
        return NULL;
    }
    for (size_t i = m->n_ckpts; i > 0; i--) {
        struct rm_ckpt *k = &m->ckpts[i - 1];
        if (k->attempt == m->top && k->kind == HF_DECISION_MANIFEST && !k->retired) {
            return k;
        }
    }
    *ret_unknown = !a->has_base;
    return rm_find(m, a->base_attempt, a->base_number);
}

bool rm_object_is_waste(struct rm *m, size_t object, bool by_owner)
{
    const struct rm_object *o = &m->objects[object];
    const struct rm_attempt *a = &m->attempts[o->attempt];
    bool over = rm_find(m, o->attempt, o->number) != NULL || a->sealed || (!by_owner && a->ended);
    bool unknown = false;
    const struct rm_ckpt *parent = by_owner ? NULL : rm_running_parent(m, &unknown);
    if (!o->there || !over || (parent != NULL && rm_needs(parent, object))) {
        return false;
    }
    for (size_t i = 0; i < m->n_ckpts; i++) {
        if (rm_live(&m->ckpts[i]) && rm_needs(&m->ckpts[i], object)) {
            return false;
        }
    }
    return true;
}

size_t rm_object(const struct rm *m, uint32_t attempt, uint32_t number, struct rm_piece p)
{
    for (size_t i = 0; i < m->n_objects; i++) {
        const struct rm_object *o = &m->objects[i];
        if (o->attempt == attempt && o->number == number && o->piece.seed == p.seed &&
            o->piece.len == p.len) {
            return i;
        }
    }
    return RM_OBJECTS;
}

size_t rm_object_make(struct rm *m, uint32_t attempt, uint32_t number, struct rm_piece p)
{
    size_t at = rm_object(m, attempt, number, p);
    if (at == RM_OBJECTS) {
        assert_true(m->n_objects < RM_OBJECTS);
        at = m->n_objects++;
        m->objects[at] = (struct rm_object){.attempt = attempt, .number = number, .piece = p};
    }
    return at;
}

void rm_bytes(struct rm_piece p, unsigned char out[RM_BLOCK])
{
    uint32_t x = p.seed * 2654435761u;
    for (uint32_t i = 0; i < p.len; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = p.seed == 0 ? 0 : (unsigned char)(x >> 24);
    }
}

const char *rm_key(const struct rm *m, size_t object, char out[HF_KEY_MAX])
{
    const struct rm_object *o = &m->objects[object];
    unsigned char bytes[RM_BLOCK];
    char id[HF_ID_STRLEN];
    rm_bytes(o->piece, bytes);
    hf_sha256_hex((struct hf_span){.ptr = bytes, .len = o->piece.len}, id);
    snprintf(out, HF_KEY_MAX, "job/data/%06u-%06u-%.8s/%.2s/%s.raw", o->attempt, o->number,
             m->attempts[o->attempt].claim.nonce, id, id);
    return out;
}
