/* SPDX-License-Identifier: Apache-2.0
 *
 * How a tree ends under the keeper: the supervisor's word, the command's own end with children
 * left, and the deaths of supervisor and keeper. Real processes; every wait is for a condition
 * with a deadline.
 */
#include "base/prelude.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/tree.h"
#include "tests/unit/support_keeper.h"

/* The last background process is past its exec: its name is its own. */
#define UNTIL_SLEEPING "until tr '\\0' ' ' </proc/$!/cmdline | grep -q '^sleep'; do :; done; "

/* The command saves in its grace; the others, one in a session of its own and one deaf to
 * SIGTERM, are killed when it is over, and named. */
static void ends_the_whole_tree(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "trap 'echo saved; exit 7' TERM; setsid sleep 5001 & " UNTIL_SLEEPING
                        "(trap '' TERM; sleep 5002 & " UNTIL_SLEEPING "echo up; wait) & "
                        "wait; wait");
    sit_until_text(&s, &s.out, "up");
    uint64_t asked = hf_now_ns();
    assert_int_equal(kill((pid_t)s.pid, SIGTERM), 0);
    hf_keeper_end_tree(s.k, 300);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_true(hf_now_ns() - asked >= 300 * HF_MS);
    assert_true(hf_now_ns() - asked < 2300 * HF_MS);
    assert_string_equal(hf_buf_str(&s.out), "up\nsaved\n");
    assert_int_equal(s.status, 7 << 8);
    assert_non_null(strstr(s.stragglers, "sleep 5001:1;"));
    assert_non_null(strstr(s.stragglers, "sleep 5002:1;"));
    assert_memory_equal(s.order, "SX", 2);
    assert_int_equal(s.order[strlen(s.order) - 1], 'G');
    sit_release(&s);
}

static void kills_the_deaf_at_the_end_of_grace(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "trap '' TERM; echo up; while :; do sleep 0.05; done");
    sit_until_text(&s, &s.out, "up");
    uint64_t asked = hf_now_ns();
    assert_int_equal(kill((pid_t)s.pid, SIGTERM), 0);
    hf_keeper_end_tree(s.k, 200);
    sit_until(&s, &s.gone);
    assert_true(hf_now_ns() - asked >= 200 * HF_MS);
    assert_true(hf_now_ns() - asked < 2200 * HF_MS);
    assert_int_equal(s.status, SIGKILL);
    assert_true(s.forced);
    assert_int_equal(sit_number(&s, "exit", "status"), SIGKILL);
    sit_release(&s);
}

/* Nothing happens before the grace is over. A later call may shorten it. */
static void waits_for_the_grace(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "echo up; exec sleep 5003");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_end_tree(s.k, 3600 * 1000);
    uint64_t until = hf_now_ns() + 150 * HF_MS;
    while (hf_now_ns() < until) {
        sit_once(&s);
    }
    assert_int_equal(s.exited, 0);
    hf_keeper_end_tree(s.k, 0);
    sit_until(&s, &s.gone);
    assert_int_equal(s.status, SIGKILL);
    assert_string_equal(s.order, "SXG");
    sit_release(&s);
}

/* A loader worker must live until the save that needs it is done. */
static void leaves_workers_alone(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "sleep 5004 & w=$!; trap 'sleep 0.1; kill -0 $w && echo alive; "
                        "kill -9 $w; exit 0' TERM; echo up; wait; wait");
    sit_until_text(&s, &s.out, "up");
    assert_int_equal(kill((pid_t)s.pid, SIGTERM), 0);
    hf_keeper_end_tree(s.k, 10000);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(hf_buf_str(&s.out), "up\nalive\n");
    assert_string_equal(s.order, "SXG");
    sit_release(&s);
}

/* Orphans of a command that was killed get 2 s at most, whatever --linger says; a process that
 * was given its time is not sent SIGTERM after it. */
static void gives_orphans_little_time(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    s.linger_ms = 3600 * 1000;
    sit_start_shell(&s, "sleep 5021 & " UNTIL_SLEEPING "kill -9 $$");
    sit_until(&s, &s.exited);
    uint64_t exited = hf_now_ns();
    assert_false(s.forced);
    sit_until(&s, &s.gone);
    assert_true(hf_now_ns() - exited >= 1500 * HF_MS);
    assert_true(hf_now_ns() - exited < 6000 * HF_MS);
    assert_string_equal(s.stragglers, "sleep 5021:0;");
    sit_release(&s);
    sit_init(&s);
    s.linger_ms = 100;
    sit_start_shell(&s, "sleep 5022 & " UNTIL_SLEEPING "trap 'exit 0' TERM; echo up; wait; wait");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_end_tree(s.k, 3600 * 1000);
    assert_int_equal(kill((pid_t)s.pid, SIGTERM), 0);
    sit_until(&s, &s.gone);
    assert_string_equal(s.stragglers, "sleep 5022:1;");
    assert_false(s.forced);
    sit_release(&s);
    /* The end is asked for when the command has gone already. */
    sit_init(&s);
    s.linger_ms = 1000;
    sit_start_shell(&s, "sleep 5023 & " UNTIL_SLEEPING "exit 0");
    sit_until(&s, &s.exited);
    hf_keeper_end_tree(s.k, 3600 * 1000);
    sit_until(&s, &s.gone);
    assert_string_equal(s.stragglers, "sleep 5023:1;");
    assert_false(s.forced);
    sit_release(&s);
}

