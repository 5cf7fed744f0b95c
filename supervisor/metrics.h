/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of a run as the node exporter's textfile collector reads them: text format 0.0.4, no
 * timestamps on samples, every sample with the label run (docs/metrics.md). The text is made from a
 * view and is pure; the file is replaced by rename. Names and units follow Prometheus's rules.
 */
#ifndef HF_SUPERVISOR_METRICS_H
#define HF_SUPERVISOR_METRICS_H

#include "base/prelude.h"

#include "base/buf.h"
#include "cloud/watch.h"
#include "supervisor/job.h"
#include "supervisor/ship.h"

#define HF_METRICS_SOURCES 8 /* of notices; further ones count as "other" */

/* Sums since this supervisor began. */
struct hf_metrics_sums {
    uint64_t saves[HF_VERDICT_LOST + 1]; /* by enum hf_verdict_kind */
    uint64_t saves_skipped;
    uint64_t sent_bytes;
    uint64_t restarts; /* attempts that followed here */
    uint64_t unprotected, stragglers;
    struct {
        char source[24];
        uint64_t n;
    } notices[HF_METRICS_SOURCES];
};

/* All that is told. Times are by the wall clock in milliseconds; 0 and negative numbers: unknown,
 * and then the metric is left out. Borrowed pointers. */
struct hf_metrics_view {
    const char *run, *provider, *store_kind;
    bool up;
    enum hf_job_state state;
    int64_t since_wall_ms;
    uint32_t attempt;
    int64_t step;
    int64_t step_wall_ms;
    const struct hf_verdict *save; /* NULL: none */
    int64_t save_age_ms;
    int64_t beat_wall_ms;
    int64_t deadline_wall_ms; /* of the standing notice */
    int64_t store_silent_ms;
    bool protected_known, is_protected;
    const struct hf_watch_status *watch; /* NULL: not watched */
    uint64_t events_dropped, crashes;
    uint64_t log_dropped, log_not_stored; /* bytes, of this attempt */
    struct hf_metrics_sums sums;
};

/* Appends the whole text. */
enum hf_rc hf_metrics_text(const struct hf_metrics_view *v, struct hf_buf *out,
                           struct hf_err *err) HF_MUST_USE;

/* Adds one event to the sums (supervisor/events.h). Returns whether it is worth a write at once. */
bool hf_metrics_count(struct hf_metrics_sums *sums, const char *event, const cJSON *fields);

struct hf_metrics;

#endif
