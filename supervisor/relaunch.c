/* SPDX-License-Identifier: Apache-2.0
 *
 * Endings and relaunches, pure. A preemption never counts as a crash, and nothing is started
 * again here after a real notice: the machine is going.
 */
#include "base/prelude.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "supervisor/cmd.h"
#include "supervisor/relaunch.h"

const char *hf_outcome_name(enum hf_outcome o)
{
    static const char *const names[] = {
        [HF_OUTCOME_FINISHED] = "finished",       [HF_OUTCOME_FAILED] = "failed",
        [HF_OUTCOME_PREEMPTED] = "preempted",     [HF_OUTCOME_STOPPED] = "stopped",
        [HF_OUTCOME_VANISHED] = "vanished",       [HF_OUTCOME_SUPERSEDED] = "superseded",
        [HF_OUTCOME_NOT_STARTED] = "not-started", [HF_OUTCOME_HUNG] = "hung",
    };
    return (size_t)o < HF_COUNT(names) && names[o] != NULL ? names[o] : "unknown";
}

enum hf_outcome hf_outcome_of(const struct hf_ending *e)
{
    if (e->superseded) {
        return HF_OUTCOME_SUPERSEDED;
    }
    if (e->exec_errno != 0 || (e->not_started && !e->notice && !e->interrupted)) {
        return HF_OUTCOME_NOT_STARTED;
    }
    if (e->done) {
        return HF_OUTCOME_FINISHED;
    }
    if (e->in_peace && !e->interrupted) {
        return HF_OUTCOME_FINISHED;
    }
    if (e->notice) {
        return HF_OUTCOME_PREEMPTED;
    }
    if (e->interrupted) {
        return HF_OUTCOME_STOPPED;
    }
    if (e->hung) {
        return HF_OUTCOME_HUNG;
    }
    if (!e->has_status) {
        return HF_OUTCOME_VANISHED;
    }
    if (WIFEXITED(e->status) && WEXITSTATUS(e->status) == 0) {
        return HF_OUTCOME_FINISHED;
    }
    if (WIFEXITED(e->status) && WEXITSTATUS(e->status) == HF_EXIT_AGAIN) {
        return HF_OUTCOME_PREEMPTED;
    }
    return HF_OUTCOME_FAILED;
}

const char *hf_ending_words(const struct hf_ending *e, char out[HF_ENDING_STRLEN])
{
    const char *after = e->forced ? ", after SIGKILL to what it had left" : "";
    if (e->exec_errno != 0) {
        snprintf(out, HF_ENDING_STRLEN, "could not be executed");
    } else if (e->not_started) {
        snprintf(out, HF_ENDING_STRLEN, "was not started");
    } else if (!e->has_status) {
        snprintf(out, HF_ENDING_STRLEN, "ended without a status");
    } else if (WIFEXITED(e->status)) {
        snprintf(out, HF_ENDING_STRLEN, "exited with %d%s", WEXITSTATUS(e->status), after);
    } else if (e->forced && WTERMSIG(e->status) == SIGKILL) {
        snprintf(out, HF_ENDING_STRLEN,
                 "killed by holdfast (SIGKILL), as it did not end by itself");
    } else {
        const char *name = sigabbrev_np(WTERMSIG(e->status));
        snprintf(out, HF_ENDING_STRLEN, "killed by signal %d (SIG%s)%s", WTERMSIG(e->status),
                 name != NULL ? name : "?", after);
    }
    return out;
}

int hf_exit_status_of(const struct hf_ending *e, enum hf_outcome o)
{
    switch (o) {
    case HF_OUTCOME_PREEMPTED:
        return HF_EXIT_AGAIN;
    case HF_OUTCOME_SUPERSEDED:
        return HF_EXIT_OWN;
    case HF_OUTCOME_NOT_STARTED:
        if (e->exec_errno == 0) {
            return HF_EXIT_OWN;
        }
        return e->exec_errno == ENOENT ? HF_EXIT_NOCOMMAND : HF_EXIT_NOEXEC;
    case HF_OUTCOME_FINISHED:
    case HF_OUTCOME_FAILED:
    case HF_OUTCOME_STOPPED:
    case HF_OUTCOME_VANISHED:
        break;
    case HF_OUTCOME_HUNG:
        if (e->has_status && e->status == 0) {
            return 128 + SIGKILL; /* its own last word, after a hang, is no success */
        }
        break;
    }
    if (!e->has_status) {
        return o == HF_OUTCOME_FINISHED  ? HF_EXIT_OK
               : o == HF_OUTCOME_STOPPED ? 128 + SIGINT
                                         : HF_EXIT_OWN;
    }
    return WIFSIGNALED(e->status) ? 128 + WTERMSIG(e->status) : WEXITSTATUS(e->status);
}

/* 1 s, 2 s, 4 s … up to a minute, the upper half of it random. */
static uint32_t crash_delay(uint32_t crashes, uint64_t random)
{
    uint32_t full = crashes >= 6 ? 60000 : 1000u << crashes;
    return full / 2 + (uint32_t)(random % (full / 2 + 1));
}

struct hf_next hf_relaunch_decide(const struct hf_ending *e, enum hf_outcome o,
                                  uint32_t max_crashes, uint64_t random, uint32_t *crashes)
{
    struct hf_next next = {.exit_status = hf_exit_status_of(e, o)};
    if (o == HF_OUTCOME_FINISHED || o == HF_OUTCOME_STOPPED) {
        next.close = true;
        next.kind = o == HF_OUTCOME_FINISHED ? HF_CLAIM_FINISHED : HF_CLAIM_STOPPED;
        return next;
    }
    bool crash = o == HF_OUTCOME_FAILED || o == HF_OUTCOME_VANISHED || o == HF_OUTCOME_HUNG;
    if (!crash || !e->beyond_start || max_crashes == 0) {
        return next;
    }
    if (e->progressed) {
        *crashes = 0;
    } else if (*crashes >= max_crashes) {
        return next;
    }
    next.again = true;
    next.delay_ms = crash_delay(*crashes, random);
    *crashes += e->progressed ? 0 : 1;
    return next;
}
