/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs, trees and manifests for tests of checkpoint/.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "checkpoint/crypt.h"
#include "checkpoint/fileset.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

void bench_open(struct bench *b, const char *uri)
{
    struct hf_err err;
    b->folder = temp_folder();
    char *own = hf_asprintf("file://%s/store", b->folder);
    expect_rc(hf_store_open(uri != NULL ? uri : own, NULL, &b->store, &err), HF_OK, &err);
    free(own);
    b->run = (struct hf_run){.store = b->store, .name = "job"};
}

void bench_take(struct bench *b, struct hf_store *store_taken)
{
    b->folder = temp_folder();
    b->store = store_taken;
    b->run = (struct hf_run){.store = b->store, .name = "job"};
}

void bench_encrypt(struct bench *b)
{
    static const unsigned char master[HF_MASTER_BYTES] = "a key that every test may know.";
    b->run.crypt = hf_crypt_new(master);
}

void bench_close(struct bench *b)
{
    struct hf_err err;
    hf_store_close(b->store);
    hf_crypt_free(b->run.crypt);
    expect_rc(hf_fs_remove_tree(b->folder, &err), HF_OK, &err);
    free(b->folder);
}

char *bench_path(const struct bench *b, const char *name)
{
    return hf_asprintf("%s/%s", b->folder, name);
}

struct hf_claim make_claim(uint32_t attempt)
{
    struct hf_claim c = {.attempt = attempt, .kind = HF_CLAIM_RUN, .pid = 7, .pid_start = 8};
    hf_random_hex(16, c.nonce);
    hf_strv_add(&c.command, "train");
    hf_strv_add(&c.command, "--lr=\xff");
    c.folder = strdup("/home/someone");
    c.host = strdup("box");
    c.boot_id = strdup("b-1");
    c.provider = strdup("local");
    return c;
}

struct hf_claim must_claim(const struct bench *b, uint32_t attempt)
{
    struct hf_claim c = make_claim(attempt);
    struct hf_err err;
    expect_rc(hf_lineage_claim(&b->run, NULL, &c, &err), HF_OK, &err);
    return c;
}

static void add_file(struct hf_manifest *m, const char *path, enum hf_file_kind kind)
{
    m->files = realloc(m->files, (m->n_files + 1) * sizeof(struct hf_file));
    assert_non_null(m->files);
    struct hf_file *f = &m->files[m->n_files++];
    *f = (struct hf_file){.path = strdup(path), .kind = kind, .mode = 0644};
    if (kind == HF_FILE_SYMLINK) {
        f->target = strdup("../else\xff");
    }
}

/* The file gets one extent a block. */
static void add_blocks(struct hf_manifest *m, uint32_t n)
{
    struct hf_file *f = &m->files[m->n_files - 1];
    f->extents = calloc(n, sizeof(struct hf_extent));
    assert_non_null(f->extents);
    f->n_extents = n;
    for (uint32_t i = 0; i < n; i++) {
        f->extents[i] = (struct hf_extent){.off = f->size, .len = m->blocks[i].len, .block = i};
        f->size += m->blocks[i].len;
    }
    m->bytes += f->size;
}

void make_manifest(struct hf_manifest *m, uint32_t attempt, uint32_t number, const char *nonce)
{
    *m = (struct hf_manifest){.attempt = attempt,
                              .number = number,
                              .life = 1,
                              .request = 9,
                              .step = 1200,
                              .world = 2,
                              .n_ranks = 2,
                              .at_wall_ms = 1796078221250};
    memcpy(m->nonce, nonce, sizeof(m->nonce));
    m->reason = strdup("every");
    m->strategy = strdup("hook");
    m->resume_path = strdup("/home/someone/ckpt/step-1200");
    m->ranks = calloc(2, sizeof(uint32_t));
    m->roots = calloc(2, sizeof(struct hf_root));
    m->blocks = calloc(2, sizeof(struct hf_block));
    assert_true(m->ranks != NULL && m->roots != NULL && m->blocks != NULL);
    m->ranks[1] = 1;
    m->n_roots = 2;
    m->roots[0] =
        (struct hf_root){.path = strdup("/home/someone/ckpt/step-1200"), .kind = HF_FILE_DIR};
    m->roots[1] = (struct hf_root){.path = strdup("/home/someone/ckpt/latest")};
    m->n_blocks = 2;
    for (uint32_t i = 0; i < 2; i++) {
        struct hf_block *b = &m->blocks[i];
        b->len = i == 0 ? 4096 : 77;
        memset(b->id, i == 0 ? 'a' : 'b', HF_ID_STRLEN - 1);
        hf_prefix_of(b->where, attempt, number, nonce);
        snprintf(b->codec, sizeof(b->codec), "raw");
    }
    add_file(m, "", HF_FILE_DIR);
    add_file(m, "a", HF_FILE_DIR);
    add_file(m, "a/link", HF_FILE_SYMLINK);
    add_file(m, "a/w.bin", HF_FILE_REGULAR);
    add_blocks(m, 2);
    add_file(m, "a-b", HF_FILE_REGULAR);
    add_file(m, "caf\xe9", HF_FILE_REGULAR);
    add_blocks(m, 1);
    add_file(m, "", HF_FILE_REGULAR);
    m->files[m->n_files - 1].root = 1;
    for (uint32_t i = 0; i < m->n_files; i++) {
        if (m->files[i].kind == HF_FILE_REGULAR) {
            hf_file_hash(&m->files[i], m->blocks, m->files[i].hash);
        }
    }
    m->bytes_sent = 4173;
}

