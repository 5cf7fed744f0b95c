/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/disk: what is said of how much room, and the look at a folder that is not there yet.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "supervisor/disk.h"

#define GB UINT64_C(1000000000)

static void what_is_said(void **state)
{
    (void)state;
    static const struct {
        uint64_t free_bytes, total_bytes, need;
        enum hf_disk_word word;
        bool is_short;
    } rows[] = {
        {0, 100 * GB, 0, HF_DISK_FINE, false}, /* nothing is known of checkpoints */
        {20 * GB, 100 * GB, 10 * GB, HF_DISK_FINE, false},
        {20 * GB - 1, 100 * GB, 10 * GB, HF_DISK_LOW, false},
        {11 * GB, 100 * GB, 10 * GB, HF_DISK_LOW, false},
        {11 * GB - 1, 100 * GB, 10 * GB, HF_DISK_LOW, true},
        {0, 100 * GB, 10 * GB, HF_DISK_LOW, true},
        {10 * GB, 100 * GB, 2 * GB, HF_DISK_FULL, false}, /* row N1: at 90 %, before it fails */
        {10 * GB + 10, 100 * GB, 2 * GB, HF_DISK_FINE, false},
        {10 * GB, 100 * GB, 1 * GB, HF_DISK_FINE, false}, /* a big disk: ten of them fit */
        {10 * GB, 100 * GB, UINT64_MAX, HF_DISK_LOW, true},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_disk d = {.free_bytes = rows[i].free_bytes, .total_bytes = rows[i].total_bytes};
        if (hf_disk_judge(&d, rows[i].need) != rows[i].word) {
            fail_msg("row %zu: %d", i, (int)hf_disk_judge(&d, rows[i].need));
        }
        assert_int_equal(hf_disk_is_short(&d, rows[i].need), rows[i].is_short);
    }
}

static void the_look(void **state)
{
    (void)state;
    struct hf_disk there;
    struct hf_disk later;
    struct hf_err err;
    struct stat st;
    assert_int_equal(hf_disk_look("/proc", &there, &err), HF_OK);
    assert_int_equal(stat("/proc", &st), 0);
    assert_int_equal(there.device, st.st_dev);
    assert_int_equal(hf_disk_look("/tmp", &there, &err), HF_OK);
    assert_true(there.total_bytes > 0 && there.free_bytes <= there.total_bytes);
    assert_int_equal(hf_disk_look("/tmp/no-such-folder/below/it", &later, &err), HF_OK);
    assert_int_equal(later.device, there.device);
    assert_int_equal(hf_disk_look("/no-such-folder-at-all", &later, &err), HF_OK);
    assert_int_equal(stat("/", &st), 0);
    assert_int_equal(later.device, st.st_dev);
    assert_int_equal(hf_disk_look("relative-and-missing", &later, &err), HF_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said),
        cmocka_unit_test(the_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
