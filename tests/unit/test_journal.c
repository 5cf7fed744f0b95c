/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/journal: what was noted comes back byte for byte, the newest unshipped save wins, a
 * torn last line costs nothing, and hostile lines are passed over.
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
#include "supervisor/journal.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

static char *folder, *file;

static int setup(void **state)
{
    (void)state;
    folder = temp_folder();
    file = hf_asprintf("%s/saves.jsonl", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_free(folder);
    hf_free(file);
    return 0;
}

static struct hf_saved *make_saved(uint64_t serial)
{
    struct hf_saved *s = HF_NEW(struct hf_saved);
    s->serial = serial;
    s->request = 7;
    s->life = 2;
    s->step = (int64_t)serial * 100;
    s->world = 2;
    s->ranks = hf_calloc(2, sizeof(*s->ranks));
    s->ranks[1] = 1;
    s->n_ranks = 2;
    s->reason = hf_strdup("notice");
    s->strategy = hf_strdup("hook");
    s->resume_path = hf_strdup("/tmp/ckpt/caf\xe9");
    hf_strv_add(&s->roots, "/tmp/ckpt/caf\xe9");
    hf_strv_add(&s->roots, "/tmp/other \"root\"\n");
    s->stamps.items = hf_calloc(2, sizeof(struct hf_stamp));
    s->stamps.len = 2;
    s->stamps.items[0] = (struct hf_stamp){hf_strdup("/tmp/ckpt/caf\xe9/a"), 5, 1796078221250999999,
                                           UINT64_C(0x7fffffffffffffff)};
    s->stamps.items[1] = (struct hf_stamp){hf_strdup("/tmp/other/b"), 0, -5, 1};
    return s;
}

static void must_note(uint64_t serial)
{
    struct hf_err err;
    struct hf_saved *s = make_saved(serial);
    expect_rc(hf_journal_put_save(folder, s, &err), HF_OK, &err);
    hf_saved_free(s);
}

static void must_ship(uint64_t serial)
{
    struct hf_err err;
    expect_rc(hf_journal_put_shipped(folder, serial, &err), HF_OK, &err);
}

/* The serial of the newest unshipped save, 0 without one; *ret_max is the highest seen. */
static uint64_t unshipped(uint64_t *ret_max)
{
    struct hf_err err;
    struct hf_saved *s = (void *)file; /* must be overwritten */
    expect_rc(hf_journal_unshipped(folder, &s, ret_max, &err), HF_OK, &err);
    uint64_t serial = s != NULL ? s->serial : 0;
    hf_saved_free(s);
    return serial;
}

static void comes_back_exactly(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_saved *want = make_saved(3);
    must_note(3);
    struct hf_saved *got = NULL;
    uint64_t max = 0;
    expect_rc(hf_journal_unshipped(folder, &got, &max, &err), HF_OK, &err);
    assert_non_null(got);
    assert_int_equal(max, 3);
    assert_int_equal(got->serial, want->serial);
    assert_int_equal(got->request, want->request);
    assert_int_equal(got->life, want->life);
    assert_int_equal(got->step, want->step);
    assert_int_equal(got->world, want->world);
    assert_int_equal(got->n_ranks, 2);
    assert_memory_equal(got->ranks, want->ranks, 2 * sizeof(*got->ranks));
    assert_string_equal(got->reason, want->reason);
    assert_string_equal(got->strategy, want->strategy);
    assert_string_equal(got->resume_path, want->resume_path);
    assert_int_equal(got->roots.len, 2);
    assert_string_equal(got->roots.items[1], want->roots.items[1]);
    const char *which = NULL;
    assert_true(hf_stamps_equal(&got->stamps, &want->stamps, &which));
    assert_int_equal(got->stamps.items[0].inode, UINT64_C(0x7fffffffffffffff));
    assert_int_equal(got->stamps.items[0].mtime_ns, 1796078221250999999);
    assert_int_equal(got->stamps.items[1].mtime_ns, -5);
    hf_saved_free(got);
    hf_saved_free(want);
    hf_saved_free(NULL);
}

/* Each letter is a line: a digit notes that save, a letter ships it (a is 1). */
static void the_newest_unshipped_wins(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        uint64_t left, max;
    } rows[] = {
        {"", 0, 0},      {"1", 1, 1},     {"12", 2, 2},   {"1a", 0, 1},    {"12a", 2, 2},
        {"12b", 0, 2},   {"1a2", 2, 2},   {"1a2b", 0, 2}, {"123b", 3, 3},  {"123c", 0, 3},
        {"123bc", 0, 3}, {"123cb", 0, 3}, {"a", 0, 1},    {"12ab3", 3, 3}, {"9", 9, 9},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        (void)unlink(file);
        for (const char *p = rows[i].lines; *p != '\0'; p++) {
            if (*p >= 'a') {
                must_ship((uint64_t)(*p - 'a' + 1));
            } else {
                must_note((uint64_t)(*p - '0'));
            }
        }
        uint64_t max = 99;
        uint64_t left = unshipped(&max);
        if (left != rows[i].left || max != rows[i].max) {
            fail_msg("'%s': %ju, %ju", rows[i].lines, (uintmax_t)left, (uintmax_t)max);
        }
    }
}

