/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of encrypted records and log pieces. A record's text is written here by hand, as its body
 * can have many MiB: no tree of it is ever made. Pure, any thread.
 */
#include "base/prelude.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/record.h"
#include "checkpoint/sealed.h"

#define HEAD \
    "{\"format\":1,\"features\":[\"" HF_FEATURE_ENCRYPTED "\"],\"type\":\"sealed\",\"body\":\""
#define HEAD_BYTES (sizeof(HEAD) - 1)
/* A zstd skippable frame, RFC 8878 3.1.2, that holds {"format":2}. */
#define PIECE_HEAD       "\x50\x2a\x4d\x18\x0c\0\0\0{\"format\":2}"
#define PIECE_HEAD_BYTES (sizeof(PIECE_HEAD) - 1)
#define LOG_TAIL         ".log.zst"
#define SUM_TAIL_BYTES   74   /* ,"sum":"64 digits"} */
#define ENCODE_BYTES     3072 /* a multiple of 3 */
#define PLAIN_MAX        ((size_t)1 << 30)

static bool is_log(const char *name)
{
    size_t len = strlen(name);
    size_t tail = sizeof(LOG_TAIL) - 1;
    return len > tail && strcmp(name + len - tail, LOG_TAIL) == 0;
}

static size_t base64_len(size_t n)
{
    return (n + 2) / 3 * 4;
}

/* To a place before the body, or to one that overlaps it from below: what is written never reaches
 * what was not read yet. */
static void encode(char *to, const unsigned char *body, size_t len)
{
    unsigned char part[ENCODE_BYTES];
    for (size_t done = 0; done < len; done += sizeof(part)) {
        size_t n = len - done < sizeof(part) ? len - done : sizeof(part);
        unsigned char out[sizeof(part) / 3 * 4 + 1];
        memcpy(part, body + done, n);
        int m = EVP_EncodeBlock(out, part, (int)n);
        memcpy(to, out, (size_t)m);
        to += m;
    }
}

/* Both: the plain text lies at the beginning of a buffer with room for the whole object. */
static size_t fill_piece(const struct hf_crypt *k, const char *name, char *text, size_t len)
{
    unsigned char *body = (unsigned char *)text + PIECE_HEAD_BYTES;
    hf_crypt_seal_record(k, name, (struct hf_span){.ptr = text, .len = len}, body);
    memcpy(text, PIECE_HEAD, PIECE_HEAD_BYTES);
    return PIECE_HEAD_BYTES + hf_crypt_record_len(len);
}

static size_t fill_record(const struct hf_crypt *k, const char *name, char *text, size_t len)
{
    size_t sealed = hf_crypt_record_len(len);
    size_t at = HEAD_BYTES + base64_len(sealed);
    unsigned char *body = (unsigned char *)text + at - sealed; /* it ends where its base64 will */
    hf_crypt_seal_record(k, name, (struct hf_span){.ptr = text, .len = len}, body);
    memcpy(text, HEAD, HEAD_BYTES);
    encode(text + HEAD_BYTES, body, sealed);
    text[at++] = '"';
    char sum[HF_SHA256_HEX];
    hf_sha256_hex((struct hf_span){.ptr = text, .len = at}, sum);
    return at + (size_t)snprintf(text + at, SUM_TAIL_BYTES + 1, ",\"sum\":\"%s\"}", sum);
}

static size_t fill(const struct hf_crypt *k, const char *name, char *text, size_t len)
{
    return is_log(name) ? fill_piece(k, name, text, len) : fill_record(k, name, text, len);
}

char *hf_sealed_make(const struct hf_crypt *k, const char *name, struct hf_span plain,
                     size_t *ret_len)
{
    char *text = hf_calloc(1, hf_sealed_max(plain.len) + 1);
    if (plain.len > 0) {
        memcpy(text, plain.ptr, plain.len);
    }
    *ret_len = fill(k, name, text, plain.len);
    return text;
}

