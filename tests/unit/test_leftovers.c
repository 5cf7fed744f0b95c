/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/leftovers: which incomplete checkpoints go, as a table; and that they are moved, never
 * deleted, with what belongs to them alone.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/leftovers.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_watch.h"

#define W HF_LAYOUT_WHOLE
#define P HF_LAYOUT_PARTIAL
#define U HF_LAYOUT_UNSURE
#define F HF_LAYOUT_FOREIGN

static void which_go(void **state)
{
    (void)state;
    static const struct {
        const char *what, *moved;
        struct hf_left_facts f[3];
        size_t n;
    } rows[] = {
        {"newer than the newest complete one", "-x", {{W, 10, 1, 0}, {P, 20, 2, 0}}, 2},
        {"older ones do no harm", "--", {{P, 5, 9, 0}, {W, 10, 1, 0}}, 2},
        {"but for marked ones", "x-", {{P, 5, 1, 1}, {W, 10, 9, 0}}, 2},
        {"compared as numbers", "x-", {{P, 10000, 1, 0}, {W, 9000, 9, 0}}, 2},
        {"no complete one", "xx", {{P, 5, 1, 0}, {P, -1, 2, 0}}, 2},
        {"by time without a step", "-x", {{W, 10, 5, 0}, {P, -1, 6, 0}}, 2},
        {"and then an older one stays", "--", {{W, 10, 5, 0}, {P, -1, 4, 0}}, 2},
        {"the same step, later", "-x", {{W, 10, 5, 0}, {P, 10, 6, 0}}, 2},
        {"complete, unsure and foreign ones stay",
         "---",
         {{W, 1, 1, 1}, {U, 9, 9, 1}, {F, 9, 9, 1}},
         3},
        {"an unsure one does not count as complete", "x-", {{P, 5, 1, 0}, {U, 10, 9, 0}}, 2},
        {"nothing", "", {{W, 0, 0, 0}}, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        bool move[3] = {0};
        char got[4] = "";
        hf_leftovers_choose(rows[i].f, rows[i].n, move);
        for (size_t k = 0; k < rows[i].n; k++) {
            got[k] = move[k] ? 'x' : '-';
        }
        if (strcmp(got, rows[i].moved) != 0) {
            fail_msg("%s: '%s' in place of '%s'", rows[i].what, got, rows[i].moved);
        }
    }
}

static void what_is_incomplete_is_moved(void **state)
{
    (void)state;
    struct hf_strv dirs = {0};
    HF_CLEANUP(hf_freep) char *folder = temp_folder();
    hf_strv_take(&dirs, hf_asprintf("%s/out", folder));
    const char *out = dirs.items[0];
    watch_hf(out, 9, true);
    watch_hf(out, 10, false);
    HF_CLEANUP(hf_freep) char *note = hf_asprintf("%s/notes.txt", out);
    put_text(note, "a person's");
    struct hf_leftovers left;
    hf_leftovers_move(&dirs, 0, &left);
    assert_int_equal(left.len, 1);
    assert_int_equal(left.troubles.len, 0);
    assert_non_null(strstr(left.items[0].path, "/out/checkpoint-10"));
    assert_non_null(strstr(left.items[0].to, "/.holdfast-aside/2"));
    assert_non_null(strstr(left.items[0].to, "Z-checkpoint-10"));
    assert_true(left.items[0].why[0] != '\0');
    HF_CLEANUP(hf_freep) char *kept = hf_asprintf("%s/model.safetensors", left.items[0].to);
    HF_CLEANUP(hf_freep) char *whole = hf_asprintf("%s/checkpoint-9", out);
    assert_true(hf_fs_exists(kept) && hf_fs_exists(whole) && hf_fs_exists(note));
    assert_false(hf_fs_exists(left.items[0].path));
    hf_leftovers_release(&left);
    /* The next one of that name gets another, also within the second. */
    watch_hf(out, 10, false);
    hf_leftovers_move(&dirs, 0, &left);
    assert_int_equal(left.len, 1);
    assert_true(hf_fs_exists(kept));
    hf_leftovers_release(&left);
    hf_leftovers_move(&dirs, 0, &left);
    assert_int_equal(left.len, 0);
    hf_leftovers_release(&left);
    hf_strv_add(&dirs, "/nonexistent/folder");
    hf_leftovers_move(&dirs, 0, &left);
    assert_int_equal(left.len + left.troubles.len, 0);
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_strv_clear(&dirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_go),
        cmocka_unit_test(what_is_incomplete_is_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
