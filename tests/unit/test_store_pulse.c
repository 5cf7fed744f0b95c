/* SPDX-License-Identifier: Apache-2.0
 *
 * The account of a store's calls under way: the one that has waited longest is told, also from
 * another thread, and none is told once all have ended.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cloud/store.h"

static void nothing_under_way(void **state)
{
    (void)state;
    struct hf_pulse *p = hf_pulse_new();
    struct hf_pulse_look look;
    assert_false(hf_pulse_oldest(p, &look));
    assert_int_equal(look.since_ns, 0);
    assert_string_equal(look.what, "");
    hf_pulse_free(p);
    hf_pulse_free(NULL);
}

static void the_oldest_is_told(void **state)
{
    (void)state;
    struct hf_pulse *p = hf_pulse_new();
    struct hf_pulse_look look;
    size_t a = hf_pulse_begin(p, "put", "run/a");
    uint64_t between = hf_now_ns();
    while (hf_now_ns() == between) {
    }
    size_t b = hf_pulse_begin(p, "get", "run/b");
    assert_true(hf_pulse_oldest(p, &look));
    assert_string_equal(look.what, "put");
    assert_string_equal(look.key, "run/a");
    assert_true(look.since_ns <= between);
    hf_pulse_end(p, a);
    assert_true(hf_pulse_oldest(p, &look));
    assert_string_equal(look.key, "run/b");
    assert_true(look.since_ns > between);
    hf_pulse_end(p, b);
    assert_false(hf_pulse_oldest(p, &look));
    hf_pulse_free(p);
}

static void more_calls_than_places(void **state)
{
    (void)state;
    struct hf_pulse *p = hf_pulse_new();
    struct hf_pulse_look look;
    size_t places[200];
    for (size_t i = 0; i < HF_COUNT(places); i++) {
        places[i] = hf_pulse_begin(p, "put", "k");
    }
    for (size_t i = 0; i < HF_COUNT(places); i++) {
        assert_true(hf_pulse_oldest(p, &look) || i >= 128);
        hf_pulse_end(p, places[i]);
    }
    assert_false(hf_pulse_oldest(p, &look));
    hf_pulse_free(p);
}

static void long_keys_are_cut(void **state)
{
    (void)state;
    struct hf_pulse *p = hf_pulse_new();
    struct hf_pulse_look look;
    char key[600];
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    size_t place = hf_pulse_begin(p, "get", key);
    assert_true(hf_pulse_oldest(p, &look));
    assert_int_equal(strlen(look.key), sizeof(look.key) - 1);
    hf_pulse_end(p, place);
    hf_pulse_free(p);
}

struct hanging {
    struct hf_store *store;
    struct hf_call call;
    enum hf_rc rc;
};

static void *hang(void *arg)
{
    struct hanging *h = arg;
    h->rc =
        hf_store_put(h->store, &h->call, "a/key", (struct hf_span){"x", 1}, HF_PUT_REPLACE, NULL);
    return NULL;
}

/* The decorator, and a call that another thread waits in. */
static void a_call_that_hangs(void **state)
{
    (void)state;
    struct hf_pulse *p = hf_pulse_new();
    struct hf_store *inner = NULL;
    assert_int_equal(hf_store_open("mem:pulse", NULL, &inner, NULL), HF_OK);
    struct hf_store *faulty = hf_store_faulty(inner);
    hf_store_fault_set(faulty, HF_SFAULT_HANG, 1, false);
    struct hanging h = {.store = hf_store_pulse(faulty, p),
                        .call = {.deadline_ns = hf_now_ns() + 300 * HF_MS}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hang, &h), 0);
    struct hf_pulse_look look = {0};
    uint64_t until = hf_now_ns() + 10 * HF_SEC;
    while (!hf_pulse_oldest(p, &look) && hf_now_ns() < until) {
    }
    assert_string_equal(look.what, "put");
    assert_string_equal(look.key, "a/key");
    pthread_join(thread, NULL);
    assert_int_equal(h.rc, HF_ETIMEOUT);
    assert_false(hf_pulse_oldest(p, &look));
    hf_store_close(h.store);
    hf_pulse_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_under_way),      cmocka_unit_test(the_oldest_is_told),
        cmocka_unit_test(more_calls_than_places), cmocka_unit_test(long_keys_are_cut),
        cmocka_unit_test(a_call_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
