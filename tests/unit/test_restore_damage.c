/* SPDX-License-Identifier: Apache-2.0
 *
 * Four checkpoints of two attempts, and every object of theirs in the store harmed in every way:
 * missing, emptied, cut, longer, a bit flipped, another's content in its place; alone, and many at
 * once by chance. A restore of what is harmed refuses, names it, and leaves the folders as they
 * were; the next attempt restores the newest that needs nothing of it, and says which ones it
 * passed.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "checkpoint/build.h"
#include "supervisor/handoff.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define CKPTS   4
#define OBJECTS 64
#define BLOCK   64
#define SEAL    "checkpoints/000001-000003.json"

enum harm { LOST, EMPTIED, CUT_FIRST, CUT_HALF, CUT_LAST, LONGER, FLIPPED, SWAPPED, HARMS };

struct object {
    char *key;
    struct hf_buf data;
    bool harmed, lost;
    bool needed[CKPTS]; /* as a block */
};

struct scene {
    struct bench b;
    struct hf_claim claims[2];
    char *root, *single;
    struct hf_manifest m[CKPTS]; /* 1-1, 1-2, 2-1, 2-2 */
    char *trees[CKPTS];
    struct object objects[OBJECTS];
    size_t n;
    uint64_t x, seed; /* seed: of the round under way; printed when it fails */
};

static uint64_t roll(struct scene *s, uint64_t n)
{
    s->x = s->x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->x >> 33) % n;
}

static char *both_trees(const struct scene *s)
{
    HF_CLEANUP(hf_freep) char *a = tree_text(s->root);
    HF_CLEANUP(hf_freep) char *b = tree_text(s->single);
    return hf_asprintf("%s%s", a, b);
}

static void write_version(const struct scene *s, unsigned v)
{
    static const struct {
        const char *name;
        size_t len;
    } files[] = {{"frozen.bin", 150}, {"opt/state.bin", 100}, {"w.bin", 90}};
    /* The frozen one is that of 1-1 in all but the last, the optimizer's of 1-2 in 2-1 too. */
    const unsigned seeds[CKPTS][HF_COUNT(files)] = {{1, 2, 3}, {1, 4, 5}, {1, 4, 6}, {7, 8, 9}};
    for (size_t i = 0; i < HF_COUNT(files); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", s->root, files[i].name);
        put_noise(path, files[i].len, seeds[v][i]);
    }
    put_noise(s->single, 40, 20 + v);
}

static void save(struct scene *s, unsigned v, const struct hf_claim *claim, uint32_t number)
{
    write_version(s, v);
    s->trees[v] = both_trees(s);
    struct hf_save_in in = save_of(&s->b, claim, number, s->root);
    hf_strv_add(&in.roots, s->single);
    in.block_bytes = BLOCK;
    in.lanes = 1;
    in.parent = v > 0 ? &s->m[v - 1] : NULL;
    must_save(&in, &s->m[v]);
    save_in_release(&in);
}

static bool see(void *user, const char *key, uint64_t bytes)
{
    struct scene *s = user;
    struct hf_err err;
    assert_true(s->n < OBJECTS);
    struct object *o = &s->objects[s->n++];
    o->key = strdup(key);
    hf_buf_init(&o->data, bytes + 1);
    expect_rc(hf_store_get(s->b.store, NULL, key, &o->data, &err), HF_OK, &err);
    for (unsigned v = 0; v < CKPTS; v++) {
        for (uint32_t i = 0; i < s->m[v].n_blocks; i++) {
            char name[HF_KEY_MAX];
            o->needed[v] =
                o->needed[v] || strcmp(hf_key_block(name, "job", &s->m[v].blocks[i]), key) == 0;
        }
    }
    return true;
}

static int open_scene(void **state, bool encrypted)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct hf_store *mem = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:damage", NULL, &mem, &err), HF_OK, &err);
    bench_take(&s->b, mem);
    if (encrypted) {
        bench_encrypt(&s->b);
    }
    s->root = bench_path(&s->b, "home/ckpt");
    s->single = bench_path(&s->b, "home/latest");
    s->claims[0] = must_claim(&s->b, 1);
    save(s, 0, &s->claims[0], 1);
    save(s, 1, &s->claims[0], 2);
    s->claims[1] = must_claim(&s->b, 2);
    expect_rc(hf_lineage_seal(&s->b.run, NULL, &s->claims[1], &err), HF_OK, &err);
    expect_rc(hf_lineage_put_base(&s->b.run, NULL, &s->claims[1], &s->m[1], &err), HF_OK, &err);
    save(s, 2, &s->claims[1], 1);
    save(s, 3, &s->claims[1], 2);
    expect_rc(hf_store_list(mem, NULL, "job/", see, s, &err), HF_OK, &err);
    /* 3 + 2 + 2 + 1 blocks at first; 2 + 2 + 1, then 2 + 1, then all again; records. */
    assert_int_equal(s->n, 8 + 5 + 3 + 8 + 3 + 5);
    s->x = hf_random_u64();
    *state = s;
    return 0;
}

