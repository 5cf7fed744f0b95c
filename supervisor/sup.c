/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's life: made from the settings, run on one loop, ended clean. Main thread.
 * Nothing of TLS, HTTP or metadata is touched before the command runs.
 */
#include "base/prelude.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/every.h"
#include "supervisor/sup.h"
#include "supervisor/tree.h"

#define TICK_MS       1000
#define STATUS_MS     1900 /* between two writes when nothing has changed */
#define FIRST_TICK_MS 100  /* until the first step is seen, and while a notice stands */

static bool waits_for_first_step(const struct hf_sup *sup)
{
    struct hf_hooks_status st = {0};
    if (sup->at.hooks != NULL && sup->at.first_step < 0) {
        hf_hooks_get_status(sup->at.hooks, &st);
    }
    return st.world > 0;
}

/* Looks whether anything protects the run, once the time for a handshake is over. Returns how long
 * the next look may wait. */
static uint64_t handshake_pause(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (sup->state != HF_JOB_RUNNING || !at->command_started || at->unprotected ||
        at->watchdir != NULL) {
        return TICK_MS;
    }
    struct hf_hooks_status st;
    hf_hooks_get_status(at->hooks, &st);
    if (st.world > 0) {
        return TICK_MS;
    }
    uint64_t limit_ms = hf_set_ms(sup->ctx->settings, HF_SET_HANDSHAKE_TIMEOUT);
    uint64_t past_ms = (hf_now_ns() - at->started_ns) / HF_MS;
    if (past_ms < limit_ms) {
        return limit_ms - past_ms < TICK_MS ? limit_ms - past_ms : TICK_MS;
    }
    at->unprotected = true;
    hf_event(&sup->events, at->claim.attempt, "unprotected", NULL);
    hf_log(&sup->log, HF_LOG_WARN,
           "unprotected: the command has not called the holdfast library and no "
           "--checkpoint-dir is watched; a preemption loses everything");
    return TICK_MS;
}

static void tick(void *user)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    hf_sup_check_notice_file(sup);
    hf_sup_follow_foreground(sup);
    hf_sup_follow_steps(sup);
    hf_sup_follow_store(sup);
    hf_sup_follow_hang(sup);
    hf_sup_detach_look(sup);
    sup->log.crlf = at->keeper != NULL && hf_keeper_terminal_is_raw(at->keeper);
    uint64_t pause_ms = handshake_pause(sup);
    bool quick = sup->leaving.notice || waits_for_first_step(sup);
    if (hf_now_ns() - sup->status_ns > STATUS_MS * HF_MS) {
        hf_sup_status_write(sup);
    }
    hf_timer_start(&sup->tick, &sup->loop, quick ? FIRST_TICK_MS : pause_ms, tick, sup);
}

void hf_sup_tick_soon(struct hf_sup *sup)
{
    hf_timer_start(&sup->tick, &sup->loop, FIRST_TICK_MS, tick, sup);
}

static void notice_file_event(uv_fs_event_t *handle, const char *name, int events, int status)
{
    (void)name;
    (void)events;
    (void)status;
    hf_sup_check_notice_file(handle->data);
}

/* The folder of the notice file is watched; where that cannot be done the tick looks once a
 * second. */
static void notice_file_start(struct hf_sup *sup)
{
    const char *path = hf_set_str(sup->ctx->settings, HF_SET_NOTICE_FILE);
    if (path == NULL) {
        return;
    }
    const char *slash = strrchr(path, '/');
    HF_CLEANUP(hf_freep)
    char *dir = slash == NULL ? hf_strdup(".")
                              : hf_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (uv_fs_event_init(&sup->loop.uv, &sup->notice_watch) != 0) {
        return;
    }
    sup->notice_watch_on = true;
    sup->notice_watch.data = sup;
    uv_unref((uv_handle_t *)&sup->notice_watch);
    if (uv_fs_event_start(&sup->notice_watch, notice_file_event, dir, 0) != 0) {
        hf_log(&sup->log, HF_LOG_DEBUG, "the folder of the notice file is looked at once a second");
    }
}

/* The variable by which a provider's own tools are told to leave its metadata service alone. An
 * endpoint that was named is asked all the same. */
static void honour_disabled(struct hf_sup *sup)
{
    const char *name = sup->provider != NULL ? sup->provider->disabled_env : NULL;
    const char *value = name != NULL ? getenv(name) : NULL;
    if (value == NULL || strcasecmp(value, "true") != 0 ||
        hf_set_str(sup->ctx->settings, HF_SET_METADATA_ENDPOINT) != NULL) {
        return;
    }
    hf_log(&sup->log, HF_LOG_WARN, "notices from %s are not watched: %s is 'true'",
           sup->provider->name, name);
    sup->provider = NULL;
}

