/* SPDX-License-Identifier: Apache-2.0
 *
 * base/text over everything: every character there is, every sequence of boundary bytes judged by
 * an encoder, random rubbish that must come out fit for a terminal, and the C library's own idea of
 * columns.
 */
#include "base/prelude.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/text.h"
#include "support_seed.h"

#define LAST 0x10ffffu

static bool is_surrogate(uint32_t c)
{
    return c >= 0xd800 && c <= 0xdfff;
}

static size_t encode(uint32_t c, unsigned char out[4])
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) {
        out[i] = (unsigned char)(0x80 | (c & 0x3f));
    }
    out[0] = (unsigned char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
    return n;
}

static void every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= LAST + 0x1000; c++) {
        unsigned char bytes[4];
        size_t n = encode(c, bytes);
        uint32_t got = 77;
        bool is = !is_surrogate(c) && c <= LAST;
        assert_int_equal(hf_utf8_next((const char *)bytes, n, &got), is ? n : 0);
        assert_int_equal(got, is ? c : 77);
        if (n > 1) {
            assert_int_equal(hf_utf8_next((const char *)bytes, n - 1, NULL), 0);
        }
    }
}

/* What the first bytes mean by arithmetic alone; it is a character if writing that number gives
 * the same bytes again. */
static size_t judge(const unsigned char *s, size_t len, uint32_t *ret)
{
    for (size_t n = 1; n <= len; n++) {
        uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
            c = c << 6 | (s[i] & 0x3f);
        }
        unsigned char again[4];
        if (c <= LAST && !is_surrogate(c) && encode(c, again) == n && memcmp(again, s, n) == 0) {
            *ret = c;
            return n;
        }
    }
    return 0;
}

static void every_boundary(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90,
                                          0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    size_t e = HF_COUNT(edges), characters = 0;
    for (size_t i = 0; i < 256 * e * e * e; i++) {
        unsigned char s[4] = {(unsigned char)(i / (e * e * e)), edges[i / (e * e) % e],
                              edges[i / e % e], edges[i % e]};
        for (size_t len = 0; len <= 4; len++) {
            uint32_t want = 77, got = 77;
            size_t n = judge(s, len, &want);
            if (hf_utf8_next((const char *)s, len, &got) != n || got != want) {
                fail_msg("%02x %02x %02x %02x, %zu bytes: U+%04X, not U+%04X", s[0], s[1], s[2],
                         s[3], len, got, want);
            }
            characters += n > 0;
        }
    }
    assert_true(characters > 100000);
}

/* What a terminal might obey: Unicode's categories Cc, Zl and Zp, its property Bidi_Control, and
 * the byte order mark. */
