/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of every shape, saved and brought back: links of all kinds, also as roots; what is neither
 * file, folder nor link; names and paths at their limits; hard links; modes; many tiny files; what
 * cannot be read; disks that fill up and folders that cannot be written to at a restore.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "checkpoint/build.h"
#include "checkpoint/fileset.h"
#include "checkpoint/restore.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define NOBODY 65534

/* Something to be saved below one folder. */
struct shape {
    struct bench b;
    struct hf_claim claim;
    char *home, *root;
    uint32_t number;
};

static void shape_open(struct shape *s, const char *uri)
{
    bench_open(&s->b, uri);
    s->claim = must_claim(&s->b, 1);
    s->home = bench_path(&s->b, "home");
    s->root = bench_path(&s->b, "home/ckpt");
    s->number = 1;
    char *p = bench_path(&s->b, "home/ckpt/weights.bin");
    put_noise(p, 9000, 1);
    free(p);
}

static void wipe(const char *path)
{
    struct hf_err err;
    expect_rc(hf_remove_all(path, &err), HF_OK, &err);
}

static void shape_close(struct shape *s)
{
    wipe(s->home);
    hf_claim_release(&s->claim);
    free(s->home);
    free(s->root);
    bench_close(&s->b);
}

static char *below(const struct shape *s, const char *name)
{
    return hf_asprintf("%s/%s", s->home, name);
}

static void link_to(const struct shape *s, const char *name, const char *target)
{
    char *p = below(s, name);
    assert_int_equal(symlink(target, p), 0);
    free(p);
}

/* Saves roots below home, wipes home, restores, and compares; *ret is what was committed. */
static void comes_back(struct shape *s, const char *const *names, struct hf_manifest *ret)
{
    struct hf_save_in in = save_of(&s->b, &s->claim, s->number++, s->root);
    hf_strv_clear(&in.roots);
    for (size_t i = 0; names[i] != NULL; i++) {
        hf_strv_take(&in.roots, below(s, names[i]));
    }
    in.resume_path = in.roots.items[0];
    must_save(&in, ret);
    char *before[8];
    for (size_t i = 0; i < in.roots.len; i++) {
        before[i] = tree_text(in.roots.items[i]);
    }
    /* What is restored is what the store says, not what this process remembers. */
    struct hf_decision d;
    struct hf_err err;
    expect_rc(hf_lineage_get_decision(&s->b.run, NULL, 1, ret->number, &d, &err), HF_OK, &err);
    wipe(s->home);
    struct hf_restore_report report = {.bytes = 0};
    expect_rc(hf_restore(&s->b.run, NULL, &d.manifest, &report, &err), HF_OK, &err);
    assert_int_equal(report.aside.len, 0);
    hf_restore_report_release(&report);
    for (size_t i = 0; i < in.roots.len; i++) {
        char *after = tree_text(in.roots.items[i]);
        assert_string_equal(after, before[i]);
        free(after);
        free(before[i]);
    }
    /* Once more: all of it is there and equal. */
    expect_rc(hf_restore(&s->b.run, NULL, &d.manifest, &report, &err), HF_OK, &err);
    assert_int_equal(report.bytes, 0);
    assert_int_equal(report.bytes_kept, ret->bytes);
    hf_restore_report_release(&report);
    hf_decision_release(&d);
    save_in_release(&in);
}

static const char *const only_ckpt[] = {"ckpt", NULL};

static void test_o2_links_are_stored_as_links(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    char *outside = bench_path(&s.b, "outside/secret");
    put_text(outside, "not to be read");
    char *inside = hf_asprintf("%s/weights.bin", s.root);
    link_to(&s, "ckpt/relative", "weights.bin");
    link_to(&s, "ckpt/absolute-inside", inside);
    link_to(&s, "ckpt/absolute-outside", outside);
    link_to(&s, "ckpt/relative-outside", "../../outside");
    link_to(&s, "ckpt/dangling", "no/such/thing");
    link_to(&s, "ckpt/loop", "loop");
    link_to(&s, "ckpt/upwards", "..");
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    assert_int_equal(m.bytes, 9000); /* nothing was followed */
    uint32_t links = 0;
    for (uint32_t i = 0; i < m.n_files; i++) {
        links += m.files[i].kind == HF_FILE_SYMLINK;
    }
    assert_int_equal(links, 7);
    hf_manifest_release(&m);
    struct stat st;
    assert_int_equal(stat(outside, &st), 0);
    assert_int_equal(st.st_size, strlen("not to be read"));
    free(outside);
    free(inside);
    shape_close(&s);
}

