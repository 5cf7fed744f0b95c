/* SPDX-License-Identifier: Apache-2.0
 *
 * base/json against a model of its own: random trees that are written here, with every escape and
 * blank that JSON knows, and read there; built there and compared with what is written here. Then
 * texts that are cut or spoilt at every byte, read whole and in pieces.
 */
#include "base/prelude.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_cut.h"
#include "base/mem.h"
#include "support_seed.h"

#define TEXT_MAX  (1u << 20)
#define DEPTH_MAX 64
#define WIDTH     6

enum kind { NIL, NO, YES, INTEGER, REAL, STRING, ARRAY, OBJECT, KINDS };

struct node {
    enum kind kind;
    int64_t integer;
    double real;
    char *text, *key; /* key: in an object */
    struct node *kids[WIDTH];
    size_t n;
};

static void free_node(struct node *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free_node(v->kids[i]);
    }
    hf_free(v->text);
    hf_free(v->key);
    hf_free(v);
}

/* Characters at which an encoder changes its mind, and all that JSON escapes. */
static const uint32_t letters[] = {
    'a',    'Z',    '0',    ' ',    '/',    '"',    '\\', '\b',    '\f',    '\n',    '\r',    '\t',
    0x01,   0x1f,   '{',    '}',    '[',    ']',    ':',  ',',     0x7f,    0x80,    0x7ff,   0x800,
    0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xffff, 0x2028, 0x1b, 0x10000, 0x1f680, 0xfffff, 0x10ffff};

static size_t put_utf8(char *out, uint32_t c)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) {
        out[i] = (char)(0x80 | (c & 0x3f));
    }
    out[0] = (char)(lead[n] | c);
    return n;
}

static char *random_text(uint64_t *random)
{
    char text[4 * 12 + 1];
    size_t at = 0;
    for (size_t n = hf_test_below(random, 12); n > 0; n--) {
        at += put_utf8(text + at, letters[hf_test_below(random, HF_COUNT(letters))]);
    }
    return hf_strndup(text, at);
}

static int64_t random_integer(uint64_t *random)
{
    static const int64_t edges[] = {
        0, 1, -1, 255, INT32_MAX, INT32_MIN, UINT32_MAX, HF_JSON_INT_MAX, -HF_JSON_INT_MAX};
    if (hf_test_below(random, 2) == 0) {
        return edges[hf_test_below(random, HF_COUNT(edges))];
    }
    int64_t v = (int64_t)(hf_test_random(random) >> (11 + hf_test_below(random, 52)));
    return hf_test_below(random, 2) == 0 ? v : -v;
}

static struct node *grow(uint64_t *random, size_t depth)
{
    struct node *v = HF_NEW(struct node);
    size_t kinds = depth == 0 ? ARRAY : KINDS;
    v->kind = (enum kind)hf_test_below(random, kinds);
    v->integer = random_integer(random);
    v->real = ldexp((double)v->integer, -(int)hf_test_below(random, 60)) + 0.5;
    v->text = random_text(random);
    size_t n = v->kind >= ARRAY ? hf_test_below(random, WIDTH + 1) : 0;
    for (; v->n < n; v->n++) {
        struct node *kid = grow(random, depth - 1);
        kid->key = random_text(random);
        v->kids[v->n] = kid;
    }
    return v;
}

/* Writing it here */

struct pen {
    struct hf_buf b;
    uint64_t random;
    bool plain; /* as hf_json_print has it: no blank, no escape that need not be */
};

static void put(struct pen *p, const char *fmt, ...) HF_PRINTF(2, 3);
static void put(struct pen *p, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof(text));
    assert_int_equal(hf_buf_add(&p->b, text, (size_t)n, NULL), HF_OK);
}

static void blank(struct pen *p)
{
    static const char *const some[] = {"", "", "", "", " ", "\n", "\t", "\r\n  "};
    put(p, "%s", p->plain ? "" : some[hf_test_below(&p->random, HF_COUNT(some))]);
}

