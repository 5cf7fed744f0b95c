/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 through OpenSSL's EVP interface, hexadecimal text, random bytes from the kernel.
 */
#include "base/prelude.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

void hf_to_hex(const void *data, size_t len, char *out)
{
    const unsigned char *from = data;
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
    out[2 * len] = '\0';
}

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "holdfast: %s failed in the crypto library\n", what);
        abort();
    }
}

void hf_sha256_init(struct hf_sha256 *h)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    check(ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1, "SHA-256");
    h->ctx = ctx;
}

void hf_sha256_add(struct hf_sha256 *h, const void *data, size_t len)
{
    check(EVP_DigestUpdate(h->ctx, data, len) == 1, "SHA-256");
}

void hf_sha256_end(struct hf_sha256 *h, char ret_hex[HF_SHA256_HEX])
{
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    check(EVP_DigestFinal_ex(h->ctx, md, &len) == 1 && len == 32, "SHA-256");
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
    hf_to_hex(md, len, ret_hex);
}

void hf_sha256_hex(struct hf_span data, char ret_hex[HF_SHA256_HEX])
{
    struct hf_sha256 h;
    hf_sha256_init(&h);
    hf_sha256_add(&h, data.ptr, data.len);
    hf_sha256_end(&h, ret_hex);
}

void hf_random(void *out, size_t len)
{
    unsigned char *p = out;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0) {
            check(false, "getrandom");
        }
        p += n;
        len -= (size_t)n;
    }
}

void hf_sha256_zeros(uint64_t len, char ret_hex[HF_SHA256_HEX])
{
    static const char zeros[65536];
    struct hf_sha256 h;
    hf_sha256_init(&h);
    for (uint64_t left = len; left > 0;) {
        size_t n = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
        hf_sha256_add(&h, zeros, n);
        left -= n;
    }
    hf_sha256_end(&h, ret_hex);
}

bool hf_all_zero(struct hf_span data)
{
    const char *p = data.ptr;
    return data.len == 0 || (p[0] == 0 && memcmp(p, p + 1, data.len - 1) == 0);
}

void hf_random_hex(size_t n, char *ret_hex)
{
    unsigned char raw[64];
    check(n <= sizeof(raw), "a random text of that length");
    hf_random(raw, n);
    hf_to_hex(raw, n, ret_hex);
}

uint64_t hf_random_u64(void)
{
    uint64_t v = 0;
    hf_random(&v, sizeof(v));
    return v;
}
