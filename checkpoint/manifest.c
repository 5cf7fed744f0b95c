/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests as structures: their order, their hashes, and the check that nothing in one can lead
 * a reader out of its folders, buffers or tables. Used by the parser on what was read and by a
 * save on what is about to be committed. Pure functions, any thread.
 */
#include "base/prelude.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/record.h"

#define BYTES_MAX ((uint64_t)HF_JSON_INT_MAX)
#define WORLD_MAX 1000000u
#define DEPTH_MAX (PATH_MAX / 2)

void hf_manifest_release(struct hf_manifest *m)
{
    for (uint32_t i = 0; i < m->n_files; i++) {
        hf_free(m->files[i].path);
        hf_free(m->files[i].target);
        hf_free(m->files[i].extents);
    }
    for (uint32_t i = 0; i < m->n_roots; i++) {
        hf_free(m->roots[i].path);
    }
    hf_free(m->files);
    hf_free(m->roots);
    hf_free(m->blocks);
    hf_free(m->ranks);
    hf_free(m->reason);
    hf_free(m->strategy);
    hf_free(m->resume_path);
    hf_strv_clear(&m->left_out);
    *m = (struct hf_manifest){.step = -1};
}

void hf_decision_release(struct hf_decision *d)
{
    hf_manifest_release(&d->manifest);
    *d = (struct hf_decision){.kind = HF_DECISION_MANIFEST, .manifest.step = -1};
}

static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '/' ? 1 : (unsigned char)c + 1;
}

int hf_path_order(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return rank_of(*a) - rank_of(*b);
}

void hf_file_hash(const struct hf_file *f, const struct hf_block *blocks,
                  char ret_hex[HF_ID_STRLEN])
{
    struct hf_sha256 h;
    hf_sha256_init(&h);
    for (uint32_t i = 0; i < f->n_extents; i++) {
        hf_sha256_add(&h, blocks[f->extents[i].block].id, HF_ID_STRLEN - 1);
    }
    hf_sha256_end(&h, ret_hex);
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* "000003-000012-1a2b3c4d" and nothing that could be another path. */
static bool is_prefix(const char *where)
{
    size_t a = strspn(where, "0123456789");
    if (a < 6 || a > 9 || where[a] != '-') {
        return false;
    }
    const char *second = where + a + 1;
    size_t b = strspn(second, "0123456789");
    return b >= 6 && b <= 9 && second[b] == '-' && is_hex(second + b + 1, 8);
}

bool hf_block_is_zero(const struct hf_block *b)
{
    return strcmp(b->codec, "zero") == 0;
}

static enum hf_rc check_blocks(const struct hf_manifest *m, struct hf_err *err)
{
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        const struct hf_block *b = &m->blocks[i];
        if (!is_hex(b->id, HF_ID_STRLEN - 1) || !is_prefix(b->where)) {
            return hf_fail(err, HF_ECORRUPT, "block %u has no proper id or place", i);
        }
        if (strcmp(b->codec, "raw") != 0 && !hf_block_is_zero(b)) {
            return hf_fail(err, HF_ENOTSUP, "block %u is encoded as '%s'", i, b->codec);
        }
        if (b->len == 0 || b->len > HF_BLOCK_MAX) {
            return hf_fail(err, HF_ECORRUPT, "block %u of %llu bytes", i,
                           (unsigned long long)b->len);
        }
    }
    return HF_OK;
}

static int by_path(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return hf_path_order(*x, *y);
}

static bool is_within(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

enum hf_rc hf_roots_check(const struct hf_strv *roots, struct hf_err *err)
{
    if (roots->len == 0) {
        return hf_fail(err, HF_EINVAL, "no roots");
    }
    const char **sorted = hf_calloc(roots->len, sizeof(*sorted));
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < roots->len && rc == HF_OK; i++) {
        sorted[i] = roots->items[i];
        if (!hf_path_is_root(sorted[i]) || strlen(sorted[i]) >= PATH_MAX) {
            rc = hf_fail(err, HF_EINVAL, "'%s' is not an absolute, plain path", sorted[i]);
        }
    }
    if (rc == HF_OK) {
        qsort(sorted, roots->len, sizeof(*sorted), by_path);
    }
    for (size_t i = 1; i < roots->len && rc == HF_OK; i++) {
        if (is_within(sorted[i], sorted[i - 1])) {
            rc = hf_fail(err, HF_EINVAL, "'%s' lies within '%s'", sorted[i], sorted[i - 1]);
        }
    }
    hf_free(sorted);
    return rc;
}

