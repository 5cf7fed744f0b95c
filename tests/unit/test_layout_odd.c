/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/layout over folders as they should not be: what cannot be read, goes away meanwhile or
 * is no file at all, odd names, and how much work 20,000 entries are, counted in reads.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/mem.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

/* ---- not readable, going away, not files ---- */

static void test_what_cannot_be_read(void **state)
{
    (void)state;
    char *folder = temp_folder();
    put_in(folder, "closed.pt", MAKE_ZIP64, NULL);
    put_in(folder, "closed-7/m.pt", MAKE_ZIP64, NULL);
    put_in(folder, "listed-8/m.pt", MAKE_ZIP64, NULL);
    put_in(folder, "inner-9/closed/m.pt", MAKE_ZIP64, NULL);
    static const struct {
        const char *name;
        mode_t mode;
    } closed[] = {{"closed.pt", 0}, {"closed-7", 0}, {"listed-8", 0444}, {"inner-9/closed", 0}};
    for (size_t i = 0; i < HF_COUNT(closed); i++) {
        char *path = hf_asprintf("%s/%s", folder, closed[i].name);
        assert_int_equal(chmod(path, closed[i].mode), 0);
        free(path);
    }
    assert_int_equal(chmod(folder, 0755), 0);
    /* Root reads everything. */
    bool root = geteuid() == 0;
    assert_true(!root || seteuid(65534) == 0);
    struct hf_layout_looks looks;
    struct hf_err err = {0};
    enum hf_rc rc = hf_layout_scan(folder, 0, &looks, &err);
    assert_true(!root || seteuid(0) == 0);
    expect_rc(rc, HF_OK, &err);
    assert_int_equal(looks.len, 4);
    for (size_t i = 0; i < looks.len; i++) {
        assert_int_equal(looks.items[i].state, HF_LAYOUT_PARTIAL);
        assert_non_null(strstr(looks.items[i].why, "cannot be read"));
    }
    hf_layout_looks_release(&looks);
    for (size_t i = 0; i < HF_COUNT(closed); i++) {
        char *path = hf_asprintf("%s/%s", folder, closed[i].name);
        assert_int_equal(chmod(path, 0755), 0);
        free(path);
    }
    remove_tree(folder);
}

static void test_no_folder(void **state)
{
    (void)state;
    char *folder = temp_folder();
    char *file = hf_asprintf("%s/a.pt", folder);
    char *gone = hf_asprintf("%s/gone", folder);
    char *slash = hf_asprintf("%s///", folder);
    struct hf_layout_looks looks;
    struct hf_layout_look look;
    struct hf_err err;
    put_in(folder, "a.pt", MAKE_ZIP64, NULL);
    assert_int_equal(hf_layout_scan(file, 0, &looks, &err), HF_EINVAL);
    assert_int_equal(hf_layout_scan(gone, 0, &looks, &err), HF_ENOTFOUND);
    assert_int_equal(looks.len, 0);
    assert_int_equal(hf_layout_judge(gone, 0, &look, &err), HF_ENOTFOUND);
    assert_int_equal(hf_layout_judge("a.pt", 0, &look, &err), HF_EINVAL);
    assert_int_equal(hf_layout_judge(slash, 0, &look, &err), HF_EINVAL);
    /* However the folder is written, its paths have single slashes. */
    expect_rc(hf_layout_scan(slash, 0, &looks, &err), HF_OK, &err);
    assert_int_equal(looks.len, 1);
    assert_string_equal(looks.items[0].path, file);
    hf_layout_looks_release(&looks);
    free(slash);
    free(gone);
    free(file);
    remove_tree(folder);
}

static void test_neither_file_nor_folder(void **state)
{
    (void)state;
    char *folder = temp_folder();
    char *fifo = hf_asprintf("%s/step-5.pt", folder);
    char *inner = hf_asprintf("%s/checkpoint-6/optimizer.pt", folder);
    put_in(folder, "checkpoint-6/model.safetensors", MAKE_TENSORS, NULL);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkfifo(inner, 0600), 0);
    struct hf_layout_looks looks = scan_folder(folder, 0);
    expect_state(&looks, "step-5.pt", HF_LAYOUT_FOREIGN);
    expect_state(&looks, "checkpoint-6", HF_LAYOUT_PARTIAL);
    hf_layout_looks_release(&looks);
    free(inner);
    free(fifo);
    remove_tree(folder);
}