static void put_char(struct pen *p, const char *s, size_t n, uint32_t c)
{
    static const char named[] = "\"\\\b\f\n\r\t/", letter[] = "\"\\bfnrt/";
    const char *at = c < 0x80 ? strchr(named, (int)c) : NULL;
    size_t way = p->plain ? 0 : hf_test_below(&p->random, 4);
    if (way >= 2 && c >= 0x10000) {
        put(p, "\\u%04x\\u%04X", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else if (way >= 2) {
        put(p, way == 2 ? "\\u%04x" : "\\u%04X", c);
    } else if (at != NULL && (c != '/' || way == 1)) {
        put(p, "\\%c", letter[at - named]);
    } else if (c < ' ') {
        put(p, "\\u%04x", c);
    } else {
        put(p, "%.*s", (int)n, s);
    }
}

static void put_string(struct pen *p, const char *s)
{
    put(p, "\"");
    while (*s != '\0') {
        unsigned char lead = (unsigned char)*s;
        size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        uint32_t c = n == 1 ? lead : lead & (0xffu >> (n + 1));
        for (size_t i = 1; i < n; i++) {
            c = c << 6 | ((unsigned char)s[i] & 0x3f);
        }
        put_char(p, s, n, c);
        s += n;
    }
    put(p, "\"");
}

static void put_node(struct pen *p, const struct node *v)
{
    static const char *const words[] = {"null", "false", "true"};
    blank(p);
    if (v->kind <= YES) {
        put(p, "%s", words[v->kind]);
    } else if (v->kind == INTEGER) {
        put(p, "%lld", (long long)v->integer);
    } else if (v->kind == REAL) {
        put(p, "%.17g", v->real);
    } else if (v->kind == STRING) {
        put_string(p, v->text);
    } else {
        put(p, v->kind == ARRAY ? "[" : "{");
        blank(p);
        for (size_t i = 0; i < v->n; i++) {
            put(p, i > 0 ? "," : "");
            if (v->kind == OBJECT) {
                blank(p);
                put_string(p, v->kids[i]->key);
                blank(p);
                put(p, ":");
            }
            put_node(p, v->kids[i]);
        }
        put(p, v->kind == ARRAY ? "]" : "}");
    }
    blank(p);
}

/* Reading it there */

/* exact false: numbers may have lost what is beyond 15 digits, as in a parsed tree that was
 * printed. */
static void same(const struct node *v, const cJSON *parent, const cJSON *item, bool exact)
{
    static const int types[] = {cJSON_NULL,   cJSON_False,  cJSON_True,  cJSON_Number,
                                cJSON_Number, cJSON_String, cJSON_Array, cJSON_Object};
    assert_non_null(item);
    assert_int_equal(item->type & 0xff, types[v->kind]);
    if (v->kind == INTEGER && exact && cJSON_IsObject(parent) &&
        hf_json_opt(parent, v->key) == item) {
        int64_t got = 0;
        assert_int_equal(hf_json_get_int(parent, v->key, v->integer, v->integer, &got, NULL),
                         HF_OK);
        assert_int_equal(got, v->integer);
        assert_int_equal(hf_json_opt_int(parent, v->key, -7), v->integer);
    } else if (v->kind == INTEGER || v->kind == REAL) {
        double want = v->kind == REAL ? v->real : (double)v->integer;
        double got = item->valuedouble;
        double slack = exact ? 0 : fmax(fabs(got), fabs(want)) * DBL_EPSILON;
        assert_true(fabs(got - want) <= slack);
    } else if (v->kind == STRING) {
        assert_string_equal(item->valuestring, v->text);
    }
    const cJSON *kid = v->kind >= ARRAY ? item->child : NULL;
    for (size_t i = 0; i < v->n; i++, kid = kid->next) {
        assert_non_null(kid);
        if (v->kind == OBJECT) {
            assert_string_equal(kid->string, v->kids[i]->key);
        }
        same(v->kids[i], item, kid, exact);
    }
    assert_null(kid);
}

static cJSON *must_parse(struct hf_span text)
{
    cJSON *json = NULL;
    struct hf_err err;
    if (hf_json_parse(text, TEXT_MAX, &json, &err) != HF_OK) {
        fail_msg("%s: %.*s", err.msg, (int)text.len, (const char *)text.ptr);
    }
    return json;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct pen p = {.random = hf_test_seed()};
    hf_buf_init(&p.b, TEXT_MAX);
    for (int round = 0; round < 3000; round++) {
        struct node *v = grow(&p.random, 1 + hf_test_below(&p.random, 5));
        hf_buf_reset(&p.b);
        put_node(&p, v);
        cJSON *json = must_parse(hf_buf_span(&p.b));
        same(v, NULL, json, true);
        /* And again after printing. */
        HF_CLEANUP(hf_freep) char *text = hf_json_print(json);
        hf_json_free(json);
        json = must_parse((struct hf_span){text, strlen(text)});
        same(v, NULL, json, false);
        hf_json_free(json);
        free_node(v);
    }
    hf_buf_release(&p.b);
}

/* Building */

static cJSON *build(const struct node *v);

static void add_member(cJSON *obj, const struct node *kid)
{
    if (kid->kind == INTEGER) {
        hf_json_add_int(obj, kid->key, kid->integer);
    } else if (kid->kind == STRING) {
        hf_json_add_str(obj, kid->key, kid->text);
    } else if (kid->kind == NIL) {
        hf_json_add_null(obj, kid->key);
    } else if (kid->kind < INTEGER) {
        hf_json_add_bool(obj, kid->key, kid->kind == YES);
    } else {
        hf_json_add(obj, kid->key, build(kid));
    }
}

static cJSON *build(const struct node *v)
{
    cJSON *tree = v->kind == ARRAY ? hf_json_arr() : hf_json_obj();
    for (size_t i = 0; i < v->n; i++) {
        struct node *kid = v->kids[i];
        kid->kind =
            kid->kind == REAL || (v->kind == ARRAY && kid->kind < STRING) ? STRING : kid->kind;
        if (v->kind == OBJECT) {
            add_member(tree, kid);
        } else if (kid->kind == STRING) {
            hf_json_push_str(tree, kid->text);
        } else {
            hf_json_push(tree, build(kid));
        }
    }
    return tree;
}

static void what_is_built_is_printed(void **state)
{
    (void)state;
    struct pen p = {.random = hf_test_seed(), .plain = true};
    hf_buf_init(&p.b, TEXT_MAX);
    for (int round = 0; round < 3000; round++) {
        struct node *v = grow(&p.random, 1 + hf_test_below(&p.random, 5));
        v->kind = v->kind == ARRAY ? ARRAY : OBJECT;
        cJSON *json = build(v);
        HF_CLEANUP(hf_freep) char *text = hf_json_print(json);
        hf_json_free(json);
        hf_buf_reset(&p.b);
        put_node(&p, v);
        assert_string_equal(text, hf_buf_str(&p.b));
        json = must_parse(hf_buf_span(&p.b));
        same(v, NULL, json, true);
        hf_json_free(json);
        free_node(v);
    }
    hf_buf_release(&p.b);
}

/* Written exactly at any size; read exactly or not at all. */
static void integers_at_the_edges(void **state)
{
    (void)state;
    static const int64_t centres[] = {
        0, HF_JSON_INT_MAX, -HF_JSON_INT_MAX, INT64_C(1) << 54, INT64_MAX - 40, INT64_MIN + 40};
    for (size_t i = 0; i < HF_COUNT(centres) * 81; i++) {
        int64_t v = centres[i / 81] + ((int64_t)(i % 81) - 40), got = 77;
        cJSON *obj = hf_json_obj();
        hf_json_add_int(obj, "n", v);
        assert_int_equal(hf_json_get_int(obj, "n", INT64_MIN, INT64_MAX, &got, NULL), HF_OK);
        assert_int_equal(got, v);
        char want[40];
        snprintf(want, sizeof(want), "{\"n\":%lld}", (long long)v);
        HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
        assert_string_equal(text, want);
        hf_json_free(obj);
        obj = must_parse((struct hf_span){text, strlen(text)});
        bool fits = v >= -HF_JSON_INT_MAX && v <= HF_JSON_INT_MAX;
        got = 77;
        assert_int_equal(hf_json_get_int(obj, "n", INT64_MIN, INT64_MAX, &got, NULL),
                         fits ? HF_OK : HF_ECORRUPT);
        assert_int_equal(got, fits ? v : 77);
        assert_int_equal(hf_json_opt_int(obj, "n", -7), fits ? v : -7);
        hf_json_free(obj);
    }
}

/* 64 levels of any mixture are read, 65 are not, wherever the deepest place is. */
static void depth(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    for (int round = 0; round < 2000; round++) {
        struct hf_buf b;
        hf_buf_init(&b, TEXT_MAX);
        bool object[DEPTH_MAX + 2] = {false};
        size_t levels = round % 2 == 0 ? DEPTH_MAX : 1 + hf_test_below(&random, DEPTH_MAX + 1);
        for (size_t i = 0; i < levels; i++) {
            object[i] = hf_test_below(&random, 2) == 0;
            const char *front = hf_test_below(&random, 3) == 0 ? "[],\"[{[{\"," : "";
            assert_int_equal(object[i] ? hf_buf_addf(&b, NULL, "{\"[{\":{},\"k\":")
                                       : hf_buf_addf(&b, NULL, "[%s", front),
                             HF_OK);
        }
        /* The front pieces are one level deeper than where they stand. */
        assert_int_equal(hf_buf_addf(&b, NULL, "1"), HF_OK);
        for (size_t i = levels; i-- > 0;) {
            assert_int_equal(hf_buf_add(&b, object[i] ? "}" : "]", 1, NULL), HF_OK);
        }
        size_t deepest = 0, at = 0;
        bool quoted = false;
        for (const char *s = hf_buf_str(&b); *s != '\0'; s++) {
            quoted ^= *s == '"';
            at += !quoted && strchr("[{", *s) != NULL;
            at -= !quoted && strchr("]}", *s) != NULL;
            deepest = at > deepest ? at : deepest;
        }
        cJSON *json = NULL;
        enum hf_rc rc = hf_json_parse(hf_buf_span(&b), TEXT_MAX, &json, NULL);
        assert_int_equal(rc, deepest <= DEPTH_MAX ? HF_OK : HF_ECORRUPT);
        hf_json_free(json);
        hf_buf_release(&b);
    }
}

/* Cut and spoilt texts */

static const char *const keys[] = {"files", "blocks"};
static const char good[] =
    " {\"format\":1,\"files\":[{\"p\":\"a\\\"b\\u00e9\",\"e\":[-1.5e3]},[ ]],"
    "\"m\":{\"files\":[1]},\"blocks\" : [ \"x\",true,\"y\\\\\"],\"n\":null}\n";

static enum hf_rc take(void *user, const cJSON *element, struct hf_err *err)
{
    (void)err;
    hf_json_push(user, cJSON_Duplicate(element, true));
    return HF_OK;
}

static size_t named(const cJSON *obj, const char *key)
{
    size_t n = 0;
    for (const cJSON *m = cJSON_IsObject(obj) ? obj->child : NULL; m != NULL; m = m->next) {
        n += strcmp(m->string, key) == 0;
    }
    return n;
}

/* An array of the whole text and the elements of a piece of it are the same, and print so. */
static void same_array(const cJSON *whole, struct hf_span piece)
{
    size_t n = 0;
    cJSON *all = hf_json_arr();
    assert_int_equal(hf_json_each(piece, take, all, &n, NULL), HF_OK);
    assert_int_equal(n, hf_json_count(piece));
    HF_CLEANUP(hf_freep) char *a = hf_json_print(whole);
    HF_CLEANUP(hf_freep) char *b = hf_json_print(all);
    assert_string_equal(a, b);
    hf_json_free(all);
}

/* hf_json_parse is the judge: what it takes can be cut, unless a wanted key is there twice or is
 * written with escapes; every array it finds is found; what it refuses is refused. */
static void judge(const char *text, size_t len)
{
    struct hf_span exact = {memcpy(hf_calloc(len + 1, 1), text, len), len}, arrays[2];
    cJSON *whole = NULL, *rest = NULL;
    struct hf_err err = {.native = -1}, cut_err;
    enum hf_rc rc = hf_json_parse(exact, TEXT_MAX, &whole, &err);
    assert_true(rc == HF_OK || (rc == HF_ECORRUPT && err.native >= 0 && (size_t)err.native <= len));
    enum hf_rc cut = hf_json_cut(exact, TEXT_MAX, keys, 2, arrays, &rest, &cut_err);
    bool odd = false, whole_again = cut == HF_OK;
    for (size_t i = 0; rc == HF_OK && i < 2; i++) {
        const cJSON *array = hf_json_opt(whole, keys[i]);
        odd = odd || named(whole, keys[i]) > 1;
        if (cut == HF_OK) {
            assert_int_equal(arrays[i].len > 0, cJSON_IsArray(array));
            if (arrays[i].len > 0) {
                same_array(array, arrays[i]);
            }
        }
    }
    for (size_t i = 0; cut == HF_OK && i < 2; i++) {
        whole_again = whole_again && hf_json_each(arrays[i], NULL, NULL, NULL, NULL) == HF_OK;
    }
    if (rc == HF_OK && cut != HF_OK && !odd) {
        assert_non_null(strstr(cut_err.msg, "escapes"));
    } else if (whole_again != (rc == HF_OK && !odd)) {
        fail_msg("whole %s, cut %s: %.*s", hf_rc_name(rc), hf_rc_name(cut), (int)len, text);
    }
    hf_json_free(whole);
    hf_json_free(rest);
    hf_free((void *)(uintptr_t)exact.ptr);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    size_t len = sizeof(good) - 1;
    for (size_t n = 0; n <= len; n++) {
        judge(good, n);
        judge(good + n, len - n);
    }
}

static void spoilt_at_every_byte(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof(good) - 1; at++) {
        for (unsigned c = 0; c < 256; c++) {
            char text[sizeof(good)];
            memcpy(text, good, sizeof(good));
            text[at] = (char)c;
            judge(text, sizeof(good) - 1);
        }
    }
}

/* What cJSON would let through, and what the two ways of reading might see differently. */
static void loose_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum hf_rc whole, cut;
    } rows[] = {
        {"\xef\xbb\xbf{\"files\":[1]}", HF_ECORRUPT, HF_ECORRUPT},
        {"\x01{\"files\":[1]}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"files\":\x0b[1]}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"files\":[1]\x7f}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"files\":[\x1f]}", HF_ECORRUPT, HF_OK}, /* found out by hf_json_each */
        {"{\"id\":\"ab\\u0000cd\"}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"i\\u0000d\":1}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"id\":\"ab\\\\u0000cd\"}", HF_OK, HF_OK},
        {"{\"id\":\"ab\\\\\\u0000cd\"}", HF_ECORRUPT, HF_ECORRUPT},
        {"{\"\\u0066iles\":[1]}", HF_OK, HF_ECORRUPT},
        {"{\"\\u0066iles\":7}", HF_OK, HF_OK},
        {"{\"files\":[1],\"f\\u0069les\":[2]}", HF_OK, HF_ECORRUPT},
        {"{\"files\":7,\"files\":[1]}", HF_OK, HF_ECORRUPT},
        {"{\"files\":[1],\"files\":7}", HF_OK, HF_ECORRUPT},
        {"{\"x\":1,\"x\":2}", HF_OK, HF_OK},
        {"{\"a\":{\"files\":[1],\"files\":[2]}}", HF_OK, HF_OK},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_span text = {rows[i].text, strlen(rows[i].text)}, arrays[2];
        cJSON *whole = NULL, *rest = NULL;
        if (hf_json_parse(text, TEXT_MAX, &whole, NULL) != rows[i].whole ||
            hf_json_cut(text, TEXT_MAX, keys, 2, arrays, &rest, NULL) != rows[i].cut) {
            fail_msg("%s", rows[i].text);
        }
        hf_json_free(whole);
        hf_json_free(rest);
        judge(rows[i].text, text.len);
    }
    /* Of two members of one name that nobody cuts, all accessors see the first. */
    cJSON *obj = must_parse((struct hf_span){"{\"x\":1,\"x\":2,\"X\":3}", 19});
    int64_t n = 0;
    assert_int_equal(hf_json_get_int(obj, "x", 0, 9, &n, NULL), HF_OK);
    assert_int_equal(n, 1);
    assert_int_equal(hf_json_opt_int(obj, "x", 9), 1);
    hf_json_free(obj);
}

/* Byte strings of every one and two bytes, and random ones, come back through a text. */
static void bytes_come_back(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    for (unsigned i = 0; i < 65536 + 20000; i++) {
        char value[12] = {(char)(i & 0xff), (char)(i >> 8 & 0xff)};
        for (size_t k = 0; i >= 65536 && k + 1 < sizeof(value); k++) {
            value[k] = (char)hf_test_random(&random);
        }
        cJSON *obj = hf_json_obj();
        hf_json_add(obj, "v", hf_json_bytes(value));
        HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
        hf_json_free(obj);
        obj = must_parse((struct hf_span){text, strlen(text)});
        HF_CLEANUP(hf_freep) char *back = NULL;
        assert_int_equal(hf_json_bytes_read(hf_json_opt(obj, "v"), &back, NULL), HF_OK);
        assert_string_equal(back, value);
        hf_json_free(obj);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_built_is_printed),
        cmocka_unit_test(integers_at_the_edges),
        cmocka_unit_test(depth),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(spoilt_at_every_byte),
        cmocka_unit_test(loose_texts),
        cmocka_unit_test(bytes_come_back),
    };
    return cmocka_run_group_tests_name("json_model", tests, NULL, NULL);
}
