/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/watchdir on a real folder: what was renamed into place is found once, whatever was
 * written in place is not; folders that come late, go and come again; a queue that overflows.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/watchdir.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_loop.h"

#define WAIT_MS 20000

struct scene {
    struct hf_loop loop;
    struct hf_watchdir *w;
    char *folder;        /* folder/out is where things are made, folder/ckpt is watched */
    struct hf_buf found; /* "NAME=STEP " for each */
    const char *expect;
};

static void on_found(void *user, const char *path, int64_t step)
{
    struct scene *s = user;
    struct hf_err err;
    struct stat st;
    assert_int_equal(path[0], '/');
    assert_int_equal(lstat(path, &st), 0);
    const char *name = strrchr(path, '/') + 1;
    expect_rc(hf_buf_addf(&s->found, &err, "%s=%lld ", name, (long long)step), HF_OK, &err);
}

static const struct hf_watchdir_cb callbacks = {.found = on_found};

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

/* Writes the file in place: opened under its own name. */
static void write_in_place(const struct scene *s, const char *name)
{
    HF_CLEANUP(hf_freep) char *path = at(s, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs("data", f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Until the clock that filesystems take their times from is past the last change. */
static void next_tick(const char *path)
{
    struct stat st;
    struct timespec now;
    assert_int_equal(lstat(path, &st), 0);
    do {
        (void)poll(NULL, 0, 1);
        assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &now), 0);
    } while (now.tv_sec < st.st_mtim.tv_sec ||
             (now.tv_sec == st.st_mtim.tv_sec && now.tv_nsec <= st.st_mtim.tv_nsec));
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
    write_in_place(s, "out/made");
    move(s, "out/made", to);
}

static int setup(void **state)
{
    struct scene *s = HF_NEW(struct scene);
    struct hf_err err;
    s->folder = temp_folder();
    hf_buf_init(&s->found, 1 << 20);
    expect_rc(hf_loop_init(&s->loop, &err), HF_OK, &err);
    make_dir(s, "out");
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hf_watchdir_stop(s->w);
    hf_loop_drain(&s->loop);
    hf_test_loop_close(&s->loop);
    expect_rc(hf_fs_remove_tree(s->folder, &err), HF_OK, &err);
    hf_buf_release(&s->found);
    hf_free(s->folder);
    hf_free(s);
    return 0;
}

/* Watches folder/NAME for each, separated by blanks. */
static void start(struct scene *s, const char *names)
{
    struct hf_strv dirs = {.len = 0};
    struct hf_err err;
    while (*names != '\0') {
        size_t len = strcspn(names, " ");
        hf_strv_take(&dirs, hf_asprintf("%s/%.*s", s->folder, (int)len, names));
        names += len + strspn(names + len, " ");
    }
    expect_rc(hf_watchdir_start(&s->loop, &dirs, &callbacks, s, &s->w, &err), HF_OK, &err);
    hf_strv_clear(&dirs);
}

static bool found_all(void *user)
{
    struct scene *s = user;
    return strcmp(hf_buf_str(&s->found), s->expect) == 0;
}

/* By events alone, with no scan asked for: these, in this order, and nothing else. */
static void expect_found(struct scene *s, const char *list)
{
    s->expect = list;
    if (!hf_test_run_until(&s->loop, found_all, s, WAIT_MS)) {
        fail_msg("found '%s' in place of '%s'", hf_buf_str(&s->found), list);
    }
    hf_watchdir_scan(s->w);
    assert_string_equal(hf_buf_str(&s->found), list);
    hf_buf_reset(&s->found);
}

static void steps(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t step;
    } rows[] = {
        {"", -1},
        {"model", -1},
        {"step_0900", 900},
        {"checkpoint-500", 500},
        {"ckpt_10.pt", 10},
        {"epoch=3-step=1200.ckpt", 1200},
        {"7", 7},
        {"v2-final", 2},
        {"0", 0},
        {"step_9007199254740992", 9007199254740992},
        {"step_9007199254740993", -1},
        {"step_18446744073709551616", -1},
        {"step_99999999999999999999999999999", -1},
        {"99999999999999999999-then-5", 5},
        {"5-then-99999999999999999999", -1},
        {"step-\xd9\xa3", -1},
        {"model.safetensors", -1},
        {"2026-11-30", 30},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        int64_t step = hf_step_of_name(rows[i].name);
        if (step != rows[i].step) {
            fail_msg("'%s' gave %lld", rows[i].name, (long long)step);
        }
    }
}

