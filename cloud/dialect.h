/* SPDX-License-Identifier: Apache-2.0
 *
 * A dialect of object storage: how a request is built and signed, and what a reply means. Pure
 * functions in a table; sending, retries, clock and credentials are store_object.c's part, the same
 * for all. For cloud/ alone.
 */
#ifndef HF_CLOUD_DIALECT_H
#define HF_CLOUD_DIALECT_H

#include "cloud/keyring.h"
#include "cloud/transfer.h"

/* Where a store is. All text is owned by the store; region may change while it is open. */
struct hf_place {
    char *bucket;
    char *prefix;   /* "", or "a/b/": before each key */
    char *endpoint; /* "https://host[:port]", without a slash at its end; NULL: the vendor's own */
    char *region;
    bool path_style; /* the bucket stands in the path, not in the host's name */
};

enum hf_ask_kind { HF_ASK_GET = 1, HF_ASK_PUT, HF_ASK_REMOVE, HF_ASK_LIST };

struct hf_ask {
    enum hf_ask_kind kind;
    const char *key; /* within the bucket; LIST: what keys begin with */
    struct hf_span body;
    const char *md5; /* PUT: of the body, in base64; NULL: the store is to check nothing */
    bool create_only;
    const char *after; /* LIST: the mark that the page before gave; NULL: the first page */
};

/* What is to be done about a reply that is no success, beside what its code says. */
enum hf_answer_action {
    HF_ANSWER_DONE,
    HF_ANSWER_CLOCK,  /* our clock is wrong: sign again by theirs */
    HF_ANSWER_KEYS,   /* the keys have expired: find them again */
    HF_ANSWER_REGION, /* another region, which `region` names */
};

struct hf_answer {
    enum hf_answer_action action;
    char region[64];
};

struct hf_page {
    hf_list_fn *each; /* keys within the bucket */
    void *user;
    bool stopped; /* each said so */
    char *after;  /* set: the mark for the next page, owned by the caller; else this was the last */
};

struct hf_dialect {
    const char *scheme; /* "s3" */
    hf_creds_fn *find_keys;
    const char *region; /* where nothing names one */
    /* Fills *ret, which is zeroed. now_wall_ms is the store's clock. */
    void (*build)(const struct hf_place *at, const struct hf_creds *keys, int64_t now_wall_ms,
                  const struct hf_ask *ask, struct hf_request *ret);
    /* The code of a reply, and err. *ret is zeroed before. A 2xx is a success only when it is what
     * the store would answer: its headers, and no error in its body. */
    enum hf_rc (*judge)(const struct hf_place *at, const struct hf_ask *ask,
                        const struct hf_reply *reply, struct hf_answer *ret, struct hf_err *err);
    /* A page of a listing. HF_ECORRUPT: it is none, and no key of it was told. */
    enum hf_rc (*page)(struct hf_span text, struct hf_page *page, struct hf_err *err);
};

extern const struct hf_dialect hf_dialect_s3;

#endif
