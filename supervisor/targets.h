/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a signal is for: the ranks of a training, never their data-loader workers. A table of the
 * tree's processes is read from /proc; the choice over it is pure. The ranks are, first, the
 * peers of the hook socket; second, the topmost process of each value of RANK (or of another
 * launcher's variable), since workers inherit it; third, where nobody has a rank, the command.
 * From a rank or the command that does not catch the signal (a shell, a wrapper) the topmost
 * processes below it that do are taken. Any thread.
 */
#ifndef HF_SUPERVISOR_TARGETS_H
#define HF_SUPERVISOR_TARGETS_H

#include "base/prelude.h"

#include "supervisor/tree.h"

enum hf_rank_var { HF_VAR_RANK, HF_VAR_OMPI, HF_VAR_SLURM, HF_VAR_LOCAL, HF_RANK_VARS };

struct hf_target_row {
    pid_t pid, ppid;
    int64_t rank[HF_RANK_VARS]; /* -1: not in its environment, or in ours too */
    bool env_hidden;            /* its environment may not be read */
    bool worker;                /* forked without an exec by a program that is no shell, or started
                                   by Python's multiprocessing */
    uint64_t caught;            /* SigCgt */
};

/* The table of one moment; rows[i] is procs.items[i]. */
struct hf_target_table {
    struct hf_procs procs;
    struct hf_target_row *rows;
};

enum hf_target_how { HF_TARGET_NONE, HF_TARGET_HOOK, HF_TARGET_RANK, HF_TARGET_COMMAND };
const char *hf_target_how_name(enum hf_target_how how); /* "none", "hook", "rank", "command" */

struct hf_target_query {
    pid_t command;
    const int32_t *peers; /* living ranks by the hook socket's peer credentials */
    size_t n_peers;
    int sig;
    bool or_command; /* where no rank catches it, the command may be asked instead */
};

struct hf_targets {
    enum hf_target_how how; /* by which of the three the ranks are known */
    size_t *at;             /* rows that catch the signal, to be sent it all at once */
    size_t len;
    size_t roots;    /* ranks (or the command) that were found in the tree */
    bool env_hidden; /* rank or not could not be told of some process */
};

/* All that descends from `keeper`. */
enum hf_rc hf_targets_read(pid_t keeper, struct hf_target_table *ret,
                           struct hf_err *err) HF_MUST_USE;
void hf_target_table_release(struct hf_target_table *t);

/* Pure. *ret is the caller's to release. */
void hf_targets_choose(const struct hf_target_row *rows, size_t n, const struct hf_target_query *q,
                       struct hf_targets *ret);
void hf_targets_release(struct hf_targets *t);

#endif
