/* SPDX-License-Identifier: Apache-2.0
 *
 * What an attempt's end means, and whether the local backend starts the next one. Pure; any thread.
 */
#ifndef HF_SUPERVISOR_RELAUNCH_H
#define HF_SUPERVISOR_RELAUNCH_H

#include "base/prelude.h"

#include "checkpoint/manifest.h"

enum hf_outcome {
    HF_OUTCOME_FINISHED =
        1,                  /* done() of every rank, a done-file, or exit 0 with no notice active */
    HF_OUTCOME_FAILED,      /* ended by itself, otherwise */
    HF_OUTCOME_PREEMPTED,   /* left or ended on a notice, or asked to be started again */
    HF_OUTCOME_STOPPED,     /* by a person */
    HF_OUTCOME_VANISHED,    /* without a status: its keeper was killed */
    HF_OUTCOME_SUPERSEDED,  /* another attempt took over */
    HF_OUTCOME_NOT_STARTED, /* could not be executed */
    HF_OUTCOME_HUNG         /* ended by us, as it gave no sign of life */
};
const char *hf_outcome_name(enum hf_outcome o);

struct hf_ending {
    bool has_status;
    int status;       /* raw wait status */
    int exec_errno;   /* not 0: could not be executed */
    bool not_started; /* never tried: the restore failed, or a notice came first */
    bool notice;      /* a notice stood when it ended */
    bool in_peace;    /* the command itself exited with 0 before there was any notice */
    bool done;        /* every rank said done, or the done-file is there */
    bool interrupted; /* a person's interrupt at most 10 s before the end */
    bool superseded;
    bool hung;         /* it was ended because it hung */
    bool beyond_start; /* a step was finished, or a checkpoint committed */
    bool progressed;   /* a checkpoint was committed */
    bool forced;       /* SIGKILL was needed to end it, or something that it had started */
};

enum hf_outcome hf_outcome_of(const struct hf_ending *e);
/* How it ended, in words: "exited with 3", "killed by SIGKILL of the keeper after the grace"... */
#define HF_ENDING_STRLEN 96
const char *hf_ending_words(const struct hf_ending *e, char out[HF_ENDING_STRLEN]);
/* 128+n for signals; 126/127 for exec errors; 75 after a notice; 125 when nothing is known. */
int hf_exit_status_of(const struct hf_ending *e, enum hf_outcome o);

struct hf_next {
    bool again; /* start the next attempt here, after delay_ms */
    uint32_t delay_ms;
    int exit_status; /* otherwise */
    bool close;      /* claim the next number as `kind` */
    enum hf_claim_kind kind;
};

/* crashes: those in a row without progress so far; updated. random: any number, for the jitter. */
struct hf_next hf_relaunch_decide(const struct hf_ending *e, enum hf_outcome o,
                                  uint32_t max_crashes, uint64_t random, uint32_t *crashes);

#endif
