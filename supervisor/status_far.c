/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's status as its store knows it, for whoever looks from another machine: the highest claim,
 * its end if one is recorded, its last heartbeat and its newest checkpoint. Blocking store calls
 * with a deadline; main thread of a command without a loop. The age of a heartbeat rests on two
 * clocks, which is said, and nothing but this page rests on it.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "checkpoint/lineage.h"
#include "supervisor/handoff.h"
#include "supervisor/keysource.h"
#include "supervisor/settings_text.h"
#include "supervisor/status_read.h"

#define PATIENCE_MS 20000
#define MISSED      3 /* heartbeats */
#define SOON_MS     5000

struct far {
    struct hf_run run;
    struct hf_call call;
    struct hf_claim claim;
    uint32_t attempt;
    int64_t now_ms;
    cJSON *obj, *evidence;
};

static void state(struct far *f, const char *name, int64_t since_ms, const char *last)
{
    hf_json_add_str(f->obj, "state", name);
    hf_json_add_time(f->obj, "since", since_ms);
    hf_json_add_str(f->obj, "last_state", last);
}

static void tell_ranks(struct far *f, int64_t step, int64_t at_ms)
{
    cJSON *ranks = hf_json_obj();
    hf_json_add_null(ranks, "world");
    hf_json_add_null(ranks, "joined");
    hf_json_add_null(ranks, "life");
    hf_json_add_known(ranks, "step", step);
    hf_json_add_time(ranks, "step_at", step >= 0 ? at_ms : 0);
    hf_json_add(f->obj, "ranks", ranks);
}

static void tell_ended(struct far *f, const char *outcome, const struct hf_end *end)
{
    state(f, "ended", end->at_wall_ms, "ended");
    hf_json_add_str(f->obj, "outcome", outcome);
    hf_json_add_known(f->obj, "exit_status", end->exit_code);
    hf_json_add_null(f->obj, "heartbeat");
    tell_ranks(f, end->last_step, end->at_wall_ms);
}

/* The run was closed, and no end of its last attempt is to be found. */
static void tell_closed(struct far *f)
{
    const char *word = f->claim.kind == HF_CLAIM_FINISHED ? "finished" : "stopped";
    struct hf_end end = {.exit_code = -1, .last_step = -1, .at_wall_ms = f->claim.at_wall_ms};
    tell_ended(f, word, &end);
    hf_status_add_evidence(f->evidence, "store", f->claim.at_wall_ms,
                           "that the run is %s is recorded in the store", word);
}

static enum hf_rc tell_end(struct far *f, bool *ret_ended, struct hf_err *err)
{
    struct hf_end end = {.exit_code = -1, .last_step = -1};
    enum hf_rc rc = hf_lineage_get_end(&f->run, &f->call, f->attempt, &end, err);
    *ret_ended = rc == HF_OK || rc == HF_ECORRUPT;
    if (!*ret_ended) {
        return rc == HF_ENOTFOUND ? HF_OK : rc;
    }
    tell_ended(f, end.outcome, &end);
    hf_status_add_evidence(f->evidence, "store", rc == HF_OK ? end.at_wall_ms : f->now_ms,
                           "the end of attempt %u is recorded in the store%s", f->attempt,
                           rc == HF_OK ? "" : "; the record is damaged");
    hf_end_release(&end);
    return HF_OK;
}

static enum hf_rc tell_beat(struct far *f, struct hf_err *err)
{
    struct hf_beat b = {.step = -1};
    enum hf_rc rc = hf_lineage_get_beat(&f->run, &f->call, &f->claim, &b, err);
    if (rc != HF_OK && rc != HF_ENOTFOUND && rc != HF_ECORRUPT) {
        return rc;
    }
    int64_t at = rc == HF_OK ? b.at_wall_ms : 0;
    int64_t limit = b.every_ms > 0 ? (int64_t)b.every_ms * MISSED : HF_STATUS_SILENT_MS;
    limit = limit < SOON_MS ? SOON_MS : limit;
    bool recent = at > 0 && f->now_ms - at < limit && at - f->now_ms < limit;
    const char *told = b.state[0] != '\0' ? b.state : "unknown";
    state(f, recent ? told : "unknown", at > 0 ? at : f->claim.at_wall_ms, told);
    hf_json_add_null(f->obj, "outcome");
    hf_json_add_null(f->obj, "exit_status");
    hf_json_add_time(f->obj, "heartbeat", at);
    tell_ranks(f, b.step, at);
    if (at == 0) {
        hf_status_add_evidence(f->evidence, "store", f->now_ms,
                               "attempt %u was claimed, and %s heartbeat of it is in the store",
                               f->attempt, rc == HF_ECORRUPT ? "a damaged" : "no");
        return HF_OK;
    }
    hf_status_add_evidence(f->evidence, "store", at,
                           "heartbeat %" PRIu64 ", timed by the clock of '%s'", b.counter,
                           f->claim.host != NULL ? f->claim.host : "another machine");
    if (!recent) {
        hf_status_add_evidence(f->evidence, "store", f->now_ms,
                               "none came for longer than %d of them may take", MISSED);
    }
    return HF_OK;
}