static enum hf_rc check_roots(const struct hf_manifest *m, struct hf_err *err)
{
    struct hf_strv paths = {.len = 0};
    for (uint32_t i = 0; i < m->n_roots; i++) {
        hf_strv_add(&paths, m->roots[i].path);
    }
    struct hf_err odd;
    enum hf_rc rc = hf_roots_check(&paths, &odd);
    hf_strv_clear(&paths);
    return rc == HF_OK ? rc : hf_fail(err, HF_ECORRUPT, "roots: %s", odd.msg);
}

static enum hf_rc check_regular(const struct hf_manifest *m, const struct hf_file *f,
                                struct hf_err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < f->n_extents; i++) {
        const struct hf_extent *e = &f->extents[i];
        if (e->block >= m->n_blocks || e->off != at || e->len == 0) {
            return hf_fail(err, HF_ECORRUPT, "extent %u of '%s' is out of place", i, f->path);
        }
        /* Packing (a part of a block) will be a feature of its own. */
        if (e->block_off != 0 || e->len != m->blocks[e->block].len) {
            return hf_fail(err, HF_ECORRUPT, "extent %u of '%s' is not its whole block", i,
                           f->path);
        }
        at += e->len;
    }
    char hash[HF_ID_STRLEN];
    hf_file_hash(f, m->blocks, hash);
    if (at != f->size || strcmp(hash, f->hash) != 0) {
        return hf_fail(err, HF_ECORRUPT, "size or hash of '%s' is not that of its extents",
                       f->path);
    }
    return HF_OK;
}

static enum hf_rc check_file(const struct hf_manifest *m, const struct hf_file *f,
                             struct hf_err *err)
{
    bool top = f->path[0] == '\0';
    if ((!top && !hf_path_is_inside(f->path)) || strlen(f->path) >= PATH_MAX) {
        return hf_fail(err, HF_ECORRUPT, "'%s' cannot be a path in a checkpoint", f->path);
    }
    if (f->mode > 07777 || (f->target != NULL) != (f->kind == HF_FILE_SYMLINK)) {
        return hf_fail(err, HF_ECORRUPT, "'%s' has an odd mode or target", f->path);
    }
    if (f->kind == HF_FILE_REGULAR) {
        return check_regular(m, f, err);
    }
    if (f->size != 0 || f->n_extents != 0 || f->hash[0] != '\0') {
        return hf_fail(err, HF_ECORRUPT, "'%s' has content and is not a file", f->path);
    }
    if (f->kind == HF_FILE_SYMLINK && (f->target[0] == '\0' || strlen(f->target) >= PATH_MAX)) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is a link to nothing", f->path);
    }
    return HF_OK;
}

/* The folders above the file that is looked at; files come in hf_path_order. */
struct above {
    const struct hf_file *dirs[DEPTH_MAX];
    size_t depth;
};

/* Is `f` directly in a listed folder? Also keeps track. */
static bool hangs_well(struct above *a, const struct hf_file *f)
{
    const char *slash = strrchr(f->path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - f->path);
    while (a->depth > 0) {
        const char *dir = a->dirs[a->depth - 1]->path;
        if (strlen(dir) == len && strncmp(dir, f->path, len) == 0) {
            break;
        }
        a->depth--;
    }
    if (a->depth == 0 || a->depth == DEPTH_MAX) {
        return false;
    }
    if (f->kind == HF_FILE_DIR) {
        a->dirs[a->depth++] = f;
    }
    return true;
}

