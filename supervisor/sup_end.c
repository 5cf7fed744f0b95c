/* SPDX-License-Identifier: Apache-2.0
 *
 * What the keeper tells, and the end of an attempt: flush what is being shipped, record the
 * end, decide what follows. The end is recorded only when no process of the tree is left and
 * nothing is being committed any more, since it is what lets a replacement start.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "supervisor/sup.h"

/* ---- the keeper ---- */

static void on_started(void *user, int64_t pid, uint64_t exec_ns)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    if (!at->command_started && !at->adopted) {
        cJSON *f = hf_json_obj();
        hf_json_add_int(f, "pid", pid);
        hf_event(&sup->events, at->claim.attempt, "command-started", f);
        at->started_ns = exec_ns;
        at->last_save_ns = exec_ns;
        sup->log.crlf = hf_keeper_terminal_is_raw(at->keeper);
    }
    at->command_started = true;
    hf_sup_detach_started(sup);
    hf_job_event(sup, HF_EV_STARTED);
    hf_sup_tick_soon(sup);
    /* The command runs: now the metadata service may be asked. */
    hf_sup_watch_start(sup);
}

static void on_exec_failed(void *user, int num)
{
    struct hf_sup *sup = user;
    char text[96];
    sup->at.ending.exec_errno = num;
    hf_log(&sup->log, HF_LOG_ERROR, "'%s' could not be executed: %s", sup->ctx->argv[0],
           strerror_r(num, text, sizeof(text)));
    hf_job_event(sup, HF_EV_NO_EXEC);
}

static void on_exited(void *user, int status, bool forced)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    at->ending.has_status = true;
    at->ending.status = status;
    at->ending.forced = at->ending.forced || forced;
    at->exited = true;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    hf_json_add_int(f, "signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    hf_event(&sup->events, at->claim.attempt, "command-exited", f);
    hf_job_event(sup, HF_EV_EXITED);
}

/* Ctrl-Z: the terminal is ours again; we stop as the command did, and the shell has its prompt. */
static void on_stopped(void *user)
{
    struct hf_sup *sup = user;
    sup->log.crlf = false;
    if (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO)) {
        kill(0, SIGSTOP); /* without a terminal nobody would let us go on */
    }
}

static void on_interrupt(void *user)
{
    hf_sup_interrupt(user, 0);
}

static void on_straggler(void *user, int64_t pid, const char *name, bool killed)
{
    struct hf_sup *sup = user;
    hf_log(&sup->log, HF_LOG_WARN, "a process was left behind and %s: %s (pid %" PRId64 ")",
           killed ? "was killed" : "is being ended", name, pid);
    sup->at.ending.forced = sup->at.ending.forced || killed;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "pid", pid);
    hf_json_add_str(f, "name", name);
    hf_json_add_bool(f, "killed", killed);
    hf_event(&sup->events, sup->at.claim.attempt, "straggler", f);
}

static void on_gone(void *user, int status)
{
    struct hf_sup *sup = user;
    (void)status;
    sup->log.crlf = false;
    hf_job_event(sup, HF_EV_GONE);
}

static void on_lost(void *user)
{
    struct hf_sup *sup = user;
    sup->log.crlf = false;
    hf_log(&sup->log, HF_LOG_WARN, "the keeper of attempt %u was killed; ending what it left",
           sup->at.claim.attempt);
    hf_event(&sup->events, sup->at.claim.attempt, "keeper-lost", NULL);
    hf_job_event(sup, HF_EV_LOST);
}

const struct hf_keeper_cb hf_sup_keeper_cb = {
    .started = on_started,
    .exec_failed = on_exec_failed,
    .exited = on_exited,
    .stopped = on_stopped,
    .interrupt = on_interrupt,
    .straggler = on_straggler,
    .gone = on_gone,
    .log_dropped = hf_sup_log_dropped,
    .lost = on_lost,
};

/* ---- settling ---- */