char *hf_sealed_take(const struct hf_crypt *k, const char *name, char *text_taken, size_t *ret_len)
{
    size_t len = strlen(text_taken);
    char *text = hf_realloc(text_taken, hf_sealed_max(len) + 1);
    *ret_len = fill(k, name, text, len);
    return text;
}

size_t hf_sealed_max(size_t plain)
{
    size_t bounded = plain < PLAIN_MAX ? plain : PLAIN_MAX;
    return HEAD_BYTES + base64_len(hf_crypt_record_len(bounded)) + SUM_TAIL_BYTES + 1;
}

bool hf_sealed_is(struct hf_span text)
{
    return text.len > HEAD_BYTES && memcmp(text.ptr, HEAD, HEAD_BYTES) == 0;
}

static enum hf_rc open_body(const struct hf_crypt *k, const char *name, struct hf_mspan body,
                            struct hf_span *ret, struct hf_err *err)
{
    if (!hf_crypt_open_record(k, name, body, ret)) {
        return hf_fail(err, HF_ECORRUPT,
                       "it does not open with the run's key: it is damaged, or "
                       "lies in another's place");
    }
    return HF_OK;
}

/* Not as this version writes it: newer, damaged, or never encrypted. */
static enum hf_rc refuse(struct hf_span text, struct hf_err *err)
{
    cJSON *json = NULL;
    enum hf_rc rc = hf_record_parse_with(text, PLAIN_MAX, NULL, HF_FEATURE_ENCRYPTED, &json, err);
    hf_json_free(json);
    return rc == HF_ENOTSUP ? rc : hf_fail(err, HF_ECORRUPT, "it is not encrypted, and the run is");
}

static enum hf_rc open_piece(const struct hf_crypt *k, const char *name, struct hf_mspan object,
                             struct hf_span *ret, struct hf_err *err)
{
    if (object.len < PIECE_HEAD_BYTES || memcmp(object.ptr, PIECE_HEAD, PIECE_HEAD_BYTES) != 0) {
        return hf_fail(err, HF_ECORRUPT, "it does not begin as an encrypted log piece");
    }
    struct hf_mspan body = {.ptr = (char *)object.ptr + PIECE_HEAD_BYTES,
                            .len = object.len - PIECE_HEAD_BYTES};
    return open_body(k, name, body, ret, err);
}

static bool is_digit64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
}

/* One text for one body: no space in it, and no bits behind its end. */
static bool is_base64(const char *text, size_t len, size_t *ret_pad)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (len == 0 || len % 4 != 0) {
        return false;
    }
    size_t pad = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < len - pad; i++) {
        if (!is_digit64(text[i])) {
            return false;
        }
    }
    *ret_pad = pad;
    size_t beyond = (size_t)(strchr(set, text[len - pad - 1]) - set) & ((1u << (2 * pad)) - 1);
    return beyond == 0;
}

enum hf_rc hf_sealed_open(const struct hf_crypt *k, const char *name, struct hf_mspan object,
                          struct hf_span *ret, struct hf_err *err)
{
    if (is_log(name)) {
        return open_piece(k, name, object, ret, err);
    }
    struct hf_span text = {.ptr = object.ptr, .len = object.len};
    HF_TRY(hf_record_check_sum(text, err));
    if (!hf_sealed_is(text) || text.len < HEAD_BYTES + SUM_TAIL_BYTES) {
        return refuse(text, err);
    }
    /* The closing quote of the body stands before the sum. */
    size_t len = text.len - HEAD_BYTES - SUM_TAIL_BYTES - 1;
    char *from = (char *)object.ptr + HEAD_BYTES;
    size_t pad = 0;
    /* It grows shorter: what is written lies before what is read. */
    int n = from[len] == '"' && is_base64(from, len, &pad)
                ? EVP_DecodeBlock((unsigned char *)from, (unsigned char *)from, (int)len)
                : -1;
    if (n < 0 || (size_t)n < pad) {
        return hf_fail(err, HF_ECORRUPT, "its body is not in base64");
    }
    return open_body(k, name, (struct hf_mspan){.ptr = from, .len = (size_t)n - pad}, ret, err);
}
