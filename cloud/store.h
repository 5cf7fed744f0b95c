/* SPDX-License-Identifier: Apache-2.0
 *
 * A store: small and large immutable objects under keys, opened by URI. Every call blocks and
 * runs on worker threads only; one store handle may be used by several threads at once. Keys
 * are relative to the opened URI, '/'-separated, [A-Za-z0-9._/@-]+, no empty, "." or ".." part,
 * none that begins with ".tmp-", at most 900 bytes. Calls may be repeated safely. Safety of the
 * whole format rests on one primitive: a create-only put.
 */
#ifndef HF_CLOUD_STORE_H
#define HF_CLOUD_STORE_H

#include "base/buf.h"
#include "base/loop.h"

struct hf_store;

/* Every call's circumstances. A zeroed struct means: no cancel, no deadline. */
struct hf_call {
    const struct hf_op *op; /* looked at for cancellation between chunks; may be NULL */
    uint64_t deadline_ns;   /* CLOCK_BOOTTIME; 0: none */
};

/* HF_ECANCELED or HF_ETIMEOUT once the caller's circumstances say so, else HF_OK. c may be NULL. */
enum hf_rc hf_call_check(const struct hf_call *c, struct hf_err *err) HF_MUST_USE;
/* Waits that long, or until hf_call_check fails, and returns what it says. */
enum hf_rc hf_call_wait(const struct hf_call *c, uint64_t wait_ms, struct hf_err *err) HF_MUST_USE;

enum hf_put_flags {
    HF_PUT_REPLACE = 0,
    HF_PUT_CREATE_ONLY = 1, /* HF_EEXISTS when the key is there; nothing is changed then */
    HF_PUT_NO_SYNC = 2      /* a heartbeat: may be lost in a power cut */
};

enum hf_store_caps {
    HF_STORE_CREATE_ONLY = 1, /* create-only put works; hf_store_probe proves it */
    HF_STORE_OUTLIVES = 2     /* the data outlives the machine: "durable"; else "local" */
};

typedef bool hf_list_fn(void *user, const char *key, uint64_t bytes); /* false: stop */

struct hf_store_ops {
    uint32_t size; /* sizeof(struct hf_store_ops) at build time */
    const char *scheme;
    void (*close)(struct hf_store *s);
    /* Appends the object to *ret (which bounds it: HF_EFULL). HF_ENOTFOUND when missing; *ret
     * is then unchanged. */
    enum hf_rc (*get)(struct hf_store *s, const struct hf_call *c, const char *key,
                      struct hf_buf *ret, struct hf_err *err);
    /* All or nothing: after any crash the key holds the whole new object or what it held before. */
    enum hf_rc (*put)(struct hf_store *s, const struct hf_call *c, const char *key,
                      struct hf_span data, enum hf_put_flags flags, struct hf_err *err);
    /* Keys that begin with prefix, in any order. A hint for where to look: no rule may rest on
     * it being complete. */
    enum hf_rc (*list)(struct hf_store *s, const struct hf_call *c, const char *prefix,
                       hf_list_fn *each, void *user, struct hf_err *err);
    enum hf_rc (*remove)(struct hf_store *s, const struct hf_call *c, const char *key,
                         struct hf_err *err); /* missing: success */
};

struct hf_store {
    const struct hf_store_ops *ops;
    char *uri; /* owned; as opened */
    enum hf_store_caps caps;
};

/* What the user says about a store beside its URI. Zeroed: nothing. */
struct hf_store_cfg {
    bool survives; /* a file store outlives the machine, whatever its filesystem's type tells */
    const char *endpoint; /* of an object store: "https://host:port"; NULL: the environment's word,
                             else the vendor's own */
    const char *region;   /* NULL: where the keys are from, else the vendor's first */
    bool no_checksum;     /* object stores: no Content-MD5 with a put */
    bool tls_1_3;         /* object stores: no older TLS than 1.3; else than 1.2 */
};

/* Opens file:///abs/path (taken byte for byte, nothing is decoded or expanded; the folder is
 * created 0700 if missing), s3://bucket/prefix (nothing is sent yet) or mem:NAME (for tests: a new,
 * empty store each time). HF_EINVAL names a URI that is not understood, and the forms that are.
 * HF_EDENIED: half a pair of access keys, or the endpoint is none. cfg: NULL is a zeroed one;
 * borrowed. */
