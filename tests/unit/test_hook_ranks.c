/* SPDX-License-Identifier: Apache-2.0
 *
 * Several ranks, the C client and the real server together: requests, leaving, crashes of ranks
 * and of the supervisor, restarts of ranks.
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

static bool done_told(void *user)
{
    return ((struct track *)user)->n_done > 0;
}

static bool all_gone(void *user)
{
    struct track *b = user;
    for (uint32_t i = 0; i < b->world; i++) {
        siginfo_t info = {0};
        if (b->pids[i] > 0 &&
            (waitid(P_PID, (id_t)b->pids[i], &info, WEXITED | WNOHANG | WNOWAIT) ||
             info.si_pid == 0)) {
            return false;
        }
    }
    return true;
}

static bool some_rank_saved(void *user)
{
    struct track *b = user;
    return b->box[0].n_saves + b->box[1].n_saves + b->box[2].n_saves > 0;
}

static bool moved_on(void *user)
{
    struct track *b = user;
    for (uint32_t i = 0; i < b->world; i++) {
        if (b->box[i].at < b->box[i].saved_at + 3) {
            return false;
        }
    }
    return true;
}

static uint64_t request(struct track *b, uint64_t ms, bool leave)
{
    struct hf_err err = {0};
    uint64_t id = 0;
    uint64_t deadline = ms ? hf_now_ns() + ms * HF_MS : 0;
    if (hf_hooks_request(b->hooks, deadline, leave, "test", &id, &err) != HF_OK) {
        fail_msg("%s", err.msg);
    }
    assert_true(id > 0);
    return id;
}

static void assert_saved_together(struct track *b, uint64_t id)
{
    if (b->ended != HF_REQUEST_SAVED) {
        fail_msg("%s", b->why);
    }
    assert_int_equal(b->ended_id, id);
    assert_int_equal(b->save.request, id);
    assert_int_equal(b->save.world, b->world);
    assert_int_equal(b->save.n_ranks, b->world);
    assert_int_equal(b->save_paths, 1);
    for (uint32_t i = 0; i < b->world; i++) {
        char file[300];
        assert_int_equal(b->box[i].saved_at, b->save.step);
        assert_string_equal(b->box[i].saved_path, b->save_path);
        snprintf(file, sizeof file, "%s/rank%u", b->save_path, i);
        assert_true(hf_fs_exists(file));
    }
}

static void test_periodic(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->box[0].step_us = 0; /* far ahead of the others, and fast */
    b->box[2].step_us = 3000;
    track_start_all(b);
    assert_true(b->box[0].active);
    for (uint32_t round = 0; round < 20; round++) {
        b->n_ended = b->n_saved = 0;
        b->box[1].step_us = round * 150;
        uint64_t id = request(b, 0, false);
        b->box[2].step_us = b->box[1].step_us = 0;
        RUN_UNTIL(b, track_ended);
        assert_saved_together(b, id);
        assert_int_equal(b->n_saved, 1);
        RUN_UNTIL(b, moved_on);
    }
}

static void test_leave_waits_for_all(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->box[1].save_ms = 300;
    track_start_all(b);
    uint64_t id = request(b, 60000, true);
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
    for (uint32_t i = 0; i < RANKS; i++) { /* saved, told, and still there */
        assert_int_equal(waitpid(b->pids[i], NULL, WNOHANG), 0);
        assert_int_equal(b->box[i].at, b->save.step);
    }
    hf_hooks_release(b->hooks, true);
    RUN_UNTIL(b, all_gone);
    for (uint32_t i = 0; i < RANKS; i++) {
        int status = track_wait(b, i);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), HOLDFAST_EXIT_LEAVE);
        assert_false(b->box[i].finished);
    }
}

static void test_withdrawn(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    track_start_all(b);
    request(b, 60000, true);
    RUN_UNTIL(b, track_ended);
    hf_hooks_release(b->hooks, false);
    RUN_UNTIL(b, moved_on);
    b->n_ended = 0;
    uint64_t id = request(b, 0, false); /* and a later request works */
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
}

static void test_hurry_makes_it_leave(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->box[2].save_ms = 200;
    track_start_all(b);
    request(b, 0, false);
    hf_hooks_hurry(b->hooks, hf_now_ns() + 60 * HF_SEC, true);
    RUN_UNTIL(b, track_ended);
    hf_hooks_release(b->hooks, true);
    RUN_UNTIL(b, all_gone);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(WEXITSTATUS(track_wait(b, i)), HOLDFAST_EXIT_LEAVE);
    }
}

