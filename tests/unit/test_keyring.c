/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/keyring: keys found once, found again ahead of their end and when refused, by one thread
 * for all, and what a metadata service's answer is taken for.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cloud/keyring.h"
#include "tests/unit/support_conform_store.h"

#define NOW     INT64_C(1796169600000)
#define MINUTES INT64_C(60000)

/* What the next look finds. */
static atomic_uint looks;
static enum hf_rc next_rc;
static const char *next_key;
static int64_t next_end_ms;
static atomic_bool hold; /* the look waits while this is set */
static atomic_bool holding;

static enum hf_rc look(const struct hf_call *c, struct hf_creds *ret, struct hf_err *err)
{
    (void)c;
    atomic_fetch_add(&looks, 1);
    while (atomic_load(&hold)) {
        atomic_store(&holding, true);
        struct hf_call none = {.op = NULL};
        expect_rc(hf_call_wait(&none, 1, NULL), HF_OK, NULL);
    }
    if (next_rc != HF_OK) {
        return hf_fail(err, next_rc, "as planned");
    }
    *ret = (struct hf_creds){.access_key = hf_strdup(next_key),
                             .secret_key = hf_strdup("secret"),
                             .expires_wall_ms = next_end_ms};
    return HF_OK;
}

static struct hf_keyring *ring(const char *key, int64_t end_ms)
{
    atomic_store(&looks, 0);
    next_rc = HF_OK;
    next_key = key;
    next_end_ms = end_ms;
    return hf_keyring_new(look);
}

/* The key that is given must be `want` (NULL: none), after that many looks in all. */
static uint64_t gives(struct hf_keyring *k, int64_t now_ms, uint64_t refused, const char *want,
                      unsigned want_looks)
{
    struct hf_creds keys;
    struct hf_err err = {.code = HF_OK};
    enum hf_rc rc = hf_keyring_get(k, NULL, now_ms, refused, &keys, &err);
    uint64_t generation = keys.generation;
    if (want != NULL) {
        expect_rc(rc, HF_OK, &err);
        assert_string_equal(keys.access_key, want);
    } else {
        assert_int_not_equal(rc, HF_OK);
        assert_null(keys.secret_key);
    }
    hf_creds_release(&keys);
    assert_int_equal(atomic_load(&looks), want_looks);
    return generation;
}

static void keys_without_an_end_are_found_once(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", 0);
    assert_int_equal(gives(k, NOW, 0, "A", 1), 1);
    assert_int_equal(gives(k, NOW + 365 * 24 * 60 * MINUTES, 0, "A", 1), 1);
    hf_keyring_free(k);
    hf_keyring_free(NULL);
}

static void found_again_ahead_of_their_end(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", NOW + 60 * MINUTES);
    gives(k, NOW, 0, "A", 1);
    gives(k, NOW + 49 * MINUTES, 0, "A", 1);
    /* The service still has the old ones: they are used, and it is not asked at each request. */
    assert_int_equal(gives(k, NOW + 51 * MINUTES, 0, "A", 2), 1);
    gives(k, NOW + 52 * MINUTES, 0, "A", 2);
    hf_keyring_free(k);

    k = ring("A", NOW + 60 * MINUTES);
    gives(k, NOW, 0, "A", 1);
    next_key = "B";
    next_end_ms = NOW + 120 * MINUTES;
    assert_int_equal(gives(k, NOW + 51 * MINUTES, 0, "B", 2), 2);
    assert_int_equal(gives(k, NOW + 61 * MINUTES, 0, "B", 2), 2);
    hf_keyring_free(k);
}

static void a_look_that_fails_costs_nothing_while_they_hold(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", NOW + 60 * MINUTES);
    gives(k, NOW, 0, "A", 1);
    next_rc = HF_EDENIED;
    gives(k, NOW + 55 * MINUTES, 0, "A", 2);
    gives(k, NOW + 56 * MINUTES, 0, "A", 2);
    /* Ended: now it has to be asked, and its silence may pass. */
    struct hf_creds keys;
    struct hf_err err = {.code = HF_OK};
    expect_rc(hf_keyring_get(k, NULL, NOW + 60 * MINUTES, 0, &keys, &err), HF_EAGAIN, &err);
    assert_non_null(strstr(err.msg, "as planned"));
    hf_creds_release(&keys);
    next_rc = HF_OK;
    next_key = "B";
    next_end_ms = 0;
    gives(k, NOW + 60 * MINUTES, 0, "B", 4);
    hf_keyring_free(k);
}

