/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/container: what the libraries wrote is whole, and nothing that is cut is; by every
 * length it could be cut to. Then the odd ones: JSON as Python writes it, formats that say nothing,
 * names that rule their content out, and what is no file at all.
 */
#include "base/prelude.h"

#include <fcntl.h>
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
#include "checkpoint/container.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

static struct hf_box_look judge(const void *data, size_t len, const char *name)
{
    struct hf_box_look look;
    hf_box_judge_bytes(data, len, name, &look);
    return look;
}

static void expect_box(const char *what, const struct hf_box_look *l, enum hf_box box,
                       enum hf_box_state state)
{
    if (l->box != box || l->state != state || (state == HF_BOX_SHORT) != (l->why[0] != '\0')) {
        fail_msg("%s: box %d, and not %d; state %d, and not %d (%s)", what, (int)l->box, (int)box,
                 (int)l->state, (int)state, l->why);
    }
}

/* ---- what the libraries wrote ---- */

struct sample {
    const char *file, *name;
    enum hf_box box;
    enum hf_box_state state;
    bool every_cut; /* at whatever length it is cut, it is short */
};

static const struct sample samples[] = {
    {"torch.pt", "ckpt.pt", HF_BOX_ZIP, HF_BOX_WHOLE, true},
    {"torch.pt", "model.bin", HF_BOX_ZIP, HF_BOX_WHOLE, true},
    {"torch.pt", "no ending", HF_BOX_ZIP, HF_BOX_WHOLE, false},
    {"torch-legacy.pt", "ckpt.pt", HF_BOX_PICKLE, HF_BOX_UNKNOWN, false},
    {"torch-dcp.metadata", ".metadata", HF_BOX_PICKLE, HF_BOX_UNKNOWN, false},
    {"torch-dcp.distcp", "__0_0.distcp", HF_BOX_ZIP, HF_BOX_UNKNOWN, false},
    {"numpy.npz", "a.npz", HF_BOX_ZIP, HF_BOX_WHOLE, true},
    {"weights.safetensors", "model.safetensors", HF_BOX_SAFETENSORS, HF_BOX_WHOLE, true},
    {"hdf5-v0.h5", "latest.weights.h5", HF_BOX_HDF5, HF_BOX_WHOLE, true},
    {"hdf5-v3.h5", "a.hdf5", HF_BOX_HDF5, HF_BOX_WHOLE, true},
    {"hdf5-left-open.h5", "a.h5", HF_BOX_HDF5, HF_BOX_SHORT, false},
    {"hdf5-v3-left-open.h5", "a.h5", HF_BOX_HDF5, HF_BOX_SHORT, false},
    {"orbax.ocdbt", "manifest.ocdbt", HF_BOX_MANIFEST, HF_BOX_WHOLE, true},
};

static void test_what_libraries_wrote(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(samples); i++) {
        const struct sample *one = &samples[i];
        struct hf_buf b;
        read_sample(one->file, &b);
        struct hf_box_look l = judge(b.data, b.len, one->name);
        expect_box(one->file, &l, one->box, one->state);
        assert_int_equal(l.size, b.len);
        for (size_t len = 0; one->every_cut && len < b.len; len++) {
            /* A copy, so that a read behind its end is seen. */
            char *cut = hf_calloc(len + 1, 1);
            memcpy(cut, b.data, len);
            l = judge(cut, len, one->name);
            hf_free(cut);
            if (l.state != HF_BOX_SHORT) {
                fail_msg("'%s' cut to %zu of %zu bytes is not short", one->file, len, b.len);
            }
        }
        hf_buf_release(&b);
    }
}

/* The last byte, and half of it: what a kill or a full disk leaves. */
static void test_cut_pickles_and_shards(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name;
    } cut[] = {{"torch-dcp.metadata", ".metadata"}, {"torch-dcp.distcp", "__0_0.distcp"}};
    for (size_t i = 0; i < HF_COUNT(cut); i++) {
        struct hf_buf b;
        read_sample(cut[i].file, &b);
        assert_int_equal(judge(b.data, b.len - 1, cut[i].name).state, HF_BOX_SHORT);
        assert_int_equal(judge(b.data, b.len / 2, cut[i].name).state, HF_BOX_SHORT);
        hf_buf_release(&b);
    }
}

/* ---- what is made here ---- */

static const struct {
    enum make make;
    const char *name;
    enum hf_box box;
    bool longer_is_short;
} made[] = {
    {MAKE_ZIP, "a.pt", HF_BOX_ZIP, true},
    {MAKE_ZIP64, "a.pth", HF_BOX_ZIP, true},
    {MAKE_TENSORS, "a.safetensors", HF_BOX_SAFETENSORS, true},
    {MAKE_HDF5, "a.h5", HF_BOX_HDF5, true},
    {MAKE_MANIFEST, "manifest.ocdbt", HF_BOX_MANIFEST, true},
    {MAKE_TABLE, "ckpt-1.index", HF_BOX_TABLE, false},
};