static void test_o2_a_root_may_be_a_link(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    link_to(&s, "last.ckpt", "ckpt");
    link_to(&s, "dangling", "gone");
    link_to(&s, "second", "last.ckpt");
    /* The first is what is resumed from: by two links into what is saved. */
    static const char *const roots[] = {"second", "ckpt", "last.ckpt", "dangling", NULL};
    struct hf_manifest m;
    comes_back(&s, roots, &m);
    assert_int_equal(m.roots[0].kind, HF_FILE_SYMLINK);
    assert_int_equal(m.roots[1].kind, HF_FILE_DIR);
    assert_int_equal(m.n_files, 5);
    hf_manifest_release(&m);
    /* A folder where the link belongs is moved aside, not followed, not overwritten. */
    char *p = below(&s, "last.ckpt");
    assert_int_equal(unlink(p), 0);
    char *other = hf_asprintf("%s/other", p);
    put_text(other, "mine");
    struct hf_decision d;
    struct hf_err err;
    struct hf_restore_report report;
    expect_rc(hf_lineage_get_decision(&s.b.run, NULL, 1, 1, &d, &err), HF_OK, &err);
    expect_rc(hf_restore(&s.b.run, NULL, &d.manifest, &report, &err), HF_OK, &err);
    assert_int_equal(report.aside.len, 1);
    struct stat st;
    assert_true(lstat(p, &st) == 0 && S_ISLNK(st.st_mode));
    hf_restore_report_release(&report);
    hf_decision_release(&d);
    free(other);
    free(p);
    shape_close(&s);
}

static void where_links_lead(void **state)
{
    (void)state;
    static const struct {
        const char *path, *target, *want;
    } rows[] = {{"/a/last", "step_1", "/a/step_1"},
                {"/a/last", "./b//step_1/", "/a/b/step_1"},
                {"/a/last", "../step_1", "/step_1"},
                {"/a/last", "../../../x/..", "/"},
                {"/a/last", "/b/../c/step", "/c/step"},
                {"/last", "step", "/step"},
                {"/a/b/last", ".", "/a/b"},
                {"/a/b/last", "..", "/a"}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *got = hf_link_leads(rows[i].path, rows[i].target);
        assert_string_equal(got, rows[i].want);
        free(got);
    }
}

