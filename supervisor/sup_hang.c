/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that hangs: found by its missing signs of life, told, and, as set, saved if it answers and
 * ended, so that the next attempt starts from the last good checkpoint. Loop thread; a look is
 * one walk over the tree in /proc and one over the segments of the local log.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>

#include "supervisor/logring.h"
#include "supervisor/sup.h"
#include "supervisor/tree.h"

#define LIFE_SHIFT 40 /* a step is far smaller */

/* What the local log has no room for is output too. */
static int64_t output_mark(const struct hf_sup *sup)
{
    uint64_t first = 0;
    uint64_t end = 0;
    if (hf_logread_bounds(sup->at.dir, &first, &end, NULL) != HF_OK) {
        end = 0;
    }
    return (int64_t)(end + sup->at.log_dropped);
}

static void look_at(struct hf_sup *sup, struct hf_hang_look *look)
{
    struct hf_attempt *at = &sup->at;
    struct hf_hooks_status st;
    struct hf_procs procs = {0};
    hf_hooks_get_status(at->hooks, &st);
    look->value[HF_SIGN_STEP] = st.step + ((int64_t)st.life << LIFE_SHIFT);
    look->value[HF_SIGN_OUTPUT] = output_mark(sup);
    look->value[HF_SIGN_SAVE] = at->saves_seen;
    if (hf_tree_descendants((pid_t)hf_keeper_pid(at->keeper), &procs, NULL) != HF_OK) {
        look->held = true; /* nothing is known: nothing is judged */
        return;
    }
    look->value[HF_SIGN_CPU] = (int64_t)hf_procs_cpu_ms(&procs);
    for (size_t i = 0; i < procs.len; i++) {
        look->held = look->held || procs.items[i].state == 'T' || procs.items[i].state == 't';
    }
    hf_procs_release(&procs);
}

static void tell(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    uint64_t now = hf_now_ns();
    char text[256] = "";
    size_t len = 0;
    cJSON *f = hf_json_obj();
    static const char *const keys[HF_SIGNS] = {"step_ms", "output_ms", "checkpoint_ms", "cpu_ms"};
    for (int s = 0; s < HF_SIGNS; s++) {
        char past[HF_DURATION_STRLEN];
        uint64_t ms = (now - at->hang.since_ns[s]) / HF_MS;
        int n = snprintf(text + len, sizeof(text) - len, "%sno %s for %s", s > 0 ? ", " : "",
                         hf_hang_sign_name((enum hf_hang_sign)s),
                         hf_duration_format(ms >= 1000 ? ms / 1000 * 1000 : ms, past));
        len += n > 0 && (size_t)n < sizeof(text) - len ? (size_t)n : 0;
        hf_json_add_int(f, keys[s], (int64_t)ms);
    }
    hf_event(&sup->events, at->claim.attempt, "hang", f);
    hf_log(&sup->log, HF_LOG_WARN, "the command hangs: %s", text);
}

void hf_sup_follow_hang(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    uint64_t limit_ms = hf_set_ms(sup->ctx->settings, HF_SET_HANG_AFTER);
    if (limit_ms == 0 || sup->state != HF_JOB_RUNNING || !at->command_started ||
        at->keeper == NULL) {
        at->hang = (struct hf_hang){0};
        return;
    }
    struct hf_hang_look look = {0};
    look_at(sup, &look);
    bool hangs = hf_hang_judge(&at->hang, &look, hf_now_ns(), limit_ms * HF_MS);
    if (!hangs && at->hang_told) {
        at->hang_told = false;
        hf_log(&sup->log, HF_LOG_INFO, "the command goes on: it had not hung for good");
    }
    if (!hangs || at->hang_told) {
        return;
    }
    at->hang_told = true;
    tell(sup);
    if (hf_set_int(sup->ctx->settings, HF_SET_ON_HANG) == HF_ON_HANG_RESTART) {
        hf_job_event(sup, HF_EV_HUNG);
    }
}

static void over(void *user)
{
    struct hf_sup *sup = user;
    hf_log(&sup->log, HF_LOG_WARN,
           "not acknowledged: the command that hangs did not save in its time");
    hf_job_event(sup, HF_EV_OVERTIME);
}

/* One save is asked for, with the grace to answer; what is in flight becomes it. */
void hf_act_hung(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    struct hf_err err = {0};
    uint64_t by_ns = hf_now_ns() + sup->grace_ms * HF_MS;
    uint64_t id = 0;
    at->ending.hung = true;
    at->save_why[0] = '\0';
    hf_timer_stop(&sup->every);
    enum hf_rc rc = hf_hooks_request(at->hooks, by_ns, true, "hang", &id, &err);
    if (rc == HF_OK) {
        at->ask = HF_ASK_EVERY;
        at->asked_ns = hf_now_ns();
        at->request = id;
        cJSON *f = hf_json_obj();
        hf_json_add_int(f, "request", (int64_t)id);
        hf_json_add_str(f, "reason", "hang");
        hf_event(&sup->events, at->claim.attempt, "request", f);
    } else if (rc == HF_EAGAIN && at->request != 0) {
        hf_hooks_hurry(at->hooks, by_ns, true);
        rc = HF_OK;
    }
    at->final_settled = rc != HF_OK && !hf_sup_ask_otherwise(sup, by_ns);
    hf_timer_start(&sup->soft, &sup->loop, sup->grace_ms + HF_ANSWER_MS, over, sup);
    if (at->watchdir != NULL) {
        hf_watchdir_scan(at->watchdir);
    }
    hf_sup_check_safe(sup);
}

void hf_sup_hang_answered(struct hf_sup *sup, enum hf_request_end how, const char *why)
{
    struct hf_attempt *at = &sup->at;
    at->final_settled = true;
    if (how == HF_REQUEST_SAVED) {
        hf_log(&sup->log, HF_LOG_INFO, "the command that hung has saved; it is restarted");
        hf_hooks_release(at->hooks, true);
    } else {
        hf_log(
            &sup->log, HF_LOG_WARN,
            "not acknowledged: the command that hangs did not save: %s; it is restarted from the "
            "last good checkpoint",
            why);
    }
    hf_sup_check_safe(sup);
}
