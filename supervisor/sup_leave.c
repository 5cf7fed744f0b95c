/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices of every kind, the one deadline that they set, and the leaving and stopping that
 * follow. Loop thread. Another notice may only bring the deadline nearer; a withdrawn one takes
 * its own with it.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/cgroup.h"
#include "supervisor/sup.h"
#include "supervisor/tree.h"

uint64_t hf_sup_leave_by(const struct hf_sup *sup)
{
    uint64_t end = HF_END_MS * HF_MS;
    uint64_t deadline = sup->leaving.deadline_ns;
    return deadline > sup->leaving.seen_ns + 2 * end ? deadline - end : deadline;
}

uint64_t hf_sup_answer_by(const struct hf_sup *sup)
{
    return hf_sup_leave_by(sup) - HF_ANSWER_MS * HF_MS;
}

static void overtime(void *user)
{
    hf_job_event(user, HF_EV_OVERTIME);
}

static uint64_t ms_until(uint64_t at_ns)
{
    uint64_t now = hf_now_ns();
    return at_ns > now ? (at_ns - now + HF_MS - 1) / HF_MS : 0;
}

/* A mark in the attempt's folder: a supervisor that finds this attempt dead knows that it was
 * leaving. */
void hf_sup_mark_leaving(struct hf_sup *sup, bool on)
{
    if (sup->at.dir == NULL) {
        return;
    }
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/leaving", sup->at.dir);
    if (!on) {
        unlink(path);
        return;
    }
    struct hf_err err = {0};
    if (hf_fs_write(path, (struct hf_span){"1\n", 2}, 0600, false, &err) != HF_OK) {
        hf_log_err(&sup->log, HF_LOG_WARN, &err, "the notice could not be noted");
    }
}

/* The place of a source's notice; its own, or a free one. */
static struct hf_standing *place_of(struct hf_leaving *lv, const char *source)
{
    struct hf_standing *free_place = NULL;
    for (size_t i = 0; i < HF_NOTICE_SOURCES; i++) {
        struct hf_standing *s = &lv->standing[i];
        if (strcmp(s->what.source, source) == 0) {
            return s;
        }
        if (s->what.source[0] == '\0' && free_place == NULL) {
            free_place = s;
        }
    }
    return free_place;
}

static void nearest_deadline(struct hf_leaving *lv)
{
    lv->notice = false;
    lv->deadline_ns = 0;
    for (size_t i = 0; i < HF_NOTICE_SOURCES; i++) {
        const struct hf_standing *s = &lv->standing[i];
        if (s->what.source[0] == '\0') {
            continue;
        }
        if (!lv->notice || s->deadline_ns < lv->deadline_ns) {
            lv->deadline_ns = s->deadline_ns;
            lv->guessed = s->guessed;
        }
        lv->notice = true;
    }
}

static void tell_notice(struct hf_sup *sup, const struct hf_notice *n)
{
    char left[HF_DURATION_STRLEN];
    uint64_t left_ms = ms_until(sup->leaving.deadline_ns);
    hf_duration_format(left_ms / 1000 * 1000, left);
    hf_log(&sup->log, HF_LOG_INFO, "notice from %s%s%s: %s left", n->source,
           n->action[0] != '\0' ? ": " : "", n->action, left);
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "source", n->source);
    hf_json_add_str(f, "id", n->id);
    hf_json_add_str(f, "action", n->action);
    hf_json_add_int(f, "left_ms", (int64_t)left_ms);
    hf_event(&sup->events, sup->at.claim.attempt, "notice", f);
}

