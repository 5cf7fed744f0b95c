/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be said of a run, with the evidence: read from this machine's state folder, or from the
 * store when the run lives elsewhere. The object is what `holdfast status --json` prints
 * (docs/status.md). Blocking; main thread of a command that has no loop. What nobody can vouch for
 * is "unknown".
 */
#ifndef HF_SUPERVISOR_STATUS_READ_H
#define HF_SUPERVISOR_STATUS_READ_H

#include "base/json.h"
#include "supervisor/rundir.h"

#define HF_STATUS_SILENT_MS 30000 /* a word older than this vouches for nothing */

/* Evidence looked for just now, on this machine. */
enum hf_seen { HF_SEEN_NOT_LOOKED, HF_SEEN_ALIVE, HF_SEEN_GONE };
struct hf_status_seen {
    bool locked;                     /* a supervisor holds the run's lock */
    bool same_boot;                  /* the word is of this boot of this machine */
    uint64_t boot_ms;                /* CLOCK_BOOTTIME now */
    int64_t wall_ms;                 /* the wall clock now */
    enum hf_seen supervisor, keeper; /* the processes that the word names */
    int64_t keeper_pid;
    bool exit_noted; /* the keeper has put down the command's end */
};

/* Pure. Adds to the supervisor's last word: the state that can be vouched for, `last_state`,
 * `supervised`, `evidence`, and an age beside every time. */
void hf_status_judge(cJSON *obj, const struct hf_status_seen *seen);

/* The run as known here; never NULL. */
cJSON *hf_status_here(const struct hf_rundir *r);

struct hf_store_cfg;

/* The run as the store of --store knows it, unlocked by the settings' key. HF_ENOTFOUND: no such
 * store, or no attempt of that run in it. */
struct hf_settings;
enum hf_rc hf_status_far(const struct hf_settings *set, const char *name, cJSON **ret,
                         struct hf_err *err) HF_MUST_USE;

/* Opens the store for a run that this machine does not know. HF_ENOTFOUND: its folder is not
 * there, and it is not made. The caller closes ret->store, also after a failure. */
struct hf_run;
enum hf_rc hf_far_open(const char *store, const char *name, const struct hf_store_cfg *cfg,
                       struct hf_run *ret, struct hf_err *err) HF_MUST_USE;
/* HF_ENOTFOUND: no such run is in the store. */
enum hf_rc hf_far_none(const struct hf_run *run, struct hf_err *err);

/* {by, what, at} to a list of evidence. */
void hf_status_add_evidence(cJSON *list, const char *by, int64_t at_ms, const char *fmt, ...)
    HF_PRINTF(4, 5);
/* Ages in seconds beside every time below obj: "x" gets "x_age_s". */
void hf_status_add_ages(cJSON *obj, int64_t now_ms);

/* "0.4 s ago", "12 s ago", "3m12s ago"; of a negative age "in 30 s". Returns out. */
#define HF_AGO_STRLEN 48
const char *hf_ago_format(int64_t age_ms, char out[HF_AGO_STRLEN]);

#endif