enum hf_rc hf_store_open(const char *uri, const struct hf_store_cfg *cfg, struct hf_store **ret,
                         struct hf_err *err) HF_MUST_USE;
void hf_store_close(struct hf_store *s); /* NULL is fine */

/* Whether hf_store_open would know what the URI means; opens nothing. HF_EINVAL shows the forms. */
enum hf_rc hf_store_uri_check(const char *uri, struct hf_err *err) HF_MUST_USE;

/* Thin calls through ops; they check the key's form first (HF_EINVAL). */
enum hf_rc hf_store_get(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_buf *ret, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_store_put(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_span data, enum hf_put_flags flags,
                        struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_store_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                         hf_list_fn *each, void *user, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_store_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_err *err) HF_MUST_USE;

/* Proves create-only put by trying it twice on a probe key under "<prefix>/"; sets or clears
 * HF_STORE_CREATE_ONLY (so no other thread may use s yet) and leaves nothing behind.
 * HF_EDENIED/HF_EFULL/... when the store cannot be written at all. */
enum hf_rc hf_store_probe(struct hf_store *s, const struct hf_call *c, const char *prefix,
                          struct hf_err *err) HF_MUST_USE;

/* Create-only put of a small object with the doubt taken out: an unclear answer is settled by
 * repeating the same bytes, then by reading back. HF_OK: stored (now, or by an earlier try of
 * ours: the bytes are equal). HF_EEXISTS: another's object is there; it is appended to
 * *ret_other when that is not NULL. Anything else: nothing is known. Where the store has no
 * HF_STORE_CREATE_ONLY a look, a put and a read-back stand in: advisory, it can lose a race. */
enum hf_rc hf_store_create(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_span data, struct hf_buf *ret_other,
                           struct hf_err *err) HF_MUST_USE;

/* Decorators. Each takes `inner`, closes it when closed, and passes everything on. */
struct hf_log;
struct hf_store *
hf_store_trace(struct hf_store *inner_taken,
               const struct hf_log *log); /* a debug line a call, with bytes and milliseconds */

/* How long the store has kept somebody waiting: an account of the calls under way. Any thread. */
struct hf_pulse;
struct hf_pulse_look {
    uint64_t since_ns; /* CLOCK_BOOTTIME; 0: no call is under way */
    const char *what;  /* "get", "put", "list", "remove", or as given to begin; static */
    char key[128];     /* its first bytes */
};
struct hf_pulse *hf_pulse_new(void);
void hf_pulse_free(struct hf_pulse *p); /* NULL is fine; after every store that reports to it */
/* A call that the decorator does not see (opening). `what` is kept, not copied. */
size_t hf_pulse_begin(struct hf_pulse *p, const char *what, const char *key);
void hf_pulse_end(struct hf_pulse *p, size_t place); /* what begin returned */
/* The call that has waited longest. False: none is under way. */
bool hf_pulse_oldest(struct hf_pulse *p, struct hf_pulse_look *ret);
struct hf_store *hf_store_pulse(struct hf_store *inner_taken, struct hf_pulse *pulse);

/* Holds plain puts (not the create-only and the no-sync ones) to bytes_per_s, all threads together;
 * a waiting put looks at its call's cancel flag and deadline. Lifting wakes every waiting put; any
 * thread. hf_store_limit_lift does nothing to another store, or to NULL. */
struct hf_store *hf_store_limit(struct hf_store *inner_taken, uint64_t bytes_per_s);
void hf_store_limit_lift(struct hf_store *s, bool lifted);

/* What a fault store does to its nth call (1 = first; 0 = nothing). */
enum hf_store_fault_kind {
    HF_SFAULT_FAIL,       /* not done, HF_EIO */
    HF_SFAULT_LOST_REPLY, /* done, and HF_EAGAIN all the same */
    HF_SFAULT_HANG /* waits for the deadline or the cancel flag, then HF_ETIMEOUT / HF_ECANCELED */
};
struct hf_store *hf_store_faulty(struct hf_store *inner_taken);
void hf_store_fault_set(struct hf_store *faulty, enum hf_store_fault_kind kind, uint64_t nth,
                        bool and_later);
uint64_t hf_store_fault_calls(const struct hf_store *faulty); /* calls since the last set */

#endif