struct churn {
    const char *folder;
    atomic_bool stop;
    atomic_uint rounds;
};

static void *churn_thread(void *arg)
{
    struct churn *c = arg;
    char *dir = hf_asprintf("%s/checkpoint-7", c->folder);
    char *model = hf_asprintf("%s/model.safetensors", dir);
    char *last = hf_asprintf("%s/trainer_state.json", dir);
    char *file = hf_asprintf("%s/step-8.pt", c->folder);
    char *from = hf_asprintf("%s/whole.pt", c->folder);
    char *data = hf_asprintf("%s/whole.safetensors", c->folder);
    char *text = hf_asprintf("%s/whole.json", c->folder);
    while (!atomic_load(&c->stop)) {
        /* cmocka is not for threads: what fails here shows as a state that may not be. */
        (void)mkdir(dir, 0755);
        (void)!link(data, model);
        (void)!link(text, last);
        (void)!link(from, file);
        (void)unlink(file);
        (void)unlink(last);
        (void)unlink(model);
        (void)rmdir(dir);
        atomic_fetch_add(&c->rounds, 1);
    }
    free(text);
    free(data);
    free(from);
    free(file);
    free(last);
    free(model);
    free(dir);
    return NULL;
}

/* Entries come and go while they are looked at. No call fails for it, and what is not there all the
 * time is at no time whole without its last file. */
static void test_vanishing_entries(void **state)
{
    (void)state;
    char *folder = temp_folder();
    struct churn c = {.folder = folder};
    put_in(folder, "whole.pt", MAKE_ZIP64, NULL);
    put_in(folder, "whole.safetensors", MAKE_TENSORS, NULL);
    put_in(folder, "whole.json", MAKE_TEXT, "{}");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, churn_thread, &c), 0);
    unsigned seen = 0;
    for (unsigned i = 0; i < 100000 && (i < 300 || seen == 0 || atomic_load(&c.rounds) < 300);
         i++) {
        struct hf_layout_looks looks = scan_folder(folder, 0);
        expect_state(&looks, "whole.pt", HF_LAYOUT_WHOLE);
        expect_state(&looks, "whole.safetensors", HF_LAYOUT_WHOLE);
        const struct hf_layout_look *l = find_look(&looks, "checkpoint-7");
        assert_true(l == NULL || l->state == HF_LAYOUT_WHOLE || l->state == HF_LAYOUT_PARTIAL);
        /* Gone is not the same as not readable. */
        assert_true(l == NULL || strcmp(l->why, "it cannot be read") != 0);
        seen += l != NULL ? 1 : 0;
        hf_layout_looks_release(&looks);
        struct hf_layout_look one = look_at_path(folder, "step-8.pt", 0);
        hf_layout_look_release(&one);
    }
    atomic_store(&c.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen > 0 && atomic_load(&c.rounds) >= 300);
    remove_tree(folder);
}

/* ---- names ---- */

static void hard_link(const char *folder, const char *from, char *name_taken)
{
    char *source = hf_asprintf("%s/%s", folder, from);
    char *path = hf_asprintf("%s/%s", folder, name_taken);
    assert_int_equal(link(source, path), 0);
    free(path);
    free(source);
    free(name_taken);
}

