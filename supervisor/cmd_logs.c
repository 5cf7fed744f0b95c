/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast logs: prints what a run's command wrote, from this machine's copy or from the store,
 * once or as it comes. Main thread: there is no loop to keep waiting. Ctrl-C ends it as it ends
 * cat: by the signal.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "checkpoint/logs.h"
#include "supervisor/cmd.h"
#include "supervisor/keysource.h"
#include "supervisor/logview.h"
#include "supervisor/status_read.h"

#define LOOK_MS  200  /* at the local log, with -f */
#define STORE_MS 2000 /* at the store */
/* After an end with no next attempt: a supervisor elsewhere waits up to a minute before it tries
 * again. */
#define NO_NEXT_MS 75000

static enum hf_rc copy_file(const char *path, FILE *out, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno != EINTR) {
            return hf_fail_errno(err, errno, "read '%s'", path);
        }
        if (n == 0) {
            return HF_OK;
        }
        if (n > 0 && fwrite(chunk, 1, (size_t)n, out) != (size_t)n) {
            return hf_fail_errno(err, errno, "write to stdout");
        }
    }
}

static enum hf_rc show_own(struct hf_logview *v, struct hf_err *err)
{
    if (v->dir == NULL) {
        return hf_fail(err, HF_ENOTFOUND, "Holdfast's own lines are only on the machine itself");
    }
    HF_CLEANUP(hf_freep) char *old = hf_rundir_file(v->dir, "supervisor.log.1");
    HF_CLEANUP(hf_freep) char *own = hf_rundir_file(v->dir, "supervisor.log");
    if (hf_fs_exists(old)) {
        HF_TRY(copy_file(old, v->out, err));
    }
    enum hf_rc rc = copy_file(own, v->out, err);
    return rc != HF_ENOTFOUND
               ? rc
               : hf_hint(err, rc, "Only a run that was started with --detach has such a file.");
}

/* On stderr, so that stdout is the output alone. */
static void say_attempt(struct hf_logview *v, uint32_t attempt)
{
    hf_log(v->log, HF_LOG_INFO, "---- attempt %u ----", attempt);
}

static enum hf_rc show_all(struct hf_logview *v, uint32_t newest, struct hf_err *err)
{
    bool some = false;
    for (uint32_t n = 1; n <= newest; n++) {
        struct hf_logview_at at;
        bool any = false;
        enum hf_rc rc = hf_logview_open(v, n, &at, err);
        if (rc == HF_ENOTFOUND) {
            hf_log(v->log, HF_LOG_INFO, "---- attempt %u: nothing is kept ----", n);
            continue;
        }
        HF_TRY(rc);
        say_attempt(v, n);
        HF_TRY(hf_logview_copy(v, &at, &any, err));
        some = true;
    }
    return some ? HF_OK : hf_fail(err, HF_ENOTFOUND, "nothing is kept of any attempt");
}

static enum hf_rc show_one(struct hf_logview *v, uint32_t attempt, struct hf_err *err)
{
    struct hf_logview_at at;
    bool any = false;
    HF_TRY(hf_logview_open(v, attempt, &at, err));
    return hf_logview_copy(v, &at, &any, err);
}

/* What there is now, whether or not there was anything before. */
static enum hf_rc follow_some(struct hf_logview *v, struct hf_logview_at *at, struct hf_err *err)
{
    bool any = false;
    enum hf_rc rc = at->open ? HF_OK : hf_logview_open(v, at->attempt, at, err);
    if (rc == HF_ENOTFOUND) {
        return HF_OK; /* not yet */
    }
    return rc == HF_OK ? hf_logview_copy(v, at, &any, err) : rc;
}

static enum hf_rc follow(struct hf_logview *v, uint32_t attempt, struct hf_err *err)
{
    struct hf_logview_at at = {.attempt = attempt};
    uint64_t looked_ns = 0;
    uint64_t pending_ns = 0; /* since when it has ended with no next one */
    for (;;) {
        enum hf_logview_end end = HF_LOGVIEW_LIVES;
        uint64_t now = hf_now_ns();
        if (now - looked_ns >= STORE_MS * HF_MS) {
            looked_ns = now;
            end = hf_logview_look(v, at.attempt);
        }
        /* After the look: what was written before the end is there. */
        HF_TRY(follow_some(v, &at, err));
        if (end == HF_LOGVIEW_PENDING) {
            pending_ns = pending_ns != 0 ? pending_ns : now;
            end = now - pending_ns > NO_NEXT_MS * HF_MS ? HF_LOGVIEW_ENDED : end;
        }
        if (end == HF_LOGVIEW_ENDED) {
            return HF_OK;
        }
        if (end == HF_LOGVIEW_NEXT) {
            at = (struct hf_logview_at){.attempt = at.attempt + 1};
            looked_ns = pending_ns = 0;
            say_attempt(v, at.attempt);
            continue;
        }
        HF_TRY(hf_call_wait(NULL, at.local || v->dir != NULL ? LOOK_MS : STORE_MS, err));
    }
}

