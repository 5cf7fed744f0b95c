/* SPDX-License-Identifier: Apache-2.0
 *
 * The log ring: its bound, what is dropped and told of, reading while it is written, and time. A
 * full disk is simulated by a file-size limit and by /dev/full.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/mem.h"
#include "supervisor/logring.h"

#define T0 INT64_C(1700000000000)

struct fix {
    char dir[64];
    struct hf_logring ring;
};

static void fix_open(struct fix *f, uint64_t limit)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/hf-ring-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/" HF_LOGRING_FIRST, f->dir);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    hf_logring_init(&f->ring, f->dir, fd, limit);
}

static void fix_close(struct fix *f)
{
    hf_logring_release(&f->ring);
    assert_int_equal(hf_fs_remove_tree(f->dir, NULL), HF_OK);
}

static void add_at(struct fix *f, const char *text, uint64_t second)
{
    hf_logring_add(&f->ring, (struct hf_span){text, strlen(text)}, (second + 1) * HF_SEC,
                   T0 + (int64_t)second * 1000);
}

static void add(struct fix *f, const char *text)
{
    add_at(f, text, 0);
}

/* All that can be read from an offset on; owned by the caller. */
static char *read_from(const struct fix *f, uint64_t offset)
{
    struct hf_buf b;
    hf_buf_init(&b, 4 << 20);
    char piece[1000];
    size_t len = 1;
    while (len > 0) {
        assert_int_equal(hf_logread_at(f->dir, &offset, piece, sizeof piece, &len, NULL), HF_OK);
        assert_int_equal(hf_buf_add(&b, piece, len, NULL), HF_OK);
        offset += len;
    }
    char *text = hf_strndup(hf_buf_str(&b), b.len);
    hf_buf_release(&b);
    return text;
}

static void reads_back_what_was_written(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 1 << 20);
    uint64_t first = 9;
    uint64_t end = 9;
    size_t len = 9;
    char c = 0;
    uint64_t at = 0;
    assert_int_equal(hf_logread_bounds(f.dir, &first, &end, NULL), HF_OK);
    assert_int_equal(first + end, 0);
    assert_int_equal(hf_logread_at(f.dir, &at, &c, 1, &len, NULL), HF_OK);
    assert_int_equal(len, 0);
    add(&f, "one\n");
    add(&f, "two\n");
    HF_CLEANUP(hf_freep) char *all = read_from(&f, 0);
    assert_string_equal(all, "one\ntwo\n");
    HF_CLEANUP(hf_freep) char *rest = read_from(&f, 5);
    assert_string_equal(rest, "wo\n");
    fix_close(&f);
    assert_int_equal(hf_logread_bounds(f.dir, &first, &end, NULL), HF_ENOTFOUND);
}

/* Whatever is written, in whatever chunks: the sum on the disk stays within the limit, and what can
 * be read is the end of it without a gap. */
static void keeps_the_newest_within_the_limit(void **state)
{
    (void)state;
    static const struct {
        uint64_t limit;
        size_t chunk, chunks;
        uint64_t every; /* a new second each so many chunks */
    } cases[] = {{65536, 1, 70000, 1000}, {65536, 100, 5000, 1},  {65536, 65536, 10, 1},
                 {65536, 8192, 100, 50},  {100000, 777, 999, 10}, {1, 5000, 100, 100}};
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct fix f;
        fix_open(&f, cases[i].limit);
        uint64_t limit = cases[i].limit < 65536 ? 65536 : cases[i].limit;
        HF_CLEANUP(hf_freep) char *chunk = hf_calloc(1, cases[i].chunk + 1);
        uint64_t written = 0;
        for (size_t n = 0; n < cases[i].chunks; n++) {
            for (size_t k = 0; k < cases[i].chunk; k++) {
                chunk[k] = (char)('a' + (written + k) % 26);
            }
            add_at(&f, chunk, n / cases[i].every);
            written += cases[i].chunk;
            if (n % 50 == 0) {
                assert_true(hf_logread_disk_bytes(f.dir) <= limit);
            }
        }
        uint64_t first = 0;
        uint64_t end = 0;
        assert_int_equal(hf_logread_bounds(f.dir, &first, &end, NULL), HF_OK);
        assert_int_equal(end, written);
        assert_true(hf_logread_disk_bytes(f.dir) <= limit);
        uint64_t kept = end - first;
        assert_true(kept == written || kept > limit / 4); /* the rest may be times */
        HF_CLEANUP(hf_freep) char *text = read_from(&f, 0);
        assert_int_equal(strlen(text), kept);
        for (uint64_t k = 0; k < kept; k++) {
            assert_int_equal(text[k], 'a' + (int)((first + k) % 26));
        }
        assert_int_equal(f.ring.dropped, 0);
        fix_close(&f);
    }
}

static void a_reader_that_is_overtaken_goes_on_with_the_oldest(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 65536);
    HF_CLEANUP(hf_freep) char *line = hf_calloc(1, 1001);
    memset(line, 'x', 1000);
    for (int i = 0; i < 200; i++) {
        add(&f, line);
    }
    uint64_t at = 10;
    uint64_t first = 0;
    uint64_t end = 0;
    size_t len = 0;
    char c = 0;
    assert_int_equal(hf_logread_bounds(f.dir, &first, &end, NULL), HF_OK);
    assert_int_equal(hf_logread_at(f.dir, &at, &c, 1, &len, NULL), HF_OK);
    assert_true(first > 100000);
    assert_int_equal(at, first);
    assert_int_equal(len, 1);
    fix_close(&f);
}

