/* SPDX-License-Identifier: Apache-2.0
 *
 * base/buf: the maximum holds at every byte, a refusal changes nothing, and lines come out as
 * they went in, however they were cut.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

static void must_add(struct hf_buf *b, const char *text)
{
    struct hf_err err;
    if (hf_buf_add(b, text, strlen(text), &err) != HF_OK) {
        fail_msg("%s", err.msg);
    }
}

static void empty(void **state)
{
    (void)state;
    struct hf_buf b;
    hf_buf_init(&b, 10);
    assert_string_equal(hf_buf_str(&b), "");
    assert_int_equal(hf_buf_span(&b).len, 0);
    hf_buf_reset(&b);
    hf_buf_drop_front(&b, 5);
    size_t pos = 0;
    size_t len = 0;
    assert_null(hf_buf_next_line(&b, &pos, &len));
    assert_int_equal(hf_buf_add(&b, NULL, 0, NULL), HF_OK);
    assert_int_equal(b.len, 0);
    hf_buf_release(&b);
    hf_buf_release(&b);
}

/* Every size up to the maximum, and one more, in steps of every size. */
static void the_maximum_holds(void **state)
{
    (void)state;
    char data[300];
    memset(data, 'd', sizeof(data));
    for (size_t max = 0; max < 200; max += 7) {
        for (size_t step = 1; step <= 70; step += 23) {
            struct hf_buf b;
            struct hf_err err;
            hf_buf_init(&b, max);
            size_t want = 0;
            while (want + step <= max) {
                assert_int_equal(hf_buf_add(&b, data, step, &err), HF_OK);
                want += step;
                assert_int_equal(b.len, want);
                assert_int_equal(b.data[want], '\0');
                assert_true(b.cap <= max + 1);
            }
            assert_int_equal(hf_buf_add(&b, data, step, &err), HF_EFULL);
            assert_int_equal(err.code, HF_EFULL);
            assert_int_equal(b.len, want);
            assert_int_equal(hf_buf_add(&b, data, max - want, &err), HF_OK);
            assert_int_equal(b.len, max);
            assert_int_equal(hf_buf_add(&b, data, 1, &err), HF_EFULL);
            assert_int_equal(hf_buf_add(&b, data, SIZE_MAX, &err), HF_EFULL);
            assert_int_equal(hf_buf_add(&b, data, 0, &err), HF_OK);
            hf_buf_release(&b);
        }
    }
}

static void formatted(void **state)
{
    (void)state;
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 12);
    assert_int_equal(hf_buf_addf(&b, &err, "%s-%d", "abc", 42), HF_OK);
    assert_int_equal(hf_buf_addf(&b, &err, "%s", ""), HF_OK);
    assert_string_equal(hf_buf_str(&b), "abc-42");
    assert_int_equal(hf_buf_addf(&b, &err, "%07d", 1), HF_EFULL);
    assert_string_equal(hf_buf_str(&b), "abc-42");
    assert_int_equal(b.len, 6);
    assert_int_equal(hf_buf_addf(&b, &err, "%06d", 1), HF_OK);
    assert_string_equal(hf_buf_str(&b), "abc-42000001");
    hf_buf_release(&b);
}

static void nul_bytes_are_bytes(void **state)
{
    (void)state;
    struct hf_buf b;
    hf_buf_init(&b, 100);
    assert_int_equal(hf_buf_add(&b, "a\0b\nc\0", 6, NULL), HF_OK);
    assert_int_equal(hf_buf_span(&b).len, 6);
    size_t pos = 0;
    size_t len = 0;
    char *line = hf_buf_next_line(&b, &pos, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(line, "a\0b", 4);
    assert_null(hf_buf_next_line(&b, &pos, &len));
    hf_buf_release(&b);
}

static void drop_front(void **state)
{
    (void)state;
    static const struct {
        size_t drop;
        const char *left;
    } rows[] = {{0, "abcdef"}, {1, "bcdef"}, {5, "f"}, {6, ""}, {7, ""}, {SIZE_MAX, ""}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_buf b;
        hf_buf_init(&b, 8);
        must_add(&b, "abcdef");
        hf_buf_drop_front(&b, rows[i].drop);
        assert_string_equal(hf_buf_str(&b), rows[i].left);
        assert_int_equal(b.len, strlen(rows[i].left));
        must_add(&b, "+");
        assert_int_equal(b.len, strlen(rows[i].left) + 1);
        hf_buf_reset(&b);
        assert_string_equal(hf_buf_str(&b), "");
        must_add(&b, "12345678");
        hf_buf_release(&b);
    }
}

/* A text of lines arrives in pieces of every size: the same lines come out. */
static void lines(void **state)
{
    (void)state;
    static const char text[] = "one\n\ntwo words\r\n\nlast\nnot yet";
    static const char *const want[] = {"one", "", "two words\r", "", "last"};
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct hf_buf b;
        hf_buf_init(&b, 100);
        size_t found = 0;
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            size_t n = sizeof(text) - 1 - at < piece ? sizeof(text) - 1 - at : piece;
            assert_int_equal(hf_buf_add(&b, text + at, n, NULL), HF_OK);
            size_t pos = 0;
            size_t len = 0;
            for (char *l; (l = hf_buf_next_line(&b, &pos, &len)) != NULL; found++) {
                assert_true(found < HF_COUNT(want));
                assert_string_equal(l, want[found]);
                assert_int_equal(len, strlen(want[found]));
            }
            hf_buf_drop_front(&b, pos);
        }
        assert_int_equal(found, HF_COUNT(want));
        assert_string_equal(hf_buf_str(&b), "not yet");
        hf_buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty),     cmocka_unit_test(the_maximum_holds),
        cmocka_unit_test(formatted), cmocka_unit_test(nul_bytes_are_bytes),
        cmocka_unit_test(lines),     cmocka_unit_test(drop_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
