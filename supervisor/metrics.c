/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the metrics, and the sums behind the counters. Pure functions; no file, no clock, no
 * locale. One group a metric: HELP, TYPE, samples.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "supervisor/metrics.h"

struct writer {
    const struct hf_metrics_view *v;
    struct hf_buf *out;
    struct hf_err *err;
    enum hf_rc rc; /* the first failure */
};

HF_PRINTF(2, 3)
static void put(struct writer *w, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    if (w->rc == HF_OK) {
        w->rc = hf_buf_add(w->out, text, len, w->err);
    }
}

static void family(struct writer *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP holdfast_%s %s\n# TYPE holdfast_%s %s\n", name, help, name, type);
}

/* `value` with backslash, quote and newline escaped, as in a label. */
static void put_label(struct writer *w, const char *key, const char *value)
{
    char safe[200];
    size_t n = 0;
    for (const char *p = value; *p != '\0' && n + 3 < sizeof(safe); p++) {
        if (*p == '\\' || *p == '"' || *p == '\n') {
            safe[n++] = '\\';
        }
        safe[n++] = *p;
        if (*p == '\n') {
            safe[n - 1] = 'n';
        }
    }
    safe[n] = '\0';
    put(w, ",%s=\"%s\"", key, safe);
}

static void begin(struct writer *w, const char *name)
{
    put(w, "holdfast_%s{run=\"%s\"", name, w->v->run);
}

/* key NULL: the run is the only label. */
static void number(struct writer *w, const char *name, const char *key, const char *value,
                   uint64_t n)
{
    begin(w, name);
    if (key != NULL) {
        put_label(w, key, value);
    }
    put(w, "} %" PRIu64 "\n", n);
}

static void gauge(struct writer *w, const char *name, const char *help, uint64_t n)
{
    family(w, name, "gauge", help);
    number(w, name, NULL, NULL, n);
}

static void counter(struct writer *w, const char *name, const char *help, uint64_t n)
{
    family(w, name, "counter", help);
    number(w, name, NULL, NULL, n);
}

/* Seconds with three places; left out when it is not known. */
static void seconds(struct writer *w, const char *name, const char *help, int64_t ms)
{
    if (ms < 0) {
        return;
    }
    family(w, name, "gauge", help);
    begin(w, name);
    put(w, "} %" PRId64 ".%03" PRId64 "\n", ms / 1000, ms % 1000);
}

static void time_of(struct writer *w, const char *name, const char *help, int64_t wall_ms)
{
    seconds(w, name, help, wall_ms > 0 ? wall_ms : -1);
}

static void put_job(struct writer *w)
{
    const struct hf_metrics_view *v = w->v;
    family(w, "build_info", "gauge", "The program's version.");
    number(w, "build_info", "version", HF_VERSION, 1);
    family(w, "run_info", "gauge",
           "Where the run keeps its checkpoints and whose notices it sees.");
    begin(w, "run_info");
    put_label(w, "store_kind", v->store_kind);
    put_label(w, "provider", v->provider != NULL ? v->provider : "none");
    put(w, "} 1\n");
    gauge(w, "up", "1 while a supervisor lives, 0 once it has written its last word.", v->up);
    family(w, "state", "gauge", "1 for the state that the job is in.");
    for (int s = HF_JOB_PREPARING; s < HF_JOB_STATES; s++) {
        number(w, "state", "state", hf_job_state_name((enum hf_job_state)s),
               s == (int)v->state ? 1 : 0);
    }
    time_of(w, "state_since_timestamp_seconds", "When the job came into this state.",
            v->since_wall_ms);
    gauge(w, "attempt", "The number of the attempt.", v->attempt);
    counter(w, "restarts_total", "Attempts that this supervisor began after its first.",
            v->sums.restarts);
    gauge(w, "crashes_in_a_row", "Crashes without progress so far.", v->crashes);
    if (v->step >= 0) {
        gauge(w, "step", "The newest step that a rank has published.", (uint64_t)v->step);
        time_of(w, "step_timestamp_seconds", "When that step was seen.", v->step_wall_ms);
    }
    if (v->protected_known) {
        gauge(w, "protected", "1 if a hook or a watched folder saves the run, 0 if nothing does.",
              v->is_protected);
    }
}

static void put_saves(struct writer *w)
{
    const struct hf_metrics_view *v = w->v;
    family(w, "saves_total", "counter", "Saves that were tried, by what they achieved.");
    for (int k = HF_VERDICT_DURABLE; k <= HF_VERDICT_LOST; k++) {
        number(w, "saves_total", "verdict", hf_verdict_name((enum hf_verdict_kind)k),
               v->sums.saves[k]);
    }
    counter(w, "saves_skipped_total", "Saves that gave way to a newer one.", v->sums.saves_skipped);
    counter(w, "sent_bytes_total", "Bytes sent to the store for checkpoints.", v->sums.sent_bytes);
    if (v->save == NULL || v->save->attempt == 0) {
        return;
    }
    gauge(w, "checkpoint_size_bytes", "Size of the checkpoint that stands.", v->save->bytes);
    if (v->save->step >= 0) {
        gauge(w, "checkpoint_step", "Step of the checkpoint that stands.", (uint64_t)v->save->step);
    }
    bool made = v->save->kind == HF_VERDICT_DURABLE || v->save->kind == HF_VERDICT_LOCAL;
    if (made) {
        seconds(w, "checkpoint_duration_seconds",
                "From the trainer's word that it saved to the store's that it is kept.",
                (int64_t)v->save->took_ms);
        seconds(w, "checkpoint_age_seconds", "Age of the checkpoint that stands.", v->save_age_ms);
        time_of(w, "checkpoint_last_success_timestamp_seconds",
                "When the checkpoint that stands was committed.", v->save->at_wall_ms);
    }
}

