/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/store: every store against the one suite, then what is particular: URIs, left-over files,
 * writers killed at any moment, lost replies, stores that overwrite, traces.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "base/log.h"
#include "cloud/store_backend.h"
#include "tests/unit/support_conform_store.h"

static char *folder;
static const struct hf_log silent = {.fd = -1, .min = HF_LOG_DEBUG, .prefix = ""};

static int setup(void **state)
{
    (void)state;
    folder = temp_folder();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    free(folder);
    return 0;
}

static struct hf_store *must_open(const char *uri, bool survives)
{
    struct hf_store *s = NULL;
    struct hf_err err;
    expect_rc(hf_store_open(uri, &(struct hf_store_cfg){.survives = survives}, &s, &err), HF_OK,
              &err);
    assert_string_equal(s->uri, uri);
    return s;
}

/* A folder of its own below the test's. */
static struct hf_store *open_file(void)
{
    char rand[17];
    hf_random_hex(8, rand);
    char *uri = hf_asprintf("file://%s/deep/%s", folder, rand);
    struct hf_store *s = must_open(uri, false);
    free(uri);
    return s;
}

static struct hf_store *open_mem(void)
{
    return must_open("mem:test", false);
}

static struct hf_store *open_trace(void)
{
    return hf_store_trace(open_file(), &silent);
}

static struct hf_pulse *pulse;

static struct hf_store *open_pulse(void)
{
    return hf_store_pulse(open_file(), pulse);
}

static struct hf_store *open_faulty(void)
{
    return hf_store_faulty(open_mem());
}

static void file_conforms(void **state)
{
    (void)state;
    conform_store(open_file);
}

static void mem_conforms(void **state)
{
    (void)state;
    conform_store(open_mem);
}

static void trace_conforms(void **state)
{
    (void)state;
    conform_store(open_trace);
}

static void pulse_conforms(void **state)
{
    (void)state;
    struct hf_pulse_look look;
    pulse = hf_pulse_new();
    conform_store(open_pulse);
    assert_false(hf_pulse_oldest(pulse, &look));
    hf_pulse_free(pulse);
}

static void faulty_conforms(void **state)
{
    (void)state;
    conform_store(open_faulty);
}

static void uris(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "/abs",   "file:",          "file:/a",
                                      "mem:",       "gs://b", "file://host/a",  "file://~/a",
                                      "files:///a", "mem:/a", "file://rel/path"};
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        struct hf_store *s = NULL;
        struct hf_err err = {.code = HF_OK};
        expect_rc(hf_store_open(bad[i], NULL, &s, &err), HF_EINVAL, &err);
        assert_null(s);
        assert_true(strstr(err.hint, "file:///") != NULL);
        assert_true(strstr(err.msg, bad[i]) != NULL);
    }
    /* A folder where a file is. */
    char *path = hf_asprintf("%s/plain", folder);
    struct hf_err err;
    expect_rc(hf_fs_write(path, text_of("x"), 0600, false, &err), HF_OK, &err);
    char *uri = hf_asprintf("file://%s/store", path);
    struct hf_store *s = NULL;
    assert_int_not_equal(hf_store_open(uri, NULL, &s, &err), HF_OK);
    assert_null(s);
    assert_true(strstr(err.msg, path) != NULL);
    free(uri);
    free(path);
}

