/* SPDX-License-Identifier: Apache-2.0
 *
 * base/fsx with every call failing in turn, alone and with all later ones: an error is reported
 * or all went well, the old or the new content stands, and no temporary file is left.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "base/mem.h"
#include "tests/unit/support_conform_store.h"

#define BIG 40000 /* several reads */

static char *folder;
static char big[BIG];

static char *at(const char *name)
{
    return hf_asprintf("%s/%s", folder, name);
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

static size_t length_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* One operation: what is there before, the call under the armed fault, and what must hold. */
struct op {
    const char *name;
    void (*prepare)(const char *path);
    enum hf_rc (*run)(const char *path, struct hf_err *err);
    void (*check)(const char *path, enum hf_rc rc);
};

static void put_old(const char *path)
{
    struct hf_err err;
    expect_rc(hf_fs_write(path, text_of("old"), 0600, false, &err), HF_OK, &err);
}

static enum hf_rc write_plain(const char *path, struct hf_err *err)
{
    return hf_fs_write(path, (struct hf_span){big, BIG}, 0600, false, err);
}

static enum hf_rc write_synced(const char *path, struct hf_err *err)
{
    return hf_fs_write(path, (struct hf_span){big, BIG}, 0600, true, err);
}

static void old_or_new(const char *path, enum hf_rc rc)
{
    size_t len = length_of(path);
    assert_true(len == BIG || (len == 3 && rc != HF_OK));
    assert_int_equal(entries(folder), 1);
}

static void put_big(const char *path)
{
    struct hf_err err;
    expect_rc(write_plain(path, &err), HF_OK, &err);
}

static enum hf_rc read_behind_head(const char *path, struct hf_err *err)
{
    struct hf_buf b;
    hf_buf_init(&b, 2 * BIG);
    assert_int_equal(hf_buf_add(&b, "head", 4, NULL), HF_OK);
    enum hf_rc rc = hf_fs_read(path, &b, err);
    assert_int_equal(b.len, rc == HF_OK ? BIG + 4 : 4);
    assert_int_equal(strlen(hf_buf_str(&b)), b.len);
    hf_buf_release(&b);
    return rc;
}

static void is_big(const char *path, enum hf_rc rc)
{
    (void)rc;
    assert_int_equal(length_of(path), BIG);
}

static enum hf_rc append(const char *path, struct hf_err *err)
{
    return hf_fs_append(path, text_of("line"), err);
}

static void appended_or_not(const char *path, enum hf_rc rc)
{
    assert_int_equal(length_of(path), rc == HF_OK ? 7 : 3);
}

static void nothing(const char *path)
{
    (void)path;
}

static enum hf_rc make_dirs(const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *deep = hf_asprintf("%s/a/b", path);
    return hf_fs_mkdirs(deep, 0700, err);
}

static void made_or_not(const char *path, enum hf_rc rc)
{
    HF_CLEANUP(hf_freep) char *deep = hf_asprintf("%s/a/b", path);
    assert_int_equal(hf_fs_exists(deep), rc == HF_OK);
}

static void put_tree(const char *path)
{
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/a/b/file", path);
    HF_CLEANUP(hf_freep) char *link = hf_asprintf("%s/a/link", path);
    expect_rc(make_dirs(path, &err), HF_OK, &err);
    put_old(file);
    assert_int_equal(symlink("/", link), 0);
}

static void removed_or_not(const char *path, enum hf_rc rc)
{
    assert_int_equal(hf_fs_exists(path), rc != HF_OK);
}

static enum hf_rc lock(const char *path, struct hf_err *err)
{
    int fd = -7;
    enum hf_rc rc = hf_fs_lock(path, &fd, err);
    assert_int_equal(fd == -7, rc != HF_OK);
    if (rc == HF_OK) {
        (void)close(fd);
    }
    return rc;
}

static void not_locked(const char *path, enum hf_rc rc)
{
    (void)rc;
    int fd = -1;
    assert_int_equal(hf_fs_lock(path, &fd, NULL), HF_OK);
    (void)close(fd);
}

static const struct op ops[] = {
    {"write", put_old, write_plain, old_or_new},
    {"write, synced", put_old, write_synced, old_or_new},
    {"read", put_big, read_behind_head, is_big},
    {"append", put_old, append, appended_or_not},
    {"mkdirs", nothing, make_dirs, made_or_not},
    {"remove", put_tree, hf_fs_remove_tree, removed_or_not},
    {"remove a file", put_old, hf_fs_remove_tree, removed_or_not},
    {"lock", nothing, lock, not_locked},
};

/* False: no call was left to fail. */
static bool fail_nth(const struct op *op, uint64_t nth, bool and_later)
{
    struct hf_err err = {0};
    folder = temp_folder();
    HF_CLEANUP(hf_freep) char *path = at("thing");
    op->prepare(path);
    hf_fault_arm("file", nth, and_later);
    enum hf_rc rc = op->run(path, &err);
    bool fired = hf_fault_fired("file");
    hf_fault_arm("file", 0, false);
    if ((rc == HF_OK) == fired || (fired && (rc != HF_EIO || err.native != EIO))) {
        fail_msg("%s, call %ju: %s: %s", op->name, (uintmax_t)nth, hf_rc_name(rc), err.msg);
    }
    op->check(path, rc);
    /* What failed can be done again, unless all was well already. */
    if (rc != HF_OK) {
        expect_rc(op->run(path, &err), HF_OK, &err);
        op->check(path, HF_OK);
    }
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_free(folder);
    return fired;
}

static void every_fault(void **state)
{
    (void)state;
    memset(big, 'n', sizeof(big));
    for (size_t i = 0; i < HF_COUNT(ops); i++) {
        for (int later = 0; later < 2; later++) {
            uint64_t nth = 1;
            while (fail_nth(&ops[i], nth, later == 1)) {
                nth++;
            }
            assert_true(nth > 1);
            print_message("%s: %ju calls failed in turn\n", ops[i].name, (uintmax_t)nth - 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
