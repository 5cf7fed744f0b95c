/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/save: what is stored, what is not sent again, what is refused; files that change
 * while they are read; numbers, ranks, take-over, lost replies; many files.
 */
#include "base/prelude.h"

#include <fcntl.h>
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
#include "base/hash.h"
#include "checkpoint/blocks.h"
#include "checkpoint/fileset.h"
#include "checkpoint/lanes.h"
#include "checkpoint/restore.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

/* A folder with a bit of everything. */
static char *make_tree(const struct bench *b, const char *name)
{
    char *root = bench_path(b, name);
    char *p = hf_asprintf("%s/weights.bin", root);
    put_noise(p, 10000, 1);
    free(p);
    p = hf_asprintf("%s/sub/deep/rng.pt", root);
    put_noise(p, 4096, 2);
    free(p);
    p = hf_asprintf("%s/sub/empty.txt", root);
    put_text(p, "");
    free(p);
    p = hf_asprintf("%s/sub-x", root);
    put_text(p, "sorted after what is in sub/");
    free(p);
    p = hf_asprintf("%s/nothing in here", root);
    assert_int_equal(mkdir(p, 0750), 0);
    free(p);
    p = hf_asprintf("%s/latest", root);
    assert_int_equal(symlink("sub/deep", p), 0);
    free(p);
    p = hf_asprintf("%s/dangling\xff", root);
    assert_int_equal(symlink("/no/such/../place", p), 0);
    free(p);
    return root;
}

static const struct hf_file *file_named(const struct hf_manifest *m, const char *path)
{
    for (uint32_t i = 0; i < m->n_files; i++) {
        if (strcmp(m->files[i].path, path) == 0) {
            return &m->files[i];
        }
    }
    fail_msg("'%s' is not in the manifest", path);
    return NULL;
}

static void a_tree_is_stored(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    struct hf_save_in in = save_of(&b, &one, 1, root);
    atomic_uint_fast64_t progress = 0;
    in.progress_bytes = &progress;
    struct hf_manifest m;
    must_save(&in, &m);
    assert_int_equal(m.attempt, 1);
    assert_int_equal(m.number, 1);
    assert_int_equal(m.step, 100);
    assert_int_equal(m.n_files, 10);
    assert_int_equal(m.bytes, 14096 + 28);
    assert_int_equal(m.bytes_sent, m.bytes);
    assert_int_equal(progress, m.bytes);
    assert_int_equal(m.n_blocks, 5);
    assert_int_equal(m.parent_attempt, 0);
    assert_string_equal(m.roots[0].path, root);
    assert_int_equal(m.roots[0].kind, HF_FILE_DIR);
    assert_int_equal(file_named(&m, "nothing in here")->mode, 0750);
    assert_int_equal(file_named(&m, "weights.bin")->n_extents, 3);
    assert_string_equal(file_named(&m, "latest")->target, "sub/deep");
    assert_int_equal(file_named(&m, "dangling\xff")->kind, HF_FILE_SYMLINK);
    assert_int_equal(store_count(b.store, "job/data/"), 5);
    struct hf_decision d;
    struct hf_err err;
    expect_rc(hf_lineage_get_decision(&b.run, NULL, 1, 1, &d, &err), HF_OK, &err);
    assert_int_equal(d.manifest.n_files, m.n_files);
    hf_decision_release(&d);
    uint64_t bytes = 0;
    expect_rc(hf_verify(&b.run, NULL, &m, &bytes, &err), HF_OK, &err);
    assert_int_equal(bytes, m.bytes);
    hf_manifest_release(&m);
    save_in_release(&in);
    hf_claim_release(&one);
    free(root);
    bench_close(&b);
}

static void equal_content_is_sent_once(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    char *copy = hf_asprintf("%s/copy.bin", root);
    char *same = hf_asprintf("%s/same.bin", root);
    put_noise(copy, 10000, 1);
    char *text = malloc(100 * 4096);
    memset(text, 'a', 100 * 4096);
    put_file(same, text, 100 * 4096);
    free(text);
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_manifest first, second;
    must_save(&in, &first);
    assert_int_equal(first.bytes_sent, 14096 + 28 + 4096);
    assert_int_equal(first.n_blocks, 6);
    /* The next one sends what changed, and names the rest where it is. */
    put_noise(copy, 10000, 3);
    in.number = 2;
    in.parent = &first;
    must_save(&in, &second);
    assert_int_equal(second.bytes_sent, 10000);
    assert_int_equal(second.parent_attempt, 1);
    assert_int_equal(second.parent_number, 1);
    assert_int_equal(second.n_blocks, 9);
    assert_int_equal(store_count(b.store, "job/data/000001-000002-"), 3);
    uint64_t bytes = 0;
    struct hf_err err;
    expect_rc(hf_verify(&b.run, NULL, &second, &bytes, &err), HF_OK, &err);
    hf_manifest_release(&first);
    hf_manifest_release(&second);
    /* Without a parent all is sent. */
    in.number = 3;
    in.parent = NULL;
    must_save(&in, &first);
    assert_int_equal(first.bytes_sent, 14096 + 28 + 4096 + 10000);
    hf_manifest_release(&first);
    save_in_release(&in);
    hf_claim_release(&one);
    free(copy);
    free(same);
    free(root);
    bench_close(&b);
}