/* The newest checkpoint of the attempt, or of the one that it started from. */
static enum hf_rc tell_save(struct far *f, struct hf_err *err)
{
    struct hf_manifest m;
    bool any = false;
    for (uint32_t n = f->attempt; n > 0 && !any; n--) {
        HF_TRY(hf_handoff_newest(&f->run, &f->call, n, &m, &any, err));
    }
    if (!any) {
        hf_json_add_null(f->obj, "save");
        return HF_OK;
    }
    cJSON *save = hf_json_obj();
    bool outlives = (f->run.store->caps & HF_STORE_OUTLIVES) != 0;
    hf_json_add_str(save, "verdict", outlives ? "durable" : "local");
    hf_json_add_known(save, "step", m.step);
    hf_json_add_known(save, "tried_step", m.step);
    hf_json_add_int(save, "attempt", m.attempt);
    hf_json_add_int(save, "number", m.number);
    hf_json_add_int(save, "bytes", (int64_t)m.bytes);
    hf_json_add_str(save, "reason", m.reason);
    hf_json_add_null(save, "why");
    hf_json_add_time(save, "at", m.at_wall_ms);
    hf_json_add(f->obj, "save", save);
    hf_manifest_release(&m);
    return HF_OK;
}

enum hf_rc hf_far_none(const struct hf_run *run, struct hf_err *err)
{
    return hf_hint(
        err, hf_fail(err, HF_ENOTFOUND, "no run '%s' is in store '%s'", run->name, run->store->uri),
        "Check --run and --store; 'holdfast status' lists what was started here.");
}

/* Finished and stopped runs are claims themselves: the attempt below is the last that ran. */
static enum hf_rc tell(struct far *f, struct hf_err *err)
{
    bool ended = false;
    bool damaged = false;
    HF_TRY(hf_lineage_top(&f->run, &f->call, &f->attempt, err));
    if (f->attempt == 0) {
        return hf_far_none(&f->run, err);
    }
    HF_TRY(hf_lineage_need_claim(&f->run, &f->call, f->attempt, &f->claim, &damaged, err));
    if (damaged) {
        hf_status_add_evidence(f->evidence, "store", f->now_ms,
                               "the claim of attempt %u is damaged", f->attempt);
    }
    if (f->claim.kind != HF_CLAIM_RUN && f->attempt > 1) {
        f->attempt--;
    }
    HF_TRY(tell_end(f, &ended, err));
    if (!ended && f->claim.kind != HF_CLAIM_RUN) {
        tell_closed(f);
    } else if (!ended) {
        HF_TRY(tell_beat(f, err));
    }
    hf_json_add_int(f->obj, "attempt", f->attempt);
    hf_json_add_str(f->obj, "host", f->claim.host);
    return tell_save(f, err);
}

/* What only the machine itself knows. */
static void tell_unknown(cJSON *obj)
{
    static const char *const keys[] = {
        "supervisor_pid",   "command_pid",        "protected_by", "watch",
        "notice",           "store_silent_since", "boot_id",      "pid_ns",
        "supervisor_start", "updated_boot_ms",    "updated",      "unprotected",
        "events_dropped",   "every_ms",           "log",          "store_create_only"};
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        hf_json_add_null(obj, keys[i]);
    }
    hf_json_add_null(obj, "supervised");
}

enum hf_rc hf_far_open(const char *store, const char *name, const struct hf_store_cfg *cfg,
                       struct hf_run *ret, struct hf_err *err)
{
    HF_TRY(hf_run_name_check(name, err));
    HF_TRY(hf_store_uri_check(store, err));
    if (strncmp(store, "file://", 7) == 0 && !hf_fs_exists(store + 7)) {
        return hf_hint(err, hf_fail(err, HF_ENOTFOUND, "the store '%s' is not there", store),
                       "Is its file system mounted here?");
    }
    ret->name = name;
    return hf_store_open(store, cfg, &ret->store, err);
}

enum hf_rc hf_status_far(const struct hf_settings *set, const char *name, cJSON **ret,
                         struct hf_err *err)
{
    struct far f = {.now_ms = hf_wall_ms()};
    const char *store = hf_set_str(set, HF_SET_STORE);
    const struct hf_store_cfg cfg = hf_set_store(set);
    HF_TRY(hf_far_open(store, name, &cfg, &f.run, err));
    enum hf_rc unlocked = hf_keysource_unlock(set, &f.run, err);
    if (unlocked != HF_OK) {
        hf_run_close(&f.run);
        return unlocked;
    }
    f.call.deadline_ns = hf_now_ns() + PATIENCE_MS * HF_MS;
    f.obj = hf_json_obj();
    f.evidence = hf_json_arr();
    hf_json_add_int(f.obj, "format", 1);
    hf_json_add_str(f.obj, "run", name);
    hf_json_add_str(f.obj, "store", store);
    hf_json_add_str(f.obj, "store_kind",
                    (f.run.store->caps & HF_STORE_OUTLIVES) != 0 ? "durable" : "local");
    enum hf_rc rc = tell(&f, err);
    tell_unknown(f.obj);
    hf_json_add(f.obj, "evidence", f.evidence);
    hf_status_add_ages(f.obj, f.now_ms);
    hf_json_add_time(f.obj, "asked", f.now_ms);
    hf_run_close(&f.run);
    hf_claim_release(&f.claim);
    if (rc != HF_OK) {
        hf_json_free(f.obj);
        return hf_wrap(err, rc, "store '%s'", store);
    }
    *ret = f.obj;
    return HF_OK;
}
