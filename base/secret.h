/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for keys and passphrases: whole pages of their own, locked as far as the limits allow, in
 * no core file, not there in a child, wiped when given back. Any thread.
 */
#ifndef HF_BASE_SECRET_H
#define HF_BASE_SECRET_H

#include "base/prelude.h"

/* Zeroed; released with hf_secret_free and the same length. Aborts when out of memory. */
void *hf_secret_new(size_t len);
void hf_secret_free(void *ptr, size_t len); /* NULL is fine */

/* Overwrites, and is not optimised away. */
void hf_wipe(void *ptr, size_t len);
/* Whether both are the same, in a time that does not tell where they differ. */
bool hf_same_secret(const void *a, const void *b, size_t len);

#endif
