/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON texts with long arrays, read in bounded memory: the arrays are cut out of the outermost
 * object, and their elements are parsed one at a time. What is accepted is exactly what
 * hf_json_parse accepts. Pure; any thread.
 */
#ifndef HF_BASE_JSON_CUT_H
#define HF_BASE_JSON_CUT_H

#include "base/json.h"

/* keys: members of the outermost object whose arrays are wanted; ret_arrays[i] is then the text of
 * the array, brackets included, inside `text` (len 0: there is no such member, or it is no array).
 * *ret_rest: the object with those arrays left empty; owned by the caller. Errors as hf_json_parse
 * has them, and HF_ECORRUPT when a wanted key is there twice, or is that of an array and written
 * with escapes. An array's own elements are not looked into: hf_json_each does that. */
enum hf_rc hf_json_cut(struct hf_span text, size_t max_bytes, const char *const *keys, size_t n,
                       struct hf_span *ret_arrays, cJSON **ret_rest,
                       struct hf_err *err) HF_MUST_USE;

/* One element; the tree is the caller's only during the call. An error ends the walk. */
typedef enum hf_rc hf_json_each_fn(void *user, const cJSON *element, struct hf_err *err);
/* array: as hf_json_cut gave it, of len 0 too. HF_ECORRUPT when it is not JSON. fn may be NULL, to
 * check alone. *ret_n, if not NULL: the elements that were walked. */
enum hf_rc hf_json_each(struct hf_span array, hf_json_each_fn *fn, void *user, size_t *ret_n,
                        struct hf_err *err) HF_MUST_USE;
/* How many elements the array has, if it is JSON: the commas at its own level, and one. */
size_t hf_json_count(struct hf_span array);

#endif