void hf_sup_notice(struct hf_sup *sup, const struct hf_notice *n, uint64_t deadline_ns,
                   unsigned how)
{
    struct hf_leaving *lv = &sup->leaving;
    struct hf_standing *place = place_of(lv, n->source);
    if (place == NULL) {
        return; /* more sources than this program has */
    }
    /* The same source again: its deadline may only come nearer. */
    if (place->what.source[0] == '\0' || deadline_ns < place->deadline_ns) {
        place->deadline_ns = deadline_ns;
    }
    place->what = *n;
    place->for_good = place->for_good || (how & HF_NOTICE_FOR_GOOD) != 0;
    place->guessed = (how & HF_NOTICE_GUESSED) != 0;
    if (!lv->notice) {
        lv->seen_ns = hf_now_ns();
    }
    nearest_deadline(lv);
    hf_store_limit_lift(sup->run.store, true);
    tell_notice(sup, n);
    hf_sup_mark_leaving(sup, true);
    hf_timer_start(&sup->leave_by, &sup->loop, ms_until(hf_sup_leave_by(sup)), overtime, sup);
    hf_job_event(sup, HF_EV_NOTICE);
}

void hf_sup_withdrawn(struct hf_sup *sup, const struct hf_notice *n)
{
    struct hf_leaving *lv = &sup->leaving;
    struct hf_standing *place = place_of(lv, n->source);
    /* By id: a notice whose time changed is told anew before the old one is withdrawn. */
    if (place == NULL || strcmp(place->what.id, n->id) != 0 || place->for_good) {
        return;
    }
    *place = (struct hf_standing){0};
    nearest_deadline(lv);
    hf_log(&sup->log, HF_LOG_INFO, "the notice from %s no longer stands", n->source);
    hf_event(&sup->events, sup->at.claim.attempt, "notice-withdrawn", NULL);
    if (lv->notice) {
        hf_timer_start(&sup->leave_by, &sup->loop, ms_until(hf_sup_leave_by(sup)), overtime, sup);
        hf_sup_check_safe(sup);
        return;
    }
    hf_store_limit_lift(sup->run.store, false);
    hf_sup_mark_leaving(sup, false);
    hf_timer_stop(&sup->leave_by);
    hf_job_event(sup, HF_EV_WITHDRAWN);
}

/* ---- actions ---- */

void hf_act_leave(struct hf_sup *sup)
{
    hf_timer_stop(&sup->soft); /* of a hang */
    hf_logship_hurry(sup->at.logship);
    hf_sup_mark_leaving(sup, true);
    hf_ship_deadline(sup->at.ship, sup->leaving.deadline_ns);
    hf_sup_ask_final(sup);
}

void hf_act_hurry(struct hf_sup *sup)
{
    hf_ship_deadline(sup->at.ship, sup->leaving.deadline_ns);
    hf_hooks_hurry(sup->at.hooks, hf_sup_answer_by(sup), true);
    hf_sup_check_safe(sup);
}

void hf_act_unleave(struct hf_sup *sup)
{
    hf_ship_deadline(sup->at.ship, 0);
    hf_hooks_release(sup->at.hooks, false);
    sup->at.final_settled = false;
    hf_sup_window_forget(sup);
    hf_sup_every_start(sup);
}

/* Asked by signal or command, and no answer came: the hooks' own requests say so themselves. */
static void say_unanswered(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (!at->otherwise || at->final_settled || !sup->leaving.notice) {
        return;
    }
    at->final_settled = true;
    hf_log(&sup->log, HF_LOG_WARN,
           "not acknowledged: no complete checkpoint followed the request to save in its time");
}

/* The time is over, or a person says so: the stop signal to whom it is for, if that was not done
 * before, SIGKILL to all soon. */
void hf_act_stop(struct hf_sup *sup)
{
    hf_timer_stop(&sup->soft);
    say_unanswered(sup);
    hf_sup_save_command_end(sup);
    if (sup->at.keeper == NULL) {
        hf_act_hunt(sup);
        return;
    }
    uint64_t left = sup->leaving.notice ? ms_until(sup->leaving.deadline_ns) : HF_END_MS;
    uint64_t grace = left > HF_END_MS ? HF_END_MS : left;
    bool at_once =
        sup->at.ending.interrupted || sup->at.ending.superseded || !hf_sup_stop_signal(sup);
    hf_keeper_end_tree(sup->at.keeper, at_once ? 0 : (uint32_t)grace / 2);
}

