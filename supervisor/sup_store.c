/* SPDX-License-Identifier: Apache-2.0
 *
 * A store that does not answer. A call into a file system that hangs (a network mount whose server
 * is gone) ends when it likes, so nothing waits for it here: it is said, once, and said again when
 * the store answers. Training is never touched. Loop thread.
 */
#include "base/prelude.h"

#include <inttypes.h>

#include "supervisor/sup.h"

#define SILENT_MS \
    15000 /* one block at 1 MiB/s takes about as long: slower than that is worth a word */

static const char *what_waits(enum hf_job_state state)
{
    switch (state) {
    case HF_JOB_NONE:
    case HF_JOB_PREPARING:
    case HF_JOB_STARTING:
    case HF_JOB_PAUSING:
        return "nothing is started before it answers";
    case HF_JOB_HUNG:
    case HF_JOB_LEAVING:
    case HF_JOB_STOPPING:
    case HF_JOB_DRAINING:
    case HF_JOB_SETTLING:
        return "the last save waits for it; interrupt twice to give that up";
    case HF_JOB_RUNNING:
    case HF_JOB_ENDED:
    case HF_JOB_STATES:
        break;
    }
    return "training goes on, new checkpoints wait for it";
}

void hf_sup_follow_store(struct hf_sup *sup)
{
    struct hf_pulse_look look;
    uint64_t now = hf_now_ns();
    bool waits = hf_pulse_oldest(sup->pulse, &look);
    uint64_t age_ms = waits && now > look.since_ns ? (now - look.since_ns) / HF_MS : 0;
    bool silent = age_ms >= SILENT_MS;
    if (silent == (sup->silent_ns != 0)) {
        return;
    }
    cJSON *f = hf_json_obj();
    if (silent) {
        char age[HF_DURATION_STRLEN];
        sup->silent_ns = look.since_ns;
        hf_json_add_str(f, "call", look.what);
        hf_json_add_str(f, "key", look.key);
        hf_json_add_int(f, "waited_ms", (int64_t)age_ms);
        hf_log(&sup->log, HF_LOG_WARN, "the store '%s' has not answered for %s (%s '%s'): %s",
               sup->dir.store, hf_duration_format(age_ms / 1000 * 1000, age), look.what, look.key,
               what_waits(sup->state));
    } else {
        hf_json_add_int(f, "silent_ms", (int64_t)((now - sup->silent_ns) / HF_MS));
        sup->silent_ns = 0;
        hf_log(&sup->log, HF_LOG_INFO, "the store answers again");
    }
    hf_event(&sup->events, sup->at.claim.attempt, silent ? "store-silent" : "store-answers", f);
    hf_sup_status_changed(sup);
}
