/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame that every record of the store has: format version, required features, type; and
 * checked reading of the members that many of them share. For checkpoint/ alone. Pure, any
 * thread.
 */
#ifndef HF_CHECKPOINT_RECORD_H
#define HF_CHECKPOINT_RECORD_H

#include "base/json.h"
#include "checkpoint/manifest.h"

/* {"format":1,"features":[],"type":TYPE}, to be filled and printed. */
cJSON *hf_record_new(const char *type);
/* Text of the tree (hf_free), which is freed. */
char *hf_record_print(cJSON *json_taken);

/* Parses and checks the frame. type NULL: any. HF_ENOTSUP: a newer format or an unknown feature. */
enum hf_rc hf_record_parse(struct hf_span text, size_t max_bytes, const char *type, cJSON **ret,
                           struct hf_err *err) HF_MUST_USE;
/* The same of a record that may have this one feature. */
enum hf_rc hf_record_parse_with(struct hf_span text, size_t max_bytes, const char *type,
                                const char *feature, cJSON **ret, struct hf_err *err) HF_MUST_USE;

/* Its two halves, for a text that is parsed in pieces. An escaped NUL is refused (HF_ECORRUPT):
 * cJSON would end the string there, and a name would be another than the text says. */
enum hf_rc hf_record_check_text(struct hf_span text, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_record_check_frame(const cJSON *json, const char *type,
                                 struct hf_err *err) HF_MUST_USE;

/* Exactly len - 1 lower-case hex digits into `out`. */
enum hf_rc hf_record_hex(const cJSON *obj, const char *key, char *out, size_t len,
                         struct hf_err *err) HF_MUST_USE;
/* A required byte string; the copy is owned by the caller. */
enum hf_rc hf_record_bytes(const cJSON *obj, const char *key, char **ret,
                           struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_record_number(const cJSON *obj, const char *key, uint32_t min, uint32_t *ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_record_add_bytes(cJSON *obj, const char *key, const char *value); /* NULL: null */

/* Absolute, no empty, "." or ".." part, no slash at the end, not "/" itself. */
bool hf_path_is_root(const char *path);
/* Relative in the same sense; "" is not. */
bool hf_path_is_inside(const char *path);

/* The text with "sum" as its last member: the SHA-256 of all that stands before it. */
char *hf_record_add_sum(char *text_taken);
/* HF_ECORRUPT: there is no sum, or it is another: some bit is not as it was written. */
enum hf_rc hf_record_check_sum(struct hf_span text, struct hf_err *err) HF_MUST_USE;

/* HF_EINVAL: no root, one that is not hf_path_is_root, or one inside another. */
enum hf_rc hf_roots_check(const struct hf_strv *roots, struct hf_err *err) HF_MUST_USE;

#endif