static void refused(struct hf_save_in *in, enum hf_rc want, const char *text)
{
    struct hf_manifest m;
    struct hf_err err = {.code = HF_OK};
    expect_rc(hf_save(in, NULL, &m, &err), want, &err);
    if (strstr(err.msg, text) == NULL) {
        fail_msg("'%s' does not say '%s'", err.msg, text);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    char *inside = hf_asprintf("%s/sub", root);
    char *empty = bench_path(&b, "empty");
    char *link = bench_path(&b, "link");
    char *pipe = hf_asprintf("%s/sub/a pipe", root);
    char *missing = bench_path(&b, "missing");
    assert_int_equal(mkdir(empty, 0700), 0);
    assert_int_equal(symlink(root, link), 0);
    const char *slashed = "/tmp/";
    struct hf_save_in in = save_of(&b, &one, 1, root);
    const uint32_t ranks[] = {0, 2};
    in.world = 3;
    in.ranks = ranks;
    in.n_ranks = 2;
    refused(&in, HF_EINVAL, "rank 1 of 3 is missing");
    in.world = 0;
    refused(&in, HF_EINVAL, "ranks");
    in.n_ranks = 0;
    const struct {
        const char *root, *also;
        enum hf_rc want;
        const char *text;
    } rows[] = {{"relative", NULL, HF_EINVAL, "relative"},
                {slashed, NULL, HF_EINVAL, slashed},
                {"/", NULL, HF_EINVAL, "/"},
                {root, inside, HF_EINVAL, "within"},
                {root, root, HF_EINVAL, "within"},
                {empty, NULL, HF_EINVAL, "no file"},
                {missing, NULL, HF_ENOTFOUND, "missing"},
                {pipe, NULL, HF_ENOTSUP, "a pipe' is a pipe"}};
    assert_int_equal(mkfifo(pipe, 0600), 0);
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        hf_strv_clear(&in.roots);
        hf_strv_add(&in.roots, rows[i].root);
        if (rows[i].also != NULL) {
            hf_strv_add(&in.roots, rows[i].also);
        }
        refused(&in, rows[i].want, rows[i].text);
    }
    hf_strv_clear(&in.roots);
    refused(&in, HF_EINVAL, "nothing");
    hf_strv_add(&in.roots, root);
    in.resume_path = link;
    hf_strv_clear(&in.roots);
    hf_strv_add(&in.roots, link);
    refused(&in, HF_EINVAL, "no file");
    char *beside = bench_path(&b, "beside.pt");
    put_text(beside, "x");
    hf_strv_take(&in.roots, beside);
    refused(&in, HF_EINVAL, "which is not saved");
    in.resume_path = root;
    hf_strv_clear(&in.roots);
    hf_strv_add(&in.roots, root);
    in.resume_path = "step";
    refused(&in, HF_EINVAL, "resume path");
    in.resume_path = root;
    in.number = 0;
    refused(&in, HF_EINVAL, "number");
    assert_int_equal(store_count(b.store, "job/checkpoints/"), 0);
    save_in_release(&in);
    hf_claim_release(&one);
    free(root);
    free(inside);
    free(empty);
    free(link);
    free(pipe);
    free(missing);
    bench_close(&b);
}

/* A store whose first put of a block changes a file, or each put does. */
struct meddling {
    struct hf_store store;
    struct hf_store *inner;
    const char *path;
    atomic_uint times; /* how often it still does it */
    atomic_uint seed;
};

static enum hf_rc meddle_put(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct meddling *m = (struct meddling *)s;
    unsigned left = atomic_load(&m->times);
    if (strstr(key, "/data/") != NULL && left > 0 &&
        atomic_compare_exchange_strong(&m->times, &left, left - 1)) {
        put_noise(m->path, 9000 + left, atomic_fetch_add(&m->seed, 1) + 100);
    }
    return hf_store_put(m->inner, c, key, data, flags, err);
}