static bool person_spoke(const struct hf_sup *sup)
{
    return sup->interrupt_ns != 0 && hf_now_ns() - sup->interrupt_ns < HF_PERSON_MS * HF_MS;
}

void hf_act_exited(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    hf_timer_stop(&sup->soft);
    hf_timer_stop(&sup->every);
    hf_sup_follow_steps(sup);
    at->ending.in_peace = at->ending.status == 0 && !sup->leaving.notice && !at->ending.hung;
    at->ending.interrupted = at->ending.interrupted || person_spoke(sup);
    if (at->watchdir != NULL) {
        hf_watchdir_scan(at->watchdir);
    }
}

/* --done-file: made or changed since the command started. */
static bool done_file_says(const struct hf_sup *sup)
{
    const char *path = hf_set_str(sup->ctx->settings, HF_SET_DONE_FILE);
    struct stat st;
    if (path == NULL || stat(path, &st) != 0) {
        return false;
    }
    return (int64_t)st.st_mtim.tv_sec * 1000 + 1000 >= sup->at.claim.at_wall_ms;
}

/* What was not told: an exit whose keeper was killed after it, and a person who ended what a
 * command that had failed left behind. */
static void complete_ending(struct hf_sup *sup)
{
    struct hf_ending *e = &sup->at.ending;
    bool forced = false;
    if (!e->has_status && sup->at.dir != NULL) {
        e->has_status = hf_handoff_exit(sup->at.dir, &e->status, &forced);
        e->forced = e->forced || forced;
    }
    e->interrupted = e->interrupted || (!e->in_peace && person_spoke(sup));
}

void hf_act_settle(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    complete_ending(sup);
    hf_timer_stop(&sup->soft);
    hf_timer_stop(&sup->every);
    hf_timer_stop(&sup->leave_by);
    if (at->hooks != NULL) {
        hf_sup_follow_steps(sup);
        struct hf_hooks_status st;
        hf_hooks_get_status(at->hooks, &st);
        at->done_said = at->done_said || st.all_done;
    }
    at->ending.notice = at->ending.notice || sup->leaving.notice;
    if (at->watchdir != NULL) {
        const struct hf_ending *e = &at->ending;
        bool clean = e->has_status && e->status == 0 && !e->notice && !e->interrupted;
        hf_watchdir_ended(at->watchdir, clean);
    }
    at->ending.done = at->done_said || done_file_says(sup);
    if (at->ship != NULL) {
        hf_ship_early_drop(at->ship);
    }
    hf_event(&sup->events, at->claim.attempt, "tree-gone", NULL);
    hf_sup_logs_finish(sup);
    hf_sup_maybe_settled(sup);
}

void hf_act_settle_now(struct hf_sup *sup)
{
    sup->at.hurried = true;
    if (sup->at.ship != NULL) {
        hf_ship_stop(sup->at.ship);
    }
    sup->at.outside_until_ns = 1; /* long past */
    hf_logship_stop(sup->at.logship);
    hf_sup_maybe_settled(sup);
}

struct closing {
    struct hf_sup *sup;
    struct hf_run run;
    struct hf_claim claim; /* borrowed strings of at.claim, which stays until the report */
    struct hf_end end;
    struct hf_next next;
    bool recorded, closed;
};

static enum hf_rc end_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct closing *w = arg;
    struct hf_call c = {.op = op};
    hf_held_clean(&w->sup->watch_dirs, hf_sup_held_key(w->sup), w->claim.attempt);
    HF_TRY(hf_lineage_end(&w->run, &c, w->claim.attempt, &w->end, err));
    w->recorded = true;
    if (w->next.close) {
        HF_TRY(hf_handoff_close_run(&w->run, &c, &w->claim, w->next.kind, err));
        w->closed = true;
    }
    return HF_OK;
}

/* NULL: nothing is against it. */
static const char *why_not_again(const struct hf_sup *sup, const struct hf_err *err)
{
    return sup->leaving.notice ? "a notice stands"
           : err != NULL       ? "the store cannot be written"
           : person_spoke(sup) ? "it was interrupted"
                               : NULL;
}

