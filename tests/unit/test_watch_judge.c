/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/watch_judge and supervisor/known: what is ready and what is newest, as tables; then
 * looks at real folders: each state of a checkpoint is taken once, the newest only, and what was
 * there before, what is pruned and what is added to an old one is not taken.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/known.h"
#include "supervisor/watch_judge.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_watch.h"

static void ready(void **state)
{
    (void)state;
    const enum hf_writers none = HF_WRITERS_NONE;
    const enum hf_writers some = HF_WRITERS_SOME;
    const enum hf_writers blind = HF_WRITERS_UNKNOWN;
    const struct {
        const char *what;
        struct hf_facts f; /* state, renamed, still, quiet, writers, ended, clean */
        enum hf_ready ready;
    } rows[] = {
        {"whole", {HF_LAYOUT_WHOLE, 0, 0, 5000, none, 0, 0}, HF_READY},
        {"whole, held open", {HF_LAYOUT_WHOLE, 0, 4999, 5000, some, 0, 0}, HF_NOT_YET},
        {"whole, open for long", {HF_LAYOUT_WHOLE, 0, 5000, 5000, some, 0, 0}, HF_READY},
        {"whole, nobody sees", {HF_LAYOUT_WHOLE, 0, 0, 5000, blind, 0, 0}, HF_READY},
        {"whole at the end", {HF_LAYOUT_WHOLE, 0, 0, 5000, some, 1, 0}, HF_READY},
        {"partial", {HF_LAYOUT_PARTIAL, 1, 9000, 5000, none, 1, 1}, HF_NEVER},
        {"foreign", {HF_LAYOUT_FOREIGN, 1, 9000, 5000, none, 1, 1}, HF_NEVER},
        {"renamed", {HF_LAYOUT_UNSURE, 1, 0, 5000, none, 0, 0}, HF_READY},
        {"fresh", {HF_LAYOUT_UNSURE, 0, 0, 5000, none, 0, 0}, HF_NOT_YET},
        {"not at rest", {HF_LAYOUT_UNSURE, 0, 4999, 5000, none, 0, 0}, HF_NOT_YET},
        {"at rest", {HF_LAYOUT_UNSURE, 0, 5000, 5000, none, 0, 0}, HF_READY},
        {"at rest, open", {HF_LAYOUT_UNSURE, 0, 99999, 5000, some, 0, 0}, HF_NOT_YET},
        {"at rest, blind", {HF_LAYOUT_UNSURE, 0, 19999, 5000, blind, 0, 0}, HF_NOT_YET},
        {"long at rest, blind", {HF_LAYOUT_UNSURE, 0, 20000, 5000, blind, 0, 0}, HF_READY},
        {"at rest before the end", {HF_LAYOUT_UNSURE, 0, 5000, 5000, none, 1, 0}, HF_READY},
        {"open at the end", {HF_LAYOUT_UNSURE, 0, 5000, 5000, some, 1, 0}, HF_NEVER},
        {"cut off by the end", {HF_LAYOUT_UNSURE, 0, 4999, 5000, none, 1, 0}, HF_NEVER},
        {"closed by a clean end", {HF_LAYOUT_UNSURE, 0, 0, 5000, none, 1, 1}, HF_READY},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        if (hf_judge_ready(&rows[i].f) != rows[i].ready) {
            fail_msg("%s: %d", rows[i].what, hf_judge_ready(&rows[i].f));
        }
    }
}

