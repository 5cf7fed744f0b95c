/* SPDX-License-Identifier: Apache-2.0
 *
 * base/fsx on real files: bounds, what stands after a failure, trees with links, locks. Every
 * call failing in turn is in tests/faults/test_fsx.c.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
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

#include "base/fsx.h"
#include "base/mem.h"
#include "tests/unit/support_conform_store.h"

static char *folder;

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
    assert_false(hf_fs_exists(folder));
    hf_free(folder);
    return 0;
}

static char *at(const char *name)
{
    return hf_asprintf("%s/%s", folder, name);
}

static void must_write(const char *path, const char *text)
{
    struct hf_err err;
    expect_rc(hf_fs_write(path, text_of(text), 0640, false, &err), HF_OK, &err);
}

static void holds(const char *path, const char *text)
{
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1 << 20);
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    assert_string_equal(hf_buf_str(&b), text);
    hf_buf_release(&b);
}

static size_t entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n - 2;
}

static void reading(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *path = at("file");
    struct hf_err err;
    struct hf_buf b;
    hf_buf_init(&b, 5);
    expect_rc(hf_fs_read(path, &b, &err), HF_ENOTFOUND, &err);
    assert_non_null(strstr(err.msg, path));
    must_write(path, "12345");
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    assert_string_equal(hf_buf_str(&b), "12345");
    /* Longer than allowed: what was there before stands. */
    expect_rc(hf_fs_read(path, &b, &err), HF_EFULL, &err);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(b.len, 5);
    hf_buf_reset(&b);
    must_write(path, "123456");
    expect_rc(hf_fs_read(path, &b, &err), HF_EFULL, &err);
    assert_int_equal(b.len, 0);
    must_write(path, "");
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    assert_int_equal(b.len, 0);
    expect_rc(hf_fs_read(folder, &b, &err), HF_EINVAL, &err);
    hf_buf_release(&b);
    /* A file of several reads, appended to what is there. */
    HF_CLEANUP(hf_freep) char *big = hf_calloc(100001, 1);
    memset(big, 'b', 100000);
    must_write(path, big);
    hf_buf_init(&b, 100004);
    assert_int_equal(hf_buf_add(&b, "head", 4, NULL), HF_OK);
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    assert_int_equal(b.len, 100004);
    assert_memory_equal(b.data, "headbbbb", 8);
    hf_buf_release(&b);
    /* Refused in the middle: what was there before stands, as a string too. */
    hf_buf_init(&b, 50000);
    assert_int_equal(hf_buf_add(&b, "head", 4, NULL), HF_OK);
    expect_rc(hf_fs_read(path, &b, &err), HF_EFULL, &err);
    assert_string_equal(hf_buf_str(&b), "head");
    hf_buf_release(&b);
}

static void writing(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *path = at("file");
    struct hf_err err;
    for (int sync = 0; sync < 2; sync++) {
        expect_rc(hf_fs_write(path, text_of("old"), 0600, sync == 1, &err), HF_OK, &err);
        holds(path, "old");
        expect_rc(hf_fs_write(path, text_of("new content"), 0600, sync == 1, &err), HF_OK, &err);
        holds(path, "new content");
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(entries(folder), 1);
    /* A reader that has the old one open keeps it whole. */
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    must_write(path, "x");
    char room[32];
    assert_int_equal(read(fd, room, sizeof(room)), 11);
    /* Onto a folder, into a missing one: nothing is left behind. */
    HF_CLEANUP(hf_freep) char *dir = at("dir");
    assert_int_equal(mkdir(dir, 0700), 0);
    expect_rc(hf_fs_write(dir, text_of("x"), 0600, true, &err), HF_EINVAL, &err);
    HF_CLEANUP(hf_freep) char *nowhere = at("none/file");
    expect_rc(hf_fs_write(nowhere, text_of("x"), 0600, true, &err), HF_ENOTFOUND, &err);
    assert_int_equal(entries(folder), 2);
    /* Without a slash the working folder is meant. */
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(folder), 0);
    expect_rc(hf_fs_write("bare", text_of("b"), 0600, true, &err), HF_OK, &err);
    holds("bare", "b");
    assert_int_equal(fchdir(here), 0);
    close(here);
}

