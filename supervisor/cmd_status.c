/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast status: what is known of the runs registered here, with the time of the last proof.
 * Reads status.json and looks whether a supervisor holds the run's lock; asks nobody. What is
 * not known is called unknown.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/cmd.h"
#include "supervisor/rundir.h"

#define STATUS_MAX 65536

/* Ages in seconds beside every time: "x" gets "x_age_s". */
static void add_ages(cJSON *obj, int64_t now_ms)
{
    static const char *const keys[] = {"since",   "updated", "heartbeat", "step_at",
                                       "last_ok", "at",      "deadline",  "store_silent_since"};
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        const char *text = hf_json_opt_str(obj, keys[i], NULL);
        int64_t at = 0;
        char name[32];
        if (hf_json_opt(obj, keys[i]) == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "%s_age_s", keys[i]);
        if (text != NULL && hf_utc_parse(text, &at, NULL) == HF_OK) {
            hf_json_add_int(obj, name, (now_ms - at) / 1000);
        } else {
            hf_json_add_null(obj, name);
        }
    }
    for (cJSON *child = obj->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(child)) {
            add_ages(child, now_ms);
        }
    }
}

/* The state that can be vouched for: without a living supervisor anything but "ended" is
 * unknown. */
static void judge(cJSON *obj, bool supervised)
{
    const char *state = hf_json_opt_str(obj, "state", "none");
    hf_json_add_bool(obj, "supervised", supervised);
    hf_json_add_str(obj, "last_state", state);
    if (!supervised && strcmp(state, "ended") != 0 && strcmp(state, "none") != 0) {
        cJSON_ReplaceItemInObjectCaseSensitive(obj, "state", cJSON_CreateString("unknown"));
        const char *updated = hf_json_opt_str(obj, "updated", NULL);
        cJSON_ReplaceItemInObjectCaseSensitive(
            obj, "since", updated != NULL ? cJSON_CreateString(updated) : cJSON_CreateNull());
    }
}

/* Registered, and no attempt was claimed from here. */
static cJSON *nothing_known(const struct hf_rundir *r)
{
    static const char *const unknown[] = {
        "store_kind",
        "since",
        "attempt",
        "supervisor_pid",
        "command_pid",
        "protected_by",
        "ranks",
        "every_ms",
        "log",
        "watch",
        "notice",
        "save",
        "heartbeat",
        "outcome",
        "exit_status",
        "updated",
        "store_silent_since",
    };
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "run", r->name);
    hf_json_add_str(obj, "store", r->store);
    hf_json_add_str(obj, "state", "none");
    hf_json_add_bool(obj, "unprotected", false);
    hf_json_add_int(obj, "events_dropped", 0);
    for (size_t i = 0; i < HF_COUNT(unknown); i++) {
        hf_json_add_null(obj, unknown[i]);
    }
    return obj;
}

static cJSON *load(const struct hf_rundir *r)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "status.json");
    struct hf_buf text;
    hf_buf_init(&text, STATUS_MAX);
    cJSON *obj = NULL;
    if (hf_fs_read(path, &text, NULL) != HF_OK ||
        hf_json_parse(hf_buf_span(&text), STATUS_MAX, &obj, NULL) != HF_OK) {
        obj = nothing_known(r);
    }
    hf_buf_release(&text);
    judge(obj, hf_rundir_is_locked(r));
    add_ages(obj, hf_wall_ms());
    return obj;
}

static void age_text(const cJSON *obj, const char *key, char out[HF_DURATION_STRLEN + 8])
{
    int64_t age = hf_json_opt_int(obj, key, -1);
    char d[HF_DURATION_STRLEN];
    if (age < 0) {
        snprintf(out, HF_DURATION_STRLEN + 8, "unknown");
    } else {
        snprintf(out, HF_DURATION_STRLEN + 8, "%s ago",
                 hf_duration_format((uint64_t)age * 1000, d));
    }
}

static void number_text(const cJSON *obj, const char *key, char out[32])
{
    int64_t v = obj != NULL ? hf_json_opt_int(obj, key, -1) : -1;
    if (v < 0) {
        snprintf(out, 32, "unknown");
    } else {
        snprintf(out, 32, "%" PRId64, v);
    }
}

static void print_save(FILE *out, const cJSON *obj)
{
    const cJSON *save = hf_json_opt(obj, "save");
    char step[32];
    char age[HF_DURATION_STRLEN + 8];
    if (!cJSON_IsObject(save) || hf_json_opt_int(save, "attempt", -1) < 0) {
        fprintf(out, "  checkpoint  none\n");
        return;
    }
    number_text(save, "step", step);
    age_text(save, "at_age_s", age);
    const char *verdict = hf_json_opt_str(save, "verdict", "none");
    if (strcmp(verdict, "none") == 0) {
        verdict = hf_json_opt_str(obj, "store_kind", "unknown");
        snprintf(age, sizeof(age), "from an earlier attempt");
    }
    fprintf(out, "  checkpoint  %s, step %s, %" PRId64 " bytes, %s\n", verdict, step,
            hf_json_opt_int(save, "bytes", 0), age);
    const char *why = hf_json_opt_str(save, "why", NULL);
    if (why != NULL) {
        fprintf(out, "              the last save failed: %s\n", why);
    }
}

