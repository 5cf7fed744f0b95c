/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions as text: a manifest, an owner's abort, a seal. Parsing reads the shape; what the values
 * may be is hf_manifest_check's. Files and blocks, of which there can be very many, are printed and
 * parsed one by one: a whole tree of them would take several times their text. Pure functions, any
 * thread.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "base/json_cut.h"
#include "checkpoint/record.h"

static const char *const file_kinds[] = {
    [HF_FILE_REGULAR] = "file", [HF_FILE_DIR] = "dir", [HF_FILE_SYMLINK] = "link"};

static cJSON *print_file(const struct hf_file *f)
{
    cJSON *json = hf_json_obj();
    hf_json_add_int(json, "root", f->root);
    hf_record_add_bytes(json, "path", f->path);
    hf_json_add_str(json, "kind", file_kinds[f->kind]);
    hf_json_add_int(json, "mode", f->mode);
    if (f->kind == HF_FILE_SYMLINK) {
        hf_record_add_bytes(json, "target", f->target);
    }
    if (f->kind != HF_FILE_REGULAR) {
        return json;
    }
    hf_json_add_int(json, "size", (int64_t)f->size);
    hf_json_add_str(json, "hash", f->hash);
    cJSON *extents = hf_json_arr();
    for (uint32_t i = 0; i < f->n_extents; i++) {
        const struct hf_extent *e = &f->extents[i];
        cJSON *one = hf_json_obj();
        hf_json_add_int(one, "off", (int64_t)e->off);
        hf_json_add_int(one, "len", (int64_t)e->len);
        hf_json_add_int(one, "block", e->block);
        if (e->block_off != 0) {
            hf_json_add_int(one, "block_off", (int64_t)e->block_off);
        }
        hf_json_push(extents, one);
    }
    hf_json_add(json, "extents", extents);
    return json;
}

static void print_head(cJSON *json, const struct hf_manifest *m)
{
    hf_json_add_int(json, "attempt", m->attempt);
    hf_json_add_int(json, "number", m->number);
    hf_json_add_str(json, "nonce", m->nonce);
    hf_json_add_int(json, "life", m->life);
    hf_json_add_int(json, "request", (int64_t)m->request);
    if (m->step < 0) {
        hf_json_add_null(json, "step");
    } else {
        hf_json_add_int(json, "step", m->step);
    }
    hf_json_add_str(json, "reason", m->reason);
    hf_json_add_str(json, "strategy", m->strategy);
    hf_json_add_int(json, "world", m->world);
    cJSON *ranks = hf_json_arr();
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        hf_json_push(ranks, cJSON_CreateNumber(m->ranks[i]));
    }
    hf_json_add(json, "ranks", ranks);
    hf_json_add_int(json, "at_ms", m->at_wall_ms);
    hf_record_add_bytes(json, "resume_path", m->resume_path);
    if (m->parent_attempt == 0) {
        hf_json_add_null(json, "parent");
        return;
    }
    cJSON *parent = hf_json_obj();
    hf_json_add_int(parent, "attempt", m->parent_attempt);
    hf_json_add_int(parent, "number", m->parent_number);
    hf_json_add(json, "parent", parent);
}

static cJSON *print_block(const struct hf_block *b)
{
    cJSON *json = hf_json_obj();
    hf_json_add_str(json, "id", b->id);
    hf_json_add_int(json, "len", (int64_t)b->len);
    hf_json_add_str(json, "where", b->where);
    hf_json_add_str(json, "codec", b->codec);
    return json;
}

/* The text so far, whose bounds the caller has seen to: it is only memory that can run out, and
 * that is fatal anyway. */
static void add_text(struct hf_buf *b, const char *text)
{
    enum hf_rc rc = hf_buf_add(b, text, strlen(text), NULL);
    (void)rc;
}

static void add_element(struct hf_buf *b, uint32_t i, cJSON *json_taken)
{
    HF_CLEANUP(hf_freep) char *text = hf_record_print(json_taken);
    add_text(b, i == 0 ? "" : ",");
    add_text(b, text);
}