static void test_rank_dies(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    track_start_all(b);
    b->box[1].stall_at = b->box[1].at + 2;
    request(b, 60000, false);
    kill(b->pids[1], SIGKILL);
    RUN_UNTIL(b, track_ended);
    assert_int_equal(b->ended, HF_REQUEST_CANCELED);
    assert_non_null(strstr(b->why, "rank 1 exited before"));
    assert_int_equal(b->n_saved, 0);
    track_wait(b, 1);
    uint64_t id;
    struct hf_err err;
    assert_int_equal(hf_hooks_request(b->hooks, 0, false, "", &id, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "rank 1 has exited"));
}

static bool all_stalled(void *user)
{
    struct track *b = user;
    return b->box[0].at == 49 && b->box[1].at == 49 && b->box[2].at == 49;
}

static void test_deadline(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    for (uint32_t i = 0; i < RANKS; i++) {
        b->box[i].stall_at = 50;
    }
    track_start_all(b);
    RUN_UNTIL(b, all_stalled);
    uint64_t id = request(b, 500, false);
    struct hf_hooks_status status;
    hf_hooks_get_status(b->hooks, &status);
    assert_int_equal(status.request, id);
    assert_int_equal(status.step, 49);
    b->box[0].go = b->box[2].go = true; /* rank 1 stays in its step */
    RUN_UNTIL(b, track_ended);
    assert_int_equal(b->ended, HF_REQUEST_EXPIRED);
    assert_non_null(strstr(b->why, "ranks had not saved step 50"));
    assert_int_equal(b->n_saved, 0);
    assert_int_equal(b->box[1].n_saves, 0);
}

static void test_done(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->box[0].steps = b->box[1].steps = b->box[2].steps = 30;
    track_start_all(b);
    RUN_UNTIL(b, done_told);
    RUN_UNTIL(b, all_gone);
    struct hf_hooks_status status;
    hf_hooks_get_status(b->hooks, &status);
    assert_true(status.all_done);
    assert_int_equal(status.step, 29);
    assert_int_equal(b->n_done, 1);
    assert_int_equal(b->n_resumed, RANKS);
    assert_int_equal(b->resumed_step, 0);
    uint64_t id;
    assert_int_equal(hf_hooks_request(b->hooks, 0, false, "", &id, NULL), HF_ENOTFOUND);
}

