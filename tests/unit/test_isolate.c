/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's isolation by journal: a tree of every sort of file is wrecked by random attempts and
 * must be equal to itself afterwards, in every byte, mode and time, whatever happens in between.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "tests/unit/support_isolate.h"

#define KILLS 40u

/* ---- the journal ----------------------------------------------------------------------- */

static void test_journal_round(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    for (unsigned seed = 1; seed <= 25; seed++) {
        struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
        assert_int_equal(HF_ISOLATE_JOURNAL, hf_isolate_mode(iso));
        tree_same(p->user, before);
        for (unsigned machine = 0; machine < 2; machine++) {
            tree_attempt(p->user, seed * 10 + machine);
            assert_true(tree_attempted(p->user));
            must_be_ok(hf_isolate_new_machine(iso, &err), &err);
            tree_same(p->user, before);
        }
        tree_attempt(p->user, seed * 10 + 9);
        must_be_ok(hf_isolate_end(iso, &err), &err);
        tree_same(p->user, before);
        place_clean(p->work);
    }
    assert_true(place_noted(p, "Isolated is"));
    assert_true(place_noted(p, ".git"));
}

/* A name for the same content must stay one after a write in place. */
static void test_journal_keeps_hard_links(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *one = tree_at(p->user, "data/one");
    HF_CLEANUP(hf_freep) char *two = tree_at(p->user, "data/two");
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    tree_write(one, 2);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    tree_same(p->user, before);
    struct stat a;
    struct stat b;
    tree_ok(stat(one, &a));
    tree_ok(stat(two, &b));
    assert_int_equal(a.st_ino, b.st_ino);
}

static void test_missing_dir_and_nested_dirs(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *nested = tree_at(p->user, "src/deep");
    HF_CLEANUP(hf_freep) char *missing = tree_at(p->base, "ck/run/last");
    HF_CLEANUP(hf_freep) char *top = tree_at(p->base, "ck");
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    hf_strv_add(&p->dirs, nested);
    hf_strv_add(&p->dirs, missing);
    hf_strv_add(&p->dirs, p->user);
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    assert_int_equal(2, iso->dirs.len);
    for (int i = 0; i < 2; i++) {
        must_be_ok(hf_fs_mkdirs(missing, 0755, &err), &err);
        tree_put(missing, "model.pt", "w", 1, 0644);
        tree_attempt(p->user, 3);
        must_be_ok(hf_isolate_new_machine(iso, &err), &err);
        assert_false(hf_fs_exists(top));
        tree_same(p->user, before);
    }
    must_be_ok(hf_fs_mkdirs(missing, 0755, &err), &err);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    assert_false(hf_fs_exists(top));
    tree_same(p->user, before);
}

/* The state folder may lie in the working folder. */
static void test_work_inside(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    hf_free(p->work);
    p->work = tree_at(p->user, ".state/drill");
    must_be_ok(hf_fs_mkdirs(p->work, 0700, &err), &err);
    HF_CLEANUP(hf_freep) char *kept = tree_at(p->work, "store");
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    HF_CLEANUP(hf_freep) char *src = tree_at(p->user, "src");
    HF_CLEANUP(hf_freep) char *before = tree_list(src);
    tree_put(p->work, "store", "s", 1, 0600);
    tree_attempt(p->user, 5);
    must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    assert_true(hf_fs_exists(kept));
    must_be_ok(hf_isolate_end(iso, &err), &err);
    assert_true(hf_fs_exists(kept));
    tree_same(src, before);
}

/* On another file system the hidden place lies beside the folder. */
static void test_work_elsewhere(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    char other[] = "/dev/shm/holdfast-isolate-XXXXXX";
    assert_non_null(mkdtemp(other));
    hf_free(p->work);
    p->work = hf_strdup(other);
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    tree_attempt(p->user, 6);
    must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    tree_same(p->user, before);
    tree_attempt(p->user, 7);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    tree_same(p->user, before);
    place_clean(p->work);
    must_be_ok(hf_iso_remove(other, &err), &err);
}

static void sparse(const char *dir, const char *name)
{
    tree_put(dir, name, "head", 4, 0644);
    HF_CLEANUP(hf_freep) char *path = tree_at(dir, name);
    tree_ok(truncate(path, (off_t)HF_ISO_COPY_MAX + 4096));
}

/* Too big to be copied: comes back when removed or replaced; a write in place is reported, and
 * everything else is put right all the same. */