static void a_stray_socket_costs_nothing(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    char *fifo = below(&s, "ckpt/a fifo");
    char *sock = below(&s, "ckpt/sub/sock");
    char *keep = below(&s, "ckpt/sub/keep");
    put_text(keep, "k");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    assert_true(fd >= 0 && strlen(sock) < sizeof(at.sun_path));
    memcpy(at.sun_path, sock, strlen(sock) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    close(fd);
    struct hf_strv roots = {.len = 0};
    hf_strv_add(&roots, s.root);
    struct hf_stamps before, after;
    struct hf_err err;
    expect_rc(hf_stamps_take(&roots, &before, &err), HF_OK, &err);
    assert_int_equal(unlink(fifo), 0);
    expect_rc(hf_stamps_take(&roots, &after, &err), HF_OK, &err);
    assert_true(hf_stamps_equal(&before, &after, NULL)); /* its coming and going is no change */
    hf_stamps_release(&before);
    hf_stamps_release(&after);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    assert_int_equal(m.left_out.len, 2);
    assert_string_equal(m.left_out.items[0][strlen(s.root) + 1] == 'a' ? m.left_out.items[0]
                                                                       : m.left_out.items[1],
                        fifo);
    assert_int_equal(m.n_files, 4);
    assert_false(hf_fs_exists(fifo));
    hf_manifest_release(&m);
    struct hf_decision d;
    expect_rc(hf_lineage_get_decision(&s.b.run, NULL, 1, 1, &d, &err), HF_OK, &err);
    assert_int_equal(d.manifest.left_out.len, 2);
    hf_decision_release(&d);
    hf_strv_clear(&roots);
    free(fifo);
    free(sock);
    free(keep);
    shape_close(&s);
}

/* put_text needs room in the name for what it writes first. */
static void write_plainly(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void names_of_every_kind(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    static const char *const names[] = {"sp ace",
                                        " lead",
                                        "trail ",
                                        "new\nline",
                                        "quote\"'`",
                                        "back\\slash",
                                        "-dash",
                                        "%41+@?&#*",
                                        "\xe4\xb8\xad\xe6\x96\x87",
                                        "\xf0\x9f\x9a\x80",
                                        "\xff\xfe\x80",
                                        "\x01\x7f",
                                        ".hidden",
                                        "..two",
                                        "a:b",
                                        "caf\xc3\xa9",
                                        "cafe\xcc\x81"};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        char *p = hf_asprintf("%s/%s/%s", s.root, names[i], names[i]);
        put_noise(p, i, (unsigned)i);
        free(p);
    }
    char name[NAME_MAX + 1];
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = '\0';
    char *p = hf_asprintf("%s/%s", s.root, name);
    assert_int_equal(mkdir(p, 0700), 0);
    free(p);
    p = hf_asprintf("%s/%s/%s", s.root, name, name);
    write_plainly(p, "long");
    free(p);
    /* As roots too: what is made beside them has to fit. */
    p = below(&s, name);
    write_plainly(p, "a root");
    const char *roots[] = {"ckpt", name, NULL};
    struct hf_manifest m;
    comes_back(&s, roots, &m);
    assert_int_equal(m.n_files, 2 + 2 * HF_COUNT(names) + 2 + 1);
    write_plainly(p, "another");
    struct hf_restore_report report;
    struct hf_err err;
    expect_rc(hf_restore(&s.b.run, NULL, &m, &report, &err), HF_OK, &err);
    assert_int_equal(report.aside.len, 1);
    hf_restore_report_release(&report);
    hf_manifest_release(&m);
    free(p);
    shape_close(&s);
}

/* Makes root/ddd…/ddd…/ until the path below home has that many bytes; a file at its end. */
static void put_deep(const struct shape *s, size_t part, size_t bytes)
{
    char name[NAME_MAX + 1];
    memset(name, 'd', part);
    name[part] = '\0';
    int at = open(s->root, O_RDONLY | O_DIRECTORY);
    size_t len = strlen(s->root);
    while (len + 1 + part + 2 <= bytes) {
        assert_int_equal(mkdirat(at, name, 0700), 0);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
        len += 1 + part;
    }
    memset(name, 'f', NAME_MAX);
    name[bytes - len - 1] = '\0';
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(at >= 0 && fd >= 0);
    assert_int_equal(write(fd, "deep", 4), 4);
    close(fd);
    close(at);
}

static enum hf_rc try_save(struct shape *s, struct hf_err *err)
{
    struct hf_save_in in = save_of(&s->b, &s->claim, s->number, s->root);
    struct hf_manifest m;
    enum hf_rc rc = hf_save(&in, NULL, &m, err);
    if (rc == HF_OK) {
        hf_manifest_release(&m);
    }
    save_in_release(&in);
    return rc;
}

static void paths_up_to_the_limit(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    /* Room for the mark of what is built beside it: restored paths pass through that name. */
    put_deep(&s, 200, PATH_MAX - 1 - 40);
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    hf_manifest_release(&m);
    shape_close(&s);
}

static void too_long_and_too_deep_are_named(void **state)
{
    (void)state;
    static const struct {
        size_t part, bytes;
        const char *text;
    } rows[] = {{200, PATH_MAX + 2, "a path of 4098 bytes, more than 4095"},
                {1, 1000, "more than 200 folders in one another"}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct shape s;
        shape_open(&s, NULL);
        put_deep(&s, rows[i].part, rows[i].bytes);
        struct hf_err err = {.code = HF_OK};
        expect_rc(try_save(&s, &err), HF_ENOTSUP, &err);
        if (strstr(err.msg, rows[i].text) == NULL || strstr(err.msg, s.root) == NULL) {
            fail_msg("'%s' does not say '%s'", err.msg, rows[i].text);
        }
        char *moved = hf_asprintf("%s/r", s.b.folder); /* short enough to be removed by its path */
        assert_int_equal(rename(s.root, moved), 0);
        wipe(moved);
        free(moved);
        shape_close(&s);
    }
}

static void hard_links_are_two_files_sent_once(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    char *one = below(&s, "ckpt/weights.bin");
    char *two = below(&s, "ckpt/also.bin");
    assert_int_equal(link(one, two), 0);
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    assert_int_equal(m.bytes, 18000);
    assert_int_equal(m.bytes_sent, 9000);
    struct stat a, b;
    assert_true(stat(one, &a) == 0 && stat(two, &b) == 0);
    assert_true(a.st_ino != b.st_ino);
    hf_manifest_release(&m);
    free(one);
    free(two);
    shape_close(&s);
}

static void empty_ones_and_modes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mode_t mode;
    } rows[] = {{"ckpt/empty", 0644},     {"ckpt/closed", 0000}, {"ckpt/run", 0755},
                {"ckpt/dir/", 0755},      {"ckpt/shut/", 0000},  {"ckpt/sticky/", 01777},
                {"ckpt/readonly/", 0555}, {"ckpt/write", 0222},  {"ckpt/none", 0400}};
    struct shape s;
    shape_open(&s, NULL);
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *p = below(&s, rows[i].name);
        if (p[strlen(p) - 1] == '/') {
            assert_int_equal(mkdir(p, 0700), 0);
        } else {
            put_text(p, "");
        }
        /* Without root's rights what is closed cannot be read: that is another test. */
        mode_t mode = geteuid() == 0 ? rows[i].mode : rows[i].mode | 0400;
        assert_int_equal(chmod(p, mode), 0);
        free(p);
    }
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m); /* tree_text has the modes */
    assert_int_equal(m.n_files, 2 + HF_COUNT(rows));
    hf_manifest_release(&m);
    shape_close(&s);
}

