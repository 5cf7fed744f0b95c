/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast drill: rehearses preemptions of the user's own command. The protocol, the supervisor
 * and the kill are real; the metadata service and the "new machine" are rehearsed, and said to
 * be.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "supervisor/drill.h"

#define POLL_MS       10
#define AFTER_END_MS  1000   /* the machine dies this long after the attempt's end is recorded */
#define STEPS_AFTER   3      /* steps that prove that the last attempt goes on */
#define FIRST_STEP_MS 300000 /* a command that reaches no step for this long is given up */

static void say(struct hf_drill *d, const char *text)
{
    hf_log(d->ctx->log, HF_LOG_INFO, "drill: %s", text);
}

/* Earlier drills that were interrupted: what they hid is put back, their folders go. */
static enum hf_rc recover_all(struct hf_cmd_ctx *ctx, const char *drills, uint32_t *ret_undone,
                              struct hf_err *err)
{
    DIR *dir = opendir(drills);
    if (dir == NULL) {
        return errno == ENOENT ? HF_OK : hf_fail_errno(err, errno, "open folder '%s'", drills);
    }
    enum hf_rc rc = HF_OK;
    for (struct dirent *e = readdir(dir); e != NULL && rc == HF_OK; e = readdir(dir)) {
        if (e->d_name[0] == '.') {
            continue;
        }
        HF_CLEANUP(hf_freep) char *work = hf_asprintf("%s/%s", drills, e->d_name);
        bool undone = false;
        rc = hf_isolate_recover(work, &undone, err);
        if (rc == HF_EAGAIN) {
            rc = HF_OK; /* that drill lives */
            continue;
        }
        struct hf_strv kept = {0};
        hf_isolate_kept(work, &kept);
        for (size_t i = 0; i < kept.len; i++) {
            hf_log(ctx->log, HF_LOG_WARN, "an interrupted drill left files of yours in '%s'",
                   kept.items[i]);
        }
        if (undone) {
            (*ret_undone)++;
            hf_log(ctx->log, HF_LOG_INFO, "drill: an interrupted drill was undone");
        }
        if (rc == HF_OK && kept.len == 0) {
            rc = hf_fs_remove_tree(work, err);
        }
        hf_strv_clear(&kept);
    }
    closedir(dir);
    return rc;
}

static enum hf_rc isolate(struct hf_drill *d, struct hf_err *err)
{
    char cwd[PATH_MAX];
    if (getcwd(cwd, sizeof(cwd)) == NULL) {
        return hf_fail_errno(err, errno, "find the working folder");
    }
    struct hf_strv dirs = {0};
    struct hf_strv notes = {0};
    hf_strv_add(&dirs, cwd);
    const struct hf_strv *more = hf_set_list(d->ctx->settings, HF_SET_CHECKPOINT_DIR);
    for (size_t i = 0; i < more->len; i++) {
        hf_strv_take(&dirs, more->items[i][0] == '/' ? hf_strdup(more->items[i])
                                                     : hf_asprintf("%s/%s", cwd, more->items[i]));
    }
    enum hf_rc rc = hf_isolate_begin(&dirs, d->work, &d->iso, &notes, err);
    for (size_t i = 0; i < notes.len; i++) {
        say(d, notes.items[i]);
    }
    hf_strv_clear(&dirs);
    hf_strv_clear(&notes);
    return rc;
}

static enum hf_rc begin(struct hf_drill *d, const char *drills, struct hf_err *err)
{
    char id[17];
    hf_random_hex(4, id);
    d->work = hf_asprintf("%s/%s", drills, id);
    d->machine = hf_asprintf("%s/m", d->work);
    d->store = hf_asprintf("file://%s/store", d->work);
    d->run = hf_strdup("drill");
    hf_buf_init(&d->events, 1u << 20);
    d->dir.lock_fd = -1;
    HF_TRY(hf_fs_mkdirs(d->work, 0700, err));
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return hf_fail_errno(err, errno, "become the subreaper");
    }
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, SIGINT);
    sigaddset(&mine, SIGTERM);
    sigaddset(&mine, SIGHUP);
    sigprocmask(SIG_BLOCK, &mine, NULL);
    say(d, "the metadata service and the new machines are rehearsed; the protocol, the saves and "
           "the kills are real");
    HF_TRY(isolate(d, err));
    if (!hf_set_bool(d->ctx->settings, HF_SET_NO_NOTICE)) {
        HF_TRY(hf_rehearsal_start(0, &d->service, err));
        d->endpoint = hf_asprintf("http://127.0.0.1:%u", hf_rehearsal_port(d->service));
        if (hf_set_bool(d->ctx->settings, HF_SET_CHAOS)) {
            hf_rehearsal_chaos(d->service, hf_random_u64());
            say(d, "the metadata service fails at random");
        }
    }
    return HF_OK;
}