static void newest(void **state)
{
    (void)state;
    enum { PLAIN = HF_KIND_PLAIN, ODD = HF_KIND_UNKNOWN, BEST = HF_KIND_BEST };
    static const struct {
        const char *what;
        struct hf_cand c[5]; /* step, time, kind */
        size_t n, newest;
    } rows[] = {
        {"one", {{-1, 0, PLAIN}}, 1, 0},
        {"D1: by number", {{9, 5, 0}, {10, 4, 0}, {900000, 3, 0}, {100000, 2, 0}}, 4, 2},
        {"D1: without one by time", {{900000, 3, 0}, {-1, 9, 0}}, 2, 1},
        {"D1: an older handpicked one", {{900000, 3, 0}, {-1, 2, 0}, {9, 9, 0}}, 3, 0},
        {"by time alone", {{-1, 3, 0}, {-1, 9, 0}, {-1, 5, 0}}, 3, 1},
        {"the same step", {{7, 3, 0}, {7, 4, 0}}, 2, 1},
        {"the best is no newer one", {{7, 3, PLAIN}, {8, 4, BEST}, {-1, 9, BEST}}, 3, 0},
        {"the best alone", {{7, 3, BEST}, {8, 4, BEST}}, 2, 1},
        {"a known layout first", {{7, 3, PLAIN}, {99, 9, ODD}, {98, 9, BEST}}, 3, 0},
        {"an unknown one before the best", {{7, 3, ODD}, {99, 9, BEST}}, 2, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        size_t got = hf_judge_newest(rows[i].c, rows[i].n);
        if (got != rows[i].newest) {
            fail_msg("%s: %zu", rows[i].what, got);
        }
    }
}

static void best(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "best", "best.pt", "model_best.pth.tar", "checkpoint-best", "Best-v1.ckpt", "3best4"};
    static const char *const no[] = {"last.pt", "bestow", "thebest", "checkpoint-9", ""};
    for (size_t i = 0; i < HF_COUNT(yes); i++) {
        assert_true(hf_is_best(yes[i]));
    }
    for (size_t i = 0; i < HF_COUNT(no); i++) {
        assert_false(hf_is_best(no[i]));
    }
}

/* ---- looks ---- */

struct scene {
    char *folder, *dir, *attempt;
    struct hf_strv dirs;
    struct hf_judge *judge;
    struct hf_judge_in in;
    struct hf_judge_out out;
};

static int setup(void **state)
{
    struct scene *s = HF_NEW(struct scene);
    struct hf_err err;
    s->folder = temp_folder();
    s->dir = hf_asprintf("%s/out", s->folder);
    s->attempt = hf_asprintf("%s/1", s->folder);
    expect_rc(hf_fs_mkdirs(s->dir, 0755, &err), HF_OK, &err);
    expect_rc(hf_fs_mkdirs(s->attempt, 0755, &err), HF_OK, &err);
    hf_strv_add(&s->dirs, s->dir);
    s->judge = hf_judge_new(s->attempt);
    s->in = (struct hf_judge_in){
        .dirs = &s->dirs, .key = "r", .attempt = 1, .token = "none", .quiet_ms = 60000};
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hf_judge_out_release(&s->out);
    hf_strv_clear(&s->in.renamed);
    hf_judge_free(s->judge);
    hf_strv_clear(&s->dirs);
    expect_rc(hf_fs_remove_tree(s->folder, &err), HF_OK, &err);
    hf_free(s->folder);
    hf_free(s->dir);
    hf_free(s->attempt);
    hf_free(s);
    return 0;
}

/* The name of what is taken; "" for nothing. */
static const char *look(struct scene *s)
{
    hf_judge_out_release(&s->out);
    hf_judge_look(s->judge, &s->in, &s->out);
    hf_strv_clear(&s->in.renamed);
    s->in.once_more = false;
    assert_string_equal(s->out.trouble, "");
    return s->out.any ? strrchr(s->out.look.path, '/') + 1 : "";
}

static void renamed(struct scene *s, const char *name)
{
    hf_strv_take(&s->in.renamed, hf_asprintf("%s/%s", s->dir, name));
}

static void baseline(struct scene *s)
{
    struct hf_err err;
    expect_rc(hf_judge_baseline(s->attempt, &s->dirs, 0, &err), HF_OK, &err);
}

/* As a supervisor that took the attempt over would begin. */
static void successor(struct scene *s)
{
    hf_judge_free(s->judge);
    s->judge = hf_judge_new(s->attempt);
}

