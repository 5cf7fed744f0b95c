/* SPDX-License-Identifier: Apache-2.0
 *
 * The C client in one process: outside Holdfast, folders, paths, fork, and what a step costs.
 */
#include "base/prelude.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "hooks/c/agree_step.h"
#include "hooks/c/holdfast.h"
#include "hooks/server.h"
#include "support_loop.h"
#include "support_ranks.h"

static void test_outside(void **state)
{
    struct track *b = *state;
    char cwd[200];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(b->dir), 0);
    struct holdfast *run = holdfast_init(NULL);
    assert_non_null(run);
    assert_false(holdfast_active(run));
    assert_int_equal(holdfast_resume(run, track_load, &b->box[0]), 0);
    assert_int_equal(holdfast_step(run, 3), HOLDFAST_GO_ON);
    const char *path = holdfast_path(run, 3);
    assert_non_null(path);
    char expect[200];
    snprintf(expect, sizeof expect, "%s/checkpoints/step-3", b->dir);
    assert_string_equal(path, expect);
    assert_true(hf_fs_exists(path));
    assert_int_equal(holdfast_saved(run, NULL), HOLDFAST_GO_ON);
    holdfast_done(run);
    holdfast_close(run);
    holdfast_close(NULL);
    assert_int_equal(holdfast_step(NULL, 1), HOLDFAST_GO_ON);
    assert_int_equal(holdfast_saved(NULL, NULL), HOLDFAST_GO_ON);
    assert_null(holdfast_path(NULL, 1));
    assert_int_equal(chdir(cwd), 0);
}

/* A client in the test's own process is welcomed while the loop runs between its calls. */
static struct holdfast *client_here(struct track *b)
{
    track_set_env(b);
    struct holdfast *run = holdfast_init(NULL); /* waits a second in vain: the loop stands */
    track_clear_env();
    assert_false(holdfast_active(run));
    uint64_t limit = hf_now_ns() + 10 * HF_SEC;
    for (int64_t step = 0; !holdfast_active(run) && hf_now_ns() < limit; step++) {
        uv_run(&b->loop.uv, UV_RUN_NOWAIT);
        assert_int_equal(holdfast_step(run, step), HOLDFAST_GO_ON);
    }
    assert_true(holdfast_active(run));
    return run;
}

static void test_late_welcome_and_folders(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    struct holdfast *run = client_here(b);
    char first[200];
    snprintf(first, sizeof first, "%s/4-0-7", b->save_dir);
    assert_string_equal(holdfast_path(run, 7), first);
    assert_string_equal(holdfast_path(run, 7), first); /* still the same save */
    holdfast_saved(run, NULL);
    assert_int_not_equal(strcmp(holdfast_path(run, 7), first), 0); /* another save */
    holdfast_saved(run, NULL);
    snprintf(first, sizeof first, "%s/4-0-9-1", b->save_dir);
    assert_string_equal(holdfast_path(run, 9), first);
    snprintf(first, sizeof first, "%s/4-0-8-2", b->save_dir); /* the loop went back */
    assert_string_equal(holdfast_path(run, 8), first);
    holdfast_close(run);
}

static void test_named_paths(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    struct holdfast *run = client_here(b);
    const char *const paths[] = {"relative \"x\"", "/abs/\xff\xfe", "/abs/\xff\xfe", NULL};
    holdfast_step(run, 3000000);
    holdfast_saved(run, paths);
    RUN_UNTIL(b, track_saved);
    assert_int_equal(b->save.step, 3000000);
    assert_int_equal(b->save_paths, 2); /* told twice, kept once */
    assert_int_equal(b->save_path[0], '/');
    assert_non_null(strstr(b->save_path, "/relative \"x\""));
    holdfast_close(run);
}

/* The child's copy is dead, and does not keep the parent's connection. */
static void test_fork(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    struct holdfast *run = client_here(b);
    holdfast_step(run, 5000000);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool calm = !holdfast_active(run) && holdfast_step(run, 6000000) == HOLDFAST_GO_ON &&
                    holdfast_saved(run, NULL) == HOLDFAST_GO_ON;
        holdfast_done(run);
        holdfast_close(run);
        _exit(calm ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct hf_hooks_status st;
    uv_run(&b->loop.uv, UV_RUN_NOWAIT);
    hf_hooks_get_status(b->hooks, &st);
    assert_int_equal(st.step, 5000000);
    assert_false(st.all_done);
    assert_int_equal(st.joined, 1);
    assert_true(holdfast_active(run));
    holdfast_close(run);
}

static void test_cost(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    struct holdfast *run = client_here(b);
    for (int i = 0; i < 10; i++) {
        holdfast_step(run, i);
    }
    uint64_t each_ps = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        uint64_t t0 = hf_now_ns();
        for (int64_t i = 0; i < 200000; i++) {
            holdfast_step(run, i);
        }
        uint64_t ps = (hf_now_ns() - t0) / 200;
        each_ps = ps < each_ps ? ps : each_ps;
    }
    print_message("  holdfast_step: %llu.%03llu ns\n", (unsigned long long)each_ps / 1000,
                  (unsigned long long)each_ps % 1000);
    assert_true(each_ps < 500000); /* ten times the goal: sanitizers and a busy machine */
    holdfast_close(run);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, track_setup, track_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_outside),     TEST(test_late_welcome_and_folders),
        TEST(test_named_paths), TEST(test_fork),
        TEST(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
