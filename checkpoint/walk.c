/* SPDX-License-Identifier: Apache-2.0
 *
 * A walk over every decision of a run, for listings. Worker threads; one decision in memory at a
 * time.
 */
#include "base/prelude.h"

#include "checkpoint/objects.h"
#include "checkpoint/record.h"

/* Reads one decision into the row; damage is shown, not returned. */
static enum hf_rc read_row(const struct hf_run *run, const struct hf_call *c,
                           struct hf_lineage_row *row, struct hf_decision *d, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, HF_DECISION_MAX);
    enum hf_rc rc =
        hf_obj_get(run, c, hf_key_decision(key, run->name, row->attempt, row->number), &text, err);
    row->stored_bytes = text.len;
    *d = (struct hf_decision){.kind = HF_DECISION_ABORT};
    if (rc == HF_OK || rc == HF_EFULL || rc == HF_ENOTFOUND || rc == HF_ECORRUPT) {
        row->damaged = rc != HF_OK || hf_record_check_sum(hf_buf_span(&text), NULL) != HF_OK ||
                       hf_decision_parse(hf_buf_span(&text), d, NULL) != HF_OK;
        rc = HF_OK;
    }
    if (row->damaged) {
        *d = (struct hf_decision){.kind = HF_DECISION_ABORT};
    }
    hf_buf_release(&text);
    row->decision = d;
    row->retired = hf_lineage_is_retired(run, c, row->attempt, row->number);
    return rc;
}

static enum hf_rc walk_attempt(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                               hf_lineage_row_fn *each, void *user, bool *ret_more,
                               struct hf_err *err)
{
    uint32_t end = 0;
    bool sealed = false;
    HF_TRY(hf_lineage_next_number(run, c, attempt, &end, &sealed, err));
    end += sealed ? 1 : 0;
    for (uint32_t n = 1; n < end && *ret_more; n++) {
        struct hf_lineage_row row = {.attempt = attempt, .number = n};
        struct hf_decision d;
        HF_TRY(read_row(run, c, &row, &d, err));
        *ret_more = each(user, &row);
        hf_decision_release(&d);
    }
    return HF_OK;
}

enum hf_rc hf_lineage_walk(const struct hf_run *run, const struct hf_call *c,
                           hf_lineage_row_fn *each, void *user, struct hf_err *err)
{
    uint32_t highest = 0;
    HF_TRY(hf_lineage_top(run, c, &highest, err));
    bool more = true;
    for (uint32_t a = 1; a <= highest && more; a++) {
        HF_TRY(walk_attempt(run, c, a, each, user, &more, err));
    }
    return HF_OK;
}