static char *print_manifest(const struct hf_manifest *m)
{
    cJSON *json = hf_record_new("manifest");
    print_head(json, m);
    cJSON *roots = hf_json_arr();
    for (uint32_t i = 0; i < m->n_roots; i++) {
        cJSON *one = hf_json_obj();
        hf_record_add_bytes(one, "path", m->roots[i].path);
        hf_json_add_str(one, "kind", file_kinds[m->roots[i].kind]);
        hf_json_push(roots, one);
    }
    hf_json_add(json, "roots", roots);
    if (m->left_out.len > 0) {
        cJSON *left_out = hf_json_arr();
        for (size_t i = 0; i < m->left_out.len; i++) {
            hf_json_push(left_out, hf_json_bytes(m->left_out.items[i]));
        }
        hf_json_add(json, "left_out", left_out);
    }
    HF_CLEANUP(hf_freep) char *head = hf_record_print(json);
    head[strlen(head) - 1] = '\0'; /* the closing brace: the long members follow */
    struct hf_buf b;
    hf_buf_init(&b, SIZE_MAX);
    add_text(&b, head);
    add_text(&b, ",\"files\":[");
    for (uint32_t i = 0; i < m->n_files; i++) {
        add_element(&b, i, print_file(&m->files[i]));
    }
    add_text(&b, "],\"blocks\":[");
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        add_element(&b, i, print_block(&m->blocks[i]));
    }
    HF_CLEANUP(hf_freep)
    char *end =
        hf_asprintf("],\"bytes\":%" PRIu64 ",\"bytes_sent\":%" PRIu64 "}", m->bytes, m->bytes_sent);
    add_text(&b, end);
    return hf_record_add_sum(b.data);
}

char *hf_decision_print(const struct hf_decision *d)
{
    if (d->kind == HF_DECISION_MANIFEST) {
        return print_manifest(&d->manifest);
    }
    cJSON *json = hf_record_new(d->kind == HF_DECISION_SEAL ? "seal" : "abort");
    hf_json_add_str(json, "nonce", d->nonce);
    if (d->kind == HF_DECISION_SEAL) {
        hf_json_add_int(json, "by_attempt", d->by_attempt);
    }
    return hf_record_add_sum(hf_record_print(json));
}

static enum hf_rc get_u64(const cJSON *json, const char *key, uint64_t *ret, struct hf_err *err)
{
    int64_t v = 0;
    HF_TRY(hf_json_get_int(json, key, 0, HF_JSON_INT_MAX, &v, err));
    *ret = (uint64_t)v;
    return HF_OK;
}

static enum hf_rc read_kind(const cJSON *json, enum hf_file_kind *ret, struct hf_err *err)
{
    const char *kind = NULL;
    HF_TRY(hf_json_get_str(json, "kind", &kind, err));
    for (size_t k = 0; k < HF_COUNT(file_kinds); k++) {
        if (strcmp(kind, file_kinds[k]) == 0) {
            *ret = (enum hf_file_kind)k;
            return HF_OK;
        }
    }
    return hf_fail(err, HF_ECORRUPT, "a file of kind '%s'", kind);
}

/* Items of an array member; every element must be an object. */
static enum hf_rc count_objects(const cJSON *json, const char *key, const cJSON **ret_arr,
                                uint32_t *ret_n, struct hf_err *err)
{
    HF_TRY(hf_json_get_arr(json, key, ret_arr, err));
    uint32_t n = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, *ret_arr)
    {
        if (!cJSON_IsObject(item)) {
            return hf_fail(err, HF_ECORRUPT, "'%s' holds something else than objects", key);
        }
        n++;
    }
    *ret_n = n;
    return HF_OK;
}

static enum hf_rc read_extents(const cJSON *json, struct hf_file *f, struct hf_err *err)
{
    const cJSON *arr = NULL;
    uint32_t n = 0;
    HF_TRY(count_objects(json, "extents", &arr, &n, err));
    f->extents = hf_calloc(n, sizeof(struct hf_extent));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, arr)
    {
        struct hf_extent *e = &f->extents[f->n_extents++];
        HF_TRY(get_u64(item, "off", &e->off, err));
        HF_TRY(get_u64(item, "len", &e->len, err));
        int64_t v = 0;
        HF_TRY(hf_json_get_int(item, "block", 0, UINT32_MAX, &v, err));
        e->block = (uint32_t)v;
        if (hf_json_opt(item, "block_off") != NULL) {
            HF_TRY(get_u64(item, "block_off", &e->block_off, err));
        }
    }
    return HF_OK;
}

static enum hf_rc read_file(const cJSON *json, struct hf_file *f, struct hf_err *err)
{
    HF_TRY(hf_record_bytes(json, "path", &f->path, err));
    HF_TRY(read_kind(json, &f->kind, err));
    int64_t v = 0;
    HF_TRY(hf_json_get_int(json, "root", 0, UINT32_MAX, &v, err));
    f->root = (uint32_t)v;
    HF_TRY(hf_json_get_int(json, "mode", 0, 07777, &v, err));
    f->mode = (uint32_t)v;
    if (f->kind == HF_FILE_SYMLINK) {
        return hf_record_bytes(json, "target", &f->target, err);
    }
    if (f->kind == HF_FILE_DIR) {
        return HF_OK;
    }
    HF_TRY(get_u64(json, "size", &f->size, err));
    HF_TRY(hf_record_hex(json, "hash", f->hash, sizeof(f->hash), err));
    return read_extents(json, f, err);
}

