/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores: opening by URI, the form of keys, and the two things that every backend needs and none
 * should write itself: the proof that create-only put works, and a create whose doubt is taken
 * out. Worker threads; the only waits are between tries of hf_store_create.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/retry.h"
#include "cloud/store.h"
#include "cloud/store_backend.h"

#define WAIT_SLICE_MS 20
#define CREATE_TRIES  6
#define PROBE_TRIES   3

static const struct hf_store_backend *const backends[] = {
    &hf_store_backend_file, &hf_store_backend_s3, &hf_store_backend_mem};

enum hf_rc hf_call_check(const struct hf_call *c, struct hf_err *err)
{
    if (c == NULL) {
        return HF_OK;
    }
    if (c->op != NULL && hf_op_canceled(c->op)) {
        return hf_fail(err, HF_ECANCELED, "cancelled");
    }
    if (c->deadline_ns != 0 && hf_now_ns() >= c->deadline_ns) {
        return hf_fail(err, HF_ETIMEOUT, "out of time");
    }
    return HF_OK;
}

enum hf_rc hf_call_wait(const struct hf_call *c, uint64_t wait_ms, struct hf_err *err)
{
    uint64_t end_ns = hf_now_ns() + wait_ms * HF_MS;
    for (;;) {
        HF_TRY(hf_call_check(c, err));
        uint64_t now_ns = hf_now_ns();
        if (now_ns >= end_ns) {
            return HF_OK;
        }
        uint64_t left_ns = end_ns - now_ns;
        uint64_t nap_ns = left_ns < WAIT_SLICE_MS * HF_MS ? left_ns : WAIT_SLICE_MS * HF_MS;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap_ns}, NULL);
    }
}

static enum hf_rc uri_not_understood(const char *uri, struct hf_err *err)
{
    char forms[100] = "";
    for (size_t i = 0; i < HF_COUNT(backends); i++) {
        size_t at = strlen(forms);
        snprintf(forms + at, sizeof(forms) - at, "%s%s", i > 0 ? " or " : "", backends[i]->form);
    }
    enum hf_rc rc = hf_fail(err, HF_EINVAL, "the store '%s' is not understood", uri);
    if (uri[0] == '/') {
        return hf_hint(err, rc, "Write it as file://%s.", uri);
    }
    return hf_hint(err, rc, "Write it as %s.", forms);
}

enum hf_rc hf_store_uri_check(const char *uri, struct hf_err *err)
{
    for (size_t i = 0; i < HF_COUNT(backends); i++) {
        size_t len = strlen(backends[i]->scheme);
        if (strncmp(uri, backends[i]->scheme, len) != 0 || uri[len] != ':') {
            continue;
        }
        const char *path = strstr(backends[i]->form, "//");
        size_t slashes = path != NULL ? strspn(path, "/") : 0;
        bool ok = strspn(uri + len + 1, "/") >= slashes && uri[len + 1 + slashes] != '\0';
        return ok ? HF_OK : uri_not_understood(uri, err);
    }
    return uri_not_understood(uri, err);
}

enum hf_rc hf_store_open(const char *uri, const struct hf_store_cfg *cfg, struct hf_store **ret,
                         struct hf_err *err)
{
    static const struct hf_store_cfg nothing = {.survives = false};
    for (size_t i = 0; i < HF_COUNT(backends); i++) {
        size_t len = strlen(backends[i]->scheme);
        if (strncmp(uri, backends[i]->scheme, len) != 0 || uri[len] != ':') {
            continue;
        }
        struct hf_store *s = NULL;
        enum hf_rc rc = backends[i]->open(uri + len + 1, cfg != NULL ? cfg : &nothing, &s, err);
        if (rc == HF_EINVAL) {
            return uri_not_understood(uri, err);
        }
        if (rc != HF_OK) {
            return hf_wrap(err, rc, "store '%s'", uri);
        }
        s->uri = hf_strdup(uri);
        *ret = s;
        return HF_OK;
    }
    return uri_not_understood(uri, err);
}

void hf_store_close(struct hf_store *s)
{
    if (s != NULL) {
        hf_free(s->uri);
        s->ops->close(s);
    }
}