static enum hf_rc meddle_get(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_buf *ret, struct hf_err *err)
{
    return hf_store_get(((struct meddling *)s)->inner, c, key, ret, err);
}

static enum hf_rc meddle_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                              hf_list_fn *each, void *user, struct hf_err *err)
{
    return hf_store_list(((struct meddling *)s)->inner, c, prefix, each, user, err);
}

static const struct hf_store_ops meddle_ops = {.size = sizeof(struct hf_store_ops),
                                               .scheme = "meddle",
                                               .get = meddle_get,
                                               .put = meddle_put,
                                               .list = meddle_list};

static void files_that_change(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    char *weights = hf_asprintf("%s/weights.bin", root);
    char *extra = hf_asprintf("%s/extra.bin", root);
    struct meddling m = {
        .store = {.ops = &meddle_ops, .caps = b.store->caps}, .inner = b.store, .path = weights};
    struct hf_run run = {.store = &m.store, .name = b.run.name};
    struct hf_save_in in = save_of(&b, &one, 1, root);
    in.run = &run;
    struct hf_manifest got;
    struct hf_err err;
    /* Once: it is read again, and the new content is what is saved. */
    atomic_store(&m.times, 1);
    must_save(&in, &got);
    assert_int_equal(file_named(&got, "weights.bin")->size, 9001);
    assert_int_equal(m.times, 0);
    char *before = tree_text(root);
    struct hf_restore_report report;
    expect_rc(hf_restore(&b.run, NULL, &got, &report, &err), HF_OK, &err);
    assert_int_equal(report.aside.len, 0);
    assert_int_equal(report.bytes_kept, got.bytes); /* what is on the disk is what was stored */
    char *after = tree_text(root);
    assert_string_equal(before, after);
    free(before);
    free(after);
    hf_restore_report_release(&report);
    hf_manifest_release(&got);
    /* Again and again: nothing is committed. */
    in.number = 2;
    atomic_store(&m.times, 1000);
    refused(&in, HF_EAGAIN, "changed while read");
    refused(&in, HF_EAGAIN, "weights.bin");
    uint32_t next = 0;
    bool sealed = false;
    expect_rc(hf_lineage_next_number(&b.run, NULL, 1, &next, &sealed, &err), HF_OK, &err);
    assert_int_equal(next, 2);
    /* A file that appears is a change too. */
    m.path = extra;
    atomic_store(&m.times, 1);
    must_save(&in, &got);
    assert_int_equal(file_named(&got, "extra.bin")->size, 9001);
    hf_manifest_release(&got);
    save_in_release(&in);
    hf_claim_release(&one);
    free(root);
    free(weights);
    free(extra);
    bench_close(&b);
}

static void stamps(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    char *weights = hf_asprintf("%s/weights.bin", root);
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_stamps reported, now;
    struct hf_err err;
    const char *which = NULL;
    expect_rc(hf_stamps_take(&in.roots, &reported, &err), HF_OK, &err);
    expect_rc(hf_stamps_take(&in.roots, &now, &err), HF_OK, &err);
    assert_true(hf_stamps_equal(&reported, &now, &which));
    assert_int_equal(now.len, 10);
    for (size_t i = 1; i < now.len; i++) {
        assert_true(hf_path_order(now.items[i - 1].path, now.items[i].path) < 0);
    }
    hf_stamps_release(&now);
    in.expect = &reported;
    struct hf_manifest m;
    must_save(&in, &m);
    hf_manifest_release(&m);
    in.number = 2;
    put_noise(weights, 10000, 77); /* as long as before, another inode */
    expect_rc(hf_stamps_take(&in.roots, &now, &err), HF_OK, &err);
    assert_false(hf_stamps_equal(&reported, &now, &which));
    assert_string_equal(which, weights);
    refused(&in, HF_EAGAIN, "changed");
    hf_stamps_release(&reported);
    in.expect = &now;
    must_save(&in, &m);
    hf_manifest_release(&m);
    assert_int_equal(unlink(weights), 0);
    in.number = 3;
    refused(&in, HF_EAGAIN, "weights.bin");
    hf_stamps_release(&now);
    save_in_release(&in);
    hf_claim_release(&one);
    free(weights);
    free(root);
    bench_close(&b);
}