static void soft_over(void *user)
{
    hf_job_event(user, HF_EV_OVERTIME);
}

/* All that could be saved is safe. Ranks that were told to leave end by themselves; a command
 * without a hook gets its stop signal and what time is left, as it would from the cloud. */
void hf_act_stop_softly(struct hf_sup *sup)
{
    struct hf_hooks_status st;
    hf_sup_save_command_end(sup);
    hf_hooks_get_status(sup->at.hooks, &st);
    uint64_t left = ms_until(hf_sup_leave_by(sup));
    if (st.all_done) {
        /* Training is over: what it still writes may be its result. */
        hf_timer_start(&sup->soft, &sup->loop, left, soft_over, sup);
        return;
    }
    if (st.world > 0 && sup->at.save_why[0] == '\0') {
        hf_timer_start(&sup->soft, &sup->loop, left < HF_SOFT_EXIT_MS ? left : HF_SOFT_EXIT_MS,
                       soft_over, sup);
        return;
    }
    uint64_t end = ms_until(sup->leaving.deadline_ns);
    uint64_t grace = end > HF_END_MS ? end - HF_END_MS / 2 : end / 2;
    hf_keeper_end_tree(sup->at.keeper, hf_sup_stop_signal(sup) ? (uint32_t)grace : 0);
}

/* The keeper is gone: the tree is found by its token and ended, on a worker. */
struct hunt {
    struct hf_sup *sup;
    char token[HF_NONCE_STRLEN];
    char *dir;
};

static enum hf_rc hunt_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    struct hunt *h = arg;
    hf_cgroup_end(h->dir, h->token, 2000);
    return hf_tree_kill_token(h->token, 10000, err);
}

static void hunt_done(void *user, const struct hf_err *err)
{
    struct hunt *h = user;
    struct hf_sup *sup = h->sup;
    hf_free(h->dir);
    hf_free(h);
    sup->at.hunting = false;
    /* What the keeper left came to us as the next subreaper. */
    while (sup->save_command == NULL && waitpid(-1, NULL, WNOHANG) > 0) {
    }
    if (err != NULL) {
        hf_log_err(&sup->log, HF_LOG_WARN, err, "what the keeper left could not be ended");
    }
    hf_job_event(sup, HF_EV_GONE);
}

void hf_act_hunt(struct hf_sup *sup)
{
    if (sup->at.hunting) {
        return;
    }
    struct hunt *h = HF_NEW(struct hunt);
    h->sup = sup;
    h->dir = hf_strdup(sup->at.dir);
    memcpy(h->token, sup->at.claim.nonce, sizeof(h->token));
    sup->at.hunting = true;
    struct hf_err err = {0};
    if (hf_pool_submit(sup->local_pool, &sup->scope, hunt_work, h, hunt_done, h, NULL, &err) !=
        HF_OK) {
        hunt_done(h, &err);
    }
}

/* ---- people and signals ---- */

void hf_sup_interrupt(struct hf_sup *sup, int forward_sig)
{
    uint64_t now = hf_now_ns();
    bool second =
        sup->interrupt_ns != 0 && now - sup->interrupt_ns < HF_SECOND_INTERRUPT_MS * HF_MS;
    sup->interrupt_ns = now;
    if (second) {
        hf_log(&sup->log, HF_LOG_INFO, "interrupted twice: ending everything now");
        sup->at.ending.interrupted = true;
        hf_job_event(sup, HF_EV_FORCE);
        return;
    }
    if (sup->state == HF_JOB_SETTLING) {
        hf_log(&sup->log, HF_LOG_INFO,
               "the last save is being shipped; interrupt again within 2 s to give it up");
    } else if (sup->at.keeper == NULL || sup->state == HF_JOB_PAUSING) {
        sup->at.ending.interrupted = true;
        hf_job_event(sup, HF_EV_FORCE);
    } else if (forward_sig != 0) {
        hf_keeper_signal(sup->at.keeper, forward_sig);
    }
}

