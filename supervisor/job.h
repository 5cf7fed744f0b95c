/* SPDX-License-Identifier: Apache-2.0
 *
 * The job machine: what an attempt is doing. One table of (state, event) -> (state, action),
 * one function that changes state and logs the edge. An empty cell is a pair that cannot
 * happen: it is logged and counted, and nothing is done. Loop thread only.
 */
#ifndef HF_SUPERVISOR_JOB_H
#define HF_SUPERVISOR_JOB_H

#include "base/prelude.h"

struct hf_sup;

enum hf_job_state {
    HF_JOB_NONE,
    HF_JOB_PREPARING, /* claiming, restoring */
    HF_JOB_STARTING,  /* the keeper is to start the command */
    HF_JOB_RUNNING,
    HF_JOB_HUNG,     /* no sign of life: a save is asked for, then it is ended */
    HF_JOB_LEAVING,  /* a notice stands: the final save is made and shipped */
    HF_JOB_STOPPING, /* the tree is being ended */
    HF_JOB_DRAINING, /* the command has ended, descendants may linger */
    HF_JOB_SETTLING, /* the tree is gone: shipping what is left, recording the end */
    HF_JOB_PAUSING,  /* before the next attempt */
    HF_JOB_ENDED,
    HF_JOB_STATES
};

enum hf_job_event {
    HF_EV_BEGIN,
    HF_EV_PREPARED,  /* claimed and restored */
    HF_EV_ADOPTED,   /* a living attempt of this machine was taken over */
    HF_EV_REFUSED,   /* nothing was or will be started */
    HF_EV_STARTED,   /* the command runs */
    HF_EV_NO_EXEC,   /* the command could not be executed */
    HF_EV_NOTICE,    /* a notice, or a nearer deadline */
    HF_EV_WITHDRAWN, /* no notice stands any more */
    HF_EV_HUNG,      /* every sign of life is missing, and it shall be restarted */
    HF_EV_SAFE,      /* leaving, hung: the final save is settled, one way or the other */
    HF_EV_OVERTIME,  /* leaving, hung: the time for saving is over */
    HF_EV_FORCE,     /* end the tree now: a person, or another attempt took over */
    HF_EV_EXITED,    /* the command itself ended */
    HF_EV_GONE,      /* no process of the tree is left */
    HF_EV_LOST,      /* the keeper died first */
    HF_EV_SETTLED,   /* shipped and recorded */
    HF_EV_AGAIN,     /* the next attempt is due here */
    HF_EV_OVER,      /* no next attempt here */
    HF_JOB_EVENTS
};

typedef void hf_job_action_fn(struct hf_sup *sup);

struct hf_job_edge {
    enum hf_job_state to;  /* NONE: no such edge */
    hf_job_action_fn *act; /* after the change; may be NULL */
};

/* The table, for the machine itself and for the test that walks it. */
extern const struct hf_job_edge hf_job_edges[HF_JOB_STATES][HF_JOB_EVENTS];
const char *hf_job_state_name(enum hf_job_state s);
const char *hf_job_event_name(enum hf_job_event e);

/* The one place that changes the job's state. */
void hf_job_event(struct hf_sup *sup, enum hf_job_event ev);

#endif
