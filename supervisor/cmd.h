/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands: one struct each, listed in cmd_table.c. cmd.c takes the settings apart, prints help
 * and calls the command. Main thread; nothing here starts a loop or a thread.
 */
#ifndef HF_SUPERVISOR_CMD_H
#define HF_SUPERVISOR_CMD_H

#include "base/prelude.h"

#include <stdio.h>

#include "base/log.h"
#include "supervisor/keeper.h"
#include "supervisor/settings.h"

/* Exit statuses of Holdfast's own; else the command's (128+n for signals). */
enum hf_exit {
    HF_EXIT_OK = 0,
    HF_EXIT_FAIL = 1,       /* what was asked about is not so: ckpt verify, drill */
    HF_EXIT_USAGE = 64,     /* status, ckpt, logs and holdfast itself used wrongly */
    HF_EXIT_AGAIN = 75,     /* start the same command again */
    HF_EXIT_OWN = 125,      /* run, drill: Holdfast's own failure, usage included */
    HF_EXIT_NOEXEC = 126,   /* the command could not be executed */
    HF_EXIT_NOCOMMAND = 127 /* the command was not found */
};

struct hf_cmd_ctx {
    const struct hf_cmd *cmd;
    struct hf_settings *settings; /* owned by the dispatcher */
    int argc;                     /* of argv */
    char *const *argv;  /* the wrapped command or the operands: the user's own strings, untouched;
                          NULL-terminated, may be empty */
    char *const *env;   /* the whole environment as Holdfast got it */
    struct hf_log *log; /* stderr, as --quiet, --debug and --log-format say */
    FILE *out;          /* stdout; flushed and checked by the dispatcher */
    int detach_fd;      /* run --detach: who waits for the start hears of it here; 0: nobody */
    const struct hf_inherited *inherited;
};

struct hf_cmd {
    const char *name;
    const char *args;    /* for the usage line: "[options] [--] COMMAND [ARG]..." */
    const char *summary; /* one line, lower case, no full stop */
    const char *about;   /* --help: sentences below the usage line, may be NULL */
    const char *exits;   /* for the manual: "STATUS: meaning" lines, lower case, no full stops */
    unsigned group;      /* enum hf_set_command: which settings it has */
    bool wraps;          /* options end at the first operand, which starts the user's own command */
    int usage_status;    /* exit status for wrong usage */
    int (*run)(struct hf_cmd_ctx *ctx); /* returns the exit status */
};

extern const struct hf_cmd hf_cmd_run;
extern const struct hf_cmd hf_cmd_drill;
extern const struct hf_cmd hf_cmd_status;
extern const struct hf_cmd hf_cmd_ckpt;
extern const struct hf_cmd hf_cmd_logs;
extern const struct hf_cmd hf_cmd_doctor;
extern const struct hf_cmd *const hf_cmds[]; /* NULL-terminated, in the order of --help */

/* ckpt inspect, beside ckpt's other verbs: 0 when something whole lies in the folder, else 1. */
int hf_ckpt_inspect(struct hf_cmd_ctx *ctx, const char *dir);
/* "3-12"; false: not a checkpoint's name, and hf_ckpt_id_wrong says what one is. */
struct hf_ckpt_id;
bool hf_ckpt_id_parse(const char *text, struct hf_ckpt_id *ret);
extern const char hf_ckpt_id_wrong[];
/* ckpt rm, pin, unpin, gc: whether the verb is one of them; ctx->argv[0] must be. */
bool hf_ckpt_keeps(const char *verb);
int hf_ckpt_keep(struct hf_cmd_ctx *ctx);
/* A run by its registered name, or by --store where it was never started here. `dir` is released
 * and ret->store closed by the caller, also after a failure. */
struct hf_run;
struct hf_rundir;
enum hf_rc hf_ckpt_open_run(struct hf_cmd_ctx *ctx, const char *name, struct hf_rundir *dir,
                            struct hf_run *ret, struct hf_err *err) HF_MUST_USE;

/* What the process was given, so that tests can give something else. */
struct hf_cmd_world {
    const struct hf_cmd *const *cmds;
    char *const *env;
    FILE *out, *err_out;
    int err_fd; /* the log's descriptor */
    const struct hf_inherited *inherited;
};

/* Parses argv (argv[0] is the program), runs the command and returns the exit status. */
int hf_cmd_dispatch(const struct hf_cmd_world *world, int argc, char **argv);

/* The whole program: takes what was inherited, plays the keeper's role when asked to, else
 * dispatches over hf_cmds with the process's environment and streams. */
int hf_main(int argc, char **argv);

#endif
