/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run holds. Decisions are read by GET; a listing of marks only saves reading what is
 * retired, and one that shows too little makes us keep more. Worker threads; decisions, pins and
 * marks are never deleted.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/crypt.h"
#include "checkpoint/holdings.h"
#include "checkpoint/objects.h"
#include "checkpoint/pin.h"
#include "checkpoint/record.h"

struct hf_seen_block {
    const struct hf_block *block;
    bool stored;
};

/* Retired ones, as listed. */
struct marks {
    const char *run;
    struct mark {
        uint32_t attempt, number;
    } * items;
    size_t len, room;
};

bool hf_row_is_live(const struct hf_retain_row *r)
{
    return r->manifest && !r->retired && !r->damaged;
}

static int order_of(uint32_t attempt, uint32_t number, uint32_t other_attempt,
                    uint32_t other_number)
{
    if (attempt != other_attempt) {
        return attempt < other_attempt ? -1 : 1;
    }
    return number < other_number ? -1 : number > other_number;
}

static int by_number(const void *a, const void *b)
{
    const struct mark *x = a;
    const struct mark *y = b;
    return order_of(x->attempt, x->number, y->attempt, y->number);
}

static bool see_mark(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct marks *m = user;
    static const char tail[] = ".retired.json";
    size_t len = strlen(key);
    if (len < sizeof(tail) || strcmp(key + len - sizeof(tail) + 1, tail) != 0) {
        return true;
    }
    HF_CLEANUP(hf_freep)
    char *plain = hf_asprintf("%.*s.json", (int)(len - sizeof(tail) + 1), key);
    struct mark one = {.attempt = 0};
    if (!hf_key_read_decision(plain, m->run, &one.attempt, &one.number)) {
        return true;
    }
    if (m->len == m->room) {
        m->room = m->room > 0 ? 2 * m->room : 64;
        m->items = hf_realloc(m->items, m->room * sizeof(struct mark));
    }
    m->items[m->len++] = one;
    return true;
}

static enum hf_rc list_marks(const struct hf_holdings *h, struct marks *m, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *prefix = hf_asprintf("%s/checkpoints/", h->run->name);
    HF_TRY(hf_store_list(h->run->store, h->call, prefix, see_mark, m, err));
    if (m->len > 1) {
        qsort(m->items, m->len, sizeof(struct mark), by_number);
    }
    return HF_OK;
}

/* Two looks prove damage. */
static enum hf_rc read_decision(const struct hf_holdings *h, struct hf_retain_row *row,
                                struct hf_manifest *ret, struct hf_err *err)
{
    struct hf_decision d = {.kind = HF_DECISION_ABORT, .manifest.step = -1};
    struct hf_err why;
    enum hf_rc rc = HF_ECORRUPT;
    for (int look = 0; look < 2 && (rc == HF_ECORRUPT || rc == HF_ENOTFOUND); look++) {
        rc = hf_lineage_get_decision(h->run, h->call, row->attempt, row->number, &d, &why);
    }
    row->damaged = rc == HF_ECORRUPT || rc == HF_ENOTFOUND;
    row->manifest = row->damaged || d.kind == HF_DECISION_MANIFEST;
    row->seal = !row->damaged && d.kind == HF_DECISION_SEAL;
    *ret = d.manifest; /* all that d owns */
    return rc == HF_OK || row->damaged ? HF_OK : hf_err_give(err, &why);
}

static enum hf_rc add_row(struct hf_holdings *h, const struct marks *marks, uint32_t attempt,
                          uint32_t number, struct hf_err *err)
{
    if (h->len == h->room) {
        h->room = h->room > 0 ? 2 * h->room : 64;
        h->rows = hf_realloc(h->rows, h->room * sizeof(struct hf_retain_row));
        h->manifests = hf_realloc(h->manifests, h->room * sizeof(struct hf_manifest));
    }
    struct hf_retain_row row = {.attempt = attempt, .number = number};
    struct hf_manifest manifest = {.step = -1};
    struct mark here = {.attempt = attempt, .number = number};
    if (marks->len > 0 &&
        bsearch(&here, marks->items, marks->len, sizeof(struct mark), by_number) != NULL) {
        row.manifest = true;
        row.retired = true;
    } else {
        HF_TRY(read_decision(h, &row, &manifest, err));
    }
    h->rows[h->len] = row;
    h->manifests[h->len++] = manifest;
    return HF_OK;
}

/* An end record is put when nothing of its attempt can come any more; what it says is another
 * matter. */
static enum hf_rc has_ended(const struct hf_holdings *h, uint32_t attempt, bool *ret,
                            struct hf_err *err)
{
    char key[HF_KEY_MAX];
    return hf_obj_exists(h->run, h->call, hf_key_end(key, h->run->name, attempt), ret, err);
}

