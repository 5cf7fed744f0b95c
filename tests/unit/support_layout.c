/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as frameworks write them, in small. Numbers are little-endian, as the formats say.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/mem.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_layout.h"

static void add(struct hf_buf *b, const void *data, size_t len)
{
    struct hf_err err;
    expect_rc(hf_buf_add(b, data, len, &err), HF_OK, &err);
}

static void add_number(struct hf_buf *b, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)(v >> (8 * i));
        add(b, &c, 1);
    }
}

static void add_zeros(struct hf_buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add(b, "", 1);
    }
}

/* One stored entry, its directory, and the end; zip64: both end records. */
static void add_zip(struct hf_buf *b, bool zip64)
{
    static const char name[] = "archive/data.pkl";
    static const char data[] = "\x80\x02}q\0X\x01\0\0\0aq\1K\5s.";
    size_t start = b->len;
    add(b, "PK\3\4", 4);
    add_zeros(b, 14);
    add_number(b, sizeof(data), 4);
    add_number(b, sizeof(data), 4);
    add_number(b, strlen(name), 2);
    add_number(b, 0, 2);
    add(b, name, strlen(name));
    add(b, data, sizeof(data));
    size_t dir = b->len - start;
    add(b, "PK\1\2", 4);
    add_zeros(b, 16);
    add_number(b, sizeof(data), 4);
    add_number(b, sizeof(data), 4);
    add_number(b, strlen(name), 2);
    add_zeros(b, 16);
    add(b, name, strlen(name));
    size_t end = b->len - start;
    if (zip64) {
        add(b, "PK\6\6", 4);
        add_number(b, 44, 8);
        add_zeros(b, 12);
        add_number(b, 1, 8);
        add_number(b, 1, 8);
        add_number(b, end - dir, 8);
        add_number(b, dir, 8);
        add(b, "PK\6\7", 4);
        add_number(b, 0, 4);
        add_number(b, end, 8);
        add_number(b, 1, 4);
    }
    add(b, "PK\5\6", 4);
    add_zeros(b, 4);
    add_number(b, 1, 2);
    add_number(b, 1, 2);
    add_number(b, zip64 ? UINT32_MAX : end - dir, 4);
    add_number(b, zip64 ? UINT32_MAX : dir, 4);
    add_number(b, 0, 2);
}

static void add_tensors(struct hf_buf *b)
{
    static const char header[] = "{\"__metadata__\":{\"data_offsets\":\"x\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    add_number(b, strlen(header), 8);
    add(b, header, strlen(header));
    add(b, "0123456789a", 11);
}

static void add_hdf5(struct hf_buf *b)
{
    add(b, "\x89HDF\r\n\x1a\n", 8);
    add(b, "\0\0\0\0\0\x08\x08\0\4\0\x10\0\0\0\0\0", 16);
    add_number(b, 0, 8);
    add_number(b, UINT64_MAX, 8);
    add_number(b, 120, 8);
    add_number(b, UINT64_MAX, 8);
    add_zeros(b, 120 - 56);
}

static void add_table(struct hf_buf *b)
{
    add_zeros(b, 40); /* a block */
    add_zeros(b, 40);
    add_number(b, UINT64_C(0xdb4775248b80fb57), 8);
}

void make_bytes(enum make make, const char *text, struct hf_buf *b)
{
    switch (make) {
    case MAKE_ZIP:
    case MAKE_ZIP64:
        add_zip(b, make == MAKE_ZIP64);
        break;
    case MAKE_TENSORS:
        add_tensors(b);
        break;
    case MAKE_HDF5:
        add_hdf5(b);
        break;
    case MAKE_PICKLE:
        add(b, "\x80\x04", 2);
        add(b, text != NULL ? text : "}q K", text != NULL ? strlen(text) : 4);
        add(b, "s.", 2);
        break;
    case MAKE_TABLE:
        add_table(b);
        break;
    case MAKE_MANIFEST:
        add(b, "\x0c\xdb\x3a\x2a", 4);
        add_number(b, 40, 8);
        add_zeros(b, 28);
        break;
    case MAKE_ZIPS:
        /* Three, so that half of them is no boundary: a cut there cannot be seen. */
        for (size_t i = 0; i < 3; i++) {
            add_zip(b, true);
        }
        break;
    case MAKE_RAW:
        add(b, "\x07raw numbers", 12);
        break;
    case MAKE_TEXT:
        add(b, text, strlen(text));
        break;
    }
}

