/* SPDX-License-Identifier: Apache-2.0
 *
 * base/json_cut: long arrays read element by element. Whatever the text, the result is that of the
 * whole parser: a table of texts, and texts made by spoiling good ones at random.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/json_cut.h"
#include "base/mem.h"

static const char *const keys[] = {"files", "blocks"};

static struct hf_span span_of(const char *text)
{
    return (struct hf_span){.ptr = text, .len = strlen(text)};
}

static enum hf_rc collect(void *user, const cJSON *element, struct hf_err *err)
{
    (void)err;
    hf_json_push(user, cJSON_Duplicate(element, true));
    return HF_OK;
}

/* The text as hf_json_cut and hf_json_each read it, put together again; NULL: refused. */
static cJSON *read_cut(struct hf_span text)
{
    struct hf_span arrays[2];
    cJSON *rest = NULL;
    if (hf_json_cut(text, 1u << 20, keys, 2, arrays, &rest, NULL) != HF_OK) {
        return NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        cJSON *all = hf_json_arr();
        size_t n = 0;
        if (hf_json_each(arrays[i], collect, all, &n, NULL) != HF_OK) {
            hf_json_free(all);
            hf_json_free(rest);
            return NULL;
        }
        assert_int_equal(n, cJSON_GetArraySize(all));
        assert_int_equal(n, hf_json_count(arrays[i]));
        if (arrays[i].len > 0) {
            cJSON_ReplaceItemInObjectCaseSensitive(rest, keys[i], all);
        } else {
            hf_json_free(all);
        }
    }
    return rest;
}

/* Both ways agree. Returns whether the text was accepted. */
static bool same_as_whole(struct hf_span text)
{
    cJSON *whole = NULL;
    enum hf_rc rc = hf_json_parse(text, 1u << 20, &whole, NULL);
    cJSON *cut = read_cut(text);
    if (rc != HF_OK) {
        assert_null(cut);
        return false;
    }
    if (cut != NULL) { /* refused alone: a key that is there twice */
        char *a = hf_json_print(whole);
        char *b = hf_json_print(cut);
        assert_string_equal(a, b);
        hf_free(a);
        hf_free(b);
    }
    hf_json_free(whole);
    hf_json_free(cut);
    return cut != NULL;
}

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } table[] = {
        {"{\"files\":[1,2,3],\"a\":5}", true},
        {"{\"a\":{\"files\":[1]},\"files\":[{\"files\":[9]}]}", true},
        {"{}", true},
        {" { } ", true},
        {"{\"files\":[]}", true},
        {"{\"files\":[ ]}", true},
        {"{\"files\" : [ 1 , \"a\" , null , [ ] , { } ] , \"blocks\":[true]}", true},
        {"{\"files\":[\"]\",\"\\\"]\",\"\\\\\"],\"x\":1}", true},
        {"{\"files\":{\"a\":1},\"blocks\":7}", true},
        {"{\"x\":\"files\",\"files\":[\"files\"]}", true},
        {"[1,2]", true},
        {"7", true},
        {"\"files\"", true},
        {"", false},
        {"{", false},
        {"{\"files\":[1,2", false},
        {"{\"files\":[1,]}", false},
        {"{\"files\":[,1]}", false},
        {"{\"files\":[1 2]}", false},
        {"{\"files\":[1}]}", false},
        {"{\"files\":[{]}", false},
        {"{\"files\":[{}}}", false},
        {"{\"files\":[\"a]}", false},
        {"{\"files\":[tru]}", false},
        {"{\"files\":[1]]}", false},
        {"{\"files\":[1]} x", false},
        {"{\"files\"[1]}", false},
        {"{files:[1]}", false},
        {"{\"files\":[1],\"files\":[2]}", false},
    };
    for (size_t i = 0; i < HF_COUNT(table); i++) {
        if (same_as_whole(span_of(table[i].text)) != table[i].ok) {
            fail_msg("%s", table[i].text);
        }
    }
}

/* 200,000 texts: a good one with some bytes removed, doubled or replaced. */
static void spoiled_texts(void **state)
{
    (void)state;
    static const char good[] =
        "{\"format\":1,\"files\":[{\"p\":\"a\\\"b\",\"e\":[{\"o\":0}]},{\"p\":\"c\",\"e\":[]}],"
        "\"mid\":{\"files\":[1]},\"blocks\":[\"x\",\"y\\\\\",[[]]],\"n\":null}";
    static const char bytes[] = "{}[],:\"\\ 1afilesblocks\n";
    char text[2 * sizeof(good)];
    unsigned accepted = 0;
    uint64_t seed = hf_random_u64();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < 200000; round++) {
        size_t len = sizeof(good) - 1;
        memcpy(text, good, len);
        unsigned spoils = (unsigned)(seed % 3);
        for (unsigned k = 0; k <= spoils; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            size_t at = (size_t)(seed >> 33) % len;
            if ((seed >> 20) % 3 == 0) {
                memmove(text + at, text + at + 1, len - at - 1);
                len--;
            } else if ((seed >> 20) % 3 == 1) {
                memmove(text + at + 1, text + at, len - at);
                len++;
            } else {
                text[at] = bytes[(seed >> 40) % sizeof(bytes)];
            }
        }
        accepted += same_as_whole((struct hf_span){text, len}) ? 1 : 0;
    }
    assert_true(accepted > 1000 && accepted < 199000);
}

static enum hf_rc refuse_second(void *user, const cJSON *element, struct hf_err *err)
{
    unsigned *n = user;
    (void)element;
    return ++*n == 2 ? hf_fail(err, HF_EINVAL, "enough") : HF_OK;
}

static void an_error_ends_the_walk(void **state)
{
    (void)state;
    unsigned n = 0;
    struct hf_err err = {0};
    assert_int_equal(hf_json_each(span_of("[1,2,3]"), refuse_second, &n, NULL, &err), HF_EINVAL);
    assert_int_equal(n, 2);
    assert_string_equal(err.msg, "enough");
    assert_int_equal(hf_json_each(span_of("[1,2,3"), NULL, NULL, NULL, &err), HF_ECORRUPT);
}

static void bounds(void **state)
{
    (void)state;
    struct hf_span arrays[2];
    cJSON *rest = NULL;
    struct hf_err err;
    assert_int_equal(hf_json_cut(span_of("{\"a\":1}"), 3, keys, 2, arrays, &rest, &err), HF_EFULL);
    for (size_t n = 58; n < 68; n++) {
        char deep[256] = "{\"files\":[";
        size_t len = strlen(deep);
        memset(deep + len, '[', n);
        memset(deep + len + n, ']', n);
        memcpy(deep + len + 2 * n, "]}", 3);
        assert_true(same_as_whole(span_of(deep)) == (n + 2 <= 64));
    }
    static const char nul[] = "{\"files\":[\"a\0b\"]}";
    assert_false(same_as_whole((struct hf_span){nul, sizeof(nul) - 1}));
    static const char between[] = "{\"files\":[1,\0 2]}";
    assert_false(same_as_whole((struct hf_span){between, sizeof(between) - 1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(spoiled_texts),
        cmocka_unit_test(an_error_ends_the_walk),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
