/* SPDX-License-Identifier: Apache-2.0
 *
 * Removing by hand: marks first, then a look at all that stands now, then blocks go. An attempt
 * that starts at the same moment was either claimed before that look, which then keeps what it
 * builds upon, or chooses after it, and sees the marks. Worker threads, or a command's main thread.
 */
#include "base/prelude.h"

#include <stdlib.h>

#include "checkpoint/holdings.h"
#include "checkpoint/objects.h"
#include "checkpoint/pin.h"
#include "checkpoint/prune.h"

void hf_prune_report_release(struct hf_prune_report *r)
{
    hf_free(r->items);
    *r = (struct hf_prune_report){.len = 0};
}

/* Its newest checkpoint, damaged or not: its supervisor knows what it had committed. */
static const struct hf_retain_row *newest_own(const struct hf_holdings *h, uint32_t attempt)
{
    for (size_t i = h->len; i-- > 0 && h->rows[i].attempt == attempt;) {
        if (h->rows[i].manifest && !h->rows[i].retired) {
            return &h->rows[i];
        }
    }
    return NULL;
}

/* What the highest attempt, if it may be running, builds its next checkpoint upon. *ret 0-0:
 * nothing. */
static enum hf_rc find_parent(struct hf_holdings *h, struct hf_ckpt_id *ret, struct hf_err *err)
{
    *ret = (struct hf_ckpt_id){.attempt = 0};
    if (h->top == 0 || h->tails[h->top - 1].over) {
        return HF_OK;
    }
    struct hf_claim claim;
    bool damaged = false;
    HF_TRY(hf_lineage_need_claim(h->run, h->call, h->top, &claim, &damaged, err));
    bool runs = claim.kind == HF_CLAIM_RUN;
    hf_claim_release(&claim);
    if (!runs) {
        return HF_OK;
    }
    const struct hf_retain_row *own = newest_own(h, h->top);
    if (own != NULL) {
        *ret = (struct hf_ckpt_id){.attempt = own->attempt, .number = own->number};
        return HF_OK;
    }
    struct hf_base base;
    struct hf_err why;
    enum hf_rc rc = hf_lineage_get_base(h->run, h->call, h->top, &base, &why);
    if (rc == HF_ENOTFOUND || rc == HF_ECORRUPT) {
        rc = hf_fail(err, HF_EAGAIN, "attempt %u has not said yet which checkpoint it goes on from",
                     h->top);
        return hf_hint(err, rc, "Ask again once it has saved, or has ended.");
    }
    if (rc != HF_OK) {
        return hf_err_give(err, &why);
    }
    *ret = (struct hf_ckpt_id){.attempt = base.attempt, .number = base.number};
    return hf_holdings_keep(h, base.attempt, base.number, err);
}

static bool is(const struct hf_retain_row *r, uint32_t attempt, uint32_t number)
{
    return r->attempt == attempt && r->number == number;
}

static enum hf_rc check_one(const struct hf_prune_in *in, const struct hf_holdings *h,
                            const struct hf_retain_row *r, const struct hf_ckpt_id *parent,
                            struct hf_err *err)
{
    if (is(r, parent->attempt, parent->number)) {
        enum hf_rc rc = hf_fail(err, HF_EDENIED, "attempt %u builds upon checkpoint %u-%u", h->top,
                                r->attempt, r->number);
        return hf_hint(err, rc, "Stop the run first, or wait for its next checkpoint.");
    }
    enum hf_pin_state pin = HF_PIN_NONE;
    uint32_t n = 0;
    HF_TRY(hf_pin_get(h->run, h->call, r->attempt, r->number, &pin, &n, err));
    if (pin == HF_PIN_PINNED) {
        enum hf_rc rc =
            hf_fail(err, HF_EDENIED, "checkpoint %u-%u is pinned", r->attempt, r->number);
        return hf_hint(err, rc, "'holdfast ckpt unpin %s %u-%u' first.", h->run->name, r->attempt,
                       r->number);
    }
    const struct hf_retain_row *last = hf_holdings_last_good(h);
    if (last == r && !in->even_last) {
        enum hf_rc rc = hf_fail(err, HF_EDENIED, "checkpoint %u-%u is the last good one",
                                r->attempt, r->number);
        return hf_hint(err, rc, "--even-last removes it all the same.");
    }
    return HF_OK;
}