static enum hf_rc need_object(const cJSON *json, struct hf_err *err)
{
    return cJSON_IsObject(json) ? HF_OK : hf_fail(err, HF_ECORRUPT, "not an object");
}

static enum hf_rc next_file(void *user, const cJSON *json, struct hf_err *err)
{
    struct hf_manifest *m = user;
    enum hf_rc rc = need_object(json, err);
    if (rc == HF_OK) {
        rc = read_file(json, &m->files[m->n_files++], err);
    }
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "file %u", m->n_files);
}

static enum hf_rc read_files(struct hf_span files, struct hf_manifest *m, struct hf_err *err)
{
    m->files = hf_calloc(hf_json_count(files), sizeof(struct hf_file));
    return hf_json_each(files, next_file, m, NULL, err);
}

static enum hf_rc read_roots(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    const cJSON *arr = NULL;
    uint32_t n = 0;
    HF_TRY(count_objects(json, "roots", &arr, &n, err));
    m->roots = hf_calloc(n, sizeof(struct hf_root));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, arr)
    {
        struct hf_root *r = &m->roots[m->n_roots];
        HF_TRY(read_kind(item, &r->kind, err));
        HF_TRY(hf_record_bytes(item, "path", &r->path, err));
        m->n_roots++;
    }
    return HF_OK;
}

static enum hf_rc read_left_out(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    if (hf_json_opt(json, "left_out") == NULL) {
        return HF_OK;
    }
    const cJSON *arr = NULL;
    HF_TRY(hf_json_get_arr(json, "left_out", &arr, err));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, arr)
    {
        char *path = NULL;
        HF_TRY(hf_json_bytes_read(item, &path, err));
        hf_strv_take(&m->left_out, path);
    }
    return HF_OK;
}

static enum hf_rc read_short(const cJSON *json, const char *key, char *out, size_t room,
                             struct hf_err *err)
{
    const char *text = NULL;
    HF_TRY(hf_json_get_str(json, key, &text, err));
    size_t len = strlen(text);
    if (len >= room) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is too long", key);
    }
    memcpy(out, text, len + 1);
    return HF_OK;
}

static enum hf_rc next_block(void *user, const cJSON *json, struct hf_err *err)
{
    struct hf_manifest *m = user;
    HF_TRY(need_object(json, err));
    struct hf_block *b = &m->blocks[m->n_blocks++];
    HF_TRY(hf_record_hex(json, "id", b->id, sizeof(b->id), err));
    HF_TRY(get_u64(json, "len", &b->len, err));
    HF_TRY(read_short(json, "where", b->where, sizeof(b->where), err));
    return read_short(json, "codec", b->codec, sizeof(b->codec), err);
}

static enum hf_rc read_blocks(struct hf_span blocks, struct hf_manifest *m, struct hf_err *err)
{
    m->blocks = hf_calloc(hf_json_count(blocks), sizeof(struct hf_block));
    enum hf_rc rc = hf_json_each(blocks, next_block, m, NULL, err);
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "block %u", m->n_blocks);
}

static enum hf_rc read_ranks(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    int64_t v = 0;
    HF_TRY(hf_json_get_int(json, "world", 0, UINT32_MAX, &v, err));
    m->world = (uint32_t)v;
    const cJSON *arr = NULL;
    HF_TRY(hf_json_get_arr(json, "ranks", &arr, err));
    m->ranks = hf_calloc((size_t)cJSON_GetArraySize(arr), sizeof(uint32_t));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, arr)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < UINT32_MAX)) {
            return hf_fail(err, HF_ECORRUPT, "'ranks' holds something else than ranks");
        }
        m->ranks[m->n_ranks++] = (uint32_t)item->valuedouble;
    }
    return HF_OK;
}

static enum hf_rc read_step(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    const cJSON *step = hf_json_opt(json, "step");
    if (cJSON_IsNull(step)) {
        m->step = -1;
        return HF_OK;
    }
    return hf_json_get_int(json, "step", 0, HF_JSON_INT_MAX, &m->step, err);
}

