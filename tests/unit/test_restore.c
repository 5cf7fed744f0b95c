/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/restore: what comes back is what was saved; what is equal stays, what is in the way is
 * moved aside; damage is named and changes nothing; hostile links, left-over siblings, failures
 * that say nothing about the checkpoint.
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
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "checkpoint/build.h"
#include "checkpoint/restore.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

/* A saved checkpoint of a folder and of a single file beside it. */
struct saved {
    struct bench b;
    struct hf_claim claim;
    char *root, *single;
    char *before; /* the folder as it was saved */
    struct hf_save_in in;
    struct hf_manifest m;
};

static char *below(const struct saved *s, const char *name)
{
    return hf_asprintf("%s/%s", s->root, name);
}

static void set_mode(const struct saved *s, const char *name, mode_t mode)
{
    char *p = below(s, name);
    assert_int_equal(chmod(p, mode), 0);
    free(p);
}

static void make_link(const struct saved *s, const char *name, const char *target)
{
    char *p = below(s, name);
    assert_int_equal(symlink(target, p), 0);
    free(p);
}

static void fill_tree(const struct saved *s)
{
    static const struct {
        const char *name;
        size_t len;
    } files[] = {{"w0.bin", 20000}, {"w1.bin", 4096}, {"a/b/c/opt.pt", 9000}, {"a/empty", 0},
                 {"a-b", 5},        {"closed/x", 10}, {"caf\xe9", 3},         {"same", 20000}};
    for (size_t i = 0; i < HF_COUNT(files); i++) {
        char *p = below(s, files[i].name);
        put_noise(p, files[i].len, i == 7 ? 0 : (unsigned)i);
        free(p);
    }
    char *p = below(s, "none");
    assert_int_equal(mkdir(p, 0700), 0);
    free(p);
    make_link(s, "latest", "a/b");
    make_link(s, "absolute", s->root);
    make_link(s, "outside", "/etc");
    make_link(s, "a/loop", "loop");
    make_link(s, "dangling", "no/such");
    set_mode(s, "w0.bin", 0640);
    set_mode(s, "w1.bin", 0400);
    set_mode(s, "a-b", 0755);
    set_mode(s, "closed", 0555);
}

static void saved_open(struct saved *s)
{
    bench_open(&s->b, NULL);
    s->claim = must_claim(&s->b, 1);
    s->root = bench_path(&s->b, "home/ckpt/step-1");
    s->single = bench_path(&s->b, "home/state.json");
    fill_tree(s);
    put_text(s->single, "{\"step\":1}");
    s->before = tree_text(s->root);
    s->in = save_of(&s->b, &s->claim, 1, s->root);
    hf_strv_add(&s->in.roots, s->single);
    must_save(&s->in, &s->m);
}

static void saved_close(struct saved *s)
{
    struct hf_err err;
    expect_rc(hf_remove_all(s->root, &err), HF_OK, &err);
    hf_manifest_release(&s->m);
    save_in_release(&s->in);
    hf_claim_release(&s->claim);
    free(s->root);
    free(s->single);
    free(s->before);
    char *home = bench_path(&s->b, "home");
    expect_rc(hf_remove_all(home, &err), HF_OK, &err);
    free(home);
    bench_close(&s->b);
}

static void wipe(const struct saved *s, const char *name)
{
    struct hf_err err;
    char *p = bench_path(&s->b, name);
    expect_rc(hf_remove_all(p, &err), HF_OK, &err);
    free(p);
}

static enum hf_rc restore(const struct saved *s, struct hf_restore_report *report,
                          struct hf_err *err)
{
    *report = (struct hf_restore_report){.bytes = 0};
    return hf_restore(&s->b.run, NULL, &s->m, report, err);
}

static void is_as_saved(const struct saved *s)
{
    char *now = tree_text(s->root);
    assert_string_equal(now, s->before);
    free(now);
    struct hf_buf text;
    struct hf_err err;
    hf_buf_init(&text, 100);
    expect_rc(hf_fs_read(s->single, &text, &err), HF_OK, &err);
    assert_string_equal(hf_buf_str(&text), "{\"step\":1}");
    hf_buf_release(&text);
}

