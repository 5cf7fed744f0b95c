/* SPDX-License-Identifier: Apache-2.0
 *
 * Store calls of a run with the patience that every caller in checkpoint/ wants: transient
 * failures are tried again, by class, a few times. Blocking, any worker thread.
 */
#ifndef HF_CHECKPOINT_OBJECTS_H
#define HF_CHECKPOINT_OBJECTS_H

#include "checkpoint/lineage.h"

/* Copies an error on and returns its code: for failures that were looked at before they counted. */
enum hf_rc hf_err_give(struct hf_err *err, const struct hf_err *why);

/* As hf_store_get, of a record or log piece, which is opened where the run is encrypted.
 * HF_ECORRUPT: it does not open. */
enum hf_rc hf_obj_get(const struct hf_run *run, const struct hf_call *c, const char *key,
                      struct hf_buf *ret, struct hf_err *err) HF_MUST_USE;
/* As hf_store_put, of a block or another thing that is put as it is. */
enum hf_rc hf_obj_put(const struct hf_run *run, const struct hf_call *c, const char *key,
                      struct hf_span data, enum hf_put_flags flags, struct hf_err *err) HF_MUST_USE;
/* As hf_store_put (one try) and hf_store_create, of a record or log piece, which is sealed where
 * the run is encrypted. Another's that cannot be opened leaves *ret_other as it is. */
enum hf_rc hf_obj_put_record(const struct hf_run *run, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags,
                             struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_obj_create(const struct hf_run *run, const struct hf_call *c, const char *key,
                         struct hf_span data, struct hf_buf *ret_other,
                         struct hf_err *err) HF_MUST_USE;
/* The same of a text that may be very long, and is needed no more. */
enum hf_rc hf_obj_create_text(const struct hf_run *run, const struct hf_call *c, const char *key,
                              char *text_taken, struct hf_buf *ret_other,
                              struct hf_err *err) HF_MUST_USE;
/* Whether an object has this key; nothing is said about its content. */
enum hf_rc hf_obj_exists(const struct hf_run *run, const struct hf_call *c, const char *key,
                         bool *ret, struct hf_err *err) HF_MUST_USE;
/* The object as it lies there. Damage is proved by two looks: HF_ECORRUPT for what is not there,
 * twice. */
enum hf_rc hf_obj_get_sure(const struct hf_run *run, const struct hf_call *c, const char *key,
                           struct hf_buf *ret, struct hf_err *err) HF_MUST_USE;

/* A block that is stored nowhere: its id must be that of as many zeros. HF_ECORRUPT. */
enum hf_rc hf_block_check_zero(const struct hf_run *run, const struct hf_block *b,
                               struct hf_err *err) HF_MUST_USE;
/* The plain bytes of a block, checked, in *ret (emptied first; it takes hf_stored_len of the
 * block's). HF_ECORRUPT: wrong twice, or missing twice. */
enum hf_rc hf_block_fetch(const struct hf_run *run, const struct hf_call *c,
                          const struct hf_block *b, struct hf_buf *ret,
                          struct hf_err *err) HF_MUST_USE;

/* The highest number that a listing shows for the attempt; 0: none, or no listing. A hint. */
uint32_t hf_hint_number(const struct hf_run *run, const struct hf_call *c, uint32_t attempt);
/* The same for claims. */
uint32_t hf_hint_attempt(const struct hf_run *run, const struct hf_call *c);

#endif