static void end_done(void *user, const struct hf_err *err)
{
    struct closing *w = user;
    struct hf_sup *sup = w->sup;
    if (err != NULL) {
        hf_log_err(&sup->log, HF_LOG_WARN, err, "the end of attempt %u was not recorded",
                   w->claim.attempt);
    }
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "outcome", hf_outcome_name(sup->outcome));
    hf_json_add_int(f, "exit_code", w->end.exit_code);
    hf_json_add_int(f, "signal", w->end.signal);
    hf_json_add_int(f, "last_step", w->end.last_step);
    hf_json_add_bool(f, "forced", w->end.forced);
    hf_json_add_str(f, "left", w->end.left);
    hf_json_add_bool(f, "recorded", w->recorded);
    hf_event(&sup->events, w->claim.attempt, "attempt-ended", f);
    sup->exit_status = w->next.exit_status;
    sup->at.why_not = w->next.again ? why_not_again(sup, err) : NULL;
    bool again = w->next.again && sup->at.why_not == NULL;
    if (w->next.again && sup->leaving.notice) {
        sup->exit_status = HF_EXIT_AGAIN;
    }
    uint32_t delay = w->next.delay_ms;
    hf_free(w);
    sup->pause_ms = again ? delay : 0;
    sup->next_here = again;
    hf_job_event(sup, HF_EV_SETTLED);
}

static void record_end(struct hf_sup *sup)
{
    static char requested_not[] = "not-requested";
    struct hf_attempt *at = &sup->at;
    struct hf_ending *e = &at->ending;
    sup->outcome = hf_outcome_of(e);
    struct closing *w = HF_NEW(struct closing);
    w->sup = sup;
    w->run = sup->run;
    w->claim = at->claim;
    w->next = hf_relaunch_decide(e, sup->outcome,
                                 (uint32_t)hf_set_int(sup->ctx->settings, HF_SET_MAX_CRASHES),
                                 hf_random_u64(), &sup->crashes);
    memcpy(w->end.nonce, at->claim.nonce, sizeof(w->end.nonce));
    w->end.outcome = at->outcome_text;
    memcpy(at->outcome_text, hf_outcome_name(sup->outcome),
           strlen(hf_outcome_name(sup->outcome)) + 1);
    w->end.exit_code = e->has_status && WIFEXITED(e->status) ? WEXITSTATUS(e->status) : -1;
    w->end.signal = e->has_status && WIFSIGNALED(e->status) ? WTERMSIG(e->status) : 0;
    w->end.replacement = requested_not;
    w->end.last_step = at->last_step;
    w->end.forced = e->forced;
    if (at->outside[0] != '\0') {
        w->end.left = at->outside;
        w->next.again = false; /* two trainers of one run are worse than none */
    }
    w->end.at_wall_ms = hf_wall_ms();
    struct hf_err err = {0};
    at->recording = true;
    if (hf_pool_submit(sup->store_pool, NULL, end_work, w, end_done, w, NULL, &err) != HF_OK) {
        end_done(w, &err);
    }
}

void hf_sup_maybe_settled(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (sup->state != HF_JOB_SETTLING || at->recording) {
        return;
    }
    if ((at->ship != NULL && !hf_ship_idle(at->ship)) || !hf_logship_finished(at->logship)) {
        return;
    }
    if (hf_sup_waits_for_outside(sup) || (!at->hurried && !hf_sup_watch_calm(sup))) {
        return;
    }
    record_end(sup);
}

/* ---- what follows ---- */

static void pause_over(void *user)
{
    struct hf_sup *sup = user;
    sup->resume_given = true;
    hf_sup_end_attempt(sup);
    hf_job_event(sup, HF_EV_AGAIN);
}

const char *hf_sup_step_text(int64_t step, char out[32])
{
    if (step < 0) {
        return "an unknown step";
    }
    snprintf(out, 32, "step %" PRId64, step);
    return out;
}

