/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/watchdir and supervisor/watch_hints on real folders: what is complete is found by
 * hints alone, once; folders that come late, go and come again; a queue that overflows; waiting for
 * what is being written; and what is held is given up when space runs out.
 */
#include "base/prelude.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/watchdir.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_loop.h"
#include "tests/unit/support_watch.h"

#define WAIT_MS 20000

struct scene {
    struct hf_loop loop;
    struct hf_pool *pool;
    struct hf_watchdir *w;
    char *folder; /* folder/out is where things are made, folder/ckpt is watched */
    struct hf_strv dirs;
    struct hf_buf found; /* "NAME=STEP " for each */
    struct hf_strv held; /* of the last one */
    const char *expect;
    int dropped, looks, troubles;
    uint64_t quiet_ms;
};

static void on_found(void *user, struct hf_judge_out *out)
{
    struct scene *s = user;
    struct hf_err err;
    const char *name = strrchr(out->look.path, '/') + 1;
    expect_rc(hf_buf_addf(&s->found, &err, "%s=%lld ", name, (long long)out->look.step), HF_OK,
              &err);
    hf_strv_clear(&s->held);
    s->held = out->hold.paths;
    out->hold.paths = (struct hf_strv){0};
}

static void on_trouble(void *user, const char *what)
{
    struct scene *s = user;
    assert_true(what[0] != '\0');
    s->troubles++;
}

static void on_dropped(void *user, const char *folder, uint64_t bytes, uint64_t free_bytes)
{
    struct scene *s = user;
    assert_true(bytes > 0 && free_bytes < 3 * bytes);
    assert_int_equal(strncmp(s->held.items[0], folder, strlen(folder)), 0);
    s->dropped++;
}

static void on_looked(void *user)
{
    struct scene *s = user;
    s->looks++;
}

static uint32_t world(void *user)
{
    (void)user;
    return 0;
}

static void on_finished(void *user, const struct hf_strv *paths)
{
    (void)user;
    assert_true(paths->len > 0);
}

static const struct hf_watchdir_cb callbacks = {.found = on_found,
                                                .finished = on_finished,
                                                .trouble = on_trouble,
                                                .dropped = on_dropped,
                                                .looked = on_looked,
                                                .world = world};

static char *at(const struct scene *s, const char *name)
{
    return hf_asprintf("%s/%s", s->folder, name);
}

static void make_dir(const struct scene *s, const char *name)
{
    HF_CLEANUP(hf_freep) char *path = at(s, name);
    struct hf_err err;
    expect_rc(hf_fs_mkdirs(path, 0755, &err), HF_OK, &err);
}

static void move(const struct scene *s, const char *from, const char *to)
{
    HF_CLEANUP(hf_freep) char *a = at(s, from);
    HF_CLEANUP(hf_freep) char *b = at(s, to);
    next_tick(a);
    assert_int_equal(rename(a, b), 0);
}

/* A file that is made elsewhere and renamed to where it belongs. */
static void put(const struct scene *s, const char *to)
{
    watch_odd(s->folder, "out/made", "data");
    move(s, "out/made", to);
}

static void hf(const struct scene *s, const char *dir, int step, bool whole)
{
    HF_CLEANUP(hf_freep) char *path = at(s, dir);
    watch_hf(path, step, whole);
}

static int setup(void **state)
{
    struct scene *s = HF_NEW(struct scene);
    struct hf_err err;
    s->folder = temp_folder();
    s->quiet_ms = 600000;
    hf_buf_init(&s->found, 1 << 20);
    expect_rc(hf_loop_init(&s->loop, &err), HF_OK, &err);
    s->pool = hf_pool_new(&s->loop, "looks", 1, 4);
    make_dir(s, "out");
    make_dir(s, "attempt");
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hf_watchdir_stop(s->w);
    hf_pool_free(s->pool);
    hf_loop_drain(&s->loop);
    hf_test_loop_close(&s->loop);
    expect_rc(hf_fs_remove_tree(s->folder, &err), HF_OK, &err);
    hf_buf_release(&s->found);
    hf_strv_clear(&s->held);
    hf_strv_clear(&s->dirs);
    hf_free(s->folder);
    hf_free(s);
    return 0;
}

