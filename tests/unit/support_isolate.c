/* SPDX-License-Identifier: Apache-2.0
 *
 * See support_isolate.h.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "tests/unit/support_isolate.h"

/* ---- a tree ---------------------------------------------------------------------------- */

void tree_ok(int result)
{
    if (result < 0) {
        fail_msg("%s", strerror(errno));
    }
}

char *tree_at(const char *dir, const char *name)
{
    return hf_asprintf("%s/%s", dir, name);
}

void tree_put(const char *dir, const char *name, const void *data, size_t len, mode_t mode)
{
    HF_CLEANUP(hf_freep) char *path = tree_at(dir, name);
    assert_int_equal(HF_OK, hf_fs_write(path, (struct hf_span){data, len}, mode, false, NULL));
    tree_ok(chmod(path, mode));
}

static void make_dir(const char *dir, const char *name, mode_t mode)
{
    HF_CLEANUP(hf_freep) char *path = tree_at(dir, name);
    tree_ok(mkdir(path, 0700));
    tree_ok(chmod(path, mode));
}

void tree_make(const char *dir)
{
    char big[70000];
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (char)(i * 7 + i / 251);
    }
    make_dir(dir, "src", 0755);
    make_dir(dir, "src/deep", 0750);
    make_dir(dir, "src/empty", 0700);
    make_dir(dir, ".git", 0755);
    make_dir(dir, "data", 0755);
    tree_put(dir, ".git/config", "g", 1, 0644);
    tree_put(dir, "train.py", "print(1)\n", 9, 0644);
    tree_put(dir, "run.sh", "#!/bin/sh\n", 10, 0755);
    tree_put(dir, "secret", "s", 1, 0600);
    tree_put(dir, "read-only", "r", 1, 0444);
    tree_put(dir, "nothing", "", 0, 0640);
    tree_put(dir, "src/big.bin", big, sizeof(big), 0644);
    tree_put(dir, "src/deep/a b\nc", "odd", 3, 0644);
    tree_put(dir, "src/deep/\xff\xfe", "bytes", 5, 0644);
    tree_put(dir, "data/one", "twins", 5, 0644);
    tree_put(dir, "data/locked", "l", 1, 0644);
    HF_CLEANUP(hf_freep) char *one = tree_at(dir, "data/one");
    HF_CLEANUP(hf_freep) char *two = tree_at(dir, "data/two");
    HF_CLEANUP(hf_freep) char *link_path = tree_at(dir, "src/link");
    HF_CLEANUP(hf_freep) char *dangling = tree_at(dir, "dangling");
    HF_CLEANUP(hf_freep) char *fifo = tree_at(dir, "fifo");
    HF_CLEANUP(hf_freep) char *data = tree_at(dir, "data");
    tree_ok(link(one, two));
    tree_ok(symlink("../train.py", link_path));
    tree_ok(symlink("/nowhere/at/all", dangling));
    tree_ok(mkfifo(fifo, 0620));
    tree_ok(chmod(data, 0555));
}

/* ---- its listing ------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum hf_rc tree_gather(void *user, const char *path, bool *descend, struct hf_err *err)
{
    (void)err;
    struct stat st;
    tree_ok(lstat(path, &st));
    hf_strv_add(user, path);
    *descend = S_ISDIR(st.st_mode);
    return HF_OK;
}

static void list_one(struct hf_buf *out, const char *root, const char *path)
{
    struct stat st;
    tree_ok(lstat(path, &st));
    char content[HF_SHA256_HEX] = "";
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(path, content, sizeof(content) - 1);
        tree_ok((int)n);
        content[n] = '\0';
    }
    if (S_ISREG(st.st_mode) && st.st_size < (1 << 20)) {
        struct hf_buf b;
        hf_buf_init(&b, 1 << 20);
        assert_int_equal(HF_OK, hf_fs_read(path, &b, NULL));
        hf_sha256_hex(hf_buf_span(&b), content);
        hf_buf_release(&b);
    }
    assert_int_equal(HF_OK, hf_buf_addf(out, NULL, "%s|%o|%u|%u|%jd|%jd.%09ld|%s\n",
                                        path + strlen(root), st.st_mode, st.st_uid, st.st_gid,
                                        S_ISDIR(st.st_mode) ? 0 : (intmax_t)st.st_size,
                                        (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, content));
}

/* Owned by the caller: a line a path with kind, mode, owner, size, time, target or content. */
char *tree_list(const char *root)
{
    struct hf_strv paths = {0};
    hf_strv_add(&paths, root);
    assert_int_equal(HF_OK, hf_iso_walk(root, tree_gather, &paths, NULL));
    qsort(paths.items, paths.len, sizeof(char *), by_name);
    struct hf_buf out;
    hf_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < paths.len; i++) {
        list_one(&out, root, paths.items[i]);
    }
    hf_strv_clear(&paths);
    char *text = hf_strdup(hf_buf_str(&out));
    hf_buf_release(&out);
    return text;
}

void tree_same(const char *root, const char *before)
{
    HF_CLEANUP(hf_freep) char *now = tree_list(root);
    size_t i = 0;
    while (before[i] != '\0' && before[i] == now[i]) {
        i++;
    }
    if (before[i] != now[i]) {
        while (i > 0 && before[i - 1] != '\n') {
            i--;
        }
        fail_msg("'%s' was '%.*s', is '%.*s'", root, (int)strcspn(before + i, "\n"), before + i,
                 (int)strcspn(now + i, "\n"), now + i);
    }
}

bool tree_attempted(const char *root)
{
    HF_CLEANUP(hf_freep) char *created = tree_at(root, "by-the-attempt");
    return hf_fs_exists(created);
}

/* ---- an attempt ------------------------------------------------------------------------ */

