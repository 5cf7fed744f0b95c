/* SPDX-License-Identifier: Apache-2.0
 *
 * What `holdfast logs` reads from: an attempt's local log where this machine has it, its pieces in
 * the store otherwise. Main thread of a command, which may block. Output goes to `out` as it came,
 * and nothing else does; gaps are told of on stderr.
 */
#ifndef HF_SUPERVISOR_LOGVIEW_H
#define HF_SUPERVISOR_LOGVIEW_H

#include "base/prelude.h"

#include <stdio.h>

#include "base/log.h"
#include "checkpoint/lineage.h"
#include "supervisor/rundir.h"

struct hf_logview {
    const struct hf_log *log;
    FILE *out;
    const struct hf_rundir *dir; /* NULL: this machine knows nothing of the run */
    struct hf_run run;           /* store NULL: it cannot be opened */
    int64_t since_wall_ms;       /* -1: from the beginning */
    char *chunk;                 /* HF_LOG_PIECE_MAX bytes */
};

/* How far an attempt has been printed. */
struct hf_logview_at {
    uint32_t attempt;
    bool open; /* something of it was found */
    bool local;
    uint64_t offset; /* local: the next byte */
    uint32_t piece;  /* else the next piece */
};

/* The newest attempt that is known here or to the store; 0: none. */
enum hf_rc hf_logview_newest(struct hf_logview *v, uint32_t *ret, struct hf_err *err) HF_MUST_USE;
/* Finds the attempt's output and where to begin. HF_ENOTFOUND: none is kept (yet). */
enum hf_rc hf_logview_open(struct hf_logview *v, uint32_t attempt, struct hf_logview_at *ret,
                           struct hf_err *err) HF_MUST_USE;
/* Prints what there is by now. *ret_any: there was something. */
enum hf_rc hf_logview_copy(struct hf_logview *v, struct hf_logview_at *at, bool *ret_any,
                           struct hf_err *err) HF_MUST_USE;

enum hf_logview_end {
    HF_LOGVIEW_LIVES,   /* or nobody knows */
    HF_LOGVIEW_NEXT,    /* there is a later attempt */
    HF_LOGVIEW_PENDING, /* it ended, and a next one may come soon */
    HF_LOGVIEW_ENDED    /* and the run with it */
};
enum hf_logview_end hf_logview_look(struct hf_logview *v, uint32_t attempt);

#endif