static void what_was_never_found_is_final(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", 0);
    next_rc = HF_EDENIED;
    struct hf_creds keys;
    struct hf_err err = {.code = HF_OK};
    expect_rc(hf_keyring_get(k, NULL, NOW, 0, &keys, &err), HF_EDENIED, &err);
    hf_creds_release(&keys);
    hf_keyring_free(k);
}

static void refused_ones_are_looked_for_again(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", 0);
    assert_int_equal(gives(k, NOW, 0, "A", 1), 1);
    assert_int_equal(gives(k, NOW, 1, "A", 2), 1); /* there are no others */
    next_key = "B";
    assert_int_equal(gives(k, NOW, 1, "B", 3), 2);
    assert_int_equal(gives(k, NOW, 1, "B", 3), 2); /* another thread's old refusal */
    hf_keyring_free(k);
}

static void *get_ending(void *user)
{
    struct hf_creds keys;
    enum hf_rc rc = hf_keyring_get(user, NULL, NOW + 55 * MINUTES, 0, &keys, NULL);
    hf_creds_release(&keys);
    return rc == HF_OK ? user : NULL;
}

/* One thread looks; the others go on with what holds, and do not wait for it. */
static void one_looks_and_no_other_waits(void **state)
{
    (void)state;
    struct hf_keyring *k = ring("A", NOW + 60 * MINUTES);
    gives(k, NOW, 0, "A", 1);
    next_key = "B";
    next_end_ms = NOW + 120 * MINUTES;
    atomic_store(&hold, true);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_ending, k), 0);
    uint64_t end_ns = hf_now_ns() + 30 * HF_SEC;
    while (!atomic_load(&holding) && hf_now_ns() < end_ns) {
        struct hf_call none = {.op = NULL};
        expect_rc(hf_call_wait(&none, 1, NULL), HF_OK, NULL);
    }
    gives(k, NOW + 55 * MINUTES, 0, "A", 2);
    atomic_store(&hold, false);
    void *went_well = NULL;
    pthread_join(thread, &went_well);
    assert_ptr_equal(went_well, k);
    gives(k, NOW + 55 * MINUTES, 0, "B", 2);
    hf_keyring_free(k);
}

static void roles(void **state)
{
    (void)state;
#define KEYS(code, id, secret)                                                              \
    "{\"Code\":\"" code "\",\"AccessKeyId\":\"" id "\",\"SecretAccessKey\":\"" secret "\"," \
    "\"Token\":\"t/==\",\"Expiration\":\"2026-12-01T12:00:00Z\"}"
    static const struct {
        const char *text;
        enum hf_rc want;
    } rows[] = {
        {KEYS("Success", "AK", "sk"), HF_OK},
        {KEYS("Failed", "AK", "sk"), HF_EAGAIN},
        {KEYS("Success", "A K", "sk"), HF_EDENIED},
        {KEYS("Success", "AK", "s\\r\\nk"), HF_EDENIED},
        {"{\"AccessKeyId\":\"AK\"}", HF_ECORRUPT},
        {"{\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":\"x\"}",
         HF_EINVAL},
        {"<html>", HF_ECORRUPT},
        {"", HF_ECORRUPT},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_creds keys = {.generation = 0};
        struct hf_err err = {.code = HF_OK};
        expect_rc(hf_creds_role_read(text_of(rows[i].text), &keys, &err), rows[i].want, &err);
        if (rows[i].want == HF_OK) {
            assert_string_equal(keys.access_key, "AK");
            assert_string_equal(keys.token, "t/==");
            assert_int_equal(keys.expires_wall_ms, INT64_C(1796126400000));
        }
        hf_creds_release(&keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_without_an_end_are_found_once),
        cmocka_unit_test(found_again_ahead_of_their_end),
        cmocka_unit_test(a_look_that_fails_costs_nothing_while_they_hold),
        cmocka_unit_test(what_was_never_found_is_final),
        cmocka_unit_test(refused_ones_are_looked_for_again),
        cmocka_unit_test(one_looks_and_no_other_waits),
        cmocka_unit_test(roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
