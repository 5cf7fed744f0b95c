/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/store_limit: it is a store; how long puts take; what never waits; how a waiting put is
 * woken.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support_conform_store.h"

static struct hf_store *open_inner(void)
{
    struct hf_store *s = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:limit", NULL, &s, &err), HF_OK, &err);
    return s;
}

static struct hf_store *open_fast(void)
{
    return hf_store_limit(open_inner(), 1u << 30);
}

static void it_conforms(void **state)
{
    (void)state;
    conform_store(open_fast);
}

static char data[64 << 10];

static enum hf_rc put(struct hf_store *s, const struct hf_call *c, const char *key, size_t len,
                      enum hf_put_flags flags, struct hf_err *err)
{
    return hf_store_put(s, c, key, (struct hf_span){data, len}, flags, err);
}

static uint64_t ms_since(uint64_t from_ns)
{
    return (hf_now_ns() - from_ns) / HF_MS;
}

/* Ten puts of 10 kB at 100 kB/s: the first is free and the last goes when the nine before it are
 * paid for, less what the bucket held. */
static void puts_take_their_time(void **state)
{
    (void)state;
    struct hf_store *s = hf_store_limit(open_inner(), 100000);
    struct hf_err err;
    uint64_t from = hf_now_ns();
    for (int i = 0; i < 10; i++) {
        expect_rc(put(s, NULL, "data", 10000, HF_PUT_REPLACE, &err), HF_OK, &err);
    }
    uint64_t took = ms_since(from);
    assert_in_range(took, 790, 5000);
    hf_store_close(s);
}

/* Heartbeats and decisions are never late, however deep the debt is. */
static void small_words_do_not_wait(void **state)
{
    (void)state;
    struct hf_store *s = hf_store_limit(open_inner(), 1000);
    struct hf_err err;
    expect_rc(put(s, NULL, "data", 60000, HF_PUT_REPLACE, &err), HF_OK, &err);
    uint64_t from = hf_now_ns();
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof(key), "d%d", i);
        expect_rc(put(s, NULL, "alive", 100, HF_PUT_NO_SYNC, &err), HF_OK, &err);
        expect_rc(put(s, NULL, key, 100, HF_PUT_CREATE_ONLY, &err), HF_OK, &err);
    }
    assert_in_range(ms_since(from), 0, 2000);
    hf_store_close(s);
}

static void a_deadline_ends_the_waiting(void **state)
{
    (void)state;
    struct hf_store *s = hf_store_limit(open_inner(), 1000);
    struct hf_err err;
    struct hf_call c = {.deadline_ns = hf_now_ns() + 200 * HF_MS};
    expect_rc(put(s, NULL, "data", 60000, HF_PUT_REPLACE, &err), HF_OK, &err);
    expect_rc(put(s, &c, "late", 10, HF_PUT_REPLACE, &err), HF_ETIMEOUT, &err);
    hf_store_close(s);
}

struct putter {
    struct hf_store *store;
    pthread_t thread;
    atomic_int done;
    enum hf_rc rc;
};

static void *put_all(void *arg)
{
    struct putter *p = arg;
    p->rc = HF_OK;
    for (int i = 0; i < 20 && p->rc == HF_OK; i++) {
        p->rc = put(p->store, NULL, "data", 60000, HF_PUT_REPLACE, NULL);
        atomic_fetch_add(&p->done, 1);
    }
    return NULL;
}

/* A minute a put, until a notice comes. */
static void lifting_wakes_an_upload_in_the_middle(void **state)
{
    (void)state;
    struct putter p = {.store = hf_store_limit(open_inner(), 1000)};
    assert_int_equal(pthread_create(&p.thread, NULL, put_all, &p), 0);
    while (atomic_load(&p.done) == 0) {
        sched_yield();
    }
    uint64_t from = hf_now_ns();
    hf_store_limit_lift(p.store, true);
    pthread_join(p.thread, NULL);
    assert_int_equal(p.rc, HF_OK);
    assert_int_equal(p.done, 20);
    assert_in_range(ms_since(from), 0, 10000);
    /* And it holds again afterwards. */
    hf_store_limit_lift(p.store, false);
    struct hf_err err;
    expect_rc(put(p.store, NULL, "data", 60000, HF_PUT_REPLACE, &err), HF_OK, &err);
    struct hf_call c = {.deadline_ns = hf_now_ns() + 100 * HF_MS};
    expect_rc(put(p.store, &c, "data", 10, HF_PUT_REPLACE, &err), HF_ETIMEOUT, &err);
    hf_store_close(p.store);
}

/* So few bytes a second that no look is ever worth one. */
static void slow_rates_are_not_rounded_to_nothing(void **state)
{
    (void)state;
    struct hf_store *s = hf_store_limit(open_inner(), 10);
    struct hf_err err;
    expect_rc(put(s, NULL, "data", 2, HF_PUT_REPLACE, &err), HF_OK, &err);
    struct hf_call c = {.deadline_ns = hf_now_ns() + 10 * HF_SEC};
    expect_rc(put(s, &c, "data", 2, HF_PUT_REPLACE, &err), HF_OK, &err);
    expect_rc(put(s, &c, "data", 2, HF_PUT_REPLACE, &err), HF_OK, &err);
    hf_store_close(s);
}

static void another_store_is_not_lifted(void **state)
{
    (void)state;
    struct hf_store *s = open_inner();
    hf_store_limit_lift(s, true);
    hf_store_limit_lift(NULL, true);
    hf_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_conforms),
        cmocka_unit_test(puts_take_their_time),
        cmocka_unit_test(small_words_do_not_wait),
        cmocka_unit_test(a_deadline_ends_the_waiting),
        cmocka_unit_test(lifting_wakes_an_upload_in_the_middle),
        cmocka_unit_test(slow_rates_are_not_rounded_to_nothing),
        cmocka_unit_test(another_store_is_not_lifted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