static void print_watch(FILE *out, const cJSON *obj)
{
    const cJSON *watch = hf_json_opt(obj, "watch");
    if (!cJSON_IsObject(watch)) {
        return;
    }
    const char *provider = hf_json_opt_str(watch, "provider", NULL);
    const char *why = hf_json_opt_str(watch, "why", NULL);
    fprintf(out, "  notices     %s%s%s%s%s\n", hf_json_opt_str(watch, "health", "unknown"),
            provider != NULL ? " from " : "", provider != NULL ? provider : "",
            why != NULL ? ": " : "", why != NULL ? why : "");
}

/* Only what is wrong with the command's log. */
static void print_log(FILE *out, const cJSON *obj)
{
    const cJSON *log = hf_json_opt(obj, "log");
    if (!cJSON_IsObject(log)) {
        return;
    }
    int64_t dropped = hf_json_opt_int(log, "dropped_bytes", 0);
    const char *why = hf_json_opt_str(log, "why", NULL);
    if (dropped > 0) {
        fprintf(out, "  log         %" PRId64 " bytes are missing%s%s\n", dropped,
                why != NULL ? ": " : "", why != NULL ? why : "");
    }
    if (hf_json_opt_bool(log, "store_failing", false)) {
        fprintf(out, "  log         does not reach the store since %s\n",
                hf_json_opt_str(log, "stored_at", "the start"));
    }
}

static void print_one(FILE *out, const cJSON *obj)
{
    char age[HF_DURATION_STRLEN + 8];
    char step[32];
    char attempt[32];
    const cJSON *ranks = hf_json_opt(obj, "ranks");
    age_text(obj, "since_age_s", age);
    number_text(obj, "attempt", attempt);
    number_text(ranks, "step", step);
    const char *state = hf_json_opt_str(obj, "state", "unknown");
    const char *outcome = hf_json_opt_str(obj, "outcome", NULL);
    fprintf(out, "%s\n", hf_json_opt_str(obj, "run", "?"));
    fprintf(out, "  state       %s%s%s%s since %s (%s)\n", state, outcome != NULL ? " (" : "",
            outcome != NULL ? outcome : "", outcome != NULL ? ")" : "",
            hf_json_opt_str(obj, "since", "unknown"), age);
    if (strcmp(state, "unknown") == 0) {
        fprintf(out, "              no supervisor lives here; it was last '%s'\n",
                hf_json_opt_str(obj, "last_state", "unknown"));
    }
    fprintf(out, "  attempt     %s\n", attempt);
    fprintf(out, "  step        %s\n", step);
    print_save(out, obj);
    const char *by = hf_json_opt_str(obj, "protected_by", NULL);
    fprintf(out, "  saved by    %s\n",
            by != NULL                                    ? by
            : hf_json_opt_bool(obj, "unprotected", false) ? "nothing: unprotected"
                                                          : "unknown");
    print_watch(out, obj);
    print_log(out, obj);
    const cJSON *notice = hf_json_opt(obj, "notice");
    if (cJSON_IsObject(notice)) {
        fprintf(out, "  NOTICE      the machine goes at %s\n",
                hf_json_opt_str(notice, "deadline", "unknown"));
    }
    fprintf(out, "  store       %s (%s)\n", hf_json_opt_str(obj, "store", "?"),
            hf_json_opt_str(obj, "store_kind", "unknown"));
}

static int show(struct hf_cmd_ctx *ctx, const struct hf_rundir *runs, size_t n)
{
    bool json = hf_set_bool(ctx->settings, HF_SET_JSON);
    HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
    cJSON *arr = hf_json_arr();
    hf_json_add_int(all, "format", 1);
    for (size_t i = 0; i < n; i++) {
        cJSON *one = load(&runs[i]);
        if (!json) {
            print_one(ctx->out, one);
        }
        hf_json_push(arr, one);
    }
    hf_json_add(all, "runs", arr);
    if (json) {
        HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
        fprintf(ctx->out, "%s\n", text);
    } else if (n == 0) {
        fprintf(ctx->out, "no runs are registered here\n");
    }
    return HF_EXIT_OK;
}

static int run(struct hf_cmd_ctx *ctx)
{
    const char *state = hf_set_str(ctx->settings, HF_SET_STATE_DIR);
    const char *name = ctx->argc > 0 ? ctx->argv[0] : hf_set_str(ctx->settings, HF_SET_RUN);
    struct hf_err err = {0};
    if (ctx->argc > 1) {
        hf_log(ctx->log, HF_LOG_ERROR, "status takes one run at most, '%s' is one too many",
               ctx->argv[1]);
        return HF_EXIT_USAGE;
    }
    if (name != NULL) {
        struct hf_rundir one;
        enum hf_rc rc =
            hf_rundir_find(&one, state, name, hf_set_str(ctx->settings, HF_SET_STORE), &err);
        if (rc != HF_OK) {
            hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
            return HF_EXIT_FAIL;
        }
        int status = show(ctx, &one, 1);
        hf_rundir_release(&one);
        return status;
    }
    struct hf_rundir *all = NULL;
    size_t n = 0;
    if (hf_rundir_all(state, &all, &n, &err) != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        return HF_EXIT_FAIL;
    }
    int status = show(ctx, all, n);
    for (size_t i = 0; i < n; i++) {
        hf_rundir_release(&all[i]);
    }
    hf_free(all);
    return status;
}

const struct hf_cmd hf_cmd_status = {
    .name = "status",
    .args = "[options] [RUN]",
    .summary = "what is known of the runs started here, and since when",
    .about = "Without RUN: every run that is registered in the state folder.",
    .group = HF_FOR_STATUS,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
