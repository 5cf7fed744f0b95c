/* SPDX-License-Identifier: Apache-2.0
 *
 * Log pieces: packed, put by number, found again. Any worker thread; memory is bounded by the size
 * of one piece. Must not rest on a listing, nor believe a length that a piece claims.
 */
#include "base/prelude.h"

#include <string.h>
#include <zstd.h>

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/logs.h"
#include "checkpoint/objects.h"

#define LEVEL          3
#define PIECE_LINE_MAX 1024
#define FRAME_HEAD     8
/* One of the sixteen magic numbers of skippable frames, RFC 8878 3.1.2. */
#define SKIP_MAGIC UINT32_C(0x184D2A50)

static void put_le32(char out[4], uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (char)(unsigned char)(v >> (8 * i));
    }
}

static uint32_t get_le32(const char *in)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--) {
        v = v << 8 | (unsigned char)in[i];
    }
    return v;
}

static char *line_print(const struct hf_log_piece *p)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "format", 1);
    hf_json_add_int(obj, "offset", (int64_t)p->offset);
    hf_json_add_int(obj, "missing", (int64_t)p->missing);
    hf_json_add_int(obj, "at_wall_ms", p->at_wall_ms);
    hf_json_add_str(obj, "nonce", p->nonce);
    return hf_json_print(obj);
}

static enum hf_rc line_parse(struct hf_span text, struct hf_log_piece *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    int64_t format = 0;
    int64_t offset = 0;
    int64_t missing = 0;
    const char *nonce = NULL;
    struct hf_log_piece p = *ret;
    HF_TRY(hf_json_parse(text, PIECE_LINE_MAX, &obj, err));
    HF_TRY(hf_json_get_int(obj, "format", 1, INT32_MAX, &format, err));
    if (format != 1) {
        return hf_fail(err, HF_ENOTSUP, "a log piece of format %d, and only 1 is known",
                       (int)format);
    }
    HF_TRY(hf_json_get_int(obj, "offset", 0, INT64_MAX, &offset, err));
    HF_TRY(hf_json_get_int(obj, "missing", 0, INT64_MAX, &missing, err));
    HF_TRY(hf_json_get_int(obj, "at_wall_ms", 0, INT64_MAX, &p.at_wall_ms, err));
    HF_TRY(hf_json_get_str(obj, "nonce", &nonce, err));
    if (strlen(nonce) != HF_NONCE_STRLEN - 1) {
        return hf_fail(err, HF_ECORRUPT, "a log piece with a nonce of %zu digits", strlen(nonce));
    }
    memcpy(p.nonce, nonce, HF_NONCE_STRLEN);
    p.offset = (uint64_t)offset;
    p.missing = (uint64_t)missing;
    *ret = p;
    return HF_OK;
}

/* As ZSTD_compress, and with a checksum of the content. */
static size_t compress(void *out, size_t room, struct hf_span raw)
{
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    if (ctx == NULL) {
        hf_out_of_memory();
    }
    size_t n = ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, LEVEL);
    if (!ZSTD_isError(n)) {
        n = ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1);
    }
    if (!ZSTD_isError(n)) {
        n = ZSTD_compress2(ctx, out, room, raw.ptr, raw.len);
    }
    ZSTD_freeCCtx(ctx);
    return n;
}

enum hf_rc hf_log_pack(const struct hf_log_piece *piece, struct hf_span raw, struct hf_buf *ret,
                       struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *line = line_print(piece);
    char head[FRAME_HEAD];
    put_le32(head, SKIP_MAGIC);
    put_le32(head + 4, (uint32_t)strlen(line));
    HF_TRY(hf_buf_add(ret, head, sizeof(head), err));
    HF_TRY(hf_buf_add(ret, line, strlen(line), err));
    size_t room = ZSTD_compressBound(raw.len);
    HF_CLEANUP(hf_freep) char *packed = hf_calloc(1, room);
    size_t n = compress(packed, room, raw);
    if (ZSTD_isError(n)) {
        return hf_fail(err, HF_EINTERNAL, "compress a log piece: %s", ZSTD_getErrorName(n));
    }
    return hf_buf_add(ret, packed, n, err);
}

