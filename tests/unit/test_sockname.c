/* SPDX-License-Identifier: Apache-2.0
 *
 * base/sockname: sockets in folders of any depth can be bound and connected to, and failures
 * leave no descriptor.
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
#include "base/mem.h"
#include "base/sockname.h"

/* A folder below `top` whose path has `len` bytes. */
static char *folder_of(const char *top, size_t len)
{
    char *path = hf_strdup(top);
    while (strlen(path) + 2 < len) {
        size_t want = len - strlen(path) - 1;
        char part[101] = "";
        memset(part, 'd', want > 100 ? 98 : want);
        char *longer = hf_asprintf("%s/%s", path, part);
        hf_free(path);
        path = longer;
    }
    assert_int_equal(hf_fs_mkdirs(path, 0700, NULL), HF_OK);
    return path;
}

static void binds_and_connects(void **state)
{
    (void)state;
    char top[] = "/tmp/hf-XXXXXX";
    assert_non_null(mkdtemp(top));
    static const size_t lengths[] = {40, 104, 105, 106, 107, 300, 3000};
    for (size_t i = 0; i < HF_COUNT(lengths); i++) {
        char *folder = folder_of(top, lengths[i]);
        assert_int_equal(strlen(folder), lengths[i]);
        char *path = hf_asprintf("%s/s", folder);
        struct hf_sockname s;
        assert_int_equal(hf_sockname_open(path, &s, NULL), HF_OK);
        assert_int_equal(s.dir >= 0, strlen(path) > 107);
        int server = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(server, (const struct sockaddr *)&s.addr, sizeof s.addr), 0);
        assert_int_equal(listen(server, 1), 0);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        hf_sockname_close(&s);
        assert_int_equal(s.dir, -1);
        assert_int_equal(hf_sockname_open(path, &s, NULL), HF_OK);
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(client, (const struct sockaddr *)&s.addr, sizeof s.addr), 0);
        hf_sockname_close(&s);
        close(client);
        close(server);
        hf_free(path);
        hf_free(folder);
    }
    assert_int_equal(hf_fs_remove_tree(top, NULL), HF_OK);
}

static void fails_clean(void **state)
{
    (void)state;
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    char *long_name = hf_asprintf("/tmp/%s", name);
    char *no_folder = hf_asprintf("/tmp/%s/%s/s", name, name);
    struct hf_sockname s = {.dir = 77};
    struct hf_err err = {0};
    int before = dup(0);
    assert_int_equal(hf_sockname_open(long_name, &s, &err), HF_EINVAL);
    assert_non_null(strstr(err.msg, "too long"));
    assert_int_equal(hf_sockname_open(no_folder, &s, &err), HF_ENOTFOUND);
    assert_int_equal(hf_sockname_open(name, &s, &err), HF_EINVAL);
    assert_int_equal(s.dir, 77);
    close(before);
    int after = dup(0);
    assert_int_equal(before, after);
    close(after);
    hf_free(no_folder);
    hf_free(long_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_and_connects),
        cmocka_unit_test(fails_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
