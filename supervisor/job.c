/* SPDX-License-Identifier: Apache-2.0
 *
 * The job machine's table and its one mover. What the actions do is in sup_*.c. No state is changed
 * anywhere else.
 */
#include "base/prelude.h"

#include "supervisor/job.h"
#include "supervisor/sup.h"

/* clang-format off */
const struct hf_job_edge hf_job_edges[HF_JOB_STATES][HF_JOB_EVENTS] = {
    [HF_JOB_NONE] = {
        [HF_EV_BEGIN]     = {HF_JOB_PREPARING, hf_act_prepare},
    },
    [HF_JOB_PREPARING] = {
        [HF_EV_PREPARED]  = {HF_JOB_STARTING,  hf_act_start},
        [HF_EV_ADOPTED]   = {HF_JOB_RUNNING,   hf_act_adopted},
        [HF_EV_REFUSED]   = {HF_JOB_ENDED,     hf_act_over},
        [HF_EV_NOTICE]    = {HF_JOB_PREPARING, hf_act_prepare_cancel},
        [HF_EV_FORCE]     = {HF_JOB_PREPARING, hf_act_prepare_cancel},
        [HF_EV_WITHDRAWN] = {HF_JOB_PREPARING, NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_PREPARING, NULL}, /* canceled already; a store may hang */
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
    },
    [HF_JOB_STARTING] = {
        [HF_EV_STARTED]   = {HF_JOB_RUNNING,   hf_act_running},
        [HF_EV_NO_EXEC]   = {HF_JOB_DRAINING,  NULL},
        [HF_EV_NOTICE]    = {HF_JOB_STARTING,  NULL},
        [HF_EV_WITHDRAWN] = {HF_JOB_STARTING,  NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_STOPPING,  hf_act_stop}, /* its exec hangs */
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_RUNNING] = {
        [HF_EV_STARTED]   = {HF_JOB_RUNNING,   NULL}, /* told again by an adopted keeper */
        [HF_EV_NO_EXEC]   = {HF_JOB_DRAINING,  NULL}, /* this too */
        [HF_EV_NOTICE]    = {HF_JOB_LEAVING,   hf_act_leave},
        [HF_EV_WITHDRAWN] = {HF_JOB_RUNNING,   NULL},
        [HF_EV_HUNG]      = {HF_JOB_HUNG,      hf_act_hung},
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_EXITED]    = {HF_JOB_DRAINING,  hf_act_exited},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_HUNG] = {
        [HF_EV_NOTICE]    = {HF_JOB_LEAVING,   hf_act_leave},
        [HF_EV_WITHDRAWN] = {HF_JOB_HUNG,      NULL},
        [HF_EV_SAFE]      = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_OVERTIME]  = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_EXITED]    = {HF_JOB_DRAINING,  hf_act_exited},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_LEAVING] = {
        [HF_EV_STARTED]   = {HF_JOB_LEAVING,   NULL}, /* adopted on a notice: as in running */
        [HF_EV_NO_EXEC]   = {HF_JOB_DRAINING,  NULL},
        [HF_EV_NOTICE]    = {HF_JOB_LEAVING,   hf_act_hurry},
        [HF_EV_WITHDRAWN] = {HF_JOB_RUNNING,   hf_act_unleave},
        [HF_EV_SAFE]      = {HF_JOB_STOPPING,  hf_act_stop_softly},
        [HF_EV_OVERTIME]  = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_EXITED]    = {HF_JOB_DRAINING,  hf_act_exited},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_STOPPING] = {
        [HF_EV_NOTICE]    = {HF_JOB_STOPPING,  NULL},
        [HF_EV_WITHDRAWN] = {HF_JOB_STOPPING,  NULL},
        [HF_EV_SAFE]      = {HF_JOB_STOPPING,  NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_STARTED]   = {HF_JOB_STOPPING,  NULL},
        [HF_EV_NO_EXEC]   = {HF_JOB_STOPPING,  NULL},
        [HF_EV_EXITED]    = {HF_JOB_STOPPING,  hf_act_exited},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_DRAINING] = {
        [HF_EV_NOTICE]    = {HF_JOB_DRAINING,  NULL},
        [HF_EV_WITHDRAWN] = {HF_JOB_DRAINING,  NULL},
        [HF_EV_SAFE]      = {HF_JOB_DRAINING,  NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_FORCE]     = {HF_JOB_STOPPING,  hf_act_stop},
        [HF_EV_GONE]      = {HF_JOB_SETTLING,  hf_act_settle},
        [HF_EV_LOST]      = {HF_JOB_STOPPING,  hf_act_hunt},
    },
    [HF_JOB_SETTLING] = {
        [HF_EV_NOTICE]    = {HF_JOB_SETTLING,  NULL},
        [HF_EV_WITHDRAWN] = {HF_JOB_SETTLING,  NULL},
        [HF_EV_SAFE]      = {HF_JOB_SETTLING,  NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_SETTLING,  NULL},
        [HF_EV_FORCE]     = {HF_JOB_SETTLING,  hf_act_settle_now},
        [HF_EV_SETTLED]   = {HF_JOB_PAUSING,   hf_act_next},
    },
    [HF_JOB_PAUSING] = {
        [HF_EV_AGAIN]     = {HF_JOB_PREPARING, hf_act_prepare},
        [HF_EV_OVER]      = {HF_JOB_ENDED,     hf_act_over},
        [HF_EV_NOTICE]    = {HF_JOB_PAUSING,   hf_act_no_more},
        [HF_EV_FORCE]     = {HF_JOB_PAUSING,   hf_act_no_more},
        [HF_EV_WITHDRAWN] = {HF_JOB_PAUSING,   NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_PAUSING,   NULL},
    },
    [HF_JOB_ENDED] = {
        [HF_EV_NOTICE]    = {HF_JOB_ENDED,     NULL},
        [HF_EV_WITHDRAWN] = {HF_JOB_ENDED,     NULL},
        [HF_EV_FORCE]     = {HF_JOB_ENDED,     NULL},
        [HF_EV_OVERTIME]  = {HF_JOB_ENDED,     NULL},
    },
};
/* clang-format on */