static void signals_the_group(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "trap 'echo leader; wait; exit 0' USR1; "
                        "sh -c 'trap \"echo worker; exit\" USR1; echo up; "
                        "while :; do sleep 0.02; done' & wait; wait");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_signal(s.k, SIGUSR1);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_non_null(strstr(hf_buf_str(&s.out), "leader\n"));
    assert_non_null(strstr(hf_buf_str(&s.out), "worker\n"));
    sit_release(&s);
}

static void lets_descendants_linger(void **state)
{
    (void)state;
    static const struct {
        const char *script, *order, *stragglers, *out;
        uint32_t linger_ms;
    } cases[] = {
        {"(sleep 0.2; echo late) & exit 4", "SXG", "", "late\n", 10000},
        {"sleep 5005 & " UNTIL_SLEEPING "exit 4", "SXTG", "sleep 5005:0;", "", 100},
        {"trap '' TERM; sleep 5006 & " UNTIL_SLEEPING "exit 4", "SXTKG",
         "sleep 5006:0;sleep 5006:1;", "", 100},
        {"setsid sleep 5007 & " UNTIL_SLEEPING "exit 4", "SXTG", "sleep 5007:0;", "", 50},
        {"sleep 5008 & " UNTIL_SLEEPING "exit 4", "SXTG", "sleep 5008:0;", "", 0},
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct sit s;
        sit_init(&s);
        s.linger_ms = cases[i].linger_ms;
        sit_start_shell(&s, cases[i].script);
        sit_until(&s, &s.gone);
        sit_collect(&s);
        assert_string_equal(s.order, cases[i].order);
        assert_string_equal(s.stragglers, cases[i].stragglers);
        assert_string_equal(hf_buf_str(&s.out), cases[i].out);
        assert_int_equal(s.gone_status, 4 << 8);
        sit_release(&s);
    }
}

/* The supervisor goes and comes back: nothing of the output is missing from the log, what
 * happened is told again, and new output comes to the newcomer. */
static void serves_the_next_supervisor(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "sleep 5013 & trap 'echo bye; kill -9 $! 2>/dev/null; exit 5' USR1; "
                        "echo one; echo two >&2; wait; wait");
    sit_until_text(&s, &s.out, "one");
    sit_until_text(&s, &s.err, "two");
    int64_t pid = s.pid;
    uint64_t exec_ns = s.exec_ns;
    sit_close(&s);
    s.started = 0;
    struct hf_err err = {0};
    assert_int_equal(sit_attach(&s, -1, &err), HF_OK);
    sit_until(&s, &s.started);
    assert_int_equal(s.pid, pid);
    assert_true(s.exec_ns == exec_ns);
    hf_keeper_signal(s.k, SIGUSR1);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(s.order, "SXG");
    assert_int_equal(s.status, 5 << 8);
    assert_string_equal(hf_buf_str(&s.out), "one\nbye\n");
    HF_CLEANUP(hf_freep) char *log = sit_file(&s, HF_LOGRING_FIRST);
    assert_non_null(log);
    assert_int_equal(strlen(log), strlen("one\ntwo\nbye\n"));
    assert_int_equal(sit_attach(&s, -1, &err), HF_ENOTFOUND);
    sit_release(&s);
}

/* The reader of the output died with the supervisor: training goes on all the same. */
static void tells_an_end_that_nobody_saw(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "sleep 5009 & read x; for i in 1 2 3; do echo tick $i; done; exit 6");
    sit_until(&s, &s.started);
    sit_close(&s);
    hf_closep(&s.out_r);
    s.out_r = -1;
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/exit", s.dir);
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (!hf_fs_exists(path) && hf_now_ns() < until) {
        sit_once(&s);
    }
    assert_int_equal(sit_number(&s, "exit", "status"), 6 << 8);
    HF_CLEANUP(hf_freep) char *log = sit_file(&s, HF_LOGRING_FIRST);
    assert_string_equal(log, "tick 1\ntick 2\ntick 3\n");
    assert_int_equal(sit_attach(&s, -1, NULL), HF_OK);
    sit_until(&s, &s.exited);
    assert_int_equal(s.status, 6 << 8);
    hf_keeper_end_tree(s.k, 0);
    sit_until(&s, &s.gone);
    assert_string_equal(s.order, "SXKG");
    sit_release(&s);
}

