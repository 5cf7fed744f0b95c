/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/held on a real folder: what is held outlives pruning, is read in place of the original
 * and recorded as it, and never mixes two states.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <fcntl.h>
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
#include "checkpoint/restore.h"
#include "supervisor/held.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

struct scene {
    struct bench bench;
    char *dir; /* the watched one */
    struct hf_strv roots;
    struct hf_stamps stamps;
    struct hf_hold hold;
};

static char *at(const struct scene *s, const char *name)
{
    return hf_asprintf("%s/%s", s->dir, name);
}

static void make_dir(const char *path)
{
    struct hf_err err;
    expect_rc(hf_fs_mkdirs(path, 0755, &err), HF_OK, &err);
}

/* DIR/ckpt-7 with files, a folder and links, and DIR/latest. */
static int setup(void **state)
{
    struct scene *s = HF_NEW(struct scene);
    bench_open(&s->bench, NULL);
    s->dir = bench_path(&s->bench, "out");
    HF_CLEANUP(hf_freep) char *sub = at(s, "ckpt-7/sub");
    HF_CLEANUP(hf_freep) char *big = at(s, "ckpt-7/sub/weights");
    HF_CLEANUP(hf_freep) char *small = at(s, "ckpt-7/state.json");
    HF_CLEANUP(hf_freep) char *link = at(s, "ckpt-7/link");
    HF_CLEANUP(hf_freep) char *latest = at(s, "latest");
    make_dir(sub);
    assert_int_equal(chmod(sub, 0750), 0);
    put_noise(big, 100000, 7);
    put_text(small, "{\"step\":7}");
    assert_int_equal(chmod(small, 0640), 0);
    assert_int_equal(symlink("sub/weights", link), 0);
    put_text(latest, "ckpt-7");
    hf_strv_take(&s->roots, at(s, "ckpt-7"));
    hf_strv_take(&s->roots, at(s, "latest"));
    struct hf_err err;
    expect_rc(hf_stamps_take(&s->roots, &s->stamps, &err), HF_OK, &err);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    hf_hold_release(&s->hold);
    hf_stamps_release(&s->stamps);
    hf_strv_clear(&s->roots);
    hf_free(s->dir);
    bench_close(&s->bench);
    hf_free(s);
    return 0;
}

static struct hf_hold_in hold_in(const struct scene *s)
{
    return (struct hf_hold_in){
        .dir = s->dir, .key = "run", .attempt = 3, .inside = true, .roots = &s->roots};
}

static void hold(struct scene *s)
{
    struct hf_err err;
    struct hf_hold_in in = hold_in(s);
    expect_rc(hf_hold_take(&in, &s->stamps, &s->hold, &err), HF_OK, &err);
    assert_int_equal(s->hold.bytes, 100000 + 10 + 6);
    assert_int_equal(s->hold.paths.len, 2);
    assert_true(hf_held_there(&s->hold.paths));
}