static bool part_ok(const char *part, size_t len)
{
    if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0)) {
        return false;
    }
    size_t tmp = strlen(HF_STORE_TMP);
    return len < tmp || memcmp(part, HF_STORE_TMP, tmp) != 0;
}

/* A prefix may be empty and may end in the middle of a part. */
bool hf_store_key_ok(const char *key, bool prefix)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@-";
    size_t len = strlen(key);
    if (len > HF_KEY_BYTES_MAX || strspn(key, set) != len) {
        return false;
    }
    const char *part = key;
    for (const char *slash = strchr(part, '/'); slash != NULL; slash = strchr(part, '/')) {
        if (!part_ok(part, (size_t)(slash - part))) {
            return false;
        }
        part = slash + 1;
    }
    return prefix || part_ok(part, strlen(part));
}

static enum hf_rc check_key(const char *key, bool prefix, struct hf_err *err)
{
    return hf_store_key_ok(key, prefix)
               ? HF_OK
               : hf_fail(err, HF_EINVAL, "'%s' cannot be a key in a store", key);
}

enum hf_rc hf_store_get(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_buf *ret, struct hf_err *err)
{
    HF_TRY(check_key(key, false, err));
    HF_TRY(hf_call_check(c, err));
    return s->ops->get(s, c, key, ret, err);
}

enum hf_rc hf_store_put(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    HF_TRY(check_key(key, false, err));
    HF_TRY(hf_call_check(c, err));
    return s->ops->put(s, c, key, data, flags, err);
}

enum hf_rc hf_store_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                         hf_list_fn *each, void *user, struct hf_err *err)
{
    HF_TRY(check_key(prefix, true, err));
    HF_TRY(hf_call_check(c, err));
    return s->ops->list(s, c, prefix, each, user, err);
}

enum hf_rc hf_store_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_err *err)
{
    HF_TRY(check_key(key, false, err));
    HF_TRY(hf_call_check(c, err));
    return s->ops->remove(s, c, key, err);
}

static bool same_bytes(const struct hf_buf *b, size_t from, struct hf_span data)
{
    return b->len - from == data.len &&
           (data.len == 0 || memcmp(b->data + from, data.ptr, data.len) == 0);
}

/* One round of the proof: *ret_works is what the store did with the second put. */
static enum hf_rc probe_once(struct hf_store *s, const struct hf_call *c, const char *key,
                             bool *ret_works, struct hf_err *err)
{
    struct hf_span one = {.ptr = "first", .len = 5};
    struct hf_span two = {.ptr = "second", .len = 6};
    enum hf_rc rc = hf_store_put(s, c, key, one, HF_PUT_CREATE_ONLY | HF_PUT_NO_SYNC, err);
    if (rc == HF_ENOTSUP) {
        *ret_works = false; /* then at least a plain put has to work */
        return hf_store_put(s, c, key, one, HF_PUT_NO_SYNC, err);
    }
    HF_TRY(rc);
    struct hf_err ignored;
    rc = hf_store_put(s, c, key, two, HF_PUT_CREATE_ONLY | HF_PUT_NO_SYNC, &ignored);
    if (rc != HF_OK && rc != HF_EEXISTS) {
        if (err != NULL) {
            *err = ignored;
        }
        return rc;
    }
    struct hf_buf back;
    hf_buf_init(&back, 64);
    enum hf_rc got = hf_store_get(s, c, key, &back, err);
    *ret_works = rc == HF_EEXISTS && got == HF_OK && same_bytes(&back, 0, one);
    hf_buf_release(&back);
    return got;
}

