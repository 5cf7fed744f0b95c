/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/rundir: names from folders, registering and finding runs, several stores of one
 * name, the lock, and a state folder with rubbish in it.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/rundir.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

static char *folder; /* the state folder */

static int setup(void **state)
{
    (void)state;
    folder = temp_folder();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_free(folder);
    return 0;
}

static void must_open(struct hf_rundir *r, const char *name, const char *store)
{
    struct hf_err err;
    expect_rc(hf_rundir_open(r, folder, name, store, &err), HF_OK, &err);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s);
    size_t t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* A legal run name: [A-Za-z0-9][A-Za-z0-9._-]{0,63}. */
static bool is_name(const char *s)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return s[0] != '\0' && strchr("._-", s[0]) == NULL && strspn(s, ok) == strlen(s) &&
           strlen(s) <= 64;
}

static void names_of_folders(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *begin;
    } rows[] = {
        {"/home/a/gpt", "gpt-"},
        {"/home/a/my run (2)", "my-run--2--"},
        {"/home/a/..x", "x-"},
        {"/home/a/-_.", "run-"},
        {"/home/a/caf\xc3\xa9", "caf---"},
        {"/", "run-"},
        {"/home/a/v1.2_b", "v1.2_b-"},
        {"/a/0123456789012345678901234567890123456789tail",
         "0123456789012345678901234567890123456789-"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *name = hf_run_name_of_folder(rows[i].folder);
        HF_CLEANUP(hf_freep) char *again = hf_run_name_of_folder(rows[i].folder);
        size_t len = strlen(rows[i].begin);
        if (strncmp(name, rows[i].begin, len) != 0 || strlen(name) != len + 4 || !is_name(name)) {
            fail_msg("'%s' became '%s'", rows[i].folder, name);
        }
        assert_string_equal(name, again);
    }
    HF_CLEANUP(hf_freep) char *one = hf_run_name_of_folder("/home/a/gpt");
    HF_CLEANUP(hf_freep) char *other = hf_run_name_of_folder("/home/b/gpt");
    assert_string_not_equal(one, other);
}

static void open_registers(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_rundir r;
    must_open(&r, "job", NULL);
    assert_true(r.default_store);
    assert_true(ends_with(r.store, "/store"));
    assert_true(ends_with(r.dir, "/runs/job"));
    struct stat st;
    assert_int_equal(stat(r.dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    HF_CLEANUP(hf_freep) char *registry = hf_rundir_file(&r, "run.json");
    HF_CLEANUP(hf_freep) char *attempt = hf_rundir_attempt(&r, 12);
    assert_true(ends_with(registry, "/runs/job/run.json"));
    assert_true(ends_with(attempt, "/runs/job/12"));
    assert_true(hf_fs_exists(registry));
    struct hf_rundir found;
    expect_rc(hf_rundir_find(&found, folder, "job", NULL, &err), HF_OK, &err);
    assert_string_equal(found.dir, r.dir);
    assert_string_equal(found.store, r.store);
    assert_true(found.default_store);
    hf_rundir_release(&found);
    hf_rundir_release(&r);
    hf_rundir_release(&r);
    /* The default store by its own URI is the same run. */
    HF_CLEANUP(hf_freep) char *uri = hf_asprintf("file://%s/store", folder);
    must_open(&r, "job", uri);
    assert_true(r.default_store && ends_with(r.dir, "/runs/job"));
    hf_rundir_release(&r);
}

static void one_name_in_several_stores(void **state)
{
    (void)state;
    struct hf_err err;
    static const char *const stores[] = {NULL, "file:///mnt/a", "file:///mnt/b"};
    char *dirs[3];
    for (size_t i = 0; i < 3; i++) {
        struct hf_rundir r;
        must_open(&r, "job", stores[i]);
        dirs[i] = hf_strdup(r.dir);
        hf_rundir_release(&r);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(dirs[i], dirs[k]);
        }
    }
    assert_non_null(strstr(dirs[1], "/runs/job@"));
    struct hf_rundir r;
    expect_rc(hf_rundir_find(&r, folder, "job", NULL, &err), HF_EINVAL, &err);
    assert_non_null(strstr(err.msg, "3 runs"));
    assert_non_null(strstr(err.hint, "--store"));
    hf_rundir_release(&r);
    for (size_t i = 1; i < 3; i++) {
        expect_rc(hf_rundir_find(&r, folder, "job", stores[i], &err), HF_OK, &err);
        assert_string_equal(r.dir, dirs[i]);
        assert_string_equal(r.store, stores[i]);
        assert_false(r.default_store);
        hf_rundir_release(&r);
    }
    expect_rc(hf_rundir_find(&r, folder, "job", "file:///mnt/c", &err), HF_ENOTFOUND, &err);
    hf_rundir_release(&r);
    for (size_t i = 0; i < 3; i++) {
        hf_free(dirs[i]);
    }
}

static void not_found_helps(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_rundir r;
    expect_rc(hf_rundir_find(&r, folder, "job", NULL, &err), HF_ENOTFOUND, &err);
    assert_non_null(strstr(err.hint, "--state-dir"));
    hf_rundir_release(&r);
    struct hf_rundir made;
    must_open(&made, "alpha", NULL);
    hf_rundir_release(&made);
    must_open(&made, "beta", NULL);
    hf_rundir_release(&made);
    expect_rc(hf_rundir_find(&r, folder, "job", NULL, &err), HF_ENOTFOUND, &err);
    assert_non_null(strstr(err.msg, "'job'"));
    assert_non_null(strstr(err.hint, "alpha, beta"));
    hf_rundir_release(&r);
    /* Very many: the hint stays a hint. */
    for (int i = 0; i < 40; i++) {
        HF_CLEANUP(hf_freep) char *name = hf_asprintf("run-number-%d", i);
        must_open(&made, name, NULL);
        hf_rundir_release(&made);
    }
    expect_rc(hf_rundir_find(&r, folder, "job", NULL, &err), HF_ENOTFOUND, &err);
    assert_non_null(strstr(err.hint, "alpha, beta, run-number-0"));
    hf_rundir_release(&r);
}

/* What is no run is left alone, and does not hide those that are. */
static void rubbish_is_passed_over(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_rundir r;
    must_open(&r, "good", NULL);
    hf_rundir_release(&r);
    static const struct {
        const char *name, *content;
    } rows[] = {
        {"a/run.json", "{"},
        {"b/run.json", "[]"},
        {"c/run.json", "{\"name\":\"c\"}"},
        {"d/run.json", "{\"name\":7,\"store\":\"x\"}"},
        {"e/other", "x"},
        {".hidden/run.json", "{\"name\":\"h\",\"store\":\"file:///x\"}"},
        {"file", "x"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/runs/%s", folder, rows[i].name);
        put_text(path, rows[i].content);
    }
    struct hf_rundir *all = NULL;
    size_t n = 0;
    expect_rc(hf_rundir_all(folder, &all, &n, &err), HF_OK, &err);
    assert_int_equal(n, 1);
    assert_string_equal(all[0].name, "good");
    hf_rundir_release(&all[0]);
    hf_free(all);
    HF_CLEANUP(hf_freep) char *nowhere = hf_asprintf("%s/none", folder);
    expect_rc(hf_rundir_all(nowhere, &all, &n, &err), HF_OK, &err);
    assert_int_equal(n, 0);
    assert_null(all);
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/runs/file", folder);
    expect_rc(hf_rundir_open(&r, file, "job", NULL, &err), HF_EEXISTS, &err);
    assert_non_null(strstr(err.hint, "--state-dir"));
    hf_rundir_release(&r);
}

static void listed_in_order(void **state)
{
    (void)state;
    struct hf_err err;
    static const char *const names[] = {"m", "a", "z", "k"};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        struct hf_rundir r;
        must_open(&r, names[i], NULL);
        hf_rundir_release(&r);
    }
    struct hf_rundir *all = NULL;
    size_t n = 0;
    expect_rc(hf_rundir_all(folder, &all, &n, &err), HF_OK, &err);
    assert_int_equal(n, 4);
    static const char *const want[] = {"a", "k", "m", "z"};
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(all[i].name, want[i]);
        hf_rundir_release(&all[i]);
    }
    hf_free(all);
}