static void serves_one_supervisor_at_a_time(void **state)
{
    (void)state;
    struct sit a;
    struct sit b;
    sit_init(&a);
    sit_init(&b);
    assert_int_equal(hf_fs_remove_tree(b.dir, NULL), HF_OK);
    snprintf(b.dir, sizeof b.dir, "%s", a.dir);
    sit_start_shell(&a, "echo up; exec sleep 5010");
    sit_until_text(&a, &a.out, "up");
    struct hf_keeper_spec spec = {.dir = a.dir,
                                  .argv = (char *[]){a.dir, NULL},
                                  .env = (char *[]){NULL},
                                  .token = "other",
                                  .inherited = &a.inherited};
    struct hf_keeper *k = NULL;
    struct hf_keeper_cb none = {0};
    assert_int_equal(hf_keeper_start(&a.loop, &spec, &none, NULL, &k, NULL), HF_EEXISTS);
    assert_int_equal(sit_attach(&b, -1, NULL), HF_OK);
    sit_until(&b, &b.started);
    sit_until(&a, &a.lost);
    assert_string_equal(a.order, "SL");
    hf_keeper_end_tree(b.k, 0);
    sit_until(&b, &b.gone);
    sit_close(&a);
    sit_release(&b);
    sit_release(&a);
}

/* Only SIGKILL ends a keeper: a service manager's SIGTERM to all must not take the tree down
 * with it. When it is dead, the token still finds the tree. */
static void outlives_all_but_sigkill(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "setsid sleep 5011 & echo up; exec sleep 5012");
    sit_until_text(&s, &s.out, "up");
    pid_t keeper = (pid_t)sit_number(&s, "keeper.json", "pid");
    for (int sig = 1; sig < 32; sig++) {
        if (sig != SIGKILL && sig != SIGSTOP) {
            assert_int_equal(kill(keeper, sig), 0);
        }
    }
    uint64_t start = hf_proc_start(keeper);
    hf_keeper_signal(s.k, 0); /* a turn of its loop */
    uint64_t until = hf_now_ns() + 100 * HF_MS;
    while (hf_now_ns() < until) {
        sit_once(&s);
    }
    assert_true(hf_proc_alive(keeper, start));
    assert_int_equal(s.lost, 0);
    assert_int_equal(kill(keeper, SIGKILL), 0);
    sit_until(&s, &s.lost);
    assert_string_equal(s.order, "SL");
    assert_int_equal(sit_attach(&s, -1, NULL), HF_ENOTFOUND);
    struct hf_procs left = {0};
    assert_int_equal(hf_tree_by_token(s.token, &left, NULL), HF_OK);
    assert_true(left.len > 0);
    hf_procs_release(&left);
    assert_int_equal(hf_tree_kill_token(s.token, SIT_WAIT_MS, NULL), HF_OK);
    sit_release(&s);
}

/* A supervisor in a process of its own, killed outright. */
static void outlives_a_killed_supervisor(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sit own;
        sit_init(&own);
        assert_int_equal(hf_fs_remove_tree(own.dir, NULL), HF_OK);
        snprintf(own.dir, sizeof own.dir, "%s", s.dir);
        snprintf(own.token, sizeof own.token, "%s", s.token);
        own.out_w = s.out_w;
        own.err_w = s.err_w;
        sit_start_shell(&own, "echo up; trap 'echo end; exit 3' USR1; "
                              "while :; do sleep 0.02; done");
        while (true) {
            (void)uv_run(&own.loop.uv, UV_RUN_ONCE);
        }
    }
    sit_until_text(&s, &s.out, "up");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(sit_attach(&s, -1, NULL), HF_OK);
    sit_until(&s, &s.started);
    hf_keeper_signal(s.k, SIGUSR1);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(s.order, "SXG");
    assert_string_equal(hf_buf_str(&s.out), "up\nend\n");
    sit_release(&s);
}

int main(int argc, char **argv)
{
    if (hf_keeper_is_role(argc, argv)) {
        return hf_keeper_main(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_the_whole_tree),
        cmocka_unit_test(kills_the_deaf_at_the_end_of_grace),
        cmocka_unit_test(waits_for_the_grace),
        cmocka_unit_test(leaves_workers_alone),
        cmocka_unit_test(gives_orphans_little_time),
        cmocka_unit_test(signals_the_group),
        cmocka_unit_test(lets_descendants_linger),
        cmocka_unit_test(serves_the_next_supervisor),
        cmocka_unit_test(tells_an_end_that_nobody_saw),
        cmocka_unit_test(serves_one_supervisor_at_a_time),
        cmocka_unit_test(outlives_all_but_sigkill),
        cmocka_unit_test(outlives_a_killed_supervisor),
    };
    return cmocka_run_group_tests_name("keeper-end", tests, NULL, NULL);
}
