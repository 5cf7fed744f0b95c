/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: a plan, marks, and then the deleting of blocks that no live manifest names. Worker
 * threads. The order is the safety: marks first, then every live manifest is read, then blocks
 * go; decisions and marks are never deleted.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/objects.h"
#include "checkpoint/record.h"
#include "checkpoint/retain.h"

static bool is_live(const struct hf_retain_row *r)
{
    return r->manifest && !r->retired;
}

size_t hf_retain_plan(struct hf_retain_row *rows, size_t n, int64_t keep)
{
    size_t marked = 0;
    int64_t kept = 0;
    uint32_t last_attempt = 0;
    unsigned attempts = 0;
    for (size_t i = n; i-- > 0;) {
        rows[i].retire = false;
        if (!is_live(&rows[i])) {
            continue;
        }
        bool newest = attempts == 0 || rows[i].attempt != last_attempt;
        if (newest) {
            last_attempt = rows[i].attempt;
            attempts++;
        }
        if (keep <= 0 || kept < keep || (newest && attempts <= 2)) {
            kept++;
            continue;
        }
        rows[i].retire = true;
        marked++;
    }
    return marked;
}

/* All that is known of the run while blocks are looked for. */
struct keeping {
    const struct hf_run *run;
    const struct hf_call *call;
    const struct hf_claim *mine;
    struct hf_retain_row *rows;    /* of every attempt, ascending */
    struct hf_manifest *manifests; /* of each row; empty where it is none, or retired */
    size_t len, room;
    size_t own_end; /* rows of attempts up to mine */
    struct mark {
        uint32_t attempt, number;
    } * marks; /* retired ones, as listed, sorted */
    size_t n_marks, marks_room;
    const struct hf_block **live; /* sorted by place and id */
    size_t n_live;
    struct hf_strv doomed; /* keys to be removed */
};

