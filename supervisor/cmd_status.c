/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast status: what is known of the runs registered here, and of a run in a store, with the
 * time and the evidence of the last proof. What is read and judged is status_read.c's and
 * status_far.c's part; this file prints. Main thread.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cloud/store.h"
#include "supervisor/cmd.h"
#include "supervisor/status_read.h"

/* One line "  label       text", with what must not reach a terminal spelt out. */
HF_PRINTF(3, 4)
static void line(FILE *out, const char *label, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    HF_CLEANUP(hf_freep) char *clean = hf_text_clean(text);
    fprintf(out, "  %-11s %s\n", label, clean);
}

/* How long ago the time under `key` was when status was asked; "unknown" without one. */
static const char *ago(int64_t now_ms, const cJSON *obj, const char *key, char out[HF_AGO_STRLEN])
{
    int64_t at = 0;
    const char *text = obj != NULL ? hf_json_opt_str(obj, key, NULL) : NULL;
    if (text == NULL || hf_utc_parse(text, &at, NULL) != HF_OK) {
        snprintf(out, HF_AGO_STRLEN, "unknown");
        return out;
    }
    return hf_ago_format(now_ms - at, out);
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

static void print_state(FILE *out, const cJSON *obj, int64_t now_ms)
{
    char age[HF_AGO_STRLEN];
    const char *state = hf_json_opt_str(obj, "state", "unknown");
    const char *outcome = hf_json_opt_str(obj, "outcome", NULL);
    const char *since = hf_json_opt_str(obj, "since", NULL);
    const char *host = hf_json_opt_str(obj, "host", NULL);
    line(out, "state", "%s%s%s%s%s%s%s%s", state, outcome != NULL ? " (" : "",
         outcome != NULL ? outcome : "", outcome != NULL ? ")" : "", since != NULL ? " since " : "",
         since != NULL ? since : "", since != NULL ? ", " : "",
         since != NULL ? ago(now_ms, obj, "since", age) : "");
    if (strcmp(state, "unknown") == 0) {
        line(out, "", "it was last '%s'", hf_json_opt_str(obj, "last_state", "unknown"));
    }
    if (host != NULL) {
        line(out, "machine", "%s", host);
    }
}

static void print_save(FILE *out, const cJSON *obj, int64_t now_ms)
{
    const cJSON *save = hf_json_opt(obj, "save");
    char step[32];
    char age[HF_AGO_STRLEN];
    if (!cJSON_IsObject(save) || hf_json_opt_int(save, "attempt", -1) < 0) {
        line(out, "checkpoint", "none");
        return;
    }
    number_text(save, "step", step);
    ago(now_ms, save, "at", age);
    const char *verdict = hf_json_opt_str(save, "verdict", "none");
    if (strcmp(verdict, "none") == 0) {
        verdict = hf_json_opt_str(obj, "store_kind", "unknown");
        snprintf(age, sizeof(age), "from an earlier attempt");
    }
    line(out, "checkpoint", "%s, step %s, %" PRId64 " bytes, %s", verdict, step,
         hf_json_opt_int(save, "bytes", 0), age);
    const char *why = hf_json_opt_str(save, "why", NULL);
    if (why != NULL) {
        line(out, "", "the last save failed: %s", why);
    }
}

static void print_watch(FILE *out, const cJSON *obj, int64_t now_ms)
{
    const cJSON *watch = hf_json_opt(obj, "watch");
    char age[HF_AGO_STRLEN];
    if (!cJSON_IsObject(watch)) {
        return;
    }
    const char *provider = hf_json_opt_str(watch, "provider", NULL);
    const char *why = hf_json_opt_str(watch, "why", NULL);
    bool asked = hf_json_opt_str(watch, "last_ok", NULL) != NULL;
    line(out, "notices", "%s%s%s%s%s%s%s", hf_json_opt_str(watch, "health", "unknown"),
         provider != NULL ? " from " : "", provider != NULL ? provider : "",
         asked ? ", last answered " : "", asked ? ago(now_ms, watch, "last_ok", age) : "",
         why != NULL ? ": " : "", why != NULL ? why : "");
}

static void print_evidence(FILE *out, const cJSON *obj, int64_t now_ms)
{
    const cJSON *list = hf_json_opt(obj, "evidence");
    const char *label = "evidence";
    char age[HF_AGO_STRLEN];
    for (const cJSON *e = list != NULL ? list->child : NULL; e != NULL; e = e->next) {
        const char *what = hf_json_opt_str(e, "what", "");
        bool now = strstr(what, "checked now") != NULL;
        line(out, label, "%s%s%s", what, now ? "" : ", ", now ? "" : ago(now_ms, e, "at", age));
        label = "";
    }
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
        line(out, "log", "%" PRId64 " bytes are missing%s%s", dropped, why != NULL ? ": " : "",
             why != NULL ? why : "");
    }
    if (hf_json_opt_bool(log, "store_failing", false)) {
        line(out, "log", "does not reach the store since %s",
             hf_json_opt_str(log, "stored_at", "the start"));
    }
}

