/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores that fail: every operation with a fault at its 1st, 2nd, 3rd... call until a run stays
 * clean, random operations against a list of what the store must hold, and the one primitive that
 * everything rests on, several threads at a time: of those who create a key one wins, and each of
 * them is told the truth.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/log.h"
#include "support_conform_store.h"
#include "support_seed.h"

#define KEYS     5
#define VALUE    40
#define KINDS    3
#define THREADS  4
#define CONTESTS 12

static const char *const keys[KEYS] = {"a", "b/c", "b/d/e", "run/attempts/000001.json", "b/cc"};

/* What the store must hold; "" is an object too, absent is told apart. */
struct model {
    bool there[KEYS];
    char value[KEYS][VALUE];
};

/* All decorators over one another; the fault store is the innermost of them. */
struct stack {
    char *folder; /* NULL: in memory */
    struct hf_pulse *pulse;
    struct hf_store *faulty, *top;
};

static void open_stack(struct stack *k, bool file)
{
    struct hf_err err;
    struct hf_store *inner = NULL;
    static const struct hf_log silent = {.fd = -1, .min = HF_LOG_ERROR};
    k->folder = file ? temp_folder() : NULL;
    HF_CLEANUP(hf_freep)
    char *uri = file ? hf_asprintf("file://%s", k->folder) : hf_strdup("mem:x");
    expect_rc(hf_store_open(uri, &(struct hf_store_cfg){.survives = true}, &inner, &err), HF_OK,
              &err);
    k->pulse = hf_pulse_new();
    k->faulty = hf_store_faulty(inner);
    k->top = hf_store_limit(hf_store_trace(hf_store_pulse(k->faulty, k->pulse), &silent),
                            UINT64_C(1) << 40);
}

static void close_stack(struct stack *k)
{
    struct hf_pulse_look look;
    assert_false(hf_pulse_oldest(k->pulse, &look)); /* every call that began has ended */
    hf_store_close(k->top);
    hf_pulse_free(k->pulse);
    if (k->folder != NULL) {
        assert_int_equal(hf_fs_remove_tree(k->folder, NULL), HF_OK);
        hf_free(k->folder);
    }
}

static bool count_key(void *user, const char *key, uint64_t bytes)
{
    const struct model *m = ((const struct model **)user)[0];
    size_t *n = ((size_t **)user)[1];
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i], key) == 0) {
            assert_true(m->there[i]);
            assert_int_equal(bytes, strlen(m->value[i]));
            ++*n;
            return true;
        }
    }
    fail_msg("'%s' is listed", key);
    return false;
}

static void agrees(struct hf_store *s, struct model *m)
{
    size_t listed = 0, want = 0;
    struct hf_err err;
    void *user[] = {m, &listed};
    for (size_t i = 0; i < KEYS; i++) {
        store_holds(s, keys[i], m->there[i] ? m->value[i] : NULL);
        want += m->there[i];
    }
    expect_rc(hf_store_list(s, NULL, "", count_key, user, &err), HF_OK, &err);
    assert_int_equal(listed, want);
}

/* Operations, each with what it must come to by the model when nothing is spoilt */

enum what { PUT, CREATE_PUT, GET, LIST, REMOVE, CREATE, WHATS };

struct op {
    enum what what;
    size_t key;
    const char *value;
};

static void do_it(struct model *m, const struct op *o)
{
    bool puts =
        o->what == PUT || ((o->what == CREATE_PUT || o->what == CREATE) && !m->there[o->key]);
    if (puts) {
        m->there[o->key] = true;
        snprintf(m->value[o->key], VALUE, "%s", o->value);
    } else if (o->what == REMOVE) {
        m->there[o->key] = false;
    }
}