static void folders(void **state)
{
    (void)state;
    struct hf_err err;
    static const char *const rows[] = {"a", "a/b/c", "a/b/c", "x//y/", "a/b/d"};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *path = at(rows[i]);
        expect_rc(hf_fs_mkdirs(path, 0750, &err), HF_OK, &err);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISDIR(st.st_mode));
    }
    expect_rc(hf_fs_mkdirs("/", 0700, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *file = at("a/file");
    must_write(file, "x");
    HF_CLEANUP(hf_freep) char *below = at("a/file/c");
    expect_rc(hf_fs_mkdirs(file, 0700, &err), HF_EEXISTS, &err);
    expect_rc(hf_fs_mkdirs(below, 0700, &err), HF_EEXISTS, &err);
    assert_non_null(strstr(err.msg, file));
    /* A link to a folder is as good as one; one to nowhere is not. */
    HF_CLEANUP(hf_freep) char *link = at("link");
    HF_CLEANUP(hf_freep) char *through = at("link/deep");
    assert_int_equal(symlink("a", link), 0);
    expect_rc(hf_fs_mkdirs(through, 0700, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *broken = at("broken");
    assert_int_equal(symlink("nowhere", broken), 0);
    assert_int_not_equal(hf_fs_mkdirs(broken, 0700, &err), HF_OK);
    assert_true(hf_fs_exists(broken));
    expect_rc(hf_fs_sync_dir(folder, &err), HF_OK, &err);
    expect_rc(hf_fs_sync_dir(file, &err), HF_EINVAL, &err);
}

static void appending(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *path = at("log");
    struct hf_err err;
    expect_rc(hf_fs_append(path, text_of("one\n"), &err), HF_OK, &err);
    expect_rc(hf_fs_append(path, text_of(""), &err), HF_OK, &err);
    expect_rc(hf_fs_append(path, text_of("two\n"), &err), HF_OK, &err);
    holds(path, "one\ntwo\n");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    expect_rc(hf_fs_append(folder, text_of("x"), &err), HF_EINVAL, &err);
}

static void removing(void **state)
{
    (void)state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *tree = at("tree");
    HF_CLEANUP(hf_freep) char *deep = at("tree/a/b");
    HF_CLEANUP(hf_freep) char *file = at("tree/a/b/file");
    HF_CLEANUP(hf_freep) char *out = at("outside");
    HF_CLEANUP(hf_freep) char *kept = at("outside/kept");
    HF_CLEANUP(hf_freep) char *link = at("tree/a/link");
    HF_CLEANUP(hf_freep) char *root_link = at("root-link");
    expect_rc(hf_fs_remove_tree(tree, &err), HF_OK, &err); /* missing */
    expect_rc(hf_fs_mkdirs(deep, 0700, &err), HF_OK, &err);
    expect_rc(hf_fs_mkdirs(out, 0700, &err), HF_OK, &err);
    must_write(file, "x");
    must_write(kept, "kept");
    assert_int_equal(symlink(out, link), 0);
    assert_int_equal(symlink(out, root_link), 0);
    expect_rc(hf_fs_remove_tree(tree, &err), HF_OK, &err);
    assert_false(hf_fs_exists(tree));
    expect_rc(hf_fs_remove_tree(root_link, &err), HF_OK, &err);
    assert_false(hf_fs_exists(root_link));
    holds(kept, "kept");
    expect_rc(hf_fs_remove_tree(kept, &err), HF_OK, &err);
    assert_int_equal(entries(out), 0);
}

/* flock holds between processes, and ends with the holder. */
static void locking(void **state)
{
    (void)state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *path = at("lock");
    int fd = -1;
    int second = -7;
    expect_rc(hf_fs_lock(path, &fd, &err), HF_OK, &err);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    expect_rc(hf_fs_lock(path, &second, &err), HF_EAGAIN, &err);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(second, -7);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fd);
        int own = -1;
        _exit(hf_fs_lock(path, &own, NULL) == HF_EAGAIN ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
    expect_rc(hf_fs_lock(path, &second, &err), HF_OK, &err);
    close(second);
    expect_rc(hf_fs_lock(folder, &fd, &err), HF_EINVAL, &err);
}

static void existing_and_writing_all(void **state)
{
    (void)state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *path = at("thing");
    assert_false(hf_fs_exists(path));
    assert_int_equal(symlink("nowhere", path), 0);
    assert_true(hf_fs_exists(path)); /* the link itself */
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    expect_rc(hf_fs_write_all(fds[1], text_of("hello"), "pipe", &err), HF_OK, &err);
    char room[16];
    assert_int_equal(read(fds[0], room, sizeof(room)), 5);
    close(fds[0]);
    close(fds[1]);
    expect_rc(hf_fs_write_all(-1, text_of("x"), "a name", &err), HF_EIO, &err);
    assert_non_null(strstr(err.msg, "a name"));
    assert_int_equal(err.native, EBADF);
    expect_rc(hf_fs_write_all(-1, text_of(""), "a name", &err), HF_OK, &err);
    expect_rc(hf_fs_write("/dev/full/x", text_of("x"), 0600, false, &err), HF_EINVAL, &err);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    expect_rc(hf_fs_write_all(full, text_of("x"), "full", &err), HF_EFULL, &err);
    close(full);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(reading),
        CASE(writing),
        CASE(folders),
        CASE(appending),
        CASE(removing),
        CASE(locking),
        CASE(existing_and_writing_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
