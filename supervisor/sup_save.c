/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves: when the trainer is asked, what it reports, and what the shipper says of it. Loop
 * thread. The trainer is never waited for here: everything is a callback.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/retain.h"
#include "supervisor/sup.h"
#include "supervisor/window.h"

#define EVERY_RETRY_MS 5000

/* ---- what the trainer says ---- */

/* What the command's own words did not tell before the start, the first handshake does. */
static void compare_world(struct hf_sup *sup, uint32_t world)
{
    uint32_t saved = sup->at.resume_world;
    sup->at.resume_world = 0;
    if (saved == 0 || saved == world || sup->at.adopted) {
        return;
    }
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "saved_by", saved);
    hf_json_add_int(f, "joined", world);
    hf_event(&sup->events, sup->at.claim.attempt, "world-differs", f);
    hf_log(&sup->log, HF_LOG_WARN,
           "the checkpoint that was restored is of %u rank%s, and %u train now: make sure that "
           "your program can load it",
           saved, saved == 1 ? "" : "s", world);
}

static void on_joined(void *user, uint32_t rank, uint32_t world, uint32_t life,
                      const char *framework)
{
    struct hf_sup *sup = user;
    sup->at.unprotected = false;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "rank", rank);
    hf_json_add_int(f, "world", world);
    hf_json_add_int(f, "life", life);
    hf_json_add_str(f, "framework", framework);
    hf_event(&sup->events, sup->at.claim.attempt, "joined", f);
    compare_world(sup, world);
    hf_sup_tick_soon(sup);
    hf_sup_status_changed(sup);
    hf_sup_note_outside(sup, rank);
}

static const char *ask_name(enum hf_ask ask)
{
    static const char *const names[] = {"own", "every", "hint", "notice", "window"};
    return names[ask];
}

static const char *reason_of(const struct hf_sup *sup, uint64_t request)
{
    if (sup->state == HF_JOB_HUNG && request != 0) {
        return "hang";
    }
    if (request == 0 || request != sup->at.request) {
        return sup->leaving.notice && request != 0 ? "notice" : "own";
    }
    bool became_final = sup->leaving.notice && sup->at.ask < HF_ASK_NOTICE;
    return ask_name(became_final ? HF_ASK_NOTICE : sup->at.ask);
}

/* The path that HOLDFAST_RESUME will name: the one that was saved, or the first of several. */
static struct hf_saved *saved_of_hook(struct hf_sup *sup, const struct hf_hook_save *h)
{
    struct hf_saved *s = HF_NEW(struct hf_saved);
    s->request = h->request;
    s->life = h->life;
    s->step = h->step;
    s->world = h->world;
    s->n_ranks = h->n_ranks;
    s->ranks = hf_calloc(h->n_ranks, sizeof(uint32_t));
    memcpy(s->ranks, h->ranks, h->n_ranks * sizeof(uint32_t));
    s->reason = hf_strdup(reason_of(sup, h->request));
    s->strategy = hf_strdup("hook");
    for (size_t i = 0; i < h->paths.len; i++) {
        hf_strv_add(&s->roots, h->paths.items[i]);
    }
    s->resume_path = hf_strdup(h->paths.items[0]);
    return s;
}

/* Ranks are held from the step at which they save; where they are beyond it already, that moment
 * is not known. */
static void measure(struct hf_sup *sup, const struct hf_hook_save *h)
{
    struct hf_attempt *at = &sup->at;
    if (h->request == 0 || h->request != at->request || at->asked_ns == 0) {
        return;
    }
    struct hf_hooks_status st;
    hf_hooks_get_status(at->hooks, &st);
    uint64_t now = hf_now_ns();
    bool there = st.step == h->step && st.step_changed_ns > at->asked_ns;
    at->capture_ms = (now - at->asked_ns) / HF_MS + 1;
    at->held_ms = (now - (there ? st.step_changed_ns : at->asked_ns)) / HF_MS + 1;
}

