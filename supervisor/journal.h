/* SPDX-License-Identifier: Apache-2.0
 *
 * An attempt's local journal: its claim, and every save that the trainer reported complete, written
 * before it is shipped. What a dead supervisor had not shipped is found here by the next one on the
 * same machine. Blocking; worker threads (or before the loop runs). Files: claim.json, saves.jsonl.
 */
#ifndef HF_SUPERVISOR_JOURNAL_H
#define HF_SUPERVISOR_JOURNAL_H

#include "base/prelude.h"

#include "checkpoint/save.h"

/* A save as the trainer reported it. Owned strings and arrays. */
struct hf_saved {
    uint64_t serial; /* order of reports within the attempt, from 1 */
    uint64_t request;
    uint32_t life;
    int64_t step; /* -1: unknown */
    uint32_t world;
    uint32_t *ranks;
    uint32_t n_ranks;
    char *reason;
    char *strategy;
    char *resume_path;
    struct hf_strv roots;
    struct hf_strv held; /* of each root, where it is held (supervisor/held.h); empty: nowhere */
    struct hf_stamps stamps; /* the files as they were when reported */
};
void hf_saved_free(struct hf_saved *s); /* contents and s; NULL is fine */

/* The attempt's identity, kept beside the store's copy so that the next supervisor on this
 * machine may finish what this one began. */
enum hf_rc hf_journal_put_claim(const char *attempt_dir, const struct hf_claim *claim,
                                struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_journal_get_claim(const char *attempt_dir, struct hf_claim *ret,
                                struct hf_err *err) HF_MUST_USE; /* HF_ENOTFOUND: none */

/* Appends a reported save, flushed to disk. */
enum hf_rc hf_journal_put_save(const char *attempt_dir, const struct hf_saved *s,
                               struct hf_err *err) HF_MUST_USE;
/* Notes that a save was shipped or given up for good. */
enum hf_rc hf_journal_put_shipped(const char *attempt_dir, uint64_t serial,
                                  struct hf_err *err) HF_MUST_USE;
/* The newest save that was reported and not noted as shipped, if nothing newer was shipped:
 * *ret is owned by the caller, NULL when there is none. A damaged last line (a kill while
 * writing) is passed over. *ret_serial: the highest serial seen. */
enum hf_rc hf_journal_unshipped(const char *attempt_dir, struct hf_saved **ret,
                                uint64_t *ret_serial, struct hf_err *err) HF_MUST_USE;

#endif