static enum hf_rc read_parent(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    const cJSON *parent = hf_json_opt(json, "parent");
    if (cJSON_IsNull(parent)) {
        return HF_OK;
    }
    HF_TRY(hf_json_get_obj(json, "parent", &parent, err));
    HF_TRY(hf_record_number(parent, "attempt", 1, &m->parent_attempt, err));
    return hf_record_number(parent, "number", 1, &m->parent_number, err);
}

static enum hf_rc read_head(const cJSON *json, struct hf_manifest *m, struct hf_err *err)
{
    HF_TRY(hf_record_number(json, "attempt", 1, &m->attempt, err));
    HF_TRY(hf_record_number(json, "number", 1, &m->number, err));
    HF_TRY(hf_record_hex(json, "nonce", m->nonce, sizeof(m->nonce), err));
    int64_t v = 0;
    HF_TRY(hf_json_get_int(json, "life", 0, UINT32_MAX, &v, err));
    m->life = (uint32_t)v;
    HF_TRY(get_u64(json, "request", &m->request, err));
    HF_TRY(read_step(json, m, err));
    const char *text = NULL;
    HF_TRY(hf_json_get_str(json, "reason", &text, err));
    m->reason = hf_strdup(text);
    HF_TRY(hf_json_get_str(json, "strategy", &text, err));
    m->strategy = hf_strdup(text);
    HF_TRY(hf_json_get_int(json, "at_ms", -HF_JSON_INT_MAX, HF_JSON_INT_MAX, &m->at_wall_ms, err));
    HF_TRY(hf_record_bytes(json, "resume_path", &m->resume_path, err));
    HF_TRY(read_parent(json, m, err));
    HF_TRY(get_u64(json, "bytes", &m->bytes, err));
    return get_u64(json, "bytes_sent", &m->bytes_sent, err);
}

/* The members that are cut out of the text before the rest is parsed. */
enum { FILES, BLOCKS, LONG_MEMBERS };
static const char *const long_members[LONG_MEMBERS] = {[FILES] = "files", [BLOCKS] = "blocks"};

static enum hf_rc read_manifest(const cJSON *json, const struct hf_span *cut, struct hf_manifest *m,
                                struct hf_err *err)
{
    HF_TRY(read_head(json, m, err));
    HF_TRY(read_ranks(json, m, err));
    HF_TRY(read_roots(json, m, err));
    HF_TRY(read_left_out(json, m, err));
    for (size_t i = 0; i < LONG_MEMBERS; i++) {
        const cJSON *empty = NULL; /* what is left of it; that it is there, and an array */
        HF_TRY(hf_json_get_arr(json, long_members[i], &empty, err));
    }
    HF_TRY(read_blocks(cut[BLOCKS], m, err));
    HF_TRY(read_files(cut[FILES], m, err));
    return hf_manifest_check(m, err);
}

static enum hf_rc read_decision(const cJSON *json, const struct hf_span *cut, struct hf_decision *d,
                                struct hf_err *err)
{
    const char *type = hf_json_opt_str(json, "type", "");
    if (strcmp(type, "manifest") == 0) {
        d->kind = HF_DECISION_MANIFEST;
        HF_TRY(read_manifest(json, cut, &d->manifest, err));
        memcpy(d->nonce, d->manifest.nonce, sizeof(d->nonce));
        return HF_OK;
    }
    HF_TRY(hf_record_hex(json, "nonce", d->nonce, sizeof(d->nonce), err));
    if (strcmp(type, "abort") == 0) {
        d->kind = HF_DECISION_ABORT;
        return HF_OK;
    }
    if (strcmp(type, "seal") != 0) {
        return hf_fail(err, HF_ECORRUPT, "a record of type '%s'", type);
    }
    d->kind = HF_DECISION_SEAL;
    return hf_record_number(json, "by_attempt", 1, &d->by_attempt, err);
}

enum hf_rc hf_decision_parse(struct hf_span text, struct hf_decision *ret, struct hf_err *err)
{
    *ret = (struct hf_decision){.manifest.step = -1};
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    struct hf_span cut[LONG_MEMBERS];
    enum hf_rc rc = hf_record_check_text(text, err);
    if (rc == HF_OK) {
        rc = hf_json_cut(text, HF_DECISION_MAX, long_members, LONG_MEMBERS, cut, &json, err);
    }
    if (rc == HF_OK) {
        rc = hf_record_check_frame(json, NULL, err);
    }
    if (rc == HF_OK) {
        rc = read_decision(json, cut, ret, err);
    }
    if (rc != HF_OK) {
        hf_decision_release(ret);
        return hf_wrap(err, rc, "decision");
    }
    return HF_OK;
}
