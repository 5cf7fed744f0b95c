/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store backends offer to cloud/store.c; nothing outside cloud/store*.c includes this.
 */
#ifndef HF_CLOUD_STORE_BACKEND_H
#define HF_CLOUD_STORE_BACKEND_H

#include "cloud/store.h"

#define HF_KEY_BYTES_MAX 900
#define HF_STORE_TMP     ".tmp-" /* how the name of an unfinished write begins */

/* A kind of store. `rest` is the URI behind "scheme:"; *ret has no uri yet. */
struct hf_store_backend {
    const char *scheme;
    const char *form; /* shown to a user whose URI is not understood */
    enum hf_rc (*open)(const char *rest, const struct hf_store_cfg *cfg, struct hf_store **ret,
                       struct hf_err *err);
};

/* Whether that may be a key; with `prefix`, the beginning of one. Pure. */
bool hf_store_key_ok(const char *key, bool prefix);

extern const struct hf_store_backend hf_store_backend_file;
extern const struct hf_store_backend hf_store_backend_s3;
extern const struct hf_store_backend hf_store_backend_mem;

/* Whether a filesystem outlives the machine: `magic` as statfs(2) gives it, `mount_type` as
 * /proc/self/mountinfo names it ("" when unknown). Pure; unknown means no. */
bool hf_store_fs_outlives(uint64_t magic, const char *mount_type);

#endif