static void file_store_is_private_and_says_what_it_survives(void **state)
{
    (void)state;
    struct hf_err err;
    char *uri = hf_asprintf("file://%s/private", folder);
    struct hf_store *s = must_open(uri, false);
    struct stat st;
    assert_int_equal(stat(uri + strlen("file://"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    expect_rc(hf_store_put(s, NULL, "a/b", text_of("x"), 0, &err), HF_OK, &err);
    hf_store_close(s);
    s = must_open(uri, true);
    assert_true((s->caps & HF_STORE_OUTLIVES) != 0);
    store_holds(s, "a/b", "x");
    hf_store_close(s);
    hf_store_close(NULL);
    free(uri);

    static const struct {
        uint64_t magic;
        const char *type;
        bool outlives;
    } rows[] = {{0x6969, "nfs4", true},         {0xff534d42, "cifs", true},
                {0x0bd00bd0, "lustre", true},   {0x00c36400, "ceph", true},
                {0x65735546, "virtiofs", true}, {0x65735546, "fuse.gcsfuse", false},
                {0x65735546, "", false},        {0xef53, "ext4", false},
                {0x01021994, "tmpfs", false},   {0x794c7630, "overlay", false},
                {0x01021997, "9p", false},      {0, "virtiofs", false}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        assert_int_equal(hf_store_fs_outlives(rows[i].magic, rows[i].type), rows[i].outlives);
    }
}

static void left_over_temporary_files(void **state)
{
    (void)state;
    char *uri = hf_asprintf("file://%s/left", folder);
    struct hf_store *s = must_open(uri, false);
    const char *dir = uri + strlen("file://");
    store_set(s, "a/k", "v");
    char *young = hf_asprintf("%s/a/.tmp-1-young", dir);
    char *old = hf_asprintf("%s/a/.tmp-1-old", dir);
    struct hf_err err;
    expect_rc(hf_fs_write(young, text_of("part"), 0600, false, &err), HF_OK, &err);
    expect_rc(hf_fs_write(old, text_of("part"), 0600, false, &err), HF_OK, &err);
    int64_t long_ago = hf_wall_ms() / 1000 - 25 * 3600;
    struct timespec times[2] = {{.tv_sec = long_ago}, {.tv_sec = long_ago}};
    assert_int_equal(utimensat(AT_FDCWD, old, times, 0), 0);
    assert_int_equal(store_count(s, ""), 1);
    assert_int_equal(store_count(s, "a/"), 1);
    assert_true(hf_fs_exists(young));
    assert_false(hf_fs_exists(old));
    hf_store_close(s);
    free(young);
    free(old);
    free(uri);
}

static void removing_takes_empty_folders_along(void **state)
{
    (void)state;
    char *uri = hf_asprintf("file://%s/prune", folder);
    struct hf_store *s = must_open(uri, false);
    const char *dir = uri + strlen("file://");
    store_set(s, "d/x/1", "v");
    store_set(s, "d/y/2", "v");
    struct hf_err err;
    expect_rc(hf_store_remove(s, NULL, "d/x/1", &err), HF_OK, &err);
    char *x = hf_asprintf("%s/d/x", dir);
    char *d = hf_asprintf("%s/d", dir);
    assert_false(hf_fs_exists(x));
    assert_true(hf_fs_exists(d));
    expect_rc(hf_store_remove(s, NULL, "d/y/2", &err), HF_OK, &err);
    assert_false(hf_fs_exists(d));
    assert_true(hf_fs_exists(dir));
    store_set(s, "d/x/1", "again");
    store_holds(s, "d/x/1", "again");
    hf_store_close(s);
    free(x);
    free(d);
    free(uri);
}

/* The child of the next test: puts for ever. */
static void put_for_ever(const char *uri)
{
    struct hf_store *s = NULL;
    if (hf_store_open(uri, NULL, &s, NULL) != HF_OK) {
        _exit(1);
    }
    static char text[200001];
    for (int i = 0;; i++) {
        memset(text, 'a' + i % 26, 200000);
        char key[32];
        snprintf(key, sizeof(key), "new/%d", i);
        if (hf_store_put(s, NULL, "same", text_of(text), HF_PUT_REPLACE, NULL) != HF_OK ||
            hf_store_put(s, NULL, key, text_of(text), HF_PUT_CREATE_ONLY, NULL) != HF_OK) {
            _exit(1);
        }
    }
}

static bool is_whole(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct hf_store *s = user;
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1 << 20);
    expect_rc(hf_store_get(s, NULL, key, &b, &err), HF_OK, &err);
    assert_int_equal(b.len, 200000);
    for (size_t i = 1; i < b.len; i++) {
        assert_int_equal(b.data[i], b.data[0]);
    }
    hf_buf_release(&b);
    return true;
}

static void writers_killed_at_any_moment(void **state)
{
    (void)state;
    unsigned seed = (unsigned)hf_random_u64();
    print_message("seed %u\n", seed);
    for (int round = 0; round < 20; round++) {
        char *uri = hf_asprintf("file://%s/killed-%d", folder, round);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            put_for_ever(uri);
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000 + rand_r(&seed) % 20000000}, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        struct hf_store *s = must_open(uri, false);
        struct hf_err err;
        expect_rc(hf_store_list(s, NULL, "", is_whole, s, &err), HF_OK, &err);
        hf_store_close(s);
        free(uri);
    }
}

static void faults_do_what_they_say(void **state)
{
    (void)state;
    struct hf_store *s = open_faulty();
    struct hf_err err;
    hf_store_fault_set(s, HF_SFAULT_FAIL, 2, false);
    store_set(s, "k", "1");
    expect_rc(hf_store_put(s, NULL, "k", text_of("2"), 0, &err), HF_EIO, &err);
    store_holds(s, "k", "1");
    assert_int_equal(hf_store_fault_calls(s), 3);

    hf_store_fault_set(s, HF_SFAULT_LOST_REPLY, 1, false);
    expect_rc(hf_store_put(s, NULL, "k", text_of("2"), 0, &err), HF_EAGAIN, &err);
    store_holds(s, "k", "2");
    hf_store_fault_set(s, HF_SFAULT_LOST_REPLY, 1, true);
    expect_rc(hf_store_remove(s, NULL, "k", &err), HF_EAGAIN, &err);
    struct hf_buf b;
    hf_buf_init(&b, 10);
    expect_rc(hf_store_get(s, NULL, "k", &b, &err), HF_EAGAIN, &err);
    hf_store_fault_set(s, HF_SFAULT_FAIL, 0, true);
    store_holds(s, "k", NULL);

    hf_store_fault_set(s, HF_SFAULT_HANG, 1, true);
    uint64_t began_ns = hf_now_ns();
    struct hf_call soon = {.deadline_ns = began_ns + 60 * HF_MS};
    expect_rc(hf_store_get(s, &soon, "k", &b, &err), HF_ETIMEOUT, &err);
    assert_true(hf_now_ns() - began_ns >= 60 * HF_MS);
    struct hf_op op = {.loop = NULL};
    atomic_store(&op.canceled, true);
    expect_rc(hf_store_get(s, &(struct hf_call){.op = &op}, "k", &b, &err), HF_ECANCELED, &err);
    expect_rc(hf_store_get(s, NULL, "k", &b, &err), HF_ETIMEOUT, &err);
    hf_buf_release(&b);
    hf_store_close(s);
}

static void a_create_settles_every_doubt(void **state)
{
    (void)state;
    static const enum hf_store_fault_kind kinds[] = {HF_SFAULT_FAIL, HF_SFAULT_LOST_REPLY};
    for (size_t kind = 0; kind < HF_COUNT(kinds); kind++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            struct hf_store *s = open_faulty();
            struct hf_err err;
            hf_store_fault_set(s, kinds[kind], nth, false);
            expect_rc(hf_store_create(s, NULL, "k", text_of("mine"), NULL, &err), HF_OK, &err);
            hf_store_fault_set(s, kinds[kind], nth, false);
            struct hf_buf other;
            hf_buf_init(&other, 100);
            expect_rc(hf_store_create(s, NULL, "k", text_of("yours"), &other, &err), HF_EEXISTS,
                      &err);
            assert_string_equal(hf_buf_str(&other), "mine");
            hf_buf_release(&other);
            hf_store_close(s);
        }
    }
    /* A store that fails for good says that nothing is known, in time. */
    struct hf_store *s = open_faulty();
    struct hf_err err;
    hf_store_fault_set(s, HF_SFAULT_LOST_REPLY, 1, true);
    struct hf_call soon = {.deadline_ns = hf_now_ns() + 300 * HF_MS};
    enum hf_rc rc = hf_store_create(s, &soon, "k", text_of("mine"), NULL, &err);
    assert_true(rc == HF_EAGAIN || rc == HF_ETIMEOUT);
    assert_true(hf_now_ns() < soon.deadline_ns + 500 * HF_MS);
    hf_store_fault_set(s, HF_SFAULT_FAIL, 0, false);
    expect_rc(hf_store_create(s, NULL, "k", text_of("mine"), NULL, &err), HF_OK, &err);
    hf_store_close(s);
}