const char *hf_job_state_name(enum hf_job_state s)
{
    static const char *const names[HF_JOB_STATES] = {
        "none",     "preparing", "starting", "running", "hung",  "leaving",
        "stopping", "draining",  "settling", "pausing", "ended",
    };
    return (size_t)s < HF_JOB_STATES ? names[s] : "unknown";
}

const char *hf_job_event_name(enum hf_job_event e)
{
    static const char *const names[HF_JOB_EVENTS] = {
        "begin",  "prepared",  "adopted", "refused", "started",  "no-exec",
        "notice", "withdrawn", "hung",    "safe",    "overtime", "force",
        "exited", "gone",      "lost",    "settled", "again",    "over",
    };
    return (size_t)e < HF_JOB_EVENTS ? names[e] : "unknown";
}

void hf_job_event(struct hf_sup *sup, enum hf_job_event ev)
{
    enum hf_job_state from = sup->state;
    const struct hf_job_edge *edge = &hf_job_edges[from][ev];
    if (edge->to == HF_JOB_NONE) {
        sup->illegal_edges++;
        hf_log(&sup->log, HF_LOG_DEBUG, "job: no edge from %s on %s", hf_job_state_name(from),
               hf_job_event_name(ev));
        return;
    }
    sup->state = edge->to;
    if (edge->to != from) {
        sup->state_since_ns = hf_now_ns();
        sup->state_since_wall_ms = hf_wall_ms();
    }
    hf_log(&sup->log, HF_LOG_DEBUG, "job: %s --%s--> %s", hf_job_state_name(from),
           hf_job_event_name(ev), hf_job_state_name(edge->to));
    if (edge->to != from) {
        hf_sup_status_changed(sup);
    }
    if (edge->act != NULL) {
        edge->act(sup);
    }
}