static void test_odd_names(void **state)
{
    (void)state;
    char longest[256];
    memset(longest, 'x', 255);
    memcpy(longest + 247, "-step=5", 7);
    longest[255] = '\0';
    const char *const names[] = {
        "step=1\n.pt", "step=2\xff\xfe.pt", "step=3\x1b[31m.pt", "step=4 '\".pt", longest,
        "-rf 6",       "%s%n step=7",       "\xe6\xa8\xa1-8.pt"};
    char *folder = temp_folder();
    put_in(folder, "step=1\n.pt", MAKE_ZIP64, NULL);
    for (size_t i = 1; i < HF_COUNT(names); i++) {
        hard_link(folder, "step=1\n.pt", hf_strdup(names[i]));
    }
    link_in(folder, "step=1\n.pt", "last\n.pt");
    struct hf_layout_looks looks = scan_folder(folder, 0);
    assert_int_equal(looks.len, HF_COUNT(names));
    for (size_t i = 0; i < looks.len; i++) {
        /* Byte by byte as on the disk: what is shown is cleaned by whoever shows it. */
        assert_int_equal(looks.items[i].step, i + 1);
        assert_string_equal(strrchr(looks.items[i].path, '/') + 1, names[i]);
        assert_int_equal(looks.items[i].state, HF_LAYOUT_WHOLE);
    }
    assert_true(has_root(&looks.items[0], "last\n.pt"));
    hf_layout_looks_release(&looks);
    remove_tree(folder);
}

/* ---- how much work ---- */

static uint64_t reads_so_far(void)
{
    struct hf_buf b;
    struct hf_err err;
    unsigned long long n = 0;
    hf_buf_init(&b, 4096);
    expect_rc(hf_fs_read("/proc/self/io", &b, &err), HF_OK, &err);
    const char *line = strstr(hf_buf_str(&b), "syscr: ");
    assert_non_null(line);
    n = strtoull(line + strlen("syscr: "), NULL, 10);
    hf_buf_release(&b);
    return n;
}

/* Files of a thousand ranks, data of many pieces, single files and links: each is read a few times,
 * and not once for every other one. */
static void test_twenty_thousand_entries(void **state)
{
    (void)state;
    char *folder = temp_folder();
    put_in(folder, "0.pt", MAKE_ZIP64, NULL);
    put_in(folder, "0.index", MAKE_TABLE, NULL);
    put_in(folder, "0.dat", MAKE_RAW, NULL);
    for (unsigned i = 0; i < 9000; i++) {
        hard_link(folder, "0.pt", hf_asprintf("ep1-ba%u-rank%u.pt", i / 1000 + 1, i % 1000));
    }
    for (unsigned i = 0; i < 2000; i++) {
        hard_link(folder, "0.dat", hf_asprintf("ckpt-77.data-%05u-of-02000", i));
        hard_link(folder, "0.index", hf_asprintf("lone-%u.index", i));
        hard_link(folder, "0.dat", hf_asprintf("lone-%u.data-00000-of-00001", i));
        char *target = hf_asprintf("lone-%u.index", i);
        char *name = hf_asprintf("link-%u", i);
        link_in(folder, target, name);
        free(name);
        free(target);
    }
    hard_link(folder, "0.index", hf_strdup("ckpt-77.index"));
    for (unsigned i = 0; i < 3000; i++) {
        hard_link(folder, "0.pt", hf_asprintf("step-%u.pt", i));
    }
    uint64_t before = reads_so_far();
    struct hf_layout_looks looks = scan_folder(folder, 1000);
    uint64_t reads = reads_so_far() - before;
    /* the three that the others are links of, too: "0.index" is an index without data */
    assert_int_equal(looks.len, 9 + 2000 + 1 + 3000 + 3);
    const struct hf_layout_look *ranks = find_look(&looks, "ep1-ba9-rank0.pt");
    assert_int_equal(ranks->state, HF_LAYOUT_WHOLE);
    assert_int_equal(ranks->roots.len, 1000);
    expect_state(&looks, "ckpt-77.index", HF_LAYOUT_WHOLE);
    assert_int_equal(find_look(&looks, "ckpt-77.index")->roots.len, 2001);
    assert_int_equal(find_look(&looks, "lone-1234.index")->roots.len, 3);
    hf_layout_looks_release(&looks);
    if (reads > UINT64_C(8) * 20000) {
        fail_msg("%llu reads for 20,000 entries", (unsigned long long)reads);
    }
    remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_read),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_neither_file_nor_folder),
        cmocka_unit_test(test_vanishing_entries),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_twenty_thousand_entries),
    };
    return cmocka_run_group_tests_name("layout_odd", tests, NULL, NULL);
}