/* Nothing is marked here: a refusal leaves all as it was. */
static enum hf_rc check_ids(const struct hf_prune_in *in, struct hf_holdings *h,
                            const struct hf_ckpt_id *parent, struct hf_err *err)
{
    for (size_t i = 0; i < in->n_ids; i++) {
        struct hf_retain_row *r = hf_holdings_row(h, in->ids[i].attempt, in->ids[i].number);
        if (r == NULL || !r->manifest) {
            return hf_fail(err, HF_ENOTFOUND, "there is no checkpoint %u-%u", in->ids[i].attempt,
                           in->ids[i].number);
        }
        r->retire = !r->retired || r->damaged;
        if (r->retire) {
            HF_TRY(check_one(in, h, r, parent, err));
        }
    }
    return HF_OK;
}

static void count(const struct hf_holdings *h, struct hf_prune_report *r)
{
    r->items = hf_calloc(h->n_doomed, sizeof(*r->items));
    size_t at = 0; /* a listing mostly stays in one folder */
    for (size_t i = 0; i < h->n_doomed; i++) {
        const struct hf_doomed *d = &h->doomed[i];
        bool same =
            at < r->len && r->items[at].attempt == d->attempt && r->items[at].number == d->number;
        at = same ? at : 0;
        while (at < r->len &&
               !(r->items[at].attempt == d->attempt && r->items[at].number == d->number)) {
            at++;
        }
        if (at == r->len) {
            r->items[r->len++] = (struct hf_pruned){.attempt = d->attempt, .number = d->number};
        }
        r->items[at].blocks++;
        r->items[at].bytes += d->bytes;
        r->blocks++;
        r->bytes += d->bytes;
    }
}

static int by_id(const void *a, const void *b)
{
    const struct hf_pruned *x = a;
    const struct hf_pruned *y = b;
    if (x->attempt != y->attempt) {
        return x->attempt < y->attempt ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

static enum hf_rc look(struct hf_holdings *h, struct hf_ckpt_id *parent, struct hf_err *err)
{
    HF_TRY(hf_holdings_read(h, true, err));
    return find_parent(h, parent, err);
}

/* What is given up need not be readable: nobody waits for what it may name. */
static void give_up(const struct hf_prune_in *in, const struct hf_holdings *h)
{
    for (size_t i = 0; i < in->n_ids; i++) {
        struct hf_retain_row *r = hf_holdings_row(h, in->ids[i].attempt, in->ids[i].number);
        if (r != NULL && r->damaged) {
            r->retired = true;
        }
    }
}

static enum hf_rc retire(const struct hf_prune_in *in, const struct hf_call *c, struct hf_err *err)
{
    struct hf_holdings h = {.run = in->run, .call = c};
    struct hf_ckpt_id parent;
    enum hf_rc rc = look(&h, &parent, err);
    if (rc == HF_OK) {
        give_up(in, &h);
        rc = hf_holdings_list(&h, err); /* tells which is whole */
    }
    if (rc == HF_OK) {
        rc = check_ids(in, &h, &parent, err);
    }
    if (rc == HF_OK) {
        rc = hf_holdings_mark(&h, err);
    }
    hf_holdings_release(&h);
    return rc;
}

static enum hf_rc sweep(const struct hf_prune_in *in, const struct hf_call *c,
                        struct hf_prune_report *report, struct hf_err *err)
{
    struct hf_holdings h = {.run = in->run, .call = c};
    struct hf_ckpt_id parent;
    enum hf_rc rc = look(&h, &parent, err);
    if (rc == HF_OK) {
        rc = hf_holdings_list(&h, err);
    }
    uint64_t removed = 0;
    if (rc == HF_OK) {
        count(&h, report);
        rc = in->dry_run ? HF_OK : hf_holdings_remove(&h, &removed, err);
    }
    hf_holdings_release(&h);
    if (rc == HF_OK && report->len > 1) {
        qsort(report->items, report->len, sizeof(*report->items), by_id);
    }
    return rc;
}

enum hf_rc hf_prune(const struct hf_prune_in *in, const struct hf_call *c,
                    struct hf_prune_report *ret, struct hf_err *err)
{
    struct hf_prune_report report = {.len = 0};
    if (in->n_ids > 0) {
        HF_TRY(retire(in, c, err));
    }
    enum hf_rc rc = sweep(in, c, &report, err);
    if (rc != HF_OK) {
        hf_prune_report_release(&report);
        return rc;
    }
    *ret = report;
    return HF_OK;
}
