/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast logs: prints what an attempt's command wrote, as the keeper kept it on this machine.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/cmd.h"
#include "supervisor/rundir.h"

/* The highest attempt with a folder here, 0: none. */
static uint32_t newest_attempt(const struct hf_rundir *r)
{
    uint32_t best = 0;
    DIR *d = opendir(r->dir);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char *end = NULL;
        unsigned long n = strtoul(e->d_name, &end, 10);
        if (end != e->d_name && *end == '\0' && n > best && n < UINT32_MAX) {
            best = (uint32_t)n;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return best;
}

static enum hf_rc copy_out(const char *path, FILE *out, struct hf_err *err)
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

static enum hf_rc print_log(struct hf_cmd_ctx *ctx, const struct hf_rundir *r, struct hf_err *err)
{
    int64_t asked = hf_set_int(ctx->settings, HF_SET_ATTEMPT);
    uint32_t attempt = asked > 0 ? (uint32_t)asked : newest_attempt(r);
    if (attempt == 0) {
        return hf_fail(err, HF_ENOTFOUND, "run '%s' has no attempt on this machine", r->name);
    }
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(r, attempt);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/log", dir);
    enum hf_rc rc = copy_out(path, ctx->out, err);
    return hf_wrap(err, rc, "attempt %u of run '%s'", attempt, r->name);
}

static int run(struct hf_cmd_ctx *ctx)
{
    const char *name = ctx->argc > 0 ? ctx->argv[0] : hf_set_str(ctx->settings, HF_SET_RUN);
    if (name == NULL || ctx->argc > 1) {
        hf_log(ctx->log, HF_LOG_ERROR, "logs takes one run; 'holdfast status' lists them");
        return HF_EXIT_USAGE;
    }
    struct hf_err err = {0};
    struct hf_rundir r;
    enum hf_rc rc = hf_rundir_find(&r, hf_set_str(ctx->settings, HF_SET_STATE_DIR), name,
                                   hf_set_str(ctx->settings, HF_SET_STORE), &err);
    if (rc == HF_OK) {
        rc = print_log(ctx, &r, &err);
    }
    hf_rundir_release(&r);
    if (rc != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        return HF_EXIT_FAIL;
    }
    return HF_EXIT_OK;
}

const struct hf_cmd hf_cmd_logs = {
    .name = "logs",
    .args = "[options] RUN",
    .summary = "what the command of a run's newest attempt wrote",
    .about = "Reads the copy on this machine; --attempt N picks an older attempt.",
    .exits = "0: done\n1: the run or attempt is not known here, or its log cannot be read\n64: "
             "wrong usage",
    .group = HF_FOR_LOGS,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