static enum hf_rc expected(const struct model *m, const struct op *o)
{
    bool there = m->there[o->key];
    switch (o->what) {
    case CREATE_PUT:
        return there ? HF_EEXISTS : HF_OK;
    case CREATE:
        return there && strcmp(m->value[o->key], o->value) != 0 ? HF_EEXISTS : HF_OK;
    case GET:
        return there ? HF_OK : HF_ENOTFOUND;
    case PUT:
    case LIST:
    case REMOVE:
    case WHATS:
    default:
        return HF_OK;
    }
}

static bool never_called(void *user, const char *key, uint64_t bytes)
{
    (void)key;
    (void)bytes;
    ++*(unsigned *)user;
    return true;
}

static enum hf_rc run_op(struct hf_store *s, const struct model *m, const struct op *o,
                         struct hf_err *err)
{
    struct hf_buf b;
    unsigned listed = 0;
    enum hf_rc rc = HF_OK;
    const char *key = keys[o->key];
    hf_buf_init(&b, 100);
    assert_int_equal(hf_buf_add(&b, "before ", 7, NULL), HF_OK);
    switch (o->what) {
    case PUT:
        rc = hf_store_put(s, NULL, key, text_of(o->value), HF_PUT_REPLACE, err);
        break;
    case CREATE_PUT:
        rc = hf_store_put(s, NULL, key, text_of(o->value), HF_PUT_CREATE_ONLY, err);
        break;
    case CREATE:
        rc = hf_store_create(s, NULL, key, text_of(o->value), &b, err);
        break;
    case GET:
        rc = hf_store_get(s, NULL, key, &b, err);
        break;
    case LIST:
        rc = hf_store_list(s, NULL, "b/", never_called, &listed, err);
        assert_true(rc == HF_OK || listed == 0);
        break;
    case REMOVE:
        rc = hf_store_remove(s, NULL, key, err);
        break;
    case WHATS:
        break;
    }
    /* What is there is appended; a failure leaves the buffer as it was. */
    char want[VALUE + 8];
    bool reads = (o->what == GET && rc == HF_OK) || (o->what == CREATE && rc == HF_EEXISTS);
    snprintf(want, sizeof(want), "before %s", reads ? m->value[o->key] : "");
    assert_string_equal(hf_buf_str(&b), want);
    hf_buf_release(&b);
    return rc;
}

/* One call with a fault or without: the answer is the model's, or it is the fault's and the store
 * is as the kind of the fault says. A create settles any single fault by itself. */
static void step(struct stack *k, struct model *m, const struct op *o,
                 enum hf_store_fault_kind kind, bool hit)
{
    static const enum hf_rc codes[KINDS] = {HF_EIO, HF_EAGAIN, HF_ETIMEOUT};
    struct hf_err err = {.code = HF_OK};
    enum hf_rc clean = expected(m, o);
    enum hf_rc rc = run_op(k->top, m, o, &err);
    bool settled = !hit || o->what == CREATE;
    if (rc != (settled ? clean : codes[kind]) || rc != err.code) {
        fail_msg("operation %d of '%s', fault %d %s: %s", (int)o->what, keys[o->key], (int)kind,
                 hit ? "hit" : "not hit", err.msg);
    }
    if (settled || kind == HF_SFAULT_LOST_REPLY) {
        do_it(m, o);
    }
}

static const struct op script[] = {
    {PUT, 0, "one"},     {PUT, 0, "two"},        {CREATE_PUT, 1, "mine"}, {CREATE_PUT, 1, "yours"},
    {CREATE, 2, "mine"}, {CREATE, 2, "mine"},    {CREATE, 2, "yours"},    {GET, 0, NULL},
    {GET, 4, NULL},      {LIST, 0, NULL},        {REMOVE, 0, NULL},       {REMOVE, 0, NULL},
    {GET, 0, NULL},      {CREATE, 0, ""},        {CREATE, 0, "more"},     {REMOVE, 2, NULL},
    {PUT, 3, ""},        {CREATE_PUT, 3, "late"}};