enum hf_rc try_commit(const struct bench *b, const struct hf_claim *claim, uint32_t number,
                      struct hf_err *err)
{
    struct hf_decision d = {.kind = HF_DECISION_MANIFEST};
    make_manifest(&d.manifest, claim->attempt, number, claim->nonce);
    enum hf_rc rc = hf_lineage_decide(&b->run, NULL, claim, number, &d, err);
    hf_decision_release(&d);
    return rc;
}

void must_commit(const struct bench *b, const struct hf_claim *claim, uint32_t number)
{
    struct hf_err err;
    expect_rc(try_commit(b, claim, number, &err), HF_OK, &err);
}

void put_file(const char *path, const void *data, size_t len)
{
    struct hf_err err;
    char *folder = hf_strndup(path, (size_t)(strrchr(path, '/') - path));
    expect_rc(hf_fs_mkdirs(folder, 0755, &err), HF_OK, &err);
    free(folder);
    struct hf_span span = {.ptr = data, .len = len};
    expect_rc(hf_fs_write(path, span, 0644, false, &err), HF_OK, &err);
}

void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}

void put_noise(const char *path, size_t len, unsigned seed)
{
    unsigned char *data = malloc(len + 1);
    assert_non_null(data);
    uint64_t x = seed * UINT64_C(2654435769) + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(x >> 56);
    }
    put_file(path, data, len);
    free(data);
}

static void describe(struct hf_buf *out, const struct hf_strv *roots, const struct hf_entry *e)
{
    static const char *const kinds[] = {"file", "dir", "link"};
    struct hf_err err;
    char hash[HF_SHA256_HEX] = "";
    if (e->kind == HF_FILE_REGULAR) {
        char *path = hf_entry_path(roots, e);
        struct hf_buf content;
        hf_buf_init(&content, 1u << 30);
        expect_rc(hf_fs_read(path, &content, &err), HF_OK, &err);
        hf_sha256_hex(hf_buf_span(&content), hash);
        hf_buf_release(&content);
        free(path);
    }
    expect_rc(hf_buf_addf(out, &err, "%s %s %o %s %s\n", e->path, kinds[e->kind], e->mode,
                          e->target != NULL ? e->target : "", hash),
              HF_OK, &err);
}

char *tree_text(const char *root)
{
    struct hf_strv roots = {.len = 0};
    hf_strv_add(&roots, root);
    struct hf_fileset set;
    struct hf_err err;
    expect_rc(hf_fileset_list(&roots, &set, &err), HF_OK, &err);
    struct hf_buf out;
    hf_buf_init(&out, 1u << 30);
    for (size_t i = 0; i < set.len; i++) {
        describe(&out, &roots, &set.items[i]);
    }
    hf_fileset_release(&set);
    hf_strv_clear(&roots);
    return out.data;
}

struct hf_save_in save_of(const struct bench *b, const struct hf_claim *claim, uint32_t number,
                          const char *root)
{
    struct hf_save_in in = {.run = &b->run,
                            .claim = claim,
                            .number = number,
                            .step = number * 100,
                            .reason = "every",
                            .strategy = "hook",
                            .resume_path = root,
                            .block_bytes = 4096,
                            .lanes = 3};
    hf_strv_add(&in.roots, root);
    return in;
}

void save_in_release(struct hf_save_in *in)
{
    hf_strv_clear(&in->roots);
}

void must_save(const struct hf_save_in *in, struct hf_manifest *ret)
{
    struct hf_err err;
    expect_rc(hf_save(in, NULL, ret, &err), HF_OK, &err);
}