static void test_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(made); i++) {
        struct hf_buf b;
        struct hf_err err;
        hf_buf_init(&b, 1 << 16);
        make_bytes(made[i].make, NULL, &b);
        struct hf_box_look l = judge(b.data, b.len, made[i].name);
        expect_box(made[i].name, &l, made[i].box, HF_BOX_WHOLE);
        for (size_t len = 0; len < b.len; len++) {
            char *cut = hf_calloc(len + 1, 1);
            memcpy(cut, b.data, len);
            l = judge(cut, len, made[i].name);
            hf_free(cut);
            /* An index says nothing when its end is not there: the layout then does. */
            bool told =
                made[i].make == MAKE_TABLE ? l.state != HF_BOX_WHOLE : l.state == HF_BOX_SHORT;
            if (!told) {
                fail_msg("'%s' cut to %zu of %zu bytes: %d", made[i].name, len, b.len,
                         (int)l.state);
            }
        }
        expect_rc(hf_buf_add(&b, "x", 1, &err), HF_OK, &err);
        l = judge(b.data, b.len, made[i].name);
        assert_true(!made[i].longer_is_short || l.state == HF_BOX_SHORT);
        hf_buf_release(&b);
    }
}

static void test_zip_comment(void **state)
{
    (void)state;
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1 << 18);
    make_bytes(MAKE_ZIP, NULL, &b);
    b.data[b.len - 2] = '\xff';
    b.data[b.len - 1] = '\xff';
    for (size_t i = 0; i < 65535; i++) {
        expect_rc(hf_buf_add(&b, "c", 1, &err), HF_OK, &err);
    }
    assert_int_equal(judge(b.data, b.len, "a.pt").state, HF_BOX_WHOLE);
    assert_int_equal(judge(b.data, b.len - 1, "a.pt").state, HF_BOX_SHORT);
    hf_buf_release(&b);
}

/* ---- JSON ---- */

static const struct {
    const char *text;
    bool whole;
} jsons[] = {
    {"{}", true},
    {" [1, 2]\n", true},
    {"{\"loss\": NaN, \"norm\": -Infinity}", true}, /* Python writes so */
    {"{\"a\": 1}\n{\"a\": 2}\n", true},             /* a line each */
    {"{\"a\": \"}\"}", true},
    {"{\"a\": \"\\\"}\"}", true},
    {"{\"a\": \"\\\\\"}", true},
    {"7", true},
    {"", false},
    {" \n", false},
    {"{", false},
    {"{\"a\": [1, 2]", false},
    {"{\"a\": \"}", false},
    {"{\"a\": \"\\\"}", false},
    {"{\"a\": 1}}", false},
    {"{\"a\": 1}\n{\"a\":", false},
    {"{\"a\": \"\x01\"}", false},
};

static void test_json(void **state)
{
    (void)state;
    static const char *const names[] = {"trainer_state.json", "_METADATA", "_CHECKPOINT_METADATA",
                                        "_sharding"};
    for (size_t i = 0; i < HF_COUNT(jsons); i++) {
        for (size_t k = 0; k < HF_COUNT(names); k++) {
            struct hf_box_look l = judge(jsons[i].text, strlen(jsons[i].text), names[k]);
            if ((l.state == HF_BOX_WHOLE) != jsons[i].whole || l.state == HF_BOX_UNKNOWN) {
                fail_msg("'%s' as '%s': state %d", jsons[i].text, names[k], (int)l.state);
            }
        }
    }
    assert_int_equal(judge("{\"a\": 1}\0\0\0\0", 12, "a.json").state, HF_BOX_SHORT);
    assert_int_equal(judge("{\0\0\0\0\0}", 7, "a.json").state, HF_BOX_SHORT);
}

static void test_json_longer_than_a_read(void **state)
{
    (void)state;
    size_t len = 3 * 4096 + 7;
    char *text = hf_calloc(len, 1);
    memset(text, ' ', len);
    text[0] = '[';
    text[4095] = '"';
    text[4096] = '\\'; /* what it escapes is in the same read, the quotes are not */
    text[4097] = '"';
    text[8192] = '"';
    text[len - 1] = ']';
    assert_int_equal(judge(text, len, "a.json").state, HF_BOX_WHOLE);
    assert_int_equal(judge(text, len - 1, "a.json").state, HF_BOX_SHORT);
    text[8192] = ' ';
    assert_int_equal(judge(text, len, "a.json").state, HF_BOX_SHORT);
    hf_free(text);
}

/* ---- safetensors whose header lies ---- */

static const struct {
    const char *header;
    const char *data;
    enum hf_box_state state;
} headers[] = {
    {"{}", "", HF_BOX_WHOLE},
    {"{}", "x", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,2]}}  ", "xx", HF_BOX_WHOLE},
    {"{\n\"a\" :\n{\"data_offsets\" :\n[ 0 ,\n2 ] }}", "xx", HF_BOX_WHOLE},
    {"{\"data_offsets\":{\"data_offsets\":[0,2]}}", "xx", HF_BOX_WHOLE},
    {"{\"a\\\"data_offsets\":{\"data_offsets\":[0,2]}}", "xx", HF_BOX_WHOLE},
    {"{\"a\":{\"data_offsets\":[2,0]}}", "xx", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,99999999999999999999999]}}", "xx", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,18446744073709551615]}}", "xx", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,-1]}}", "", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0", "xx", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,2]}", "xx", HF_BOX_SHORT},
    {"{\"a\":{\"data_offsets\":[0,2]}}}", "xx", HF_BOX_SHORT},
    {"{\"a", "", HF_BOX_SHORT},
    {"{\"a\\", "", HF_BOX_SHORT},
    {"[]", "", HF_BOX_SHORT},
};

