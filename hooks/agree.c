/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of rank agreement as the supervisor applies them to what it has read from the control
 * file. Pure: no clock, no memory shared with anybody, no callback. tests/unit/test_agree.c
 * exhausts them together with the ranks' half.
 */
#include "base/prelude.h"

#include "hooks/agree.h"
#include "hooks/c/agree_step.h"

static enum hf_rc check_members(const struct hf_agree_view *view, struct hf_err *err)
{
    if (view->world == 0) {
        return hf_fail(err, HF_ECANCELED, "the ranks disagree about the number of ranks");
    }
    for (size_t i = 0; i < view->n_ranks; i++) {
        const struct hf_agree_rank *r = &view->ranks[i];
        if (r->done) {
            return hf_fail(err, HF_ECANCELED, "rank %u has finished its training", r->rank);
        }
        if (!r->alive) {
            return hf_fail(err, HF_ECANCELED, "rank %u has exited", r->rank);
        }
    }
    if (view->n_ranks != view->world) {
        return hf_fail(err, HF_ECANCELED, "only %zu of %u ranks have shaken hands", view->n_ranks,
                       view->world);
    }
    return HF_OK;
}

struct spread {
    int64_t low, high; /* of the published steps; -1: none was published */
    int64_t last;      /* the smallest known last step, -1: unknown */
    bool all_hold;     /* at `high` */
};

static struct spread measure(const struct hf_agree_view *view, uint32_t id)
{
    struct spread s = {.low = -1, .high = -1, .last = -1, .all_hold = true};
    for (size_t i = 0; i < view->n_ranks; i++) {
        const struct hf_agree_rank *r = &view->ranks[i];
        if (r->step >= 0 && (s.low < 0 || r->step < s.low)) {
            s.low = r->step;
        }
        s.high = r->step > s.high ? r->step : s.high;
        if (r->last >= 0 && (s.last < 0 || r->last < s.last)) {
            s.last = r->last;
        }
    }
    for (size_t i = 0; i < view->n_ranks; i++) {
        s.all_hold &= s.high >= 0 && view->ranks[i].hold == hfw_pack(HFW_RAISED, id, s.high);
    }
    return s;
}

enum hf_rc hf_agree_decide(const struct hf_agree_view *view, uint32_t id, int64_t *ret_target,
                           struct hf_err *err)
{
    HF_TRY(check_members(view, err));
    struct spread s = measure(view, id);
    if (s.high < 0) { /* the first boundary's number is the trainer's secret until it gets there */
        return hf_fail(err, HF_ECANCELED, "no rank has finished a step yet");
    }
    if (s.high > HFW_STEP_MAX - 2) {
        return hf_fail(err, HF_ECANCELED, "step %lld is too high a number", (long long)s.high);
    }
    int64_t target = s.high;
    if (!s.all_hold) {
        target += view->fenced ? 1 : 2;
    }
    if (s.last >= 0 && target > s.last) {
        return hf_fail(err, HF_ECANCELED, "step %lld would be the next, the last one is %lld",
                       (long long)target, (long long)s.last);
    }
    if (view->deadline_ns != 0 && view->step_ns != 0) {
        uint64_t left = view->deadline_ns > view->now_ns ? view->deadline_ns - view->now_ns : 0;
        if ((uint64_t)(s.high - s.low) > left / view->step_ns) {
            return hf_fail(err, HF_ECANCELED,
                           "the slowest rank is %lld steps behind, more than the time left allows",
                           (long long)(s.high - s.low));
        }
    }
    *ret_target = target;
    return HF_OK;
}

static enum hf_rc watch_one(const struct hf_agree_rank *r, uint32_t id, int64_t target,
                            struct hf_err *err)
{
    bool saved = r->saved == hfw_pack(HFW_TARGET, id, target);
    if (r->named_files) {
        return HF_OK;
    }
    if (r->gave_up == id) {
        return hf_fail(err, HF_ECANCELED, "rank %u stopped waiting for the decision", r->rank);
    }
    if (!r->alive && (!saved || !r->connected)) {
        return hf_fail(err, HF_ECANCELED, "rank %u exited before its save for step %lld", r->rank,
                       (long long)target);
    }
    if (r->done && !saved) {
        return hf_fail(err, HF_ECANCELED, "rank %u finished its training before step %lld", r->rank,
                       (long long)target);
    }
    if (r->step > target && !saved) {
        return hf_fail(err, HF_ECANCELED, "rank %u went on past step %lld without saving", r->rank,
                       (long long)target);
    }
    return HF_EAGAIN;
}

enum hf_rc hf_agree_watch(const struct hf_agree_view *view, uint32_t id, int64_t target,
                          struct hf_err *err)
{
    enum hf_rc all = HF_OK;
    size_t missing = view->world > view->n_ranks ? view->world - view->n_ranks : 0;
    for (size_t i = 0; i < view->n_ranks; i++) {
        enum hf_rc one = watch_one(&view->ranks[i], id, target, err);
        if (one == HF_ECANCELED) {
            return one;
        }
        all = one == HF_EAGAIN ? HF_EAGAIN : all;
        missing += one == HF_EAGAIN;
    }
    if (view->world == 0 || view->n_ranks != view->world) {
        all = HF_EAGAIN;
    }
    if (all == HF_EAGAIN && view->deadline_ns != 0 && view->now_ns >= view->deadline_ns) {
        return hf_fail(err, HF_ETIMEOUT, "%zu of %u ranks had not saved step %lld in time", missing,
                       view->world, (long long)target);
    }
    return all;
}
