/* SPDX-License-Identifier: Apache-2.0
 *
 * status.json: every state with the time and the evidence of its last proof. Written by rename;
 * unknown is null. `holdfast status` reads it (docs/formats.md has the schema). Loop thread.
 */
#include "base/prelude.h"

#include <string.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/sup.h"
#include "supervisor/tree.h"

const char *hf_sup_safe_word(const struct hf_sup *sup)
{
    bool outlives = sup->run.store != NULL && (sup->run.store->caps & HF_STORE_OUTLIVES) != 0;
    return outlives ? "durable" : "local";
}

static cJSON *save_json(const struct hf_verdict *v)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "verdict", hf_verdict_name(v->kind));
    hf_json_add_known(obj, "step", v->step);
    hf_json_add_known(obj, "tried_step", v->tried_step);
    hf_json_add_known(obj, "attempt", v->attempt > 0 ? (int64_t)v->attempt : -1);
    hf_json_add_known(obj, "number", v->attempt > 0 ? (int64_t)v->number : -1);
    hf_json_add_int(obj, "bytes", (int64_t)v->bytes);
    hf_json_add_str(obj, "reason", v->reason[0] != '\0' ? v->reason : NULL);
    hf_json_add_str(obj, "why", v->why[0] != '\0' ? v->why : NULL);
    hf_json_add_time(obj, "at", v->at_wall_ms);
    return obj;
}

static cJSON *watch_json(const struct hf_sup *sup)
{
    static const char *const names[] = {"starting", "seeing", "blind"};
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "provider", sup->provider != NULL ? sup->provider->name : NULL);
    if (sup->watch == NULL) {
        hf_json_add_str(obj, "health", sup->provider != NULL ? "starting" : "not-watching");
        return obj;
    }
    struct hf_watch_status st;
    hf_watch_get_status(sup->watch, &st);
    hf_json_add_str(obj, "health", names[st.health]);
    int64_t age_ms = st.last_ok_ns > 0 ? (int64_t)((hf_now_ns() - st.last_ok_ns) / HF_MS) : -1;
    hf_json_add_time(obj, "last_ok", age_ms >= 0 ? hf_wall_ms() - age_ms : 0);
    hf_json_add_int(obj, "polls", (int64_t)st.polls);
    hf_json_add_int(obj, "ok", (int64_t)st.ok);
    hf_json_add_int(obj, "noticed", (int64_t)st.noticed);
    hf_json_add_int(obj, "tokens", (int64_t)st.tokens);
    hf_json_add_int(obj, "told", (int64_t)st.told);
    hf_json_add_int(obj, "not_found", (int64_t)st.not_found);
    hf_json_add_int(obj, "others", (int64_t)st.others);
    hf_json_add_int(obj, "timeouts", (int64_t)st.timeouts);
    hf_json_add_int(obj, "refused", (int64_t)st.refused);
    hf_json_add_int(obj, "server_errors", (int64_t)st.server_errors);
    hf_json_add_int(obj, "unauthorized", (int64_t)st.unauthorized);
    hf_json_add_str(obj, "why", st.health == HF_WATCH_BLIND ? st.last_err.msg : NULL);
    return obj;
}

static cJSON *notice_json(const struct hf_sup *sup)
{
    const struct hf_leaving *lv = &sup->leaving;
    if (!lv->notice) {
        return cJSON_CreateNull();
    }
    cJSON *obj = hf_json_obj();
    cJSON *sources = hf_json_arr();
    for (size_t i = 0; i < HF_NOTICE_SOURCES; i++) {
        if (lv->standing[i].what.source[0] != '\0') {
            hf_json_push_str(sources, lv->standing[i].what.source);
        }
    }
    hf_json_add(obj, "sources", sources);
    int64_t left = (int64_t)(lv->deadline_ns - hf_now_ns()) / (int64_t)HF_MS;
    hf_json_add_time(obj, "deadline", hf_wall_ms() + left);
    return obj;
}

static cJSON *ranks_json(struct hf_sup *sup)
{
    const struct hf_attempt *at = &sup->at;
    if (at->hooks == NULL) {
        return cJSON_CreateNull();
    }
    struct hf_hooks_status st;
    hf_hooks_get_status(at->hooks, &st);
    cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "world", st.world);
    hf_json_add_int(obj, "joined", st.joined);
    hf_json_add_int(obj, "life", st.life);
    hf_json_add_known(obj, "step", st.step);
    int64_t age_ms =
        st.step_changed_ns > 0 ? (int64_t)((hf_now_ns() - st.step_changed_ns) / HF_MS) : -1;
    hf_json_add_time(obj, "step_at", age_ms >= 0 ? hf_wall_ms() - age_ms : 0);
    return obj;
}

