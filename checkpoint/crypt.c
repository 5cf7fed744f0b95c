/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys, ids, sealing and opening, by OpenSSL. Sealing happens in place, from the last segment to
 * the first, as each one grows by its tag; opening from the first to the last. Pure, any thread; a
 * failure of the library ends the process, a tag that does not fit is a value.
 */
#include "base/prelude.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/secret.h"
#include "checkpoint/crypt.h"

#define KEY_BYTES   32
#define NONCE_BYTES 12

struct hf_crypt {
    unsigned char id[KEY_BYTES], block[KEY_BYTES];
    unsigned char record_id[KEY_BYTES], record[KEY_BYTES];
    unsigned char run[KEY_BYTES];
    char key_id[HF_KEY_ID_STRLEN];
};

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "holdfast: %s failed in the crypto library\n", what);
        abort();
    }
}

static unsigned char half(char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static EVP_MAC_CTX *mac_begin(const unsigned char key[KEY_BYTES])
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac); /* the context has its own hold on it */
    check(ctx != NULL && EVP_MAC_init(ctx, key, KEY_BYTES, params) == 1, "HMAC");
    return ctx;
}

static void mac_add(EVP_MAC_CTX *ctx, const void *data, size_t len)
{
    check(EVP_MAC_update(ctx, data, len) == 1, "HMAC");
}

static void mac_end(EVP_MAC_CTX *ctx, unsigned char ret[KEY_BYTES])
{
    size_t len = 0;
    check(EVP_MAC_final(ctx, ret, &len, KEY_BYTES) == 1 && len == KEY_BYTES, "HMAC");
    EVP_MAC_CTX_free(ctx);
}

void hf_hmac(const unsigned char key[32], const struct hf_span *parts, size_t n,
             unsigned char ret[32])
{
    EVP_MAC_CTX *ctx = mac_begin(key);
    for (size_t i = 0; i < n; i++) {
        mac_add(ctx, parts[i].ptr, parts[i].len);
    }
    mac_end(ctx, ret);
}

void hf_hkdf(const unsigned char key[32], struct hf_span info, unsigned char ret[32])
{
    struct hf_span parts[] = {info, {.ptr = "\1", .len = 1}};
    hf_hmac(key, parts, HF_COUNT(parts), ret);
}

static void subkey(const unsigned char master[KEY_BYTES], const char *label,
                   unsigned char ret[KEY_BYTES])
{
    hf_hkdf(master, (struct hf_span){.ptr = label, .len = strlen(label)}, ret);
}

struct hf_crypt *hf_crypt_new(const unsigned char master[HF_MASTER_BYTES])
{
    struct hf_crypt *k = hf_secret_new(sizeof(*k));
    unsigned char name[KEY_BYTES];
    subkey(master, "holdfast/1/id", k->id);
    subkey(master, "holdfast/1/block", k->block);
    subkey(master, "holdfast/1/record-id", k->record_id);
    subkey(master, "holdfast/1/record", k->record);
    subkey(master, "holdfast/1/run", k->run);
    subkey(master, "holdfast/1/key-id", name);
    hf_to_hex(name, sizeof(k->key_id) / 2, k->key_id);
    return k;
}

void hf_crypt_free(struct hf_crypt *k)
{
    hf_secret_free(k, sizeof(*k));
}

const char *hf_crypt_key_id(const struct hf_crypt *k)
{
    return k->key_id;
}

void hf_crypt_mac(const struct hf_crypt *k, struct hf_span text, char ret_hex[HF_CRYPT_ID_HEX])
{
    unsigned char mac[KEY_BYTES];
    hf_hmac(k->run, &text, 1, mac);
    hf_to_hex(mac, sizeof(mac), ret_hex);
}

void hf_block_id(const struct hf_crypt *k, struct hf_span plain, char ret_hex[HF_CRYPT_ID_HEX])
{
    if (k == NULL) {
        hf_sha256_hex(plain, ret_hex);
        return;
    }
    unsigned char mac[KEY_BYTES];
    hf_hmac(k->id, &plain, 1, mac);
    hf_to_hex(mac, sizeof(mac), ret_hex);
}

void hf_block_id_zeros(const struct hf_crypt *k, uint64_t len, char ret_hex[HF_CRYPT_ID_HEX])
{
    if (k == NULL) {
        hf_sha256_zeros(len, ret_hex);
        return;
    }
    static const char zeros[65536];
    unsigned char mac[KEY_BYTES];
    EVP_MAC_CTX *ctx = mac_begin(k->id);
    for (uint64_t left = len; left > 0;) {
        size_t n = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
        mac_add(ctx, zeros, n);
        left -= n;
    }
    mac_end(ctx, mac);
    hf_to_hex(mac, sizeof(mac), ret_hex);
}

static uint64_t segments_of(uint64_t plain)
{
    return plain == 0 ? 1 : (plain - 1) / HF_SEGMENT_BYTES + 1;
}