/* Ends everything and puts the user's folders right; the first error is kept. */
static enum hf_rc end(struct hf_drill *d, enum hf_rc rc, struct hf_err *err)
{
    struct hf_err later = {0};
    enum hf_rc killed = hf_drill_kill(d, &later);
    hf_rehearsal_stop(d->service);
    enum hf_rc restored = HF_OK;
    if (d->iso != NULL && killed == HF_OK) {
        restored = hf_isolate_end(d->iso, &later);
    }
    if (d->work != NULL && killed == HF_OK && restored == HF_OK) {
        restored = hf_fs_remove_tree(d->work, &later);
    }
    if (rc == HF_OK && (killed != HF_OK || restored != HF_OK)) {
        *err = later;
        rc = later.code;
        hf_hint(err, rc, "Run 'holdfast drill --recover' to put your files right.");
    }
    hf_rundir_release(&d->dir);
    hf_buf_release(&d->events);
    hf_free(d->work);
    hf_free(d->machine);
    hf_free(d->store);
    hf_free(d->run);
    hf_free(d->endpoint);
    return rc;
}

/* Looks until `until` says so. False: the command or the person ended it first. */
static bool watch(struct hf_drill *d, bool (*until)(struct hf_drill *d, void *arg), void *arg)
{
    for (;;) {
        hf_drill_follow(d);
        if (until(d, arg)) {
            return true;
        }
        bool lives = hf_drill_supervisor_lives(d);
        if (!lives) {
            hf_drill_follow(d);
            return until(d, arg);
        }
        if (!hf_drill_pause(d, POLL_MS)) {
            return false;
        }
    }
}

struct moment {
    uint64_t after_ns; /* from the first step */
    int64_t at_step;   /* -1: by time */
    uint64_t give_up_ns;
    bool watched; /* --checkpoint-dir: there may be no steps to count from */
};

/* The moment for the notice, or a reason not to wait for it any longer. */
static bool is_moment(struct hf_drill *d, void *arg)
{
    const struct moment *m = arg;
    const struct hf_told *t = &d->told;
    uint64_t from = t->first_step_ns != 0 ? t->first_step_ns : m->watched ? t->started_ns : 0;
    if (t->unprotected || t->exited_ns != 0) {
        return true;
    }
    if (m->at_step >= 0 && t->first_step_ns != 0) {
        return t->last_step >= m->at_step;
    }
    return (from != 0 && hf_now_ns() >= from + m->after_ns) || hf_now_ns() > m->give_up_ns;
}

static bool is_dead_time(struct hf_drill *d, void *arg)
{
    const struct hf_round *r = arg;
    uint64_t now = hf_now_ns();
    return now >= r->deadline_ns ||
           (d->told.ended_ns != 0 && now >= d->told.ended_ns + AFTER_END_MS * HF_MS);
}

/* Why the notice cannot be given at all; "" when it can. */
static void check_moment(struct hf_drill *d, struct hf_round *r, const struct moment *m)
{
    const struct hf_told *t = &d->told;
    if (d->stop_signal != 0) {
        snprintf(r->fail, sizeof(r->fail), "stopped by a person");
    } else if (t->exited_ns != 0 || d->pid == 0) {
        snprintf(r->fail, sizeof(r->fail),
                 "the command ended by itself before the notice (exit status %d): give it more to "
                 "do, or a smaller --after or --at-step",
                 t->exited_ns != 0 && t->exit_code >= 0 ? (int)t->exit_code : d->exit_status);
    } else if (t->unprotected) {
        snprintf(r->fail, sizeof(r->fail),
                 "it saves nothing: the command has not called the holdfast library and no "
                 "--checkpoint-dir is given");
    } else if (t->first_step_ns == 0 && !m->watched) {
        snprintf(r->fail, sizeof(r->fail), "the command reached no step in %d s",
                 FIRST_STEP_MS / 1000);
    }
}

