/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint's life with every call failing in turn: three saves, retention, a hand-off, a
 * restore, with the 1st, 2nd, 3rd... call of the file store, of the file system or of the store
 * as a whole failing, or its reply lost, until a run has nothing left to fail. And a writer
 * killed at random moments. After each: what was reported committed, or something newer, restores
 * bit for bit; no descriptor, no temporary file and no half-built folder is left.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/restore.h"
#include "checkpoint/retain.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define KILLS      100
#define STRIDE     9 /* of failures that last, which are slow: every one in a long run */
#define WRONG_EXIT 9

/* One life: a folder with the store and the tree in it. */
struct life {
    char *folder, *uri, *root;
    struct hf_store *store;
    struct hf_run run;
    int64_t committed; /* the newest version that was reported so; 0: none */
    int64_t restored;  /* the version that was reported restored; 0: none */
};

static bool is_long(void)
{
    return getenv("HOLDFAST_TEST_LONG") != NULL;
}

/* Without fault points: this is the trainer. */
static void write_plainly(const char *root, const char *name, size_t len, unsigned seed)
{
    char *p = hf_asprintf("%s/%s", root, name);
    for (char *slash = strchr(p + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(p, 0755);
        *slash = '/';
    }
    FILE *f = fopen(p, "w");
    assert_non_null(f);
    uint64_t x = seed + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        putc((int)(x >> 56), f);
    }
    assert_int_equal(fclose(f), 0);
    free(p);
}

/* What the tree holds in a version. */
static void write_version(const char *root, unsigned version)
{
    static const struct {
        const char *name;
        unsigned same_for; /* versions */
        unsigned len;
    } files[] = {{"frozen.bin", 1000, 3000}, {"sub/rank0.pt", 1, 6000}, {"sub/step.txt", 1, 9}};
    for (size_t i = 0; i < HF_COUNT(files); i++) {
        write_plainly(root, files[i].name, files[i].len,
                      version / files[i].same_for * 7 + (unsigned)i);
    }
    char *p = hf_asprintf("%s/latest", root);
    unlink(p);
    char target[32];
    snprintf(target, sizeof(target), "sub/%u", version);
    assert_int_equal(symlink(target, p), 0);
    free(p);
}

/* The tree must be exactly this version. */
static void check_version(const struct life *l, unsigned version)
{
    char *fresh = hf_asprintf("%s/compare", l->folder);
    write_version(fresh, version);
    char *want = tree_text(fresh);
    char *got = tree_text(l->root);
    assert_string_equal(got, want);
    free(want);
    free(got);
    struct hf_err err;
    expect_rc(hf_remove_all(fresh, &err), HF_OK, &err);
    free(fresh);
}

static void life_make(struct life *l)
{
    *l = (struct life){.folder = temp_folder()};
    l->uri = hf_asprintf("file://%s/store", l->folder);
    l->root = hf_asprintf("%s/home/ckpt", l->folder);
}

static void life_end(struct life *l)
{
    struct hf_err err;
    expect_rc(hf_remove_all(l->folder, &err), HF_OK, &err);
    free(l->folder);
    free(l->uri);
    free(l->root);
}

static enum hf_rc life_save(struct life *l, const struct hf_claim *claim, uint32_t number,
                            unsigned version, struct hf_manifest *last)
{
    struct bench b = {.run = l->run};
    struct hf_save_in in = save_of(&b, claim, number, l->root);
    in.step = version;
    in.lanes = 1;
    in.parent = last->attempt > 0 ? last : NULL;
    struct hf_manifest m;
    enum hf_rc rc = hf_save(&in, NULL, &m, NULL);
    save_in_release(&in);
    if (rc == HF_OK) {
        hf_manifest_release(last);
        *last = m;
        l->committed = version;
    }
    return rc;
}

