/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's one context, and the parts that share it. Internal to supervisor/: sup.c
 * makes it and ends it, job.c changes its state, the sup_*.c files hold the actions of one
 * concern each. Loop thread only; workers get copies or what is marked immutable.
 */
#ifndef HF_SUPERVISOR_SUP_H
#define HF_SUPERVISOR_SUP_H

#include "base/prelude.h"

#include "base/log.h"
#include "base/work.h"
#include "cloud/watch.h"
#include "supervisor/attempt.h"
#include "supervisor/cmd.h"
#include "supervisor/events.h"
#include "supervisor/handoff.h"
#include "supervisor/job.h"
#include "supervisor/keysource.h"
#include "supervisor/leftovers.h"
#include "supervisor/metrics.h"
#include "supervisor/relaunch.h"
#include "supervisor/rundir.h"

#define HF_END_MS              2000 /* of a signal's grace, what ending the tree takes */
#define HF_ANSWER_MS           50   /* so much earlier is the ranks' deadline */
#define HF_SOFT_EXIT_MS        8000 /* how long ranks that were told to leave may take */
#define HF_SECOND_INTERRUPT_MS 2000
#define HF_PERSON_MS           10000 /* an end this soon after an interrupt is a person's */

/* One standing notice a source; the deadline that counts is the nearest of those that stand. */
#define HF_NOTICE_SOURCES 4
struct hf_standing {
    struct hf_notice what; /* source "": a free place */
    uint64_t deadline_ns;
    bool for_good; /* by a signal: it is never withdrawn */
    bool guessed;  /* nobody told a time: the deadline is --grace */
};

struct hf_leaving {
    bool notice;  /* a notice stands */
    bool guessed; /* nobody told the deadline that counts */
    uint64_t deadline_ns;
    uint64_t seen_ns; /* when the first of those that stand was seen */
    struct hf_standing standing[HF_NOTICE_SOURCES];
    bool file_seen; /* --notice-file: it is there */
};

struct hf_sup {
    /* set once */
    struct hf_cmd_ctx *ctx;
    struct hf_log log;
    struct hf_rundir dir;
    struct hf_run run;
    struct hf_unlock *key; /* what the user gave to unlock the run; NULL: none */
    struct hf_events events;
    char *folder, *save_dir;
    struct hf_strv watch_dirs; /* absolute */
    char host[65];
    char boot_id[40];
    uint64_t pid_ns;
    const struct hf_cloud_ops *provider;       /* NULL: none watched */
    uint64_t every_ms, grace_ms, heartbeat_ms; /* every_ms: 0: never; moves with --every auto */
    bool every_auto;
    bool limited; /* --limit-rate */
    int notice_signal;

    /* the machinery */
    struct hf_loop loop;
    struct hf_scope scope;
    struct hf_pool *store_pool, *local_pool, *ship_pool, *watch_pool, *log_pool;
    struct hf_http *http;
    struct hf_watch *watch;
    uv_signal_t signals[10];
    size_t n_signals;
    uv_fs_event_t notice_watch;
    bool notice_watch_on;
    struct hf_timer tick, every, leave_by, soft, pause, beat, second;
    struct hf_save_command *save_command; /* NULL: none runs */

    /* the job */
    enum hf_job_state state;
    uint64_t state_since_ns;
    int64_t state_since_wall_ms;
    uint64_t illegal_edges;
    struct hf_attempt at;
    struct hf_leaving leaving;
    uint64_t interrupt_ns; /* the last one; 0: none */
    bool foreground;       /* of our terminal, when last looked at */
    uint64_t past_ms;      /* that earlier attempts lived, with so many notices: --every auto */
    uint32_t past_notices;
    uint32_t crashes;
    int exit_status;
    enum hf_outcome outcome;
    bool start_canceled;
    bool next_here; /* another attempt follows in this process */
    uint32_t pause_ms;
    bool held_warned, unheld_warned; /* said once */
    bool resume_given; /* later attempts of this process never ask about the command again */
    struct hf_op *prepare_op;
    bool retain_busy;
    bool disk_busy;
    bool disk_told[3];          /* of each place in sup_disk.c: warned of already */
    uint64_t status_ns;         /* when status.json was last written */
    struct hf_pulse *pulse;     /* of the store's calls */
    uint64_t silent_ns;         /* since when the store has not answered; 0: it does */
    bool registered;            /* the store is open and the run's name is known */
    struct hf_metrics *metrics; /* NULL: no --metrics-file */
    int own_log_fd;             /* supervisor.log of a detached run; 0: our lines go to stderr */
};

