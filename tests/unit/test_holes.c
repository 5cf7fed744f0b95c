/* SPDX-License-Identifier: Apache-2.0
 *
 * Zeros and holes: they are named and never stored, and come back as holes. CASES O3: a file of
 * 10 GB with almost nothing in it costs less than 1 MB on the way out, in the store and on the disk
 * that it is restored to.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/restore.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define BLOCK UINT64_C(4096)
#define MIB   (UINT64_C(1) << 20)

static void put_sparse(const char *path, uint64_t size, uint64_t data_at, const char *data)
{
    put_text(path, "");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    size_t len = strlen(data);
    assert_int_equal(pwrite(fd, data, len, (off_t)data_at), len);
    assert_int_equal(close(fd), 0);
}

static bool sum_up(void *user, const char *key, uint64_t bytes)
{
    (void)key;
    *(uint64_t *)user += bytes;
    return true;
}

static uint64_t stored_bytes(const struct bench *b)
{
    uint64_t sum = 0;
    struct hf_err err;
    expect_rc(hf_store_list(b->store, NULL, "job/", sum_up, &sum, &err), HF_OK, &err);
    return sum;
}

static void restore_it(const struct bench *b, const struct hf_manifest *m, const char *root)
{
    struct hf_err err;
    struct hf_restore_report report;
    expect_rc(hf_remove_all(root, &err), HF_OK, &err);
    expect_rc(hf_restore(&b->run, NULL, m, &report, &err), HF_OK, &err);
    hf_restore_report_release(&report);
}

/* Small blocks and a file of a few of them: which are zero is a bit each. */
static void every_mix_of_blocks(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 32; bits++) {
        for (int by_hole = 0; by_hole < 2; by_hole++) {
            struct bench b;
            struct hf_err err;
            bench_open(&b, NULL);
            struct hf_claim one = must_claim(&b, 1);
            char *root = bench_path(&b, "ckpt");
            HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/w.bin", root);
            char data[5 * 4096 - 100];
            memset(data, 0, sizeof(data));
            for (unsigned i = 0; i < 5; i++) {
                data[i * 4096 + 50] = (bits >> i & 1) != 0 ? (char)('a' + i) : 0;
            }
            put_file(path, data, sizeof(data));
            if (by_hole == 1) {
                put_sparse(path, sizeof(data), 0, "");
                int fd = open(path, O_WRONLY | O_CLOEXEC);
                for (unsigned i = 0; i < 5; i++) {
                    off_t at = (off_t)i * 4096 + 50;
                    assert_true((bits >> i & 1) == 0 || pwrite(fd, data + at, 1, at) == 1);
                }
                close(fd);
            }
            char *before = tree_text(root);
            struct hf_save_in in = save_of(&b, &one, 1, root);
            in.block_bytes = BLOCK;
            struct hf_manifest m;
            must_save(&in, &m);
            unsigned zeros = 0;
            for (uint32_t i = 0; i < m.n_blocks; i++) {
                zeros += hf_block_is_zero(&m.blocks[i]) ? 1 : 0;
            }
            assert_int_equal(m.n_files, 2);
            assert_int_equal(m.files[1].n_extents, 5);
            assert_int_equal(zeros, ((~bits & 15) != 0 ? 1 : 0) + ((bits & 16) == 0 ? 1 : 0));
            assert_int_equal(store_count(b.store, "job/data/"), m.n_blocks - zeros);
            uint64_t bytes = 0;
            expect_rc(hf_verify(&b.run, NULL, &m, &bytes, &err), HF_OK, &err);
            restore_it(&b, &m, root);
            char *after = tree_text(root);
            assert_string_equal(after, before);
            free(before);
            free(after);
            free(root);
            hf_manifest_release(&m);
            save_in_release(&in);
            hf_claim_release(&one);
            bench_close(&b);
        }
    }
}

static void o3_ten_gigabytes_of_hole(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = bench_path(&b, "ckpt");
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/sparse.bin", root);
    uint64_t size = 10240 * MIB + 5;
    put_sparse(path, size, 7000 * MIB + 3, "in the middle");
    struct hf_save_in in = save_of(&b, &one, 1, root);
    in.block_bytes = (uint32_t)(MIB / 4); /* the default's 16 MiB would send one of that size */
    struct hf_manifest m;
    must_save(&in, &m);
    assert_true(m.bytes == size && m.bytes_sent < MIB);
    assert_true(stored_bytes(&b) < 8 * MIB);
    restore_it(&b, &m, root);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true((uint64_t)st.st_size == size && (uint64_t)st.st_blocks * 512 < MIB);
    char text[14] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, text, 13, (off_t)(7000 * MIB + 3)), 13);
    assert_string_equal(text, "in the middle");
    close(fd);
    free(root);
    hf_manifest_release(&m);
    save_in_release(&in);
    hf_claim_release(&one);
    bench_close(&b);
}

/* A manifest that calls a block zero whose id is another's proves nothing and restores nothing. */
static void a_false_zero_is_damage(void **state)
{
    (void)state;
    struct bench b;
    struct hf_err err;
    bench_open(&b, NULL);
    struct hf_claim one = must_claim(&b, 1);
    char *root = bench_path(&b, "ckpt");
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/w.bin", root);
    put_noise(path, 5000, 3);
    struct hf_save_in in = save_of(&b, &one, 1, root);
    struct hf_manifest m;
    must_save(&in, &m);
    memcpy(m.blocks[0].codec, "zero", 5);
    uint64_t bytes = 0;
    struct hf_restore_report report;
    expect_rc(hf_verify(&b.run, NULL, &m, &bytes, &err), HF_ECORRUPT, &err);
    expect_rc(hf_remove_all(root, &err), HF_OK, &err);
    expect_rc(hf_restore(&b.run, NULL, &m, &report, &err), HF_ECORRUPT, &err);
    assert_int_equal(access(root, F_OK), -1);
    memcpy(m.blocks[0].codec, "lzma", 5);
    expect_rc(hf_manifest_check(&m, &err), HF_ENOTSUP, &err);
    free(root);
    hf_manifest_release(&m);
    save_in_release(&in);
    hf_claim_release(&one);
    bench_close(&b);
}

static void zeros_and_their_hash(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 65535, 65536, 65537, 200000};
    for (size_t i = 0; i < HF_COUNT(lens); i++) {
        char *data = calloc(lens[i] + 1, 1);
        char want[HF_SHA256_HEX];
        char got[HF_SHA256_HEX];
        struct hf_span span = {data, lens[i]};
        hf_sha256_hex(span, want);
        hf_sha256_zeros(lens[i], got);
        assert_string_equal(got, want);
        assert_true(hf_all_zero(span));
        if (lens[i] > 0) {
            data[lens[i] - 1] = 1;
            assert_false(hf_all_zero(span));
            data[lens[i] - 1] = 0;
            data[0] = 1;
            assert_false(hf_all_zero(span));
        }
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_and_their_hash),
        cmocka_unit_test(every_mix_of_blocks),
        cmocka_unit_test(o3_ten_gigabytes_of_hole),
        cmocka_unit_test(a_false_zero_is_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
