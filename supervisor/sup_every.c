/* SPDX-License-Identifier: Apache-2.0
 *
 * --every auto: what earlier attempts of the run tell of notices, read once by a worker, and the
 * interval that follows from it and from what saves are measured to cost. Loop thread. Until
 * something is known the first guess stands; nothing here is ever waited for.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "supervisor/every.h"
#include "supervisor/sup.h"

#define ATTEMPTS_MAX 50 /* that are looked back at */
#define LIFE_MAX_MS  (INT64_C(7) * 24 * 3600 * 1000)

struct history {
    struct hf_sup *sup;
    struct hf_run run;
    uint32_t attempt; /* ours */
    uint64_t lived_ms;
    uint32_t notices;
};

/* An attempt whose end nobody recorded was taken without a notice. */
static enum hf_rc add_attempt(struct history *h, const struct hf_call *c, uint32_t attempt,
                              struct hf_err *err)
{
    struct hf_claim claim;
    struct hf_end end = {.at_wall_ms = 0};
    HF_TRY(hf_lineage_get_claim(&h->run, c, attempt, &claim, err));
    enum hf_rc rc = hf_lineage_get_end(&h->run, c, attempt, &end, err);
    bool known = rc == HF_OK;
    if (known || rc == HF_ENOTFOUND) {
        bool run = claim.kind == HF_CLAIM_RUN;
        int64_t lived = known ? end.at_wall_ms - claim.at_wall_ms : 0;
        lived = lived < 0 ? 0 : lived > LIFE_MAX_MS ? LIFE_MAX_MS : lived;
        h->lived_ms += run ? (uint64_t)lived : 0;
        h->notices += run && (!known || strcmp(end.outcome, "preempted") == 0);
    }
    hf_claim_release(&claim);
    hf_end_release(&end);
    return known || rc == HF_ENOTFOUND ? HF_OK : rc;
}

static enum hf_rc history_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct history *h = arg;
    struct hf_call c = {.op = op};
    uint32_t first = h->attempt > ATTEMPTS_MAX ? h->attempt - ATTEMPTS_MAX : 1;
    for (uint32_t a = first; a < h->attempt; a++) {
        HF_TRY(add_attempt(h, &c, a, err));
    }
    return HF_OK;
}

static void history_done(void *user, const struct hf_err *err)
{
    struct history *h = user;
    struct hf_sup *sup = h->sup;
    if (err == NULL) {
        sup->past_ms = h->lived_ms;
        sup->past_notices = h->notices;
        hf_sup_every_tune(sup);
    } else if (err->code != HF_ECANCELED) {
        hf_log_err(&sup->log, HF_LOG_DEBUG, err, "earlier attempts could not be looked at");
    }
    hf_free(h);
}

void hf_sup_every_learn(struct hf_sup *sup)
{
    if (!sup->every_auto) {
        return;
    }
    struct history *h = HF_NEW(struct history);
    h->sup = sup;
    h->run = sup->run;
    h->attempt = sup->at.claim.attempt;
    if (hf_pool_submit(sup->store_pool, &sup->scope, history_work, h, history_done, h, NULL,
                       NULL) != HF_OK) {
        hf_free(h);
    }
}

static void tell(struct hf_sup *sup, uint64_t cost_ms, uint64_t mean_ms)
{
    char every[HF_DURATION_STRLEN];
    char mean[HF_DURATION_STRLEN];
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "every_ms", (int64_t)sup->every_ms);
    hf_json_add_int(f, "cost_ms", (int64_t)cost_ms);
    hf_json_add_int(f, "mean_ms", (int64_t)mean_ms);
    hf_json_add_int(f, "notices", sup->past_notices);
    hf_event(&sup->events, sup->at.claim.attempt, "every", f);
    hf_log(&sup->log, HF_LOG_INFO,
           "a checkpoint is asked for every %s: one costs %" PRIu64
           " ms, and a notice is reckoned with every %s",
           hf_duration_format(sup->every_ms / 1000 * 1000, every), cost_ms,
           hf_duration_format(mean_ms / 60000 * 60000, mean));
}

void hf_sup_every_tune(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (!sup->every_auto || at->ship == NULL || hf_ship_committed(at->ship) == 0) {
        return;
    }
    uint64_t lived_ms = sup->past_ms + (hf_now_ns() - at->started_ns) / HF_MS;
    uint64_t mean_ms = hf_every_mean_ms(lived_ms, sup->past_notices);
    uint64_t cost_ms = hf_every_cost_ms(at->held_ms, at->ship_ms);
    uint64_t best_ms = hf_every_best_ms(cost_ms, mean_ms);
    if (!hf_every_differs(sup->every_ms, best_ms)) {
        return;
    }
    sup->every_ms = best_ms;
    tell(sup, cost_ms, mean_ms);
    hf_sup_status_changed(sup);
    hf_sup_every_start(sup);
}
