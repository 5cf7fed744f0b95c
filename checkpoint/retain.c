/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention: the plan of what goes, and its doing by the attempt that owns the run. Worker threads;
 * checkpoint/holdings.c has the steps.
 */
#include "base/prelude.h"

#include "checkpoint/holdings.h"

size_t hf_retain_plan(struct hf_retain_row *rows, size_t n, int64_t keep)
{
    size_t marked = 0;
    int64_t kept = 0;
    uint32_t last_attempt = 0;
    unsigned attempts = 0;
    for (size_t i = n; i-- > 0;) {
        rows[i].retire = false;
        if (rows[i].damaged && !rows[i].retired) {
            rows[i].retire = keep > 0 && kept >= keep;
            marked += rows[i].retire ? 1 : 0;
        }
        if (!hf_row_is_live(&rows[i])) {
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

static enum hf_rc check_not_over(const struct hf_holdings *h, const struct hf_claim *mine,
                                 struct hf_err *err)
{
    bool over = false;
    HF_TRY(hf_lineage_superseded(h->run, h->call, mine->attempt, &over, err));
    return over ? hf_fail(err, HF_EEXISTS, "attempt %u was taken over", mine->attempt) : HF_OK;
}

static bool committed_something(const struct hf_holdings *h, const struct hf_claim *mine)
{
    for (size_t i = h->len; i-- > 0;) {
        if (h->rows[i].attempt == mine->attempt && hf_row_is_live(&h->rows[i])) {
            return true;
        }
    }
    return false;
}

static enum hf_rc retain(struct hf_holdings *h, const struct hf_claim *mine, int64_t keep,
                         uint64_t *ret_removed, struct hf_err *err)
{
    HF_TRY(check_not_over(h, mine, err));
    HF_TRY(hf_holdings_read(h, false, err));
    if (!committed_something(h, mine)) {
        return HF_OK;
    }
    if (hf_retain_plan(h->rows, h->len, keep) > 0) {
        HF_TRY(check_not_over(h, mine, err)); /* else what is newer than ours was read too */
        HF_TRY(hf_holdings_spare_last(h, err));
        HF_TRY(hf_holdings_mark(h, err));
    }
    HF_TRY(hf_holdings_list(h, err));
    HF_TRY(check_not_over(h, mine, err));
    return hf_holdings_remove(h, ret_removed, err);
}

enum hf_rc hf_retain(const struct hf_run *run, const struct hf_call *c, const struct hf_claim *mine,
                     int64_t keep, uint64_t *ret_removed, struct hf_err *err)
{
    struct hf_holdings h = {.run = run, .call = c};
    uint64_t removed = 0;
    enum hf_rc rc = keep <= 0 ? HF_OK : retain(&h, mine, keep, &removed, err);
    hf_holdings_release(&h);
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "retention");
    }
    *ret_removed = removed;
    return HF_OK;
}