static void print_one(FILE *out, const cJSON *obj)
{
    char text[32];
    char age[HF_AGO_STRLEN];
    const cJSON *ranks = hf_json_opt(obj, "ranks");
    int64_t now_ms = 0;
    if (hf_utc_parse(hf_json_opt_str(obj, "asked", ""), &now_ms, NULL) != HF_OK) {
        now_ms = hf_wall_ms();
    }
    HF_CLEANUP(hf_freep) char *name = hf_text_clean(hf_json_opt_str(obj, "run", "?"));
    fprintf(out, "%s\n", name);
    print_state(out, obj, now_ms);
    number_text(obj, "attempt", text);
    line(out, "attempt", "%s", text);
    number_text(ranks, "step", text);
    bool timed = ranks != NULL && hf_json_opt_str(ranks, "step_at", NULL) != NULL;
    line(out, "step", "%s%s%s", text, timed ? ", told " : "",
         timed ? ago(now_ms, ranks, "step_at", age) : "");
    print_save(out, obj, now_ms);
    const char *by = hf_json_opt_str(obj, "protected_by", NULL);
    line(out, "saved by", "%s",
         by != NULL                                    ? by
         : hf_json_opt_bool(obj, "unprotected", false) ? "nothing: unprotected"
                                                       : "unknown");
    print_watch(out, obj, now_ms);
    print_log(out, obj);
    const cJSON *notice = hf_json_opt(obj, "notice");
    if (cJSON_IsObject(notice)) {
        line(out, "NOTICE", "the machine goes at %s, %s",
             hf_json_opt_str(notice, "deadline", "unknown"), ago(now_ms, notice, "deadline", age));
    }
    line(out, "store", "%s (%s)", hf_json_opt_str(obj, "store", "?"),
         hf_json_opt_str(obj, "store_kind", "unknown"));
    if (!hf_json_opt_bool(obj, "store_create_only", true)) {
        line(out, "", "weaker: it overwrites what it is told only to create");
    }
    if (hf_json_opt_str(obj, "store_silent_since", NULL) != NULL) {
        line(out, "", "silent since %s", ago(now_ms, obj, "store_silent_since", age));
    }
    print_evidence(out, obj, now_ms);
}

static void push(struct hf_cmd_ctx *ctx, cJSON *arr, cJSON *one)
{
    if (!hf_set_bool(ctx->settings, HF_SET_JSON)) {
        print_one(ctx->out, one);
    }
    hf_json_push(arr, one);
}

static int finish(struct hf_cmd_ctx *ctx, cJSON *arr_taken)
{
    HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
    hf_json_add_int(all, "format", 1);
    hf_json_add(all, "runs", arr_taken);
    if (hf_set_bool(ctx->settings, HF_SET_JSON)) {
        HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
        fprintf(ctx->out, "%s\n", text);
    } else if (arr_taken->child == NULL) {
        fprintf(ctx->out, "no runs are registered here\n");
    }
    return HF_EXIT_OK;
}

/* The store's word counts where it knows of a later attempt than this machine, or this machine of
 * none. */
static enum hf_rc one_run(struct hf_cmd_ctx *ctx, const char *name, cJSON **ret, struct hf_err *err)
{
    const struct hf_settings *set = ctx->settings;
    const char *store = hf_set_str(set, HF_SET_STORE);
    struct hf_rundir here;
    enum hf_rc rc = hf_rundir_find(&here, hf_set_str(set, HF_SET_STATE_DIR), name, store, err);
    bool known = rc == HF_OK;
    if (known) {
        *ret = hf_status_here(&here);
    }
    hf_rundir_release(&here);
    if (store == NULL || (!known && rc != HF_ENOTFOUND) ||
        (known && hf_json_opt_bool(*ret, "supervised", false))) {
        return rc;
    }
    cJSON *far = NULL;
    rc = hf_status_far(set, name, &far, err);
    if (!known) {
        *ret = far;
        return rc;
    }
    if (rc == HF_OK && hf_json_opt_int(far, "attempt", 0) > hf_json_opt_int(*ret, "attempt", 0)) {
        hf_json_free(*ret);
        *ret = far;
        return HF_OK;
    }
    hf_json_free(far);
    return HF_OK;
}

static int run(struct hf_cmd_ctx *ctx)
{
    const char *state = hf_set_str(ctx->settings, HF_SET_STATE_DIR);
    const char *name = ctx->argc > 0 ? ctx->argv[0] : hf_set_str(ctx->settings, HF_SET_RUN);
    struct hf_err err = {0};
    cJSON *arr = hf_json_arr();
    if (ctx->argc > 1) {
        hf_log(ctx->log, HF_LOG_ERROR, "status takes one run at most, '%s' is one too many",
               ctx->argv[1]);
        hf_json_free(arr);
        return HF_EXIT_USAGE;
    }
    enum hf_rc rc = HF_OK;
    if (name != NULL) {
        cJSON *one = NULL;
        rc = one_run(ctx, name, &one, &err);
        if (rc == HF_OK) {
            push(ctx, arr, one);
        }
    } else {
        struct hf_rundir *all = NULL;
        size_t n = 0;
        rc = hf_rundir_all(state, &all, &n, &err);
        for (size_t i = 0; i < n; i++) {
            push(ctx, arr, hf_status_here(&all[i]));
            hf_rundir_release(&all[i]);
        }
        hf_free(all);
    }
    if (rc != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        hf_json_free(arr);
        return HF_EXIT_FAIL;
    }
    return finish(ctx, arr);
}

const struct hf_cmd hf_cmd_status = {
    .name = "status",
    .args = "[options] [RUN]",
    .summary = "what is known of the runs started here, since when and from what",
    .about = "Without RUN: every run that is registered in the state folder. With RUN and --store "
             "the\nstore is asked too, from any machine.",
    .exits = "0: what is known was printed, be the run in trouble or not\n1: the run is not "
             "known\n64: wrong usage",
    .group = HF_FOR_STATUS,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