/* How many names in a folder hold this text. */
static unsigned names_with(const struct saved *s, const char *folder, const char *text)
{
    char *p = bench_path(&s->b, folder);
    DIR *d = opendir(p);
    assert_non_null(d);
    unsigned n = 0;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += strstr(e->d_name, text) != NULL;
    }
    closedir(d);
    free(p);
    return n;
}

static void all_comes_back(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    struct hf_restore_report report;
    struct hf_err err;
    wipe(&s, "home");
    expect_rc(restore(&s, &report, &err), HF_OK, &err);
    assert_int_equal(report.bytes, s.m.bytes);
    assert_int_equal(report.bytes_kept, 0);
    assert_int_equal(report.aside.len, 0);
    is_as_saved(&s);
    /* Once more: all is there and equal, nothing is touched. */
    struct stat was, is;
    assert_int_equal(stat(s.root, &was), 0);
    expect_rc(restore(&s, &report, &err), HF_OK, &err);
    assert_int_equal(report.bytes, 0);
    assert_int_equal(report.bytes_kept, s.m.bytes);
    assert_int_equal(stat(s.root, &is), 0);
    assert_int_equal(was.st_ino, is.st_ino);
    assert_int_equal(names_with(&s, "home/ckpt", "holdfast"), 0);
    saved_close(&s);
}

static void modes_lose_set_user_id(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    for (uint32_t i = 0; i < s.m.n_files; i++) {
        if (strcmp(s.m.files[i].path, "w0.bin") == 0) {
            s.m.files[i].mode = 06755;
        }
    }
    wipe(&s, "home");
    struct hf_restore_report report;
    struct hf_err err;
    expect_rc(restore(&s, &report, &err), HF_OK, &err);
    struct stat st;
    char *p = below(&s, "w0.bin");
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    free(p);
    saved_close(&s);
}

/* Every difference sends what is there aside, whole. */
static void what_is_in_the_way_is_moved_aside(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        size_t noise;
    } changes[] = {{"extra", "mine", 0}, {"a-b", "12345", 0}, {"w0.bin", NULL, 19999}};
    for (size_t i = 0; i < HF_COUNT(changes); i++) {
        struct saved s;
        saved_open(&s);
        char *p = below(&s, changes[i].name);
        if (changes[i].text != NULL) {
            put_text(p, changes[i].text);
        } else {
            put_noise(p, changes[i].noise, 99);
        }
        free(p);
        char *changed = tree_text(s.root);
        struct hf_restore_report report;
        struct hf_err err;
        expect_rc(restore(&s, &report, &err), HF_OK, &err);
        is_as_saved(&s);
        assert_int_equal(report.aside.len, 1);
        assert_int_equal(report.bytes_kept, 10); /* the single file */
        char *mark = hf_asprintf("%s.holdfast-aside-2", s.root);
        assert_true(strncmp(report.aside.items[0], mark, strlen(mark)) == 0);
        free(mark);
        char *aside = tree_text(report.aside.items[0]);
        assert_string_equal(aside, changed);
        free(aside);
        free(changed);
        hf_restore_report_release(&report);
        saved_close(&s);
    }
}

static void several_are_moved_aside(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    struct hf_err err;
    for (int i = 0; i < 4; i++) {
        struct hf_restore_report report;
        wipe(&s, "home/ckpt/step-1");
        wipe(&s, "home/state.json");
        if (i % 2 == 0) {
            put_text(s.root, "a file where the folder was");
            assert_int_equal(mkdir(s.single, 0755), 0);
        } else {
            assert_int_equal(symlink("/no/such/place", s.root), 0);
            put_text(s.single, "{\"step\":7}");
        }
        expect_rc(restore(&s, &report, &err), HF_OK, &err);
        is_as_saved(&s);
        assert_int_equal(report.aside.len, 2);
        hf_restore_report_release(&report);
    }
    assert_int_equal(names_with(&s, "home/ckpt", "step-1.holdfast-aside-"), 4);
    assert_int_equal(names_with(&s, "home", "state.json.holdfast-aside-"), 4);
    saved_close(&s);
}

static bool first_block(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    char **ret = user;
    if (*ret == NULL) {
        *ret = hf_strdup(key);
    }
    return false;
}