static void choose_provider(struct hf_sup *sup)
{
    const struct hf_settings *set = sup->ctx->settings;
    switch ((enum hf_provider_choice)hf_set_int(set, HF_SET_PROVIDER)) {
    case HF_PROVIDER_AWS:
        sup->provider = hf_cloud_by_name("aws");
        return;
    case HF_PROVIDER_NONE:
        return;
    case HF_PROVIDER_AUTO:
        sup->provider = hf_set_str(set, HF_SET_METADATA_ENDPOINT) != NULL
                            ? hf_cloud_by_name("aws")
                            : hf_cloud_detect_dmi("/sys/class/dmi/id");
        return;
    }
}

static enum hf_rc who_and_where(struct hf_sup *sup, struct hf_err *err)
{
    char cwd[PATH_MAX];
    if (getcwd(cwd, sizeof(cwd)) == NULL) {
        return hf_fail_errno(err, errno, "find the working folder");
    }
    sup->folder = hf_strdup(cwd);
    if (gethostname(sup->host, sizeof(sup->host) - 1) != 0) {
        memcpy(sup->host, "unknown", 8);
    }
    sup->pid_ns = hf_pid_ns();
    return hf_boot_id(sup->boot_id, err);
}

/* Which run: named, or derived from the folder; registered and locked. */
static enum hf_rc which_run(struct hf_sup *sup, struct hf_err *err)
{
    const struct hf_settings *set = sup->ctx->settings;
    const char *store = hf_set_str(set, HF_SET_STORE);
    const char *name = hf_set_str(set, HF_SET_RUN);
    if (name == NULL && store != NULL) {
        enum hf_rc rc = hf_fail(err, HF_EINVAL, "--store '%s' needs a run's name", store);
        return hf_hint(err, rc, "Add --run NAME, so that another machine finds the same run.");
    }
    HF_CLEANUP(hf_freep) char *derived = name == NULL ? hf_run_name_of_folder(sup->folder) : NULL;
    const char *state = hf_set_str(set, HF_SET_STATE_DIR);
    HF_TRY(hf_rundir_open(&sup->dir, state, name != NULL ? name : derived, store, err));
    enum hf_rc rc = hf_rundir_lock(&sup->dir, err);
    if (rc == HF_EAGAIN) {
        HF_CLEANUP(hf_freep) char *owner = hf_rundir_owner(&sup->dir);
        hf_fail(err, HF_EAGAIN, "run '%s' is supervised by another holdfast on '%s' (%s)",
                sup->dir.name, sup->host, owner != NULL ? owner : "which has only just started");
        hf_hint(err, rc, "See it with 'holdfast status %s', or start another run with --run NAME.",
                sup->dir.name);
    }
    HF_TRY(rc);
    sup->run.name = sup->dir.name;
    HF_CLEANUP(hf_freep) char *events = hf_rundir_file(&sup->dir, "events.jsonl");
    hf_events_open(&sup->events, events);
    hf_sup_metrics_start(sup);
    const char *save_dir = hf_set_str(set, HF_SET_SAVE_DIR);
    HF_CLEANUP(hf_freep) char *own = hf_rundir_file(&sup->dir, "save");
    sup->save_dir = hf_path_from(sup->folder, save_dir != NULL ? save_dir : own);
    sup->registered = true;
    return HF_OK;
}