static int setup(void **state)
{
    return open_scene(state, false);
}

static int setup_encrypted(void **state)
{
    return open_scene(state, true);
}

static int teardown(void **state)
{
    struct scene *s = *state;
    if (s->seed != 0) {
        print_message("again: HOLDFAST_TEST_SEED=%llu\n", (unsigned long long)s->seed);
    }
    for (size_t i = 0; i < s->n; i++) {
        free(s->objects[i].key);
        hf_buf_release(&s->objects[i].data);
    }
    for (unsigned v = 0; v < CKPTS; v++) {
        hf_manifest_release(&s->m[v]);
        free(s->trees[v]);
    }
    hf_claim_release(&s->claims[0]);
    hf_claim_release(&s->claims[1]);
    free(s->root);
    free(s->single);
    bench_close(&s->b);
    free(s);
    return 0;
}

static void put(struct scene *s, const char *key, const char *data, size_t len)
{
    struct hf_err err;
    struct hf_span span = {.ptr = data, .len = len};
    expect_rc(hf_store_put(s->b.store, NULL, key, span, HF_PUT_REPLACE, &err), HF_OK, &err);
}

static bool is_record(const struct object *o, const char *name)
{
    return strncmp(o->key, "job/", 4) == 0 && strcmp(o->key + 4, name) == 0;
}

/* Another of its kind, with other bytes; not a seal, which does not say whose it is. */
static const struct object *other_than(const struct scene *s, const struct object *o)
{
    size_t kind = (size_t)(strchr(o->key + 4, '/') - o->key);
    size_t at = (size_t)(o - s->objects);
    for (size_t i = 1; i < s->n; i++) {
        const struct object *p = &s->objects[(at + i) % s->n];
        if (strncmp(p->key, o->key, kind) == 0 && !is_record(p, SEAL) &&
            (p->data.len != o->data.len || memcmp(p->data.data, o->data.data, p->data.len) != 0)) {
            return p;
        }
    }
    return NULL;
}

static void harm(struct scene *s, struct object *o, enum harm how)
{
    struct hf_err err;
    size_t len = o->data.len;
    HF_CLEANUP(hf_freep) char *data = hf_calloc(len + 1, 1);
    memcpy(data, o->data.data, len);
    const struct object *other = other_than(s, o);
    assert_non_null(other);
    data[roll(s, len)] ^= (char)(how == FLIPPED ? 1 << roll(s, 8) : 0);
    switch (how) {
    case LOST:
        expect_rc(hf_store_remove(s->b.store, NULL, o->key, &err), HF_OK, &err);
        break;
    case SWAPPED:
        put(s, o->key, other->data.data, other->data.len);
        break;
    default:
        put(s, o->key, data,
            how == EMPTIED     ? 0
            : how == CUT_FIRST ? 1
            : how == CUT_HALF  ? len / 2
            : how == CUT_LAST  ? len - 1
            : how == LONGER    ? len + 1
                               : len);
        break;
    }
    o->harmed = true;
    o->lost = how == LOST;
}

/* As it was, without what an attempt that came after has put. */
static void mend(struct scene *s)
{
    static const char *const later[] = {
        "job/attempts/000003.json",           "job/attempts/000003.base.json",
        "job/checkpoints/000002-000003.json", "job/checkpoints/000002-000002.json",
        "job/checkpoints/000002-000001.json", "job/checkpoints/000001-000003.json",
        "job/checkpoints/000001-000004.json"};
    struct hf_err err;
    for (size_t i = 0; i < HF_COUNT(later); i++) {
        expect_rc(hf_store_remove(s->b.store, NULL, later[i], &err), HF_OK, &err);
    }
    for (size_t i = 0; i < s->n; i++) {
        put(s, s->objects[i].key, s->objects[i].data.data, s->objects[i].data.len);
        s->objects[i].harmed = s->objects[i].lost = false;
    }
}