/* Room goes and comes: every byte is there or counted, and the line stands where they are missing,
 * on a line of its own. */
static void drops_counts_and_tells(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 1 << 20);
    add(&f, "before");
    int good = f.ring.fd;
    f.ring.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(f.ring.fd >= 0);
    add(&f, "lost");
    add(&f, "lost too\n");
    assert_int_equal(f.ring.dropped, 13);
    assert_int_equal(f.ring.missing, 13);
    assert_int_equal(f.ring.why, ENOSPC);
    close(f.ring.fd);
    f.ring.fd = good;
    add(&f, "after\n");
    add(&f, "more\n");
    assert_int_equal(f.ring.dropped, 13);
    assert_int_equal(f.ring.missing, 0);
    HF_CLEANUP(hf_freep) char *all = read_from(&f, 0);
    assert_string_equal(all,
                        "before\n[holdfast: 13 bytes of output are missing here: No space left "
                        "on device]\nafter\nmore\n");
    assert_int_equal(f.ring.end, strlen(all));
    fix_close(&f);
}

/* RLIMIT_FSIZE: a new segment goes on where the old one may not grow; with no room in any, all is
 * counted. SIGXFSZ is blocked in the keeper, as here. */
static void a_file_size_limit_makes_short_segments(void **state)
{
    (void)state;
    struct fix f;
    sigset_t set;
    sigset_t before;
    struct rlimit was;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    fix_open(&f, 1 << 20);
    HF_CLEANUP(hf_freep) char *text = hf_calloc(1, 2501);
    memset(text, 'y', 2500);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    struct rlimit small = {.rlim_cur = 1000, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    add(&f, text);
    uint64_t end = f.ring.end;
    uint64_t dropped = f.ring.dropped;
    size_t kept = f.ring.n_kept;
    small.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    add(&f, text);
    int why = f.ring.why;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    struct timespec none = {0};
    while (sigtimedwait(&set, NULL, &none) == SIGXFSZ) {
    }
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(end, 2500);
    assert_int_equal(dropped, 0);
    assert_int_equal(kept, 3);
    assert_int_equal(why, EFBIG);
    assert_int_equal(f.ring.dropped, 2500);
    HF_CLEANUP(hf_freep) char *all = read_from(&f, 0);
    assert_string_equal(all, text);
    fix_close(&f);
}

/* The folder is deleted under a living attempt. */
static void survives_without_its_folder(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 65536);
    assert_int_equal(hf_fs_remove_tree(f.dir, NULL), HF_OK);
    HF_CLEANUP(hf_freep) char *text = hf_calloc(1, 8193);
    memset(text, 'z', 8192);
    add(&f, text); /* into the deleted segment */
    add(&f, text);
    assert_true(f.ring.dropped > 0);
    assert_int_equal(f.ring.why, ENOENT);
    uint64_t first = 0;
    uint64_t end = 0;
    assert_int_equal(hf_logread_bounds(f.dir, &first, &end, NULL), HF_ENOTFOUND);
    assert_int_equal(hf_logread_disk_bytes(f.dir), 0);
    hf_logring_release(&f.ring);
}

static void finds_a_moment(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 65536);
    static const struct {
        int64_t since_ms;
        const char *want;
    } cases[] = {{0, "a0\na1\na5\na9\n"},     {T0, "a0\na1\na5\na9\n"}, {T0 + 1000, "a1\na5\na9\n"},
                 {T0 + 1999, "a1\na5\na9\n"}, {T0 + 2000, "a5\na9\n"},  {T0 + 5000, "a5\na9\n"},
                 {T0 + 6000, "a9\n"},         {T0 + 10000, ""}};
    add_at(&f, "a0\n", 0);
    add_at(&f, "a1\n", 1);
    HF_CLEANUP(hf_freep) char *times = hf_asprintf("%s/" HF_LOGRING_FIRST ".times", f.dir);
    assert_int_equal(hf_fs_append(times, (struct hf_span){"170000000\nnonsense\n", 19}, NULL),
                     HF_OK);
    add_at(&f, "a5\n", 5);
    add_at(&f, "a9\n", 9);
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        uint64_t at = 0;
        assert_int_equal(hf_logread_since(f.dir, cases[i].since_ms, &at, NULL), HF_OK);
        HF_CLEANUP(hf_freep) char *text = read_from(&f, at);
        assert_string_equal(text, cases[i].want);
    }
    fix_close(&f);
}

static void deletes_its_own_files_only(void **state)
{
    (void)state;
    struct fix f;
    fix_open(&f, 65536);
    HF_CLEANUP(hf_freep) char *other = hf_asprintf("%s/log.1", f.dir);
    add(&f, "text\n");
    assert_int_equal(hf_fs_append(other, (struct hf_span){"x", 1}, NULL), HF_OK);
    hf_logread_delete(f.dir);
    assert_int_equal(hf_logread_disk_bytes(f.dir), 0);
    assert_true(hf_fs_exists(other));
    fix_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_written),
        cmocka_unit_test(keeps_the_newest_within_the_limit),
        cmocka_unit_test(a_reader_that_is_overtaken_goes_on_with_the_oldest),
        cmocka_unit_test(drops_counts_and_tells),
        cmocka_unit_test(a_file_size_limit_makes_short_segments),
        cmocka_unit_test(survives_without_its_folder),
        cmocka_unit_test(finds_a_moment),
        cmocka_unit_test(deletes_its_own_files_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
