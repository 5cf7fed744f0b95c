/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of stores, and a double with the flaws that real ones have.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/unit/support_conform_store.h"

void expect_rc(enum hf_rc rc, enum hf_rc want, const struct hf_err *err)
{
    if (rc != want) {
        fail_msg("%s instead of %s: %s", hf_rc_name(rc), hf_rc_name(want),
                 rc != HF_OK && err != NULL ? err->msg : "");
    }
}

struct hf_span text_of(const char *text)
{
    return (struct hf_span){.ptr = text, .len = strlen(text)};
}

void store_set(struct hf_store *s, const char *key, const char *text)
{
    struct hf_err err;
    expect_rc(hf_store_put(s, NULL, key, text_of(text), HF_PUT_REPLACE, &err), HF_OK, &err);
}

void store_holds(struct hf_store *s, const char *key, const char *text)
{
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1 << 20);
    expect_rc(hf_store_get(s, NULL, key, &b, &err), text != NULL ? HF_OK : HF_ENOTFOUND, &err);
    assert_string_equal(hf_buf_str(&b), text != NULL ? text : "");
    hf_buf_release(&b);
}

static bool count_one(void *user, const char *key, uint64_t bytes)
{
    (void)key;
    (void)bytes;
    ++*(size_t *)user;
    return true;
}

size_t store_count(struct hf_store *s, const char *prefix)
{
    size_t n = 0;
    struct hf_err err;
    expect_rc(hf_store_list(s, NULL, prefix, count_one, &n, &err), HF_OK, &err);
    return n;
}