/* Watches folder/NAME for each, separated by blanks; what is in them now is old. */
static void start(struct scene *s, const char *names)
{
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *attempt = at(s, "attempt");
    while (*names != '\0') {
        size_t len = strcspn(names, " ");
        hf_strv_take(&s->dirs, hf_asprintf("%s/%.*s", s->folder, (int)len, names));
        names += len + strspn(names + len, " ");
    }
    expect_rc(hf_judge_baseline(attempt, &s->dirs, 0, &err), HF_OK, &err);
    struct hf_watchdir_cfg cfg = {.loop = &s->loop,
                                  .pool = s->pool,
                                  .dirs = &s->dirs,
                                  .attempt_dir = attempt,
                                  .key = "r",
                                  .attempt = 1,
                                  .token = "none",
                                  .quiet_ms = s->quiet_ms};
    expect_rc(hf_watchdir_start(&cfg, &callbacks, s, &s->w, &err), HF_OK, &err);
}

static bool found_all(void *user)
{
    struct scene *s = user;
    return strcmp(hf_buf_str(&s->found), s->expect) == 0;
}

static bool is_calm(void *user)
{
    struct scene *s = user;
    return hf_watchdir_calm(s->w);
}

static void until_calm(struct scene *s)
{
    if (!hf_test_run_until(&s->loop, is_calm, s, WAIT_MS)) {
        fail_msg("never calm; found '%s'", hf_buf_str(&s->found));
    }
}

/* By hints alone, with no scan asked for: these, in this order, and nothing else. */
static void expect_found(struct scene *s, const char *list)
{
    s->expect = list;
    if (!hf_test_run_until(&s->loop, found_all, s, WAIT_MS)) {
        fail_msg("found '%s' in place of '%s'", hf_buf_str(&s->found), list);
    }
    hf_watchdir_scan(s->w);
    until_calm(s);
    assert_string_equal(hf_buf_str(&s->found), list);
    hf_buf_reset(&s->found);
    assert_int_equal(s->troubles, 0);
}

static void renamed_into_place(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    put(s, "ckpt/step_1");
    start(s, "ckpt");
    put(s, "ckpt/step_10"); /* a file */
    expect_found(s, "step_10=10 ");
    make_dir(s, "out/made");
    watch_odd(s->folder, "out/made/weights", "data");
    move(s, "out/made", "ckpt/step_20"); /* a folder */
    expect_found(s, "step_20=20 ");
    watch_odd(s->folder, "ckpt/half", "data"); /* within the same folder */
    move(s, "ckpt/half", "ckpt/final");
    expect_found(s, "final=-1 ");
    put(s, "ckpt/step_10"); /* a newer one of the same name */
    expect_found(s, "step_10=10 ");
}

static void written_in_place(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    start(s, "ckpt");
    hf(s, "ckpt", 5, false);
    hf(s, "ckpt", 6, true);
    expect_found(s, "checkpoint-6=6 ");
    HF_CLEANUP(hf_freep) char *dir = at(s, "ckpt");
    watch_hf(dir, 7, false); /* by the event in the folder that was made */
    hf_watchdir_scan(s->w);
    until_calm(s);
    watch_hf_finish(dir, 7);
    expect_found(s, "checkpoint-7=7 ");
    hf_watchdir_unhold(s->w, &s->held);
    hf_watchdir_scan(s->w);
    until_calm(s);
    assert_false(hf_held_there(&s->held));
}

/* Nothing renames it and it has no sign: rest has to tell. */
static void at_rest(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    s->quiet_ms = 300;
    start(s, "ckpt");
    watch_odd(s->folder, "ckpt/state_3", "data");
    expect_found(s, "state_3=3 ");
    watch_odd(s->folder, "ckpt/state_3", "other");
    expect_found(s, "state_3=3 ");
}

static void no_checkpoints(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt/sub");
    start(s, "ckpt");
    watch_odd(s->folder, "ckpt/step_5", "data"); /* may be half done */
    make_dir(s, "ckpt/step_6");
    static const char *const scratch[] = {"ckpt/.hidden_1", "ckpt/step_1.tmp",
                                          "ckpt/a.holdfast-aside-1"};
    for (size_t i = 0; i < HF_COUNT(scratch); i++) {
        put(s, scratch[i]);
    }
    HF_CLEANUP(hf_freep) char *link = at(s, "out/link");
    assert_int_equal(symlink("step_5", link), 0);
    move(s, "out/link", "ckpt/latest");
    put(s, "ckpt/gone_8"); /* taken away before anybody looked */
    move(s, "ckpt/gone_8", "out/gone_8");
    put(s, "ckpt/step_9");
    expect_found(s, "step_9=9 ");
}