static void test_too_big(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    sparse(p->user, "weights.bin");
    HF_CLEANUP(hf_freep) char *path = tree_at(p->user, "weights.bin");
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    tree_ok(unlink(path));
    tree_put(p->user, "weights.bin", "replaced", 8, 0600);
    must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    tree_same(p->user, before);
    tree_attempt(p->user, 8);
    int fd = open(path, O_WRONLY);
    tree_ok(fd);
    tree_ok((int)pwrite(fd, "HEAD", 4, 0));
    close(fd);
    if (place_noted(p, "Too big to be copied")) {
        HF_CLEANUP(hf_freep) char *created = tree_at(p->user, "by-the-attempt");
        assert_int_equal(HF_EIO, hf_isolate_new_machine(iso, &err));
        assert_non_null(strstr(err.msg, path));
        assert_true(hf_fs_exists(created));
        err = (struct hf_err){0};
        assert_int_equal(HF_EIO, hf_isolate_end(iso, &err));
        assert_non_null(strstr(err.msg, path));
    } else {
        must_be_ok(hf_isolate_end(iso, &err),
                   &err); /* the file system shares blocks between copies */
        tree_same(p->user, before);
    }
    tree_ok(unlink(path));
    sparse(p->user, "weights.bin");
    place_clean(p->work);
    assert_int_equal(HF_OK, hf_isolate_recover(p->work, NULL, &err));
    HF_CLEANUP(hf_freep) char *created = tree_at(p->user, "by-the-attempt");
    assert_false(hf_fs_exists(created));
}

static void test_too_big_in_checkpoint_dir(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *ck = tree_at(p->user, "src/deep");
    hf_strv_add(&p->dirs, ck);
    sparse(ck, "last.pt");
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    struct hf_isolate *iso = NULL;
    enum hf_rc rc =
        hf_isolate_begin_as(HF_ISOLATE_JOURNAL, &p->dirs, p->work, &iso, &p->notes, &err);
    if (rc == HF_OK) {
        must_be_ok(hf_isolate_end(iso, &err),
                   &err); /* the file system shares blocks between copies */
    } else {
        assert_int_equal(HF_ENOTSUP, rc);
        assert_non_null(strstr(err.msg, "src/deep/last.pt' (1.0 GiB)"));
        assert_string_not_equal("", err.hint);
    }
    tree_same(p->user, before);
    place_clean(p->work);
}

static void test_refusals(void **state)
{
    struct place *p = *state;
    HF_CLEANUP(hf_freep) char *file = tree_at(p->user, "train.py");
    HF_CLEANUP(hf_freep) char *inner = tree_at(p->work, "inner");
    const struct {
        const char *dir;
        enum hf_rc rc;
    } cases[] = {{"/", HF_ENOTSUP}, {"relative", HF_EINVAL}, {file, HF_EINVAL}, {inner, HF_EINVAL}};
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct hf_strv dirs = {0};
        struct hf_err err = {0};
        struct hf_isolate *iso = NULL;
        hf_strv_add(&dirs, cases[i].dir);
        assert_int_equal(cases[i].rc, hf_isolate_begin(&dirs, p->work, &iso, &p->notes, &err));
        assert_string_not_equal("", err.msg);
        hf_strv_clear(&dirs);
        place_clean(p->work);
    }
}

/* ---- recovery -------------------------------------------------------------------------- */

static void random_pause(uint64_t max_us)
{
    uint64_t ns = hf_random_u64() % (max_us + 1) * 1000;
    struct timespec t = {.tv_sec = (time_t)(ns / HF_SEC), .tv_nsec = (long)(ns % HF_SEC)};
    ppoll(NULL, 0, &t, NULL);
}

/* SIGKILL at random moments of a whole drill, its recovery killed once as well: the folder is
 * always as before, and a recovery that has nothing to do says so. */
static void test_killed_anywhere(void **state)
{
    struct place *p = *state;
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    uint64_t start = hf_now_ns();
    place_drill(p, 1);
    uint64_t whole_us = (hf_now_ns() - start) / 1000;
    unsigned undone_count = 0;
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t pid = fork();
        tree_ok(pid);
        if (pid == 0) {
            place_drill(p, i * 100 + 2);
            _exit(0);
        }
        random_pause(whole_us);
        kill(pid, SIGKILL);
        if (!reap_child(pid, SIGKILL)) {
            whole_us = whole_us * 3 / 4; /* it was over: this machine got faster */
        }
        pid = fork();
        tree_ok(pid);
        if (pid == 0) {
            _exit(hf_isolate_recover(p->work, NULL, NULL) == HF_OK ? 0 : 1);
        }
        random_pause(8000);
        kill(pid, SIGKILL);
        reap_child(pid, SIGKILL);
        bool undone = false;
        struct hf_err err = {0};
        must_be_ok(hf_isolate_recover(p->work, &undone, &err), &err);
        undone_count += undone ? 1 : 0;
        tree_same(p->user, before);
        place_clean(p->work);
        must_be_ok(hf_isolate_recover(p->work, &undone, &err), &err);
        assert_false(undone);
    }
    print_message("%u of %u kills left something to undo\n", undone_count, KILLS);
    assert_true(undone_count >= KILLS / 8);
}