static void take_over_and_lost_replies(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_err err;
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_manifest first, second;
    must_save(&in, &first);
    /* The same number again, as after a save of which nothing was known: it had been stored. */
    in.parent = NULL;
    must_save(&in, &second);
    assert_int_equal(second.number, 2);
    assert_int_equal(second.parent_number, 1);
    assert_int_equal(second.bytes_sent, 0);
    hf_manifest_release(&first);
    hf_manifest_release(&second);
    struct hf_claim two = must_claim(&b, 2);
    in.number = 3;
    refused(&in, HF_EEXISTS, "taken over");
    expect_rc(hf_lineage_seal(&b.run, NULL, &two, &err), HF_OK, &err);
    refused(&in, HF_EEXISTS, "taken over");
    save_in_release(&in);
    hf_claim_release(&one);
    hf_claim_release(&two);
    free(root);
    bench_close(&b);
}

static void cancel_and_deadline(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = make_tree(&b, "ckpt");
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_op op = {.loop = NULL};
    atomic_store(&op.canceled, true);
    struct hf_manifest m;
    struct hf_err err;
    expect_rc(hf_save(&in, &(struct hf_call){.op = &op}, &m, &err), HF_ECANCELED, &err);
    expect_rc(hf_save(&in, &(struct hf_call){.deadline_ns = 1}, &m, &err), HF_ETIMEOUT, &err);
    /* A store that hangs does not hold a save beyond its deadline. */
    struct hf_store *faulty = NULL;
    expect_rc(hf_store_open("mem:hang", NULL, &faulty, &err), HF_OK, &err);
    faulty = hf_store_faulty(faulty);
    struct hf_run run = {.store = faulty, .name = "job"};
    in.run = &run;
    hf_store_fault_set(faulty, HF_SFAULT_HANG, 3, true);
    struct hf_call soon = {.deadline_ns = hf_now_ns() + 200 * HF_MS};
    expect_rc(hf_save(&in, &soon, &m, &err), HF_ETIMEOUT, &err);
    assert_true(hf_now_ns() - soon.deadline_ns < 2 * HF_SEC);
    hf_store_close(faulty);
    save_in_release(&in);
    hf_claim_release(&one);
    free(root);
    bench_close(&b);
}

static void several_roots_and_odd_names(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    static const char *const names[] = {"r0.pt",     "sp ace",   "\xe4\xb8\xad\xe6\x96\x87",
                                        "new\nline", "\xff\xfe", "quote\"\\",
                                        "-dash",     "%41+@?"};
    struct hf_save_in in = save_of(&b, &one, 1, "/");
    hf_strv_clear(&in.roots);
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        char *p = bench_path(&b, names[i]);
        put_noise(p, 100 * i + 1, (unsigned)i);
        hf_strv_take(&in.roots, p);
    }
    in.resume_path = in.roots.items[0];
    struct hf_manifest m;
    must_save(&in, &m);
    assert_int_equal(m.n_roots, HF_COUNT(names));
    assert_int_equal(m.n_files, HF_COUNT(names));
    struct hf_decision d;
    struct hf_err err;
    expect_rc(hf_lineage_get_decision(&b.run, NULL, 1, 1, &d, &err), HF_OK, &err);
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        assert_string_equal(d.manifest.roots[i].path, in.roots.items[i]);
        assert_int_equal(d.manifest.roots[i].kind, HF_FILE_REGULAR);
    }
    hf_decision_release(&d);
    hf_manifest_release(&m);
    save_in_release(&in);
    hf_claim_release(&one);
    bench_close(&b);
}

/* Nothing in the code is quadratic in the number of files. */
static void many_files(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mem:many");
    struct hf_claim one = must_claim(&b, 1);
    char *root = bench_path(&b, "many");
    for (unsigned i = 0; i < 6000; i++) {
        char *p = hf_asprintf("%s/%02u/f%u", root, i % 60, i);
        char text[16];
        snprintf(text, sizeof(text), "%u", i % 50);
        if (i < 60) {
            put_text(p, text);
        } else {
            int fd = open(p, O_WRONLY | O_CREAT, 0644);
            assert_true(fd >= 0);
            assert_int_equal(write(fd, text, strlen(text)), strlen(text));
            close(fd);
        }
        free(p);
    }
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_manifest m;
    uint64_t began_ns = hf_now_ns();
    must_save(&in, &m);
    print_message("6000 files saved in %llu ms\n",
                  (unsigned long long)((hf_now_ns() - began_ns) / HF_MS));
    assert_true(hf_now_ns() - began_ns < 20 * HF_SEC);
    assert_int_equal(m.n_files, 6061);
    assert_int_equal(m.n_blocks, 50);
    hf_manifest_release(&m);
    save_in_release(&in);
    hf_claim_release(&one);
    free(root);
    bench_close(&b);
}