static char *some_block(const struct saved *s)
{
    char *key = NULL;
    struct hf_err err;
    expect_rc(hf_store_list(s->b.store, NULL, "job/data/", first_block, &key, &err), HF_OK, &err);
    assert_non_null(key);
    return key;
}

static void damage_is_named_and_changes_nothing(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    struct hf_err err;
    struct hf_restore_report report;
    uint64_t bytes = 0;
    char *key = some_block(&s);
    char *extra = below(&s, "extra");
    put_text(extra, "in the way");
    char *changed = tree_text(s.root);
    struct hf_buf good;
    hf_buf_init(&good, 1 << 20);
    expect_rc(hf_store_get(s.b.store, NULL, key, &good, &err), HF_OK, &err);
    for (int kind = 0; kind < 4; kind++) {
        struct hf_buf bad;
        hf_buf_init(&bad, 1 << 20);
        expect_rc(hf_buf_add(&bad, good.data, good.len, &err), HF_OK, &err);
        if (kind == 0) {
            bad.data[bad.len / 2] = (char)(bad.data[bad.len / 2] ^ 4);
        } else if (kind == 1) {
            bad.len--;
        } else {
            expect_rc(hf_buf_add(&bad, "xxxxxxxxxxxxxxxxxxxxxxxx", kind == 2 ? 1 : 20, &err), HF_OK,
                      &err);
        }
        expect_rc(hf_store_put(s.b.store, NULL, key, hf_buf_span(&bad), 0, &err), HF_OK, &err);
        hf_buf_release(&bad);
        expect_rc(restore(&s, &report, &err), HF_ECORRUPT, &err);
        assert_true(strstr(err.msg, key) != NULL);
        expect_rc(hf_verify(&s.b.run, NULL, &s.m, &bytes, &err), HF_ECORRUPT, &err);
    }
    expect_rc(hf_store_remove(s.b.store, NULL, key, &err), HF_OK, &err);
    expect_rc(restore(&s, &report, &err), HF_ECORRUPT, &err);
    assert_true(strstr(err.msg, "missing") != NULL);
    expect_rc(hf_verify(&s.b.run, NULL, &s.m, &bytes, &err), HF_ECORRUPT, &err);
    char *now = tree_text(s.root);
    assert_string_equal(now, changed);
    free(now);
    assert_int_equal(names_with(&s, "home/ckpt", "holdfast"), 0);
    assert_int_equal(names_with(&s, "home", "holdfast"), 0);
    /* Repaired, it restores. */
    expect_rc(hf_store_put(s.b.store, NULL, key, hf_buf_span(&good), 0, &err), HF_OK, &err);
    expect_rc(hf_verify(&s.b.run, NULL, &s.m, &bytes, &err), HF_OK, &err);
    expect_rc(restore(&s, &report, &err), HF_OK, &err);
    is_as_saved(&s);
    hf_restore_report_release(&report);
    hf_buf_release(&good);
    free(changed);
    free(extra);
    free(key);
    saved_close(&s);
}

/* What the store suffers from is not the checkpoint's fault. */
static void failures_are_not_damage(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    wipe(&s, "home");
    struct hf_store *faulty = hf_store_faulty(s.b.store);
    struct hf_run run = {.store = faulty, .name = "job"};
    struct hf_restore_report report;
    struct hf_err err;
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 4, true);
    expect_rc(hf_restore(&run, NULL, &s.m, &report, &err), HF_EIO, &err);
    assert_false(hf_fs_exists(s.root));
    assert_int_equal(names_with(&s, "home/ckpt", "step"), 0);
    hf_store_fault_set(faulty, HF_SFAULT_HANG, 2, true);
    struct hf_call soon = {.deadline_ns = hf_now_ns() + 100 * HF_MS};
    expect_rc(hf_restore(&run, &soon, &s.m, &report, &err), HF_ETIMEOUT, &err);
    struct hf_op op = {.loop = NULL};
    atomic_store(&op.canceled, true);
    struct hf_call canceled = {.op = &op};
    expect_rc(hf_restore(&run, &canceled, &s.m, &report, &err), HF_ECANCELED, &err);
    assert_false(hf_fs_exists(s.root));
    /* One failure is tried again. */
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 3, false);
    expect_rc(hf_restore(&run, NULL, &s.m, &report, &err), HF_OK, &err);
    is_as_saved(&s);
    s.b.store = faulty; /* closed by the bench, with the one inside */
    saved_close(&s);
}