/* Claims the next attempt, seals, chooses, restores. HF_ENOTFOUND: nothing to restore. */
static enum hf_rc life_resume(struct life *l, uint32_t attempt)
{
    struct hf_claim claim = make_claim(attempt);
    struct hf_manifest m;
    struct hf_restore_report report;
    enum hf_rc rc = hf_lineage_claim(&l->run, NULL, &claim, NULL);
    rc = rc == HF_OK ? hf_lineage_seal(&l->run, NULL, &claim, NULL) : rc;
    rc = rc == HF_OK ? hf_lineage_choose(&l->run, NULL, &claim, 0, &m, NULL) : rc;
    if (rc == HF_OK) {
        rc = hf_lineage_put_base(&l->run, NULL, &claim, &m, NULL);
        rc = rc == HF_OK ? hf_restore(&l->run, NULL, &m, &report, NULL) : rc;
        if (rc == HF_OK) {
            l->restored = m.step;
            hf_restore_report_release(&report);
        }
        hf_manifest_release(&m);
    }
    hf_claim_release(&claim);
    return rc;
}

/* Goes as far as the failures let it; stops at the first one, as an attempt does. */
static void live(struct life *l)
{
    struct hf_claim one = make_claim(1);
    struct hf_manifest last = {.step = -1};
    uint64_t removed = 0;
    enum hf_rc rc = hf_run_open(&l->run, NULL, NULL, NULL);
    rc = rc == HF_OK ? hf_lineage_claim(&l->run, NULL, &one, NULL) : rc;
    for (unsigned version = 1; version <= 3 && rc == HF_OK; version++) {
        write_version(l->root, version);
        rc = life_save(l, &one, last.number + 1, version, &last);
    }
    rc = rc == HF_OK ? hf_retain(&l->run, NULL, &one, 1, &removed, NULL) : rc;
    hf_manifest_release(&last);
    hf_claim_release(&one);
    if (rc == HF_OK) {
        write_version(l->root, 90); /* in the way */
        rc = life_resume(l, 2);
        assert_true(rc != HF_OK || l->restored == 3);
    }
}

static unsigned count_names(const char *folder, const char *part)
{
    unsigned n = 0;
    DIR *d = opendir(folder);
    if (d == NULL) {
        return 0;
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        n += strstr(e->d_name, part) != NULL;
        if (e->d_type == DT_DIR) {
            char *below = hf_asprintf("%s/%s", folder, e->d_name);
            n += count_names(below, part);
            free(below);
        }
    }
    closedir(d);
    return n;
}

static unsigned open_files(void)
{
    return count_names("/proc/self/fd", "");
}

/* Another machine takes over, with nothing failing: the newest committed one, or a newer one. */
static void recover(struct life *l)
{
    struct hf_err err;
    uint32_t highest = 0;
    struct hf_claim claim;
    expect_rc(hf_store_open(l->uri, NULL, &l->store, &err), HF_OK, &err);
    l->run = (struct hf_run){.store = l->store, .name = "job"};
    expect_rc(hf_run_open(&l->run, NULL, NULL, &err), HF_OK, &err);
    expect_rc(hf_lineage_highest(&l->run, NULL, &highest, &claim, &err), HF_OK, &err);
    hf_claim_release(&claim);
    l->restored = 0;
    enum hf_rc rc = life_resume(l, highest + 1);
    if (rc == HF_ENOTFOUND && l->committed == 0) {
        rc = HF_OK;
    }
    expect_rc(rc, HF_OK, NULL);
    if (l->restored < l->committed) {
        fail_msg("version %lld was reported, %lld restored", (long long)l->committed,
                 (long long)l->restored);
    }
    if (l->restored > 0) {
        check_version(l, (unsigned)l->restored);
    }
    assert_int_equal(count_names(l->root, ".holdfast-"), 0);
    char *home = hf_asprintf("%s/home", l->folder);
    assert_int_equal(count_names(home, ".holdfast-new-"), 0);
    free(home);
    hf_store_close(l->store);
}