static const struct object *record(const struct scene *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (is_record(&s->objects[i], name)) {
            return &s->objects[i];
        }
    }
    fail_msg("there is no '%s'", name);
    return NULL;
}

static bool blocks_harmed(const struct scene *s, unsigned v)
{
    bool harmed = false;
    for (size_t i = 0; i < s->n; i++) {
        harmed = harmed || (s->objects[i].needed[v] && s->objects[i].harmed);
    }
    return harmed;
}

/* ---- a restore of what is harmed ---- */

static unsigned half_files(const struct scene *s)
{
    HF_CLEANUP(hf_freep) char *home = bench_path(&s->b, "home");
    DIR *d = opendir(home);
    assert_non_null(d);
    unsigned n = 0;
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += strstr(e->d_name, "holdfast") != NULL ? 1 : 0;
    }
    closedir(d);
    return n;
}

/* Over what lies there: `there`, or nothing. */
static void refuses(struct scene *s, unsigned v, const char *key, bool there)
{
    struct hf_restore_report report = {.bytes = 0};
    struct hf_err err = {.code = HF_OK};
    uint64_t bytes = 0;
    expect_rc(hf_verify(&s->b.run, NULL, &s->m[v], &bytes, &err), HF_ECORRUPT, &err);
    assert_non_null(strstr(err.msg, key));
    expect_rc(hf_remove_all(s->root, &err), HF_OK, &err);
    expect_rc(hf_remove_all(s->single, &err), HF_OK, &err);
    HF_CLEANUP(hf_freep) char *before = NULL;
    if (there) {
        write_version(s, v == 3 ? 0 : 3);
        before = both_trees(s);
    }
    expect_rc(hf_restore(&s->b.run, NULL, &s->m[v], &report, &err), HF_ECORRUPT, &err);
    if (strstr(err.msg, key) == NULL) {
        fail_msg("'%s' does not name '%s'", err.msg, key);
    }
    assert_int_equal(half_files(s), 0);
    if (there) {
        HF_CLEANUP(hf_freep) char *after = both_trees(s);
        assert_string_equal(after, before);
    } else {
        assert_int_equal(access(s->root, F_OK), -1);
        assert_int_equal(access(s->single, F_OK), -1);
    }
}

static void test_c10_every_block_harmed_in_every_way(void **state)
{
    struct scene *s = *state;
    for (size_t i = 0; i < s->n; i++) {
        struct object *o = &s->objects[i];
        for (unsigned how = 0; how < HARMS; how++) {
            for (unsigned v = 0; v < CKPTS; v++) {
                if (!o->needed[v]) {
                    continue;
                }
                harm(s, o, (enum harm)how);
                refuses(s, v, o->key, how % 2 == 0);
                mend(s);
            }
        }
    }
}

/* A block cut at every byte, and with a wrong bit in every byte. */
static void test_c10_a_block_harmed_at_every_byte(void **state)
{
    struct scene *s = *state;
    for (size_t i = 0; i < s->n; i++) {
        struct object *o = &s->objects[i];
        if (!o->needed[3]) {
            continue;
        }
        for (size_t at = 0; at < o->data.len; at++) {
            HF_CLEANUP(hf_freep) char *data = hf_calloc(o->data.len, 1);
            uint64_t bytes = 0;
            memcpy(data, o->data.data, o->data.len);
            put(s, o->key, data, at);
            assert_int_equal(hf_verify(&s->b.run, NULL, &s->m[3], &bytes, NULL), HF_ECORRUPT);
            data[at] ^= (char)(1 << (at % 8));
            put(s, o->key, data, o->data.len);
            assert_int_equal(hf_verify(&s->b.run, NULL, &s->m[3], &bytes, NULL), HF_ECORRUPT);
        }
        mend(s);
    }
}

/* ---- the next attempt ---- */