static bool obeyed(uint32_t c)
{
    return c <= 0x1f || (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029 || c == 0x061c ||
           c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

static void every_character_cleaned(void **state)
{
    (void)state;
    for (uint32_t c = 1; c <= LAST; c++) {
        unsigned char bytes[5] = {0};
        if (is_surrogate(c)) {
            continue;
        }
        encode(c, bytes);
        HF_CLEANUP(hf_freep) char *clean = hf_text_clean((const char *)bytes);
        char want[16];
        snprintf(want, sizeof(want), c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        const char *named = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : want;
        assert_string_equal(clean, obeyed(c) ? named : (const char *)bytes);
    }
}

static void random_bytes(uint64_t *random, char *out, size_t max)
{
    static const uint32_t some[] = {'a',    '\\',   '\n',   0x1b,   0x85,   0xe9,    0x301,
                                    0x200d, 0x202e, 0x4e2d, 0xff01, 0xfe0f, 0x1f680, 0x1f3fd};
    size_t at = 0;
    for (size_t left = hf_test_below(random, max / 4); left > 0; left--) {
        unsigned char bytes[4];
        size_t n = encode(some[hf_test_below(random, HF_COUNT(some))], bytes);
        n = hf_test_below(random, 5) == 0 ? hf_test_below(random, n + 1) : n; /* cut */
        memcpy(out + at, bytes, n);
        at += n;
        if (hf_test_below(random, 5) == 0) {
            char c = (char)(1 + hf_test_below(random, 255));
            out[at++] = c == ' ' ? 'x' : c; /* blanks are what filling up adds */
        }
    }
    out[at] = '\0';
}

/* Whatever went in: characters alone, none that is obeyed, and clean is clean. */
static void rubbish_is_cleaned(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    for (int round = 0; round < 30000; round++) {
        char text[200];
        random_bytes(&random, text, 120);
        HF_CLEANUP(hf_freep) char *clean = hf_text_clean(text);
        HF_CLEANUP(hf_freep) char *again = hf_text_clean(clean);
        assert_string_equal(again, clean);
        uint32_t c = 0;
        for (const char *s = clean; *s != '\0';) {
            size_t n = judge((const unsigned char *)s, strlen(s) < 4 ? strlen(s) : 4, &c);
            assert_true(n > 0 && !obeyed(c));
            s += n;
        }
    }
}

static bool ends_in_a_joiner(const char *s)
{
    size_t len = strlen(s);
    return len >= 3 && strcmp(s + len - 3, "\xe2\x80\x8d") == 0;
}

/* Any text fits into any number of columns: exactly that many, its beginning or all of it. */
static void rubbish_fits(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    for (int round = 0; round < 30000; round++) {
        char text[200];
        random_bytes(&random, text, 100);
        size_t columns = hf_test_below(&random, 60);
        bool right = hf_test_below(&random, 2) == 0;
        HF_CLEANUP(hf_freep) char *clean = hf_text_clean(text);
        HF_CLEANUP(hf_freep) char *fit = hf_text_fit(text, columns, right);
        bool whole = hf_text_width(clean) <= columns;
        if (!ends_in_a_joiner(clean) || !whole || right) { /* what follows it counts nothing */
            if (hf_text_width(fit) != columns) {
                fail_msg("'%s' of %zu columns is '%s' in %zu", clean, hf_text_width(clean), fit,
                         columns);
            }
        }
        size_t lead = right ? strspn(fit, " ") : 0;
        const char *dots = NULL; /* the last ones: rubbish may spell them too */
        for (const char *s = fit; !whole && (s = strstr(s, "…")) != NULL; s++) {
            dots = s;
        }
        size_t kept = whole ? strlen(clean) : 0;
        if (!whole && columns > 0) {
            assert_non_null(dots);
            kept = (size_t)(dots - fit) - lead;
        }
        assert_memory_equal(fit + lead, clean, kept);
        const char *after = fit + lead + kept + (dots != NULL ? strlen("…") : 0);
        assert_int_equal(strspn(after, " "), strlen(after));
        assert_true(right ? *after == '\0' : true);
    }
}

/* glibc 2.36 has Unicode 14 too. It counts the I Ching signs and the circled numbers 10 to 80 as
 * wide, which the character database does not. */
static void wide_as_the_c_library_has_it(void **state)
{
    (void)state;
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) {
        skip();
    }
    unsigned wide = 0;
    for (uint32_t c = 0x20; c <= LAST; c++) {
        int there = wcwidth((wchar_t)c);
        unsigned here = hf_char_width(c);
        bool odd = (c >= 0x3248 && c <= 0x324f) || (c >= 0x4dc0 && c <= 0x4dff);
        if (there >= 0 && !odd && (there == 2) != (here == 2)) {
            fail_msg("U+%04X: %u columns, the C library has %d", c, here, there);
        }
        assert_true(here <= 2);
        wide += here == 2;
    }
    assert_true(wide > 100000);
    setlocale(LC_CTYPE, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character),
        cmocka_unit_test(every_boundary),
        cmocka_unit_test(every_character_cleaned),
        cmocka_unit_test(rubbish_is_cleaned),
        cmocka_unit_test(rubbish_fits),
        cmocka_unit_test(wide_as_the_c_library_has_it),
    };
    return cmocka_run_group_tests_name("text_model", tests, NULL, NULL);
}
