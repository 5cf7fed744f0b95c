/* SPDX-License-Identifier: Apache-2.0
 *
 * A decorator that holds puts of data to a rate: one bucket for all threads, on monotonic time. A
 * put goes as soon as the bucket is not in debt and may then put it there, so that no object is
 * cut. Small decisions (create-only) and heartbeats never wait. Any worker thread; lifting the
 * limit wakes whoever waits.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <uv.h>

#include "base/mem.h"
#include "cloud/store.h"

#define BURST_MS 250 /* of unused time, how much may be made up for */
#define LOOK_MS  50  /* how often a waiting put looks at its cancel flag */

struct limit_store {
    struct hf_store store;
    struct hf_store *inner;
    uv_mutex_t lock;
    uv_cond_t moved;
    /* under the lock */
    uint64_t bytes_per_s;
    bool lifted;
    int64_t room; /* bytes; below zero: in debt */
    uint64_t seen_ns;
};

static struct limit_store *limit_of(struct hf_store *s)
{
    return (struct limit_store *)s;
}

/* The bucket as it is now. */
static void refill(struct limit_store *l)
{
    uint64_t now = hf_now_ns();
    uint64_t passed_ms = (now - l->seen_ns) / HF_MS;
    if (passed_ms < 1000 && l->bytes_per_s * passed_ms < 1000) {
        return; /* not a byte yet: it is not to be lost */
    }
    l->seen_ns += passed_ms * HF_MS;
    int64_t most = (int64_t)(l->bytes_per_s * BURST_MS / 1000);
    /* A second at a time: no product is ever too large. */
    while (passed_ms > 0 && l->room < most) {
        uint64_t ms = passed_ms < 1000 ? passed_ms : 1000;
        l->room += (int64_t)(l->bytes_per_s * ms / 1000);
        passed_ms -= ms;
    }
    l->room = l->room < most ? l->room : most;
}

static enum hf_rc wait_turn(struct limit_store *l, const struct hf_call *c, size_t bytes,
                            struct hf_err *err)
{
    enum hf_rc rc = HF_OK;
    uv_mutex_lock(&l->lock);
    for (refill(l); !l->lifted && l->room < 0 && rc == HF_OK; refill(l)) {
        uv_cond_timedwait(&l->moved, &l->lock, LOOK_MS * HF_MS);
        rc = hf_call_check(c, err);
    }
    if (rc == HF_OK && !l->lifted) {
        l->room -= (int64_t)bytes;
    }
    uv_mutex_unlock(&l->lock);
    return rc;
}

static enum hf_rc limit_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    return hf_store_get(limit_of(s)->inner, c, key, ret, err);
}

static enum hf_rc limit_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct limit_store *l = limit_of(s);
    if ((flags & (HF_PUT_CREATE_ONLY | HF_PUT_NO_SYNC)) == 0) {
        HF_TRY(wait_turn(l, c, data.len, err));
    }
    return hf_store_put(l->inner, c, key, data, flags, err);
}

static enum hf_rc limit_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                             hf_list_fn *each, void *user, struct hf_err *err)
{
    return hf_store_list(limit_of(s)->inner, c, prefix, each, user, err);
}

static enum hf_rc limit_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                               struct hf_err *err)
{
    return hf_store_remove(limit_of(s)->inner, c, key, err);
}

static void limit_close(struct hf_store *s)
{
    struct limit_store *l = limit_of(s);
    hf_store_close(l->inner);
    uv_cond_destroy(&l->moved);
    uv_mutex_destroy(&l->lock);
    hf_free(l);
}

static const struct hf_store_ops limit_ops = {.size = sizeof(struct hf_store_ops),
                                              .scheme = "limit",
                                              .close = limit_close,
                                              .get = limit_get,
                                              .put = limit_put,
                                              .list = limit_list,
                                              .remove = limit_remove};

struct hf_store *hf_store_limit(struct hf_store *inner_taken, uint64_t bytes_per_s)
{
    struct limit_store *l = HF_NEW(struct limit_store);
    l->store = (struct hf_store){
        .ops = &limit_ops, .uri = hf_strdup(inner_taken->uri), .caps = inner_taken->caps};
    l->inner = inner_taken;
    l->bytes_per_s = bytes_per_s;
    l->seen_ns = hf_now_ns();
    if (uv_mutex_init(&l->lock) != 0 || uv_cond_init(&l->moved) != 0) {
        abort();
    }
    return &l->store;
}

void hf_store_limit_lift(struct hf_store *s, bool lifted)
{
    if (s == NULL || s->ops != &limit_ops) {
        return;
    }
    struct limit_store *l = limit_of(s);
    uv_mutex_lock(&l->lock);
    l->lifted = lifted;
    l->room = lifted ? 0 : l->room;
    l->seen_ns = hf_now_ns();
    uv_cond_broadcast(&l->moved);
    uv_mutex_unlock(&l->lock);
}
