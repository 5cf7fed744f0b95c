/* SPDX-License-Identifier: Apache-2.0
 *
 * The encryption of a run: keys that all come from one random master key, names of blocks that
 * tell nothing to who lacks it, and sealing of blocks and records with AES-256-GCM in segments of
 * 1 MiB. Every key seals one content only (it is derived from a keyed hash of that content), so
 * that equal content gives equal bytes and no nonce is ever used twice (docs/formats.md has the
 * exact form; HKDF-Expand is RFC 5869, GCM is NIST SP 800-38D). Pure, no I/O. A struct hf_crypt is
 * immutable: any number of threads may use it at once.
 */
#ifndef HF_CHECKPOINT_CRYPT_H
#define HF_CHECKPOINT_CRYPT_H

#include "base/err.h"

#define HF_MASTER_BYTES  32
#define HF_SEGMENT_BYTES (1u << 20) /* plain bytes in a segment */
#define HF_TAG_BYTES     16         /* that each segment is longer when sealed */
#define HF_SIV_BYTES     32         /* that a sealed record begins with */
#define HF_CRYPT_ID_HEX  65         /* 64 digits and NUL, as the id of a block has them */
#define HF_KEY_ID_STRLEN 17         /* 16 digits and NUL */

struct hf_crypt;

/* In locked memory; the master key is not kept. Released with hf_crypt_free (NULL is fine). */
struct hf_crypt *hf_crypt_new(const unsigned char master[HF_MASTER_BYTES]);
void hf_crypt_free(struct hf_crypt *k);
/* Names the master key and tells nothing of it. */
const char *hf_crypt_key_id(const struct hf_crypt *k);

/* HMAC-SHA-256 of `parts`, one after the other, and HKDF-Expand to 32 bytes. */
void hf_hmac(const unsigned char key[32], const struct hf_span *parts, size_t n,
             unsigned char ret[32]);
void hf_hkdf(const unsigned char key[32], struct hf_span info, unsigned char ret[32]);
/* The proof of a run.json: HMAC of its text, in hex. */
void hf_crypt_mac(const struct hf_crypt *k, struct hf_span text, char ret_hex[HF_CRYPT_ID_HEX]);

/* What a block of these plain bytes is called: HMAC, or without encryption (k NULL) SHA-256. Of so
 * many zeros the same. */
void hf_block_id(const struct hf_crypt *k, struct hf_span plain, char ret_hex[HF_CRYPT_ID_HEX]);
void hf_block_id_zeros(const struct hf_crypt *k, uint64_t len, char ret_hex[HF_CRYPT_ID_HEX]);

/* Bytes that so many plain ones take when sealed; without encryption (k NULL) as many. */
uint64_t hf_stored_len(const struct hf_crypt *k, uint64_t plain);

/* Seals the block in place: room holds `len` plain bytes, and hf_stored_len of them fit into it.
 * The id is hf_block_id's, as hex. Returns the length. */
size_t hf_crypt_seal_block(const struct hf_crypt *k, const char *id, const char *codec,
                           struct hf_mspan room, size_t len);
/* The way back, in place. False: it is not what was sealed under that id; what is in `sealed` is
 * then worth nothing. */
bool hf_crypt_open_block(const struct hf_crypt *k, const char *id, const char *codec,
                         struct hf_mspan sealed, size_t *ret_len) HF_MUST_USE;

/* The length of a sealed record, and sealing it into `out`, which has as many bytes and may overlap
 * `plain`. It can be opened under this name alone: the key of the object below the run's folder. */
size_t hf_crypt_record_len(size_t plain);
void hf_crypt_seal_record(const struct hf_crypt *k, const char *name, struct hf_span plain,
                          unsigned char *out);
/* In place: *ret is the part of `sealed` that holds the plain bytes. */
bool hf_crypt_open_record(const struct hf_crypt *k, const char *name, struct hf_mspan sealed,
                          struct hf_span *ret) HF_MUST_USE;

/* AES-256-GCM of 32 bytes under a key that is used this once: 48 bytes, and the way back. */
void hf_crypt_wrap(const unsigned char key[32], const unsigned char plain[32],
                   unsigned char ret[48]);
bool hf_crypt_unwrap(const unsigned char key[32], const unsigned char wrapped[48],
                     unsigned char ret[32]) HF_MUST_USE;

#endif
