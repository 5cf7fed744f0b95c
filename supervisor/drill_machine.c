/* SPDX-License-Identifier: Apache-2.0
 *
 * The rehearsed machine: a supervisor of the real kind, started with a state folder of its own,
 * killed without mercy, and followed by a machine that knows nothing but the store.
 */
#include "base/prelude.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/drill.h"
#include "supervisor/tree.h"

#define KILL_MS 15000

/* 'word', with quotes inside made safe: what --resume-args splits back to the same word. */
static void add_quoted(struct hf_buf *b, const char *word)
{
    enum hf_rc rc = hf_buf_addf(b, NULL, "%s'", b->len > 0 ? " " : "");
    for (const char *p = word; *p != '\0' && rc == HF_OK; p++) {
        rc = *p == '\'' ? hf_buf_addf(b, NULL, "'\\''") : hf_buf_add(b, p, 1, NULL);
    }
    if (rc == HF_OK) {
        rc = hf_buf_addf(b, NULL, "'");
    }
}

static void add_list(const struct hf_settings *set, enum hf_set_id id, struct hf_strv *args)
{
    const struct hf_setting *row = &hf_settings_table[id];
    const struct hf_strv *list = hf_set_list(set, id);
    if (row->type == HF_SET_WORDS) {
        struct hf_buf text;
        hf_buf_init(&text, 1u << 20);
        for (size_t i = 0; i < list->len; i++) {
            add_quoted(&text, list->items[i]);
        }
        hf_strv_take(args, hf_asprintf("--%s=%s", row->name, hf_buf_str(&text)));
        hf_buf_release(&text);
        return;
    }
    for (size_t i = 0; i < list->len; i++) {
        hf_strv_take(args, hf_asprintf("--%s=%s", row->name, list->items[i]));
    }
}

/* The drill's own flags that a run has too; environment and file reach the run by themselves. */
static void pass_on(const struct hf_settings *set, struct hf_strv *args)
{
    static const enum hf_set_id ours[] = {
        HF_SET_RUN,         HF_SET_STORE,   HF_SET_STATE_DIR, HF_SET_STORE_SURVIVES,
        HF_SET_RESUME,      HF_SET_FRESH,   HF_SET_PROVIDER,  HF_SET_METADATA_ENDPOINT,
        HF_SET_NOTICE_FILE, HF_SET_SAVE_DIR};
    for (unsigned id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        bool mine = false;
        for (size_t i = 0; i < HF_COUNT(ours); i++) {
            mine = mine || ours[i] == id;
        }
        if (mine || (row->commands & HF_FOR_RUN) == 0 || hf_set_origin(set, id) != HF_FROM_FLAG) {
            continue;
        }
        if (row->type == HF_SET_BOOL) {
            hf_strv_take(args, hf_asprintf("--%s%s", hf_set_bool(set, id) ? "" : "no-", row->name));
        } else if (row->type == HF_SET_PATHS || row->type == HF_SET_WORDS) {
            add_list(set, id, args);
        } else {
            hf_strv_take(args, hf_asprintf("--%s=%s", row->name, hf_set_str(set, id)));
        }
    }
}

static void build_args(const struct hf_drill *d, struct hf_strv *args)
{
    hf_strv_add(args, "holdfast");
    hf_strv_add(args, "run");
    pass_on(d->ctx->settings, args);
    hf_strv_take(args, hf_asprintf("--run=%s", d->run));
    hf_strv_take(args, hf_asprintf("--store=%s", d->store));
    /* The store outlives the rehearsed machine: that is the rehearsal. */
    hf_strv_add(args, "--store-survives");
    hf_strv_take(args, hf_asprintf("--state-dir=%s", d->machine));
    if (d->endpoint != NULL) {
        hf_strv_add(args, "--provider=aws");
        hf_strv_take(args, hf_asprintf("--metadata-endpoint=%s", d->endpoint));
    } else {
        hf_strv_add(args, "--provider=none");
    }
    hf_strv_add(args, "--");
    for (int i = 0; i < d->ctx->argc; i++) {
        hf_strv_add(args, d->ctx->argv[i]);
    }
}

