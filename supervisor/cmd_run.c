/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast run: wraps one job. Main thread. Refuses what would run one supervisor a rank before
 * anything is started.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "supervisor/sup.h"

static const char *env_of(const struct hf_cmd_ctx *ctx, const char *name)
{
    size_t len = strlen(name);
    for (char *const *e = ctx->env; *e != NULL; e++) {
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=') {
            return *e + len + 1;
        }
    }
    return NULL;
}

/* Launchers that start one process a rank, the variable that counts them, and one that only a
 * rank has (a batch script sees SLURM_NTASKS too). */
struct launcher {
    const char *size, *rank, *name, *instead;
};

static const struct launcher launchers[] = {
    {"SLURM_NTASKS", "SLURM_STEP_ID", "srun",
     "holdfast run -- torchrun --nproc-per-node N train.py (srun with --ntasks-per-node=1)"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun",
     "holdfast run -- mpirun -n N python train.py"},
    {"PMI_SIZE", "PMI_RANK", "mpiexec", "holdfast run -- mpiexec -n N python train.py"},
    {"WORLD_SIZE", "RANK", "a launcher", "holdfast run -- torchrun --nproc-per-node N train.py"},
};

/* True, after saying the right way round, when this process is one rank of several. */
static bool is_one_rank(const struct hf_cmd_ctx *ctx)
{
    for (size_t i = 0; i < HF_COUNT(launchers); i++) {
        const struct launcher *l = &launchers[i];
        const char *size = env_of(ctx, l->size);
        if (size == NULL || env_of(ctx, l->rank) == NULL || strtol(size, NULL, 10) <= 1) {
            continue;
        }
        hf_log(ctx->log, HF_LOG_ERROR,
               "started once for each of %s ranks by %s (%s, %s): one holdfast wraps the launcher",
               size, l->name, l->size, l->rank);
        hf_log(ctx->log, HF_LOG_ERROR, "the right way round: %s", l->instead);
        return true;
    }
    return false;
}

static int run(struct hf_cmd_ctx *ctx)
{
    if (ctx->argc == 0) {
        hf_log(ctx->log, HF_LOG_ERROR, "no command to run; use: holdfast run [options] -- COMMAND");
        return HF_EXIT_OWN;
    }
    if (is_one_rank(ctx)) {
        return HF_EXIT_OWN;
    }
    int status = HF_EXIT_OK;
    if (hf_set_bool(ctx->settings, HF_SET_DETACH) && hf_sup_detach(ctx, &status)) {
        return status;
    }
    return hf_sup_run(ctx);
}

const struct hf_cmd hf_cmd_run = {
    .name = "run",
    .args = "[options] [--] COMMAND [ARG]...",
    .summary = "run a training command so that it survives preemptions",
    .about =
        "The same command again goes on from the newest checkpoint. The command's exit status is\n"
        "passed on: 128+n for signals, 126 and 127 when it cannot be executed, 125 when holdfast\n"
        "itself failed, and 75 when the machine is being taken: start the same command again.",
    .exits = "0-124, 128-255: the command's own; 128+n when signal n ended it\n"
             "75: the machine is being taken, or the command asked for it: start the same command "
             "again\n"
             "125: Holdfast itself failed, or refused; the line before says why\n"
             "126: the command could not be executed\n"
             "127: the command was not found",
    .group = HF_FOR_RUN,
    .wraps = true,
    .usage_status = HF_EXIT_OWN,
    .run = run,
};
