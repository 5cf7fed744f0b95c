/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of checkpoint/: a run in a store with claims, trees of files, and what a tree looks
 * like, so that two can be compared.
 */
#ifndef HF_TESTS_SUPPORT_CHECKPOINT_H
#define HF_TESTS_SUPPORT_CHECKPOINT_H

#include "checkpoint/lineage.h"
#include "checkpoint/save.h"

/* A run in a store, and a folder for trees. */
struct bench {
    char *folder; /* temporary, absolute */
    struct hf_store *store;
    struct hf_run run;
};
void bench_open(struct bench *b, const char *uri); /* uri NULL: file://<folder>/store */
void bench_take(struct bench *b, struct hf_store *store_taken); /* over a store of the test's */
void bench_encrypt(struct bench *b); /* from here on, under a key that is always the same */
void bench_close(struct bench *b);
char *bench_path(const struct bench *b, const char *name); /* owned by the caller */

/* A claim of that attempt with a nonce of its own; released with hf_claim_release. */
struct hf_claim make_claim(uint32_t attempt);
/* Makes it and wins it. */
struct hf_claim must_claim(const struct bench *b, uint32_t attempt);

/* A manifest with one file of each kind, ready to be printed; released by the caller. */
void make_manifest(struct hf_manifest *m, uint32_t attempt, uint32_t number, const char *nonce);
/* Commits such a manifest (its blocks do not exist). */
void must_commit(const struct bench *b, const struct hf_claim *claim, uint32_t number);
enum hf_rc try_commit(const struct bench *b, const struct hf_claim *claim, uint32_t number,
                      struct hf_err *err);

/* Parents are made. */
void put_file(const char *path, const void *data, size_t len);
void put_text(const char *path, const char *text);
void put_noise(const char *path, size_t len, unsigned seed); /* the same for the same seed */
/* Every path below root with kind, mode, target and content's hash; owned by the caller. */
char *tree_text(const char *root);

/* A save of these roots, with small blocks; `in` may be changed before save_now. */
struct hf_save_in save_of(const struct bench *b, const struct hf_claim *claim, uint32_t number,
                          const char *root);
void save_in_release(struct hf_save_in *in);
void must_save(const struct hf_save_in *in, struct hf_manifest *ret);

#endif