static void stores_that_overwrite_are_found_out(void **state)
{
    (void)state;
    struct hf_store *s = store_with_flaws(open_mem(), FLAW_OVERWRITES);
    struct hf_err err;
    expect_rc(hf_store_probe(s, NULL, "run", &err), HF_OK, &err);
    assert_true((s->caps & HF_STORE_CREATE_ONLY) == 0);
    assert_int_equal(store_count(s, ""), 0);
    /* Advisory, but it does not overwrite what it can see. */
    expect_rc(hf_store_create(s, NULL, "k", text_of("mine"), NULL, &err), HF_OK, &err);
    expect_rc(hf_store_create(s, NULL, "k", text_of("mine"), NULL, &err), HF_OK, &err);
    expect_rc(hf_store_create(s, NULL, "k", text_of("yours"), NULL, &err), HF_EEXISTS, &err);
    store_holds(s, "k", "mine");
    hf_store_close(s);

    s = store_with_flaws(open_mem(), FLAW_READ_ONLY);
    expect_rc(hf_store_probe(s, NULL, "run", &err), HF_EDENIED, &err);
    hf_store_close(s);

    s = open_faulty();
    hf_store_fault_set(s, HF_SFAULT_FAIL, 1, true);
    expect_rc(hf_store_probe(s, NULL, "run", &err), HF_EIO, &err);
    hf_store_fault_set(s, HF_SFAULT_LOST_REPLY, 1, false);
    expect_rc(hf_store_probe(s, NULL, "run", &err), HF_OK, &err);
    assert_true((s->caps & HF_STORE_CREATE_ONLY) != 0);
    hf_store_close(s);
}