void make_file(const char *folder, const struct made *m)
{
    struct hf_buf b;
    hf_buf_init(&b, 1 << 16);
    make_bytes(m->make, m->text, &b);
    char *path = hf_asprintf("%s/%s", folder, m->name);
    put_file(path, b.len > 0 ? b.data : "", b.len);
    free(path);
    hf_buf_release(&b);
}

void make_files(const char *folder, const struct made *files)
{
    for (; files->name != NULL; files++) {
        make_file(folder, files);
    }
}

void read_sample(const char *name, struct hf_buf *b)
{
    struct hf_err err;
    char *path = hf_asprintf("tests/data/containers/%s", name);
    hf_buf_init(b, 1 << 20);
    expect_rc(hf_fs_read(path, b, &err), HF_OK, &err);
    free(path);
}

struct hf_layout_look look_at_path(const char *folder, const char *name, uint32_t world)
{
    struct hf_layout_look look;
    struct hf_err err;
    char *path = hf_asprintf("%s/%s", folder, name);
    enum hf_rc rc = hf_layout_judge(path, world, &look, &err);
    free(path);
    if (rc == HF_ENOTFOUND) {
        return (struct hf_layout_look){.layout = "gone", .state = HF_LAYOUT_FOREIGN, .step = -1};
    }
    expect_rc(rc, HF_OK, &err);
    return look;
}

struct hf_layout_looks scan_folder(const char *folder, uint32_t world)
{
    struct hf_layout_looks looks;
    struct hf_err err;
    expect_rc(hf_layout_scan(folder, world, &looks, &err), HF_OK, &err);
    return looks;
}

static bool ends_so(const char *path, const char *name)
{
    return strcmp(strrchr(path, '/') + 1, name) == 0;
}

const struct hf_layout_look *find_look(const struct hf_layout_looks *looks, const char *name)
{
    for (size_t i = 0; i < looks->len; i++) {
        if (ends_so(looks->items[i].path, name)) {
            return &looks->items[i];
        }
    }
    return NULL;
}

bool has_root(const struct hf_layout_look *l, const char *name)
{
    for (size_t i = 0; i < l->roots.len; i++) {
        if (ends_so(l->roots.items[i], name)) {
            return true;
        }
    }
    return false;
}

void remove_tree(char *folder)
{
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    free(folder);
}

void put_in(const char *folder, const char *name, enum make make, const char *text)
{
    const struct made one = {name, make, text};
    make_file(folder, &one);
}

void make_dir(const char *folder, const char *name)
{
    struct hf_err err;
    char *path = hf_asprintf("%s/%s", folder, name);
    expect_rc(hf_fs_mkdirs(path, 0755, &err), HF_OK, &err);
    free(path);
}

void link_in(const char *folder, const char *target, const char *name)
{
    char *path = hf_asprintf("%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
    free(path);
}

void expect_state(const struct hf_layout_looks *looks, const char *name, enum hf_layout_state state)
{
    const struct hf_layout_look *l = find_look(looks, name);
    if (l == NULL || l->state != state) {
        fail_msg("'%s' is %s, and not %s: %s", name,
                 l == NULL ? "not told" : hf_layout_state_name(l->state),
                 hf_layout_state_name(state), l == NULL ? "" : l->why);
    }
}

void put_mtime(const char *folder, const char *name, time_t at)
{
    char *path = hf_asprintf("%s/%s", folder, name);
    const struct timeval times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    assert_int_equal(utimes(path, times), 0);
    free(path);
}
