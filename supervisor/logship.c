/* SPDX-License-Identifier: Apache-2.0
 *
 * The log's way to the store: one job at a time on a worker, a timer between two. The object is the
 * loop thread's; a job has its own copies. Must not end, hold up or fail an attempt, whatever the
 * store does.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/mem.h"
#include "checkpoint/logs.h"
#include "supervisor/logring.h"
#include "supervisor/logship.h"

#define JOB_PIECES    8   /* then the loop hears of it */
#define BUSY_PAUSE_MS 100 /* between two jobs while output comes faster than that */

/* Where the next piece begins. */
struct place {
    bool known;
    uint32_t last; /* number of the last piece */
    uint64_t end;  /* the offset after it */
    uint64_t missing;
};

struct job {
    struct hf_logship *owner;
    /* in */
    struct hf_run run;
    uint32_t attempt;
    char nonce[HF_NONCE_STRLEN];
    char *dir;
    /* in and out */
    struct place place;
    /* out */
    bool more;
};

struct hf_logship {
    struct hf_logship_cfg cfg;
    struct hf_logship_cb cb;
    void *user;
    struct place place;
    struct hf_timer due, limit;
    struct hf_op *op; /* NULL: no job runs */
    char nonce[HF_NONCE_STRLEN];
    char *dir;
    int64_t last_wall_ms;
    bool failing, refused; /* refused: another owns the pieces of this attempt */
    bool hurry, finishing, finished, closing;
};

static void look(void *user);

/* ---- on a worker ---- */

static enum hf_rc not_ours(const struct job *j, struct hf_err *err)
{
    return hf_fail(err, HF_EEXISTS, "the output of attempt %u is kept by another", j->attempt);
}

static enum hf_rc find_place(struct job *j, const struct hf_call *c, struct hf_err *err)
{
    struct hf_buf raw;
    uint32_t last = 0;
    HF_TRY(hf_log_last(&j->run, c, j->attempt, &last, err));
    if (last > 0) {
        struct hf_log_piece piece = {.attempt = j->attempt, .number = last};
        hf_buf_init(&raw, HF_LOG_PIECE_MAX);
        enum hf_rc rc = hf_log_get(&j->run, c, &piece, &raw, err);
        hf_buf_release(&raw);
        HF_TRY(rc);
        if (strcmp(piece.nonce, j->nonce) != 0) {
            return not_ours(j, err);
        }
        j->place.end = piece.offset + piece.len;
    }
    j->place.last = last;
    j->place.known = true;
    return HF_OK;
}

/* Where to read on; beyond the end of the last piece when what follows it has gone, or is more than
 * can be caught up with. */
static enum hf_rc next_offset(const struct job *j, uint64_t *ret, uint64_t *ret_end,
                              struct hf_err *err)
{
    uint64_t first = 0;
    HF_TRY(hf_logread_bounds(j->dir, &first, ret_end, err));
    uint64_t at = j->place.end;
    if (*ret_end > at && *ret_end - at > HF_LOGSHIP_BEHIND_MAX) {
        at = *ret_end - HF_LOG_PIECE_MAX;
    }
    *ret = at > first ? at : first;
    return HF_OK;
}

static enum hf_rc put_piece(struct job *j, const struct hf_call *c, uint64_t at, struct hf_span raw,
                            struct hf_err *err)
{
    struct hf_log_piece other = {.offset = 0};
    struct hf_log_piece piece = {.attempt = j->attempt,
                                 .number = j->place.last + 1,
                                 .offset = at,
                                 .missing = at - j->place.end,
                                 .at_wall_ms = hf_wall_ms(),
                                 .len = raw.len};
    memcpy(piece.nonce, j->nonce, sizeof(piece.nonce));
    enum hf_rc rc = hf_log_put(&j->run, c, &piece, raw, &other, err);
    if (rc == HF_EEXISTS) {
        /* An earlier try that was thought to have failed. */
        if (strcmp(other.nonce, j->nonce) != 0 || other.offset < j->place.end) {
            return not_ours(j, err);
        }
        piece = other;
        rc = HF_OK;
    }
    HF_TRY(rc);
    j->place.missing += piece.missing;
    j->place.last++;
    j->place.end = piece.offset + piece.len;
    return HF_OK;
}

static enum hf_rc job_pieces(struct job *j, const struct hf_call *c, char *raw, struct hf_err *err)
{
    for (int i = 0; i < JOB_PIECES; i++) {
        uint64_t at = 0;
        uint64_t end = 0;
        size_t len = 0;
        HF_TRY(hf_call_check(c, err));
        HF_TRY(next_offset(j, &at, &end, err));
        HF_TRY(hf_logread_at(j->dir, &at, raw, HF_LOG_PIECE_MAX, &len, err));
        j->more = len == HF_LOG_PIECE_MAX;
        if (len == 0) {
            return HF_OK;
        }
        HF_TRY(put_piece(j, c, at, (struct hf_span){raw, len}, err));
        if (!j->more) {
            return HF_OK;
        }
    }
    return HF_OK;
}