static void renamed_into_place(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt");
    put(s, "ckpt/step_1");
    write_in_place(s, "ckpt/step_2");
    make_dir(s, "ckpt/step_3");
    start(s, "ckpt");
    put(s, "ckpt/step_10.pt"); /* a file */
    make_dir(s, "out/made");
    write_in_place(s, "out/made/weights");
    move(s, "out/made", "ckpt/step_20"); /* a folder */
    write_in_place(s, "ckpt/half");      /* within the same folder */
    move(s, "ckpt/half", "ckpt/final");
    put(s, "ckpt/step_10.pt"); /* a newer one of the same name */
    expect_found(s, "step_10.pt=10 step_20=20 final=-1 step_10.pt=10 ");
}

static void not_renamed_or_no_checkpoint(void **state)
{
    struct scene *s = *state;
    make_dir(s, "ckpt/sub");
    start(s, "ckpt");
    write_in_place(s, "ckpt/step_5"); /* may be half done */
    make_dir(s, "ckpt/step_6");
    static const char *const scratch[] = {
        "ckpt/.hidden_1",    "ckpt/step_1.tmp",         "ckpt/step_1.tmp-abc", "ckpt/x.incomplete",
        "ckpt/5-unfinished", "ckpt/a.holdfast-aside-1", "ckpt/sub/step_7", /* deeper */
    };
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

/* The folder comes later, also with the one above it; what was renamed into it meanwhile counts,
 * in the order of time and not of names. */
static void a_folder_that_comes_late(void **state)
{
    struct scene *s = *state;
    start(s, "ckpt a/b");
    hf_loop_drain(&s->loop);
    make_dir(s, "ckpt");
    put(s, "ckpt/step_900");
    put(s, "ckpt/step_1000");
    write_in_place(s, "ckpt/step_2000");
    expect_found(s, "step_900=900 step_1000=1000 ");
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
    write_in_place(s, "out/new/step_2");
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
    struct scene *s = *state;
    struct hf_err err;
    make_dir(s, "ckpt");
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(s->folder), 0);
    struct hf_strv dirs = {.len = 0};
    hf_strv_add(&dirs, "./ckpt//");
    expect_rc(hf_watchdir_start(&s->loop, &dirs, &callbacks, s, &s->w, &err), HF_OK, &err);
    assert_int_equal(fchdir(here), 0);
    close(here);
    hf_strv_clear(&dirs);
    put(s, "ckpt/step_3");
    expect_found(s, "step_3=3 ");
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
    put(s, "c/step_4");
    put(s, "a/step_5");
    hf_watchdir_scan(s->w);
    assert_non_null(strstr(hf_buf_str(&s->found), "step_3=3 "));
    assert_non_null(strstr(hf_buf_str(&s->found), "step_4=4 "));
    assert_non_null(strstr(hf_buf_str(&s->found), "step_5=5 "));
}

static void what_is_no_folder_is_refused(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    write_in_place(s, "file");
    struct hf_strv dirs = {.len = 0};
    hf_strv_take(&dirs, at(s, "out"));
    hf_strv_take(&dirs, at(s, "file"));
    expect_rc(hf_watchdir_start(&s->loop, &dirs, &callbacks, s, &s->w, &err), HF_EINVAL, &err);
    assert_non_null(strstr(err.msg, "/file"));
    assert_true(err.hint[0] != '\0');
    hf_strv_clear(&dirs);
    hf_watchdir_stop(NULL);
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
    put(s, "ckpt/step_2");
    HF_CLEANUP(hf_freep) char *out = at(s, "out/x");
    HF_CLEANUP(hf_freep) char *first = at(s, "ckpt/x1");
    HF_CLEANUP(hf_freep) char *second = at(s, "ckpt/x2");
    const char *const in[2] = {first, second};
    write_in_place(s, "out/x");
    long n = queue_max() + 10;
    assert_true(n < 2000000);
    for (long i = 0; i < n; i++) { /* equal neighbours would become one event */
        assert_int_equal(rename(out, in[i % 2]), 0);
        assert_int_equal(rename(in[i % 2], out), 0);
    }
    put(s, "ckpt/step_900");
    put(s, "ckpt/step_1000");
    hf_watchdir_scan(s->w);
    const char *all = hf_buf_str(&s->found);
    const char *older = strstr(all, "step_900=900 ");
    const char *newer = strstr(all, "step_1000=1000 ");
    assert_int_equal(strncmp(all, "step_2=2 ", 9), 0);
    assert_true(older != NULL && newer != NULL && older < newer);
    hf_buf_reset(&s->found);
    put(s, "ckpt/step_1001"); /* and all goes on as before */
    expect_found(s, "step_1001=1001 ");
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),
        CASE(renamed_into_place),
        CASE(not_renamed_or_no_checkpoint),
        CASE(a_folder_that_comes_late),
        CASE(a_folder_moved_into_place),
        CASE(a_folder_that_goes_and_comes),
        CASE(paths_are_made_absolute),
        CASE(several_folders),
        CASE(what_is_no_folder_is_refused),
        CASE(an_overflow_loses_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
