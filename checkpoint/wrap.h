/* SPDX-License-Identifier: Apache-2.0
 *
 * How the master key of an encrypted run lies in its run.json: wrapped, once for every way to
 * unwrap it, beside a probe and the proof (`mac`) of all of run.json. A way is a record with a
 * `kind`: today a key file and a passphrase; a key service is to be one more kind. For
 * checkpoint/run.c and who takes a key from the user. No I/O; any thread, but scrypt takes tenths
 * of a second and 32 MiB.
 */
#ifndef HF_CHECKPOINT_WRAP_H
#define HF_CHECKPOINT_WRAP_H

#include "base/json.h"
#include "checkpoint/crypt.h"

#define HF_KEY_FILE_BYTES 32
#define HF_PASSPHRASE_MAX 1024

enum hf_unlock_kind { HF_UNLOCK_KEY_FILE, HF_UNLOCK_PASSPHRASE };

/* What a user gives. In locked memory. */
struct hf_unlock {
    enum hf_unlock_kind kind;
    size_t len;
    unsigned char bytes[HF_PASSPHRASE_MAX];
};
struct hf_unlock *hf_unlock_new(enum hf_unlock_kind kind, struct hf_span secret);
void hf_unlock_free(struct hf_unlock *u); /* NULL is fine */

/* The text of an encrypted run.json: `json_taken` is a record without features, to which a new
 * master key, wrapped for `u`, is added. Owned by the caller. */
char *hf_wrap_print(cJSON *json_taken, const struct hf_unlock *u);

/* Opens what hf_wrap_print has made, and proves all of it, and that it is this run's. HF_EDENIED:
 * no key (u NULL), of another kind, or a wrong one; the hint says which setting is missing.
 * HF_ECORRUPT: not as it was written. HF_ENOTSUP: of a newer format. */
enum hf_rc hf_wrap_open(struct hf_span text, const char *run, const struct hf_unlock *u,
                        struct hf_crypt **ret, struct hf_err *err) HF_MUST_USE;

#endif
