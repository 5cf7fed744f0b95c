/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4, by OpenSSL), hexadecimal text and random bytes. Any thread; a struct
 * hf_sha256 belongs to one thread.
 */
#ifndef HF_BASE_HASH_H
#define HF_BASE_HASH_H

#include "base/err.h"

#define HF_SHA256_HEX 65 /* 64 digits and NUL */

struct hf_sha256 {
    void *ctx;
};

void hf_sha256_init(struct hf_sha256 *h);
void hf_sha256_add(struct hf_sha256 *h, const void *data, size_t len);
void hf_sha256_end(struct hf_sha256 *h, char ret_hex[HF_SHA256_HEX]); /* releases h as well */
void hf_sha256_hex(struct hf_span data, char ret_hex[HF_SHA256_HEX]);

/* Of that many zero bytes; whether all bytes are zero. */
void hf_sha256_zeros(uint64_t len, char ret_hex[HF_SHA256_HEX]);
bool hf_all_zero(struct hf_span data);

/* Random bytes from the kernel as 2*n hex digits and NUL (n <= 64). Aborts if the kernel has
 * none. */
void hf_random_hex(size_t n, char *ret_hex);
uint64_t hf_random_u64(void);
void hf_random(void *out, size_t len);
/* 2*len lower-case digits and NUL. */
void hf_to_hex(const void *data, size_t len, char *out);

#endif