static void paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *want;
    } rows[] = {
        {"ckpt", "/home/me/ckpt"},
        {"ckpt/", "/home/me/ckpt"},
        {"./ckpt//a/", "/home/me/ckpt/a"},
        {".", "/home/me"},
        {"", "/home/me"},
        {"..", "/home"},
        {"../../..", "/"},
        {"../you/./x/..", "/home/you"},
        {"/a/b/../c", "/a/c"},
        {"/", "/"},
        {"//a///b", "/a/b"},
        {"/..a/.b/c..", "/..a/.b/c.."},
        {"/a/..", "/"},
        {"...", "/home/me/..."},
        {"a/.../b/.", "/home/me/a/.../b"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *got = hf_path_from("/home/me", rows[i].path);
        if (strcmp(got, rows[i].want) != 0) {
            fail_msg("'%s' became '%s'", rows[i].path, got);
        }
    }
}

/* Somebody who looks holds the lock for a moment: that refuses nobody. */
static void a_look_is_no_lock(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_rundir r;
    must_open(&r, "job", NULL);
    expect_rc(hf_rundir_lock(&r, &err), HF_OK, &err);
    hf_closep(&r.lock_fd);
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&r, "lock");
    int look = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(look, LOCK_SH), 0);
    assert_false(hf_rundir_is_locked(&r));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* holds it a moment longer than its parent */
        (void)poll(NULL, 0, 20);
        _exit(0);
    }
    close(look);
    expect_rc(hf_rundir_lock(&r, &err), HF_OK, &err);
    assert_true(hf_rundir_is_locked(&r));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    hf_rundir_release(&r);
}

static void locks(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_rundir a;
    struct hf_rundir b;
    must_open(&a, "job", NULL);
    must_open(&b, "job", NULL);
    assert_false(hf_rundir_is_locked(&a)); /* no lock file yet */
    expect_rc(hf_rundir_lock(&a, &err), HF_OK, &err);
    assert_true(hf_rundir_is_locked(&b));
    expect_rc(hf_rundir_lock(&b, &err), HF_EAGAIN, &err);
    assert_int_equal(b.lock_fd, -1);
    hf_rundir_release(&a);
    assert_false(hf_rundir_is_locked(&b));
    expect_rc(hf_rundir_lock(&b, &err), HF_OK, &err);
    hf_rundir_release(&b);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(names_of_folders),
        CASE(open_registers),
        CASE(not_found_helps),
        CASE(one_name_in_several_stores),
        CASE(rubbish_is_passed_over),
        CASE(listed_in_order),
        CASE(locks),
        CASE(paths),
        CASE(a_look_is_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