/* "10m" before now, or a moment. */
static enum hf_rc read_since(const char *text, int64_t *ret, struct hf_err *err)
{
    uint64_t ms = 0;
    *ret = -1;
    if (text == NULL || hf_utc_parse(text, ret, NULL) == HF_OK) {
        return HF_OK;
    }
    if (hf_duration_parse(text, &ms, NULL) != HF_OK) {
        hf_fail(err, HF_EINVAL, "--since: '%s' is neither a duration nor a moment", text);
        return hf_hint(err, HF_EINVAL, "Like 10m, 1h30m, or 2026-11-30T22:37:01Z.");
    }
    int64_t at = hf_wall_ms() - (int64_t)ms;
    *ret = at > 0 ? at : 0;
    return HF_OK;
}

/* *ret 0: the newest; UINT32_MAX: all. */
static enum hf_rc read_attempt(const char *text, uint32_t *ret, struct hf_err *err)
{
    char *end = NULL;
    *ret = 0;
    if (text == NULL) {
        return HF_OK;
    }
    if (strcmp(text, "all") == 0) {
        *ret = UINT32_MAX;
        return HF_OK;
    }
    unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (n == 0 || n > HF_NUMBER_MAX || *end != '\0') {
        return hf_fail(err, HF_EINVAL, "--attempt: '%s' is neither a number nor 'all'", text);
    }
    *ret = (uint32_t)n;
    return HF_OK;
}

static enum hf_rc show(struct hf_cmd_ctx *ctx, struct hf_logview *v, uint32_t wanted,
                       struct hf_err *err)
{
    bool follows = hf_set_bool(ctx->settings, HF_SET_FOLLOW);
    if (hf_set_bool(ctx->settings, HF_SET_OWN)) {
        return show_own(v, err);
    }
    uint32_t newest = 0;
    HF_TRY(hf_logview_newest(v, &newest, err));
    if (newest == 0) {
        return hf_fail(err, HF_ENOTFOUND, "it has no attempt, here or in the store");
    }
    if (wanted == UINT32_MAX && newest > 1) {
        HF_TRY(show_all(v, follows ? newest - 1 : newest, err));
    } else if (wanted == UINT32_MAX) {
        say_attempt(v, newest);
    }
    if (follows) {
        return follow(v, wanted == 0 || wanted == UINT32_MAX ? newest : wanted, err);
    }
    if (wanted == UINT32_MAX && newest > 1) {
        return HF_OK;
    }
    return show_one(v, wanted == 0 || wanted == UINT32_MAX ? newest : wanted, err);
}

/* The run as this machine knows it; with --store also one that it does not know. */
static enum hf_rc view_open(struct hf_cmd_ctx *ctx, const char *name, struct hf_rundir *dir,
                            struct hf_logview *v, struct hf_err *err)
{
    const char *store = hf_set_str(ctx->settings, HF_SET_STORE);
    const struct hf_store_cfg cfg = hf_set_store(ctx->settings);
    enum hf_rc rc =
        hf_rundir_find(dir, hf_set_str(ctx->settings, HF_SET_STATE_DIR), name, store, err);
    if (rc == HF_ENOTFOUND && store != NULL) {
        HF_TRY(hf_far_open(store, name, &cfg, &v->run, err));
        return hf_keysource_unlock(ctx->settings, &v->run, err);
    }
    HF_TRY(rc);
    struct hf_err why = {0};
    v->dir = dir;
    v->run.name = dir->name;
    if (hf_store_open(dir->store, &cfg, &v->run.store, &why) != HF_OK ||
        hf_keysource_unlock(ctx->settings, &v->run, &why) != HF_OK) {
        hf_run_close(&v->run);
        hf_log_err(ctx->log, HF_LOG_WARN, &why, "only what is on this machine can be shown");
    }
    return HF_OK;
}

static int run(struct hf_cmd_ctx *ctx)
{
    const char *name = ctx->argc > 0 ? ctx->argv[0] : hf_set_str(ctx->settings, HF_SET_RUN);
    if (name == NULL || ctx->argc > 1) {
        hf_log(ctx->log, HF_LOG_ERROR, "logs takes one run; 'holdfast status' lists them");
        return HF_EXIT_USAGE;
    }
    struct hf_err err = {0};
    struct hf_logview v = {.log = ctx->log, .out = ctx->out};
    uint32_t wanted = 0;
    if (read_since(hf_set_str(ctx->settings, HF_SET_SINCE), &v.since_wall_ms, &err) != HF_OK ||
        read_attempt(hf_set_str(ctx->settings, HF_SET_ATTEMPT), &wanted, &err) != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        return HF_EXIT_USAGE;
    }
    struct hf_rundir dir;
    enum hf_rc rc = view_open(ctx, name, &dir, &v, &err);
    if (rc == HF_OK) {
        v.chunk = hf_calloc(1, HF_LOG_PIECE_MAX);
        rc = show(ctx, &v, wanted, &err);
        rc = rc == HF_OK ? rc : hf_wrap(&err, rc, "run '%s'", v.run.name);
    }
    hf_free(v.chunk);
    hf_run_close(&v.run);
    hf_rundir_release(&dir);
    if (rc != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        return HF_EXIT_FAIL;
    }
    return HF_EXIT_OK;
}

const struct hf_cmd hf_cmd_logs = {
    .name = "logs",
    .args = "[options] RUN",
    .summary = "what the command of a run wrote",
    .about = "Reads the copy on this machine, or the store's where there is none. By default the\n"
             "newest attempt; --attempt all shows every one, and -f goes on until the run ends.",
    .exits = "0: done\n1: the run or attempt is not known, or its log cannot be read\n64: "
             "wrong usage\n130: --follow was interrupted",
    .group = HF_FOR_LOGS,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
