/* SPDX-License-Identifier: Apache-2.0
 *
 * A decorator that writes a debug line for each call of the store inside it: what, how many bytes,
 * how it ended, how long it took. Any worker thread; it changes nothing.
 */
#include "base/prelude.h"

#include "base/log.h"
#include "base/mem.h"
#include "cloud/store.h"

struct trace_store {
    struct hf_store store;
    struct hf_store *inner;
    const struct hf_log *log;
};

static struct trace_store *trace_of(struct hf_store *s)
{
    return (struct trace_store *)s;
}

static enum hf_rc told(const struct trace_store *t, const char *what, const char *key, size_t bytes,
                       uint64_t began_ns, enum hf_rc rc)
{
    uint64_t ms = (hf_now_ns() - began_ns) / HF_MS;
    hf_log(t->log, HF_LOG_DEBUG, "store %s '%s': %s, %zu bytes, %llu ms", what, key,
           rc == HF_OK ? "ok" : hf_rc_name(rc), bytes, (unsigned long long)ms);
    return rc;
}

static enum hf_rc trace_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct trace_store *t = trace_of(s);
    uint64_t began_ns = hf_now_ns();
    size_t before = ret->len;
    enum hf_rc rc = hf_store_get(t->inner, c, key, ret, err);
    return told(t, "get", key, ret->len - before, began_ns, rc);
}

static enum hf_rc trace_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct trace_store *t = trace_of(s);
    uint64_t began_ns = hf_now_ns();
    enum hf_rc rc = hf_store_put(t->inner, c, key, data, flags, err);
    return told(t, (flags & HF_PUT_CREATE_ONLY) != 0 ? "create" : "put", key, data.len, began_ns,
                rc);
}

static enum hf_rc trace_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                             hf_list_fn *each, void *user, struct hf_err *err)
{
    struct trace_store *t = trace_of(s);
    uint64_t began_ns = hf_now_ns();
    return told(t, "list", prefix, 0, began_ns,
                hf_store_list(t->inner, c, prefix, each, user, err));
}

static enum hf_rc trace_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                               struct hf_err *err)
{
    struct trace_store *t = trace_of(s);
    uint64_t began_ns = hf_now_ns();
    return told(t, "remove", key, 0, began_ns, hf_store_remove(t->inner, c, key, err));
}

static void trace_close(struct hf_store *s)
{
    hf_store_close(trace_of(s)->inner);
    hf_free(s);
}

static const struct hf_store_ops trace_ops = {.size = sizeof(struct hf_store_ops),
                                              .scheme = "trace",
                                              .close = trace_close,
                                              .get = trace_get,
                                              .put = trace_put,
                                              .list = trace_list,
                                              .remove = trace_remove};

struct hf_store *hf_store_trace(struct hf_store *inner_taken, const struct hf_log *log)
{
    struct trace_store *t = HF_NEW(struct trace_store);
    t->store = (struct hf_store){
        .ops = &trace_ops, .uri = hf_strdup(inner_taken->uri), .caps = inner_taken->caps};
    t->inner = inner_taken;
    t->log = log;
    return &t->store;
}
