/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys in use: found when first needed, kept, and found again ahead of their end or when a
 * store refuses them. Worker threads; a ring may be used by several at once.
 */
#ifndef HF_CLOUD_KEYRING_H
#define HF_CLOUD_KEYRING_H

#include "cloud/creds.h"
#include "cloud/store.h"

/* Blocks. *ret is the ring's to release, also after a failure. */
typedef enum hf_rc hf_creds_fn(const struct hf_call *c, struct hf_creds *ret, struct hf_err *err);

struct hf_keyring;
struct hf_keyring *hf_keyring_new(hf_creds_fn *find);
void hf_keyring_free(struct hf_keyring *k); /* NULL is fine */

/* A copy of what is to be used now; released by the caller, also after a failure. now_wall_ms: by
 * the store's clock where it is known. `refused`: the generation that a store has refused, 0: none;
 * the same one comes back when there is no other. Ten minutes before their end new ones are looked
 * for: as long as the old ones hold, a failure of that costs nothing and no second thread waits
 * for it. HF_EAGAIN: they have ended, and others are not to be had yet. */
enum hf_rc hf_keyring_get(struct hf_keyring *k, const struct hf_call *c, int64_t now_wall_ms,
                          uint64_t refused, struct hf_creds *ret, struct hf_err *err) HF_MUST_USE;

#endif