static void each_complete_one_once(void **state)
{
    struct scene *s = *state;
    watch_hf(s->dir, 5, true);
    baseline(s);
    assert_string_equal(look(s), ""); /* it was there before */
    watch_hf(s->dir, 9, false);
    assert_string_equal(look(s), "");
    assert_true(s->out.making && s->out.again_ms > 0);
    watch_hf_finish(s->dir, 9);
    assert_string_equal(look(s), "checkpoint-9");
    assert_int_equal(s->out.look.step, 9);
    assert_int_equal(s->out.look.state, HF_LAYOUT_WHOLE);
    assert_true(s->out.hold.folder != NULL && hf_held_there(&s->out.hold.paths));
    assert_true(hf_strv_has(&s->out.roots, s->out.look.path));
    assert_string_equal(look(s), "");
    assert_false(s->out.making);
    s->in.once_more = true; /* it could not be shipped */
    assert_string_equal(look(s), "checkpoint-9");
}

static void the_newest_of_several(void **state)
{
    struct scene *s = *state;
    baseline(s);
    watch_hf(s->dir, 10, true);
    watch_hf(s->dir, 900, true);
    watch_hf(s->dir, 1000, true);
    watch_hf(s->dir, 20, false);
    watch_hf(s->dir, 2000, false);
    assert_string_equal(look(s), "checkpoint-1000");
    watch_hf_finish(s->dir, 20); /* too late: a newer one was taken */
    assert_string_equal(look(s), "");
    watch_hf_finish(s->dir, 2000);
    assert_string_equal(look(s), "checkpoint-2000");
}

static void what_is_pruned_or_added_is_not_new(void **state)
{
    struct scene *s = *state;
    baseline(s);
    watch_hf(s->dir, 1, true);
    assert_string_equal(look(s), "checkpoint-1");
    watch_hf(s->dir, 2, true);
    assert_string_equal(look(s), "checkpoint-2");
    HF_CLEANUP(hf_freep) char *pruned = hf_asprintf("%s/checkpoint-2/optimizer.pt", s->dir);
    assert_int_equal(unlink(pruned), 0);
    watch_odd(s->dir, "checkpoint-1/eval.json", "{}");
    assert_string_equal(look(s), "");
    watch_hf(s->dir, 3, true);
    assert_string_equal(look(s), "checkpoint-3");
    /* A program that began anew writes all of an earlier step again. */
    watch_hf(s->dir, 2, true);
    assert_string_equal(look(s), "checkpoint-2");
}

static void one_without_a_sign(void **state)
{
    struct scene *s = *state;
    baseline(s);
    watch_odd(s->dir, "state_7", "x");
    assert_string_equal(look(s), "");
    assert_true(s->out.making && s->out.again_ms > 50000);
    renamed(s, "state_7");
    assert_string_equal(look(s), "state_7");
    watch_odd(s->dir, "state_7", "xy"); /* in place: no longer as it was renamed */
    assert_string_equal(look(s), "");
    s->in.quiet_ms = 0;
    assert_string_equal(look(s), "state_7");
    s->in.quiet_ms = 60000;
    /* Cut off by the end of the program, or closed by it. */
    watch_odd(s->dir, "state_8", "x");
    assert_string_equal(look(s), "");
    s->in.ended = true;
    s->in.ended_ns = hf_now_ns();
    assert_string_equal(look(s), "");
    assert_false(s->out.making);
    s->in.clean = true;
    assert_string_equal(look(s), "state_8");
}

/* A file of no known layout beside checkpoints, and a copy of the best. */
static void what_stands_behind(void **state)
{
    struct scene *s = *state;
    baseline(s);
    watch_hf(s->dir, 3, true);
    assert_string_equal(look(s), "checkpoint-3");
    watch_odd(s->dir, "vocabulary", "x");
    renamed(s, "vocabulary");
    assert_string_equal(look(s), "");
    HF_CLEANUP(hf_freep) char *last = hf_asprintf("%s/checkpoint-3", s->dir);
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(last, &err), HF_OK, &err);
    watch_odd(s->dir, "vocabulary", "xy");
    renamed(s, "vocabulary");
    assert_string_equal(look(s), "vocabulary"); /* there is nothing better any more */
}