/* Wrong or missing once is not damage: it takes two looks. */
static void damage_takes_two_looks(void **state)
{
    (void)state;
    static const enum store_flaws flaws[] = {FLAW_FLIPS, FLAW_FORGETS};
    for (size_t i = 0; i < HF_COUNT(flaws); i++) {
        struct saved s;
        saved_open(&s);
        wipe(&s, "home");
        s.b.store = store_with_flaws(s.b.store, flaws[i]);
        s.b.run.store = s.b.store;
        struct hf_restore_report report;
        struct hf_err err;
        expect_rc(restore(&s, &report, &err), HF_OK, &err);
        is_as_saved(&s);
        saved_close(&s);
    }
}

static void left_overs_are_removed_first(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    char *old = hf_asprintf("%s.holdfast-new-0badcafe", s.root);
    char *deep = hf_asprintf("%s/closed/folder/file", old);
    char *closed = hf_asprintf("%s/closed", old);
    char *other = hf_asprintf("%s1.holdfast-new-0badcafe", s.root);
    put_text(deep, "half");
    put_text(other, "another root's");
    assert_int_equal(chmod(closed, 0), 0);
    struct hf_restore_report report;
    struct hf_err err;
    expect_rc(restore(&s, &report, &err), HF_OK, &err);
    assert_false(hf_fs_exists(old));
    assert_true(hf_fs_exists(other));
    is_as_saved(&s);
    free(old);
    free(deep);
    free(closed);
    free(other);
    saved_close(&s);
}

/* The walk to a file's folder follows no link, even where one has been put by force. */
static void links_are_never_walked(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    const char *name = NULL;
    int dir = open(s.root, O_RDONLY | O_DIRECTORY);
    assert_true(dir >= 0);
    int parent = hf_open_parent(dir, "a/b/c/opt.pt", &name);
    assert_true(parent >= 0);
    assert_string_equal(name, "opt.pt");
    close(parent);
    static const char *const bad[] = {"latest/c/opt.pt", "outside/passwd", "absolute/w0.bin",
                                      "a/loop/x",        "dangling/x",     "w0.bin/x",
                                      "not there/x"};
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        assert_int_equal(hf_open_parent(dir, bad[i], &name), -1);
    }
    close(dir);
    saved_close(&s);
}

static void a_full_disk_is_known_early(void **state)
{
    (void)state;
    struct saved s;
    saved_open(&s);
    wipe(&s, "home");
    for (uint32_t i = 0; i < s.m.n_files; i++) {
        if (strcmp(s.m.files[i].path, "w0.bin") == 0) {
            s.m.files[i].size = UINT64_C(1) << 52; /* more than any disk */
        }
    }
    struct hf_store *faulty = hf_store_faulty(s.b.store);
    struct hf_run run = {.store = faulty, .name = "job"};
    struct hf_restore_report report;
    struct hf_err err;
    hf_store_fault_set(faulty, HF_SFAULT_FAIL, 0, false);
    enum hf_rc rc = hf_restore(&run, NULL, &s.m, &report, &err);
    assert_true(rc == HF_EFULL || rc == HF_EIO || rc == HF_EINVAL);
    assert_int_equal(hf_store_fault_calls(faulty), 0); /* nothing was fetched for it */
    assert_false(hf_fs_exists(s.root));
    s.b.store = faulty;
    saved_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_back),
        cmocka_unit_test(modes_lose_set_user_id),
        cmocka_unit_test(what_is_in_the_way_is_moved_aside),
        cmocka_unit_test(several_are_moved_aside),
        cmocka_unit_test(damage_is_named_and_changes_nothing),
        cmocka_unit_test(failures_are_not_damage),
        cmocka_unit_test(damage_takes_two_looks),
        cmocka_unit_test(left_overs_are_removed_first),
        cmocka_unit_test(links_are_never_walked),
        cmocka_unit_test(a_full_disk_is_known_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