/* The files of one root, [first, end): itself, then what is in it. */
static enum hf_rc check_tree(const struct hf_manifest *m, uint32_t first, uint32_t end,
                             struct hf_err *err)
{
    const struct hf_root *root = &m->roots[m->files[first].root];
    const struct hf_file *top = &m->files[first];
    if (top->path[0] != '\0' || top->kind != root->kind ||
        (root->kind != HF_FILE_DIR && end != first + 1)) {
        return hf_fail(err, HF_ECORRUPT, "root '%s' does not begin with itself", root->path);
    }
    struct above above = {.dirs = {top}, .depth = 1};
    for (uint32_t i = first + 1; i < end; i++) {
        const struct hf_file *f = &m->files[i];
        if (hf_path_order(m->files[i - 1].path, f->path) >= 0) {
            return hf_fail(err, HF_ECORRUPT, "'%s' is out of order", f->path);
        }
        if (!hangs_well(&above, f)) {
            return hf_fail(err, HF_ECORRUPT, "the folder of '%s' is not listed", f->path);
        }
    }
    return HF_OK;
}

static enum hf_rc check_files(const struct hf_manifest *m, struct hf_err *err)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->n_files; i++) {
        HF_TRY(check_file(m, &m->files[i], err));
        bytes += m->files[i].size;
        if (bytes > BYTES_MAX) {
            return hf_fail(err, HF_ECORRUPT, "more bytes than there can be");
        }
    }
    if (bytes != m->bytes || m->bytes_sent > BYTES_MAX) {
        return hf_fail(err, HF_ECORRUPT, "'bytes' is not the sum of the files");
    }
    uint32_t at = 0;
    for (uint32_t root = 0; root < m->n_roots; root++) {
        uint32_t end = at;
        while (end < m->n_files && m->files[end].root == root) {
            end++;
        }
        if (end == at) {
            return hf_fail(err, HF_ECORRUPT, "root '%s' has no files", m->roots[root].path);
        }
        HF_TRY(check_tree(m, at, end, err));
        at = end;
    }
    return at == m->n_files ? HF_OK
                            : hf_fail(err, HF_ECORRUPT, "'%s' is in no root, or out of order",
                                      m->files[at].path);
}

static enum hf_rc check_head(const struct hf_manifest *m, struct hf_err *err)
{
    if (m->attempt == 0 || m->attempt > HF_NUMBER_MAX || m->number == 0 ||
        m->number > HF_NUMBER_MAX || !is_hex(m->nonce, HF_NONCE_STRLEN - 1)) {
        return hf_fail(err, HF_ECORRUPT, "attempt, number or nonce is out of range");
    }
    bool none = m->parent_attempt == 0 && m->parent_number == 0;
    bool older = m->parent_attempt > 0 && m->parent_number > 0 &&
                 (m->parent_attempt < m->attempt ||
                  (m->parent_attempt == m->attempt && m->parent_number < m->number));
    if (!none && !older) {
        return hf_fail(err, HF_ECORRUPT, "the parent is not older");
    }
    if (m->world > WORLD_MAX || m->n_ranks != m->world) {
        return hf_fail(err, HF_ECORRUPT, "%u of %u ranks", m->n_ranks, m->world);
    }
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (m->ranks[i] != i) {
            return hf_fail(err, HF_ECORRUPT, "rank %u is missing", i);
        }
    }
    if (m->reason == NULL || m->strategy == NULL || m->resume_path == NULL ||
        !hf_path_is_root(m->resume_path) || m->step < -1 || m->step > (int64_t)BYTES_MAX ||
        m->request > BYTES_MAX) {
        return hf_fail(err, HF_ECORRUPT, "reason, strategy, step, request or resume path is odd");
    }
    if (m->left_out.len > HF_LEFT_OUT_MAX) {
        return hf_fail(err, HF_ECORRUPT, "%zu paths are left out", m->left_out.len);
    }
    return HF_OK;
}

enum hf_rc hf_manifest_check(const struct hf_manifest *m, struct hf_err *err)
{
    HF_TRY(check_head(m, err));
    HF_TRY(check_blocks(m, err));
    HF_TRY(check_roots(m, err));
    return check_files(m, err);
}
