/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in memory, for tests: sorted keys under one lock. Nothing outlives the handle. Any
 * worker thread; callbacks run without the lock.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "cloud/store_backend.h"

struct object {
    char *key;
    char *data;
    size_t len;
};

struct mem_store {
    struct hf_store store;
    pthread_mutex_t lock;
    struct object *objects; /* under lock, sorted by key */
    size_t len, room;
};

static struct mem_store *lock(struct hf_store *s)
{
    struct mem_store *m = (struct mem_store *)s;
    pthread_mutex_lock(&m->lock);
    return m;
}

static void unlock(struct mem_store *m)
{
    pthread_mutex_unlock(&m->lock);
}

/* Where the key is, or belongs. */
static size_t find(const struct mem_store *m, const char *key, bool *ret_there)
{
    size_t lo = 0, hi = m->len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(m->objects[mid].key, key) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    *ret_there = lo < m->len && strcmp(m->objects[lo].key, key) == 0;
    return lo;
}

static enum hf_rc mem_get(struct hf_store *s, const struct hf_call *c, const char *key,
                          struct hf_buf *ret, struct hf_err *err)
{
    (void)c;
    struct mem_store *m = lock(s);
    bool there = false;
    size_t at = find(m, key, &there);
    enum hf_rc rc = there ? hf_buf_add(ret, m->objects[at].data, m->objects[at].len, err)
                          : hf_fail(err, HF_ENOTFOUND, "no such object");
    unlock(m);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "get '%s'", key);
}

static void insert(struct mem_store *m, size_t at, const char *key)
{
    if (m->len == m->room) {
        m->room = m->room > 0 ? 2 * m->room : 64;
        m->objects = hf_realloc(m->objects, m->room * sizeof(struct object));
    }
    memmove(m->objects + at + 1, m->objects + at, (m->len - at) * sizeof(struct object));
    m->len++;
    m->objects[at] = (struct object){.key = hf_strdup(key)};
}

static enum hf_rc mem_put(struct hf_store *s, const struct hf_call *c, const char *key,
                          struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    (void)c;
    struct mem_store *m = lock(s);
    bool there = false;
    size_t at = find(m, key, &there);
    if (there && (flags & HF_PUT_CREATE_ONLY) != 0) {
        unlock(m);
        return hf_fail(err, HF_EEXISTS, "put '%s': it is there already", key);
    }
    if (!there) {
        insert(m, at, key);
    }
    struct object *o = &m->objects[at];
    hf_free(o->data);
    o->data = hf_calloc(data.len + 1, 1);
    o->len = data.len;
    if (data.len > 0) {
        memcpy(o->data, data.ptr, data.len);
    }
    unlock(m);
    return HF_OK;
}

struct found {
    char *key;
    uint64_t bytes;
};

static enum hf_rc mem_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                           hf_list_fn *each, void *user, struct hf_err *err)
{
    struct mem_store *m = lock(s);
    bool there = false;
    size_t from = find(m, prefix, &there);
    size_t n = 0;
    while (from + n < m->len && strncmp(m->objects[from + n].key, prefix, strlen(prefix)) == 0) {
        n++;
    }
    struct found *copy = hf_calloc(n, sizeof(struct found));
    for (size_t i = 0; i < n; i++) {
        copy[i] = (struct found){.key = hf_strdup(m->objects[from + i].key),
                                 .bytes = m->objects[from + i].len};
    }
    unlock(m);
    enum hf_rc rc = HF_OK;
    bool more = true;
    for (size_t i = 0; i < n; i++) {
        rc = rc == HF_OK ? hf_call_check(c, err) : rc;
        more = more && rc == HF_OK && each(user, copy[i].key, copy[i].bytes);
        hf_free(copy[i].key);
    }
    hf_free(copy);
    return rc;
}

static enum hf_rc mem_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_err *err)
{
    (void)c;
    (void)err;
    struct mem_store *m = lock(s);
    bool there = false;
    size_t at = find(m, key, &there);
    if (there) {
        hf_free(m->objects[at].key);
        hf_free(m->objects[at].data);
        m->len--;
        memmove(m->objects + at, m->objects + at + 1, (m->len - at) * sizeof(struct object));
    }
    unlock(m);
    return HF_OK;
}

static void mem_close(struct hf_store *s)
{
    struct mem_store *m = (struct mem_store *)s;
    for (size_t i = 0; i < m->len; i++) {
        hf_free(m->objects[i].key);
        hf_free(m->objects[i].data);
    }
    hf_free(m->objects);
    pthread_mutex_destroy(&m->lock);
    hf_free(m);
}

static const struct hf_store_ops mem_ops = {.size = sizeof(struct hf_store_ops),
                                            .scheme = "mem",
                                            .close = mem_close,
                                            .get = mem_get,
                                            .put = mem_put,
                                            .list = mem_list,
                                            .remove = mem_remove};

static enum hf_rc mem_open(const char *rest, const struct hf_store_cfg *cfg, struct hf_store **ret,
                           struct hf_err *err)
{
    if (rest[0] == '\0' || rest[0] == '/') {
        return hf_fail(err, HF_EINVAL, "no name");
    }
    struct mem_store *m = HF_NEW(struct mem_store);
    pthread_mutex_init(&m->lock, NULL);
    m->store.ops = &mem_ops;
    m->store.caps = HF_STORE_CREATE_ONLY;
    if (cfg->survives) {
        m->store.caps |= HF_STORE_OUTLIVES;
    }
    *ret = &m->store;
    return HF_OK;
}

const struct hf_store_backend hf_store_backend_mem = {
    .scheme = "mem", .form = "mem:NAME", .open = mem_open};