static enum hf_rc sup_init(struct hf_sup *sup, struct hf_cmd_ctx *ctx, struct hf_err *err)
{
    sup->ctx = ctx;
    sup->pulse = hf_pulse_new();
    sup->log = *ctx->log;
    sup->dir.lock_fd = -1;
    sup->every_ms = hf_set_ms(ctx->settings, HF_SET_EVERY);
    if (sup->every_ms == HF_SET_WORD) {
        sup->every_auto = true;
        sup->every_ms = HF_EVERY_FIRST_MS;
    }
    sup->limited = hf_set_int(ctx->settings, HF_SET_LIMIT_RATE) > 0;
    sup->grace_ms = hf_set_ms(ctx->settings, HF_SET_GRACE);
    sup->heartbeat_ms = hf_set_ms(ctx->settings, HF_SET_HEARTBEAT);
    sup->notice_signal = (int)hf_set_int(ctx->settings, HF_SET_NOTICE_SIGNAL);
    HF_TRY(hf_loop_init(&sup->loop, err));
    sup->store_pool = hf_pool_new(&sup->loop, "hf-store", 1, 64);
    sup->local_pool = hf_pool_new(&sup->loop, "hf-local", 1, 64);
    sup->ship_pool = hf_pool_new(&sup->loop, "hf-ship", 1, 8);
    sup->watch_pool = hf_pool_new(&sup->loop, "hf-watch", 1, 8);
    sup->log_pool = hf_pool_new(&sup->loop, "hf-logs", 1, 4);
    choose_provider(sup);
    honour_disabled(sup);
    HF_TRY(who_and_where(sup, err));
    hf_watchdir_paths(sup->folder, hf_set_list(ctx->settings, HF_SET_CHECKPOINT_DIR),
                      &sup->watch_dirs);
    HF_TRY(which_run(sup, err));
    /* What a killed keeper leaves behind becomes our child, so that it can be seen gone. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return hf_fail_errno(err, errno, "become the subreaper");
    }
    HF_TRY(hf_sup_signals_start(sup, err));
    hf_sup_follow_foreground(sup);
    notice_file_start(sup);
    return HF_OK;
}

void hf_sup_end_attempt(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    hf_keeper_close(at->keeper);
    hf_hooks_close(at->hooks);
    hf_watchdir_stop(at->watchdir);
    at->watchdir = NULL; /* the shipper tells it what is held no more */
    hf_ship_free(at->ship);
    hf_logship_free(at->logship);
    hf_claim_release(&at->claim);
    hf_free(at->dir);
    hf_free(at->resume_path);
    *at = (struct hf_attempt){.resume_step = -1, .first_step = -1, .last_step = -1};
}

/* Everything is let go; what workers still do is cancelled and waited for. */
static void sup_close(struct hf_sup *sup)
{
    hf_sup_metrics_end(sup);
    hf_watch_stop(sup->watch);
    hf_sup_save_command_close(sup);
    hf_scope_cancel(&sup->scope);
    struct hf_timer *timers[] = {&sup->tick,  &sup->every, &sup->leave_by, &sup->soft,
                                 &sup->pause, &sup->beat,  &sup->second};
    for (size_t i = 0; i < HF_COUNT(timers); i++) {
        hf_timer_close(timers[i]);
    }
    hf_sup_signals_close(sup);
    if (sup->notice_watch_on) {
        uv_close((uv_handle_t *)&sup->notice_watch, NULL);
    }
    hf_watchdir_stop(sup->at.watchdir);
    sup->at.watchdir = NULL;
    hf_pool_free(sup->watch_pool);
    hf_pool_free(sup->store_pool);
    hf_pool_free(sup->local_pool);
    hf_pool_free(sup->ship_pool);
    hf_pool_free(sup->log_pool);
    hf_loop_drain(&sup->loop);
    hf_sup_end_attempt(sup);
    hf_http_free(sup->http);
    hf_loop_drain(&sup->loop);
    struct hf_err err = {0};
    if (hf_loop_close(&sup->loop, &err) != HF_OK) {
        hf_log_err(&sup->log, HF_LOG_DEBUG, &err, "shutdown");
    }
    hf_run_close(&sup->run);
    hf_unlock_free(sup->key);
    hf_pulse_free(sup->pulse);
    hf_events_release(&sup->events);
    hf_rundir_release(&sup->dir);
    hf_free(sup->folder);
    hf_free(sup->save_dir);
    hf_strv_clear(&sup->watch_dirs);
}

int hf_sup_run(struct hf_cmd_ctx *ctx)
{
    struct hf_sup *sup = HF_NEW(struct hf_sup);
    struct hf_err err = {0};
    /* Before anything of ours has a descriptor that could be taken for the user's. */
    if (hf_keysource_load(ctx->settings, &sup->key, &err) != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "nothing was started");
        hf_free(sup);
        return HF_EXIT_OWN;
    }
    if (sup_init(sup, ctx, &err) != HF_OK) {
        hf_log_err(&sup->log, HF_LOG_ERROR, &err, "nothing was started");
        sup->exit_status = HF_EXIT_OWN;
    } else {
        hf_sup_tick_soon(sup);
        hf_job_event(sup, HF_EV_BEGIN);
        hf_loop_run(&sup->loop);
    }
    int status = sup->exit_status;
    sup_close(sup);
    hf_free(sup);
    return status;
}