static enum hf_rc strike(struct hf_drill *d, struct hf_round *r, struct hf_err *err)
{
    r->had_notice = d->service != NULL;
    if (r->had_notice) {
        uint64_t lead = hf_set_ms(d->ctx->settings, HF_SET_NOTICE);
        r->notice_set_ns = hf_now_ns();
        r->deadline_ns = r->notice_set_ns + lead * HF_MS;
        say(d, "the notice is given");
        hf_rehearsal_notice(d->service, "terminate", lead);
        watch(d, is_dead_time, r);
    }
    HF_TRY(hf_drill_kill(d, err));
    r->killed_ns = hf_now_ns();
    r->before = d->told;
    r->last_step = d->told.last_step;
    if (d->service != NULL) {
        r->notice_seen_ns = hf_rehearsal_seen_ns(d->service);
        hf_rehearsal_calm(d->service);
    }
    return hf_drill_new_machine(d, err);
}

struct proof {
    bool finished; /* --until finished */
    uint64_t give_up_ns;
};

static bool is_proved(struct hf_drill *d, void *arg)
{
    const struct proof *p = arg;
    const struct hf_told *t = &d->told;
    if (p->finished) {
        return false;
    }
    bool steps = t->first_step_ns != 0 && t->last_step >= t->first_step + STEPS_AFTER;
    return steps || t->exited_ns != 0 || hf_now_ns() > p->give_up_ns;
}

/* The last attempt: goes on for a few steps, or to its end. */
static void prove(struct hf_drill *d, struct hf_round *r, bool watched)
{
    const struct hf_settings *set = d->ctx->settings;
    bool finished = (enum hf_until_choice)hf_set_int(set, HF_SET_UNTIL) == HF_UNTIL_FINISHED;
    struct proof p = {.finished = finished, .give_up_ns = hf_now_ns() + FIRST_STEP_MS * HF_MS};
    if (!finished && watched) {
        /* No steps to count: as long again as before the notice. */
        p.give_up_ns = hf_now_ns() + hf_set_ms(set, HF_SET_AFTER) * HF_MS;
    }
    watch(d, is_proved, &p);
    const struct hf_told *t = &d->told;
    r->after = *t;
    if (d->stop_signal != 0) {
        snprintf(r->fail, sizeof(r->fail), "stopped by a person");
    } else if (finished && (d->exit_status != 0 || strcmp(t->outcome, "finished") != 0)) {
        snprintf(r->fail, sizeof(r->fail), "the last attempt did not finish: %s, exit status %d",
                 t->outcome[0] != '\0' ? t->outcome : "no end recorded", d->exit_status);
    } else if (!finished && t->exited_ns != 0 && t->exit_code != 0) {
        snprintf(r->fail, sizeof(r->fail),
                 "the attempt after the preemption failed: exit status %d",
                 (int)(t->exit_code >= 0 ? t->exit_code : 128 + t->exit_signal));
    }
}

static enum hf_rc all_rounds(struct hf_drill *d, struct hf_round *rounds, size_t n,
                             size_t *ret_done, struct hf_err *err)
{
    const struct hf_settings *set = d->ctx->settings;
    bool watched = hf_set_list(set, HF_SET_CHECKPOINT_DIR)->len > 0;
    *ret_done = 0;
    uint64_t spawned = hf_now_ns();
    HF_TRY(hf_drill_start(d, err));
    for (size_t i = 0; i < n; i++) {
        int64_t step = hf_set_int(set, HF_SET_AT_STEP);
        struct moment m = {
            .after_ns = hf_set_ms(set, HF_SET_AFTER) * HF_MS,
            .at_step = step >= 0 ? step * (int64_t)(i + 1) : -1,
            .give_up_ns = hf_now_ns() + FIRST_STEP_MS * HF_MS,
            .watched = watched,
        };
        watch(d, is_moment, &m);
        if (i > 0) {
            rounds[i - 1].after = d->told;
            rounds[i - 1].after_spawned_ns = spawned;
            hf_round_judge_resume(&rounds[i - 1], d->told.joined_ns != 0);
            if (rounds[i - 1].fail[0] != '\0') {
                return HF_OK;
            }
        }
        (*ret_done)++;
        check_moment(d, &rounds[i], &m);
        if (rounds[i].fail[0] != '\0') {
            return HF_OK;
        }
        HF_TRY(strike(d, &rounds[i], err));
        hf_round_judge_save(&rounds[i]);
        if (rounds[i].fail[0] != '\0') {
            return HF_OK; /* a next attempt could only make the person wait for the answer */
        }
        say(d, "the machine is dead; a fresh one starts");
        spawned = hf_now_ns();
        HF_TRY(hf_drill_start(d, err));
    }
    rounds[n - 1].after_spawned_ns = spawned;
    prove(d, &rounds[n - 1], watched);
    rounds[n - 1].after = d->told;
    hf_round_judge_resume(&rounds[n - 1], rounds[n - 1].before.joined_ns != 0);
    return HF_OK;
}

