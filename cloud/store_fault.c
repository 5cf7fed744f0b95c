/* SPDX-License-Identifier: Apache-2.0
 *
 * A decorator for tests that spoils the nth call of the store inside it: not done, done with the
 * reply lost, or hanging until the caller gives up. Any worker thread; what is to be spoilt is
 * set while no call is under way.
 */
#include "base/prelude.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "cloud/store.h"

#define HANG_MS 600000

struct fault_store {
    struct hf_store store;
    struct hf_store *inner;
    enum hf_store_fault_kind kind;
    uint64_t nth;
    bool and_later;
    atomic_uint_fast64_t calls;
};

static struct fault_store *fault_of(struct hf_store *s)
{
    return (struct fault_store *)s;
}

/* Counts the call; true when it is to be spoilt. */
static bool spoilt(struct fault_store *f)
{
    uint64_t n = atomic_fetch_add(&f->calls, 1) + 1;
    return f->nth != 0 && (n == f->nth || (f->and_later && n > f->nth));
}

/* A call without deadline and cancel flag would hang for ever: it times out at once. */
static enum hf_rc hang(const struct hf_call *c, struct hf_err *err)
{
    if (c != NULL && (c->op != NULL || c->deadline_ns != 0)) {
        HF_TRY(hf_call_wait(c, HANG_MS, err));
    }
    return hf_fail(err, HF_ETIMEOUT, "the store does not answer");
}

/* HF_OK: let the call through, its reply is lost afterwards. */
static enum hf_rc spoil(const struct fault_store *f, const struct hf_call *c, struct hf_err *err)
{
    switch (f->kind) {
    case HF_SFAULT_HANG:
        return hang(c, err);
    case HF_SFAULT_LOST_REPLY:
        return HF_OK;
    case HF_SFAULT_FAIL:
    default:
        return hf_fail(err, HF_EIO, "the store failed");
    }
}

static enum hf_rc lost(struct hf_err *err)
{
    return hf_fail(err, HF_EAGAIN, "the reply was lost");
}

static enum hf_rc fault_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct fault_store *f = fault_of(s);
    if (!spoilt(f)) {
        return hf_store_get(f->inner, c, key, ret, err);
    }
    HF_TRY(spoil(f, c, err));
    return lost(err); /* a lost answer to a question: nothing was done */
}

static enum hf_rc fault_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct fault_store *f = fault_of(s);
    if (!spoilt(f)) {
        return hf_store_put(f->inner, c, key, data, flags, err);
    }
    HF_TRY(spoil(f, c, err));
    enum hf_rc rc = hf_store_put(f->inner, c, key, data, flags, err);
    return rc == HF_OK || rc == HF_EEXISTS ? lost(err) : rc;
}

static enum hf_rc fault_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                             hf_list_fn *each, void *user, struct hf_err *err)
{
    struct fault_store *f = fault_of(s);
    if (!spoilt(f)) {
        return hf_store_list(f->inner, c, prefix, each, user, err);
    }
    HF_TRY(spoil(f, c, err));
    return lost(err);
}

static enum hf_rc fault_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                               struct hf_err *err)
{
    struct fault_store *f = fault_of(s);
    if (!spoilt(f)) {
        return hf_store_remove(f->inner, c, key, err);
    }
    HF_TRY(spoil(f, c, err));
    HF_TRY(hf_store_remove(f->inner, c, key, err));
    return lost(err);
}

static void fault_close(struct hf_store *s)
{
    hf_store_close(fault_of(s)->inner);
    hf_free(s);
}

static const struct hf_store_ops fault_ops = {.size = sizeof(struct hf_store_ops),
                                              .scheme = "fault",
                                              .close = fault_close,
                                              .get = fault_get,
                                              .put = fault_put,
                                              .list = fault_list,
                                              .remove = fault_remove};

struct hf_store *hf_store_faulty(struct hf_store *inner_taken)
{
    struct fault_store *f = HF_NEW(struct fault_store);
    f->store = (struct hf_store){
        .ops = &fault_ops, .uri = hf_strdup(inner_taken->uri), .caps = inner_taken->caps};
    f->inner = inner_taken;
    return &f->store;
}

void hf_store_fault_set(struct hf_store *faulty, enum hf_store_fault_kind kind, uint64_t nth,
                        bool and_later)
{
    struct fault_store *f = fault_of(faulty);
    f->kind = kind;
    f->nth = nth;
    f->and_later = and_later;
    atomic_store(&f->calls, 0);
}

uint64_t hf_store_fault_calls(const struct hf_store *faulty)
{
    return atomic_load(&((const struct fault_store *)faulty)->calls);
}
