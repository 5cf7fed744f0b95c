/* SPDX-License-Identifier: Apache-2.0
 *
 * base/json: what is refused, exact integers, byte strings that are not text, and accessors that
 * name the key.
 */
#include "base/prelude.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"

static cJSON *must_parse(const char *text)
{
    cJSON *json = NULL;
    struct hf_err err;
    if (hf_json_parse((struct hf_span){text, strlen(text)}, 1 << 20, &json, &err) != HF_OK) {
        fail_msg("'%s': %s", text, err.msg);
    }
    return json;
}

/* The text is handed over without a NUL behind it, so that a sanitizer sees a read past its end. */
static void parsing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum hf_rc rc;
    } rows[] = {
        {"{}", HF_OK},
        {" \t\r\n{\"a\":[1,2,{\"b\":null}]} \n", HF_OK},
        {"[]", HF_OK},
        {"1", HF_OK},
        {"\"x\"", HF_OK},
        {"true", HF_OK},
        {"null", HF_OK},
        {"{\"a\":\"[[[[{{{{\\\"]\"}", HF_OK},
        {"", HF_ECORRUPT},
        {" ", HF_ECORRUPT},
        {"{", HF_ECORRUPT},
        {"{}}", HF_ECORRUPT},
        {"{} x", HF_ECORRUPT},
        {"{}{}", HF_ECORRUPT},
        {"[1,]", HF_ECORRUPT},
        {"{\"a\":}", HF_ECORRUPT},
        {"{\"a\" 1}", HF_ECORRUPT},
        {"{a:1}", HF_ECORRUPT},
        {"\"x", HF_ECORRUPT},
        {"\"\\", HF_ECORRUPT},
        {"\"\\u12\"", HF_ECORRUPT},
        {"\"\\ud800\"", HF_ECORRUPT},
        {"nul", HF_ECORRUPT},
        {"-", HF_ECORRUPT},
        {"01x", HF_ECORRUPT},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        size_t len = strlen(rows[i].text);
        char *exact = malloc(len > 0 ? len : 1);
        assert_non_null(exact);
        memcpy(exact, rows[i].text, len);
        cJSON *json = NULL;
        struct hf_err err;
        enum hf_rc rc = hf_json_parse((struct hf_span){exact, len}, 4096, &json, &err);
        free(exact);
        if (rc != rows[i].rc || (json != NULL) != (rc == HF_OK)) {
            fail_msg("'%s' gave %s", rows[i].text, hf_rc_name(rc));
        }
        hf_json_free(json);
    }
}

static void bounds(void **state)
{
    (void)state;
    cJSON *json = NULL;
    struct hf_err err;
    assert_int_equal(hf_json_parse((struct hf_span){"[1]", 3}, 3, &json, &err), HF_OK);
    hf_json_freep(&json);
    assert_null(json);
    assert_int_equal(hf_json_parse((struct hf_span){"[1]", 3}, 2, &json, &err), HF_EFULL);
    assert_int_equal(hf_json_parse((struct hf_span){"[1\0]", 4}, 9, &json, &err), HF_ECORRUPT);
    assert_int_equal(hf_json_parse((struct hf_span){"\"\0\"", 3}, 9, &json, &err), HF_ECORRUPT);
    for (size_t depth = 60; depth <= 70; depth++) {
        char text[200];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        enum hf_rc rc = hf_json_parse((struct hf_span){text, 2 * depth}, 200, &json, &err);
        assert_int_equal(rc, depth <= 64 ? HF_OK : HF_ECORRUPT);
        hf_json_freep(&json);
    }
    /* A million of them: no recursion before the count. */
    char *deep = malloc(1000000);
    assert_non_null(deep);
    memset(deep, '[', 1000000);
    assert_int_equal(hf_json_parse((struct hf_span){deep, 1000000}, 1000000, &json, &err),
                     HF_ECORRUPT);
    free(deep);
}

