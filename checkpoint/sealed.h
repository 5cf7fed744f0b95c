/* SPDX-License-Identifier: Apache-2.0
 *
 * How what is encrypted lies in the store (docs/formats.md): a record as a JSON record of the type
 * "sealed", so that an older reader sees a feature that it does not know and not damage; a log
 * piece as a piece of format 2. Blocks have no frame. For checkpoint/ alone. Pure, any thread.
 */
#ifndef HF_CHECKPOINT_SEALED_H
#define HF_CHECKPOINT_SEALED_H

#include "base/buf.h"
#include "checkpoint/crypt.h"

#define HF_FEATURE_ENCRYPTED "encrypted"

/* The object for a record or log piece; `name` is its key below the run's folder and says which it
 * is. Owned by the caller (hf_free), *ret_len bytes. The second takes a text (from hf_calloc or
 * the like) and needs no room beside it. */
char *hf_sealed_make(const struct hf_crypt *k, const char *name, struct hf_span plain,
                     size_t *ret_len);
char *hf_sealed_take(const struct hf_crypt *k, const char *name, char *text_taken, size_t *ret_len);
/* As many bytes as an object can have of which the plain text has `plain`. */
size_t hf_sealed_max(size_t plain);
/* Opens it in place: *ret is the part of `object` with the plain text. HF_ECORRUPT: damaged, not
 * encrypted, or sealed under another name or key. HF_ENOTSUP: of a newer format. */
enum hf_rc hf_sealed_open(const struct hf_crypt *k, const char *name, struct hf_mspan object,
                          struct hf_span *ret, struct hf_err *err) HF_MUST_USE;

/* Whether a text looks like a sealed record: for a hint to who has no key. */
bool hf_sealed_is(struct hf_span text);

#endif
