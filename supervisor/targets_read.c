/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what the choice of a signal's targets needs of each process of a tree: its rank, whether
 * it is a worker, what it catches. Any thread; small files of /proc only. A process that ends
 * meanwhile is left with what was read.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "supervisor/targets.h"

#define ENVIRON_MAX (8u << 20) /* more than an exec takes of a single process's stack limit */
#define CMDLINE_MAX 4096

static const char *const variables[HF_RANK_VARS] = {
    [HF_VAR_RANK] = "RANK",
    [HF_VAR_OMPI] = "OMPI_COMM_WORLD_RANK",
    [HF_VAR_SLURM] = "SLURM_PROCID",
    [HF_VAR_LOCAL] = "LOCAL_RANK",
};

/* False, with errno, when it may not be read; *b is then what was read so far. */
static bool read_environ(pid_t pid, struct hf_buf *b)
{
    char path[64];
    char piece[16384];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n == 0;
        }
        if (hf_buf_add(b, piece, (size_t)n, NULL) != HF_OK) {
            return true; /* so much that the rest is not looked at */
        }
    }
}

static int64_t number_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && n >= 0 ? n : -1;
}

/* A variable that we have ourselves was inherited by the whole tree and tells nothing. */
static void read_ranks(struct hf_target_row *row)
{
    struct hf_buf env;
    hf_buf_init(&env, ENVIRON_MAX);
    errno = 0;
    if (!read_environ(row->pid, &env)) {
        row->env_hidden = errno == EACCES || errno == EPERM;
    }
    size_t len = 0;
    for (size_t at = 0; at < env.len; at += len + 1) {
        const char *entry = env.data + at;
        len = strnlen(entry, env.len - at);
        for (int v = 0; v < HF_RANK_VARS && at + len < env.len; v++) {
            size_t name = strlen(variables[v]);
            if (strncmp(entry, variables[v], name) == 0 && entry[name] == '=' &&
                getenv(variables[v]) == NULL) {
                row->rank[v] = number_of(entry + name + 1);
            }
        }
    }
    hf_buf_release(&env);
}

static uint64_t read_caught(pid_t pid)
{
    char text[8192];
    if (hf_proc_file(pid, "status", text, sizeof text) <= 0) {
        return 0;
    }
    const char *line = strstr(text, "\nSigCgt:");
    return line == NULL ? 0 : strtoull(line + strlen("\nSigCgt:"), NULL, 16);
}

/* The command line with blanks between its words; "" when there is none. */
static void read_command_line(pid_t pid, char text[CMDLINE_MAX])
{
    ssize_t len = hf_proc_file(pid, "cmdline", text, CMDLINE_MAX);
    text[len > 0 ? len : 0] = '\0';
    for (ssize_t i = 0; i + 1 < len; i++) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
}

static bool is_shell(const char *command_line)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"};
    size_t len = strcspn(command_line, " ");
    size_t base = len;
    while (base > 0 && command_line[base - 1] != '/') {
        base--;
    }
    base += command_line[base] == '-' ? 1 : 0; /* a login shell */
    for (size_t i = 0; i < HF_COUNT(shells); i++) {
        if (len - base == strlen(shells[i]) &&
            strncmp(command_line + base, shells[i], len - base) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_worker(const struct hf_target_row *row)
{
    char own[CMDLINE_MAX];
    char parent[CMDLINE_MAX];
    read_command_line(row->pid, own);
    if (strstr(own, "multiprocessing.") != NULL) {
        return true;
    }
    read_command_line(row->ppid, parent);
    return own[0] != '\0' && strcmp(own, parent) == 0 && !is_shell(own);
}

enum hf_rc hf_targets_read(pid_t keeper, struct hf_target_table *ret, struct hf_err *err)
{
    *ret = (struct hf_target_table){0};
    HF_TRY(hf_tree_descendants(keeper, &ret->procs, err));
    ret->rows = hf_calloc(ret->procs.len + 1, sizeof ret->rows[0]);
    for (size_t i = 0; i < ret->procs.len; i++) {
        struct hf_target_row *row = &ret->rows[i];
        row->pid = ret->procs.items[i].pid;
        row->ppid = ret->procs.items[i].ppid;
        for (int v = 0; v < HF_RANK_VARS; v++) {
            row->rank[v] = -1;
        }
        read_ranks(row);
        row->worker = is_worker(row);
        row->caught = read_caught(row->pid);
    }
    return HF_OK;
}

void hf_target_table_release(struct hf_target_table *t)
{
    hf_procs_release(&t->procs);
    hf_free(t->rows);
    *t = (struct hf_target_table){0};
}
