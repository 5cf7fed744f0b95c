/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an attempt's output from the local log or from the store's pieces. Main thread of a
 * command. Must print nothing but the output itself to stdout, and must not take a store that
 * cannot be read for a run without output.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fsx.h"
#include "checkpoint/logs.h"
#include "supervisor/logring.h"
#include "supervisor/logview.h"

/* The highest attempt with a folder here, 0: none. */
static uint32_t newest_here(const struct hf_rundir *r)
{
    uint32_t best = 0;
    DIR *d = r != NULL ? opendir(r->dir) : NULL;
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char *end = NULL;
        unsigned long n = strtoul(e->d_name, &end, 10);
        if (end != e->d_name && *end == '\0' && n > best && n < UINT32_MAX) {
            best = (uint32_t)n;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return best;
}

/* By the store: the highest claim that is an attempt. */
static enum hf_rc newest_there(struct hf_logview *v, uint32_t *ret, struct hf_err *err)
{
    struct hf_claim claim = {.attempt = 0};
    uint32_t n = 0;
    HF_TRY(hf_lineage_highest(&v->run, NULL, &n, &claim, err));
    enum hf_claim_kind kind = claim.kind;
    hf_claim_release(&claim);
    while (n > 0 && kind != HF_CLAIM_RUN) {
        n--;
        if (n > 0) {
            HF_TRY(hf_lineage_get_claim(&v->run, NULL, n, &claim, err));
            kind = claim.kind;
            hf_claim_release(&claim);
        }
    }
    *ret = n;
    return HF_OK;
}

enum hf_rc hf_logview_newest(struct hf_logview *v, uint32_t *ret, struct hf_err *err)
{
    uint32_t here = newest_here(v->dir);
    uint32_t there = 0;
    struct hf_err why = {0};
    enum hf_rc rc = v->run.store != NULL ? newest_there(v, &there, &why) : HF_OK;
    if (rc != HF_OK && here == 0) {
        if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    if (rc != HF_OK) {
        hf_log_err(v->log, HF_LOG_WARN, &why, "the store cannot be read: what is here is shown");
    }
    *ret = here > there ? here : there;
    return HF_OK;
}

static enum hf_rc open_local(struct hf_logview *v, const char *dir, struct hf_logview_at *at,
                             struct hf_err *err)
{
    uint64_t first = 0;
    uint64_t end = 0;
    HF_TRY(hf_logread_bounds(dir, &first, &end, err));
    at->offset = first;
    if (v->since_wall_ms >= 0) {
        return hf_logread_since(dir, v->since_wall_ms, &at->offset, err);
    }
    if (first > 0) {
        hf_log(v->log, HF_LOG_INFO,
               "the first %" PRIu64 " bytes of attempt %u are no longer on this machine", first,
               at->attempt);
    }
    return HF_OK;
}

static enum hf_rc open_stored(struct hf_logview *v, struct hf_logview_at *at, struct hf_err *err)
{
    uint32_t last = 0;
    if (v->run.store != NULL) {
        HF_TRY(hf_log_last(&v->run, NULL, at->attempt, &last, err));
    }
    if (last == 0) {
        return hf_fail(err, HF_ENOTFOUND, "no output of attempt %u is kept", at->attempt);
    }
    at->piece = 1;
    return v->since_wall_ms < 0
               ? HF_OK
               : hf_log_since(&v->run, NULL, at->attempt, v->since_wall_ms, &at->piece, err);
}

enum hf_rc hf_logview_open(struct hf_logview *v, uint32_t attempt, struct hf_logview_at *ret,
                           struct hf_err *err)
{
    struct hf_logview_at at = {.attempt = attempt};
    enum hf_rc rc = HF_ENOTFOUND;
    if (v->dir != NULL) {
        HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(v->dir, attempt);
        rc = open_local(v, dir, &at, NULL);
        at.local = rc == HF_OK;
    }
    if (rc != HF_OK) {
        HF_TRY(open_stored(v, &at, err));
    }
    at.open = true;
    *ret = at;
    return HF_OK;
}

static enum hf_rc print(struct hf_logview *v, const void *data, size_t len, struct hf_err *err)
{
    if (fwrite(data, 1, len, v->out) != len || fflush(v->out) != 0) {
        return hf_fail_errno(err, errno, "write to stdout");
    }
    return HF_OK;
}

static enum hf_rc copy_local(struct hf_logview *v, struct hf_logview_at *at, bool *ret_any,
                             struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(v->dir, at->attempt);
    for (;;) {
        size_t len = 0;
        uint64_t from = at->offset;
        HF_TRY(hf_logread_at(dir, &from, v->chunk, HF_LOG_PIECE_MAX, &len, err));
        if (from != at->offset) {
            hf_log(v->log, HF_LOG_WARN, "%" PRIu64 " bytes went before they could be shown",
                   from - at->offset);
        }
        at->offset = from + len;
        if (len == 0) {
            return HF_OK;
        }
        HF_TRY(print(v, v->chunk, len, err));
        *ret_any = true;
    }
}

static enum hf_rc copy_stored(struct hf_logview *v, struct hf_logview_at *at, bool *ret_any,
                              struct hf_err *err)
{
    for (;;) {
        struct hf_log_piece piece = {.attempt = at->attempt, .number = at->piece};
        struct hf_buf raw;
        struct hf_err why = {0};
        hf_buf_init(&raw, HF_LOG_PIECE_MAX);
        enum hf_rc rc = hf_log_get(&v->run, NULL, &piece, &raw, &why);
        if (rc == HF_OK && piece.missing > 0) {
            hf_log(v->log, HF_LOG_WARN, "%" PRIu64 " bytes of attempt %u did not reach the store",
                   piece.missing, at->attempt);
        }
        if (rc == HF_OK) {
            at->piece++;
            *ret_any = true;
            rc = print(v, hf_buf_str(&raw), raw.len, &why);
        }
        hf_buf_release(&raw);
        if (rc != HF_OK) {
            if (rc != HF_ENOTFOUND && err != NULL) {
                *err = why;
            }
            return rc == HF_ENOTFOUND ? HF_OK : rc;
        }
    }
}

enum hf_rc hf_logview_copy(struct hf_logview *v, struct hf_logview_at *at, bool *ret_any,
                           struct hf_err *err)
{
    *ret_any = false;
    return at->local ? copy_local(v, at, ret_any, err) : copy_stored(v, at, ret_any, err);
}

/* What the store knows of the attempt's end. */
static enum hf_logview_end end_there(struct hf_logview *v, uint32_t attempt)
{
    struct hf_claim next = {.attempt = 0};
    struct hf_end end = {.outcome = NULL};
    if (hf_lineage_get_claim(&v->run, NULL, attempt + 1, &next, NULL) == HF_OK) {
        enum hf_claim_kind kind = next.kind;
        hf_claim_release(&next);
        return kind == HF_CLAIM_RUN ? HF_LOGVIEW_NEXT : HF_LOGVIEW_ENDED;
    }
    if (hf_lineage_get_end(&v->run, NULL, attempt, &end, NULL) != HF_OK) {
        return HF_LOGVIEW_LIVES;
    }
    bool left = end.outcome != NULL && strcmp(end.outcome, "preempted") == 0;
    hf_end_release(&end);
    return left ? HF_LOGVIEW_LIVES : HF_LOGVIEW_PENDING;
}

enum hf_logview_end hf_logview_look(struct hf_logview *v, uint32_t attempt)
{
    if (newest_here(v->dir) > attempt) {
        return HF_LOGVIEW_NEXT;
    }
    bool supervised = v->dir != NULL && hf_rundir_is_locked(v->dir);
    if (v->run.store == NULL) {
        return supervised ? HF_LOGVIEW_LIVES : HF_LOGVIEW_ENDED;
    }
    enum hf_logview_end end = end_there(v, attempt);
    if (end == HF_LOGVIEW_PENDING && supervised) {
        return HF_LOGVIEW_LIVES; /* it decides what follows */
    }
    HF_CLEANUP(hf_freep)
    char *dir = v->dir != NULL ? hf_rundir_attempt(v->dir, attempt) : hf_strdup("");
    return end == HF_LOGVIEW_PENDING && v->dir != NULL && hf_fs_exists(dir) ? HF_LOGVIEW_ENDED
                                                                            : end;
}
