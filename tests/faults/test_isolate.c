/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's isolation with every file call failing in turn: an error is reported or all went
 * well, and the person's folder comes back in every byte, mode and time.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tests/unit/support_isolate.h"

/* Every call fails in turn: an error is reported or all went well, and the folder comes back. */
static void test_every_fault(void **state)
{
    struct place *p = *state;
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    for (uint64_t nth = 1;; nth++) {
        struct hf_err err = {0};
        struct hf_isolate *iso = NULL;
        hf_fault_arm("file", nth, false);
        enum hf_rc rc =
            hf_isolate_begin_as(HF_ISOLATE_JOURNAL, &p->dirs, p->work, &iso, &p->notes, &err);
        if (rc == HF_OK) {
            tree_write("train.py", 2);
            tree_write("made", 1);
            tree_ok(unlink("run.sh"));
            rc = hf_isolate_new_machine(iso, &err);
            tree_write("made", 1);
            enum hf_rc ended = hf_isolate_end(iso, &err);
            rc = rc == HF_OK ? ended : rc;
        }
        bool fired = hf_fault_fired("file");
        hf_fault_arm("file", 0, false);
        must_be_ok(hf_isolate_recover(p->work, NULL, &err), &err);
        tree_same(p->user, before);
        hf_strv_clear(&p->notes);
        if (!fired) {
            assert_int_equal(HF_OK, rc);
            print_message("%ju calls failed in turn\n", (uintmax_t)nth - 1);
            return;
        }
    }
}

static void overlay_faults_child(struct place *p)
{
    HF_CLEANUP(hf_freep) char *before = tree_list(p->user);
    for (uint64_t nth = 1;; nth++) {
        struct hf_err err = {0};
        struct hf_isolate *iso = NULL;
        hf_fault_arm("file", nth, false);
        enum hf_rc rc =
            hf_isolate_begin_as(HF_ISOLATE_OVERLAY, &p->dirs, p->work, &iso, &p->notes, &err);
        if (rc == HF_OK) {
            tree_attempt(p->user, 5);
            rc = hf_isolate_new_machine(iso, &err);
            enum hf_rc ended = hf_isolate_end(iso, &err);
            rc = rc == HF_OK ? ended : rc;
        }
        bool fired = hf_fault_fired("file");
        hf_fault_arm("file", 0, false);
        must_be_ok(hf_isolate_recover(p->work, NULL, &err), &err);
        tree_same(p->user, before);
        hf_strv_clear(&p->notes);
        if (!fired) {
            if (rc == HF_ENOTSUP) {
                print_message("skip: overlays cannot be used here: %s\n", err.msg);
                _exit(77);
            }
            must_be_ok(rc, &err);
            print_message("%ju calls failed in turn\n", (uintmax_t)nth - 1);
            return;
        }
    }
}

static void test_overlay_every_fault(void **state)
{
    if (!place_in_child(*state, overlay_faults_child)) {
        skip();
    }
}

int main(void)
{
    umask(022);
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {CASE(test_every_fault), CASE(test_overlay_every_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
