/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of stores against the object store that the environment names:
 * HOLDFAST_TEST_STORE, a URI, and HOLDFAST_STORE_ENDPOINT. tests/e2e/test_stores.py starts the
 * store and this. Each test gets a folder of its own in the bucket.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/unit/support_conform_store.h"

static struct hf_store *open_one(void)
{
    char random[17];
    hf_random_hex(8, random);
    HF_CLEANUP(hf_freep)
    char *uri = hf_asprintf("%s/%s", getenv("HOLDFAST_TEST_STORE"), random);
    struct hf_store_cfg cfg = {.endpoint = getenv("HOLDFAST_STORE_ENDPOINT")};
    struct hf_store *s = NULL;
    struct hf_err err;
    expect_rc(hf_store_open(uri, &cfg, &s, &err), HF_OK, &err);
    return s;
}

static void conforms(void **state)
{
    (void)state;
    conform_store(open_one);
}

/* More keys than two pages of a listing hold. */
static void many_keys(void **state)
{
    (void)state;
    struct hf_store *s = open_one();
    for (unsigned i = 0; i < 2100; i++) {
        HF_CLEANUP(hf_freep) char *key = hf_asprintf("many/%u@x", i);
        store_set(s, key, "1");
    }
    assert_int_equal(store_count(s, "many/"), 2100);
    assert_int_equal(store_count(s, "many/1"), 1111);
    assert_int_equal(store_count(s, "many/nothing"), 0);
    hf_store_close(s);
}

int main(void)
{
    if (getenv("HOLDFAST_TEST_STORE") == NULL) {
        return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(conforms), cmocka_unit_test(many_keys)};
    return cmocka_run_group_tests_name("conform", tests, NULL, NULL);
}