static void on_saved(void *user, const struct hf_hook_save *h)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "step", h->step);
    hf_json_add_int(f, "life", h->life);
    hf_json_add_int(f, "request", (int64_t)h->request);
    hf_json_add_int(f, "ranks", h->n_ranks);
    hf_event(&sup->events, at->claim.attempt, "saved", f);
    at->saves_seen++;
    /* Ranks that found their supervisor again repeat their last word. */
    if (at->ending.superseded || h->paths.len == 0 ||
        hf_ship_has(at->ship, h->life, h->request, h->step)) {
        return;
    }
    measure(sup, h);
    hf_hooks_set_newest(at->hooks, h->paths.items[0], h->step);
    hf_ship_add(at->ship, saved_of_hook(sup, h));
    hf_sup_disk_look(sup);
}

static void on_part(void *user, const struct hf_strv *paths)
{
    struct hf_sup *sup = user;
    if (!sup->at.ending.superseded) {
        hf_ship_early(sup->at.ship, paths);
    }
}

static const char *end_name(enum hf_request_end how)
{
    return how == HF_REQUEST_SAVED ? "saved" : how == HF_REQUEST_CANCELED ? "canceled" : "expired";
}

static void on_request_ended(void *user, uint64_t request, enum hf_request_end how, const char *why)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "request", (int64_t)request);
    hf_json_add_str(f, "how", end_name(how));
    hf_json_add_str(f, "why", why);
    hf_event(&sup->events, at->claim.attempt, "request-ended", f);
    enum hf_ask ask = at->ask;
    at->ask = HF_ASK_NONE;
    at->request = 0;
    if (how != HF_REQUEST_SAVED) {
        hf_ship_early_drop(at->ship); /* the parts that came never make a whole */
    }
    if (sup->state == HF_JOB_HUNG) {
        hf_sup_hang_answered(sup, how, why);
        return;
    }
    if (sup->state != HF_JOB_LEAVING) {
        if (how != HF_REQUEST_SAVED && ask != HF_ASK_NONE) {
            hf_log(&sup->log, HF_LOG_DEBUG, "the save was not made: %s", why);
        }
        return;
    }
    at->final_settled = true;
    if (at->window == HF_WINDOW_SECOND) {
        hf_sup_window_second_ended(sup, how == HF_REQUEST_SAVED, why);
    } else if (how == HF_REQUEST_SAVED) {
        hf_sup_window_first_saved(sup);
    } else {
        snprintf(at->save_why, sizeof(at->save_why), "%.*s", (int)sizeof(at->save_why) - 1, why);
        hf_log(&sup->log, HF_LOG_WARN, "%sthe training program did not save for the notice: %s",
               how == HF_REQUEST_EXPIRED ? "not acknowledged: " : "", why);
    }
    hf_sup_check_safe(sup);
}

static void on_resumed(void *user, uint32_t rank, int64_t step)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "rank", rank);
    hf_json_add_int(f, "step", step);
    hf_event(&sup->events, sup->at.claim.attempt, "resumed", f);
    if (rank == 0) {
        hf_sup_check_resume(sup, step - 1, "hook");
    }
}

static void on_done(void *user)
{
    struct hf_sup *sup = user;
    sup->at.done_said = true;
    hf_event(&sup->events, sup->at.claim.attempt, "done", NULL);
}

static void on_refused(void *user, int32_t pid, const char *why)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "pid", pid);
    hf_json_add_str(f, "why", why);
    hf_event(&sup->events, sup->at.claim.attempt, "hook-refused", f);
    hf_log(&sup->log, HF_LOG_DEBUG, "a hook's connection of pid %d was refused: %s", pid, why);
}

const struct hf_hooks_cb hf_sup_hooks_cb = {
    .joined = on_joined,
    .saved = on_saved,
    .part = on_part,
    .request_ended = on_request_ended,
    .resumed = on_resumed,
    .done = on_done,
    .refused = on_refused,
};

/* ---- asking ---- */