static void more_files_than_a_manifest_can_name(void **state)
{
    (void)state;
    static char path[] = "some/folder/with/a/file.bin";
    struct hf_entry *items = hf_calloc(1000000, sizeof(struct hf_entry));
    struct hf_fileset set = {.items = items};
    for (size_t i = 0; i < 1000000; i++) {
        items[i] = (struct hf_entry){.path = path, .kind = HF_FILE_REGULAR, .size = 3};
    }
    struct hf_err err = {.code = HF_OK};
    set.len = 100000;
    expect_rc(hf_fileset_fits(&set, 16 << 20, &err), HF_OK, &err);
    set.len = 1000000;
    expect_rc(hf_fileset_fits(&set, 16 << 20, &err), HF_EFULL, &err);
    assert_non_null(strstr(err.msg, "1000000 files"));
    assert_non_null(strstr(err.hint, "shards"));
    set.len = 1;
    items[0].size = UINT64_C(1) << 46;
    expect_rc(hf_fileset_fits(&set, 64 << 10, &err), HF_EFULL, &err);
    assert_non_null(strstr(err.hint, "--block-size"));
    expect_rc(hf_fileset_fits(&set, 1 << 30, &err), HF_OK, &err);
    hf_free(items);
}

struct counting {
    atomic_uint seen[500];
    size_t fail_at;
    atomic_uint done;
};

static enum hf_rc count_item(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct counting *c = user;
    assert_int_equal(lane->room.len, 100);
    memset(lane->room.ptr, (int)index, lane->room.len);
    assert_int_equal(lane->buf.len, 0);
    assert_int_equal(hf_buf_add(&lane->buf, "x", 1, err), HF_OK);
    atomic_fetch_add(&c->seen[index], 1);
    atomic_fetch_add(&c->done, 1);
    return index == c->fail_at ? hf_fail(err, HF_EFULL, "item %zu", index) : HF_OK;
}

static void lanes_do_each_item_once(void **state)
{
    (void)state;
    struct hf_err err;
    for (uint32_t lanes = 0; lanes <= 9; lanes++) {
        struct counting c = {.fail_at = SIZE_MAX};
        struct hf_lanes in = {.name = "test",
                              .items = 500,
                              .lanes = lanes,
                              .room_bytes = 100,
                              .buf_bytes = 10,
                              .item = count_item,
                              .user = &c};
        expect_rc(hf_lanes_run(&in, &err), HF_OK, &err);
        for (size_t i = 0; i < 500; i++) {
            assert_int_equal(c.seen[i], 1);
        }
        c.fail_at = 20;
        atomic_store(&c.done, 0);
        expect_rc(hf_lanes_run(&in, &err), HF_EFULL, &err);
        assert_string_equal(err.msg, "item 20");
        assert_true(c.done < 500);
        expect_rc(hf_lanes_run(&in, NULL), HF_EFULL, NULL);
        in.items = 0;
        expect_rc(hf_lanes_run(&in, &err), HF_OK, &err);
        in.items = 500;
        in.call = &(struct hf_call){.deadline_ns = 1};
        expect_rc(hf_lanes_run(&in, &err), HF_ETIMEOUT, &err);
    }
}

static void known_blocks(void **state)
{
    (void)state;
    struct hf_blocks *t = hf_blocks_new();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3000; i++) {
            struct hf_block b = {.len = i + 1};
            char text[16];
            snprintf(text, sizeof(text), "%u", i);
            hf_sha256_hex(text_of(text), b.id);
            assert_int_equal(hf_blocks_claim(t, &b), round == 0);
            assert_int_equal(hf_blocks_at(t, hf_blocks_find(t, b.id))->len, i + 1);
        }
    }
    assert_int_equal(hf_blocks_len(t), 3000);
    hf_blocks_free(t);
    hf_blocks_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_stored),
        cmocka_unit_test(equal_content_is_sent_once),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(stamps),
        cmocka_unit_test(take_over_and_lost_replies),
        cmocka_unit_test(cancel_and_deadline),
        cmocka_unit_test(several_roots_and_odd_names),
        cmocka_unit_test(many_files),
        cmocka_unit_test(more_files_than_a_manifest_can_name),
        cmocka_unit_test(lanes_do_each_item_once),
        cmocka_unit_test(known_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