static uint64_t sealed_len(uint64_t plain)
{
    return plain + segments_of(plain) * HF_TAG_BYTES;
}

uint64_t hf_stored_len(const struct hf_crypt *k, uint64_t plain)
{
    return k == NULL ? plain : sealed_len(plain);
}

/* A direction, the key and what is bound to every segment. */
struct sealer {
    EVP_CIPHER_CTX *ctx;
    struct hf_span bound;
};

static struct sealer sealer_begin(const unsigned char key[KEY_BYTES], struct hf_span bound,
                                  bool seal)
{
    struct sealer s = {.ctx = EVP_CIPHER_CTX_new(), .bound = bound};
    EVP_CIPHER *gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    check(s.ctx != NULL && gcm != NULL &&
              EVP_CipherInit_ex2(s.ctx, gcm, key, NULL, seal ? 1 : 0, NULL) == 1,
          "AES-256-GCM");
    EVP_CIPHER_free(gcm);
    return s;
}

/* One segment, in place, with its tag behind it. False: opening it, the tag does not fit. */
static bool do_segment(const struct sealer *s, bool seal, uint64_t index, bool last,
                       struct hf_mspan data)
{
    unsigned char nonce[NONCE_BYTES] = {0};
    for (unsigned i = 0; i < 4; i++) {
        nonce[7 + i] = (unsigned char)(index >> (24 - 8 * i));
    }
    nonce[11] = last ? 1 : 0;
    unsigned char *tag = (unsigned char *)data.ptr + data.len;
    int n = 0;
    bool ok = EVP_CipherInit_ex2(s->ctx, NULL, NULL, nonce, -1, NULL) == 1;
    if (ok && s->bound.len > 0) {
        ok = EVP_CipherUpdate(s->ctx, NULL, &n, s->bound.ptr, (int)s->bound.len) == 1;
    }
    if (ok && data.len > 0) {
        ok = EVP_CipherUpdate(s->ctx, data.ptr, &n, data.ptr, (int)data.len) == 1;
    }
    if (ok && !seal) {
        ok = EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, HF_TAG_BYTES, tag) == 1;
    }
    check(ok, "AES-256-GCM");
    unsigned char none[HF_TAG_BYTES];
    bool fits = EVP_CipherFinal_ex(s->ctx, none, &n) == 1;
    if (seal) {
        check(fits && EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, HF_TAG_BYTES, tag) == 1,
              "AES-256-GCM");
    }
    return fits;
}

static void seal_in_place(const unsigned char key[KEY_BYTES], struct hf_span bound,
                          unsigned char *base, size_t len)
{
    struct sealer s = sealer_begin(key, bound, true);
    uint64_t n = segments_of(len);
    for (uint64_t i = n; i-- > 0;) {
        size_t part = i + 1 < n ? HF_SEGMENT_BYTES : len - (size_t)i * HF_SEGMENT_BYTES;
        unsigned char *to = base + i * (HF_SEGMENT_BYTES + HF_TAG_BYTES);
        memmove(to, base + i * HF_SEGMENT_BYTES, part);
        (void)do_segment(&s, true, i, i + 1 == n, (struct hf_mspan){.ptr = to, .len = part});
    }
    EVP_CIPHER_CTX_free(s.ctx);
}

static bool open_in_place(const unsigned char key[KEY_BYTES], struct hf_span bound,
                          struct hf_mspan sealed, size_t *ret_len)
{
    const size_t whole = HF_SEGMENT_BYTES + HF_TAG_BYTES;
    uint64_t n = sealed.len == 0 ? 0 : (sealed.len - 1) / whole + 1;
    if (n == 0 || sealed.len - (n - 1) * whole < HF_TAG_BYTES) {
        return false;
    }
    struct sealer s = sealer_begin(key, bound, false);
    unsigned char *base = sealed.ptr;
    bool ok = true;
    for (uint64_t i = 0; i < n && ok; i++) {
        size_t part = (i + 1 < n ? whole : sealed.len - (size_t)i * whole) - HF_TAG_BYTES;
        unsigned char *from = base + i * whole;
        ok = do_segment(&s, false, i, i + 1 == n, (struct hf_mspan){.ptr = from, .len = part});
        memmove(base + i * HF_SEGMENT_BYTES, from, part);
    }
    EVP_CIPHER_CTX_free(s.ctx);
    *ret_len = sealed.len - (size_t)n * HF_TAG_BYTES;
    return ok;
}