/* The folder comes later, also with the one above it. */
static void a_folder_that_comes_late(void **state)
{
    struct scene *s = *state;
    start(s, "ckpt a/b");
    hf_loop_drain(&s->loop);
    make_dir(s, "ckpt");
    put(s, "ckpt/step_900");
    put(s, "ckpt/step_1000");
    watch_odd(s->folder, "ckpt/step_2000", "data");
    expect_found(s, "step_1000=1000 ");
    put(s, "ckpt/step_1100");
    expect_found(s, "step_1100=1100 ");
    make_dir(s, "a/b");
    put(s, "a/b/step_5");
    expect_found(s, "step_5=5 "); /* by the re-scan */
    put(s, "a/b/step_6");
    expect_found(s, "step_6=6 ");
}

/* A whole folder of checkpoints is renamed to where one is waited for. */
static void a_folder_moved_into_place(void **state)
{
    struct scene *s = *state;
    start(s, "ckpt");
    make_dir(s, "out/new");
    put(s, "out/new/step_1");
    watch_odd(s->folder, "out/new/step_2", "data");
    move(s, "out/new", "ckpt");
    expect_found(s, "step_1=1 ");
    put(s, "ckpt/step_3");
    expect_found(s, "step_3=3 ");
}

static void a_folder_that_goes_and_comes(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    make_dir(s, "ckpt");
    put(s, "ckpt/step_1");
    start(s, "ckpt");
    put(s, "ckpt/step_2");
    expect_found(s, "step_2=2 ");
    HF_CLEANUP(hf_freep) char *path = at(s, "ckpt");
    expect_rc(hf_fs_remove_tree(path, &err), HF_OK, &err);
    hf_loop_drain(&s->loop);
    make_dir(s, "ckpt");
    put(s, "ckpt/step_3");
    expect_found(s, "step_3=3 ");
    /* Renamed away: what happens in the old one is no longer ours. */
    move(s, "ckpt", "out/old");
    hf_loop_drain(&s->loop);
    put(s, "out/old/step_4");
    make_dir(s, "ckpt");
    put(s, "ckpt/step_5");
    expect_found(s, "step_5=5 ");
}

static void paths_are_made_absolute(void **state)
{
    (void)state;
    struct hf_strv dirs = {0};
    struct hf_strv got = {0};
    hf_strv_add(&dirs, "./ckpt//");
    hf_strv_add(&dirs, "/out/of/it");
    hf_strv_add(&dirs, "ckpt");
    hf_watchdir_paths("/its", &dirs, &got);
    assert_int_equal(got.len, 2);
    assert_string_equal(got.items[0], "/its/ckpt");
    assert_string_equal(got.items[1], "/out/of/it");
    hf_strv_clear(&dirs);
    hf_strv_clear(&got);
}

static void several_folders(void **state)
{
    struct scene *s = *state;
    make_dir(s, "a");
    start(s, "a b c");
    put(s, "a/step_1");
    expect_found(s, "step_1=1 ");
    make_dir(s, "c");
    put(s, "c/step_2");
    expect_found(s, "step_2=2 ");
    make_dir(s, "b");
    put(s, "b/step_3");
    expect_found(s, "step_3=3 ");
}

