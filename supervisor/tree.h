/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and ending process trees through /proc. Used by the keeper on its own descendants,
 * and by the supervisor on what a dead keeper left: by ancestry, and by HOLDFAST_TOKEN=<token>
 * in the environment. No threads needed; the calls are short.
 */
#ifndef HF_SUPERVISOR_TREE_H
#define HF_SUPERVISOR_TREE_H

#include "base/prelude.h"

#include <sys/types.h>

#include "base/err.h"

struct hf_proc {
    pid_t pid, ppid;
    uint64_t start; /* field 22 of /proc/PID/stat: with pid, the process's identity on this boot */
    char state;     /* R, S, D, Z, T... */
    char name[64];  /* the command line's beginning, or comm */
};

struct hf_procs {
    struct hf_proc *items;
    size_t len;
};

/* Zombies are left out. `self` and its ancestors are never listed. */
enum hf_rc hf_tree_descendants(pid_t root, struct hf_procs *ret, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_tree_by_token(const char *token, struct hf_procs *ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_procs_release(struct hf_procs *p);

/* By pidfd, checked against `start`: a recycled pid is never signalled. ESRCH is success. */
enum hf_rc hf_tree_signal(const struct hf_proc *p, int sig, struct hf_err *err) HF_MUST_USE;
bool hf_proc_catches(pid_t pid, int sig);  /* SigCgt */
uint64_t hf_proc_start(pid_t pid);         /* 0: no such process */
bool hf_proc_below(pid_t pid, pid_t root); /* root itself, or a descendant of it */
/* A process as it is now; false: it is gone, or a zombie. */
bool hf_proc_get(pid_t pid, struct hf_proc *ret);
/* /proc/PID/NAME, as much of it as fits into text[size] with a NUL. -1: errno says why. */
ssize_t hf_proc_file(pid_t pid, const char *name, char *text, size_t size);
/* User and system time of the listed processes and of their children that were waited for. */
uint64_t hf_procs_cpu_ms(const struct hf_procs *p);
bool hf_proc_alive(pid_t pid, uint64_t start); /* the same process, and not a zombie */

/* SIGKILL to every process that bears the token, again and again until two scans in a row find
 * none or timeout_ms is over (HF_ETIMEOUT names the first left). */
enum hf_rc hf_tree_kill_token(const char *token, uint32_t timeout_ms,
                              struct hf_err *err) HF_MUST_USE;

/* This machine's boot id into out[40]; the inode of our pid namespace. */
enum hf_rc hf_boot_id(char out[40], struct hf_err *err) HF_MUST_USE;
uint64_t hf_pid_ns(void);

#endif