static int spawn(const struct hf_drill *d, struct hf_strv *args, struct hf_strv *env,
                 pid_t *ret_pid)
{
    posix_spawnattr_t attr;
    int num = posix_spawnattr_init(&attr);
    if (num != 0) {
        return num;
    }
    /* The drill blocks the signals it waits for: the run gets back what the drill was given. */
    sigset_t defaults;
    sigemptyset(&defaults);
    for (int sig = 1; sig < 32; sig++) {
        if (sigismember(&d->ctx->inherited->ignored, sig) != 1) {
            sigaddset(&defaults, sig);
        }
    }
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &d->ctx->inherited->mask);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    num = posix_spawn(ret_pid, "/proc/self/exe", NULL, &attr, args->items, env->items);
    posix_spawnattr_destroy(&attr);
    return num;
}

enum hf_rc hf_drill_start(struct hf_drill *d, struct hf_err *err)
{
    hf_rundir_release(&d->dir);
    HF_TRY(hf_rundir_open(&d->dir, d->machine, d->run, d->store, err));
    hf_told_init(&d->told);
    hf_buf_reset(&d->events);
    d->events_read = 0;
    struct hf_strv args = {0};
    struct hf_strv env = {0};
    build_args(d, &args);
    for (char *const *e = d->ctx->env; *e != NULL; e++) {
        if (strncmp(*e, "HOLDFAST_DRILL=", 15) != 0) {
            hf_strv_add(&env, *e);
        }
    }
    hf_strv_add(&env, "HOLDFAST_DRILL=1");
    pid_t pid = 0;
    int num = spawn(d, &args, &env, &pid);
    hf_strv_clear(&args);
    hf_strv_clear(&env);
    if (num != 0) {
        return hf_fail_errno(err, num, "start holdfast run");
    }
    d->pid = pid;
    d->machines++;
    return HF_OK;
}

static void reap(struct hf_drill *d)
{
    int status = 0;
    for (pid_t pid = 1; pid > 0;) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0 && pid == d->pid) {
            d->pid = 0;
            d->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
}

bool hf_drill_supervisor_lives(struct hf_drill *d)
{
    reap(d);
    return d->pid != 0;
}

bool hf_drill_pause(struct hf_drill *d, uint32_t ms)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    int sig = sigtimedwait(&wanted, NULL, &ts);
    if (sig > 0) {
        d->stop_signal = sig;
    }
    reap(d);
    return d->stop_signal == 0;
}

/* Supervisor first, so that it cannot react; then whatever bears the attempt's token, keeper
 * included. */
enum hf_rc hf_drill_kill(struct hf_drill *d, struct hf_err *err)
{
    hf_drill_follow(d);
    uint64_t give_up = hf_now_ns() + KILL_MS * HF_MS;
    if (d->pid != 0) {
        kill(d->pid, SIGKILL);
    }
    while (hf_drill_supervisor_lives(d)) {
        if (hf_now_ns() > give_up) {
            return hf_fail(err, HF_ETIMEOUT, "the supervisor (pid %d) survives SIGKILL", d->pid);
        }
        hf_drill_pause(d, 5);
    }
    hf_drill_follow(d);
    if (d->told.nonce[0] != '\0') {
        HF_TRY(hf_tree_kill_token(d->told.nonce, KILL_MS, err));
    }
    reap(d);
    return HF_OK;
}

enum hf_rc hf_drill_new_machine(struct hf_drill *d, struct hf_err *err)
{
    hf_rundir_release(&d->dir);
    HF_TRY(hf_fs_remove_tree(d->machine, err));
    if (d->iso != NULL) {
        HF_TRY(hf_isolate_new_machine(d->iso, err));
    }
    return HF_OK;
}