/* What appeared between the death of a drill and its recovery may be the person's own. */
static void test_recovery_keeps(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    pid_t pid = fork();
    tree_ok(pid);
    if (pid == 0) {
        place_begin(p, HF_ISOLATE_JOURNAL);
        tree_attempt(p->user, 4);
        _exit(0);
    }
    reap_child(pid, 0);
    tree_put(p->user, "mine.txt", "my own work", 11, 0644);
    struct hf_isolate *iso = NULL;
    assert_int_equal(HF_EEXISTS, hf_isolate_begin(&p->dirs, p->work, &iso, &p->notes, &err));
    bool undone = false;
    must_be_ok(hf_isolate_recover(p->work, &undone, &err), &err);
    assert_true(undone);
    tree_same(p->user, before);
    struct hf_strv kept = {0};
    hf_isolate_kept(p->work, &kept);
    assert_int_equal(1, kept.len);
    HF_CLEANUP(hf_freep) char *mine = tree_at(kept.items[0], "kept/1/mine.txt");
    assert_true(hf_fs_exists(mine));
    must_be_ok(hf_iso_remove(kept.items[0], &err), &err);
    hf_strv_clear(&kept);
    hf_isolate_kept(p->work, &kept);
    assert_int_equal(0, kept.len);
}

static void test_one_drill_at_a_time(void **state)
{
    struct place *p = *state;
    struct hf_err err = {0};
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    struct hf_isolate *second = NULL;
    bool undone = true;
    assert_int_equal(HF_EAGAIN, hf_isolate_begin(&p->dirs, p->work, &second, &p->notes, &err));
    assert_int_equal(HF_EAGAIN, hf_isolate_recover(p->work, &undone, &err));
    assert_false(undone);
    must_be_ok(hf_isolate_end(iso, &err), &err);
    must_be_ok(hf_isolate_recover(p->work, &undone, &err), &err);
    assert_int_equal(HF_OK, hf_isolate_end(NULL, NULL));
}

static void test_damaged_record(void **state)
{
    struct place *p = *state;
    static const char *const texts[] = {"", "{", "{\"isolate\":1}", "{\"isolate\":2}",
                                        "{\"isolate\":1,\"id\":\"a\",\"mode\":\"journal\","
                                        "\"phase\":\"odd\"}"};
    must_be_ok(hf_fs_mkdirs(p->work, 0700, NULL), &(struct hf_err){0});
    for (size_t i = 0; i < HF_COUNT(texts); i++) {
        struct hf_err err = {0};
        tree_put(p->work, "isolate.json", texts[i], strlen(texts[i]), 0600);
        assert_int_equal(HF_ECORRUPT, hf_isolate_recover(p->work, NULL, &err));
        assert_non_null(strstr(err.msg, "isolate.json"));
    }
}

/* ---- as another user ------------------------------------------------------------------- */

static enum hf_rc give_away(void *user, const char *path, bool *descend, struct hf_err *err)
{
    (void)user;
    (void)err;
    struct stat st;
    tree_ok(lstat(path, &st));
    tree_ok(lchown(path, 65534, 65534));
    *descend = S_ISDIR(st.st_mode);
    return HF_OK;
}

/* Without privileges a folder that forbids writing is in the way; a real user is no root. */
static void test_unprivileged(void **state)
{
    struct place *p = *state;
    if (geteuid() == 0) {
        tree_ok(lchown(p->user, 65534, 65534));
        tree_ok(lchown(p->base, 65534, 65534));
        assert_int_equal(HF_OK, hf_iso_walk(p->user, give_away, NULL, NULL));
    }
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    pid_t pid = fork();
    tree_ok(pid);
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(2);
        }
        for (unsigned seed = 1000; seed < 1015; seed++) {
            place_drill(p, seed);
            tree_same(p->user, before);
        }
        struct hf_isolate *iso = NULL;
        struct hf_err err = {0};
        must_be_ok(hf_isolate_begin(&p->dirs, p->work, &iso, &p->notes, &err), &err);
        assert_int_equal(HF_ISOLATE_JOURNAL, hf_isolate_mode(iso));
        must_be_ok(hf_isolate_end(iso, &err), &err);
        _exit(0);
    }
    reap_child(pid, 0);
    tree_same(p->user, before);
}

int main(void)
{
    umask(022);
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_journal_round),
        CASE(test_journal_keeps_hard_links),
        CASE(test_missing_dir_and_nested_dirs),
        CASE(test_work_inside),
        CASE(test_work_elsewhere),
        CASE(test_too_big),
        CASE(test_too_big_in_checkpoint_dir),
        CASE(test_refusals),
        CASE(test_killed_anywhere),
        CASE(test_recovery_keeps),
        CASE(test_one_drill_at_a_time),
        CASE(test_damaged_record),
        CASE(test_unprivileged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
