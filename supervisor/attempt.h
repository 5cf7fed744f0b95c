/* SPDX-License-Identifier: Apache-2.0
 *
 * What the supervisor knows of the attempt under way: a part of its one context (sup.h), zeroed
 * when the attempt is let go of. Loop thread only.
 */
#ifndef HF_SUPERVISOR_ATTEMPT_H
#define HF_SUPERVISOR_ATTEMPT_H

#include "base/prelude.h"

#include "checkpoint/manifest.h"
#include "hooks/server.h"
#include "supervisor/hang.h"
#include "supervisor/keeper.h"
#include "supervisor/logship.h"
#include "supervisor/relaunch.h"
#include "supervisor/ship.h"
#include "supervisor/watchdir.h"

/* Why a request is in flight, or a save was made. */
enum hf_ask { HF_ASK_NONE, HF_ASK_EVERY, HF_ASK_HINT, HF_ASK_NOTICE, HF_ASK_WINDOW };

/* The rest of a notice's window: not looked at; training goes on; the second save is asked for;
 * nothing more is tried. */
enum hf_window { HF_WINDOW_NONE, HF_WINDOW_OPEN, HF_WINDOW_SECOND, HF_WINDOW_SHUT };

struct hf_attempt {
    struct hf_claim claim; /* attempt 0: not claimed yet */
    char *dir;
    struct hf_keeper *keeper;
    struct hf_hooks *hooks;
    struct hf_ship *ship;
    struct hf_watchdir *watchdir; /* NULL: no --checkpoint-dir */
    struct hf_logship *logship;   /* NULL: --no-store-logs, or the command does not run yet */
    uint64_t log_dropped;         /* bytes of output that the local log has no room for */
    int log_errno;                /* 0: it has room */
    bool log_told;
    struct hf_ending ending;
    bool adopted, command_started, exited, done_said, hunting;
    char *resume_path; /* NULL: started from nothing */
    int64_t resume_step;
    uint32_t resume_world;         /* ranks of what was restored; 0: unknown, or compared */
    int64_t first_step, last_step; /* published; -1: none yet */
    uint64_t started_ns;
    uint64_t beats;
    bool beat_busy;
    int64_t beat_wall_ms; /* the last acknowledged heartbeat */
    uint64_t beat_ns;
    /* the request in flight */
    enum hf_ask ask;
    uint64_t request;
    uint64_t asked_ns;   /* when the last one was made */
    uint64_t capture_ms; /* of the last answered one: from asking to the last rank's report */
    uint64_t held_ms;    /* of the last answered one: how long the ranks were held by it */
    uint64_t ship_ms;    /* of the last commit, unless --limit-rate held it up; 0: unknown */
    bool hinted;         /* an early hint is still to be acted on */
    /* leaving */
    enum hf_window window;
    bool window_told;
    bool final_settled;    /* its outcome is known */
    char save_why[160];    /* why the final save was not made; "" */
    uint64_t last_save_ns; /* CLOCK_BOOTTIME of the last committed save, or of the start */
    bool unprotected;
    bool recording; /* the end is being recorded */
    bool hurried;   /* a person wants the end now: no log and no watched folder is waited for */
    bool final_repeated, resume_doubted, resume_proven, left_out_told;
    char outcome_text[16];
    const char *why_not; /* a crash is not tried again here, though it might be; static */
    /* the tree */
    bool stop_sent;            /* the stop signal: never twice */
    bool hidden_told;          /* that environments cannot be read */
    bool otherwise;            /* the final save was asked for by signal or command */
    int64_t otherwise_wall_ms; /* when: files of its answer are newer */
    uint64_t outside_until_ns; /* so long ranks outside of the tree are waited for; 0: not yet */
    char outside[256];         /* those that were left; "" */
    /* signs of life */
    struct hf_hang hang;
    uint32_t saves_seen;
    bool hang_told;
};

#endif
