/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of hook protocol 1, and the C client's own small JSON against base/json.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "hooks/c/agree_step.h"
#include "hooks/c/json_line.h"
#include "hooks/proto.h"

#define HELLO                                                                        \
    "{\"msg\":\"hello\",\"protocol\":1,\"rank\":1,\"world\":2,\"pid\":77,\"token\":" \
    "\"00000000000000ff\""

static enum hf_rc parse(const char *text, struct hf_hook_msg *ret, struct hf_err *err)
{
    return hf_hook_parse((struct hf_span){text, strlen(text)}, ret, err);
}

static void test_hello(void **state)
{
    (void)state;
    struct hf_hook_msg m;
    assert_int_equal(parse(HELLO ",\"last\":99,\"framework\":\"torch\",\"new\":[1,{}]}", &m, NULL),
                     HF_OK);
    assert_int_equal(m.kind, HF_HOOK_HELLO);
    assert_int_equal(m.rank, 1);
    assert_int_equal(m.world, 2);
    assert_int_equal(m.pid, 77);
    assert_int_equal(m.token, 255);
    assert_int_equal(m.last, 99);
    assert_string_equal(m.framework, "torch");
    hf_hook_msg_release(&m);
    assert_int_equal(parse(HELLO "}", &m, NULL), HF_OK);
    assert_int_equal(m.last, -1);
    assert_string_equal(m.framework, "");
    hf_hook_msg_release(&m);
}

static void test_saved(void **state)
{
    (void)state;
    struct hf_hook_msg m;
    const char *line = "{\"msg\":\"saved\",\"id\":65535,\"step\":7,\"turn\":2,"
                       "\"paths\":[\"/a b\",{\"hex\":\"2fff\"}]}";
    assert_int_equal(parse(line, &m, NULL), HF_OK);
    assert_int_equal(m.kind, HF_HOOK_SAVED);
    assert_int_equal(m.id, 65535);
    assert_int_equal(m.step, 7);
    assert_int_equal(m.turn, 2);
    assert_int_equal(m.paths.len, 2);
    assert_string_equal(m.paths.items[0], "/a b");
    assert_string_equal(m.paths.items[1], "/\xff");
    hf_hook_msg_release(&m);
}

static void test_others(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum hf_hook_kind kind;
    } rows[] = {
        {"{\"msg\":\"done\"}", HF_HOOK_DONE},
        {"{\"msg\":\"bye\"}", HF_HOOK_BYE},
        {"{\"msg\":\"resumed\",\"step\":12}", HF_HOOK_RESUMED},
        {"{\"msg\":\"metrics\",\"loss\":0.5}", HF_HOOK_UNKNOWN},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_hook_msg m;
        assert_int_equal(parse(rows[i].line, &m, NULL), HF_OK);
        assert_int_equal(m.kind, rows[i].kind);
        hf_hook_msg_release(&m);
    }
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"", ""},
        {"[]", "not a JSON object"},
        {"{}", "msg"},
        {"{\"msg\":1}", "msg"},
        {"{\"msg\":\"resumed\"}", "message 'resumed'"},
        {"{\"msg\":\"resumed\",\"step\":-1}", "step"},
        {"{\"msg\":\"saved\",\"id\":65536,\"step\":1,\"paths\":[]}", "id"},
        {"{\"msg\":\"saved\",\"id\":1,\"step\":1}", "paths"},
        {"{\"msg\":\"saved\",\"id\":1,\"step\":1,\"paths\":[\"/a\",\"b\"]}", "'b' is not absolute"},
        {"{\"msg\":\"saved\",\"id\":1,\"step\":1,\"paths\":[\"/a\",3]}", "hex"},
        {"{\"msg\":\"hello\",\"protocol\":1}", "world"},
        {"{\"msg\":\"hello\",\"protocol\":1,\"rank\":2,\"world\":2,\"pid\":1,\"token\":\"\"}",
         "rank"},
        {"{\"msg\":\"hello\",\"protocol\":1,\"rank\":0,\"world\":1,\"pid\":1,\"token\":\"0g\"}",
         "16 hexadecimal digits"},
        {HELLO ",\"last\":-2}", "last"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_hook_msg m;
        struct hf_err err = {0};
        assert_int_equal(parse(rows[i].line, &m, &err), HF_ECORRUPT);
        if (!strstr(err.msg, rows[i].why)) {
            fail_msg("line %zu: '%s' does not say '%s'", i, err.msg, rows[i].why);
        }
    }
}

static void test_too_many_paths(void **state)
{
    (void)state;
    static char line[HFW_LINE_BYTES];
    size_t len = 0;
    const char *start = "{\"msg\":\"saved\",\"id\":1,\"step\":1,\"paths\":[\"/\"";
    memcpy(line, start, strlen(start));
    len = strlen(start);
    for (int i = 0; i < HF_HOOK_PATHS_MAX; i++) {
        memcpy(line + len, ",\"/\"", 4);
        len += 4;
    }
    memcpy(line + len, "]}", 3);
    struct hf_hook_msg m;
    assert_int_equal(parse(line, &m, NULL), HF_EFULL);
}

