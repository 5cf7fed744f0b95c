/* SPDX-License-Identifier: Apache-2.0
 *
 * --metrics-file: the supervisor's view of itself, written when the state or a sum changes and else
 * every few seconds. The view is taken on the loop thread; the file is written by one worker of its
 * own, so that a file system that hangs holds nothing up. The last word is written at the end.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/fsx.h"
#include "supervisor/sup.h"

#define EVERY_MS 4000
#define TEXT_MAX 65536

struct hf_metrics {
    char *path;
    struct hf_pool *pool;
    struct hf_metrics_sums sums;
    uint64_t written_ns; /* when the last write began */
    enum hf_job_state told;
    bool changed, busy, warned;
    bool any; /* something of this run was written */
};

struct job {
    struct hf_sup *sup;
    const char *path; /* of the metrics object, which outlives the pool */
    struct hf_buf text;
};

static int64_t wall_of(uint64_t at_ns)
{
    return at_ns != 0 ? hf_wall_ms() - (int64_t)((hf_now_ns() - at_ns) / HF_MS) : 0;
}

/* Fills *v and what it points to. */
static void look(const struct hf_sup *sup, struct hf_metrics_view *v, struct hf_watch_status *watch)
{
    const struct hf_attempt *at = &sup->at;
    struct hf_hooks_status ranks = {.step = -1};
    if (at->hooks != NULL) {
        hf_hooks_get_status(at->hooks, &ranks);
    }
    if (sup->watch != NULL) {
        hf_watch_get_status(sup->watch, watch);
    }
    struct hf_logship_status log = {.missing = 0};
    if (at->logship != NULL) {
        hf_logship_get_status(at->logship, &log);
    }
    const struct hf_verdict *save = at->ship != NULL ? hf_ship_verdict(at->ship) : NULL;
    uint64_t now_ns = hf_now_ns();
    bool by = ranks.world > 0 || at->watchdir != NULL;
    *v = (struct hf_metrics_view){
        .run = sup->run.name,
        .provider = sup->provider != NULL ? sup->provider->name : NULL,
        .store_kind = hf_sup_safe_word(sup),
        .up = true,
        .state = sup->state,
        .since_wall_ms = sup->state_since_wall_ms,
        .attempt = at->claim.attempt,
        .step = ranks.step,
        .step_wall_ms = wall_of(ranks.step_changed_ns),
        .save = save,
        .save_age_ms = save != NULL ? (int64_t)((now_ns - save->at_ns) / HF_MS) : -1,
        .beat_wall_ms = at->beat_wall_ms,
        .store_silent_ms = sup->silent_ns != 0 ? (int64_t)((now_ns - sup->silent_ns) / HF_MS) : 0,
        .protected_known = by || at->unprotected,
        .is_protected = by,
        .watch = sup->watch != NULL ? watch : NULL,
        .events_dropped = sup->events.dropped,
        .log_dropped = at->log_dropped,
        .log_not_stored = log.missing,
        .crashes = sup->crashes,
        .sums = sup->metrics->sums,
    };
    if (sup->leaving.notice) {
        int64_t left_ms = (int64_t)(sup->leaving.deadline_ns - now_ns) / (int64_t)HF_MS;
        v->deadline_wall_ms = hf_wall_ms() + left_ms;
    }
}

static enum hf_rc write_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct job *job = arg;
    (void)op;
    return hf_fs_write(job->path, hf_buf_span(&job->text), 0644, false, err);
}

static void failed(struct hf_sup *sup, const struct hf_err *err)
{
    if (!sup->metrics->warned) {
        hf_log_err(&sup->log, HF_LOG_WARN, err,
                   "the metrics cannot be written, which stops nothing else");
    }
    sup->metrics->warned = true;
}

static void write_done(void *user, const struct hf_err *err)
{
    struct job *job = user;
    struct hf_sup *sup = job->sup;
    hf_buf_release(&job->text);
    hf_free(job);
    if (sup->metrics == NULL) {
        return;
    }
    sup->metrics->busy = false;
    if (err != NULL) {
        failed(sup, err);
    }
}

static void heard(void *user, const char *name, const cJSON *event)
{
    struct hf_sup *sup = user;
    if (hf_metrics_count(&sup->metrics->sums, name, event)) {
        sup->metrics->changed = true;
    }
}

void hf_sup_metrics_start(struct hf_sup *sup)
{
    const char *path = hf_set_str(sup->ctx->settings, HF_SET_METRICS_FILE);
    if (path == NULL) {
        return;
    }
    sup->metrics = HF_NEW(struct hf_metrics);
    sup->metrics->path = hf_path_from(sup->folder, path);
    sup->metrics->pool = hf_pool_new(&sup->loop, "hf-metrics", 1, 4);
    sup->events.heard = heard;
    sup->events.user = sup;
}

void hf_sup_metrics_due(struct hf_sup *sup)
{
    struct hf_metrics *m = sup->metrics;
    uint64_t now_ns = hf_now_ns();
    if (m == NULL || m->busy ||
        (!m->changed && m->told == sup->state && now_ns - m->written_ns < EVERY_MS * HF_MS)) {
        return;
    }
    struct hf_metrics_view v;
    struct hf_watch_status watch;
    struct hf_err err = {0};
    struct job *job = HF_NEW(struct job);
    job->sup = sup;
    job->path = m->path;
    hf_buf_init(&job->text, TEXT_MAX);
    look(sup, &v, &watch);
    m->changed = false;
    m->told = sup->state;
    m->written_ns = now_ns;
    m->any = true;
    m->busy = true;
    enum hf_rc rc = hf_metrics_text(&v, &job->text, &err);
    if (rc == HF_OK) {
        rc = hf_pool_submit(m->pool, &sup->scope, write_work, job, write_done, job, NULL, &err);
    }
    if (rc != HF_OK) {
        write_done(job, &err);
    }
}

/* What was known last stays in the file, with the state "ended" and up 0. */
void hf_sup_metrics_end(struct hf_sup *sup)
{
    struct hf_metrics *m = sup->metrics;
    if (m == NULL) {
        return;
    }
    hf_pool_free(m->pool);
    m->pool = NULL;
    if (m->any) {
        struct hf_metrics_view v;
        struct hf_watch_status watch;
        struct hf_err err = {0};
        struct hf_buf text;
        hf_buf_init(&text, TEXT_MAX);
        look(sup, &v, &watch);
        v.up = false;
        v.state = HF_JOB_ENDED;
        enum hf_rc rc = hf_metrics_text(&v, &text, &err);
        rc = rc == HF_OK ? hf_fs_write(m->path, hf_buf_span(&text), 0644, false, &err) : rc;
        if (rc != HF_OK) {
            failed(sup, &err);
        }
        hf_buf_release(&text);
    }
    sup->events.heard = NULL;
    sup->metrics = NULL;
    hf_free(m->path);
    hf_free(m);
}
