/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes, for tests of the hooks. Conditions are polled with a deadline.
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
#include "support_loop.h"
#include "support_ranks.h"

static void on_joined(void *user, uint32_t rank, uint32_t world, uint32_t life, const char *fw)
{
    struct track *b = user;
    assert_true(rank < world);
    assert_string_equal(fw, "c");
    b->n_joined++;
    b->joined_life = life;
}

static void on_saved(void *user, const struct hf_hook_save *save)
{
    struct track *b = user;
    b->n_saved++;
    b->save = *save;
    b->save_paths = save->paths.len;
    snprintf(b->save_path, sizeof b->save_path, "%s", save->paths.items[0]);
    for (uint32_t i = 0; i < save->n_ranks; i++) {
        assert_int_equal(save->ranks[i], i);
    }
}

static void on_ended(void *user, uint64_t request, enum hf_request_end how, const char *why)
{
    struct track *b = user;
    b->n_ended++;
    b->ended_id = request;
    b->ended = how;
    snprintf(b->why, sizeof b->why, "%s", why);
}

static void on_resumed(void *user, uint32_t rank, int64_t step)
{
    struct track *b = user;
    (void)rank;
    b->n_resumed++;
    b->resumed_step = step;
}

static void on_done(void *user)
{
    ((struct track *)user)->n_done++;
}

void track_open(struct track *b, const char *resume, int64_t step)
{
    struct hf_hooks_cfg cfg = {.dir = b->att,
                               .run = "r",
                               .attempt = 4,
                               .save_dir = b->save_dir,
                               .resume_path = resume,
                               .resume_step = step};
    struct hf_err err = {0};
    if (hf_hooks_open(&b->loop, &cfg, &b->cb, b, &b->hooks, &err) != HF_OK) {
        fail_msg("%s", err.msg);
    }
}

int track_setup(void **state)
{
    struct track *b = test_calloc(1, sizeof *b);
    snprintf(b->dir, sizeof b->dir, "/tmp/hfhXXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->att, sizeof b->att, "%s/a", b->dir);
    snprintf(b->save_dir, sizeof b->save_dir, "%s/saves", b->dir);
    b->box = mmap(NULL, RANKS * sizeof *b->box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    assert_ptr_not_equal(b->box, MAP_FAILED);
    for (uint32_t i = 0; i < RANKS; i++) {
        b->box[i] = (struct rank_box){.steps = 1000000, .step_us = 1000, .stall_at = -1};
        b->box[i].at = b->box[i].start = b->box[i].saved_at = -1;
    }
    assert_int_equal(hf_loop_init(&b->loop, NULL), HF_OK);
    b->cb = (struct hf_hooks_cb){.joined = on_joined,
                                 .saved = on_saved,
                                 .request_ended = on_ended,
                                 .resumed = on_resumed,
                                 .done = on_done};
    b->world = RANKS;
    *state = b;
    return 0;
}

int track_teardown(void **state)
{
    struct track *b = *state;
    for (uint32_t i = 0; i < RANKS; i++) {
        if (b->pids[i] > 0) {
            kill(b->pids[i], SIGKILL);
            waitpid(b->pids[i], NULL, 0);
        }
    }
    hf_hooks_close(b->hooks);
    hf_test_loop_close(&b->loop);
    assert_int_equal(hf_fs_remove_tree(b->dir, NULL), HF_OK);
    munmap(b->box, RANKS * sizeof *b->box);
    test_free(b);
    return 0;
}

void track_nap_us(uint32_t us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000L}, NULL);
}

int track_load(void *user, const char *path)
{
    struct rank_box *box = user;
    snprintf(box->resumed_from, sizeof box->resumed_from, "%s", path);
    return strstr(path, "unreadable") != NULL;
}

static void save_it(struct holdfast *run, struct rank_box *box, uint32_t rank, int64_t step)
{
    char file[300];
    const char *path = holdfast_path(run, step);
    snprintf(file, sizeof file, "%s/rank%u", path ? path : "/nowhere", rank);
    track_nap_us(box->save_ms * 1000);
    struct hf_span data = {&step, sizeof step};
    if (hf_fs_write(file, data, 0600, false, NULL) != HF_OK) {
        _exit(9);
    }
    snprintf(box->saved_path, sizeof box->saved_path, "%s", path);
    box->saved_at = step;
    box->n_saves++;
}

static int train(struct rank_box *box, uint32_t rank, uint32_t world)
{
    const struct holdfast_opts opts = {.size = sizeof opts, .rank = rank, .world = world};
    struct holdfast *run = holdfast_init(&opts);
    box->active = holdfast_active(run);
    box->start = holdfast_resume(run, track_load, box);
    if (box->start < 0) {
        return 1;
    }
    for (int64_t step = box->start; step < box->steps; step++) {
        track_nap_us(box->step_us);
        while (step == box->stall_at && !box->go) {
            track_nap_us(1000);
        }
        enum holdfast_verb verb = holdfast_step(run, step);
        box->at = step;
        if (verb == HOLDFAST_SAVE || (box->own_every && step % box->own_every == 0)) {
            save_it(run, box, rank, step);
            verb = holdfast_saved(run, NULL);
        }
        if (verb == HOLDFAST_LEAVE) {
            return HOLDFAST_EXIT_LEAVE;
        }
    }
    if (!box->no_done) {
        holdfast_done(run);
    }
    box->finished = true;
    holdfast_close(run);
    return 0;
}

void track_set_env(const struct track *b)
{
    struct hf_strv env = {0};
    hf_hooks_env(b->hooks, &env);
    for (size_t i = 0; i < env.len; i++) {
        char *eq = strchr(env.items[i], '=');
        *eq = '\0';
        setenv(env.items[i], eq + 1, 1);
    }
    assert_int_equal(env.len, 3);
    hf_strv_clear(&env);
}

void track_clear_env(void)
{
    unsetenv("HOLDFAST_CONTROL");
    unsetenv("HOLDFAST_SOCKET");
    unsetenv("HOLDFAST_SAVE_DIR");
}

void track_start(struct track *b, uint32_t box, uint32_t rank)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves nothing behind */
        if (getppid() != parent) {
            _exit(9);
        }
        track_set_env(b);
        _exit(train(&b->box[box], rank, b->world));
    }
    b->pids[box] = pid;
}

int track_wait(struct track *b, uint32_t rank)
{
    int status;
    assert_int_equal(waitpid(b->pids[rank], &status, 0), b->pids[rank]);
    b->pids[rank] = 0;
    return status;
}

bool track_all_running(void *user)
{
    struct track *b = user;
    for (uint32_t i = 0; i < b->world; i++) {
        if (b->box[i].at < b->box[i].start + 2) {
            return false;
        }
    }
    return b->n_joined >= b->world;
}

bool track_ended(void *user)
{
    return ((struct track *)user)->n_ended > 0;
}

bool track_saved(void *user)
{
    return ((struct track *)user)->n_saved > 0;
}

void track_start_all(struct track *b)
{
    for (uint32_t i = 0; i < b->world; i++) {
        track_start(b, i, i);
    }
    RUN_UNTIL(b, track_all_running);
}