/* One run with the nth call of the domain failing; false: there was no nth call. */
static bool fail_call(const char *domain, uint64_t nth, bool and_later)
{
    unsigned fds = open_files();
    struct life l;
    life_make(&l);
    write_version(l.root, 1);
    hf_fault_arm(domain, nth, and_later);
    if (hf_store_open(l.uri, NULL, &l.store, NULL) == HF_OK) {
        l.run = (struct hf_run){.store = l.store, .name = "job"};
        live(&l);
        hf_store_close(l.store);
    }
    bool fired = hf_fault_fired(domain);
    hf_fault_arm(domain, 0, false);
    assert_int_equal(count_names(l.folder, ".tmp-"), 0);
    if (l.restored > 0) {
        check_version(&l, (unsigned)l.restored);
    }
    recover(&l);
    life_end(&l);
    assert_int_equal(open_files(), fds);
    return fired;
}

static void loop(const char *domain)
{
    uint64_t nth = 1;
    while (fail_call(domain, nth, false)) {
        nth++;
    }
    print_message("%llu calls of '%s' failed in turn\n", (unsigned long long)nth - 1, domain);
    assert_true(nth > 50);
    uint64_t calls = nth;
    for (nth = 1; nth < calls; nth += is_long() ? 1 : STRIDE) {
        fail_call(domain, nth, true);
    }
}

static void store_calls_fail(void **state)
{
    (void)state;
    loop("store");
}

static void file_calls_fail(void **state)
{
    (void)state;
    loop("file");
}

static bool spoil_call(enum hf_store_fault_kind kind, uint64_t nth, bool and_later)
{
    struct life l;
    struct hf_store *inner = NULL;
    struct hf_err err;
    life_make(&l);
    write_version(l.root, 1);
    expect_rc(hf_store_open(l.uri, NULL, &inner, &err), HF_OK, &err);
    l.store = hf_store_faulty(inner);
    l.run = (struct hf_run){.store = l.store, .name = "job"};
    hf_store_fault_set(l.store, kind, nth, and_later);
    live(&l);
    bool reached = hf_store_fault_calls(l.store) >= nth;
    hf_store_close(l.store);
    recover(&l);
    life_end(&l);
    return reached;
}

static void the_store_fails_or_loses_replies(void **state)
{
    (void)state;
    static const enum hf_store_fault_kind kinds[] = {HF_SFAULT_FAIL, HF_SFAULT_LOST_REPLY};
    for (size_t i = 0; i < HF_COUNT(kinds); i++) {
        uint64_t nth = 1;
        while (spoil_call(kinds[i], nth, false)) {
            nth++;
        }
        assert_true(nth > 20);
        uint64_t calls = nth;
        for (nth = 1; nth < calls; nth += is_long() ? 1 : STRIDE) {
            spoil_call(kinds[i], nth, true);
        }
    }
}

/* The child: an attempt that saves and tells each version that is committed. */
static void save_for_ever(struct life *l, uint32_t attempt, unsigned version, int tell)
{
    struct hf_claim claim = make_claim(attempt);
    struct hf_manifest last = {.step = -1};
    uint64_t removed = 0;
    if (hf_store_open(l->uri, NULL, &l->store, NULL) != HF_OK) {
        _exit(WRONG_EXIT);
    }
    l->run = (struct hf_run){.store = l->store, .name = "job"};
    if (hf_run_open(&l->run, NULL, NULL, NULL) != HF_OK ||
        hf_lineage_claim(&l->run, NULL, &claim, NULL) != HF_OK ||
        hf_lineage_seal(&l->run, NULL, &claim, NULL) != HF_OK) {
        _exit(WRONG_EXIT);
    }
    for (uint32_t number = 1;; number++) {
        version++;
        write_version(l->root, version);
        if (life_save(l, &claim, number, version, &last) != HF_OK ||
            write(tell, &version, sizeof(version)) != sizeof(version) ||
            hf_retain(&l->run, NULL, &claim, 1, &removed, NULL) != HF_OK) {
            _exit(WRONG_EXIT);
        }
    }
}

