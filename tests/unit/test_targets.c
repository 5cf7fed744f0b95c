/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/targets: whom a signal reaches, table by table of processes, and that the reader
 * fills such a table from living processes.
 */
#include "base/prelude.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "supervisor/targets.h"

#define USR1 (UINT64_C(1) << (SIGUSR1 - 1))
#define TERM (UINT64_C(1) << (SIGTERM - 1))
#define NO_RANK        \
    {                  \
        -1, -1, -1, -1 \
    }
#define R(n)          \
    {                 \
        n, -1, -1, -1 \
    }

#define ROWS  12
#define PEERS 4

struct table {
    const char *what;
    struct hf_target_row rows[ROWS];
    struct hf_target_query q; /* command 100, SIGUSR1 unless it says otherwise */
    int32_t peers[PEERS];
    enum hf_target_how how;
    size_t roots;
    pid_t want[ROWS]; /* in any order; 0 ends */
};

/* 100 is always the command. */
static const struct table tables[] = {
    {"the command itself",
     {{100, 1, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {100}},
    {"nobody catches it", {{100, 1, NO_RANK, .caught = 0}}, .how = HF_TARGET_COMMAND, .roots = 1},
    {"another signal is caught",
     {{100, 1, NO_RANK, .caught = TERM}},
     .how = HF_TARGET_COMMAND,
     .roots = 1},
    {"A1: sh -c, the trainer below it",
     {{100, 1, NO_RANK, .caught = 0}, {101, 100, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {101}},
    {"A2: two shells deep",
     {{100, 1, NO_RANK, .caught = 0},
      {101, 100, NO_RANK, .caught = 0},
      {102, 101, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {102}},
    {"a pipeline: both ends that catch it",
     {{100, 1, NO_RANK, .caught = 0},
      {101, 100, NO_RANK, .caught = USR1},
      {102, 100, NO_RANK, .caught = 0},
      {103, 100, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {101, 103}},
    {"a shell that catches it is asked, not what is below",
     {{100, 1, NO_RANK, .caught = USR1}, {101, 100, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {100}},
    {"A8: workers of a trainer that does not catch it",
     {{100, 1, NO_RANK, .caught = 0},
      {101, 100, NO_RANK, .worker = true, .caught = USR1},
      {102, 101, NO_RANK, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1},
    {"A8: workers of a trainer that does",
     {{100, 1, NO_RANK, .caught = 0},
      {101, 100, NO_RANK, .caught = USR1},
      {102, 101, NO_RANK, .worker = true, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {101}},
    {"A13: torchrun, ranks at once; the launcher and the workers are left alone",
     {{100, 1, NO_RANK, .caught = USR1},
      {110, 100, R(0), .caught = USR1},
      {111, 110, R(0), .worker = true, .caught = USR1},
      {112, 110, R(0), .caught = USR1},
      {120, 100, R(1), .caught = USR1},
      {121, 120, R(1), .worker = true, .caught = USR1}},
     .how = HF_TARGET_RANK,
     .roots = 2,
     .want = {110, 120}},
    {"a rank behind a wrapper of its own",
     {{100, 1, NO_RANK, .caught = 0},
      {110, 100, R(0), .caught = 0},
      {111, 110, R(0), .caught = USR1},
      {120, 100, R(1), .caught = USR1}},
     .how = HF_TARGET_RANK,
     .roots = 2,
     .want = {111, 120}},
    {"ranks that do not catch it: nothing, though the launcher would",
     {{100, 1, NO_RANK, .caught = USR1},
      {110, 100, R(0), .caught = 0},
      {120, 100, R(1), .caught = 0}},
     .how = HF_TARGET_RANK,
     .roots = 2},
    {"the same, where the command may be asked instead",
     {{100, 1, NO_RANK, .caught = USR1},
      {110, 100, R(0), .caught = 0},
      {120, 100, R(1), .caught = 0}},
     .q = {.or_command = true},
     .how = HF_TARGET_COMMAND,
     .roots = 3,
     .want = {100}},
    {"mpirun's ranks",
     {{100, 1, NO_RANK, .caught = 0},
      {110, 100, {-1, 0, -1, -1}, .caught = USR1},
      {120, 100, {-1, 1, -1, -1}, .caught = USR1}},
     .how = HF_TARGET_RANK,
     .roots = 2,
     .want = {110, 120}},
    {"RANK goes before LOCAL_RANK and SLURM_PROCID, which the launcher has too",
     {{100, 1, {-1, -1, 0, -1}, .caught = USR1},
      {110, 100, {0, -1, 0, 0}, .caught = USR1},
      {120, 100, {1, -1, 0, 1}, .caught = USR1}},
     .how = HF_TARGET_RANK,
     .roots = 2,
     .want = {110, 120}},
    {"only LOCAL_RANK",
     {{100, 1, NO_RANK, .caught = 0}, {110, 100, {-1, -1, -1, 0}, .caught = USR1}},
     .how = HF_TARGET_RANK,
     .roots = 1,
     .want = {110}},
    {"the hook's peers go before RANK",
     {{100, 1, NO_RANK, .caught = 0},
      {110, 100, R(0), .caught = USR1},
      {111, 110, R(0), .caught = USR1}},
     .q = {.n_peers = 1},
     .peers = {111},
     .how = HF_TARGET_HOOK,
     .roots = 1,
     .want = {111}},
    {"a peer that does not catch it: its workers are not taken in its place",
     {{100, 1, NO_RANK, .caught = 0},
      {110, 100, NO_RANK, .caught = 0},
      {111, 110, NO_RANK, .caught = USR1}},
     .q = {.n_peers = 1},
     .peers = {110},
     .how = HF_TARGET_HOOK,
     .roots = 1},
    {"a peer outside of the tree is no target",
     {{100, 1, NO_RANK, .caught = TERM}, {110, 100, R(0), .caught = USR1}},
     .q = {.n_peers = 2},
     .peers = {999, 0},
     .how = HF_TARGET_RANK,
     .roots = 1,
     .want = {110}},
    {"one peer inside, one outside",
     {{100, 1, NO_RANK, .caught = 0}, {110, 100, NO_RANK, .caught = USR1}},
     .q = {.n_peers = 2},
     .peers = {999, 110},
     .how = HF_TARGET_HOOK,
     .roots = 1,
     .want = {110}},
    {"a peer told twice",
     {{100, 1, NO_RANK, .caught = USR1}},
     .q = {.n_peers = 2},
     .peers = {100, 100},
     .how = HF_TARGET_HOOK,
     .roots = 2,
     .want = {100}},
    {"the command has ended", {{110, 1, NO_RANK, .caught = USR1}}, .how = HF_TARGET_NONE},
    {"no environment can be read",
     {{100, 1, NO_RANK, .env_hidden = true},
      {110, 100, NO_RANK, .env_hidden = true, .caught = USR1}},
     .how = HF_TARGET_COMMAND,
     .roots = 1,
     .want = {110}},
    {"a table that changed while it was read: a circle",
     {{100, 101, R(1), .caught = 0}, {101, 100, R(1), .caught = 0}},
     .how = HF_TARGET_COMMAND,
     .roots = 1},
};

static size_t count(const pid_t *list)
{
    size_t n = 0;
    while (n < ROWS && list[n] != 0) {
        n++;
    }
    return n;
}

static void chooses(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(tables); i++) {
        const struct table *t = &tables[i];
        size_t n = 0;
        while (n < ROWS && t->rows[n].pid != 0) {
            n++;
        }
        struct hf_target_query q = t->q;
        q.command = 100;
        q.peers = t->peers;
        q.sig = q.sig == 0 ? SIGUSR1 : q.sig;
        struct hf_targets got;
        hf_targets_choose(t->rows, n, &q, &got);
        bool all = got.len == count(t->want);
        for (size_t w = 0; w < count(t->want); w++) {
            bool hit = false;
            for (size_t g = 0; g < got.len; g++) {
                hit = hit || t->rows[got.at[g]].pid == t->want[w];
            }
            all = all && hit;
        }
        if (!all || got.how != t->how || got.roots != t->roots ||
            got.env_hidden != t->rows[0].env_hidden) {
            fail_msg("%s: %zu chosen, by %s, of %zu", t->what, got.len, hf_target_how_name(got.how),
                     got.roots);
        }
        hf_targets_release(&got);
    }
}

static void odd_signals_reach_nobody(void **state)
{
    (void)state;
    const struct hf_target_row row = {100, 1, NO_RANK, .caught = UINT64_MAX};
    static const int signals[] = {-1, 0, 65, 1000};
    for (size_t i = 0; i < HF_COUNT(signals); i++) {
        struct hf_target_query q = {.command = 100, .sig = signals[i]};
        struct hf_targets got;
        hf_targets_choose(&row, 1, &q, &got);
        assert_int_equal(got.len, 0);
        hf_targets_release(&got);
    }
}

/* ---- living processes ---- */

static pid_t start(const char *script, char *const *env)
{
    pid_t pid = fork();
    if (pid == 0) {
        char sh[] = "sh";
        char option[] = "-c";
        char *text = hf_strdup(script);
        char *argv[] = {sh, option, text, NULL};
        execve("/bin/sh", argv, env);
        _exit(127);
    }
    return pid;
}

static const struct hf_target_row *row_named(const struct hf_target_table *t, const char *name)
{
    for (size_t i = 0; i < t->procs.len; i++) {
        if (strcmp(t->procs.items[i].name, name) == 0) {
            return &t->rows[i];
        }
    }
    return NULL;
}

/* Reads until `name` is listed. */
static struct hf_target_table read_until(pid_t root, const char *name)
{
    struct hf_target_table t;
    uint64_t until = hf_now_ns() + 10 * HF_SEC;
    for (;;) {
        assert_int_equal(hf_targets_read(root, &t, NULL), HF_OK);
        if (row_named(&t, name) != NULL) {
            return t;
        }
        hf_target_table_release(&t);
        assert_true(hf_now_ns() < until);
        (void)poll(NULL, 0, 2);
    }
}

static void reads_living_processes(void **state)
{
    (void)state;
    char rank[] = "RANK=3";
    char local[] = "LOCAL_RANK=x1"; /* no number */
    char slurm[] = "SLURM_PROCID=7";
    char path[] = "PATH=/usr/bin:/bin";
    char *env[] = {rank, path, local, slurm, NULL};
    assert_int_equal(setenv("SLURM_PROCID", "7", 1), 0); /* ours, so it tells nothing */
    pid_t pid = start("trap : USR1; sleep 8101 & wait; wait", env);
    struct hf_target_table t = read_until(pid, "sleep 8101");
    const struct hf_target_row *row = row_named(&t, "sleep 8101");
    assert_int_equal(row->ppid, pid);
    assert_int_equal(row->rank[HF_VAR_RANK], 3);
    assert_int_equal(row->rank[HF_VAR_LOCAL], -1);
    assert_int_equal(row->rank[HF_VAR_SLURM], -1);
    assert_int_equal(row->rank[HF_VAR_OMPI], -1);
    assert_false(row->worker);
    assert_false(row->env_hidden);
    assert_int_equal(row->caught & USR1, 0);
    hf_target_table_release(&t);
    assert_int_equal(unsetenv("SLURM_PROCID"), 0);
    t = read_until(getpid(), "sleep 8101");
    for (size_t i = 0; i < t.procs.len; i++) {
        if (t.rows[i].pid == pid) {
            assert_int_equal(t.rows[i].caught & USR1, USR1);
            assert_int_equal(t.rows[i].rank[HF_VAR_SLURM], 7);
        }
    }
    hf_target_table_release(&t);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    assert_int_equal(hf_tree_kill_token("none", 1, NULL), HF_OK);
}

/* A fork without an exec is a worker of its parent, unless that is a shell. */
static void tells_workers(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ready[0]);
        pid_t inner = fork();
        if (inner == 0) {
            (void)!write(ready[1], "x", 1);
            for (;;) {
                pause();
            }
        }
        for (;;) {
            pause();
        }
    }
    char c = 0;
    assert_int_equal(read(ready[0], &c, 1), 1);
    struct hf_target_table t;
    assert_int_equal(hf_targets_read(pid, &t, NULL), HF_OK);
    assert_int_equal(t.procs.len, 1);
    assert_true(t.rows[0].worker);
    pid_t inner = t.rows[0].pid;
    hf_target_table_release(&t);
    (void)kill(inner, SIGKILL);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    char path[] = "PATH=/usr/bin:/bin";
    char *env[] = {path, NULL};
    pid = start("(sleep 8102; true) & wait", env);
    t = read_until(pid, "sleep 8102");
    for (size_t i = 0; i < t.procs.len; i++) {
        assert_false(t.rows[i].worker);
    }
    hf_target_table_release(&t);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Another user's process: nothing of its environment may be read. Needs root to make one. */
static void hidden_environments(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    int ready[2];
    int done[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t other = fork();
    if (other == 0) {
        (void)!write(ready[1], "x", 1);
        for (;;) {
            pause();
        }
    }
    char c = 0;
    assert_int_equal(read(ready[0], &c, 1), 1);
    pid_t reader = fork();
    if (reader == 0) {
        struct hf_target_table t;
        if (setgid(65534) != 0 || setuid(65534) != 0 ||
            hf_targets_read(getppid(), &t, NULL) != HF_OK) {
            _exit(9);
        }
        bool hidden = false;
        for (size_t i = 0; i < t.procs.len; i++) {
            hidden = hidden || (t.rows[i].pid == other && t.rows[i].env_hidden);
        }
        _exit(hidden ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    close(done[0]);
    close(done[1]);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(status, 0);
}

int main(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses),
        cmocka_unit_test(odd_signals_reach_nobody),
        cmocka_unit_test(reads_living_processes),
        cmocka_unit_test(tells_workers),
        cmocka_unit_test(hidden_environments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