/* sup.c. Returns the exit status. ctx's command is run until the job has ended. */
int hf_sup_run(struct hf_cmd_ctx *ctx);
void hf_sup_tick_soon(struct hf_sup *sup);   /* something to follow closely has begun */
void hf_sup_end_attempt(struct hf_sup *sup); /* lets go of keeper, hooks, shipper; zeroes at */

/* sup_start.c */
hf_job_action_fn hf_act_prepare, hf_act_prepare_cancel, hf_act_start, hf_act_adopted,
    hf_act_running;
void hf_sup_beat_start(struct hf_sup *sup);
void hf_sup_build_env(struct hf_sup *sup, struct hf_strv *env); /* what the command is given */

/* sup_save.c */
extern const struct hf_hooks_cb hf_sup_hooks_cb;
extern const struct hf_ship_cb hf_sup_ship_cb;
void hf_sup_every_start(struct hf_sup *sup); /* also when the interval has moved */
void hf_sup_ask_final(struct hf_sup *sup);   /* the final save of a notice, or its settling */
enum hf_rc hf_sup_ask(struct hf_sup *sup, enum hf_ask why, struct hf_err *err) HF_MUST_USE;
/* An early hint, never a deadline: one save is asked for as soon as it can be. */
void hf_sup_hint(struct hf_sup *sup, const struct hf_notice *n);
void hf_sup_check_safe(struct hf_sup *sup); /* fires HF_EV_SAFE when the final save is settled */
void hf_sup_follow_steps(struct hf_sup *sup);

/* sup_disk.c */
void hf_sup_disk_look(struct hf_sup *sup); /* whether there is room for checkpoints */

/* sup_every.c */
void hf_sup_every_learn(struct hf_sup *sup); /* from earlier attempts */
void hf_sup_every_tune(struct hf_sup *sup);  /* something was measured */

/* sup_window.c */
void hf_sup_window_first_saved(struct hf_sup *sup); /* the ranks wait: go on, or leave */
/* The save is settled: true when training goes on; the second save has its timer then. Asked
 * again whenever the deadline has moved. */
bool hf_sup_window_goes_on(struct hf_sup *sup);
void hf_sup_window_second_ended(struct hf_sup *sup, bool saved, const char *why);
void hf_sup_window_forget(struct hf_sup *sup); /* the notice no longer stands */

/* sup_watch.c */
enum hf_rc hf_sup_watchdir_start(struct hf_sup *sup, struct hf_err *err) HF_MUST_USE;
/* What a worker does to watched folders before a start; what it found. */
struct hf_sup_folders {
    struct hf_strv dirs;
    char *attempt_dir, *key;
    struct hf_leftovers left;
};
void hf_sup_folders_init(struct hf_sup *sup, struct hf_sup_folders *f);
enum hf_rc hf_sup_folders_work(struct hf_sup_folders *f, struct hf_err *err) HF_MUST_USE;
void hf_sup_folders_tell(struct hf_sup *sup, const struct hf_sup_folders *f);
void hf_sup_folders_release(struct hf_sup_folders *f);
const char *hf_sup_held_key(const struct hf_sup *sup); /* borrowed */
void hf_sup_unheld(void *user, const struct hf_strv *held);
void hf_sup_watch_final(struct hf_sup *sup); /* the newest of the watched folders is wanted now */
/* No look at a watched folder is waited for. */
bool hf_sup_watch_calm(const struct hf_sup *sup);
/* The program went on at `step`, told by `how`: warns once if that is before the checkpoint. */
void hf_sup_check_resume(struct hf_sup *sup, int64_t step, const char *how);

/* sup_leave.c */
enum hf_notice_how { HF_NOTICE_TOLD = 0, HF_NOTICE_FOR_GOOD = 1, HF_NOTICE_GUESSED = 2 };
void hf_sup_notice(struct hf_sup *sup, const struct hf_notice *n, uint64_t deadline_ns,
                   unsigned how); /* enum hf_notice_how */