static void say_left(struct hf_sup *sup, const struct hf_verdict *v, const char *how)
{
    const struct hf_attempt *at = &sup->at;
    char left[32];
    char kept[32];
    if (v != NULL && v->attempt != 0) {
        hf_log(&sup->log, HF_LOG_INFO,
               "left at %s (%s); the %s checkpoint of %s stands; the same command goes on from it",
               hf_sup_step_text(at->last_step, left), how, hf_sup_safe_word(sup),
               hf_sup_step_text(v->step, kept));
    } else {
        hf_log(&sup->log, HF_LOG_WARN,
               "left (%s) with no checkpoint%s%s: the same command starts from the beginning", how,
               at->save_why[0] != '\0' ? ": " : "", at->save_why);
    }
}

static void say_failed(struct hf_sup *sup, const char *how)
{
    const struct hf_attempt *at = &sup->at;
    if (at->why_not != NULL) {
        hf_log(&sup->log, HF_LOG_WARN, "attempt %u %s (%s); not tried again here: %s",
               at->claim.attempt, hf_outcome_name(sup->outcome), how, at->why_not);
        return;
    }
    const char *why = at->outside[0] != '\0'    ? "; not tried again while another process trains"
                      : at->ending.beyond_start ? "; it was tried often enough without progress"
                                                : " before its first step: not tried again";
    hf_log(&sup->log, HF_LOG_WARN, "attempt %u %s (%s)%s", at->claim.attempt,
           hf_outcome_name(sup->outcome), how, why);
}

static void say_end(struct hf_sup *sup)
{
    const struct hf_attempt *at = &sup->at;
    const struct hf_verdict *v = at->ship != NULL ? hf_ship_verdict(at->ship) : NULL;
    char delay[HF_DURATION_STRLEN];
    char how[HF_ENDING_STRLEN];
    hf_ending_words(&at->ending, how);
    if (sup->next_here) {
        hf_log(&sup->log, HF_LOG_INFO, "attempt %u %s (%s); the next one starts in %s",
               at->claim.attempt, hf_outcome_name(sup->outcome), how,
               hf_duration_format(sup->pause_ms, delay));
        return;
    }
    switch (sup->outcome) {
    case HF_OUTCOME_FINISHED:
        hf_log(&sup->log, HF_LOG_INFO, "run '%s' is finished (%s)", sup->run.name, how);
        return;
    case HF_OUTCOME_PREEMPTED:
        say_left(sup, v, how);
        return;
    case HF_OUTCOME_FAILED:
    case HF_OUTCOME_VANISHED:
    case HF_OUTCOME_HUNG:
        say_failed(sup, how);
        return;
    case HF_OUTCOME_STOPPED:
        hf_log(&sup->log, HF_LOG_INFO, "stopped by a person (%s); the same command goes on", how);
        return;
    case HF_OUTCOME_SUPERSEDED:
    case HF_OUTCOME_NOT_STARTED:
        return;
    }
}

void hf_act_next(struct hf_sup *sup)
{
    say_end(sup);
    if (!sup->next_here) {
        hf_job_event(sup, HF_EV_OVER);
        return;
    }
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "delay_ms", sup->pause_ms);
    hf_json_add_int(f, "crashes", sup->crashes);
    hf_event(&sup->events, sup->at.claim.attempt, "relaunch", f);
    hf_timer_start(&sup->pause, &sup->loop, sup->pause_ms, pause_over, sup);
}

void hf_act_no_more(struct hf_sup *sup)
{
    hf_timer_stop(&sup->pause);
    if (sup->leaving.notice) {
        sup->exit_status = HF_EXIT_AGAIN;
    }
    hf_job_event(sup, HF_EV_OVER);
}

void hf_act_over(struct hf_sup *sup)
{
    hf_sup_status_write(sup);
    hf_loop_stop(&sup->loop);
}
