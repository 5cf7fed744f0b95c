/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for people: UTF-8 that is and is not, columns of wide, combining and joined characters,
 * what is spelt out, and cells of a table that are all equally wide.
 */
#include "base/prelude.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/text.h"

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len, n;
        uint32_t c;
    } rows[] = {
        {"a", 1, 1, 'a'},
        {"", 0, 0, 0},
        {"\0", 1, 1, 0},
        {"\xc3\xa9", 2, 2, 0xe9},
        {"\xe5\xae\x9e", 3, 3, 0x5b9e},
        {"\xf0\x9f\x9a\x80", 4, 4, 0x1f680},
        {"\xe5\xae", 2, 0, 0},         /* cut */
        {"\xe5\xae\x9e", 2, 0, 0},     /* cut by its length */
        {"\xc0\xaf", 2, 0, 0},         /* overlong */
        {"\xe0\x80\xaf", 3, 0, 0},     /* overlong */
        {"\xed\xa0\x80", 3, 0, 0},     /* a surrogate */
        {"\xf4\x90\x80\x80", 4, 0, 0}, /* beyond U+10FFFF */
        {"\x80", 1, 0, 0},
        {"\xb6\xc1", 2, 0, 0}, /* GBK */
        {"\xff\xfe", 2, 0, 0},
        {"\xe5(\xa1", 3, 0, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        uint32_t c = 0;
        assert_int_equal(hf_utf8_next(rows[i].text, rows[i].len, &c), rows[i].n);
        assert_int_equal(c, rows[i].c);
    }
}

static void test_width(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
    } rows[] = {
        {"", 0},
        {"cat-1", 5},
        {"caf\xc3\xa9", 4},
        {"cafe\xcc\x81", 4}, /* a combining acute */
        {"实验", 4},
        {"：“", 3}, /* full-width colon; a curly quote is narrow */
        {"ﾊﾝ", 2},  /* half-width katakana */
        {"한글", 4},
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", 2}, /* the same syllable in three parts */
        {"🚀", 2},
        {"👍🏽", 2},                    /* with a skin tone */
        {"👩\xe2\x80\x8d👩\xe2\x80\x8d👧", 2}, /* a family: joined */
        {"❤\xef\xb8\x8f", 1},               /* with a variation selector */
        {"a\xe2\x80\x8b"
         "b",
         2},                     /* zero-width space */
        {"\xf0\xa0\x80\x8b", 2}, /* plane 2 */
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        if (hf_text_width(rows[i].text) != rows[i].columns) {
            fail_msg("'%s': %zu, not %zu", rows[i].text, hf_text_width(rows[i].text),
                     rows[i].columns);
        }
    }
    assert_int_equal(hf_char_width(0x10ffff), 1);
    assert_int_equal(hf_char_width(0x3041), 2);
    assert_int_equal(hf_char_width(0x3040), 1); /* unassigned */
}

static void test_clean(void **state)
{
    (void)state;
    static const struct {
        const char *text, *clean;
    } rows[] = {
        {"", ""},
        {"实验 ok", "实验 ok"},
        {"a\nb\tc\r", "a\\nb\\tc\\r"},
        {"\x1b[31mred", "\\x1b[31mred"},
        {"\x7f\xc2\x85", "\\x7f\\x85"},
        {"\xb6\xc1", "\\xb6\\xc1"},
        {"a\xe2\x80\xae"
         "b",
         "a\\u202eb"},
        {"\xef\xbb\xbf", "\\ufeff"},
        {"\xd8\x9c", "\\u061c"},
        {"\xe5\xae", "\\xe5\\xae"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *clean = hf_text_clean(rows[i].text);
        assert_string_equal(clean, rows[i].clean);
    }
}

static void test_fit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
        bool right;
        const char *cell;
    } rows[] = {
        {"ab", 4, false, "ab  "},
        {"ab", 4, true, "  ab"},
        {"abcd", 4, false, "abcd"},
        {"abcde", 4, false, "abc…"},
        {"实验", 6, false, "实验  "},
        {"实验一", 5, false, "实验…"},
        {"实验一", 4, false, "实… "},
        {"x", 0, false, ""},
        {"xy", 1, false, "…"},
        {"a\nb", 6, true, "  a\\nb"},
        {"cafe\xcc\x81s", 4, false, "caf…"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep)
        char *cell = hf_text_fit(rows[i].text, rows[i].columns, rows[i].right);
        assert_string_equal(cell, rows[i].cell);
        assert_int_equal(hf_text_width(cell), rows[i].columns);
    }
}

/* No locale is asked: the answers are the same under any that is installed. */
static void test_locales(void **state)
{
    static const char *const names[] = {"C", "C.UTF-8", "zh_CN.UTF-8", "de_DE.UTF-8"};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        if (setlocale(LC_ALL, names[i]) != NULL) {
            test_width(state);
            test_clean(state);
            test_fit(state);
        }
    }
    (void)setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8), cmocka_unit_test(test_width),   cmocka_unit_test(test_clean),
        cmocka_unit_test(test_fit),  cmocka_unit_test(test_locales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
