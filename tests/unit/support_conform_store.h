/* SPDX-License-Identifier: Apache-2.0
 *
 * What every store has to do, decorators and test doubles included: one suite for all. And small
 * helpers for tests that use a store.
 */
#ifndef HF_TESTS_SUPPORT_CONFORM_STORE_H
#define HF_TESTS_SUPPORT_CONFORM_STORE_H

#include "base/buf.h"
#include "base/mem.h"
#include "cloud/store.h"

/* A fresh, empty store; its state is freed by close. */
typedef struct hf_store *conform_open_fn(void);
/* Runs the whole suite against stores opened by `open`; fails the running cmocka test. */
void conform_store(conform_open_fn *open);

/* Fails the test unless rc is `want`; shows err's text. */
void expect_rc(enum hf_rc rc, enum hf_rc want, const struct hf_err *err);
struct hf_span text_of(const char *text);
void store_set(struct hf_store *s, const char *key, const char *text);
/* The object must hold exactly this text; NULL: must be missing. */
void store_holds(struct hf_store *s, const char *key, const char *text);
/* How many keys begin with the prefix. */
size_t store_count(struct hf_store *s, const char *prefix);

/* A temporary folder, owned by the caller; removed with hf_fs_remove_tree. */
char *temp_folder(void);

/* Stores with flaws that real ones have. */
enum store_flaws {
    FLAW_OVERWRITES = 1, /* answers a second create with success and overwrites */
    FLAW_BLIND = 2,      /* listings show nothing */
    FLAW_READ_ONLY = 4,  /* every put is denied */
    FLAW_FLIPS = 8,      /* the first block that is got has a wrong bit, once */
    FLAW_FORGETS = 16    /* the first block that is got is not found, once */
};
struct hf_store *store_with_flaws(struct hf_store *inner_taken, enum store_flaws flaws);

#endif