static int report(struct hf_drill *d, const struct hf_round *rounds, size_t n)
{
    FILE *out = d->ctx->out;
    const char *fail = "";
    for (size_t i = 0; i < n && fail[0] == '\0'; i++) {
        fail = rounds[i].fail;
    }
    bool any = n > 0 && rounds[0].before.attempt != 0;
    if (any) {
        hf_drill_table(out, rounds, n);
    }
    if (fail[0] != '\0') {
        fprintf(out, "drill: FAIL: %s\n", fail);
        return HF_EXIT_FAIL;
    }
    fprintf(out, "drill: PASS\n");
    return HF_EXIT_OK;
}

static int rehearse(struct hf_cmd_ctx *ctx, const char *drills)
{
    struct hf_drill d = {.ctx = ctx, .dir = {.lock_fd = -1}};
    size_t n = (size_t)hf_set_int(ctx->settings, HF_SET_TIMES);
    struct hf_round *rounds = hf_calloc(n, sizeof(*rounds));
    for (size_t i = 0; i < n; i++) {
        hf_told_init(&rounds[i].before);
        hf_told_init(&rounds[i].after);
        rounds[i].last_step = -1;
    }
    size_t done = 0;
    struct hf_err err = {0};
    enum hf_rc rc = begin(&d, drills, &err);
    if (rc == HF_OK) {
        rc = all_rounds(&d, rounds, n, &done, &err);
    }
    rc = end(&d, rc, &err);
    int status = HF_EXIT_OWN;
    if (rc == HF_OK) {
        status = report(&d, rounds, done);
    } else {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "the drill could not be held");
        fprintf(ctx->out, "drill: FAIL: %s\n", err.msg);
        status = HF_EXIT_FAIL;
    }
    hf_free(rounds);
    return status;
}

static int run(struct hf_cmd_ctx *ctx)
{
    HF_CLEANUP(hf_freep)
    char *drills = hf_asprintf("%s/drills", hf_set_str(ctx->settings, HF_SET_STATE_DIR));
    struct hf_err err = {0};
    uint32_t undone = 0;
    if (recover_all(ctx, drills, &undone, &err) != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "an interrupted drill could not be undone");
        return HF_EXIT_FAIL;
    }
    if (hf_set_bool(ctx->settings, HF_SET_RECOVER)) {
        if (undone == 0) {
            hf_log(ctx->log, HF_LOG_INFO, "drill: there was nothing to undo");
        }
        return HF_EXIT_OK;
    }
    if (ctx->argc == 0) {
        hf_log(ctx->log, HF_LOG_ERROR,
               "no command to rehearse; use: holdfast drill [options] -- COMMAND");
        return HF_EXIT_OWN;
    }
    if (hf_set_bool(ctx->settings, HF_SET_CHAOS) && hf_set_bool(ctx->settings, HF_SET_NO_NOTICE)) {
        hf_log(
            ctx->log, HF_LOG_ERROR,
            "--chaos spoils the metadata service, which --no-notice does without: leave one out");
        return HF_EXIT_OWN;
    }
    return rehearse(ctx, drills);
}

const struct hf_cmd hf_cmd_drill = {
    .name = "drill",
    .args = "[options] [--] COMMAND [ARG]...",
    .summary = "rehearse preemptions of a command and say whether it survives",
    .about =
        "Runs the command under a supervisor with a rehearsed metadata service, gives it a real\n"
        "notice, kills everything at the deadline, and lets a fresh machine go on. Your files are\n"
        "put back as they were. The last line is 'drill: PASS' or 'drill: FAIL: why and what to\n"
        "change'; the exit status 0 or 1.",
    .exits = "0: PASS, or with --recover: nothing is left to undo\n"
             "1: FAIL; the last line says why and what to change\n"
             "125: wrong usage",
    .group = HF_FOR_DRILL,
    .wraps = true,
    .usage_status = HF_EXIT_OWN,
    .run = run,
};