enum hf_rc hf_sup_ask(struct hf_sup *sup, enum hf_ask why, struct hf_err *err)
{
    struct hf_attempt *at = &sup->at;
    bool leave = why >= HF_ASK_NOTICE;
    uint64_t id = 0;
    uint64_t deadline = leave ? hf_sup_answer_by(sup) : 0;
    HF_TRY(hf_hooks_request(at->hooks, deadline, leave, ask_name(why), &id, err));
    at->ask = why;
    at->request = id;
    at->asked_ns = hf_now_ns();
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "request", (int64_t)id);
    hf_json_add_str(f, "reason", ask_name(why));
    hf_event(&sup->events, at->claim.attempt, "request", f);
    return HF_OK;
}

static void every_due(void *user)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    if (sup->state != HF_JOB_RUNNING || (sup->every_ms == 0 && !at->hinted)) {
        return;
    }
    /* A save of any kind since then counts: the next is due that much later. */
    uint64_t now = hf_now_ns();
    uint64_t due = at->hinted ? now : at->last_save_ns + sup->every_ms * HF_MS;
    bool often = sup->every_ms > 0 && sup->every_ms < EVERY_RETRY_MS;
    uint64_t again_ms = often ? sup->every_ms : EVERY_RETRY_MS;
    uint64_t wait_ms = now < due ? (due - now) / HF_MS + 1 : again_ms;
    struct hf_err err = {0};
    if (now >= due && (at->hinted || hf_ship_idle(at->ship))) {
        if (hf_sup_ask(sup, at->hinted ? HF_ASK_HINT : HF_ASK_EVERY, &err) == HF_OK ||
            (at->hinted && at->request != 0)) {
            at->hinted = false;
            at->last_save_ns = now;
            wait_ms = sup->every_ms > 0 ? sup->every_ms : EVERY_RETRY_MS;
        } else if (err.code != HF_ENOTFOUND && err.code != HF_EAGAIN) {
            hf_log(&sup->log, HF_LOG_DEBUG, "the periodic save was not asked for: %s", err.msg);
        }
    }
    hf_timer_start(&sup->every, &sup->loop, wait_ms, every_due, sup);
}

void hf_sup_every_start(struct hf_sup *sup)
{
    uint64_t now = hf_now_ns();
    uint64_t due = sup->at.last_save_ns + sup->every_ms * HF_MS;
    if (sup->every_ms > 0 || sup->at.hinted) {
        bool at_once = sup->at.hinted || now >= due;
        hf_timer_start(&sup->every, &sup->loop, at_once ? 0 : (due - now) / HF_MS + 1, every_due,
                       sup);
    }
}

void hf_sup_hint(struct hf_sup *sup, const struct hf_notice *n)
{
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "source", n->source);
    hf_json_add_str(f, "id", n->id);
    hf_event(&sup->events, sup->at.claim.attempt, "hint", f);
    hf_log(&sup->log, HF_LOG_INFO, "%s says that this machine may be taken soon: one save is made",
           n->source);
    sup->at.hinted = true;
    hf_sup_every_start(sup);
}

/* A save is being shipped just now, and by what saves are measured to take there is no time for
 * another behind it: it becomes the final one, and the ranks may leave. */
static bool pending_is_final(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    int64_t step = -1;
    if (!hf_ship_pending(at->ship, &step) || at->request != 0 ||
        hf_window_has_time(hf_sup_leave_by(sup), hf_now_ns(), at->capture_ms, at->ship_ms)) {
        return false;
    }
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "step", step);
    hf_event(&sup->events, at->claim.attempt, "final-pending", f);
    hf_log(&sup->log, HF_LOG_INFO,
           "the save of step %" PRId64 " is being shipped; there is no time for another", step);
    at->window = HF_WINDOW_SHUT;
    at->final_settled = true;
    hf_hooks_release(at->hooks, true);
    return true;
}

/* The final save: asked for once a notice; what is in flight becomes it. */
void hf_sup_ask_final(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    struct hf_err err = {0};
    at->save_why[0] = '\0';
    hf_sup_watch_final(sup);
    if (pending_is_final(sup)) {
        hf_sup_check_safe(sup);
        return;
    }
    enum hf_rc rc = hf_sup_ask(sup, HF_ASK_NOTICE, &err);
    if (rc == HF_EAGAIN && at->request != 0) {
        at->final_settled = false;
        hf_hooks_hurry(at->hooks, hf_sup_answer_by(sup), true);
        return;
    }
    at->final_settled = rc != HF_OK && !hf_sup_ask_otherwise(sup, hf_sup_answer_by(sup));
    if (rc != HF_OK) {
        snprintf(at->save_why, sizeof(at->save_why), "%.*s", (int)sizeof(at->save_why) - 1,
                 err.msg);
        if (rc != HF_ENOTFOUND) {
            hf_log(&sup->log, HF_LOG_WARN, "no save could be asked for: %s", err.msg);
        }
    }
    hf_sup_check_safe(sup);
}

