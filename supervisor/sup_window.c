/* SPDX-License-Identifier: Apache-2.0
 *
 * The rest of a notice's window (--use-window): after the first save the ranks go on training,
 * and once that save is committed a second one is asked for, as late as is safe. Loop thread; the
 * job's state stays LEAVING. What the second save cannot do never harms the first.
 */
#include "base/prelude.h"

#include <inttypes.h>

#include "supervisor/sup.h"
#include "supervisor/window.h"

/* A failed save was no save: then the second try is due at once. */
static bool stands(const struct hf_verdict *v, uint64_t since_ns)
{
    return (v->kind == HF_VERDICT_DURABLE || v->kind == HF_VERDICT_LOCAL) && v->at_ns >= since_ns;
}

void hf_sup_window_first_saved(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    uint64_t second =
        hf_window_second_at(hf_sup_leave_by(sup), hf_now_ns(), at->capture_ms, at->ship_ms);
    /* Whoever sends a signal waits for the end, and may have less patience than --grace says. */
    if (!hf_set_bool(sup->ctx->settings, HF_SET_USE_WINDOW) || sup->leaving.guessed ||
        second == 0 || at->window != HF_WINDOW_NONE) {
        at->window = HF_WINDOW_SHUT;
        hf_hooks_release(at->hooks, true);
        return;
    }
    at->window = HF_WINDOW_OPEN;
    hf_hooks_release(at->hooks, false);
}

static void shut(struct hf_sup *sup)
{
    sup->at.window = HF_WINDOW_SHUT;
    hf_timer_stop(&sup->second);
    hf_hooks_release(sup->at.hooks, true);
}

static void ask_second(void *user)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    if (sup->state != HF_JOB_LEAVING || at->window != HF_WINDOW_OPEN) {
        return;
    }
    struct hf_err err = {0};
    at->window = HF_WINDOW_SECOND;
    if (hf_sup_ask(sup, HF_ASK_WINDOW, &err) != HF_OK) {
        hf_log(&sup->log, HF_LOG_DEBUG, "no second save could be asked for: %s", err.msg);
        shut(sup);
    } else {
        at->final_settled = false;
    }
    hf_sup_check_safe(sup);
}

static void tell_open(struct hf_sup *sup, uint64_t in_ms)
{
    char text[HF_DURATION_STRLEN];
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "second_in_ms", (int64_t)in_ms);
    hf_json_add_int(f, "capture_ms", (int64_t)sup->at.capture_ms);
    hf_json_add_int(f, "ship_ms", (int64_t)hf_ship_verdict(sup->at.ship)->took_ms);
    hf_event(&sup->events, sup->at.claim.attempt, "window", f);
    hf_log(&sup->log, HF_LOG_INFO, "training goes on; a second save follows in %s",
           hf_duration_format(in_ms / 1000 * 1000, text));
}

bool hf_sup_window_goes_on(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->window != HF_WINDOW_OPEN) {
        return false;
    }
    uint64_t now = hf_now_ns();
    const struct hf_verdict *v = hf_ship_verdict(at->ship);
    uint64_t second = hf_window_second_at(hf_sup_leave_by(sup), now, at->capture_ms, v->took_ms);
    if (second == 0) {
        shut(sup);
        return false;
    }
    bool waits = stands(v, at->asked_ns) && !sup->leaving.guessed;
    uint64_t in_ms = waits ? (second - now) / HF_MS : 0;
    if (!at->window_told) {
        at->window_told = true;
        tell_open(sup, in_ms);
    }
    hf_timer_start(&sup->second, &sup->loop, in_ms, ask_second, sup);
    return true;
}

void hf_sup_window_second_ended(struct hf_sup *sup, bool saved, const char *why)
{
    if (!saved) {
        hf_log(&sup->log, HF_LOG_INFO, "the second save was not made: %s; the first one stands",
               why);
    }
    shut(sup);
}

void hf_sup_window_forget(struct hf_sup *sup)
{
    sup->at.window = HF_WINDOW_NONE;
    sup->at.window_told = false;
    hf_timer_stop(&sup->second);
}
