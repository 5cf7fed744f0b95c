/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/events: one line an event with its frame first, fields behind it, and what happens
 * when the disk refuses.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/events.h"
#include "tests/unit/support_conform_store.h"

static void lines(void **state)
{
    (void)state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *folder = temp_folder();
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/events.jsonl", folder);
    struct hf_events e;
    hf_events_open(&e, path);
    uint64_t before_ns = hf_now_ns();
    cJSON *fields = hf_json_obj();
    hf_json_add_int(fields, "step", 9007199254740993); /* past what a double holds */
    hf_json_add_str(fields, "why", "a\n\xff");
    cJSON *list = hf_json_arr();
    hf_json_push_str(list, "x");
    hf_json_add(fields, "list", list);
    hf_event(&e, 3, "saved", fields);
    hf_event(&e, 4, "bare", NULL);
    hf_event(&e, 4, "empty", hf_json_obj());
    assert_int_equal(e.dropped, 0);
    struct hf_buf text;
    hf_buf_init(&text, 65536);
    expect_rc(hf_fs_read(path, &text, &err), HF_OK, &err);
    static const char *const names[] = {"saved", "bare", "empty"};
    size_t pos = 0;
    size_t len = 0;
    size_t n = 0;
    for (char *line; (line = hf_buf_next_line(&text, &pos, &len)) != NULL; n++) {
        cJSON *obj = NULL;
        expect_rc(hf_json_parse((struct hf_span){line, len}, 65536, &obj, &err), HF_OK, &err);
        assert_int_equal(strncmp(line, "{\"ts\":\"", 7), 0);
        assert_true(n < 3);
        assert_string_equal(hf_json_opt_str(obj, "event", ""), names[n]);
        assert_int_equal(hf_json_opt_int(obj, "attempt", 0), n == 0 ? 3 : 4);
        uint64_t ns = strtoull(hf_json_opt_str(obj, "ns", "0"), NULL, 10);
        assert_true(ns >= before_ns && ns <= hf_now_ns());
        int64_t wall = 0;
        expect_rc(hf_utc_parse(hf_json_opt_str(obj, "ts", ""), &wall, &err), HF_OK, &err);
        assert_int_equal(cJSON_GetArraySize(obj), n == 0 ? 7 : 4);
        assert_int_equal(strstr(line, "\"step\":9007199254740993,\"why\":\"a\\n\xef\xbf\xbd\","
                                      "\"list\":[\"x\"]}") != NULL,
                         n == 0);
        hf_json_free(obj);
    }
    assert_int_equal(n, 3);
    assert_int_equal(pos, text.len);
    hf_buf_release(&text);
    hf_events_release(&e);
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
}

static void refused_lines_are_counted(void **state)
{
    (void)state;
    struct hf_events e;
    hf_events_open(&e, "/dev/full");
    for (int i = 0; i < 3; i++) {
        cJSON *fields = hf_json_obj();
        hf_json_add_int(fields, "n", i);
        hf_event(&e, 1, "lost", fields);
    }
    assert_int_equal(e.dropped, 3);
    hf_events_release(&e);
    assert_null(e.path);
    hf_event(&e, 1, "after the end", hf_json_obj());
    assert_int_equal(e.dropped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(refused_lines_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