static enum hf_rc job_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct job *j = arg;
    struct hf_call c = {.op = op};
    if (!j->place.known) {
        HF_TRY(find_place(j, &c, err));
    }
    HF_CLEANUP(hf_freep) char *raw = hf_calloc(1, HF_LOG_PIECE_MAX);
    struct hf_err why = {0};
    enum hf_rc rc = job_pieces(j, &c, raw, &why);
    if (rc == HF_ENOTFOUND) {
        return HF_OK; /* no log here (any more) */
    }
    if (rc != HF_OK && err != NULL) {
        *err = why;
    }
    return rc;
}

/* ---- on the loop ---- */

static void logship_release(struct hf_logship *s)
{
    hf_timer_close(&s->due);
    hf_timer_close(&s->limit);
    hf_free(s->dir);
    hf_free(s);
}

static void finish_now(struct hf_logship *s)
{
    hf_timer_stop(&s->due);
    hf_timer_stop(&s->limit);
    if (!s->finished) {
        s->finished = true;
        s->cb.finished(s->user);
    }
}

static void tell(struct hf_logship *s, const struct hf_err *err)
{
    bool failing = err != NULL;
    if (failing && err->code == HF_ECANCELED) {
        return;
    }
    if (failing != s->failing) {
        s->failing = failing;
        s->cb.trouble(s->user, err);
    }
}

static void job_done(void *user, const struct hf_err *err)
{
    struct job *j = user;
    struct hf_logship *s = j->owner;
    bool more = j->more;
    s->op = NULL;
    s->place = j->place; /* also after a failure: pieces before it were put */
    hf_free(j->dir);
    hf_free(j);
    if (s->closing) {
        logship_release(s);
        return;
    }
    s->refused = err != NULL && err->code == HF_EEXISTS;
    if (err == NULL && !more) {
        s->last_wall_ms = hf_wall_ms();
    }
    bool hurry = s->hurry;
    s->hurry = false;
    tell(s, err);
    if (s->finished) {
        return;
    }
    bool all_out = err == NULL && !more && !hurry;
    if (s->finishing && (s->refused || all_out)) {
        finish_now(s);
        return;
    }
    uint64_t pause_ms = s->finishing ? BUSY_PAUSE_MS : HF_LOGSHIP_EVERY_MS;
    if (err == NULL && (hurry || more)) {
        pause_ms = s->finishing || hurry ? 0 : BUSY_PAUSE_MS;
    }
    hf_timer_start(&s->due, s->cfg.loop, pause_ms, look, s);
}

static void look(void *user)
{
    struct hf_logship *s = user;
    if (s->op != NULL || s->finished || s->refused) {
        return;
    }
    struct job *j = HF_NEW(struct job);
    j->owner = s;
    j->run = *s->cfg.run;
    j->attempt = s->cfg.attempt;
    j->dir = hf_strdup(s->dir);
    j->place = s->place;
    memcpy(j->nonce, s->nonce, sizeof(j->nonce));
    struct hf_err err = {0};
    if (hf_pool_submit(s->cfg.pool, s->cfg.scope, job_work, j, job_done, j, &s->op, &err) !=
        HF_OK) {
        hf_free(j->dir);
        hf_free(j);
        hf_timer_start(&s->due, s->cfg.loop, HF_LOGSHIP_EVERY_MS, look, s);
    }
}

struct hf_logship *hf_logship_new(const struct hf_logship_cfg *cfg, const struct hf_logship_cb *cb,
                                  void *user)
{
    struct hf_logship *s = HF_NEW(struct hf_logship);
    s->cfg = *cfg;
    s->cb = *cb;
    s->user = user;
    s->dir = hf_strdup(cfg->dir);
    memcpy(s->nonce, cfg->nonce, sizeof(s->nonce));
    hf_timer_start(&s->due, cfg->loop, HF_LOGSHIP_EVERY_MS, look, s);
    return s;
}

void hf_logship_free(struct hf_logship *s)
{
    if (s == NULL) {
        return;
    }
    s->closing = true;
    hf_timer_stop(&s->due);
    hf_timer_stop(&s->limit);
    if (s->op != NULL) {
        hf_op_cancel(s->op); /* job_done frees */
        return;
    }
    logship_release(s);
}

void hf_logship_hurry(struct hf_logship *s)
{
    if (s == NULL || s->finished) {
        return;
    }
    s->hurry = s->op != NULL;
    hf_timer_start(&s->due, s->cfg.loop, 0, look, s);
}

static void limit_over(void *user)
{
    hf_logship_stop(user);
}

void hf_logship_finish(struct hf_logship *s, uint64_t limit_ms)
{
    if (s == NULL || s->finished || s->finishing) {
        return;
    }
    s->finishing = true;
    if (s->refused) {
        limit_ms = 0;
    }
    hf_timer_start(&s->limit, s->cfg.loop, limit_ms, limit_over, s);
    hf_logship_hurry(s);
}

void hf_logship_stop(struct hf_logship *s)
{
    if (s != NULL && !s->finished) {
        hf_op_cancel(s->op);
        finish_now(s);
    }
}

bool hf_logship_finished(const struct hf_logship *s)
{
    return s == NULL || s->finished;
}

void hf_logship_get_status(const struct hf_logship *s, struct hf_logship_status *ret)
{
    *ret = (struct hf_logship_status){.pieces = s->place.last,
                                      .offset = s->place.end,
                                      .missing = s->place.missing,
                                      .last_wall_ms = s->last_wall_ms,
                                      .failing = s->failing};
}
