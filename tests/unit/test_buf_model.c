/* SPDX-License-Identifier: Apache-2.0
 *
 * base/buf and the string lists of base/mem against plain arrays: long rows of random calls, after
 * each of which content, length, terminator and bounds are those of the model.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "support_seed.h"

#define MODEL_MAX 3000

struct model {
    struct hf_buf b;
    char data[MODEL_MAX + 1];
    size_t len, max, pos; /* pos: of the lines read so far */
    uint64_t random;
};

static void agrees(const struct model *m)
{
    assert_int_equal(m->b.len, m->len);
    assert_int_equal(m->b.max, m->max);
    assert_true(m->b.cap <= m->max + 1);
    assert_int_equal(hf_buf_span(&m->b).len, m->len);
    assert_memory_equal(hf_buf_str(&m->b), m->data, m->len);
    assert_int_equal(hf_buf_str(&m->b)[m->len], 0);
}

/* A random piece: mostly short, of lines and NULs too. */
static size_t piece(struct model *m, char *out, size_t max)
{
    size_t most = hf_test_below(&m->random, 20) == 0 ? max : 40;
    size_t n = hf_test_below(&m->random, most);
    for (size_t i = 0; i < n; i++) {
        out[i] = "ab\n\0\xff%"[hf_test_below(&m->random, 6)];
    }
    return n;
}

static void expect_added(struct model *m, enum hf_rc rc, const struct hf_err *err, const char *text,
                         size_t n)
{
    bool fits = n <= m->max - m->len;
    assert_int_equal(rc, fits ? HF_OK : HF_EFULL);
    if (fits) {
        memcpy(m->data + m->len, text, n);
        m->len += n;
    } else {
        char want[40];
        snprintf(want, sizeof(want), "more than %zu bytes", m->max);
        assert_string_equal(err->msg, want);
    }
}

static void add(struct model *m)
{
    char text[MODEL_MAX];
    struct hf_err err;
    size_t n = piece(m, text, sizeof(text));
    expect_added(m, hf_buf_add(&m->b, n > 0 ? text : NULL, n, &err), &err, text, n);
}

static void addf(struct model *m)
{
    char text[MODEL_MAX], want[MODEL_MAX + 32];
    struct hf_err err;
    size_t n = piece(m, text, sizeof(text) - 1);
    text[n] = '\0';
    int value = (int)hf_test_below(&m->random, 100000) - 50000;
    int len = snprintf(want, sizeof(want), "<%s|%d>", text, value);
    expect_added(m, hf_buf_addf(&m->b, &err, "<%s|%d>", text, value), &err, want, (size_t)len);
}

static void drop(struct model *m)
{
    size_t n = hf_test_below(&m->random, m->len + 10);
    n = hf_test_below(&m->random, 50) == 0 ? SIZE_MAX : n;
    hf_buf_drop_front(&m->b, n);
    n = n < m->len ? n : m->len;
    m->len -= n;
    memmove(m->data, m->data + n, m->len);
}

/* All whole lines, then what is left moves to the front: as every reader of a socket does. */
static void read_lines(struct model *m)
{
    size_t pos = 0, len = 0, at = 0;
    char *line;
    while ((line = hf_buf_next_line(&m->b, &pos, &len)) != NULL) {
        char *nl = memchr(m->data + at, '\n', m->len - at);
        assert_non_null(nl);
        assert_int_equal(len, nl - (m->data + at));
        assert_memory_equal(line, m->data + at, len);
        assert_int_equal(line[len], 0);
        at += len + 1;
        assert_int_equal(pos, at);
    }
    assert_null(memchr(m->data + at, '\n', m->len - at));
    hf_buf_drop_front(&m->b, pos);
    m->len -= at;
    memmove(m->data, m->data + at, m->len);
}

static void step(struct model *m)
{
    switch (hf_test_below(&m->random, 12)) {
    case 0:
        drop(m);
        break;
    case 1:
        read_lines(m);
        break;
    case 2:
        if (hf_test_below(&m->random, 8) == 0) {
            hf_buf_reset(&m->b);
            m->len = 0;
        }
        break;
    case 3:
        if (hf_test_below(&m->random, 8) == 0) {
            hf_buf_release(&m->b); /* the maximum stays, so it can be filled again */
            m->len = 0;
        }
        break;
    case 4:
    case 5:
    case 6:
        addf(m);
        break;
    default:
        add(m);
    }
    agrees(m);
}

static void buffers(void **state)
{
    (void)state;
    static const size_t maxima[] = {0, 1, 62, 63, 64, 65, 127, 128, 1000, MODEL_MAX};
    uint64_t seed = hf_test_seed();
    for (size_t i = 0; i < HF_COUNT(maxima); i++) {
        struct model m = {.max = maxima[i], .random = seed};
        hf_buf_init(&m.b, m.max);
        for (int round = 0; round < 4000; round++) {
            step(&m);
        }
        hf_buf_release(&m.b);
    }
}

/* A length that would wrap around is refused, not added. */
static void lengths_do_not_wrap(void **state)
{
    (void)state;
    static const size_t more[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 3, SIZE_MAX - 4, 1};
    struct hf_buf b;
    hf_buf_init(&b, 3);
    assert_int_equal(hf_buf_add(&b, "abc", 3, NULL), HF_OK);
    for (size_t i = 0; i < HF_COUNT(more); i++) {
        assert_int_equal(hf_buf_add(&b, "", more[i], NULL), HF_EFULL);
        assert_string_equal(hf_buf_str(&b), "abc");
    }
    hf_buf_release(&b);
}

/* Lists of every length around the powers of two at which they grow. */
static void string_lists(void **state)
{
    (void)state;
    struct hf_strv v = {0};
    assert_false(hf_strv_has(&v, "0"));
    hf_strv_clear(&v);
    for (size_t most = 0; most < 70; most++) {
        char text[16];
        for (size_t i = 0; i < most; i++) {
            snprintf(text, sizeof(text), "%zu", i);
            if (i % 2 == 0) {
                hf_strv_add(&v, text);
            } else {
                hf_strv_take(&v, hf_strdup(text));
            }
            hf_strv_take(&v, NULL); /* no string, no entry */
            assert_int_equal(v.len, i + 1);
            assert_null(v.items[v.len]);
        }
        for (size_t i = 0; i < most; i++) {
            snprintf(text, sizeof(text), "%zu", i);
            assert_string_equal(v.items[i], text);
            assert_true(hf_strv_has(&v, text));
        }
        snprintf(text, sizeof(text), "%zu", most);
        assert_false(hf_strv_has(&v, text));
        assert_false(hf_strv_has(&v, ""));
        hf_strv_clear(&v);
        assert_int_equal(v.len, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers),
        cmocka_unit_test(lengths_do_not_wrap),
        cmocka_unit_test(string_lists),
    };
    return cmocka_run_group_tests_name("buf_model", tests, NULL, NULL);
}
