/* SPDX-License-Identifier: Apache-2.0
 *
 * Process trees: who is found by ancestry and by token, who is spared, and that what is killed
 * is dead. Real processes; every wait is for a condition with a deadline.
 */
#include "base/prelude.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "supervisor/tree.h"

#define WAIT_MS 10000

static pid_t run_shell(const char *script, const char *token)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *entry = hf_asprintf("HOLDFAST_TOKEN=%s", token);
        char sh[] = "sh";
        char option[] = "-c";
        char *text = hf_strdup(script);
        char path[] = "PATH=/usr/bin:/bin";
        char *argv[] = {sh, option, text, NULL};
        char *env[] = {path, entry, NULL};
        execve("/bin/sh", argv, env);
        _exit(127);
    }
    return pid;
}

static void bury(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool lists(const struct hf_procs *p, const char *name)
{
    for (size_t i = 0; i < p->len; i++) {
        if (strcmp(p->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Waits until `token` (or, without one, ancestry from root) lists that name. */
static struct hf_proc wait_for(const char *token, pid_t root, const char *name)
{
    uint64_t until = hf_now_ns() + WAIT_MS * HF_MS;
    while (hf_now_ns() < until) {
        struct hf_procs found = {0};
        enum hf_rc rc = token != NULL ? hf_tree_by_token(token, &found, NULL)
                                      : hf_tree_descendants(root, &found, NULL);
        assert_int_equal(rc, HF_OK);
        for (size_t i = 0; i < found.len; i++) {
            if (strcmp(found.items[i].name, name) == 0) {
                struct hf_proc proc = found.items[i];
                hf_procs_release(&found);
                return proc;
            }
        }
        hf_procs_release(&found);
        (void)poll(NULL, 0, 2);
    }
    fail_msg("no process '%s'", name);
    return (struct hf_proc){0};
}

static void finds_by_ancestry(void **state)
{
    (void)state;
    pid_t pid = run_shell("sh -c 'setsid sleep 4711 & wait' & wait", "tree-a");
    struct hf_proc deep = wait_for(NULL, pid, "sleep 4711");
    struct hf_procs mine = {0};
    assert_int_equal(hf_tree_descendants(getpid(), &mine, NULL), HF_OK);
    assert_true(lists(&mine, "sleep 4711"));
    for (size_t i = 0; i < mine.len; i++) {
        assert_int_not_equal(mine.items[i].pid, getpid());
        assert_int_not_equal(mine.items[i].pid, getppid());
    }
    hf_procs_release(&mine);
    struct hf_procs from_init = {0};
    assert_int_equal(hf_tree_descendants(1, &from_init, NULL), HF_OK);
    for (size_t i = 0; i < from_init.len; i++) {
        assert_int_not_equal(from_init.items[i].pid, getpid());
        assert_int_not_equal(from_init.items[i].pid, getppid());
    }
    hf_procs_release(&from_init);
    assert_true(hf_proc_alive(deep.pid, deep.start));
    assert_false(hf_proc_alive(deep.pid, deep.start + 1));
    assert_int_equal(hf_tree_kill_token("tree-a", WAIT_MS, NULL), HF_OK);
    assert_false(hf_proc_alive(deep.pid, deep.start));
    bury(pid);
}

static void knows_single_processes(void **state)
{
    (void)state;
    pid_t pid =
        run_shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 4721 & wait", "tree-k");
    struct hf_proc deep = wait_for("tree-k", 0, "sleep 4721");
    assert_true(hf_proc_below(deep.pid, pid));
    assert_true(hf_proc_below(deep.pid, getpid()));
    assert_true(hf_proc_below(pid, pid));
    assert_false(hf_proc_below(pid, deep.pid));
    assert_false(hf_proc_below(getppid(), getpid()));
    assert_false(hf_proc_below(0, getpid()));
    assert_false(hf_proc_below(INT32_MAX, getpid()));
    struct hf_proc p;
    assert_true(hf_proc_get(deep.pid, &p));
    assert_int_equal(p.start, deep.start);
    assert_string_equal(p.name, "sleep 4721");
    assert_false(hf_proc_get(INT32_MAX, &p));
    char text[8];
    assert_int_equal(hf_proc_file(deep.pid, "comm", text, sizeof text), 6);
    assert_string_equal(text, "sleep\n");
    assert_int_equal(hf_proc_file(deep.pid, "cmdline", text, sizeof text), 7); /* cut to fit */
    assert_int_equal(hf_proc_file(INT32_MAX, "comm", text, sizeof text), -1);
    struct hf_procs tree;
    assert_int_equal(hf_tree_descendants(getpid(), &tree, NULL), HF_OK);
    uint64_t ms = hf_procs_cpu_ms(&tree);
    assert_true(ms > 0 && ms < 60000);
    assert_int_equal(hf_procs_cpu_ms(&(struct hf_procs){0}), 0);
    hf_procs_release(&tree);
    assert_int_equal(hf_tree_kill_token("tree-k", WAIT_MS, NULL), HF_OK);
    bury(pid);
    assert_false(hf_proc_get(deep.pid, &p));
}

/* The token is compared whole, and a process that lost its parent is found by it all the same. */
static void finds_by_token(void **state)
{
    (void)state;
    pid_t pid = run_shell("(setsid sleep 4712 &) ; exec sleep 4713", "tree-b");
    pid_t other = run_shell("exec sleep 4714", "tree-bb");
    (void)wait_for("tree-b", 0, "sleep 4712");
    (void)wait_for("tree-b", 0, "sleep 4713");
    (void)wait_for("tree-bb", 0, "sleep 4714");
    struct hf_procs found = {0};
    assert_int_equal(hf_tree_by_token("tree-b", &found, NULL), HF_OK);
    assert_false(lists(&found, "sleep 4714"));
    hf_procs_release(&found);
    assert_int_equal(hf_tree_kill_token("tree-b", WAIT_MS, NULL), HF_OK);
    assert_int_equal(hf_tree_by_token("tree-b", &found, NULL), HF_OK);
    assert_int_equal(found.len, 0);
    hf_procs_release(&found);
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    bury(other);
    bury(pid);
}

/* A child that cleared its environment dies with the parent that has the token. */
static void kills_below_the_token(void **state)
{
    (void)state;
    pid_t pid = run_shell("trap '' TERM; env -i /bin/sleep 4715 & sleep 4716 & wait", "tree-c");
    struct hf_proc bare = wait_for(NULL, pid, "/bin/sleep 4715");
    (void)wait_for("tree-c", 0, "sleep 4716");
    assert_int_equal(hf_tree_kill_token("tree-c", WAIT_MS, NULL), HF_OK);
    uint64_t until = hf_now_ns() + WAIT_MS * HF_MS;
    while (hf_proc_alive(bare.pid, bare.start) && hf_now_ns() < until) {
        (void)poll(NULL, 0, 2);
    }
    assert_false(hf_proc_alive(bare.pid, bare.start));
    bury(pid);
}

static void leaves_zombies_out(void **state)
{
    (void)state;
    pid_t pid = run_shell("exit 0", "tree-d");
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    uint64_t start = hf_proc_start(pid);
    assert_true(start != 0);
    assert_false(hf_proc_alive(pid, start));
    struct hf_procs mine = {0};
    assert_int_equal(hf_tree_descendants(getpid(), &mine, NULL), HF_OK);
    assert_int_equal(mine.len, 0);
    hf_procs_release(&mine);
    struct hf_proc proc = {.pid = pid, .start = start, .name = "sh"};
    assert_int_equal(hf_tree_signal(&proc, SIGTERM, NULL), HF_OK);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(hf_proc_start(pid) == 0);
    assert_int_equal(hf_tree_signal(&proc, SIGTERM, NULL), HF_OK);
}

/* The pid is right and the start time is not: another process has the number now. */
static void spares_a_recycled_pid(void **state)
{
    (void)state;
    pid_t pid = run_shell("exec sleep 4717", "tree-e");
    struct hf_proc proc = wait_for("tree-e", 0, "sleep 4717");
    proc.start--;
    assert_int_equal(hf_tree_signal(&proc, SIGKILL, NULL), HF_OK);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    proc.start++;
    assert_int_equal(hf_tree_signal(&proc, SIGKILL, NULL), HF_OK);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void knows_what_is_caught(void **state)
{
    (void)state;
    pid_t pid = run_shell("trap 'exit 3' TERM; trap '' USR1; sleep 4718 & wait", "tree-f");
    (void)wait_for("tree-f", 0, "sleep 4718");
    assert_true(hf_proc_catches(pid, SIGTERM));
    assert_false(hf_proc_catches(pid, SIGUSR1)); /* ignored */
    assert_false(hf_proc_catches(pid, SIGUSR2)); /* default */
    assert_false(hf_proc_catches(pid, 0));
    assert_false(hf_proc_catches(pid, 65));
    assert_int_equal(hf_tree_kill_token("tree-f", WAIT_MS, NULL), HF_OK);
    bury(pid);
    assert_false(hf_proc_catches(pid, SIGTERM));
}

/* A name with a bracket and blanks must not shift the fields behind it. */
static void reads_odd_names(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "a) Z 1 (b", 0, 0, 0);
        (void)!write(ready[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    char c = 0;
    assert_int_equal(read(ready[0], &c, 1), 1);
    struct hf_procs mine = {0};
    assert_int_equal(hf_tree_descendants(getpid(), &mine, NULL), HF_OK);
    assert_int_equal(mine.len, 1);
    assert_int_equal(mine.items[0].pid, pid);
    assert_int_equal(mine.items[0].ppid, getpid());
    assert_true(hf_proc_alive(pid, mine.items[0].start));
    hf_procs_release(&mine);
    bury(pid);
    close(ready[0]);
    close(ready[1]);
}

static void names_this_boot(void **state)
{
    (void)state;
    char a[40];
    char b[40];
    assert_int_equal(hf_boot_id(a, NULL), HF_OK);
    assert_int_equal(hf_boot_id(b, NULL), HF_OK);
    assert_int_equal(strlen(a), 36);
    assert_string_equal(a, b);
    assert_true(hf_pid_ns() != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_ancestry),    cmocka_unit_test(knows_single_processes),
        cmocka_unit_test(finds_by_token),       cmocka_unit_test(kills_below_the_token),
        cmocka_unit_test(leaves_zombies_out),   cmocka_unit_test(spares_a_recycled_pid),
        cmocka_unit_test(knows_what_is_caught), cmocka_unit_test(reads_odd_names),
        cmocka_unit_test(names_this_boot),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