char *temp_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = hf_asprintf("%s/holdfast-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static void get_and_put(struct hf_store *s)
{
    struct hf_err err;
    store_holds(s, "a", NULL);
    store_holds(s, "a/b/c", NULL);
    store_set(s, "a/b/c", "one");
    store_holds(s, "a/b/c", "one");
    store_holds(s, "a/b", NULL);
    store_holds(s, "a/b/c/d", NULL);
    store_set(s, "a/b/c", "another");
    store_holds(s, "a/b/c", "another");
    store_set(s, "x@y.Z_0-9", "");
    store_holds(s, "x@y.Z_0-9", "");

    struct hf_buf b;
    hf_buf_init(&b, 10);
    expect_rc(hf_buf_add(&b, "<", 1, &err), HF_OK, &err);
    expect_rc(hf_store_get(s, NULL, "a/b/c", &b, &err), HF_OK, &err);
    assert_string_equal(hf_buf_str(&b), "<another");
    expect_rc(hf_store_get(s, NULL, "a/b/c", &b, &err), HF_EFULL, &err);
    assert_string_equal(hf_buf_str(&b), "<another");
    expect_rc(hf_store_get(s, NULL, "no", &b, &err), HF_ENOTFOUND, &err);
    assert_string_equal(hf_buf_str(&b), "<another");
    assert_true(strstr(err.msg, "no") != NULL);
    hf_buf_release(&b);
}

static void big_objects(struct hf_store *s)
{
    struct hf_err err;
    size_t len = (3u << 20) + 17;
    unsigned char *data = malloc(len);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++) {
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    struct hf_span all = {.ptr = data, .len = len};
    expect_rc(hf_store_put(s, NULL, "big", all, HF_PUT_CREATE_ONLY, &err), HF_OK, &err);
    struct hf_buf b;
    hf_buf_init(&b, len);
    expect_rc(hf_store_get(s, NULL, "big", &b, &err), HF_OK, &err);
    assert_int_equal(b.len, len);
    assert_memory_equal(b.data, data, len);
    hf_buf_release(&b);
    free(data);
    expect_rc(hf_store_remove(s, NULL, "big", &err), HF_OK, &err);
}

static void create_only(struct hf_store *s)
{
    struct hf_err err;
    expect_rc(hf_store_put(s, NULL, "c/1", text_of("mine"), HF_PUT_CREATE_ONLY, &err), HF_OK, &err);
    expect_rc(hf_store_put(s, NULL, "c/1", text_of("yours"), HF_PUT_CREATE_ONLY, &err), HF_EEXISTS,
              &err);
    store_holds(s, "c/1", "mine");
    expect_rc(hf_store_put(s, NULL, "c/1", text_of("mine"), HF_PUT_CREATE_ONLY, &err), HF_EEXISTS,
              &err);
    expect_rc(hf_store_remove(s, NULL, "c/1", &err), HF_OK, &err);
    expect_rc(hf_store_remove(s, NULL, "c/1", &err), HF_OK, &err);
    expect_rc(hf_store_remove(s, NULL, "c/never/was", &err), HF_OK, &err);
    expect_rc(
        hf_store_put(s, NULL, "c/1", text_of("yours"), HF_PUT_CREATE_ONLY | HF_PUT_NO_SYNC, &err),
        HF_OK, &err);
    store_holds(s, "c/1", "yours");
}

struct seen {
    char keys[8][16];
    uint64_t bytes[8];
    size_t len, stop_at;
};

static bool see(void *user, const char *key, uint64_t bytes)
{
    struct seen *seen = user;
    assert_true(seen->len < HF_COUNT(seen->keys));
    snprintf(seen->keys[seen->len], sizeof(seen->keys[0]), "%s", key);
    seen->bytes[seen->len++] = bytes;
    return seen->len != seen->stop_at;
}

struct removing {
    struct hf_store *store;
    size_t n;
};

static bool remove_it(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct removing *r = user;
    struct hf_err err;
    expect_rc(hf_store_remove(r->store, NULL, key, &err), HF_OK, &err);
    r->n++;
    return true;
}

static void lists(struct hf_store *s)
{
    struct hf_err err;
    static const char *const keys[] = {"l/a", "l/ab", "l/b/c", "l/b/cd", "l/b-x", "lx"};
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        store_set(s, keys[i], "12345");
    }
    static const struct {
        const char *prefix;
        size_t n;
    } rows[] = {{"l/", 5},   {"l", 6},      {"l/a", 2}, {"l/ab", 1},    {"l/b", 3},
                {"l/b/", 2}, {"l/b/cd", 1}, {"l/c", 0}, {"no/such", 0}, {"l/b/c/d", 0}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        if (store_count(s, rows[i].prefix) != rows[i].n) {
            fail_msg("%zu keys begin with '%s'", store_count(s, rows[i].prefix), rows[i].prefix);
        }
    }
    struct seen seen = {.len = 0};
    expect_rc(hf_store_list(s, NULL, "l/b/cd", see, &seen, &err), HF_OK, &err);
    assert_string_equal(seen.keys[0], "l/b/cd");
    assert_int_equal(seen.bytes[0], 5);
    seen = (struct seen){.stop_at = 2};
    expect_rc(hf_store_list(s, NULL, "l", see, &seen, &err), HF_OK, &err);
    assert_int_equal(seen.len, 2);
    struct removing r = {.store = s};
    expect_rc(hf_store_list(s, NULL, "l", remove_it, &r, &err), HF_OK, &err);
    assert_int_equal(r.n, 6);
    assert_int_equal(store_count(s, "l"), 0);
}

static void bad_keys(struct hf_store *s)
{
    char long_key[902];
    memset(long_key, 'k', sizeof(long_key) - 1);
    long_key[901] = '\0';
    const char *keys[] = {"",       "/a",    "a/",    "a//b",         ".",     "..",
                          "a/../b", "./a",   "a b",   "a\nb",         "a:b",   "\xc3\xa9",
                          "a+b",    "a%20b", ".tmp-", "a/.tmp-1-2/b", long_key};
    struct hf_buf b;
    hf_buf_init(&b, 100);
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        struct hf_err err;
        expect_rc(hf_store_put(s, NULL, keys[i], text_of("x"), HF_PUT_REPLACE, &err), HF_EINVAL,
                  &err);
        expect_rc(hf_store_get(s, NULL, keys[i], &b, &err), HF_EINVAL, &err);
        expect_rc(hf_store_remove(s, NULL, keys[i], &err), HF_EINVAL, &err);
    }
    hf_buf_release(&b);
    long_key[200] = '\0'; /* as long as a file's name may be is fine */
    store_set(s, long_key, "long");
    store_holds(s, long_key, "long");
}