enum hf_rc hf_store_probe(struct hf_store *s, const struct hf_call *c, const char *prefix,
                          struct hf_err *err)
{
    struct hf_retry retry = {.base_ms = 50, .cap_ms = 1000, .tries = PROBE_TRIES};
    for (;;) {
        char rand[17];
        hf_random_hex(8, rand);
        HF_CLEANUP(hf_freep) char *key = hf_asprintf("%s/probe-%s", prefix, rand);
        bool works = false;
        struct hf_err why = {.code = HF_OK};
        struct hf_err ignored;
        enum hf_rc rc = probe_once(s, c, key, &works, &why);
        bool removed = hf_store_remove(s, c, key, &ignored) == HF_OK;
        (void)removed; /* a left-over probe of some bytes harms nobody */
        if (rc == HF_OK) {
            s->caps = works ? s->caps | HF_STORE_CREATE_ONLY
                            : s->caps & (enum hf_store_caps) ~HF_STORE_CREATE_ONLY;
            return HF_OK;
        }
        uint32_t delay_ms = 0;
        uint64_t deadline_ns = c != NULL ? c->deadline_ns : 0;
        if (!hf_retry_next(&retry, &why, hf_random_u64(), hf_now_ns(), deadline_ns, &delay_ms)) {
            if (err != NULL) {
                *err = why;
            }
            return hf_wrap(err, rc, "trying out the store");
        }
        HF_TRY(hf_call_wait(c, delay_ms, err));
    }
}

/* Something is at the key: ours or another's. *ret_other is as before unless it is another's. */
static enum hf_rc whose(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_span data, struct hf_buf *ret_other, struct hf_err *err)
{
    struct hf_buf own;
    hf_buf_init(&own, ret_other != NULL && ret_other->max > data.len ? ret_other->max : data.len);
    enum hf_rc rc = hf_store_get(s, c, key, &own, err);
    if (rc == HF_ENOTFOUND) {
        rc = hf_fail(err, HF_EAGAIN, "'%s' is there and is not found: nothing is known", key);
    } else if (rc == HF_EFULL || (rc == HF_OK && !same_bytes(&own, 0, data))) {
        rc = hf_fail(err, HF_EEXISTS, "'%s' is another's", key);
        if (ret_other != NULL && own.len > 0) {
            struct hf_err full;
            if (hf_buf_add(ret_other, own.data, own.len, &full) != HF_OK) {
                rc = hf_fail(err, HF_EEXISTS, "'%s' is another's, of %zu bytes", key, own.len);
            }
        }
    }
    hf_buf_release(&own);
    return rc;
}

static enum hf_rc create_once(struct hf_store *s, const struct hf_call *c, const char *key,
                              struct hf_span data, struct hf_buf *ret_other, struct hf_err *err)
{
    if ((s->caps & HF_STORE_CREATE_ONLY) != 0) {
        enum hf_rc rc = hf_store_put(s, c, key, data, HF_PUT_CREATE_ONLY, err);
        return rc == HF_EEXISTS ? whose(s, c, key, data, ret_other, err) : rc;
    }
    struct hf_buf there;
    hf_buf_init(&there, 1);
    struct hf_err ignored;
    enum hf_rc rc = hf_store_get(s, c, key, &there, &ignored);
    hf_buf_release(&there);
    if (rc == HF_ENOTFOUND) {
        HF_TRY(hf_store_put(s, c, key, data, HF_PUT_REPLACE, err));
    } else if (rc != HF_OK && rc != HF_EFULL) {
        return hf_fail(err, rc, "%s", ignored.msg);
    }
    return whose(s, c, key, data, ret_other, err);
}

enum hf_rc hf_store_create(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_span data, struct hf_buf *ret_other, struct hf_err *err)
{
    struct hf_retry retry = {.base_ms = 50, .cap_ms = 1000, .tries = CREATE_TRIES};
    for (;;) {
        struct hf_err why = {.code = HF_OK};
        enum hf_rc rc = create_once(s, c, key, data, ret_other, &why);
        uint32_t delay_ms = 0;
        uint64_t deadline_ns = c != NULL ? c->deadline_ns : 0;
        if (rc == HF_OK ||
            !hf_retry_next(&retry, &why, hf_random_u64(), hf_now_ns(), deadline_ns, &delay_ms)) {
            if (rc != HF_OK && err != NULL) {
                *err = why;
            }
            return rc;
        }
        /* A cancel or the deadline in this wait leaves the outcome unknown. */
        HF_TRY(hf_call_wait(c, delay_ms, err));
    }
}
