/* SPDX-License-Identifier: Apache-2.0
 *
 * A supervisor in a test: a real keeper, a real command, every callback written down, and the
 * command's two outputs collected from pipes. The test's own program is the keeper's too: main
 * must call hf_keeper_main when hf_keeper_is_role says so.
 */
#ifndef HF_TESTS_SUPPORT_KEEPER_H
#define HF_TESTS_SUPPORT_KEEPER_H

#include "base/prelude.h"

#include <sys/types.h>

#include "base/buf.h"
#include "supervisor/keeper.h"
#include "supervisor/logring.h"

#define SIT_WAIT_MS 20000

struct sit {
    struct hf_loop loop;
    struct hf_keeper *k;
    struct hf_inherited inherited;
    char dir[64];
    char token[64];
    uint32_t linger_ms;
    uint64_t log_limit;
    char **env;      /* borrowed; NULL: PATH and the token */
    int in, tty_out; /* borrowed; stdin, stdout in place of /dev/null, the pipe; -1: not */
    bool joined;     /* stderr is stdout's pipe */
    bool lazy;       /* nothing is read from the pipes */
    int out_r, out_w, err_r, err_w;
    struct hf_buf out, err;
    /* what was called back */
    int64_t pid;
    uint64_t exec_ns;
    int started, exec_failed, exited, stopped, interrupt, gone, lost;
    int exec_errno, status, gone_status;
    bool forced;
    uint64_t log_dropped;
    int log_errno, log_told;
    char order[64]; /* one letter a callback: S F X Z I T K G L */
    char stragglers[512];
};

/* A folder of its own, two pipes, no keeper yet. */
void sit_init(struct sit *s);
/* tty: descriptor to be stdin, stdout and stderr in place of the pipes; -1: none. */
void sit_start(struct sit *s, int tty, char *const *argv);
void sit_start_shell(struct sit *s, const char *script);
enum hf_rc sit_attach(struct sit *s, int tty, struct hf_err *err);
/* Runs the loop and collects output until *flag is not 0; fails the test after SIT_WAIT_MS. */
void sit_until(struct sit *s, const int *flag);
void sit_until_text(struct sit *s, const struct hf_buf *b, const char *text);
void sit_once(struct sit *s); /* one short turn of the same */
/* What lies in the pipes now; after "gone" that is all there will be. */
void sit_collect(struct sit *s);
/* Closes the client, as a supervisor that dies would. */
void sit_close(struct sit *s);
/* The end of the test: nothing of the tree lives, no zombie is left, the loop closes clean. */
void sit_release(struct sit *s);

/* A file of the attempt's folder; owned by the caller. NULL: missing. */
char *sit_file(const struct sit *s, const char *name);
bool sit_file_is(const struct sit *s, const char *name, struct hf_span want);
int64_t sit_number(const struct sit *s, const char *name, const char *key);

#endif