static void put_notices(struct writer *w)
{
    const struct hf_metrics_view *v = w->v;
    family(w, "notices_total", "counter", "Notices that this machine will be taken, by source.");
    for (size_t i = 0; i < HF_METRICS_SOURCES && v->sums.notices[i].n > 0; i++) {
        number(w, "notices_total", "source", v->sums.notices[i].source, v->sums.notices[i].n);
    }
    gauge(w, "notice_standing", "1 while a notice stands.", v->deadline_wall_ms > 0);
    time_of(w, "notice_deadline_timestamp_seconds", "When the machine goes.", v->deadline_wall_ms);
    if (v->watch == NULL) {
        return;
    }
    static const char *const health[] = {"starting", "seeing", "blind"};
    family(w, "metadata_watch", "gauge", "1 for what the watcher of notices is; blind sees none.");
    for (unsigned h = HF_WATCH_STARTING; h <= HF_WATCH_BLIND; h++) {
        number(w, "metadata_watch", "health", health[h], h == (unsigned)v->watch->health ? 1 : 0);
    }
    const struct {
        const char *result;
        uint64_t n;
    } results[] = {
        {"404", v->watch->not_found},     {"200", v->watch->told},
        {"token", v->watch->tokens},      {"401", v->watch->unauthorized},
        {"5xx", v->watch->server_errors}, {"timeout", v->watch->timeouts},
        {"refused", v->watch->refused},   {"other", v->watch->others},
    };
    family(w, "metadata_requests_total", "counter",
           "Requests to the metadata service, by result; 404 is the healthy one.");
    for (size_t i = 0; i < HF_COUNT(results); i++) {
        number(w, "metadata_requests_total", "result", results[i].result, results[i].n);
    }
}

static void put_health(struct writer *w)
{
    const struct hf_metrics_view *v = w->v;
    time_of(w, "heartbeat_timestamp_seconds", "The last heartbeat that the store acknowledged.",
            v->beat_wall_ms);
    seconds(w, "store_silent_seconds", "For how long the store has not answered, 0: it does.",
            v->store_silent_ms);
    counter(w, "events_dropped_total", "Lines of the event log that could not be written.",
            v->events_dropped);
    gauge(w, "log_dropped_bytes", "Output of the attempt that the local log had no room for.",
          v->log_dropped);
    gauge(w, "log_not_stored_bytes", "Output of the attempt that never reached the store.",
          v->log_not_stored);
    counter(w, "stragglers_total", "Processes that outlived the command and were ended.",
            v->sums.stragglers);
}

enum hf_rc hf_metrics_text(const struct hf_metrics_view *v, struct hf_buf *out, struct hf_err *err)
{
    struct writer w = {.v = v, .out = out, .err = err, .rc = HF_OK};
    put_job(&w);
    put_saves(&w);
    put_notices(&w);
    put_health(&w);
    return w.rc;
}

static void count_notice(struct hf_metrics_sums *sums, const char *source)
{
    size_t i = 0;
    while (i + 1 < HF_METRICS_SOURCES && sums->notices[i].n > 0 &&
           strcmp(sums->notices[i].source, source) != 0) {
        i++;
    }
    bool room = i + 1 < HF_METRICS_SOURCES;
    snprintf(sums->notices[i].source, sizeof(sums->notices[i].source), "%.23s",
             room ? source : "other");
    sums->notices[i].n++;
}

bool hf_metrics_count(struct hf_metrics_sums *sums, const char *event, const cJSON *fields)
{
    if (strcmp(event, "verdict") == 0) {
        const char *kind = hf_json_opt_str(fields, "kind", "");
        for (int k = HF_VERDICT_DURABLE; k <= HF_VERDICT_LOST; k++) {
            sums->saves[k] += strcmp(kind, hf_verdict_name((enum hf_verdict_kind)k)) == 0;
        }
        int64_t sent = hf_json_opt_int(fields, "bytes_sent", 0);
        sums->sent_bytes += sent > 0 ? (uint64_t)sent : 0;
    } else if (strcmp(event, "notice") == 0) {
        count_notice(sums, hf_json_opt_str(fields, "source", "unknown"));
    } else if (strcmp(event, "save-skipped") == 0) {
        sums->saves_skipped++;
        return false;
    } else if (strcmp(event, "relaunch") == 0) {
        sums->restarts++;
    } else if (strcmp(event, "straggler") == 0) {
        sums->stragglers++;
        return false;
    } else if (strcmp(event, "unprotected") == 0) {
        sums->unprotected++;
    } else if (strcmp(event, "watch") != 0 && strcmp(event, "notice-withdrawn") != 0) {
        return false;
    }
    return true;
}