static void a_fault_at_every_call(void **state)
{
    (void)state;
    for (int way = 0; way < 2 * KINDS; way++) {
        enum hf_store_fault_kind kind = (enum hf_store_fault_kind)(way / 2);
        bool fired = true;
        uint64_t nth = 1;
        for (; fired; nth++) {
            struct stack k;
            struct model m = {.there = {false}};
            open_stack(&k, way % 2 == 1);
            uint64_t before = 0; /* calls so far */
            hf_store_fault_set(k.faulty, kind, nth, false);
            for (size_t i = 0; i < HF_COUNT(script); i++) {
                /* A plain operation is one call; a create up to three, and more after a fault. */
                bool hit = nth == before + 1;
                step(&k, &m, &script[i], kind, hit);
                before = hf_store_fault_calls(k.faulty);
            }
            fired = before >= nth;
            hf_store_fault_set(k.faulty, kind, 0, false);
            agrees(k.top, &m);
            close_stack(&k);
        }
        assert_true(nth > HF_COUNT(script));
    }
}

/* Who asks again until it is clear gets what it wanted, whatever was lost on the way. */
static void random_operations(void **state)
{
    (void)state;
    static const char *const values[] = {"", "x", "yy", "a longer value of some bytes"};
    uint64_t random = hf_test_seed();
    for (int file = 0; file < 2; file++) {
        struct stack k;
        struct model m = {.there = {false}};
        open_stack(&k, file == 1);
        for (int round = 0; round < 1500; round++) {
            struct op o = {.what = (enum what)hf_test_below(&random, CREATE),
                           .key = hf_test_below(&random, KEYS),
                           .value = values[hf_test_below(&random, HF_COUNT(values))]};
            enum hf_store_fault_kind kind = (enum hf_store_fault_kind)hf_test_below(&random, KINDS);
            bool hit = hf_test_below(&random, 3) == 0;
            hf_store_fault_set(k.faulty, kind, hit ? 1 : 0, false);
            step(&k, &m, &o, kind, hit);
            if (hit && o.what != CREATE_PUT) {
                step(&k, &m, &o, kind, false); /* again: it may be repeated safely */
            }
            hf_store_fault_set(k.faulty, kind, 0, false);
            if (round % 50 == 0) {
                agrees(k.top, &m);
            }
        }
        agrees(k.top, &m);
        close_stack(&k);
    }
}

/* The proof of create-only with a fault at each of its calls: it comes out right all the same, and
 * nothing of it is left. */
static void probing_with_faults(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t nth = 1; nth <= 4; nth++) {
            struct stack k;
            struct hf_err err;
            open_stack(&k, nth % 2 == 0);
            hf_store_fault_set(k.faulty, (enum hf_store_fault_kind)kind, nth, false);
            expect_rc(hf_store_probe(k.top, NULL, "run", &err), HF_OK, &err);
            assert_true((k.top->caps & HF_STORE_CREATE_ONLY) != 0);
            assert_true(hf_store_fault_calls(k.faulty) >= nth);
            /* The last call is the removal: where that is spoilt a few bytes may stay. */
            size_t left = store_count(k.top, "");
            assert_true(left == 0 || (nth == 4 && left == 1));
            close_stack(&k);
        }
    }
}

/* Contests */

/* Loses, fails and passes on calls at random; any thread. */
struct flaky {
    struct hf_store store;
    struct hf_store *inner;
    uint64_t seed;
    atomic_uint_fast64_t calls;
    atomic_uint lost, failed;
};

static unsigned draw(struct flaky *f)
{
    uint64_t x = f->seed + atomic_fetch_add(&f->calls, 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)((hf_test_random(&x) >> 20) % 10);
}

static enum hf_rc flaky_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct flaky *f = (struct flaky *)s;
    return draw(f) < 1 ? hf_fail(err, HF_EIO, "get failed")
                       : hf_store_get(f->inner, c, key, ret, err);
}