uint64_t
hf_sup_leave_by(const struct hf_sup *sup); /* the deadline, less what ending the tree takes */
uint64_t hf_sup_answer_by(const struct hf_sup *sup); /* the ranks' deadline for their save */
void hf_sup_withdrawn(struct hf_sup *sup, const struct hf_notice *n);
void hf_sup_interrupt(struct hf_sup *sup, int forward_sig); /* 0: the terminal did it already */
enum hf_rc hf_sup_signals_start(struct hf_sup *sup, struct hf_err *err) HF_MUST_USE;
void hf_sup_signals_close(struct hf_sup *sup);
void hf_sup_follow_foreground(struct hf_sup *sup);
void hf_sup_mark_leaving(struct hf_sup *sup, bool on); /* for who finds this attempt dead */
void hf_sup_watch_start(struct hf_sup *sup);
void hf_sup_check_notice_file(struct hf_sup *sup);
hf_job_action_fn hf_act_leave, hf_act_hurry, hf_act_unleave, hf_act_stop, hf_act_stop_softly,
    hf_act_hunt;

/* sup_tree.c */
/* Sends `sig` at once to every rank that catches it; or_command: to the command where no rank does.
 * `why` ("save", "stop") is for the event. Returns to how many. */
size_t hf_sup_signal_ranks(struct hf_sup *sup, int sig, bool or_command, const char *why);
/* The stop signal, once an attempt. False: nobody catches it. */
bool hf_sup_stop_signal(struct hf_sup *sup);
void hf_sup_note_outside(struct hf_sup *sup, uint32_t rank); /* a rank that has joined */
/* True while a rank outside of the tree is waited for; hf_sup_maybe_settled is then called again.
 * Later at.outside names those that are left. */
bool hf_sup_waits_for_outside(struct hf_sup *sup);

/* sup_ask.c */
/* Asks for a save by --save-signal and --save-command; they have until by_ns. True: something was
 * asked, and at.final_settled follows when it is answered. */
bool hf_sup_ask_otherwise(struct hf_sup *sup, uint64_t by_ns);
void hf_sup_save_command_end(struct hf_sup *sup); /* kills it, if it runs; its end is still told */
void hf_sup_save_command_close(struct hf_sup *sup); /* the same, and lets go of it */
void hf_sup_answered(struct hf_sup *sup);           /* a checkpoint was found after the asking */

/* sup_hang.c */
void hf_sup_follow_hang(struct hf_sup *sup); /* each tick */
void hf_sup_hang_answered(struct hf_sup *sup, enum hf_request_end how, const char *why);
hf_job_action_fn hf_act_hung;

/* sup_end.c */
extern const struct hf_keeper_cb hf_sup_keeper_cb;
hf_job_action_fn hf_act_exited, hf_act_settle, hf_act_settle_now, hf_act_next, hf_act_no_more,
    hf_act_over;
void hf_sup_maybe_settled(struct hf_sup *sup);
const char *hf_sup_step_text(int64_t step, char out[32]); /* "step 7", "an unknown step" */

/* sup_store.c */
void hf_sup_follow_store(
    struct hf_sup *sup); /* each tick: says when it falls silent, and answers */

/* sup_logs.c */
void hf_sup_logs_trim(struct hf_sup *sup);   /* older attempts' logs, before a new one's begins */
void hf_sup_logs_start(struct hf_sup *sup);  /* the command runs: its output goes to the store */
void hf_sup_logs_finish(struct hf_sup *sup); /* all output is out of the command */
void hf_sup_log_dropped(void *user, uint64_t bytes, int num); /* as struct hf_keeper_cb */
cJSON *hf_sup_logs_json(const struct hf_sup *sup);

/* sup_detach.c. Forks, before there is any thread. In the caller true is returned when the command
 * runs or has failed; *ret_status is its exit status. False: this is the process that goes on. */
bool hf_sup_detach(struct hf_cmd_ctx *ctx, int *ret_status);
void hf_sup_detach_started(struct hf_sup *sup); /* the caller may go; our lines go to a file */
void hf_sup_detach_look(struct hf_sup *sup);    /* each tick: that file stays small */

/* sup_status.c */
void hf_sup_status_changed(struct hf_sup *sup);
void hf_sup_status_write(struct hf_sup *sup);
const char *hf_sup_safe_word(const struct hf_sup *sup); /* "durable" or "local" */

/* sup_metrics.c */
void hf_sup_metrics_start(struct hf_sup *sup); /* before the first event */
void hf_sup_metrics_due(struct hf_sup *sup);   /* written if something changed, or it is time */
void hf_sup_metrics_end(struct hf_sup *sup);   /* the last word; before the loop is drained */

#endif
