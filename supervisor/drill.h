/* SPDX-License-Identifier: Apache-2.0
 *
 * A drill's parts, internal to supervisor/: the rehearsed machine (drill_machine.c), what its
 * supervisor tells (drill_follow.c), and the judgement (drill_report.c). cmd_drill.c runs them.
 * One thread; waiting is done in hf_drill_pause alone.
 */
#ifndef HF_SUPERVISOR_DRILL_H
#define HF_SUPERVISOR_DRILL_H

#include "base/prelude.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cloud/rehearse.h"
#include "supervisor/cmd.h"
#include "supervisor/isolate.h"
#include "supervisor/rundir.h"

/* What one attempt's supervisor has told so far. Times are CLOCK_BOOTTIME ns, 0: not told.
 * Steps and numbers are -1 when not told. */
struct hf_told {
    uint32_t attempt;
    char nonce[33];
    uint64_t claimed_ns, started_ns, joined_ns, first_step_ns, notice_ns, request_ns, saved_ns,
        verdict_ns, exited_ns, ended_ns, resumed_ns;
    bool restored_any, unprotected, found, done;
    int64_t restored_step;
    int64_t first_step, resumed_step, saved_step;
    char verdict[16]; /* of the newest save: "durable", "local", "stale", "lost"; "" none */
    char verdict_why[200];
    int64_t verdict_step, verdict_bytes, verdict_took_ms;
    uint64_t committed_ns; /* the newest commit */
    int64_t committed_step;
    bool committed;
    char request_how[16];  /* "saved", "canceled", "expired"; "" not ended */
    char request_why[160]; /* why it was not answered; "" */
    uint64_t second_ns;    /* when a second save was asked for, --use-window */
    int64_t second_step;   /* its step, once it was committed */
    int64_t exit_code, exit_signal;
    char outcome[16];
    int64_t last_step; /* the newest published, from the control file or the end */
};

/* One rehearsed preemption, filled as it goes. */
struct hf_round {
    struct hf_told before; /* the attempt that was preempted */
    bool had_notice;
    uint64_t notice_set_ns, notice_seen_ns, deadline_ns, killed_ns;
    int64_t last_step;    /* of the preempted attempt, when it died */
    struct hf_told after; /* the attempt that followed */
    uint64_t after_spawned_ns;
    char fail[400]; /* why and what to change; "" so far */
};

struct hf_drill {
    struct hf_cmd_ctx *ctx;
    char *work;    /* the drill's own folder */
    char *machine; /* <work>/m (socket paths are short): the state folder of the "machine" */
    char *store;   /* file://<work>/store */
    char *run;
    char *endpoint;
    struct hf_rundir dir; /* of the run on the present machine */
    struct hf_isolate *iso;
    struct hf_rehearsal *service; /* NULL with --no-notice */
    int pid;                      /* the supervisor's; 0: none lives */
    int exit_status;              /* of the last supervisor, once it was reaped */
    uint32_t machines;            /* machines so far */
    /* following */
    uint64_t events_read;
    struct hf_buf events;
    struct hf_told told; /* the present attempt */
    int stop_signal;     /* a person wants out */
};

/* Waits a moment (ms), reaps, and takes signals; false when a person wants out. */
bool hf_drill_pause(struct hf_drill *d, uint32_t ms);

/* drill_machine.c */
enum hf_rc hf_drill_start(struct hf_drill *d, struct hf_err *err)
    HF_MUST_USE; /* holdfast run … on the present machine */
/* SIGKILL to supervisor, keeper and tree; returns when all are gone. */
enum hf_rc hf_drill_kill(struct hf_drill *d, struct hf_err *err) HF_MUST_USE;
/* A fresh machine: the state folder and what the attempt made are gone. Only after kill. */
enum hf_rc hf_drill_new_machine(struct hf_drill *d, struct hf_err *err) HF_MUST_USE;
bool hf_drill_supervisor_lives(struct hf_drill *d);

/* drill_follow.c */
void hf_drill_follow(struct hf_drill *d); /* reads new events and the control file into d->told */
void hf_told_init(struct hf_told *t);
/* One event line into t. Pure. A line that cannot be read is passed over. */
void hf_told_line(struct hf_told *t, const char *line, size_t len);

/* drill_report.c. Pure. The first reason to fail is kept. */
void hf_round_judge_save(struct hf_round *r);                /* once the machine is dead */
void hf_round_judge_resume(struct hf_round *r, bool hooked); /* once the next one was seen */
void hf_drill_table(FILE *out, const struct hf_round *rounds, size_t n);

#endif