/* A signal as a notice: SIGTERM and SIGHUP are for good, the notice signal is a machine's word. */
static void notice_by_signal(struct hf_sup *sup, int sig)
{
    struct hf_notice n = {.kind = HF_NOTICE_RECLAIM};
    snprintf(n.source, sizeof(n.source), "signal");
    const struct hf_standing *before = place_of(&sup->leaving, n.source);
    if (before != NULL && before->for_good) {
        return;
    }
    snprintf(n.id, sizeof(n.id), "signal-%d", sig);
    snprintf(n.action, sizeof(n.action), "SIG%s", sigabbrev_np(sig));
    hf_sup_notice(sup, &n, hf_now_ns() + sup->grace_ms * HF_MS,
                  HF_NOTICE_FOR_GOOD | HF_NOTICE_GUESSED);
}

static bool in_foreground(void)
{
    return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* A shell that puts a running job into the foreground sends it no signal. */
void hf_sup_follow_foreground(struct hf_sup *sup)
{
    bool now = in_foreground();
    if (now != sup->foreground && sup->at.keeper != NULL) {
        hf_keeper_continue(sup->at.keeper, now);
    }
    sup->foreground = now;
}

static void on_signal(uv_signal_t *handle, int sig)
{
    struct hf_sup *sup = handle->data;
    struct hf_keeper *k = sup->at.keeper;
    if (sig == sup->notice_signal || sig == SIGTERM || sig == SIGHUP) {
        notice_by_signal(sup, sig);
    } else if (sig == SIGINT || sig == SIGQUIT) {
        hf_sup_interrupt(sup, sig);
    } else if (k == NULL) {
        return;
    } else if (sig == SIGCONT) {
        sup->foreground = in_foreground();
        hf_keeper_continue(k, sup->foreground);
        sup->log.crlf = hf_keeper_terminal_is_raw(k);
    } else if (sig == SIGWINCH) {
        hf_keeper_window_changed(k);
    } else {
        hf_keeper_signal(k, sig);
    }
}

enum hf_rc hf_sup_signals_start(struct hf_sup *sup, struct hf_err *err)
{
    /* A rank that ends before its answer is written, or a reader of stderr that has gone, must not
     * end this process. The keeper gives the command what Holdfast was given. */
    struct sigaction ignore = {0};
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &ignore, NULL);
    int list[] = {SIGTERM, SIGINT,   SIGQUIT, SIGHUP,  SIGCONT,
                  SIGTSTP, SIGWINCH, SIGUSR1, SIGUSR2, sup->notice_signal};
    for (size_t i = 0; i < HF_COUNT(list); i++) {
        bool twice = list[i] == sup->notice_signal && i + 1 < HF_COUNT(list);
        bool ignored = sigismember(&sup->ctx->inherited->ignored, list[i]) == 1;
        if (twice || (ignored && list[i] != SIGTERM)) {
            continue;
        }
        uv_signal_t *s = &sup->signals[sup->n_signals];
        int n = uv_signal_init(&sup->loop.uv, s);
        if (n == 0) {
            s->data = sup;
            sup->n_signals++;
            uv_unref((uv_handle_t *)s);
            n = uv_signal_start(s, on_signal, list[i]);
        }
        if (n != 0) {
            return hf_fail(err, HF_EIO, "catch signal %d: %s", list[i], uv_strerror(n));
        }
    }
    return HF_OK;
}

void hf_sup_signals_close(struct hf_sup *sup)
{
    for (size_t i = 0; i < sup->n_signals; i++) {
        uv_close((uv_handle_t *)&sup->signals[i], NULL);
    }
}

/* ---- the cloud's watcher and the notice file ---- */

static void on_notice(void *user, const struct hf_notice *n)
{
    struct hf_sup *sup = user;
    if (n->kind == HF_NOTICE_REBALANCE) {
        hf_sup_hint(sup, n);
    }
    if (n->kind != HF_NOTICE_RECLAIM) {
        return;
    }
    uint64_t deadline = hf_notice_deadline(n, hf_now_ns(), hf_wall_ms(), sup->provider->window_ms);
    hf_sup_notice(sup, n, deadline, HF_NOTICE_TOLD);
}