static void traces(void **state)
{
    (void)state;
    int fd = memfd_create("trace", MFD_CLOEXEC);
    assert_true(fd >= 0);
    struct hf_log log = {.fd = fd, .min = HF_LOG_DEBUG, .prefix = ""};
    struct hf_store *s = hf_store_trace(open_mem(), &log);
    store_set(s, "a/key", "12345");
    store_holds(s, "a/key", "12345");
    store_holds(s, "none", NULL);
    store_count(s, "a/");
    hf_store_close(s);
    char text[4096];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    close(fd);
    assert_true(strstr(text, "store put 'a/key': ok, 5 bytes") != NULL);
    assert_true(strstr(text, "store get 'a/key': ok, 5 bytes") != NULL);
    assert_true(strstr(text, "store get 'none': not-found, 0 bytes") != NULL);
    assert_true(strstr(text, "store list 'a/': ok") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_conforms),
        cmocka_unit_test(mem_conforms),
        cmocka_unit_test(trace_conforms),
        cmocka_unit_test(pulse_conforms),
        cmocka_unit_test(faulty_conforms),
        cmocka_unit_test(uris),
        cmocka_unit_test(file_store_is_private_and_says_what_it_survives),
        cmocka_unit_test(left_over_temporary_files),
        cmocka_unit_test(removing_takes_empty_folders_along),
        cmocka_unit_test(writers_killed_at_any_moment),
        cmocka_unit_test(faults_do_what_they_say),
        cmocka_unit_test(a_create_settles_every_doubt),
        cmocka_unit_test(stores_that_overwrite_are_found_out),
        cmocka_unit_test(traces),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
