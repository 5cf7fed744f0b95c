/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's isolation where mounts are involved: overlays as root, each in a child so that its
 * namespace ends with it, and the journal on a folder that is a mount. Without the privilege the
 * program says so and passes; the journal is tested in test_isolate.c.
 */
#include "base/prelude.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "tests/unit/support_isolate.h"

/* ---- the overlay ----------------------------------------------------------------------- */

static void trial_child(struct place *p)
{
    struct hf_isolate *iso = NULL;
    struct hf_err err = {0};
    enum hf_rc rc =
        hf_isolate_begin_as(HF_ISOLATE_OVERLAY, &p->dirs, p->work, &iso, &p->notes, &err);
    if (rc != HF_OK) {
        print_message("skip: overlays cannot be used here: %s\n", err.msg);
        place_clean(p->work);
        _exit(77);
    }
    must_be_ok(hf_isolate_end(iso, &err), &err);
}

/* Before anything that would have to be freed. */
static void need_overlays(struct place *p)
{
    if (!place_in_child(p, trial_child)) {
        skip();
    }
}

static struct hf_isolate *begin_overlay(struct place *p)
{
    struct hf_isolate *iso = NULL;
    struct hf_err err = {0};
    enum hf_rc rc =
        hf_isolate_begin_as(HF_ISOLATE_OVERLAY, &p->dirs, p->work, &iso, &p->notes, &err);
    must_be_ok(rc, &err);
    return iso;
}

static void wreck(struct place *p, unsigned seed)
{
    tree_write("by-relative-path", 1); /* the working folder followed */
    HF_CLEANUP(hf_freep) char *relative = tree_at(p->user, "by-relative-path");
    assert_true(hf_fs_exists(relative));
    tree_attempt(p->user, seed);
    assert_true(tree_attempted(p->user));
}

static void overlay_child(struct place *p)
{
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *ck = tree_at(p->base, "ck/run");
    HF_CLEANUP(hf_freep) char *ck_top = tree_at(p->base, "ck");
    HF_CLEANUP(hf_freep) char *moved = tree_at(p->user, "moved");
    HF_CLEANUP(hf_freep) char *src = tree_at(p->user, "src");
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    hf_strv_add(&p->dirs, ck);
    struct hf_isolate *iso = begin_overlay(p);
    assert_int_equal(HF_ISOLATE_OVERLAY, hf_isolate_mode(iso));
    tree_same(p->user, before);
    for (unsigned seed = 1; seed < 20; seed++) {
        tree_ok(rename(src, moved));
        wreck(p, seed);
        tree_put(ck, "model.pt", "w", 1, 0600);
        must_be_ok(hf_isolate_new_machine(iso, &err), &err);
        tree_same(p->user, before);
        assert_int_equal(HF_OK, hf_fs_remove_tree("new", &err));
    }
    wreck(p, 99);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    tree_same(p->user, before);
    assert_false(hf_fs_exists(ck_top));
    place_clean(p->work);
}

static void test_overlay(void **state)
{
    struct place *p = *state;
    need_overlays(p);
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    place_in_child(p, overlay_child);
    tree_same(p->user, before);
}

/* `work` inside the folder, and a mount below it: both stay reachable. */
static void overlay_nested_child(struct place *p)
{
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *empty = tree_at(p->user, "src/empty");
    HF_CLEANUP(hf_freep) char *inner = tree_at(p->user, "src/empty/inner");
    HF_CLEANUP(hf_freep) char *store = tree_at(p->work, "store");
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", empty, "tmpfs", 0, NULL) != 0) {
        _exit(1);
    }
    tree_put(empty, "inner", "i", 1, 0600);
    struct hf_isolate *iso = begin_overlay(p);
    assert_true(place_noted(p, "src/empty"));
    assert_true(hf_fs_exists(inner));
    tree_put(p->work, "store", "s", 1, 0600);
    must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    assert_true(hf_fs_exists(store));
    assert_true(hf_fs_exists(inner));
    must_be_ok(hf_isolate_end(iso, &err), &err);
    assert_true(hf_fs_exists(store));
    assert_true(hf_fs_exists(inner));
    tree_ok(unlink(store));
}

static void test_overlay_work_inside(void **state)
{
    struct place *p = *state;
    need_overlays(p);
    hf_free(p->work);
    p->work = tree_at(p->user, ".state");
    must_be_ok(hf_fs_mkdirs(p->work, 0700, NULL), &(struct hf_err){0});
    HF_CLEANUP(hf_freep) char *src = tree_at(p->user, "src");
    HF_CLEANUP(hf_freep) char *before = tree_list(src);
    place_in_child(p, overlay_nested_child);
    tree_same(src, before);
}

static void overlay_dies_child(struct place *p)
{
    begin_overlay(p);
    tree_attempt(p->user, 1);
    raise(SIGKILL);
}

static void test_overlay_recovery(void **state)
{
    struct place *p = *state;
    need_overlays(p);
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    pid_t pid = fork();
    tree_ok(pid);
    if (pid == 0) {
        overlay_dies_child(p);
        _exit(1);
    }
    int status = 0;
    tree_ok(waitpid(pid, &status, 0));
    assert_true(WIFSIGNALED(status));
    tree_same(p->user, before);
    bool undone = false;
    struct hf_err err = {0};
    must_be_ok(hf_isolate_recover(p->work, &undone, &err), &err);
    assert_true(undone);
    tree_same(p->user, before);
    struct hf_strv names = {0};
    assert_int_equal(HF_OK, hf_iso_walk(p->work, tree_gather, &names, NULL));
    assert_int_equal(1, names.len); /* the lock */
    hf_strv_clear(&names);
}

/* In journal mode a folder that is a mount of its own gets its hidden place inside. */
static void journal_on_mount_child(struct place *p)
{
    struct hf_err err = {0};
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", p->user, "tmpfs", 0, NULL) != 0) {
        _exit(1);
    }
    tree_make(p->user);
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    tree_attempt(p->user, 12);
    must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    tree_attempt(p->user, 13);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    tree_same(p->user, before);
}

static void test_journal_on_mount(void **state)
{
    need_overlays(*state); /* who may mount those may mount this */
    place_in_child(*state, journal_on_mount_child);
}

int main(void)
{
    umask(022);
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_overlay),
        CASE(test_overlay_work_inside),
        CASE(test_overlay_recovery),
        CASE(test_journal_on_mount),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