static void on_withdrawn(void *user, const struct hf_notice *n)
{
    if (n->kind == HF_NOTICE_RECLAIM) {
        hf_sup_withdrawn(user, n);
    }
}

static void on_health(void *user, enum hf_watch_health health, const struct hf_err *why)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "health", health == HF_WATCH_SEEING ? "seeing" : "blind");
    hf_json_add_str(f, "why", why != NULL ? why->msg : NULL);
    hf_event(&sup->events, sup->at.claim.attempt, "watch", f);
    if (health == HF_WATCH_BLIND && why != NULL) {
        hf_log_err(&sup->log, HF_LOG_WARN, why,
                   "blind: a notice from %s would not be seen, training goes on",
                   sup->provider->name);
    } else if (health == HF_WATCH_SEEING) {
        hf_log(&sup->log, HF_LOG_DEBUG, "notices from %s are seen", sup->provider->name);
    }
    hf_sup_status_changed(sup);
}

void hf_sup_watch_start(struct hf_sup *sup)
{
    if (sup->provider == NULL || sup->watch != NULL) {
        return;
    }
    static const struct hf_watch_cb cb = {
        .notice = on_notice, .withdrawn = on_withdrawn, .health = on_health};
    struct hf_watch_cfg cfg = {
        .ops = sup->provider,
        .endpoint = hf_set_str(sup->ctx->settings, HF_SET_METADATA_ENDPOINT),
        .poll_ms = (uint32_t)hf_set_ms(sup->ctx->settings, HF_SET_POLL),
    };
    sup->http = hf_http_new(&sup->loop);
    sup->watch = hf_watch_start(&sup->loop, sup->http, &cfg, &cb, sup);
}

/* The file may hold the time that is left ("120s") or the time of the end (RFC 3339); else
 * --grace counts. */
static uint64_t notice_file_deadline(struct hf_sup *sup, const char *path, unsigned *ret_how)
{
    struct hf_buf text;
    hf_buf_init(&text, 4096);
    uint64_t now = hf_now_ns();
    uint64_t left_ms = sup->grace_ms;
    *ret_how = HF_NOTICE_GUESSED;
    if (hf_fs_read(path, &text, NULL) == HF_OK && text.len > 0) {
        text.data[strcspn(text.data, " \t\r\n")] = '\0';
        int64_t at = 0;
        if (hf_utc_parse(text.data, &at, NULL) == HF_OK) {
            int64_t left = at - hf_wall_ms();
            left_ms = left > 0 ? (uint64_t)left : 0;
            *ret_how = HF_NOTICE_TOLD;
        } else if (hf_duration_parse(text.data, &left_ms, NULL) == HF_OK) {
            *ret_how = HF_NOTICE_TOLD;
        } else {
            left_ms = sup->grace_ms;
        }
    }
    hf_buf_release(&text);
    return now + left_ms * HF_MS;
}

void hf_sup_check_notice_file(struct hf_sup *sup)
{
    const char *path = hf_set_str(sup->ctx->settings, HF_SET_NOTICE_FILE);
    if (path == NULL) {
        return;
    }
    bool there = hf_fs_exists(path);
    if (there == sup->leaving.file_seen) {
        return;
    }
    struct hf_notice n = {.kind = HF_NOTICE_RECLAIM};
    snprintf(n.source, sizeof(n.source), "file");
    snprintf(n.id, sizeof(n.id), "file");
    sup->leaving.file_seen = there;
    if (there) {
        unsigned how = HF_NOTICE_GUESSED;
        uint64_t deadline = notice_file_deadline(sup, path, &how);
        hf_sup_notice(sup, &n, deadline, how);
    } else {
        hf_sup_withdrawn(sup, &n);
    }
}