static int by_number(const void *a, const void *b)
{
    const struct mark *x = a;
    const struct mark *y = b;
    if (x->attempt != y->attempt) {
        return x->attempt < y->attempt ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool see_mark(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct keeping *k = user;
    static const char tail[] = ".retired.json";
    size_t len = strlen(key);
    if (len < sizeof(tail) || strcmp(key + len - sizeof(tail) + 1, tail) != 0) {
        return true;
    }
    HF_CLEANUP(hf_freep)
    char *plain = hf_asprintf("%.*s.json", (int)(len - sizeof(tail) + 1), key);
    struct mark m = {.attempt = 0};
    if (!hf_key_read_decision(plain, k->run->name, &m.attempt, &m.number)) {
        return true;
    }
    if (k->n_marks == k->marks_room) {
        k->marks_room = k->marks_room > 0 ? 2 * k->marks_room : 64;
        k->marks = hf_realloc(k->marks, k->marks_room * sizeof(struct mark));
    }
    k->marks[k->n_marks++] = m;
    return true;
}

/* A mark that a listing shows is there; one that it does not show only makes us keep more. */
static enum hf_rc list_marks(struct keeping *k, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *prefix = hf_asprintf("%s/checkpoints/", k->run->name);
    HF_TRY(hf_store_list(k->run->store, k->call, prefix, see_mark, k, err));
    if (k->n_marks > 1) {
        qsort(k->marks, k->n_marks, sizeof(struct mark), by_number);
    }
    return HF_OK;
}

static enum hf_rc add_row(struct keeping *k, uint32_t attempt, uint32_t number, struct hf_err *err)
{
    if (k->len == k->room) {
        k->room = k->room > 0 ? 2 * k->room : 64;
        k->rows = hf_realloc(k->rows, k->room * sizeof(struct hf_retain_row));
        k->manifests = hf_realloc(k->manifests, k->room * sizeof(struct hf_manifest));
    }
    struct hf_retain_row row = {.attempt = attempt, .number = number};
    struct hf_manifest manifest = {.step = -1};
    struct mark here = {.attempt = attempt, .number = number};
    if (k->n_marks > 0 &&
        bsearch(&here, k->marks, k->n_marks, sizeof(struct mark), by_number) != NULL) {
        row.manifest = true;
        row.retired = true;
    } else {
        struct hf_decision d;
        HF_TRY(hf_lineage_get_decision(k->run, k->call, attempt, number, &d, err));
        row.manifest = d.kind == HF_DECISION_MANIFEST;
        manifest = d.manifest; /* all that d owns */
    }
    k->rows[k->len] = row;
    k->manifests[k->len++] = manifest;
    return HF_OK;
}

static enum hf_rc read_rows(struct keeping *k, struct hf_err *err)
{
    uint32_t highest = 0;
    struct hf_claim claim;
    HF_TRY(hf_lineage_highest(k->run, k->call, &highest, &claim, err));
    hf_claim_release(&claim);
    for (uint32_t a = 1; a <= highest; a++) {
        uint32_t end = 0;
        bool sealed = false;
        HF_TRY(hf_lineage_next_number(k->run, k->call, a, &end, &sealed, err));
        end += sealed ? 1 : 0;
        for (uint32_t n = 1; n < end; n++) {
            HF_TRY(add_row(k, a, n, err));
        }
        if (a <= k->mine->attempt) {
            k->own_end = k->len;
        }
    }
    return HF_OK;
}

static enum hf_rc check_not_over(const struct keeping *k, struct hf_err *err)
{
    bool over = false;
    HF_TRY(hf_lineage_superseded(k->run, k->call, k->mine->attempt, &over, err));
    return over ? hf_fail(err, HF_EEXISTS, "attempt %u was taken over", k->mine->attempt) : HF_OK;
}

static bool committed_something(const struct keeping *k)
{
    for (size_t i = 0; i < k->own_end; i++) {
        if (k->rows[i].attempt == k->mine->attempt && is_live(&k->rows[i])) {
            return true;
        }
    }
    return false;
}

static enum hf_rc put_marks(struct keeping *k, struct hf_err *err)
{
    for (size_t i = 0; i < k->own_end; i++) {
        struct hf_retain_row *r = &k->rows[i];
        if (!r->retire) {
            continue;
        }
        cJSON *json = hf_record_new("retired");
        hf_json_add_int(json, "attempt", r->attempt);
        hf_json_add_int(json, "number", r->number);
        HF_CLEANUP(hf_freep) char *text = hf_record_print(json);
        char key[HF_KEY_MAX];
        struct hf_span data = {.ptr = text, .len = strlen(text)};
        enum hf_rc rc = hf_store_create(k->run->store, k->call,
                                        hf_key_retired(key, k->run->name, r->attempt, r->number),
                                        data, NULL, err);
        if (rc != HF_OK && rc != HF_EEXISTS) {
            return rc;
        }
        r->retired = true;
    }
    return HF_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct hf_block *const *x = a;
    const struct hf_block *const *y = b;
    int order = strcmp((*x)->where, (*y)->where);
    return order != 0 ? order : strcmp((*x)->id, (*y)->id);
}

static void collect_live(struct keeping *k)
{
    size_t n = 0;
    for (size_t i = 0; i < k->len; i++) {
        n += is_live(&k->rows[i]) ? k->manifests[i].n_blocks : 0;
    }
    k->live = hf_calloc(n, sizeof(*k->live));
    for (size_t i = 0; i < k->len; i++) {
        for (uint32_t b = 0; is_live(&k->rows[i]) && b < k->manifests[i].n_blocks; b++) {
            k->live[k->n_live++] = &k->manifests[i].blocks[b];
        }
    }
    if (n > 1) {
        qsort(k->live, n, sizeof(*k->live), by_place);
    }
}

static bool is_named(const struct keeping *k, const struct hf_block *b)
{
    return k->n_live > 0 && bsearch(&b, k->live, k->n_live, sizeof(*k->live), by_place) != NULL;
}

/* May blocks below data/NNNNNN-NNNNNN-... go, as far as nobody names them? */
static bool is_over(const struct keeping *k, uint32_t attempt, uint32_t number)
{
    size_t lo = 0, hi = k->own_end;
    struct mark want = {.attempt = attempt, .number = number};
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        struct mark here = {.attempt = k->rows[mid].attempt, .number = k->rows[mid].number};
        int order = by_number(&here, &want);
        if (order == 0) {
            return !is_live(&k->rows[mid]);
        }
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return false;
}

static bool see_block(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct keeping *k = user;
    struct hf_block b;
    uint32_t attempt = 0;
    uint32_t number = 0;
    if (!hf_key_read_block(key, k->run->name, &attempt, &number, &b)) {
        return true; /* not ours: let it lie */
    }
    if (is_over(k, attempt, number) && !is_named(k, &b)) {
        hf_strv_add(&k->doomed, key);
    }
    return true;
}

static enum hf_rc remove_blocks(struct keeping *k, uint64_t *ret_removed, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *prefix = hf_asprintf("%s/data/", k->run->name);
    HF_TRY(hf_store_list(k->run->store, k->call, prefix, see_block, k, err));
    HF_TRY(check_not_over(k, err));
    for (size_t i = 0; i < k->doomed.len; i++) {
        HF_TRY(hf_store_remove(k->run->store, k->call, k->doomed.items[i], err));
        (*ret_removed)++;
    }
    return HF_OK;
}

static enum hf_rc retain(struct keeping *k, int64_t keep, uint64_t *ret_removed, struct hf_err *err)
{
    HF_TRY(check_not_over(k, err));
    HF_TRY(list_marks(k, err));
    HF_TRY(read_rows(k, err));
    if (!committed_something(k)) {
        return HF_OK;
    }
    size_t marked = hf_retain_plan(k->rows, k->own_end, keep);
    if (marked > 0) {
        HF_TRY(put_marks(k, err));
    }
    collect_live(k);
    return remove_blocks(k, ret_removed, err);
}

enum hf_rc hf_retain(const struct hf_run *run, const struct hf_call *c, const struct hf_claim *mine,
                     int64_t keep, uint64_t *ret_removed, struct hf_err *err)
{
    struct keeping k = {.run = run, .call = c, .mine = mine};
    uint64_t removed = 0;
    enum hf_rc rc = retain(&k, keep, &removed, err);
    for (size_t i = 0; i < k.len; i++) {
        hf_manifest_release(&k.manifests[i]);
    }
    hf_free(k.rows);
    hf_free(k.manifests);
    hf_free(k.marks);
    hf_free(k.live);
    hf_strv_clear(&k.doomed);
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "retention");
    }
    *ret_removed = removed;
    return HF_OK;
}
