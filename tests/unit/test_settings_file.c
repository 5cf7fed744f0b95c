/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings files as people write them: encodings, tabs, full-width punctuation, tags, words that
 * YAML would turn into something else. Each refusal names line, column and remedy.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/settings.h"
#include "supervisor/settings_lines.h"

static char folder[64];

static int enter_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hf-settings-XXXXXX");
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && hf_fs_remove_tree(folder, NULL) == HF_OK ? 0 : -1;
}

static void put_file(const char *path, const char *text)
{
    struct hf_span span = {text, strlen(text)};
    assert_int_equal(hf_fs_write(path, span, 0600, false, NULL), HF_OK);
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

static void file_refused(const char *name, const char *text, size_t len, const char *msg,
                         const char *hint)
{
    struct hf_err err = {0};
    assert_int_equal(hf_fs_write(name, (struct hf_span){text, len}, 0600, false, &err), HF_OK);
    struct hf_settings *s = hf_settings_new();
    if (hf_settings_file(s, name, NULL, &err) != HF_EINVAL) {
        fail_msg("'%s' was not refused", text);
    }
    assert_contains(err.msg, msg);
    assert_contains(err.hint, hint);
    hf_settings_free(s);
}

/* What people's editors, input methods and habits put into a file. */
static void test_file_oddities(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *msg, *hint;
    } rows[] = {
        {"a.yaml", "every：10m\n", "a.yaml:1:6: a full-width colon (：)", "'every: 10m'"},
        {"a.yaml", "keep: 3\nevery：10m\nquiet: true\n", "a.yaml:2:6: a full-width colon", "':'"},
        {"a.yaml", "keep: 3\nevery： 10m\n", "a.yaml:2:6: a full-width colon", "':'"},
        {"a.yaml", "keep: 3\r\nevery：10m\r\n", "a.yaml:2:6: a full-width colon", "':'"},
        {"a.yaml", "keep： 3: 4\n", "a.yaml:1:5: a full-width colon", ""},
        {"a.yaml", "run: “cat”\n", "a.yaml:1:6: run: the value starts with a curly quote (“)",
         "leave the quotes out"},
        {"a.yaml", "checkpoint-dir: [ ‘a’ ]\n", "a.yaml:1:19: checkpoint-dir: the value starts",
         "quotes"},
        {"a.yaml", "“keep”: 3\n", "a.yaml:1:1: a curly quote", ""},
        {"a.yaml", "keep: 3\n\xe3\x80\x80quiet: true\n", "a.yaml:2:1: a full-width space", "plain"},
        {"a.yaml", "keep: 3\n\xc2\xa0quiet: true\n", "a.yaml:2:1: a no-break space", "plain"},
        {"a.yaml", "run: r\n\tkeep: 3\n", "a.yaml:2:1: a tab in the indentation", "spaces"},
        {"a.yaml", "run: r\n  \tkeep: 3\n", "a.yaml:2:3: a tab in the indentation", "spaces"},
        {"a.yaml", "keep: 3\n  every: 1m\n", "a.yaml:2:1: an indented line", "setting's name"},
        {"a.yaml", "store: a\n  every: 1m\n", "a.yaml:2:8: mapping values", "every: 10m"},
        {"a.yaml", "checkpoint-dir:\n\t- a\n", "a.yaml:2:1: a tab in the indentation", "spaces"},
        {"a.yaml", "keep:3\n", "a.yaml:1:5: no space after the colon", "'keep: '"},
        {"a.yaml", "every: 1m\nkeep:3\nquiet: true\n", "a.yaml:2:5: no space", "'keep: '"},
        {"a.yaml", "keep = 3\n", "a.yaml:1:6: '=' where a colon is needed", "'keep: '"},
        {"a.yaml", "every: 1m\nkeep=3\nquiet: true\n", "a.yaml:2:5: '=' where", "'keep: '"},
        {"a.yaml", "run: caf\xe9\n", "a.yaml:1:9: byte 0xe9 is not UTF-8", "iconv"},
        {"a.yaml", "# \xb1\xbe\nkeep: 3\n", "a.yaml:1:3: byte 0xb1 is not UTF-8", "GB18030"},
        {"a.yaml", "keep: 3\nrun: 实\xb6\xc1\n", "a.yaml:2:7: byte 0xb6", "UTF-8"},
        {"a.yaml", "keep: 3\x01\n", "a.yaml:1:8: a control character (U+0001)", "plain text"},
        {"a.yaml", "keep: 3\n\xef\xbb\xbfquiet: true\n", "a.yaml:2:1: a control character", ""},
        {"a.yaml", "keep: !!int 3\n", "a.yaml:1:7: a tag ('tag:yaml.org,2002:int')", "alone"},
        {"a.yaml", "!x keep: 3\n", "a.yaml:1:1: a tag ('!x')", "alone"},
        {"a.yaml", "--- !x\nkeep: 3\n", "a tag ('!x')", ""},
        {"a.yaml", "checkpoint-dir: !x [a]\n", "a.yaml:1:17: a tag ('!x')", ""},
        {"a.yaml", "run: &x a\nstore: *x\n", "a.yaml:2:8: an alias", "Write the value itself"},
        {"a.yaml", "<<: {keep: 3}\n", "a.yaml:1:1: unknown setting '<<'", ""},
        {"a.yaml", "quiet: no\n", "a.yaml:1:8: quiet: 'no' is neither true nor false", "true or"},
        {"a.yaml", "quiet: True\n", "'True' is neither", "true or false"},
        {"a.yaml", "quiet: on\n", "'on' is neither", "true or false"},
        {"a.yaml", "keep: 1e-4\n", "a.yaml:1:7: keep: '1e-4' is not a whole number", ""},
        {"a.yaml", "keep: 3.0\n", "keep: '3.0' is not a whole number", ""},
        {"a.yaml", "keep: 0x10\n", "keep: '0x10' is not a whole number", ""},
        {"a.yaml", "keep: 1_000\n", "keep: '1_000' is not a whole number", ""},
        {"a.yaml", "checkpoint_dir: a\n", "unknown setting 'checkpoint_dir'", "'checkpoint-dir'"},
        {"a.yaml", "keep: 3\n...\n---\nevery: 1m\n", "a.yaml:3:1: a second document", "'---'"},
        {"a.yaml", "'keep: 3\n", "a.yaml:1:1: a quote is not closed", "End the value"},
        {"a.yaml", "keep: 3\n}\n", "a.yaml:2:1", "every: 10m"},
        {"a.json", "{\"keep\"：3}", "a.json:1:8: a full-width colon", ""},
        {"a.json", "{\n  “keep”: 3\n}", "a.json:2:3: a curly quote", ""},
        {"a.json", "{\n\t\"keep\": 3,\n}", "a.json:3:1: not JSON", "{\"every\""},
        {"a.json", "{\"keep\": 3} x", "a.json:1:13: not JSON", ""},
        {"a.json", "{\"quiet\": no}", "a.json:1:11: not JSON", ""},
        {"a.json", "{\"quiet\": 1}", "a.json:1:11: quiet: '1' is neither", "true or false"},
        {"a.json", "{\"keep\": [3]}", "a.json:1:10: a list where a plain", ""},
        {"a.json", "{\"run\": {\"a\": 1}}", "a.json:1:9: a mapping where a plain", ""},
        {"a.json", "{\"run\": \"\xb6\xc1\"}", "a.json:1:10: byte 0xb6 is not UTF-8", "GB18030"},
        {"a.json", "", "a.json:1:1: not JSON", ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        file_refused(rows[i].name, rows[i].text, strlen(rows[i].text), rows[i].msg, rows[i].hint);
    }
    static const struct {
        const char *text;
        size_t len;
        const char *msg;
    } wide[] = {
        {"\xff\xfek\0:\0 \0003\0", 10, "a.yaml:1:1: the file is UTF-16, not UTF-8"},
        {"\xfe\xff\0k\0:\0 \0003", 10, "a.yaml:1:1: the file is UTF-16"},
        {"k\0e\0e\0p\0", 8, "a.yaml:1:1: the file is UTF-16"},
        {"\xff\xfe\0\0k\0\0\0", 8, "a.yaml:1:1: the file is UTF-32"},
        {"keep: 3\0", 8, "a.yaml:1:8: a control character (U+0000)"},
    };
    for (size_t i = 0; i < HF_COUNT(wide); i++) {
        file_refused("a.yaml", wide[i].text, wide[i].len, wide[i].msg, "");
    }
}

/* Odd to look at, and meant: nothing is refused for its looks. */
static void test_file_oddities_that_are_fine(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        enum hf_set_id id;
        const char *value;
    } rows[] = {
        {"a.yaml", "\xef\xbb\xbfrun: r\r\nkeep: 3\r\n", HF_SET_RUN, "r"},
        {"a.json", "\xef\xbb\xbf{\r\n\t\"run\": \"r\"\r\n}\r\n", HF_SET_RUN, "r"},
        {"a.json", "{\n\t\"checkpoint-dir\": [\n\t\t\"a\"],\n\t\"run\": \"r\"}", HF_SET_RUN, "r"},
        {"a.yaml", "run: no\n", HF_SET_RUN, "no"},
        {"a.yaml", "run: 1e-4\n", HF_SET_RUN, "1e-4"},
        {"a.yaml", "run: 0755\n", HF_SET_RUN, "0755"},
        {"a.yaml", "run: 1.10\n", HF_SET_RUN, "1.10"},
        {"a.yaml", "run: 2024-01-01\n", HF_SET_RUN, "2024-01-01"},
        {"a.json", "{\"run\": 1e-4}", HF_SET_RUN, "1e-4"},
        {"a.json", "{\"run\": true}", HF_SET_RUN, "true"},
        {"a.yaml", "quiet: 'true'\n", HF_SET_QUIET, "true"},
        {"a.yaml", "run: r # a remark：“x”\n", HF_SET_RUN, "r"},
        {"a.yaml", "# 说明：\nstore: file:///data/实验：一\n", HF_SET_STORE,
         "file:///data/实验：一"},
        {"a.yaml", "save-dir: \"“x”\"\n", HF_SET_SAVE_DIR, "“x”"},
        {"a.yaml", "store: a=b:c\n", HF_SET_STORE, "a=b:c"},
        {"a.yaml", "run:\tr\n", HF_SET_RUN, "r"},
        {"a.yaml", "run: r\t\n", HF_SET_RUN, "r"},
        {"a.yaml", "%YAML 1.1\n---\nrun: r\n...\n", HF_SET_RUN, "r"},
        {"a.yaml", "{run: r,\n\tkeep: 3}\n", HF_SET_RUN, "r"},
        {"a.yaml", "run: r\rkeep: 3\r", HF_SET_RUN, "r"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        put_file(rows[i].name, rows[i].text);
        struct hf_settings *s = hf_settings_new();
        struct hf_err err = {0};
        if (hf_settings_file(s, rows[i].name, NULL, &err) != HF_OK) {
            fail_msg("'%s': %s", rows[i].text, err.msg);
        }
        assert_string_equal(hf_set_str(s, rows[i].id), rows[i].value);
        hf_settings_free(s);
    }
}

static void test_places(void **state)
{
    (void)state;
    static const char text[] = "ab\r\nc\rd\xc3\xa9"
                               "f\n";
    static const struct {
        size_t at, line, column;
    } rows[] = {{0, 1, 1}, {1, 1, 2}, {4, 2, 1}, {6, 3, 1}, {9, 3, 3}, {11, 4, 1}, {99, 4, 1}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        size_t line = 0;
        size_t column = 0;
        hf_settings_place((struct hf_span){text, sizeof text - 1}, rows[i].at, &line, &column);
        assert_int_equal(line, rows[i].line);
        assert_int_equal(column, rows[i].column);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_oddities, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(test_file_oddities_that_are_fine, enter_folder,
                                        leave_folder),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