/* What the server prints, read by the C client's reader. */
static void test_welcome(void **state)
{
    (void)state;
    struct hf_hook_welcome w = {.run = "my\"run",
                                .attempt = 3,
                                .slot = 5,
                                .life = 2,
                                .save_dir = "/s/\xc3\xa9\t\\",
                                .resume_path = "/r/\xff",
                                .resume_step = 41};
    char *line = hf_hook_print_welcome(&w);
    assert_int_equal(line[strlen(line) - 1], '\n');
    int64_t n;
    assert_true(hfj_get_int(line, "slot", &n) && n == 5);
    assert_true(hfj_get_int(line, "life", &n) && n == 2);
    assert_true(hfj_get_int(line, "attempt", &n) && n == 3);
    const char *resume = hfj_find(line, "resume");
    assert_true(hfj_get_int(resume, "step", &n) && n == 41);
    const struct {
        const char *at, *text;
    } rows[] = {
        {hfj_find(line, "msg"), "welcome"},
        {hfj_find(line, "run"), "my\"run"},
        {hfj_find(line, "save_dir"), "/s/\xc3\xa9\t\\"},
        {hfj_find(resume, "path"), "/r/\xff"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *text = hfj_read_bytes(rows[i].at);
        assert_non_null(text);
        assert_string_equal(text, rows[i].text);
        free(text);
    }
    hf_free(line);
    w.resume_step = -1;
    line = hf_hook_print_welcome(&w);
    assert_false(hfj_get_int(hfj_find(line, "resume"), "step", &n));
    hf_free(line);
    w.resume_path = NULL;
    line = hf_hook_print_welcome(&w);
    assert_non_null(strstr(line, "\"resume\":null"));
    hf_free(line);
}

static void test_small_replies(void **state)
{
    (void)state;
    char *line = hf_hook_print_refused("because");
    assert_string_equal(line, "{\"msg\":\"refused\",\"why\":\"because\"}\n");
    hf_free(line);
    line = hf_hook_print_unsupported("metrics");
    assert_string_equal(line, "{\"msg\":\"unsupported\",\"what\":\"metrics\"}\n");
    hf_free(line);
}

/* Byte strings go through the client's printer and base/json, and come back equal. */
static void test_client_strings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "plain",
        "q\"b\\s/",
        "\x01\x1f\x7f",
        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
        "\xff",
        "\xc0\x80",
        "\xed\xa0\x80",
        "\xe2\x82",
        "\xf4\x90\x80\x80",
        "a\xc3z",
    };
    for (size_t i = 0; i < HF_COUNT(texts); i++) {
        char buf[256];
        struct hfj_out o = {.data = buf, .cap = sizeof buf};
        hfj_text(&o, "{\"x\":");
        hfj_bytes(&o, texts[i]);
        hfj_text(&o, ",\"n\":-12}");
        assert_false(o.full);
        cJSON *json = NULL;
        char *back;
        assert_int_equal(hf_json_parse((struct hf_span){buf, o.len}, sizeof buf, &json, NULL),
                         HF_OK);
        assert_int_equal(hf_json_bytes_read(hf_json_opt(json, "x"), &back, NULL), HF_OK);
        assert_string_equal(back, texts[i]);
        hf_free(back);
        hf_json_free(json);
        back = hfj_read_bytes(hfj_find(buf, "x"));
        assert_non_null(back);
        assert_string_equal(back, texts[i]);
        free(back);
        int64_t n;
        assert_true(hfj_get_int(buf, "n", &n) && n == -12);
    }
}

static void test_client_reader(void **state)
{
    (void)state;
    static const struct {
        const char *json, *key, *text; /* NULL: not found or not readable */
    } rows[] = {
        {"{\"a\":\"x\"}", "a", "x"},
        {" { \"b\" : [1,{\"a\":2},\"]\"] , \"a\" : \"\\u00e9\\n\" } ", "a", "\xc3\xa9\n"},
        {"{\"a\":\"\\ud83d\\ude00\"}", "a", "\xf0\x9f\x98\x80"},
        {"{\"b\":{\"a\":\"inner\"},\"a\":\"outer\"}", "a", "outer"},
        {"{\"a\\\"\":\"no\",\"a\":\"yes\"}", "a", "yes"},
        {"{\"a\":\"\\ud83d\"}", "a", NULL},
        {"{\"a\":\"\\u0000\"}", "a", NULL},
        {"{\"a\":\"\\x\"}", "a", NULL},
        {"{\"a\":\"open", "a", NULL},
        {"{\"a\":", "a", NULL},
        {"{\"a\"", "a", NULL},
        {"{\"b\":1 \"a\":\"x\"}", "a", NULL},
        {"{\"b\":]}", "a", NULL},
        {"[\"a\"]", "a", NULL},
        {"", "a", NULL},
        {"{\"a\":{\"hex\":\"6162\"}}", "a", "ab"},
        {"{\"a\":{\"hex\":\"616\"}}", "a", NULL},
        {"{\"a\":{\"hex\":\"6100\"}}", "a", NULL},
        {"{\"a\":{\"hex\":\"zz\"}}", "a", NULL},
        {"{\"a\":7}", "a", NULL},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *text = hfj_read_bytes(hfj_find(rows[i].json, rows[i].key));
        if (!rows[i].text != !text || (text && strcmp(text, rows[i].text) != 0)) {
            fail_msg("%s: got '%s'", rows[i].json, text ? text : "nothing");
        }
        free(text);
    }
    int64_t n = 5;
    assert_false(hfj_get_int("{\"a\":1.5}", "a", &n));
    assert_false(hfj_get_int("{\"a\":\"1\"}", "a", &n));
    assert_false(hfj_get_int("{\"a\":null}", "a", &n));
    assert_int_equal(n, 5);
}

static void test_full_buffer(void **state)
{
    (void)state;
    char buf[8];
    struct hfj_out o = {.data = buf, .cap = sizeof buf};
    hfj_text(&o, "1234567");
    assert_false(o.full);
    hfj_text(&o, "8");
    assert_true(o.full);
    assert_int_equal(o.len, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello),          cmocka_unit_test(test_saved),
        cmocka_unit_test(test_others),         cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_too_many_paths), cmocka_unit_test(test_welcome),
        cmocka_unit_test(test_small_replies),  cmocka_unit_test(test_client_strings),
        cmocka_unit_test(test_client_reader),  cmocka_unit_test(test_full_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