static void circumstances(struct hf_store *s)
{
    struct hf_err err;
    struct hf_op op = {.loop = NULL};
    struct hf_call late = {.deadline_ns = 1};
    struct hf_call canceled = {.op = &op};
    expect_rc(hf_store_put(s, &canceled, "k", text_of("v"), HF_PUT_REPLACE, &err), HF_OK, &err);
    atomic_store(&op.canceled, true);
    const struct {
        const struct hf_call *call;
        enum hf_rc want;
    } rows[] = {{&late, HF_ETIMEOUT}, {&canceled, HF_ECANCELED}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        const struct hf_call *c = rows[i].call;
        struct hf_buf b;
        hf_buf_init(&b, 100);
        struct seen seen = {.len = 0};
        expect_rc(hf_store_get(s, c, "k", &b, &err), rows[i].want, &err);
        expect_rc(hf_store_put(s, c, "k", text_of("w"), HF_PUT_REPLACE, &err), rows[i].want, &err);
        expect_rc(hf_store_remove(s, c, "k", &err), rows[i].want, &err);
        expect_rc(hf_store_list(s, c, "k", see, &seen, &err), rows[i].want, &err);
        assert_int_equal(seen.len, 0);
        hf_buf_release(&b);
    }
    store_holds(s, "k", "v");
}

#define RACE_KEYS    40
#define RACE_THREADS 4

struct race {
    struct hf_store *store;
    atomic_uint won[RACE_KEYS];
    atomic_uint other; /* answers that are neither "mine" nor "exists" */
};

static void *race_main(void *arg)
{
    struct race *race = arg;
    for (int i = 0; i < RACE_KEYS; i++) {
        char key[32];
        char text[32];
        snprintf(key, sizeof(key), "race/%d/k", i);
        snprintf(text, sizeof(text), "%llx", (unsigned long long)hf_random_u64());
        enum hf_rc rc =
            hf_store_put(race->store, NULL, key, text_of(text), HF_PUT_CREATE_ONLY, NULL);
        if (rc == HF_OK) {
            atomic_fetch_add(&race->won[i], 1);
        } else if (rc != HF_EEXISTS) {
            atomic_fetch_add(&race->other, 1);
        }
    }
    return NULL;
}

static void one_winner(struct hf_store *s)
{
    struct race race = {.store = s};
    pthread_t threads[RACE_THREADS];
    for (int i = 0; i < RACE_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, race_main, &race), 0);
    }
    for (int i = 0; i < RACE_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < RACE_KEYS; i++) {
        assert_int_equal(race.won[i], 1);
    }
    assert_int_equal(race.other, 0);
    assert_int_equal(store_count(s, "race/"), RACE_KEYS);
}

struct rewriting {
    struct hf_store *store;
    atomic_bool stop;
    atomic_uint failed;
};

static void *rewrite_main(void *arg)
{
    struct rewriting *w = arg;
    char text[4097];
    for (int i = 0; !atomic_load(&w->stop); i++) {
        memset(text, 'a' + i % 26, 4096);
        text[1 + i % 4096] = '\0';
        if (hf_store_put(w->store, NULL, "re/w", text_of(text), HF_PUT_NO_SYNC, NULL) != HF_OK) {
            atomic_fetch_add(&w->failed, 1);
        }
    }
    return NULL;
}

/* A reader sees one whole object or another, never a part or a mix. */
static void whole_objects(struct hf_store *s)
{
    struct rewriting w = {.store = s};
    store_set(s, "re/w", "a");
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, rewrite_main, &w), 0);
    for (int i = 0; i < 300; i++) {
        struct hf_buf b;
        struct hf_err err;
        hf_buf_init(&b, 8192);
        expect_rc(hf_store_get(s, NULL, "re/w", &b, &err), HF_OK, &err);
        assert_true(b.len > 0);
        for (size_t k = 1; k < b.len; k++) {
            assert_int_equal(b.data[k], b.data[0]);
        }
        hf_buf_release(&b);
    }
    atomic_store(&w.stop, true);
    pthread_join(writer, NULL);
    assert_int_equal(w.failed, 0);
}