/* A process of the tree that opens the file for writing, says so, and ends when told. */
static pid_t writer(const char *path, int to_it, int from_it)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char token[] = "HOLDFAST_TOKEN=0123456789abcdef";
        char *env[] = {token, NULL};
        (void)dup2(to_it, 0);
        (void)dup2(from_it, 1);
        (void)execle("/bin/sh", "sh", "-c", "exec 3>>\"$1\"; echo open; read x", "sh", path,
                     (char *)NULL, env);
        _exit(127);
    }
    return pid;
}

static void a_writer_is_waited_for(void **state)
{
    struct scene *s = *state;
    int to_it[2];
    int from_it[2];
    char said[8];
    baseline(s);
    s->in.token = "0123456789abcdef";
    s->in.quiet_ms = 0;
    watch_odd(s->dir, "state_7", "x");
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/state_7", s->dir);
    assert_int_equal(pipe2(to_it, O_CLOEXEC) + pipe2(from_it, O_CLOEXEC), 0);
    pid_t pid = writer(path, to_it[0], from_it[1]);
    assert_int_equal(read(from_it[0], said, sizeof(said)), 5);
    assert_string_equal(look(s), "");
    s->in.token = "00000000000000000000"; /* of another tree */
    assert_string_equal(look(s), "state_7");
    s->in.token = "0123456789abcdef";
    watch_odd(s->dir, "state_7", "xy");
    assert_string_equal(look(s), "");
    assert_int_equal(write(to_it[1], "\n", 1), 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(look(s), "state_7");
    for (int i = 0; i < 2; i++) {
        close(to_it[i]);
        close(from_it[i]);
    }
}

/* A supervisor was killed: its successor knows what was old, and takes the last one once more. */
static void what_a_successor_knows(void **state)
{
    struct scene *s = *state;
    watch_hf(s->dir, 1, true);
    baseline(s);
    watch_hf(s->dir, 2, true);
    assert_string_equal(look(s), "checkpoint-2");
    watch_hf(s->dir, 3, true);
    assert_string_equal(look(s), "checkpoint-3");
    successor(s);
    assert_string_equal(look(s), "checkpoint-3");
    assert_string_equal(look(s), "");
    successor(s);
    watch_hf(s->dir, 4, true);
    assert_string_equal(look(s), "checkpoint-4");
    successor(s);
    watch_odd(s->attempt, "watched.json", "{\"format\":1,\"kno"); /* torn: all is new */
    assert_string_equal(look(s), "checkpoint-4");
    assert_string_equal(look(s), "");
}

static void lost_hints(void **state)
{
    struct scene *s = *state;
    baseline(s);
    watch_odd(s->dir, "draft", "x");
    HF_CLEANUP(hf_freep) char *from = hf_asprintf("%s/draft", s->dir);
    HF_CLEANUP(hf_freep) char *to = hf_asprintf("%s/state_3", s->dir);
    next_tick(from);
    assert_int_equal(rename(from, to), 0);
    watch_odd(s->dir, "state_4", "x");
    s->in.hints_lost = true;
    assert_string_equal(look(s), "state_3");
}

static void folders_that_are_not_there(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hf_strv_add(&s->dirs, "/nonexistent/folder");
    baseline(s);
    watch_hf(s->dir, 2, true);
    assert_string_equal(look(s), "checkpoint-2");
    expect_rc(hf_fs_remove_tree(s->dir, &err), HF_OK, &err);
    assert_string_equal(look(s), "");
    watch_odd(s->folder, "out", "now a file");
    hf_judge_look(s->judge, &s->in, &s->out);
    assert_false(s->out.any);
    assert_true(s->out.trouble[0] != '\0');
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready),
        cmocka_unit_test(newest),
        cmocka_unit_test(best),
        CASE(each_complete_one_once),
        CASE(the_newest_of_several),
        CASE(what_is_pruned_or_added_is_not_new),
        CASE(one_without_a_sign),
        CASE(what_stands_behind),
        CASE(a_writer_is_waited_for),
        CASE(what_a_successor_knows),
        CASE(lost_hints),
        CASE(folders_that_are_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