/* The word is raised and nobody decides: a supervisor that died in between. */
static void test_dead_supervisor_holds_nobody(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    char path[100];
    snprintf(path, sizeof path, "%s/c", b->att);
    FILE *f = fopen(path, "r+e");
    assert_non_null(f);
    struct hfw_head *head = mmap(NULL, HFW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
    fclose(f);
    assert_ptr_not_equal(head, MAP_FAILED);
    head->hold_limit_ms = 300;
    track_start_all(b);
    hf_hooks_close(b->hooks);
    b->hooks = NULL;
    int64_t before = b->box[0].at;
    hfw_store(&head->word, hfw_pack(HFW_RAISED, 99, 0));
    uint64_t limit = hf_now_ns() + 10 * HF_SEC;
    while (hfw_state(hfw_load(&head->word)) == HFW_RAISED && hf_now_ns() < limit) {
        track_nap_us(1000);
    }
    assert_int_equal(hfw_state(hfw_load(&head->word)), HFW_CANCEL);
    while (b->box[0].at < before + 50 && hf_now_ns() < limit) {
        track_nap_us(1000);
    }
    assert_true(b->box[0].at >= before + 50);
    assert_int_equal(b->box[0].n_saves, 0);
    munmap(head, HFW_SIZE);
}

static void reopen(struct track *b)
{
    hf_hooks_close(b->hooks);
    b->n_joined = 0;
    track_open(b, NULL, -1);
}

static bool all_joined(void *user)
{
    struct track *b = user;
    return b->n_joined == b->world;
}

static void test_supervisor_comes_back(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    track_start_all(b);
    reopen(b);
    RUN_UNTIL(b, all_joined);
    assert_int_equal(b->joined_life, 0); /* the same processes */
    uint64_t id = request(b, 0, false);
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
}

static void test_supervisor_lost_in_a_save(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->box[1].save_ms = 400;
    track_start_all(b);
    uint64_t id = request(b, 60000, true);
    RUN_UNTIL(b, some_rank_saved);
    hf_test_run_until(&b->loop, track_ended, b, 50); /* some have told the old one */
    reopen(b);
    struct hf_hooks_status status;
    hf_hooks_get_status(b->hooks, &status);
    assert_int_equal(status.request, id); /* decided: goes on */
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
    hf_hooks_release(b->hooks, true);
    RUN_UNTIL(b, all_gone);
}

static void test_gone_supervisor_lets_savers_go(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    track_start_all(b);
    request(b, 60000, true);
    RUN_UNTIL(b, track_ended);
    hf_hooks_close(b->hooks);
    b->hooks = NULL;
    RUN_UNTIL(b, moved_on);
}

static void test_new_life(void **state)
{
    struct track *b = *state;
    track_open(b, "/old/one", 5);
    track_start_all(b);
    assert_int_equal(b->box[0].start, 6);
    assert_string_equal(b->box[0].resumed_from, "/old/one");
    hf_hooks_set_newest(b->hooks, "/new/two", 41);
    for (uint32_t i = 0; i < RANKS; i++) {
        kill(b->pids[i], SIGKILL);
        track_wait(b, i);
        b->box[i].at = -1;
    }
    b->n_joined = 0;
    track_start(b, 1, 1);
    hf_test_run_until(&b->loop, all_joined, b, 300);
    hf_hooks_set_newest(b->hooks, "/newer/three", 80); /* too late for this life */
    track_start(b, 0, 0);
    track_start(b, 2, 2);
    RUN_UNTIL(b, track_all_running);
    assert_int_equal(b->joined_life, 1);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(b->box[i].start, 42);
        assert_string_equal(b->box[i].resumed_from, "/new/two");
    }
    uint64_t id = request(b, 0, false);
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
    assert_int_equal(b->save.life, 1);
    assert_non_null(strstr(b->save_path, "/4-1-"));
}

static void test_unreadable_checkpoint(void **state)
{
    struct track *b = *state;
    track_open(b, "/unreadable", 5);
    b->world = 1;
    track_start(b, 0, 0);
    RUN_UNTIL(b, all_gone);
    assert_int_equal(WEXITSTATUS(track_wait(b, 0)), 1);
    assert_int_equal(b->n_resumed, 0);
}

static bool second_runs(void *user)
{
    return ((struct track *)user)->box[1].at > 50;
}

/* A data loader that runs the script again, or a second start by mistake. */
static void test_second_process_of_a_rank(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    b->world = 1;
    track_start_all(b);
    track_start(b, 1, 0);      /* rank 0 again */
    RUN_UNTIL(b, second_runs); /* it trains, without us */
    assert_false(b->box[1].active);
    assert_int_equal(b->n_joined, 1);
    uint64_t id = request(b, 0, false);
    RUN_UNTIL(b, track_ended);
    assert_saved_together(b, id);
    assert_int_equal(b->box[1].n_saves, 0);
}

static void test_own_saves(void **state)
{
    struct track *b = *state;
    track_open(b, NULL, -1);
    for (uint32_t i = 0; i < RANKS; i++) {
        b->box[i].own_every = 40;
        b->box[i].steps = 41;
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        track_start(b, i, i);
    }
    RUN_UNTIL(b, done_told);
    assert_int_equal(b->n_saved, 2);
    assert_int_equal(b->save.request, 0);
    assert_int_equal(b->save.step, 40);
    assert_int_equal(b->n_ended, 0);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, track_setup, track_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_periodic),
        TEST(test_leave_waits_for_all),
        TEST(test_withdrawn),
        TEST(test_hurry_makes_it_leave),
        TEST(test_rank_dies),
        TEST(test_deadline),
        TEST(test_done),
        TEST(test_dead_supervisor_holds_nobody),
        TEST(test_supervisor_comes_back),
        TEST(test_supervisor_lost_in_a_save),
        TEST(test_gone_supervisor_lets_savers_go),
        TEST(test_new_life),
        TEST(test_unreadable_checkpoint),
        TEST(test_second_process_of_a_rank),
        TEST(test_own_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
