/* SPDX-License-Identifier: Apache-2.0
 *
 * What is refused before anything is registered or started, each with the place it came from and
 * the remedy; and that the check creates nothing.
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
#include "supervisor/precheck.h"

static char folder[64];

static int enter_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hf-precheck-XXXXXX");
    return mkdtemp(folder) != NULL && chdir(folder) == 0 &&
                   hf_fs_write("file", (struct hf_span){"", 0}, 0600, false, NULL) == HF_OK
               ? 0
               : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && hf_fs_remove_tree(folder, NULL) == HF_OK ? 0 : -1;
}

static enum hf_rc check(char *const *argv, char *const *env, struct hf_err *err)
{
    struct hf_settings *s = hf_settings_new();
    struct hf_settings_in in = {.command = HF_FOR_RUN, .argv = argv, .env = env};
    assert_int_equal(hf_settings_load(s, &in, err), HF_OK);
    enum hf_rc rc = hf_precheck(s, hf_settings_rest(s), err);
    hf_settings_free(s);
    return rc;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        char *flag, *env;
        const char *msg, *hint;
    } rows[] = {
        {"--store=s4://b", NULL, "--store: the store 's4://b' is not understood", "file:///folder"},
        {"--store=/tmp/x", NULL, "the store '/tmp/x' is not understood",
         "Write it as file:///tmp/x."},
        {"--store=file:x", NULL, "the store 'file:x' is not understood", "file:///folder"},
        {"--store=file://host/x", NULL, "is not understood", "file:///folder"},
        {"--store=mem:", NULL, "is not understood", "mem:NAME"},
        {"-q", "HOLDFAST_STORE=tmp", "HOLDFAST_STORE: the store 'tmp' is not", "file:///folder"},
        {"--checkpoint-dir=file", NULL, "--checkpoint-dir: 'file' is not a folder", "saves into"},
        {"-q", "HOLDFAST_CHECKPOINT_DIR=.:file", "HOLDFAST_CHECKPOINT_DIR: 'file' is not a", ""},
        {"--checkpoint-dir=file/x", NULL, "--checkpoint-dir: 'file/x' lies below a file",
         "saves into"},
        {"--save-dir=file", NULL, "--save-dir: 'file' is not a folder", "Name a folder"},
        {"--state-dir=file", NULL, "--state-dir: '", "Name a folder"},
        {"--done-file=.", NULL, "--done-file: '.' is a folder, not a file", "Name a file in it"},
        {"--notice-file=/tmp", NULL, "--notice-file: '/tmp' is a folder", "Name a file"},
        {"--metadata-endpoint=1.2.3.4", NULL, "--metadata-endpoint: '1.2.3.4' is not a URL",
         "http"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_err err = {0};
        char *argv[] = {rows[i].flag, "true", NULL};
        char *env[] = {"HOME=/none", rows[i].env, NULL};
        if (check(argv, env, &err) != HF_EINVAL) {
            fail_msg("%s is not refused", rows[i].flag);
        }
        if (strstr(err.msg, rows[i].msg) == NULL || strstr(err.hint, rows[i].hint) == NULL) {
            fail_msg("%s: '%s' '%s'", rows[i].flag, err.msg, err.hint);
        }
    }
    struct hf_err err = {0};
    assert_int_equal(check((char *[]){"", NULL}, (char *[]){"HOME=/none", NULL}, &err), HF_EINVAL);
    assert_non_null(strstr(err.msg, "first word is empty"));
}

/* As an ordinary user, in a folder of root's; root may read everything. */
static void test_unreadable(void **state)
{
    (void)state;
    char flag[] = "--checkpoint-dir=closed";
    struct hf_err err = {0};
    if (geteuid() != 0) {
        print_message("skip: needs root, to become another user\n");
        skip();
    }
    assert_int_equal(mkdir("closed", 0700), 0);
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(seteuid(65534), 0);
    enum hf_rc rc = check((char *[]){flag, "true", NULL}, (char *[]){"HOME=/none", NULL}, &err);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, HF_EDENIED);
    assert_non_null(strstr(err.msg, "--checkpoint-dir: read 'closed'"));
    assert_non_null(strstr(err.hint, "may read"));
}

static void test_fine(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "--store=file:///tmp/x", "--store=mem:x",    "--checkpoint-dir=none",
        "--checkpoint-dir=.",    "--save-dir=none",  "--done-file=none/x",
        "--notice-file=file",    "--state-dir=none", "--metadata-endpoint=http://127.0.0.1:9",
    };
    for (size_t i = 0; i < HF_COUNT(flags); i++) {
        struct hf_err err = {0};
        HF_CLEANUP(hf_freep) char *flag = hf_strdup(flags[i]);
        char *argv[] = {flag, "true", "", NULL};
        if (check(argv, (char *[]){"HOME=/none", NULL}, &err) != HF_OK) {
            fail_msg("%s: %s", flag, err.msg);
        }
    }
    assert_false(hf_fs_exists("none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(test_unreadable, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(test_fine, enter_folder, leave_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