/* What the lineage has to restore, by which objects are harmed; *ret_names: those passed. */
static int expected(struct scene *s, char names[CKPTS + 1][48], size_t *ret_n)
{
    static const char *const decisions[CKPTS] = {
        "checkpoints/000001-000001.json", "checkpoints/000001-000002.json",
        "checkpoints/000002-000001.json", "checkpoints/000002-000002.json"};
    *ret_n = 0;
    bool open = true; /* its attempt has no seal: what is lost at its end is as if never decided */
    for (int v = CKPTS - 1; v >= 0; v--) {
        const struct object *d = record(s, decisions[v]);
        const struct object *end = record(s, SEAL);
        if (v == 1) {
            open = end->lost;
        }
        if (v == 1 && end->harmed && !end->lost) {
            snprintf(names[(*ret_n)++], 48, "000001-000003");
        }
        if (d->lost && open) {
            continue;
        }
        open = false;
        if (!d->harmed && !blocks_harmed(s, (unsigned)v)) {
            return v;
        }
        snprintf(names[(*ret_n)++], 48, d->harmed ? "00000%d-00000%d" : "checkpoint %d-%d ",
                 v / 2 + 1, v % 2 + 1);
    }
    return -1;
}

static void take_over(struct scene *s)
{
    char names[CKPTS + 1][48];
    size_t n = 0;
    struct hf_call call = {.op = NULL};
    struct hf_restored r;
    struct hf_err err = {.code = HF_OK};
    int want = expected(s, names, &n);
    struct hf_claim three = must_claim(&s->b, 3);
    expect_rc(hf_remove_all(s->root, &err), HF_OK, &err);
    expect_rc(hf_remove_all(s->single, &err), HF_OK, &err);
    expect_rc(hf_handoff_restore(&s->b.run, &call, &three, &r, &err), HF_OK, &err);
    assert_int_equal(r.any, want >= 0);
    assert_int_equal(half_files(s), 0);
    if (want >= 0) {
        HF_CLEANUP(hf_freep) char *now = both_trees(s);
        assert_int_equal(r.manifest.attempt, s->m[want].attempt);
        assert_int_equal(r.manifest.number, s->m[want].number);
        assert_string_equal(now, s->trees[want]);
    }
    if (r.damaged.len != n) {
        for (size_t i = 0; i < r.damaged.len; i++) {
            print_message("passed: %s\n", r.damaged.items[i]);
        }
        fail_msg("%zu passed, not %zu; restored %d", r.damaged.len, n, want);
    }
    for (size_t i = 0; i < n; i++) {
        if (strstr(r.damaged.items[i], names[i]) == NULL) {
            fail_msg("'%s' does not name '%s'", r.damaged.items[i], names[i]);
        }
    }
    size_t claims = record(s, "attempts/000002.json")->harmed ? 1 : 0;
    claims += (want < 2 && record(s, "attempts/000001.json")->harmed) ? 1 : 0;
    assert_int_equal(r.claims.len, claims);
    hf_restored_release(&r);
    hf_claim_release(&three);
}

/* Without the claim below no number can be claimed at all. */
static bool may_be(const struct object *o, enum harm how)
{
    return how != LOST || !is_record(o, "attempts/000002.json");
}

static void test_c10_every_object_harmed_and_a_take_over(void **state)
{
    struct scene *s = *state;
    for (size_t i = 0; i < s->n; i++) {
        for (unsigned how = 0; how < HARMS; how++) {
            if (may_be(&s->objects[i], (enum harm)how)) {
                harm(s, &s->objects[i], (enum harm)how);
                take_over(s);
                mend(s);
            }
        }
    }
}

static void test_c10_many_harmed_at_once(void **state)
{
    struct scene *s = *state;
    const char *seed = getenv("HOLDFAST_TEST_SEED");
    s->x = seed != NULL ? strtoull(seed, NULL, 10) : s->x;
    unsigned rounds = getenv("HOLDFAST_TEST_LONG") != NULL ? 10000 : 300;
    for (unsigned round = 0; round < rounds; round++) {
        s->seed = s->x;
        for (uint64_t n = 1 + roll(s, 8); n > 0; n--) {
            struct object *o = &s->objects[roll(s, s->n)];
            enum harm how = (enum harm)roll(s, HARMS);
            if (may_be(o, how) && !o->harmed) {
                harm(s, o, how);
            }
        }
        take_over(s);
        mend(s);
    }
    s->seed = 0;
}

int main(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        setenv("TMPDIR", "/dev/shm", 1);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c10_every_block_harmed_in_every_way),
        cmocka_unit_test(test_c10_a_block_harmed_at_every_byte),
        cmocka_unit_test(test_c10_every_object_harmed_and_a_take_over),
        cmocka_unit_test(test_c10_many_harmed_at_once),
    };
    int failed = cmocka_run_group_tests_name("plain", tests, setup, teardown);
    return failed + cmocka_run_group_tests_name("encrypted", tests, setup_encrypted, teardown);
}