static void add_protection(cJSON *obj, struct hf_sup *sup)
{
    const struct hf_attempt *at = &sup->at;
    struct hf_hooks_status st = {0};
    if (at->hooks != NULL) {
        hf_hooks_get_status(at->hooks, &st);
    }
    const char *by = st.world > 0 ? "hook" : at->watchdir != NULL ? "watch" : NULL;
    hf_json_add_str(obj, "protected_by", by);
    hf_json_add_bool(obj, "unprotected", by == NULL && at->unprotected);
}

void hf_sup_status_write(struct hf_sup *sup)
{
    sup->status_ns = hf_now_ns();
    struct hf_attempt *at = &sup->at;
    if (!sup->registered || at->claim.attempt == 0) {
        return; /* what a refused start would say is no news of the run */
    }
    hf_sup_metrics_due(sup);
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "format", 1);
    hf_json_add_str(obj, "run", sup->run.name);
    hf_json_add_str(obj, "store", sup->dir.store);
    hf_json_add_str(obj, "store_kind", sup->run.store != NULL ? hf_sup_safe_word(sup) : NULL);
    if (sup->run.store != NULL) {
        hf_json_add_bool(obj, "store_create_only",
                         (sup->run.store->caps & HF_STORE_CREATE_ONLY) != 0);
    } else {
        hf_json_add_null(obj, "store_create_only");
    }
    int64_t silent_ms = (int64_t)((sup->status_ns - sup->silent_ns) / HF_MS);
    hf_json_add_time(obj, "store_silent_since", sup->silent_ns != 0 ? hf_wall_ms() - silent_ms : 0);
    hf_json_add_str(obj, "state", hf_job_state_name(sup->state));
    hf_json_add_time(obj, "since", sup->state_since_wall_ms);
    hf_json_add_known(obj, "attempt", at->claim.attempt > 0 ? (int64_t)at->claim.attempt : -1);
    hf_json_add_str(obj, "host", sup->host);
    hf_json_add_int(obj, "supervisor_pid", getpid());
    hf_json_add_int(obj, "supervisor_start", (int64_t)hf_proc_start(getpid()));
    hf_json_add_str(obj, "boot_id", sup->boot_id);
    hf_json_add_int(obj, "pid_ns", (int64_t)sup->pid_ns);
    int64_t pid = at->keeper != NULL ? hf_keeper_command_pid(at->keeper) : 0;
    hf_json_add_known(obj, "command_pid", pid > 0 ? pid : -1);
    add_protection(obj, sup);
    hf_json_add(obj, "ranks", ranks_json(sup));
    hf_json_add(obj, "watch", watch_json(sup));
    hf_json_add(obj, "notice", notice_json(sup));
    hf_json_add(obj, "save",
                at->ship != NULL ? save_json(hf_ship_verdict(at->ship)) : cJSON_CreateNull());
    hf_json_add(obj, "log", hf_sup_logs_json(sup));
    hf_json_add_int(obj, "every_ms", (int64_t)sup->every_ms);
    hf_json_add_time(obj, "heartbeat", at->beat_wall_ms);
    bool over = sup->state == HF_JOB_ENDED;
    hf_json_add_str(obj, "outcome",
                    over && sup->outcome != 0 ? hf_outcome_name(sup->outcome) : NULL);
    hf_json_add_known(obj, "exit_status", over ? sup->exit_status : -1);
    hf_json_add_int(obj, "events_dropped", (int64_t)sup->events.dropped);
    hf_json_add_time(obj, "updated", hf_wall_ms());
    hf_json_add_int(obj, "updated_boot_ms", (int64_t)(sup->status_ns / HF_MS));
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&sup->dir, "status.json");
    struct hf_err err = {0};
    if (hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, false, &err) != HF_OK) {
        hf_log(&sup->log, HF_LOG_DEBUG, "status: %s", err.msg);
    }
}

void hf_sup_status_changed(struct hf_sup *sup)
{
    hf_sup_status_write(sup);
}