void hf_sup_check_safe(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (sup->state == HF_JOB_HUNG && at->final_settled && hf_ship_idle(at->ship)) {
        hf_job_event(sup, HF_EV_SAFE);
        return;
    }
    if (sup->state == HF_JOB_LEAVING && at->final_settled && hf_ship_idle(at->ship) &&
        hf_sup_watch_calm(sup) && !hf_sup_window_goes_on(sup)) {
        hf_job_event(sup, HF_EV_SAFE);
    }
}

/* ---- what the shipper says ---- */

struct retain {
    struct hf_sup *sup;
    struct hf_run run;
    struct hf_claim claim;
    int64_t keep;
    uint64_t removed;
};

static enum hf_rc retain_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct retain *r = arg;
    struct hf_call c = {.op = op};
    return hf_retain(&r->run, &c, &r->claim, r->keep, &r->removed, err);
}

static void retain_done(void *user, const struct hf_err *err)
{
    struct retain *r = user;
    struct hf_sup *sup = r->sup;
    sup->retain_busy = false;
    if (err != NULL && err->code != HF_ECANCELED) {
        /* Until a person does something about it the store only grows. */
        bool lasts = err->code == HF_ECORRUPT || err->code == HF_ENOTSUP || err->code == HF_EDENIED;
        hf_log_err(&sup->log, lasts ? HF_LOG_WARN : HF_LOG_DEBUG, err,
                   "old checkpoints were not removed");
    }
    hf_free(r);
}

/* Old checkpoints go when there is time for it: never while leaving. */
static void retain(struct hf_sup *sup)
{
    if (sup->retain_busy || sup->leaving.notice) {
        return;
    }
    struct retain *r = HF_NEW(struct retain);
    r->sup = sup;
    r->run = sup->run;
    r->claim.attempt = sup->at.claim.attempt;
    memcpy(r->claim.nonce, sup->at.claim.nonce, sizeof(r->claim.nonce));
    r->keep = hf_set_int(sup->ctx->settings, HF_SET_KEEP);
    sup->retain_busy = true;
    if (hf_pool_submit(sup->store_pool, &sup->scope, retain_work, r, retain_done, r, NULL, NULL) !=
        HF_OK) {
        sup->retain_busy = false;
        hf_free(r);
    }
}