/* Runs `fn` as somebody without root's rights, in a process of its own, and gives its answer. */
static int as_nobody(int (*fn)(struct shape *s), struct shape *s)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
            _exit(100);
        }
        _exit(fn(s));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int says(enum hf_rc rc, enum hf_rc want, const struct hf_err *err, const char *text)
{
    if (rc == want && strstr(err->msg, text) != NULL) {
        return 0;
    }
    fprintf(stderr, "# %s: %s\n", hf_rc_name(rc), rc == HF_OK ? "" : err->msg);
    return 1;
}

static int save_denied(struct shape *s)
{
    struct hf_err err = {.code = HF_OK};
    return says(try_save(s, &err), HF_EDENIED, &err, "ckpt/secret'");
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    for (int folder = 0; folder < 2; folder++) {
        struct shape s;
        shape_open(&s, "mem:denied");
        char *p = below(&s, folder ? "ckpt/secret/x" : "ckpt/secret");
        char *secret = below(&s, "ckpt/secret");
        put_text(p, "x");
        assert_int_equal(chmod(s.b.folder, 0755), 0);
        assert_int_equal(chmod(secret, 0), 0);
        assert_int_equal(as_nobody(save_denied, &s), 0);
        assert_int_equal(chmod(secret, 0700), 0);
        free(p);
        free(secret);
        shape_close(&s);
    }
}

static int restore_denied(struct shape *s)
{
    struct hf_decision d;
    struct hf_err err = {.code = HF_OK};
    struct hf_restore_report report;
    if (hf_lineage_get_decision(&s->b.run, NULL, 1, 1, &d, NULL) != HF_OK) {
        return 3;
    }
    return says(hf_restore(&s->b.run, NULL, &d.manifest, &report, &err), HF_EDENIED, &err, s->home);
}

static void a_folder_that_cannot_be_written_to_is_named(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, "mem:closed");
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    char *p = below(&s, "ckpt/weights.bin");
    put_text(p, "newer");
    char *before = tree_text(s.root);
    assert_int_equal(chmod(s.b.folder, 0755), 0);
    assert_int_equal(chmod(s.home, 0555), 0);
    assert_int_equal(as_nobody(restore_denied, &s), 0);
    assert_int_equal(chmod(s.home, 0755), 0);
    char *after = tree_text(s.root);
    assert_string_equal(after, before); /* untouched */
    /* Missing parents are made. */
    wipe(s.home);
    struct hf_restore_report report;
    struct hf_err err;
    expect_rc(hf_restore(&s.b.run, NULL, &m, &report, &err), HF_OK, &err);
    hf_restore_report_release(&report);
    /* A file where a folder above has to be. */
    wipe(s.home);
    put_text(s.home, "in the way");
    expect_rc(hf_restore(&s.b.run, NULL, &m, &report, &err), HF_EEXISTS, &err);
    assert_non_null(strstr(err.msg, s.home));
    hf_manifest_release(&m);
    free(before);
    free(after);
    free(p);
    shape_close(&s);
}