/* At a notice: what is just being written is waited for, and no more than that. */
static void waiting_for_the_last_one(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    start(s, "ckpt");
    hf_watchdir_final(s->w);
    until_calm(s); /* nothing is being written */
    HF_CLEANUP(hf_freep) char *dir = at(s, "ckpt");
    hf(s, "ckpt", 1, true);
    hf(s, "ckpt", 2, false);
    hf_watchdir_final(s->w);
    int looks = s->looks;
    while (s->looks < looks + 2) {
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    }
    assert_string_equal(hf_buf_str(&s->found), "checkpoint-1=1 ");
    assert_false(hf_watchdir_calm(s->w));
    watch_hf_finish(dir, 2);
    until_calm(s);
    assert_string_equal(hf_buf_str(&s->found), "checkpoint-1=1 checkpoint-2=2 ");
    hf(s, "ckpt", 3, false);
    hf_watchdir_scan(s->w);
    until_calm(s); /* it began too late to be waited for */
    assert_string_equal(hf_buf_str(&s->found), "checkpoint-1=1 checkpoint-2=2 ");
    hf_watchdir_ended(s->w, false);
    until_calm(s); /* nobody will finish it any more */
    assert_string_equal(hf_buf_str(&s->found), "checkpoint-1=1 checkpoint-2=2 ");
}

static bool was_dropped(void *user)
{
    struct scene *s = user;
    return s->dropped > 0;
}

/* N1: the training program needs the space: the held one is pruned by it, and given up by us. */
static void n1_space_runs_out(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    HF_CLEANUP(hf_freep) char *dir = at(s, "ckpt");
    if (mount("tmpfs", dir, "tmpfs", 0, "size=8m") != 0) {
        print_message("skip: needs root, to mount a filesystem\n");
        skip();
    }
    start(s, "ckpt");
    hf(s, "ckpt", 1, false);
    HF_CLEANUP(hf_freep) char *big = at(s, "ckpt/checkpoint-1/extra.bin");
    put_noise(big, 2 << 20, 1);
    watch_hf_finish(dir, 1);
    s->expect = "checkpoint-1=1 ";
    assert_true(hf_test_run_until(&s->loop, found_all, s, WAIT_MS));
    assert_true(hf_held_there(&s->held));
    assert_int_equal(strncmp(s->held.items[0], dir, strlen(dir)), 0);
    HF_CLEANUP(hf_freep) char *fill = at(s, "ckpt/.fill");
    put_noise(fill, 4 << 20, 2); /* 2 of 8 MiB are left, 2.2 are wanted */
    assert_true(hf_test_run_until(&s->loop, was_dropped, s, WAIT_MS));
    assert_false(hf_held_there(&s->held));
    assert_int_equal(s->dropped, 1);
    hf_watchdir_stop(s->w);
    s->w = NULL;
    hf_pool_free(s->pool);
    s->pool = NULL;
    hf_loop_drain(&s->loop);
    assert_int_equal(umount(dir), 0);
}

/* What the kernel holds for a watcher that does not read, from /proc. */
static long queue_max(void)
{
    FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    char text[32] = "";
    if (f == NULL || fgets(text, sizeof(text), f) == NULL) {
        fail_msg("the length of the kernel's queue cannot be read");
    }
    (void)fclose(f);
    return strtol(text, NULL, 10);
}

/* More events than the kernel keeps, then two checkpoints whose events are lost. */
static void an_overflow_loses_no_checkpoint(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    put(s, "ckpt/step_1");
    start(s, "ckpt");
    HF_CLEANUP(hf_freep) char *out = at(s, "out/x");
    HF_CLEANUP(hf_freep) char *first = at(s, "ckpt/x1");
    HF_CLEANUP(hf_freep) char *second = at(s, "ckpt/x2");
    const char *const in[2] = {first, second};
    watch_odd(s->folder, "out/x", "data");
    long n = queue_max() + 10;
    assert_true(n < 2000000);
    for (long i = 0; i < n; i++) { /* equal neighbours would become one event */
        assert_int_equal(rename(out, in[i % 2]), 0);
        assert_int_equal(rename(in[i % 2], out), 0);
    }
    put(s, "ckpt/step_900");
    put(s, "ckpt/step_1000");
    expect_found(s, "step_1000=1000 ");
    put(s, "ckpt/step_1001"); /* and all goes on as before */
    expect_found(s, "step_1001=1001 ");
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(renamed_into_place),
        CASE(written_in_place),
        CASE(at_rest),
        CASE(no_checkpoints),
        CASE(a_folder_that_comes_late),
        CASE(a_folder_moved_into_place),
        CASE(a_folder_that_goes_and_comes),
        cmocka_unit_test(paths_are_made_absolute),
        CASE(several_folders),
        CASE(waiting_for_the_last_one),
        CASE(n1_space_runs_out),
        CASE(an_overflow_loses_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
