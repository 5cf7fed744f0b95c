/* SPDX-License-Identifier: Apache-2.0
 *
 * The documented form of a status, see the header. Tests run in the repository's root.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/json.h"
#include "base/mem.h"
#include "tests/unit/support_status.h"

/* The names in the first column of the page's table. */
static const struct hf_strv *documented(void)
{
    static struct hf_strv names;
    if (names.len > 0) {
        return &names;
    }
    struct hf_buf page;
    struct hf_err err;
    hf_buf_init(&page, 1u << 20);
    if (hf_fs_read("docs/status.md", &page, &err) != HF_OK) {
        fail_msg("%s", err.msg);
    }
    size_t pos = 0;
    size_t len = 0;
    const char *line = NULL;
    while ((line = hf_buf_next_line(&page, &pos, &len)) != NULL) {
        const char *end = strncmp(line, "| `", 3) == 0 ? strchr(line + 1, '|') : NULL;
        for (const char *p = line; end != NULL && (p = strchr(p, '`')) != NULL && p < end;) {
            size_t n = strcspn(p + 1, "`");
            hf_strv_take(&names, hf_strndup(p + 1, n));
            p += n + 2;
        }
    }
    hf_buf_release(&page);
    assert_true(names.len > 20);
    return &names;
}

void must_be_documented(const cJSON *run, bool and_more, const char *what)
{
    const struct hf_strv *names = documented();
    for (size_t i = 0; i < names->len; i++) {
        int n = 0;
        for (const cJSON *child = run->child; child != NULL; child = child->next) {
            n += strcmp(child->string, names->items[i]) == 0;
        }
        if (n != 1) {
            char *text = hf_json_print(run);
            fail_msg("%s: '%s' is there %d times: %s", what, names->items[i], n, text);
        }
    }
    for (const cJSON *child = run->child; child != NULL; child = child->next) {
        bool known = and_more || strcmp(child->string, "format") == 0;
        for (size_t i = 0; i < names->len && !known; i++) {
            size_t len = strlen(names->items[i]);
            known = strncmp(child->string, names->items[i], len) == 0 &&
                    (child->string[len] == '\0' || strcmp(child->string + len, "_age_s") == 0);
        }
        if (!known) {
            fail_msg("%s: '%s' is not documented", what, child->string);
        }
    }
    const cJSON *evidence = hf_json_opt(run, "evidence");
    assert_true(cJSON_IsArray(evidence));
    for (const cJSON *e = evidence->child; e != NULL; e = e->next) {
        if (hf_json_opt_str(e, "by", NULL) == NULL || hf_json_opt_str(e, "what", NULL) == NULL ||
            hf_json_opt_str(e, "at", NULL) == NULL) {
            fail_msg("%s: evidence without who, what or when", what);
        }
    }
    assert_non_null(hf_json_opt_str(run, "state", NULL));
    assert_non_null(hf_json_opt_str(run, "last_state", NULL));
    assert_non_null(hf_json_opt_str(run, "asked", NULL));
}

void must_be_plain(const char *page, const char *what)
{
    for (const char *p = page; *p != '\0'; p++) {
        if (((unsigned char)*p < 0x20 && *p != '\n') || *p == 0x7f) {
            fail_msg("%s: byte 0x%02x at %td of:\n%s", what, (unsigned char)*p, p - page, page);
        }
    }
}

const cJSON *only_run(const cJSON *all)
{
    const cJSON *runs = hf_json_opt(all, "runs");
    assert_int_equal(hf_json_opt_int(all, "format", 0), 1);
    assert_true(cJSON_IsArray(runs) && cJSON_GetArraySize(runs) == 1);
    return runs->child;
}