static size_t entries(const char *dir)
{
    DIR *d = opendir(dir);
    size_t n = 0;
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

static struct hf_save_in save_from_hold(struct scene *s, const struct hf_claim *claim)
{
    return (struct hf_save_in){.run = &s->bench.run,
                               .claim = claim,
                               .number = 1,
                               .step = 7,
                               .reason = "own",
                               .strategy = "watch",
                               .roots = s->roots,
                               .sources = s->hold.paths,
                               .resume_path = s->roots.items[0],
                               .expect = &s->stamps};
}

static void it_is_shipped_after_it_was_pruned(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *want = tree_text(s->roots.items[0]);
    hold(s);
    HF_CLEANUP(hf_freep) char *beside = bench_path(&s->bench, ".holdfast-held");
    assert_int_equal(strncmp(s->hold.folder, beside, strlen(beside)), 0);
    expect_rc(hf_fs_remove_tree(s->dir, &err), HF_OK, &err);
    struct hf_claim claim = must_claim(&s->bench, 1);
    struct hf_save_in in = save_from_hold(s, &claim);
    struct hf_manifest m = {0};
    must_save(&in, &m);
    assert_string_equal(m.roots[0].path, s->roots.items[0]);
    assert_string_equal(m.roots[1].path, s->roots.items[1]);
    hf_held_drop(s->hold.folder);
    assert_false(hf_held_there(&s->hold.paths));
    assert_false(hf_fs_exists(beside));
    make_dir(s->dir);
    struct hf_restore_report report = {0};
    struct hf_call call = {0};
    expect_rc(hf_restore(&s->bench.run, &call, &m, &report, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *got = tree_text(s->roots.items[0]);
    assert_string_equal(got, want);
    hf_restore_report_release(&report);
    hf_manifest_release(&m);
    hf_claim_release(&claim);
}

/* A file is written over in place: a clone has the old state, a link must not be shipped. */
static void overwritten_in_place(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hold(s);
    HF_CLEANUP(hf_freep) char *big = at(s, "ckpt-7/sub/weights");
    int fd = open(big, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "another", 7, 5000), 7);
    assert_int_equal(futimens(fd, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}), 0);
    assert_int_equal(close(fd), 0);
    struct hf_claim claim = must_claim(&s->bench, 1);
    struct hf_save_in in = save_from_hold(s, &claim);
    struct hf_manifest m = {0};
    struct hf_call call = {0};
    enum hf_rc rc = hf_save(&in, &call, &m, &err);
    if (s->hold.cloned) {
        assert_int_equal(rc, HF_OK);
    } else {
        assert_int_equal(rc, HF_EAGAIN);
        assert_non_null(strstr(err.msg, "changed while read"));
        assert_non_null(strstr(err.msg, "/out/ckpt-7/sub/weights"));
    }
    hf_manifest_release(&m);
    hf_claim_release(&claim);
}

/* What is held was given up: the originals do if they are still the same. */
static void the_originals_do_as_well(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    hold(s);
    hf_held_drop(s->hold.folder);
    struct hf_claim claim = must_claim(&s->bench, 1);
    struct hf_save_in in = save_from_hold(s, &claim);
    struct hf_manifest m = {0};
    struct hf_call call = {0};
    expect_rc(hf_save(&in, &call, &m, &err), HF_ENOTFOUND, &err);
    in.sources = (struct hf_strv){0};
    must_save(&in, &m);
    hf_manifest_release(&m);
    hf_claim_release(&claim);
}

static void sources_must_fit_the_roots(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    struct hf_claim claim = must_claim(&s->bench, 1);
    struct hf_strv one = {.items = s->roots.items, .len = 1};
    struct hf_save_in in = save_from_hold(s, &claim);
    in.sources = one;
    struct hf_manifest m = {0};
    struct hf_call call = {0};
    expect_rc(hf_save(&in, &call, &m, &err), HF_EINVAL, &err);
    hf_claim_release(&claim);
}

static void what_changed_is_not_held(void **state)
{
    struct scene *s = *state;
    static const char *const names[] = {"ckpt-7/state.json", "ckpt-7/new", "latest"};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        HF_CLEANUP(hf_freep) char *path = at(s, names[i]);
        HF_CLEANUP(hf_freep) char *above = bench_path(&s->bench, ".holdfast-held");
        struct hf_err err;
        put_text(path, "another");
        struct hf_hold_in in = hold_in(s);
        expect_rc(hf_hold_take(&in, &s->stamps, &s->hold, &err), HF_EAGAIN, &err);
        assert_null(s->hold.folder);
        assert_false(hf_fs_exists(above));
        hf_stamps_release(&s->stamps);
        expect_rc(hf_stamps_take(&s->roots, &s->stamps, &err), HF_OK, &err);
    }
    HF_CLEANUP(hf_freep) char *gone = at(s, "latest");
    assert_int_equal(unlink(gone), 0);
    struct hf_err err;
    struct hf_hold_in in = hold_in(s);
    expect_rc(hf_hold_take(&in, &s->stamps, &s->hold, &err), HF_EAGAIN, &err);
}

static void only_our_own_is_cleaned(void **state)
{
    struct scene *s = *state;
    static const char *const names[] = {"run-3-9",   "run-3-8.gone", "run-4-1",
                                        "run-3-1-2", "run2-3-1",     "other"};
    HF_CLEANUP(hf_freep) char *held = bench_path(&s->bench, ".holdfast-held");
    HF_CLEANUP(hf_freep) char *inside = at(s, ".holdfast-held/run-3-5");
    hold(s);
    make_dir(inside);
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", held, names[i]);
        make_dir(path);
    }
    struct hf_strv dirs = {0};
    hf_strv_add(&dirs, s->dir);
    hf_held_clean(&dirs, "run", 3);
    assert_false(hf_held_there(&s->hold.paths));
    assert_false(hf_fs_exists(inside));
    assert_int_equal(entries(held), 2 + 4);
    hf_held_clean(&dirs, "run", 0);
    assert_int_equal(entries(held), 2 + 3);
    hf_strv_clear(&dirs);
}

/* The watched folder is a filesystem of its own: held inside, and not at all where that must not
 * be. */
static void a_folder_that_is_a_mount(void **state)
{
    struct scene *s = *state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *mount_point = bench_path(&s->bench, "mnt");
    make_dir(mount_point);
    if (mount("tmpfs", mount_point, "tmpfs", 0, "size=1m") != 0) {
        print_message("skip: needs root, to mount a filesystem\n");
        skip();
    }
    char *path = NULL;
    expect_rc(hf_beside(mount_point, ".holdfast-held", true, &path, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *inside = hf_asprintf("%s/.holdfast-held", mount_point);
    assert_string_equal(path, inside);
    hf_free(path);
    expect_rc(hf_beside(mount_point, ".holdfast-x", false, &path, &err), HF_ENOTSUP, &err);
    assert_true(hf_free_bytes(mount_point) <= 1 << 20);
    /* Roots on the one, held on the other: neither clone nor link. */
    struct hf_hold_in in = hold_in(s);
    in.dir = mount_point;
    expect_rc(hf_hold_take(&in, &s->stamps, &s->hold, &err), HF_ENOTSUP, &err);
    assert_null(s->hold.folder);
    assert_int_equal(umount(mount_point), 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(it_is_shipped_after_it_was_pruned), CASE(overwritten_in_place),
        CASE(the_originals_do_as_well),          CASE(sources_must_fit_the_roots),
        CASE(what_changed_is_not_held),          CASE(only_our_own_is_cleaned),
        CASE(a_folder_that_is_a_mount),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