static void required_members(void **state)
{
    (void)state;
    cJSON *obj = must_parse("{\"s\":\"text\",\"n\":7,\"f\":1.5,\"a\":[1],\"o\":{},\"z\":null,"
                            "\"b\":true,\"S\":\"other\"}");
    static const struct {
        const char *key;
        char type; /* what it is */
    } rows[] = {{"s", 's'}, {"n", 'n'}, {"f", 'f'}, {"a", 'a'},
                {"o", 'o'}, {"z", 'z'}, {"b", 'b'}, {"none", '-'}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        const char *key = rows[i].key;
        const char *s = NULL;
        int64_t n = -9;
        const cJSON *a = NULL;
        const cJSON *o = NULL;
        struct hf_err err[4];
        memset(err, 0, sizeof(err));
        enum hf_rc rc[4] = {
            hf_json_get_str(obj, key, &s, &err[0]), hf_json_get_int(obj, key, 0, 100, &n, &err[1]),
            hf_json_get_arr(obj, key, &a, &err[2]), hf_json_get_obj(obj, key, &o, &err[3])};
        assert_int_equal(rc[0], rows[i].type == 's' ? HF_OK : HF_ECORRUPT);
        assert_int_equal(rc[1], rows[i].type == 'n' ? HF_OK : HF_ECORRUPT);
        assert_int_equal(rc[2], rows[i].type == 'a' ? HF_OK : HF_ECORRUPT);
        assert_int_equal(rc[3], rows[i].type == 'o' ? HF_OK : HF_ECORRUPT);
        for (size_t k = 0; k < 4; k++) {
            assert_true(rc[k] == HF_OK || strstr(err[k].msg, key) != NULL);
            assert_true(rc[k] == HF_OK ||
                        (strstr(err[k].msg, "missing") != NULL) == (rows[i].type == '-'));
        }
        assert_int_equal(n, rc[1] == HF_OK ? 7 : -9);
    }
    const char *s = NULL;
    assert_int_equal(hf_json_get_str(obj, "S", &s, NULL), HF_OK);
    assert_string_equal(s, "other");
    hf_json_free(obj);
}

static void optional_members(void **state)
{
    (void)state;
    cJSON *obj =
        must_parse("{\"s\":\"text\",\"n\":-7,\"f\":1.5,\"z\":null,\"t\":true,\"u\":false}");
    assert_string_equal(hf_json_opt_str(obj, "s", "x"), "text");
    assert_string_equal(hf_json_opt_str(obj, "n", "x"), "x");
    assert_string_equal(hf_json_opt_str(obj, "z", "x"), "x");
    assert_null(hf_json_opt_str(obj, "none", NULL));
    assert_int_equal(hf_json_opt_int(obj, "n", 5), -7);
    assert_int_equal(hf_json_opt_int(obj, "f", 5), 5);
    assert_int_equal(hf_json_opt_int(obj, "s", 5), 5);
    assert_int_equal(hf_json_opt_int(obj, "none", 5), 5);
    assert_true(hf_json_opt_bool(obj, "t", false));
    assert_false(hf_json_opt_bool(obj, "u", true));
    assert_true(hf_json_opt_bool(obj, "n", true));
    assert_false(hf_json_opt_bool(obj, "none", false));
    assert_non_null(hf_json_opt(obj, "z"));
    assert_null(hf_json_opt(obj, "none"));
    hf_json_free(obj);
    /* What is no object has no members. */
    static const char *const others[] = {"7", "\"s\"", "[1,{\"s\":2}]", "null", "true"};
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        cJSON *other = must_parse(others[i]);
        assert_null(hf_json_opt(other, "s"));
        assert_int_equal(hf_json_opt_int(other, "s", 5), 5);
        hf_json_free(other);
    }
    assert_null(hf_json_opt(NULL, "s"));
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9007199254740991", true, 9007199254740991},
        {"-9007199254740991", true, -9007199254740991},
        {"9007199254740992", false, 0},
        {"9007199254740993", false, 0},
        {"-9007199254740992", false, 0},
        {"1e3", true, 1000},
        {"10.0", true, 10},
        {"9007199254740994", false, 0},
        {"-9007199254740994", false, 0},
        {"9223372036854775807", false, 0},
        {"1e300", false, 0},
        {"-1e300", false, 0},
        {"1e999", false, 0},
        {"0.5", false, 0},
        {"\"7\"", false, 0},
        {"[7]", false, 0},
        {"true", false, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char text[64];
        snprintf(text, sizeof(text), "{\"n\":%s}", rows[i].text);
        cJSON *obj = must_parse(text);
        int64_t n = 0;
        enum hf_rc rc = hf_json_get_int(obj, "n", INT64_MIN, INT64_MAX, &n, NULL);
        if (rc != (rows[i].ok ? HF_OK : HF_ECORRUPT) || n != rows[i].value) {
            fail_msg("%s gave %lld", rows[i].text, (long long)n);
        }
        hf_json_free(obj);
    }
    cJSON *obj = must_parse("{\"n\":10}");
    int64_t n = 0;
    struct hf_err err;
    assert_int_equal(hf_json_get_int(obj, "n", 10, 10, &n, &err), HF_OK);
    assert_int_equal(hf_json_get_int(obj, "n", 11, 20, &n, &err), HF_ECORRUPT);
    assert_non_null(strstr(err.msg, "10"));
    assert_int_equal(hf_json_get_int(obj, "n", 0, 9, &n, &err), HF_ECORRUPT);
    hf_json_free(obj);
}