static enum hf_rc flaky_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct flaky *f = (struct flaky *)s;
    unsigned fate = draw(f);
    if (fate < 1) {
        atomic_fetch_add(&f->failed, 1);
        return hf_fail(err, HF_EIO, "put failed");
    }
    enum hf_rc rc = hf_store_put(f->inner, c, key, data, flags, err);
    if (fate < 4) {
        atomic_fetch_add(&f->lost, 1);
        return hf_fail(err, HF_EAGAIN, "the reply was lost");
    }
    return rc;
}

static const struct hf_store_ops flaky_ops = {
    .size = sizeof(struct hf_store_ops), .scheme = "flaky", .get = flaky_get, .put = flaky_put};

struct contest {
    struct hf_store *store;
    unsigned me;
    pthread_barrier_t *start;
    enum hf_rc rc[CONTESTS];
    char other[CONTESTS][16];
};

static void *contend(void *arg)
{
    struct contest *t = arg;
    for (unsigned i = 0; i < CONTESTS; i++) {
        char key[32], mine[16];
        struct hf_err err;
        struct hf_buf other;
        hf_buf_init(&other, sizeof(t->other[i]) - 1);
        snprintf(key, sizeof(key), "contest/%u", i);
        snprintf(mine, sizeof(mine), "of %u", t->me);
        pthread_barrier_wait(t->start);
        t->rc[i] = hf_store_create(t->store, NULL, key, text_of(mine), &other, &err);
        memcpy(t->other[i], hf_buf_str(&other), other.len + 1);
        hf_buf_release(&other);
    }
    return NULL;
}

/* What each was told is so: OK, it is mine; exists, it is another's, and these are its bytes. Who
 * was told neither knows nothing. */
static void judge(struct hf_store *inner, const struct contest t[THREADS], unsigned *unknown)
{
    for (unsigned i = 0; i < CONTESTS; i++) {
        char key[32];
        unsigned winners = 0;
        struct hf_buf b;
        struct hf_err err;
        hf_buf_init(&b, 100);
        snprintf(key, sizeof(key), "contest/%u", i);
        expect_rc(hf_store_get(inner, NULL, key, &b, &err), HF_OK, &err);
        for (unsigned k = 0; k < THREADS; k++) {
            char mine[16];
            snprintf(mine, sizeof(mine), "of %u", k);
            bool is_mine = strcmp(hf_buf_str(&b), mine) == 0;
            winners += t[k].rc[i] == HF_OK;
            *unknown += t[k].rc[i] != HF_OK && t[k].rc[i] != HF_EEXISTS;
            assert_true(t[k].rc[i] != HF_OK || is_mine);
            assert_true(t[k].rc[i] != HF_EEXISTS || !is_mine);
            assert_string_equal(t[k].other[i], t[k].rc[i] == HF_EEXISTS ? hf_buf_str(&b) : "");
        }
        assert_true(winners <= 1);
        hf_buf_release(&b);
    }
}

static void one_creator_wins(void **state)
{
    (void)state;
    uint64_t seed = hf_test_seed();
    for (int file = 0; file < 2; file++) {
        struct stack k;
        struct contest t[THREADS] = {{.me = 0}};
        pthread_t threads[THREADS];
        pthread_barrier_t start;
        unsigned unknown = 0;
        open_stack(&k, file == 1);
        struct flaky f = {.inner = k.top, .seed = seed};
        f.store = (struct hf_store){.ops = &flaky_ops, .uri = k.top->uri, .caps = k.top->caps};
        assert_true((f.store.caps & HF_STORE_CREATE_ONLY) != 0);
        assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
        for (unsigned i = 0; i < THREADS; i++) {
            t[i].me = i;
            t[i].store = &f.store;
            t[i].start = &start;
            assert_int_equal(pthread_create(&threads[i], NULL, contend, &t[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        judge(k.top, t, &unknown);
        assert_true(unknown < THREADS * CONTESTS / 10);
        assert_true(atomic_load(&f.lost) > 4 && atomic_load(&f.failed) > 0);
        pthread_barrier_destroy(&start);
        close_stack(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(probing_with_faults),
        cmocka_unit_test(one_creator_wins),
    };
    return cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
}
