/* SPDX-License-Identifier: Apache-2.0
 *
 * Restoring for a claimed attempt: seal, choose, verify, exchange, and back along the lineage
 * past what is damaged. Worker thread. A store that fails says nothing about a checkpoint: it
 * is asked again.
 */
#include "base/prelude.h"

#include "base/hash.h"
#include "base/retry.h"
#include "supervisor/handoff.h"

#define CLAIMS_NOTED 100 /* attempts that are looked at for a warning */

void hf_restored_release(struct hf_restored *r)
{
    hf_manifest_release(&r->manifest);
    hf_restore_report_release(&r->report);
    hf_strv_clear(&r->damaged);
    hf_strv_clear(&r->claims);
}

/* Notes a damaged checkpoint, so that an older one is looked for; first whether it is still ours to
 * judge. A sentence that is noted already is about something else, which no step back passes. */
static enum hf_rc note_damage(const struct hf_run *run, const struct hf_call *c,
                              const struct hf_claim *mine, struct hf_restored *ret,
                              char *what_taken, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *what = what_taken;
    bool superseded = false;
    HF_TRY(hf_lineage_superseded(run, c, mine->attempt, &superseded, err));
    if (superseded) {
        return hf_fail(err, HF_EEXISTS, "attempt %u is superseded", mine->attempt);
    }
    if (hf_strv_has(&ret->damaged, what)) {
        return hf_fail(err, HF_ECORRUPT, "%s", what);
    }
    hf_strv_add(&ret->damaged, what);
    return HF_OK;
}

static enum hf_rc one_round(const struct hf_run *run, const struct hf_call *c,
                            const struct hf_claim *mine, struct hf_restored *ret,
                            struct hf_err *err)
{
    for (;;) {
        struct hf_manifest m = {0};
        char *what = NULL;
        enum hf_rc rc = hf_lineage_choose(run, c, mine, (uint32_t)ret->damaged.len, &m, err);
        if (rc == HF_ENOTFOUND) {
            return HF_OK;
        }
        if (rc == HF_ECORRUPT) {
            what = hf_asprintf("a checkpoint cannot be read (%s)", err->msg);
        } else {
            HF_TRY(rc);
            rc = hf_restore(run, c, &m, &ret->report, err);
            if (rc == HF_OK) {
                ret->any = true;
                ret->manifest = m;
                return HF_OK;
            }
            what = hf_asprintf("checkpoint %u-%u is damaged (%s)", m.attempt, m.number, err->msg);
            hf_manifest_release(&m);
            hf_restore_report_release(&ret->report);
            ret->report = (struct hf_restore_report){0};
        }
        if (rc != HF_ECORRUPT) {
            hf_free(what);
            return rc;
        }
        HF_TRY(note_damage(run, c, mine, ret, what, err));
    }
}

/* Which claims could not be read, from ours down to the attempt whose checkpoint was taken. */
static enum hf_rc note_claims(const struct hf_run *run, const struct hf_call *c,
                              const struct hf_claim *mine, struct hf_restored *ret,
                              struct hf_err *err)
{
    uint32_t last = ret->any ? ret->manifest.attempt : 1;
    for (uint32_t a = mine->attempt - 1, n = 0; a >= last && n < CLAIMS_NOTED; a--, n++) {
        struct hf_claim claim = {0};
        bool damaged = false;
        HF_TRY(hf_lineage_need_claim(run, c, a, &claim, &damaged, err));
        hf_claim_release(&claim);
        if (damaged) {
            hf_strv_take(&ret->claims,
                         hf_asprintf("the claim of attempt %u is damaged: what its other records "
                                     "tell of it has to do",
                                     a));
        }
    }
    return HF_OK;
}

enum hf_rc hf_handoff_restore(const struct hf_run *run, const struct hf_call *c,
                              const struct hf_claim *mine, struct hf_restored *ret,
                              struct hf_err *err)
{
    *ret = (struct hf_restored){0};
    struct hf_err local = {0};
    struct hf_retry retry = {.base_ms = 200, .cap_ms = 10000, .tries = 8};
    for (;;) {
        enum hf_rc rc = hf_lineage_seal(run, c, mine, &local);
        if (rc == HF_OK && !mine->fresh) {
            rc = one_round(run, c, mine, ret, &local);
        }
        if (rc == HF_OK && !mine->fresh) {
            rc = note_claims(run, c, mine, ret, &local);
        }
        if (rc == HF_OK) {
            rc = hf_lineage_put_base(run, c, mine, ret->any ? &ret->manifest : NULL, &local);
        }
        uint32_t delay = 0;
        if (rc == HF_OK) {
            return HF_OK;
        }
        hf_restored_release(ret);
        *ret = (struct hf_restored){0};
        if (!hf_retry_next(&retry, &local, hf_random_u64(), hf_now_ns(), c->deadline_ns, &delay) ||
            hf_call_wait(c, delay, NULL) != HF_OK) {
            if (err != NULL) {
                *err = local;
            }
            return rc;
        }
    }
}