/* A kill at every byte of the last line, then a new life that goes on. */
static void torn_lines(void **state)
{
    (void)state;
    must_note(1);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    off_t first = st.st_size;
    must_note(2);
    assert_int_equal(stat(file, &st), 0);
    for (off_t cut = first; cut <= st.st_size; cut++) {
        (void)unlink(file);
        must_note(1);
        must_note(2);
        assert_int_equal(truncate(file, cut), 0);
        uint64_t max = 0;
        uint64_t left = unshipped(&max);
        /* All but the line's own end is needed, and nothing less counts. */
        uint64_t want = cut == st.st_size ? 2 : 1;
        if (left != want || max != want) {
            fail_msg("cut at %jd of %jd: %ju", (intmax_t)cut, (intmax_t)st.st_size,
                     (uintmax_t)left);
        }
        must_note(3);
        assert_int_equal(unshipped(&max), 3);
        must_ship(3);
        assert_int_equal(unshipped(&max), 0);
    }
}

static void append_raw(const char *text)
{
    struct hf_err err;
    expect_rc(hf_fs_append(file, text_of(text), &err), HF_OK, &err);
}

#define HEAD "{\"type\":\"saved\",\"serial\":5,\"request\":0,\"life\":0,\"step\":1,\"world\":0,"
#define TEXT "\"reason\":\"r\",\"strategy\":\"s\",\"resume_path\":\"/a\","

/* None of these is taken, and the good save before them stands. */
static void hostile_lines(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "{",
        "null",
        "[]",
        "7",
        "\"saved\"",
        "{}",
        "{\"type\":\"saved\"}",
        "{\"type\":7,\"serial\":9}",
        "{\"type\":\"other\",\"serial\":9}",
        "{\"type\":\"shipped\"}",
        "{\"type\":\"shipped\",\"serial\":null}",
        "{\"type\":\"shipped\",\"serial\":0}",
        "{\"type\":\"shipped\",\"serial\":-1}",
        "{\"type\":\"shipped\",\"serial\":-9007199254740992}",
        "{\"type\":\"shipped\",\"serial\":1e300}",
        "{\"type\":\"shipped\",\"serial\":\"9\"}",
        HEAD "\"ranks\":[],\"roots\":[],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[]}",
        HEAD TEXT "\"ranks\":[-1],\"roots\":[],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[0.5],\"roots\":[],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[\"0\"],\"roots\":[],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[1e99],\"roots\":[],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[7],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[{\"hex\":\"zz\"}],\"stamps\":[]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[7]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[[\"path\"]]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[{\"path\":\"/a\"}]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[{\"path\":\"/a\",\"size\":-1,"
                  "\"mtime_ns\":\"1\",\"inode\":\"1\"}]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[{\"path\":\"/a\",\"size\":1,"
                  "\"mtime_ns\":\"x\",\"inode\":\"1\"}]}",
        HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[{\"path\":\"/a\",\"size\":1,"
                  "\"mtime_ns\":\"1\",\"inode\":\"\"}]}",
        "{\"type\":\"saved\",\"serial\":0,\"request\":0,\"life\":0,\"step\":1,\"world\":0," TEXT
        "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[]}",
        "{\"type\":\"saved\",\"serial\":5,\"request\":0,\"life\":0,\"step\":-2,\"world\":0," TEXT
        "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[]}",
        "{\"type\":\"saved\",\"serial\":5,\"request\":-1,\"life\":0,\"step\":1,\"world\":0," TEXT
        "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[]}",
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        (void)unlink(file);
        must_note(2);
        append_raw(rows[i]);
        append_raw("\n");
        uint64_t max = 0;
        uint64_t left = unshipped(&max);
        if (left != 2 || max != 2) {
            fail_msg("%s: %ju, %ju", rows[i], (uintmax_t)left, (uintmax_t)max);
        }
    }
    /* The pattern itself is sound: without a fault the line is taken. */
    append_raw(HEAD TEXT "\"ranks\":[],\"roots\":[\"/a\"],\"stamps\":[]}\n");
    uint64_t max = 0;
    assert_int_equal(unshipped(&max), 5);
}

static void claims(void **state)
{
    (void)state;
    struct hf_err err;
    struct hf_claim got = {.attempt = 0};
    expect_rc(hf_journal_get_claim(folder, &got, &err), HF_ENOTFOUND, &err);
    struct hf_claim claim = make_claim(4);
    expect_rc(hf_journal_put_claim(folder, &claim, &err), HF_OK, &err);
    expect_rc(hf_journal_get_claim(folder, &got, &err), HF_OK, &err);
    assert_int_equal(got.attempt, 4);
    assert_string_equal(got.nonce, claim.nonce);
    assert_string_equal(got.command.items[1], claim.command.items[1]);
    hf_claim_release(&got);
    hf_claim_release(&claim);
    char *path = hf_asprintf("%s/claim.json", folder);
    put_text(path, "{\"format\":1");
    expect_rc(hf_journal_get_claim(folder, &got, &err), HF_ECORRUPT, &err);
    assert_non_null(strstr(err.msg, path));
    hf_free(path);
}

static void failures_are_said(void **state)
{
    (void)state;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *nowhere = hf_asprintf("%s/none", folder);
    struct hf_saved *s = make_saved(1);
    expect_rc(hf_journal_put_save(nowhere, s, &err), HF_ENOTFOUND, &err);
    hf_saved_free(s);
    expect_rc(hf_journal_put_shipped(nowhere, 1, &err), HF_ENOTFOUND, &err);
    uint64_t max = 9;
    expect_rc(hf_journal_unshipped(nowhere, &s, &max, &err), HF_OK, &err);
    assert_null(s);
    assert_int_equal(max, 0);
    /* A journal that cannot be read is not an empty one. */
    assert_int_equal(mkdir(file, 0700), 0);
    assert_int_not_equal(hf_journal_unshipped(folder, &s, &max, &err), HF_OK);
    assert_null(s);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(comes_back_exactly),
        CASE(the_newest_unshipped_wins),
        CASE(torn_lines),
        CASE(hostile_lines),
        CASE(claims),
        CASE(failures_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