static void test_tensor_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(headers); i++) {
        char file[256] = {0};
        size_t n = strlen(headers[i].header);
        size_t len = 8 + n + strlen(headers[i].data);
        file[0] = (char)n;
        memcpy(file + 8, headers[i].header, n);
        memcpy(file + 8 + n, headers[i].data, strlen(headers[i].data));
        struct hf_box_look l = judge(file, len, "a.safetensors");
        expect_box(headers[i].header, &l, HF_BOX_SAFETENSORS, headers[i].state);
    }
    /* A header longer than the file, or than the library reads, is not asked for. */
    assert_int_equal(judge("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "a.safetensors").state,
                     HF_BOX_SHORT);
    assert_int_equal(judge("\0\0\0\7\0\0\0\0{}", 10, "a.safetensors").state, HF_BOX_SHORT);
}

/* ---- names ---- */

static void test_empty_and_zeros(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum hf_box_state empty, zeros;
    } names[] = {
        {"a.pt", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.pth.tar", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.ckpt", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.npz", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.keras", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.h5", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.safetensors", HF_BOX_SHORT, HF_BOX_SHORT},
        {"a.json", HF_BOX_SHORT, HF_BOX_SHORT},
        {".metadata", HF_BOX_SHORT, HF_BOX_SHORT},
        {"manifest.ocdbt", HF_BOX_SHORT, HF_BOX_SHORT},
        {"__1_0.distcp", HF_BOX_UNKNOWN, HF_BOX_SHORT}, /* a rank that had nothing to save */
        {"a.bin", HF_BOX_SHORT, HF_BOX_UNKNOWN},        /* plain numbers may begin so */
        {"a.index", HF_BOX_SHORT, HF_BOX_UNKNOWN},
        {"merges.txt", HF_BOX_UNKNOWN, HF_BOX_UNKNOWN},
        {".checkpoint_done", HF_BOX_UNKNOWN, HF_BOX_UNKNOWN},
        {"no ending", HF_BOX_UNKNOWN, HF_BOX_UNKNOWN},
    };
    static const char zeros[4096] = {0};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        enum hf_box_state empty = judge("", 0, names[i].name).state;
        enum hf_box_state zero = judge(zeros, sizeof(zeros), names[i].name).state;
        if (empty != names[i].empty || zero != names[i].zeros) {
            fail_msg("'%s': empty %d, zeros %d", names[i].name, (int)empty, (int)zero);
        }
    }
    assert_int_equal(judge("not one", 7, "a.keras").state, HF_BOX_SHORT);
    assert_int_equal(judge("not one", 7, "a.h5").state, HF_BOX_SHORT);
    assert_int_equal(judge("\x0a\x05plain", 7, "mindspore.ckpt").state, HF_BOX_UNKNOWN);
    assert_int_equal(judge("\x28\xb5\x2f\xfd zstd", 9, "__0_0.distcp").state, HF_BOX_UNKNOWN);
}

/* ---- files ---- */

static void test_what_is_no_file(void **state)
{
    (void)state;
    struct hf_box_look l;
    char *folder = temp_folder();
    char *path = hf_asprintf("%s/real.pt", folder);
    char *link_path = hf_asprintf("%s/link.pt", folder);
    char *fifo = hf_asprintf("%s/fifo.pt", folder);
    char *inner = hf_asprintf("%s/folder.pt", folder);
    struct hf_err err;
    const struct made one = {"real.pt", MAKE_ZIP64, NULL};
    make_file(folder, &one);
    assert_int_equal(symlink("real.pt", link_path), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkdir(inner, 0700), 0);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    hf_box_judge(dir, "real.pt", &l);
    expect_box("real.pt", &l, HF_BOX_ZIP, HF_BOX_WHOLE);
    static const char *const others[] = {"link.pt", "fifo.pt", "folder.pt", "gone.pt"};
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        hf_box_judge(dir, others[i], &l);
        expect_box(others[i], &l, HF_BOX_OTHER, HF_BOX_SHORT);
    }
    close(dir);
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    free(inner);
    free(fifo);
    free(link_path);
    free(path);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_libraries_wrote),
        cmocka_unit_test(test_cut_pickles_and_shards),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_zip_comment),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_longer_than_a_read),
        cmocka_unit_test(test_tensor_headers),
        cmocka_unit_test(test_empty_and_zeros),
        cmocka_unit_test(test_what_is_no_file),
    };
    return cmocka_run_group_tests_name("container", tests, NULL, NULL);
}