static void tell_verdict(struct hf_sup *sup, const struct hf_verdict *v)
{
    bool by_notice = sup->leaving.notice &&
                     (strcmp(v->reason, "notice") == 0 || strcmp(v->reason, "window") == 0);
    int64_t spare_ms = 0;
    if (by_notice) {
        int64_t left = (int64_t)(sup->leaving.deadline_ns - v->at_ns);
        spare_ms = left / (int64_t)HF_MS;
    }
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "kind", hf_verdict_name(v->kind));
    hf_json_add_str(f, "reason", v->reason);
    hf_json_add_int(f, "step", v->step);
    hf_json_add_int(f, "tried_step", v->tried_step);
    hf_json_add_int(f, "from_attempt", v->attempt);
    hf_json_add_int(f, "number", v->number);
    hf_json_add_int(f, "bytes", (int64_t)v->bytes);
    hf_json_add_int(f, "bytes_sent", (int64_t)v->bytes_sent);
    hf_json_add_int(f, "took_ms", (int64_t)v->took_ms);
    if (by_notice) {
        hf_json_add_int(f, "spare_ms", spare_ms);
    } else {
        hf_json_add_null(f, "spare_ms");
    }
    hf_json_add_str(f, "why", v->why);
    hf_event(&sup->events, sup->at.claim.attempt, "verdict", f);
    char step[32];
    bool stands = v->kind == HF_VERDICT_DURABLE || v->kind == HF_VERDICT_LOCAL;
    if (stands && v->why[0] != '\0' && !sup->at.left_out_told) {
        sup->at.left_out_told = true;
        hf_log(&sup->log, HF_LOG_WARN, "the save of %s: %s", hf_sup_step_text(v->step, step),
               v->why);
    }
    if (v->kind == HF_VERDICT_STALE || v->kind == HF_VERDICT_LOST) {
        hf_log(&sup->log, HF_LOG_WARN, "the save of %s failed: %s",
               hf_sup_step_text(v->tried_step, step), v->why);
    } else if (by_notice) {
        char spare[HF_DURATION_STRLEN];
        uint64_t ms = (uint64_t)(spare_ms < 0 ? -spare_ms : spare_ms) / 100 * 100;
        hf_log(&sup->log, HF_LOG_INFO, "%s: %s, %" PRIu64 " bytes, %s %s", hf_verdict_name(v->kind),
               hf_sup_step_text(v->step, step), v->bytes, hf_duration_format(ms, spare),
               spare_ms < 0 ? "after the deadline" : "to spare");
    } else {
        hf_log(&sup->log, HF_LOG_DEBUG, "%s: %s", hf_verdict_name(v->kind),
               hf_sup_step_text(v->step, step));
    }
}

static void on_settled(void *user, const struct hf_verdict *v, const char *resume_path)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    tell_verdict(sup, v);
    if (resume_path != NULL) {
        bool held_up = sup->limited && !sup->leaving.notice;
        at->ship_ms = held_up ? 0 : v->took_ms + 1;
        hf_sup_every_tune(sup);
        at->ending.progressed = true;
        at->ending.beyond_start = true;
        at->last_save_ns = v->at_ns;
        retain(sup);
    } else if (sup->state == HF_JOB_LEAVING && at->watchdir != NULL && !at->final_repeated) {
        /* It was overwritten while it was read, perhaps: the next one is waited for. */
        at->final_repeated = true;
        hf_watchdir_once_more(at->watchdir);
        hf_watchdir_final(at->watchdir);
    }
    hf_sup_disk_look(sup);
    hf_sup_status_changed(sup);
}

static void on_skipped(void *user, int64_t step)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "step", step);
    hf_event(&sup->events, sup->at.claim.attempt, "save-skipped", f);
}

static void on_idle(void *user)
{
    struct hf_sup *sup = user;
    hf_sup_check_safe(sup);
    hf_sup_maybe_settled(sup);
}

static void on_superseded(void *user)
{
    struct hf_sup *sup = user;
    if (sup->at.ending.superseded) {
        return;
    }
    sup->at.ending.superseded = true;
    hf_log(&sup->log, HF_LOG_ERROR,
           "attempt %u was superseded: another attempt of run '%s' took over; this one stops",
           sup->at.claim.attempt, sup->run.name);
    hf_event(&sup->events, sup->at.claim.attempt, "superseded", NULL);
    if (sup->at.ship != NULL) {
        hf_ship_stop(sup->at.ship);
    }
    hf_job_event(sup, HF_EV_FORCE);
}

const struct hf_ship_cb hf_sup_ship_cb = {
    .settled = on_settled,
    .skipped = on_skipped,
    .idle = on_idle,
    .superseded = on_superseded,
    .unheld = hf_sup_unheld,
};

/* Looked at each tick: the first and the newest step that the ranks have published. */
void hf_sup_follow_steps(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->hooks == NULL) {
        return;
    }
    struct hf_hooks_status st;
    hf_hooks_get_status(at->hooks, &st);
    if (st.step < 0 || st.step == at->last_step) {
        return;
    }
    if (at->first_step < 0) {
        at->first_step = st.step;
        cJSON *f = hf_json_obj();
        hf_json_add_int(f, "step", st.step);
        hf_event(&sup->events, at->claim.attempt, "first-step", f);
        hf_sup_check_resume(sup, st.step, "step");
    }
    at->last_step = st.step;
    at->ending.beyond_start = true;
}