static void kill_after(pid_t pid, unsigned us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
    kill(pid, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void writers_killed_at_any_moment(void **state)
{
    (void)state;
    unsigned seed = (unsigned)hf_random_u64();
    print_message("seed %u\n", seed);
    struct life l;
    life_make(&l);
    uint32_t highest = 0;
    unsigned told = 0;
    for (int round = 0; round < KILLS; round++) {
        int tell[2];
        assert_int_equal(pipe(tell), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(tell[0]);
            save_for_ever(&l, highest + 1, 1000u * (unsigned)(round + 1), tell[1]);
        }
        close(tell[1]);
        kill_after(pid, (unsigned)rand_r(&seed) % (round % 2 == 0 ? 20000 : 120000));
        unsigned version = 0;
        while (read(tell[0], &version, sizeof(version)) == sizeof(version)) {
            l.committed = version;
            told++;
        }
        close(tell[0]);
        recover(&l);
        struct hf_err err;
        struct hf_claim claim;
        expect_rc(hf_store_open(l.uri, NULL, &l.store, &err), HF_OK, &err);
        l.run = (struct hf_run){.store = l.store, .name = "job"};
        expect_rc(hf_lineage_highest(&l.run, NULL, &highest, &claim, &err), HF_OK, &err);
        hf_claim_release(&claim);
        hf_store_close(l.store);
    }
    print_message("%u checkpoints were reported committed, none was lost\n", told);
    assert_true(told > 0);
    life_end(&l);
}

/* The child: puts something into the tree, tells so, and restores over it, again and again. */
static void restore_for_ever(struct life *l, const struct hf_manifest *m, int tell)
{
    for (;;) {
        struct hf_restore_report report;
        write_plainly(l->root, "precious", 20, 1);
        if (write(tell, "x", 1) != 1 || hf_restore(&l->run, NULL, m, &report, NULL) != HF_OK) {
            _exit(WRONG_EXIT);
        }
        hf_restore_report_release(&report);
    }
}

static void restores_killed_at_any_moment(void **state)
{
    (void)state;
    unsigned seed = (unsigned)hf_random_u64();
    print_message("seed %u\n", seed);
    struct life l;
    struct hf_err err;
    life_make(&l);
    write_version(l.root, 1);
    expect_rc(hf_store_open(l.uri, NULL, &l.store, &err), HF_OK, &err);
    l.run = (struct hf_run){.store = l.store, .name = "job"};
    struct hf_claim one = make_claim(1);
    struct hf_manifest m = {.step = -1};
    expect_rc(hf_lineage_claim(&l.run, NULL, &one, &err), HF_OK, &err);
    expect_rc(life_save(&l, &one, 1, 1, &m), HF_OK, NULL);
    char *home = hf_asprintf("%s/home", l.folder);
    unsigned told = 0;
    for (int round = 0; round < KILLS / 2; round++) {
        int tell[2];
        assert_int_equal(pipe(tell), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(tell[0]);
            restore_for_ever(&l, &m, tell[1]);
        }
        close(tell[1]);
        kill_after(pid, (unsigned)rand_r(&seed) % 30000);
        char x = 0;
        while (read(tell[0], &x, 1) == 1) {
            told++;
        }
        close(tell[0]);
        struct hf_restore_report report;
        expect_rc(hf_restore(&l.run, NULL, &m, &report, &err), HF_OK, &err);
        hf_restore_report_release(&report);
        check_version(&l, 1);
        assert_int_equal(count_names(home, ".holdfast-new-"), 0);
        /* Each thing that was put into the tree was moved aside; none is gone. */
        assert_true(count_names(home, "precious") >= told);
    }
    print_message("%u times something was in the way\n", told);
    assert_true(told > 0);
    free(home);
    hf_manifest_release(&m);
    hf_claim_release(&one);
    hf_store_close(l.store);
    life_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_calls_fail),
        cmocka_unit_test(file_calls_fail),
        cmocka_unit_test(the_store_fails_or_loses_replies),
        cmocka_unit_test(writers_killed_at_any_moment),
        cmocka_unit_test(restores_killed_at_any_moment),
    };
    /* A kill does not ask the disk: memory does, and a thousand lives flush often. */
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