/* In a mount namespace of its own, so that the small disk goes with the process. */
static int restore_on_a_small_disk(struct shape *s)
{
    struct hf_decision d;
    struct hf_err err = {.code = HF_OK};
    struct hf_restore_report report;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", s->home, "tmpfs", 0, "size=64k") != 0) {
        return 77;
    }
    char *old = below(s, "ckpt/old");
    put_text(old, "stays");
    if (hf_lineage_get_decision(&s->b.run, NULL, 1, 1, &d, NULL) != HF_OK) {
        return 3;
    }
    int rc = says(hf_restore(&s->b.run, NULL, &d.manifest, &report, &err), HF_EFULL, &err, "big");
    char *now = tree_text(s->root);
    struct hf_strv names = {.len = 0};
    hf_strv_add(&names, s->home);
    struct hf_fileset set;
    if (rc == 0 && (strstr(now, "old") == NULL || hf_fileset_list(&names, &set, NULL) != HF_OK ||
                    set.len != 3)) { /* home, ckpt, old: nothing half-made is left */
        fprintf(stderr, "# %s", now);
        return 4;
    }
    return rc;
}

static void test_n1_a_full_disk_at_a_restore_changes_nothing(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, "mem:small");
    char *big = below(&s, "ckpt/big");
    put_noise(big, 1u << 20, 3);
    struct hf_manifest m;
    comes_back(&s, only_ckpt, &m);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(restore_on_a_small_disk(&s));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    hf_manifest_release(&m);
    free(big);
    shape_close(&s);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skip: no mount namespaces here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* One that was a folder is a file at the next save, and back. */
static void a_folder_becomes_a_file(void **state)
{
    (void)state;
    struct shape s;
    shape_open(&s, NULL);
    char *as_folder = below(&s, "ckpt/thing/inside");
    char *as_file = below(&s, "ckpt/thing");
    struct hf_manifest m[3];
    put_text(as_folder, "a");
    comes_back(&s, only_ckpt, &m[0]);
    wipe(as_file);
    put_text(as_file, "b");
    comes_back(&s, only_ckpt, &m[1]);
    struct hf_restore_report report;
    struct hf_err err;
    char *now = tree_text(s.root);
    expect_rc(hf_restore(&s.b.run, NULL, &m[0], &report, &err), HF_OK, &err);
    assert_int_equal(report.aside.len, 1);
    assert_true(hf_fs_exists(as_folder));
    hf_restore_report_release(&report);
    expect_rc(hf_restore(&s.b.run, NULL, &m[1], &report, &err), HF_OK, &err);
    char *again = tree_text(s.root);
    assert_string_equal(again, now);
    hf_restore_report_release(&report);
    hf_manifest_release(&m[0]);
    hf_manifest_release(&m[1]);
    free(now);
    free(again);
    free(as_file);
    free(as_folder);
    shape_close(&s);
}

static long peak_mib(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return use.ru_maxrss / 1024;
}

/* HOLDFAST_TEST_LONG: 20,000 and 100,000. */
static void many_tiny_files(void **state)
{
    (void)state;
    const char *more = getenv("HOLDFAST_TEST_LONG");
    unsigned counts[] = {2000, 20000, 100000};
    size_t n = more != NULL && more[0] != '\0' ? 3 : 1;
    for (size_t k = 0; k < n; k++) {
        struct shape s;
        shape_open(&s, "mem:tiny");
        for (unsigned i = 0; i < counts[k]; i++) {
            char *p = hf_asprintf("%s/%03u/f%u", s.root, i % 200, i);
            char text[16];
            snprintf(text, sizeof(text), "%u", i);
            if (i < 200) {
                put_text(p, text);
            } else {
                write_plainly(p, text);
            }
            free(p);
        }
        struct hf_manifest m;
        uint64_t began_ns = hf_now_ns();
        comes_back(&s, only_ckpt, &m);
        print_message("%u tiny files there and back in %llu ms, peak %ld MiB\n", counts[k],
                      (unsigned long long)((hf_now_ns() - began_ns) / HF_MS), peak_mib());
        assert_int_equal(m.n_files, 2 + 200 + counts[k]);
        assert_true(m.n_blocks >= counts[k]);
        hf_manifest_release(&m);
        shape_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_o2_links_are_stored_as_links),
        cmocka_unit_test(test_o2_a_root_may_be_a_link),
        cmocka_unit_test(where_links_lead),
        cmocka_unit_test(a_stray_socket_costs_nothing),
        cmocka_unit_test(names_of_every_kind),
        cmocka_unit_test(paths_up_to_the_limit),
        cmocka_unit_test(too_long_and_too_deep_are_named),
        cmocka_unit_test(hard_links_are_two_files_sent_once),
        cmocka_unit_test(empty_ones_and_modes),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(a_folder_that_cannot_be_written_to_is_named),
        cmocka_unit_test(test_n1_a_full_disk_at_a_restore_changes_nothing),
        cmocka_unit_test(a_folder_becomes_a_file),
        cmocka_unit_test(many_tiny_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