static void building(void **state)
{
    (void)state;
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "s", "a\"b\n");
    hf_json_add_str(obj, "none", NULL);
    hf_json_add_str(obj, "bad", "x\xff\xc3y");
    hf_json_add_int(obj, "max", INT64_MAX);
    hf_json_add_int(obj, "min", INT64_MIN);
    hf_json_add_int(obj, "ms", 1796078221250);
    hf_json_add_num(obj, "half", 0.5);
    hf_json_add_num(obj, "nan", (double)NAN);
    hf_json_add_num(obj, "inf", (double)INFINITY);
    hf_json_add_bool(obj, "yes", true);
    hf_json_add_null(obj, "null");
    cJSON *arr = hf_json_arr();
    hf_json_push_str(arr, "one");
    hf_json_push(arr, hf_json_obj());
    hf_json_add(obj, "arr", arr);
    /* Readable before it is printed, too. */
    assert_int_equal(hf_json_opt_int(obj, "max", 0), INT64_MAX);
    assert_int_equal(hf_json_opt_int(obj, "min", 0), INT64_MIN);
    char *text = hf_json_print(obj);
    assert_string_equal(text, "{\"s\":\"a\\\"b\\n\",\"none\":null,"
                              "\"bad\":\"x\xef\xbf\xbd\xef\xbf\xbdy\","
                              "\"max\":9223372036854775807,\"min\":-9223372036854775808,"
                              "\"ms\":1796078221250,\"half\":0.5,\"nan\":null,\"inf\":null,"
                              "\"yes\":true,\"null\":null,\"arr\":[\"one\",{}]}");
    cJSON *back = must_parse(text);
    assert_string_equal(hf_json_opt_str(back, "s", ""), "a\"b\n");
    assert_int_equal(hf_json_opt_int(back, "ms", 0), 1796078221250);
    hf_json_free(back);
    hf_free(text);
    hf_json_free(obj);
}

/* Through text and back: the same bytes. */
static void byte_strings(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool is_text;
    } rows[] = {
        {"", true},
        {"plain", true},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80", true},
        {"line\nbreak\x01\x7f", true},
        {"\xff", false},
        {"\x80", false},
        {"\xc3", false},
        {"\xc0\xaf", false},         /* overlong */
        {"\xe0\x80\x80", false},     /* overlong */
        {"\xed\xa0\x80", false},     /* a surrogate */
        {"\xf4\x90\x80\x80", false}, /* beyond U+10FFFF */
        {"\xf0\x9f\x9a", false},     /* cut short */
        {"--lr=\xff\x01", false},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        cJSON *item = hf_json_bytes(rows[i].bytes);
        assert_int_equal(cJSON_IsString(item) != 0, rows[i].is_text);
        char *text = hf_json_print(item);
        cJSON *again = must_parse(text);
        char *back = NULL;
        assert_int_equal(hf_json_bytes_read(again, &back, NULL), HF_OK);
        assert_string_equal(back, rows[i].bytes);
        hf_free(back);
        hf_json_free(again);
        hf_free(text);
        hf_json_free(item);
    }
    static const char *const bad[] = {
        "7",
        "null",
        "[]",
        "{}",
        "{\"hex\":7}",
        "{\"hex\":\"f\"}",
        "{\"hex\":\"fg\"}",
        "{\"hex\":\"FF\"}",
        "{\"hex\":\"6100\"}",
        "{\"hex\":\"00\"}",
        "{\"hex\":\"-1\"}",
    };
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        cJSON *item = must_parse(bad[i]);
        char *back = NULL;
        if (hf_json_bytes_read(item, &back, NULL) != HF_ECORRUPT || back != NULL) {
            fail_msg("%s was taken", bad[i]);
        }
        hf_json_free(item);
    }
    char *back = NULL;
    assert_int_equal(hf_json_bytes_read(NULL, &back, NULL), HF_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing),          cmocka_unit_test(bounds),
        cmocka_unit_test(required_members), cmocka_unit_test(optional_members),
        cmocka_unit_test(integers),         cmocka_unit_test(building),
        cmocka_unit_test(byte_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
