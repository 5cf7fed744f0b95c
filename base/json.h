/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked access to JSON over cJSON. Reading: every accessor names the key in its error.
 * Integers are read exactly up to HF_JSON_INT_MAX and refused beyond. Writing: integers are
 * printed exactly. Trees are owned by whoever parsed or created them and freed with hf_json_free.
 * One thread at a time.
 */
#ifndef HF_BASE_JSON_H
#define HF_BASE_JSON_H

#include "base/prelude.h"

#include <cjson/cJSON.h>

#include "base/buf.h"

/* The largest integer that is read, and its negative the smallest: 2^53 - 1, since as a double 2^53
 * is also what 2^53 + 1 becomes. */
#define HF_JSON_INT_MAX INT64_C(9007199254740991)

/* Parses one value; anything but white space after it is refused (HF_ECORRUPT), as are texts
 * longer than max_bytes (HF_EFULL), deeper than 64 levels, or with a NUL inside, an escaped one
 * too. The text need not be terminated. err->native is the byte that is wrong. */
enum hf_rc hf_json_parse(struct hf_span text, size_t max_bytes, cJSON **ret,
                         struct hf_err *err) HF_MUST_USE;
void hf_json_free(cJSON *json);   /* NULL is fine */
void hf_json_freep(cJSON **json); /* for HF_CLEANUP */

/* Required members: HF_ECORRUPT when missing or of another type. Strings stay owned by the
 * tree. Keys are case-sensitive. */
enum hf_rc hf_json_get_str(const cJSON *obj, const char *key, const char **ret,
                           struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_json_get_int(const cJSON *obj, const char *key, int64_t min, int64_t max,
                           int64_t *ret, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_json_get_arr(const cJSON *obj, const char *key, const cJSON **ret,
                           struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_json_get_obj(const cJSON *obj, const char *key, const cJSON **ret,
                           struct hf_err *err) HF_MUST_USE;

/* Optional members: the fallback when missing, null, or of another type. */
const char *hf_json_opt_str(const cJSON *obj, const char *key, const char *fallback);
int64_t hf_json_opt_int(const cJSON *obj, const char *key, int64_t fallback);
bool hf_json_opt_bool(const cJSON *obj, const char *key, bool fallback);
const cJSON *hf_json_opt(const cJSON *obj, const char *key); /* any type, NULL when missing */

/* Building. `obj` may be NULL in none of these. A NULL string is written as null. Bytes that
 * are not UTF-8 are written as U+FFFD: use hf_json_add_bytes where they matter. */
cJSON *hf_json_obj(void);
cJSON *hf_json_arr(void);
void hf_json_add_str(cJSON *obj, const char *key, const char *value);
void hf_json_add_int(cJSON *obj, const char *key, int64_t value);
void hf_json_add_num(cJSON *obj, const char *key, double value);     /* not finite: null */
void hf_json_add_known(cJSON *obj, const char *key, int64_t value);  /* negative: null */
void hf_json_add_time(cJSON *obj, const char *key, int64_t wall_ms); /* RFC 3339; 0 or less: null */
void hf_json_add_bool(cJSON *obj, const char *key, bool value);
void hf_json_add_null(cJSON *obj, const char *key);
void hf_json_add(cJSON *obj, const char *key, cJSON *child_taken);
void hf_json_push(cJSON *arr, cJSON *child_taken);
void hf_json_push_str(cJSON *arr, const char *value);

/* A byte string that may not be UTF-8 (argv, file names): written as a string when it is valid
 * UTF-8, else as {"hex":"..."}; read back exactly. The returned copy is owned by the caller. */
cJSON *hf_json_bytes(const char *value);
enum hf_rc hf_json_bytes_read(const cJSON *value, char **ret_owned, struct hf_err *err) HF_MUST_USE;

/* Compact text of the tree; owned by the caller (hf_free). Numbers of a tree that was parsed may
 * come out with their first 15 digits alone. */
char *hf_json_print(const cJSON *json);

#endif