static enum hf_rc read_attempt(struct hf_holdings *h, const struct marks *marks, uint32_t attempt,
                               bool ended, struct hf_err *err)
{
    uint32_t end = 0;
    struct hf_tail *tail = &h->tails[attempt - 1];
    HF_TRY(hf_lineage_next_number(h->run, h->call, attempt, &end, &tail->over, err));
    end += tail->over ? 1 : 0;
    tail->number = end;
    if (!tail->over && ended) {
        HF_TRY(has_ended(h, attempt, &tail->over, err));
        uint32_t again = 0;
        bool sealed = false; /* what came before the end was recorded has to be seen */
        HF_TRY(hf_lineage_next_number(h->run, h->call, attempt, &again, &sealed, err));
        end = sealed ? again + 1 : again;
        tail->number = end;
    }
    for (uint32_t n = 1; n < end; n++) {
        HF_TRY(add_row(h, marks, attempt, n, err));
    }
    return HF_OK;
}

enum hf_rc hf_holdings_read(struct hf_holdings *h, bool ended, struct hf_err *err)
{
    HF_TRY(hf_lineage_top(h->run, h->call, &h->top, err));
    h->tails = hf_calloc(h->top, sizeof(struct hf_tail));
    struct marks marks = {.run = h->run->name};
    enum hf_rc rc = list_marks(h, &marks, err);
    for (uint32_t a = 1; a <= h->top && rc == HF_OK; a++) {
        rc = read_attempt(h, &marks, a, ended, err);
    }
    hf_free(marks.items);
    return rc;
}

static void forget_blocks(struct hf_holdings *h)
{
    for (size_t i = 0; i < h->n_doomed; i++) {
        hf_free(h->doomed[i].key);
    }
    hf_free(h->doomed);
    hf_free(h->seen);
    h->doomed = NULL;
    h->seen = NULL;
    h->n_doomed = h->doomed_room = h->n_seen = 0;
}

void hf_holdings_release(struct hf_holdings *h)
{
    for (size_t i = 0; i < h->len; i++) {
        hf_manifest_release(&h->manifests[i]);
    }
    forget_blocks(h);
    hf_free(h->rows);
    hf_free(h->manifests);
    hf_free(h->tails);
    *h = (struct hf_holdings){.run = h->run, .call = h->call};
}

struct hf_retain_row *hf_holdings_row(const struct hf_holdings *h, uint32_t attempt,
                                      uint32_t number)
{
    size_t lo = 0, hi = h->len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = order_of(h->rows[mid].attempt, h->rows[mid].number, attempt, number);
        if (order == 0) {
            return &h->rows[mid];
        }
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}

enum hf_rc hf_holdings_keep(struct hf_holdings *h, uint32_t attempt, uint32_t number,
                            struct hf_err *err)
{
    struct hf_retain_row *row = hf_holdings_row(h, attempt, number);
    if (row == NULL || !row->retired) {
        return HF_OK; /* not retired: it is kept anyway */
    }
    struct hf_manifest *m = &h->manifests[row - h->rows];
    HF_TRY(read_decision(h, row, m, err));
    row->retired = false; /* in this look alone */
    return HF_OK;
}

static enum hf_rc mark(const struct hf_holdings *h, const struct hf_retain_row *r,
                       struct hf_err *err)
{
    cJSON *json = hf_record_new("retired");
    hf_json_add_int(json, "attempt", r->attempt);
    hf_json_add_int(json, "number", r->number);
    HF_CLEANUP(hf_freep) char *text = hf_record_print(json);
    char key[HF_KEY_MAX];
    struct hf_span data = {.ptr = text, .len = strlen(text)};
    enum hf_rc rc = hf_obj_create(
        h->run, h->call, hf_key_retired(key, h->run->name, r->attempt, r->number), data, NULL, err);
    return rc == HF_EEXISTS ? HF_OK : rc;
}

enum hf_rc hf_holdings_mark(struct hf_holdings *h, struct hf_err *err)
{
    for (size_t i = 0; i < h->len; i++) {
        struct hf_retain_row *r = &h->rows[i];
        if (!r->retire) {
            continue;
        }
        bool closed = false;
        HF_TRY(hf_pin_close(h->run, h->call, r->attempt, r->number, &closed, err));
        r->pinned = !closed;
        r->retire = closed;
        if (closed) {
            HF_TRY(mark(h, r, err));
            r->retired = true;
        }
    }
    return HF_OK;
}

static int by_place(const struct hf_block *x, const struct hf_block *y)
{
    int order = strcmp(x->where, y->where);
    return order != 0 ? order : strcmp(x->id, y->id);
}

static int seen_by_place(const void *a, const void *b)
{
    const struct hf_seen_block *x = a;
    const struct hf_seen_block *y = b;
    return by_place(x->block, y->block);
}