/* Paths that the attempts below write, remove, replace and chmod; none needs to be there. */
static const char *const targets[] = {
    "train.py", "run.sh",   "read-only", "nothing",      "src/big.bin", "src/deep",
    "src/link", "dangling", "fifo",      "data/one",     "data/locked", "src",
    "data",     "new",      "new/sub",   "src/empty",    "src/new.pt",  "secret",
    "out.log",  "new/x",    "new/sub/y", "src/deep/new", "data/new",    "src/deep/\xff\xfe",
};

void tree_write(const char *path, unsigned n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | (n % 2 == 0 ? O_TRUNC : O_APPEND), 0666);
    if (fd >= 0) {
        dprintf(fd, "attempt %u\n", n);
        close(fd);
    }
}

static void one_change(const char *dir, unsigned n)
{
    HF_CLEANUP(hf_freep) char *path = tree_at(dir, targets[n / 16 % HF_COUNT(targets)]);
    HF_CLEANUP(hf_freep) char *other = tree_at(dir, targets[n / 512 % HF_COUNT(targets)]);
    int ignored = 0;
    switch (n % 10) {
    case 0:
    case 1:
        tree_write(path, n);
        break;
    case 2:
        ignored = unlink(path);
        break;
    case 3:
        ignored = mkdir(path, n % 3 == 0 ? 0555 : 0755);
        break;
    case 4:
        ignored = rename(path, other);
        break;
    case 5:
        ignored = chmod(path, (n / 7) & 0777);
        break;
    case 6:
        ignored = symlink("elsewhere", path);
        break;
    case 7:
        ignored = hf_iso_remove(path, NULL) == HF_OK ? 0 : -1;
        break;
    case 8:
        ignored = utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
        break;
    default:
        ignored = link(path, other);
        break;
    }
    (void)ignored;
}

void tree_attempt(const char *dir, unsigned seed)
{
    uint64_t x = seed * UINT64_C(2654435761) + 12345;
    for (int i = 0; i < 60; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        one_change(dir, (unsigned)(x >> 33));
    }
    HF_CLEANUP(hf_freep) char *created = tree_at(dir, "by-the-attempt");
    tree_write(created, seed);
}

/* ---- set-up ---------------------------------------------------------------------------- */

int place_setup(void **state)
{
    struct place *p = HF_NEW(struct place);
    const char *tmp = getenv("TMPDIR");
    p->base = hf_asprintf("%s/holdfast-isolate-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(p->base) == NULL || chmod(p->base, 0755) != 0) {
        return -1;
    }
    p->user = tree_at(p->base, "user");
    p->work = tree_at(p->base, "work");
    tree_ok(mkdir(p->user, 0755));
    tree_ok(chdir(p->user));
    tree_make(p->user);
    hf_strv_add(&p->dirs, p->user);
    *state = p;
    return 0;
}

int place_teardown(void **state)
{
    struct place *p = *state;
    int rc = chdir("/");
    rc |= hf_iso_remove(p->base, NULL) == HF_OK ? 0 : -1;
    hf_strv_clear(&p->dirs);
    hf_strv_clear(&p->notes);
    hf_free(p->base);
    hf_free(p->user);
    hf_free(p->work);
    hf_free(p);
    return rc;
}

struct hf_isolate *place_begin(struct place *p, enum hf_isolate_mode mode)
{
    struct hf_isolate *iso = NULL;
    struct hf_err err = {0};
    if (hf_isolate_begin_as(mode, &p->dirs, p->work, &iso, &p->notes, &err) != HF_OK) {
        fail_msg("begin: %s", err.msg);
    }
    return iso;
}

void must_be_ok(enum hf_rc rc, const struct hf_err *err)
{
    if (rc != HF_OK) {
        fail_msg("%s: %s", hf_rc_name(rc), err->msg);
    }
}

bool place_noted(const struct place *p, const char *text)
{
    for (size_t i = 0; i < p->notes.len; i++) {
        if (strstr(p->notes.items[i], text) != NULL) {
            return true;
        }
    }
    return false;
}

/* Nothing of a drill is left in its folder, but the lock and what recoveries kept. */
void place_clean(const char *work)
{
    DIR *d = opendir(work);
    assert_non_null(d);
    for (const struct dirent *e = NULL; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, "isolate.json") == 0 || strcmp(e->d_name, "isolate.list") == 0) {
            fail_msg("'%s' was left behind", e->d_name);
        }
    }
    closedir(d);
}

void place_drill(struct place *p, unsigned seed)
{
    struct hf_err err = {0};
    struct hf_isolate *iso = place_begin(p, HF_ISOLATE_JOURNAL);
    for (unsigned machine = 0; machine < 2; machine++) {
        tree_attempt(p->user, seed + machine);
        must_be_ok(hf_isolate_new_machine(iso, &err), &err);
    }
    tree_attempt(p->user, seed + 7);
    must_be_ok(hf_isolate_end(iso, &err), &err);
}

bool reap_child(pid_t pid, int want_signal)
{
    int status = 0;
    tree_ok(waitpid(pid, &status, 0));
    if (WIFSIGNALED(status)) {
        assert_int_equal(want_signal, WTERMSIG(status));
        return true;
    }
    assert_int_equal(0, WEXITSTATUS(status));
    return false;
}

/* A failed assertion of the child makes cmocka go on with the other tests there; its exit status
 * tells in the end. */
bool place_in_child(struct place *p, void (*fn)(struct place *p))
{
    pid_t pid = fork();
    tree_ok(pid);
    if (pid == 0) {
        fn(p);
        _exit(0);
    }
    int status = 0;
    tree_ok(waitpid(pid, &status, 0));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        return false;
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(0, WEXITSTATUS(status));
    return true;
}