/* HKDF-Expand under the key for blocks, with codec, NUL and the id's bytes as its info. */
static void block_key(const struct hf_crypt *k, const char *id, const char *codec,
                      unsigned char ret[KEY_BYTES])
{
    unsigned char info[64] = {0};
    size_t len = strlen(codec) + 1;
    check(len + KEY_BYTES <= sizeof(info) && strlen(id) == HF_CRYPT_ID_HEX - 1, "a block's key");
    memcpy(info, codec, len);
    for (size_t i = 0; i < KEY_BYTES; i++) {
        info[len + i] = (unsigned char)(half(id[2 * i]) << 4 | half(id[2 * i + 1]));
    }
    hf_hkdf(k->block, (struct hf_span){.ptr = info, .len = len + KEY_BYTES}, ret);
}

size_t hf_crypt_seal_block(const struct hf_crypt *k, const char *id, const char *codec,
                           struct hf_mspan room, size_t len)
{
    unsigned char key[KEY_BYTES];
    size_t sealed = (size_t)sealed_len(len);
    check(sealed <= room.len, "the room for a sealed block");
    block_key(k, id, codec, key);
    seal_in_place(key, (struct hf_span){.len = 0}, room.ptr, len);
    hf_wipe(key, sizeof(key));
    return sealed;
}

bool hf_crypt_open_block(const struct hf_crypt *k, const char *id, const char *codec,
                         struct hf_mspan sealed, size_t *ret_len)
{
    unsigned char key[KEY_BYTES];
    block_key(k, id, codec, key);
    bool ok = open_in_place(key, (struct hf_span){.len = 0}, sealed, ret_len);
    hf_wipe(key, sizeof(key));
    return ok;
}

/* What a record's key is derived from: its name and its content. */
static void siv_of(const struct hf_crypt *k, const char *name, struct hf_span plain,
                   unsigned char ret[HF_SIV_BYTES])
{
    size_t len = strlen(name);
    unsigned char head[4];
    for (unsigned i = 0; i < 4; i++) {
        head[i] = (unsigned char)(len >> (24 - 8 * i));
    }
    struct hf_span parts[] = {{.ptr = head, .len = sizeof(head)}, {.ptr = name, .len = len}, plain};
    hf_hmac(k->record_id, parts, HF_COUNT(parts), ret);
}

size_t hf_crypt_record_len(size_t plain)
{
    return HF_SIV_BYTES + (size_t)sealed_len(plain);
}

void hf_crypt_seal_record(const struct hf_crypt *k, const char *name, struct hf_span plain,
                          unsigned char *out)
{
    unsigned char key[KEY_BYTES];
    unsigned char siv[HF_SIV_BYTES];
    siv_of(k, name, plain, siv);
    hf_hkdf(k->record, (struct hf_span){.ptr = siv, .len = sizeof(siv)}, key);
    if (plain.len > 0) {
        memmove(out + HF_SIV_BYTES, plain.ptr, plain.len);
    }
    memcpy(out, siv, sizeof(siv));
    struct hf_span bound = {.ptr = name, .len = strlen(name)};
    seal_in_place(key, bound, out + HF_SIV_BYTES, plain.len);
    hf_wipe(key, sizeof(key));
}

bool hf_crypt_open_record(const struct hf_crypt *k, const char *name, struct hf_mspan sealed,
                          struct hf_span *ret)
{
    if (sealed.len < HF_SIV_BYTES + HF_TAG_BYTES) {
        return false;
    }
    unsigned char key[KEY_BYTES];
    unsigned char siv[HF_SIV_BYTES];
    unsigned char *base = sealed.ptr;
    size_t len = 0;
    hf_hkdf(k->record, (struct hf_span){.ptr = base, .len = HF_SIV_BYTES}, key);
    struct hf_span bound = {.ptr = name, .len = strlen(name)};
    struct hf_mspan body = {.ptr = base + HF_SIV_BYTES, .len = sealed.len - HF_SIV_BYTES};
    bool ok = open_in_place(key, bound, body, &len);
    hf_wipe(key, sizeof(key));
    if (!ok) {
        return false;
    }
    *ret = (struct hf_span){.ptr = body.ptr, .len = len};
    siv_of(k, name, *ret, siv);
    return hf_same_secret(siv, base, sizeof(siv));
}

void hf_crypt_wrap(const unsigned char key[32], const unsigned char plain[32],
                   unsigned char ret[48])
{
    memcpy(ret, plain, KEY_BYTES);
    seal_in_place(key, (struct hf_span){.len = 0}, ret, KEY_BYTES);
}

bool hf_crypt_unwrap(const unsigned char key[32], const unsigned char wrapped[48],
                     unsigned char ret[32])
{
    unsigned char both[KEY_BYTES + HF_TAG_BYTES];
    size_t len = 0;
    memcpy(both, wrapped, sizeof(both));
    struct hf_mspan sealed = {.ptr = both, .len = sizeof(both)};
    bool ok = open_in_place(key, (struct hf_span){.len = 0}, sealed, &len);
    memcpy(ret, both, KEY_BYTES);
    hf_wipe(both, sizeof(both));
    return ok && len == KEY_BYTES;
}