/* The blocks of all live manifests, each once, sorted by place. */
static void collect_live(struct hf_holdings *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->len; i++) {
        n += hf_row_is_live(&h->rows[i]) ? h->manifests[i].n_blocks : 0;
    }
    h->seen = hf_calloc(n, sizeof(*h->seen));
    n = 0;
    for (size_t i = 0; i < h->len; i++) {
        for (uint32_t b = 0; hf_row_is_live(&h->rows[i]) && b < h->manifests[i].n_blocks; b++) {
            h->seen[n++].block = &h->manifests[i].blocks[b];
        }
    }
    if (n > 1) {
        qsort(h->seen, n, sizeof(*h->seen), seen_by_place);
    }
    for (size_t i = 0; i < n; i++) {
        if (h->n_seen == 0 || by_place(h->seen[h->n_seen - 1].block, h->seen[i].block) != 0) {
            h->seen[h->n_seen++] = h->seen[i];
        }
    }
}

static struct hf_seen_block *find_seen(const struct hf_holdings *h, const struct hf_block *b)
{
    struct hf_seen_block want = {.block = b};
    return h->n_seen == 0 ? NULL
                          : bsearch(&want, h->seen, h->n_seen, sizeof(*h->seen), seen_by_place);
}

/* May blocks below data/NNNNNN-NNNNNN-... go, as far as nobody names them? What a decided number
 * has uploaded and not named is left over of a try that failed; no other may name it either. */
static bool is_over(const struct hf_holdings *h, uint32_t attempt, uint32_t number)
{
    if (attempt == 0 || attempt > h->top) {
        return false;
    }
    const struct hf_retain_row *row = hf_holdings_row(h, attempt, number);
    const struct hf_tail *tail = &h->tails[attempt - 1];
    return row != NULL || (tail->over && number >= tail->number);
}

static bool see_block(void *user, const char *key, uint64_t bytes)
{
    struct hf_holdings *h = user;
    struct hf_block b;
    uint32_t attempt = 0;
    uint32_t number = 0;
    if (!hf_key_read_block(key, h->run->name, &attempt, &number, &b)) {
        return true; /* not ours: let it lie */
    }
    struct hf_seen_block *seen = find_seen(h, &b);
    if (seen != NULL) {
        seen->stored = bytes == hf_stored_len(h->run->crypt, seen->block->len);
        return true;
    }
    if (!is_over(h, attempt, number)) {
        return true;
    }
    if (h->n_doomed == h->doomed_room) {
        h->doomed_room = h->doomed_room > 0 ? 2 * h->doomed_room : 64;
        h->doomed = hf_realloc(h->doomed, h->doomed_room * sizeof(*h->doomed));
    }
    h->doomed[h->n_doomed++] = (struct hf_doomed){
        .key = hf_strdup(key), .bytes = bytes, .attempt = attempt, .number = number};
    return true;
}

static enum hf_rc list_blocks(struct hf_holdings *h, struct hf_err *err)
{
    forget_blocks(h);
    collect_live(h);
    HF_CLEANUP(hf_freep) char *prefix = hf_asprintf("%s/data/", h->run->name);
    return hf_store_list(h->run->store, h->call, prefix, see_block, h, err);
}

enum hf_rc hf_holdings_list(struct hf_holdings *h, struct hf_err *err)
{
    for (size_t i = 0; i < h->len; i++) {
        const struct hf_retain_row *r = &h->rows[i];
        if (r->damaged && !r->retired) {
            enum hf_rc rc = hf_fail(
                err, HF_ECORRUPT, "checkpoint %u-%u is damaged: nobody knows which blocks it needs",
                r->attempt, r->number);
            return hf_hint(err, rc,
                           "Nothing is removed before 'holdfast ckpt rm %s %u-%u' gives it up, or "
                           "newer ones have taken its place.",
                           h->run->name, r->attempt, r->number);
        }
    }
    return list_blocks(h, err);
}

static bool is_whole(const struct hf_holdings *h, const struct hf_retain_row *r)
{
    const struct hf_manifest *m = &h->manifests[r - h->rows];
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        const struct hf_seen_block *seen = find_seen(h, &m->blocks[i]);
        if (!hf_block_is_zero(&m->blocks[i]) && (seen == NULL || !seen->stored)) {
            return false;
        }
    }
    return hf_row_is_live(r);
}

struct hf_retain_row *hf_holdings_last_good(const struct hf_holdings *h)
{
    for (size_t i = h->len; i-- > 0;) {
        if (hf_row_is_live(&h->rows[i]) && is_whole(h, &h->rows[i])) {
            return &h->rows[i];
        }
    }
    return NULL;
}

enum hf_rc hf_holdings_spare_last(struct hf_holdings *h, struct hf_err *err)
{
    HF_TRY(list_blocks(h, err));
    struct hf_retain_row *last = hf_holdings_last_good(h);
    if (last != NULL) {
        last->retire = false;
    }
    return HF_OK;
}

enum hf_rc hf_holdings_remove(const struct hf_holdings *h, uint64_t *ret_removed,
                              struct hf_err *err)
{
    for (size_t i = 0; i < h->n_doomed; i++) {
        HF_TRY(hf_store_remove(h->run->store, h->call, h->doomed[i].key, err));
        (*ret_removed)++;
    }
    return HF_OK;
}