static void creates_surely(struct hf_store *s)
{
    struct hf_err err;
    struct hf_buf other;
    hf_buf_init(&other, 100);
    expect_rc(hf_store_create(s, NULL, "s/1", text_of("n1"), &other, &err), HF_OK, &err);
    expect_rc(hf_store_create(s, NULL, "s/1", text_of("n1"), &other, &err), HF_OK, &err);
    assert_int_equal(other.len, 0);
    expect_rc(hf_store_create(s, NULL, "s/1", text_of("n2"), &other, &err), HF_EEXISTS, &err);
    assert_string_equal(hf_buf_str(&other), "n1");
    expect_rc(hf_store_create(s, NULL, "s/1", text_of("n22"), NULL, &err), HF_EEXISTS, &err);
    expect_rc(hf_store_create(s, NULL, "s/1", text_of(""), NULL, &err), HF_EEXISTS, &err);
    store_holds(s, "s/1", "n1");
    hf_buf_release(&other);
}

static void proves_itself(struct hf_store *s)
{
    struct hf_err err;
    s->caps &= (enum hf_store_caps) ~HF_STORE_CREATE_ONLY;
    expect_rc(hf_store_probe(s, NULL, "p/q", &err), HF_OK, &err);
    assert_true((s->caps & HF_STORE_CREATE_ONLY) != 0);
    assert_int_equal(store_count(s, "p"), 0);
    assert_non_null(s->uri);
    assert_int_equal(s->ops->size, sizeof(struct hf_store_ops));
}

void conform_store(conform_open_fn *open)
{
    static void (*const parts[])(struct hf_store *) = {
        proves_itself, get_and_put,   big_objects, create_only,   lists,
        bad_keys,      circumstances, one_winner,  whole_objects, creates_surely};
    for (size_t i = 0; i < HF_COUNT(parts); i++) {
        struct hf_store *s = open();
        assert_non_null(s);
        parts[i](s);
        hf_store_close(s);
    }
}

/* The double with flaws. */
struct flawed {
    struct hf_store store;
    struct hf_store *inner;
    enum store_flaws flaws;
    atomic_uint blocks_got;
};

static struct flawed *flawed_of(struct hf_store *s)
{
    return (struct flawed *)s;
}

static enum hf_rc flawed_get(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_buf *ret, struct hf_err *err)
{
    struct flawed *f = flawed_of(s);
    size_t before = ret->len;
    bool first = strstr(key, "/data/") != NULL && atomic_fetch_add(&f->blocks_got, 1) == 0;
    if (first && (f->flaws & FLAW_FORGETS) != 0) {
        return hf_fail(err, HF_ENOTFOUND, "get '%s'", key);
    }
    enum hf_rc rc = hf_store_get(f->inner, c, key, ret, err);
    if (first && rc == HF_OK && (f->flaws & FLAW_FLIPS) != 0) {
        ret->data[before] = (char)(ret->data[before] ^ 1);
    }
    return rc;
}

static enum hf_rc flawed_put(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct flawed *f = flawed_of(s);
    if ((f->flaws & FLAW_READ_ONLY) != 0) {
        return hf_fail(err, HF_EDENIED, "put '%s'", key);
    }
    if ((f->flaws & FLAW_OVERWRITES) != 0) {
        flags &= (enum hf_put_flags) ~HF_PUT_CREATE_ONLY;
    }
    return hf_store_put(f->inner, c, key, data, flags, err);
}

static enum hf_rc flawed_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                              hf_list_fn *each, void *user, struct hf_err *err)
{
    struct flawed *f = flawed_of(s);
    return (f->flaws & FLAW_BLIND) != 0 ? HF_OK
                                        : hf_store_list(f->inner, c, prefix, each, user, err);
}

static enum hf_rc flawed_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                                struct hf_err *err)
{
    return hf_store_remove(flawed_of(s)->inner, c, key, err);
}

static void flawed_close(struct hf_store *s)
{
    hf_store_close(flawed_of(s)->inner);
    hf_free(s);
}

static const struct hf_store_ops flawed_ops = {.size = sizeof(struct hf_store_ops),
                                               .scheme = "flawed",
                                               .close = flawed_close,
                                               .get = flawed_get,
                                               .put = flawed_put,
                                               .list = flawed_list,
                                               .remove = flawed_remove};

struct hf_store *store_with_flaws(struct hf_store *inner_taken, enum store_flaws flaws)
{
    struct flawed *f = HF_NEW(struct flawed);
    f->store = (struct hf_store){
        .ops = &flawed_ops, .uri = hf_strdup(inner_taken->uri), .caps = inner_taken->caps};
    f->inner = inner_taken;
    f->flaws = flaws;
    return &f->store;
}