enum hf_rc hf_log_unpack(struct hf_span object, struct hf_log_piece *ret, struct hf_buf *ret_raw,
                         struct hf_err *err)
{
    const char *at = object.ptr;
    if (object.len < FRAME_HEAD || get_le32(at) != SKIP_MAGIC) {
        return hf_fail(err, HF_ECORRUPT, "it does not begin as a log piece");
    }
    uint32_t line = get_le32(at + 4);
    if (line > PIECE_LINE_MAX || line > object.len - FRAME_HEAD) {
        return hf_fail(err, HF_ECORRUPT, "a log piece's line of %u bytes", line);
    }
    struct hf_log_piece piece = *ret;
    enum hf_rc rc = line_parse((struct hf_span){at + FRAME_HEAD, line}, &piece, err);
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "a log piece's line");
    }
    at += FRAME_HEAD + line;
    size_t left = object.len - FRAME_HEAD - line;
    unsigned long long len = ZSTD_getFrameContentSize(at, left);
    if (len > HF_LOG_PIECE_MAX) { /* unknown and error are the two largest numbers */
        return hf_fail(err, HF_ECORRUPT, "a log piece that tells no length, or too long a one");
    }
    HF_CLEANUP(hf_freep) char *raw = hf_calloc(1, (size_t)len + 1);
    size_t n = ZSTD_decompress(raw, (size_t)len, at, left);
    if (ZSTD_isError(n) || n != len) {
        return hf_fail(err, HF_ECORRUPT, "a damaged log piece: %s",
                       ZSTD_isError(n) ? ZSTD_getErrorName(n) : "it is cut short");
    }
    HF_TRY(hf_buf_add(ret_raw, raw, n, err));
    piece.len = n;
    *ret = piece;
    return HF_OK;
}

enum hf_rc hf_log_put(const struct hf_run *run, const struct hf_call *c,
                      const struct hf_log_piece *piece, struct hf_span raw,
                      struct hf_log_piece *ret_other, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf object;
    struct hf_buf other;
    struct hf_buf other_raw;
    hf_buf_init(&object, HF_LOG_OBJECT_MAX);
    hf_buf_init(&other, HF_LOG_OBJECT_MAX);
    hf_buf_init(&other_raw, HF_LOG_PIECE_MAX);
    hf_key_log(key, run->name, piece->attempt, piece->number);
    enum hf_rc rc = hf_log_pack(piece, raw, &object, err);
    if (rc == HF_OK) {
        rc = hf_obj_create(run, c, key, hf_buf_span(&object), &other, err);
    }
    if (rc == HF_EEXISTS) {
        struct hf_log_piece there = {.attempt = piece->attempt, .number = piece->number};
        enum hf_rc look = hf_log_unpack(hf_buf_span(&other), &there, &other_raw, err);
        *ret_other = look == HF_OK ? there : *ret_other;
        rc = look == HF_OK ? HF_EEXISTS : hf_wrap(err, look, "'%s'", key);
    }
    hf_buf_release(&object);
    hf_buf_release(&other);
    hf_buf_release(&other_raw);
    return rc;
}

enum hf_rc hf_log_get(const struct hf_run *run, const struct hf_call *c, struct hf_log_piece *piece,
                      struct hf_buf *ret_raw, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf object;
    hf_buf_init(&object, HF_LOG_OBJECT_MAX);
    hf_key_log(key, run->name, piece->attempt, piece->number);
    enum hf_rc rc = hf_obj_get(run, c, key, &object, err);
    if (rc == HF_OK) {
        rc = hf_log_unpack(hf_buf_span(&object), piece, ret_raw, err);
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&object);
    return rc;
}

enum hf_rc hf_log_last(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                       uint32_t *ret_number, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    uint32_t there = 0; /* is there, 0 always is */
    uint32_t beyond = 1;
    bool found = true;
    /* Doubling until one is not there, then halving. */
    for (;;) {
        HF_TRY(hf_obj_exists(run, c, hf_key_log(key, run->name, attempt, beyond), &found, err));
        if (!found) {
            break;
        }
        there = beyond;
        if (beyond > HF_NUMBER_MAX / 2) {
            return hf_fail(err, HF_ECORRUPT, "attempt %u has more log pieces than can be", attempt);
        }
        beyond *= 2;
    }
    while (beyond - there > 1) {
        uint32_t middle = there + (beyond - there) / 2;
        HF_TRY(hf_obj_exists(run, c, hf_key_log(key, run->name, attempt, middle), &found, err));
        if (found) {
            there = middle;
        } else {
            beyond = middle;
        }
    }
    *ret_number = there;
    return HF_OK;
}

enum hf_rc hf_log_since(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                        int64_t wall_ms, uint32_t *ret_number, struct hf_err *err)
{
    uint32_t last = 0;
    HF_TRY(hf_log_last(run, c, attempt, &last, err));
    uint32_t low = 1;
    uint32_t high = last + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct hf_log_piece piece = {.attempt = attempt, .number = middle};
        struct hf_buf raw;
        hf_buf_init(&raw, HF_LOG_PIECE_MAX);
        enum hf_rc rc = hf_log_get(run, c, &piece, &raw, err);
        hf_buf_release(&raw);
        HF_TRY(rc);
        if (piece.at_wall_ms >= wall_ms) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *ret_number = low;
    return HF_OK;
}
