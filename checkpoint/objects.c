/* SPDX-License-Identifier: Apache-2.0
 *
 * Store calls with retry by class, and hints from listings. Worker threads; waits only between
 * tries, and gives up at the caller's deadline or cancel flag.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/retry.h"
#include "checkpoint/objects.h"
#include "checkpoint/sealed.h"

#define TRIES 4

enum hf_rc hf_err_give(struct hf_err *err, const struct hf_err *why)
{
    if (err != NULL) {
        *err = *why;
    }
    return why->code;
}

/* After a failure: HF_OK when it is time for another try, else what to return. */
static enum hf_rc again(struct hf_retry *retry, const struct hf_call *c, const struct hf_err *why,
                        struct hf_err *err)
{
    uint32_t delay_ms = 0;
    uint64_t deadline_ns = c != NULL ? c->deadline_ns : 0;
    if (!hf_retry_next(retry, why, hf_random_u64(), hf_now_ns(), deadline_ns, &delay_ms)) {
        return hf_err_give(err, why);
    }
    return hf_call_wait(c, delay_ms, err);
}

static struct hf_retry patience(void)
{
    return (struct hf_retry){.base_ms = 50, .cap_ms = 1000, .tries = TRIES};
}

/* The key below the run's folder. */
static const char *name_of(const struct hf_run *run, const char *key)
{
    return key + strlen(run->name) + 1;
}

static enum hf_rc get_stored(const struct hf_run *run, const struct hf_call *c, const char *key,
                             struct hf_buf *ret, struct hf_err *err)
{
    struct hf_retry retry = patience();
    for (;;) {
        struct hf_err why = {.code = HF_OK};
        enum hf_rc rc = hf_store_get(run->store, c, key, ret, &why);
        if (rc == HF_OK) {
            return HF_OK;
        }
        HF_TRY(again(&retry, c, &why, err));
    }
}

/* Opens it where it lies; an empty *ret gets that memory, so that there is no second one. */
static enum hf_rc open_into(const struct hf_run *run, const char *key, struct hf_buf *stored,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct hf_mspan object = {.ptr = stored->data, .len = stored->len};
    struct hf_span plain;
    HF_TRY(hf_sealed_open(run->crypt, name_of(run, key), object, &plain, err));
    if (ret->len > 0 || plain.len > ret->max) {
        return hf_buf_add(ret, plain.ptr, plain.len, err);
    }
    memmove(stored->data, plain.ptr, plain.len);
    hf_free(ret->data);
    ret->data = hf_realloc(stored->data, plain.len + 1);
    ret->data[plain.len] = '\0';
    ret->len = plain.len;
    ret->cap = plain.len + 1;
    hf_buf_init(stored, stored->max);
    return HF_OK;
}

static void sealed_init(struct hf_buf *b, const struct hf_buf *ret)
{
    hf_buf_init(b, hf_sealed_max(ret->max - ret->len));
}

enum hf_rc hf_obj_get(const struct hf_run *run, const struct hf_call *c, const char *key,
                      struct hf_buf *ret, struct hf_err *err)
{
    if (run->crypt == NULL) {
        return get_stored(run, c, key, ret, err);
    }
    struct hf_buf stored;
    sealed_init(&stored, ret);
    enum hf_rc rc = get_stored(run, c, key, &stored, err);
    if (rc == HF_OK) {
        rc = open_into(run, key, &stored, ret, err);
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&stored);
    return rc;
}

enum hf_rc hf_obj_put_record(const struct hf_run *run, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    if (run->crypt == NULL) {
        return hf_store_put(run->store, c, key, data, flags, err);
    }
    struct hf_span sealed = {.len = 0};
    HF_CLEANUP(hf_freep)
    char *text = hf_sealed_make(run->crypt, name_of(run, key), data, &sealed.len);
    sealed.ptr = text;
    return hf_store_put(run->store, c, key, sealed, flags, err);
}

static enum hf_rc create_sealed(const struct hf_run *run, const struct hf_call *c, const char *key,
                                struct hf_span sealed, struct hf_buf *ret_other, struct hf_err *err)
{
    if (ret_other == NULL) {
        return hf_store_create(run->store, c, key, sealed, NULL, err);
    }
    struct hf_buf other;
    sealed_init(&other, ret_other);
    enum hf_rc rc = hf_store_create(run->store, c, key, sealed, &other, err);
    if (rc == HF_EEXISTS && other.len > 0) {
        bool opened = open_into(run, key, &other, ret_other, NULL) == HF_OK;
        (void)opened; /* what it is cannot be known: as the caller is told */
    }
    hf_buf_release(&other);
    return rc;
}

enum hf_rc hf_obj_create(const struct hf_run *run, const struct hf_call *c, const char *key,
                         struct hf_span data, struct hf_buf *ret_other, struct hf_err *err)
{
    if (run->crypt == NULL) {
        return hf_store_create(run->store, c, key, data, ret_other, err);
    }
    struct hf_span sealed = {.len = 0};
    HF_CLEANUP(hf_freep)
    char *text = hf_sealed_make(run->crypt, name_of(run, key), data, &sealed.len);
    sealed.ptr = text;
    return create_sealed(run, c, key, sealed, ret_other, err);
}

enum hf_rc hf_obj_create_text(const struct hf_run *run, const struct hf_call *c, const char *key,
                              char *text_taken, struct hf_buf *ret_other, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *text = text_taken;
    struct hf_span data = {.ptr = text, .len = strlen(text)};
    if (run->crypt == NULL) {
        return hf_store_create(run->store, c, key, data, ret_other, err);
    }
    text = hf_sealed_take(run->crypt, name_of(run, key), text, &data.len);
    data.ptr = text;
    return create_sealed(run, c, key, data, ret_other, err);
}

enum hf_rc hf_obj_put(const struct hf_run *run, const struct hf_call *c, const char *key,
                      struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct hf_retry retry = patience();
    for (;;) {
        struct hf_err why = {.code = HF_OK};
        enum hf_rc rc = hf_store_put(run->store, c, key, data, flags, &why);
        if (rc == HF_OK) {
            return HF_OK;
        }
        HF_TRY(again(&retry, c, &why, err));
    }
}

enum hf_rc hf_obj_exists(const struct hf_run *run, const struct hf_call *c, const char *key,
                         bool *ret, struct hf_err *err)
{
    struct hf_buf b;
    hf_buf_init(&b, 1);
    struct hf_err why;
    enum hf_rc rc = get_stored(run, c, key, &b, &why);
    hf_buf_release(&b);
    if (rc != HF_OK && rc != HF_EFULL && rc != HF_ENOTFOUND) {
        return hf_err_give(err, &why);
    }
    *ret = rc != HF_ENOTFOUND;
    return HF_OK;
}

enum hf_rc hf_obj_get_sure(const struct hf_run *run, const struct hf_call *c, const char *key,
                           struct hf_buf *ret, struct hf_err *err)
{
    struct hf_err why;
    enum hf_rc rc = get_stored(run, c, key, ret, &why);
    if (rc == HF_ENOTFOUND) {
        rc = get_stored(run, c, key, ret, &why);
    }
    if (rc == HF_ENOTFOUND) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is missing from the store", key);
    }
    return rc == HF_OK ? rc : hf_err_give(err, &why);
}

/* Opens the block in place. False: it is not what was sealed. */
static bool open_block(const struct hf_run *run, const struct hf_block *b, struct hf_buf *stored)
{
    if (run->crypt == NULL) {
        return true;
    }
    size_t len = 0;
    struct hf_mspan sealed = {.ptr = stored->data, .len = stored->len};
    if (!hf_crypt_open_block(run->crypt, b->id, b->codec, sealed, &len)) {
        return false;
    }
    stored->len = len;
    stored->data[len] = '\0';
    return true;
}

/* One look; *ret_right: the bytes are those that the id stands for. */
static enum hf_rc fetch_once(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_block *b, struct hf_buf *ret, bool *ret_right,
                             struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_err why;
    hf_buf_reset(ret);
    enum hf_rc rc = hf_obj_get_sure(run, c, hf_key_block(key, run->name, b), ret, &why);
    *ret_right = false;
    if (rc != HF_OK) {
        /* Longer than any block: wrong bytes. */
        return rc == HF_EFULL ? HF_OK : hf_err_give(err, &why);
    }
    if (open_block(run, b, ret)) {
        char id[HF_ID_STRLEN];
        hf_block_id(run->crypt, hf_buf_span(ret), id);
        *ret_right = ret->len == b->len && strcmp(id, b->id) == 0;
    }
    return HF_OK;
}

enum hf_rc hf_block_check_zero(const struct hf_run *run, const struct hf_block *b,
                               struct hf_err *err)
{
    char id[HF_ID_STRLEN];
    hf_block_id_zeros(run->crypt, b->len, id);
    return strcmp(id, b->id) == 0
               ? HF_OK
               : hf_fail(err, HF_ECORRUPT, "block '%s' is called zero and is not", b->id);
}

enum hf_rc hf_block_fetch(const struct hf_run *run, const struct hf_call *c,
                          const struct hf_block *b, struct hf_buf *ret, struct hf_err *err)
{
    bool right = false;
    for (int look = 0; look < 2 && !right; look++) {
        HF_TRY(fetch_once(run, c, b, ret, &right, err));
    }
    char key[HF_KEY_MAX];
    return right ? HF_OK
                 : hf_fail(err, HF_ECORRUPT, "the content of '%s' is damaged",
                           hf_key_block(key, run->name, b));
}

struct hint {
    const char *run;
    uint32_t attempt;
    uint32_t best;
};

static bool see_decision(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct hint *h = user;
    uint32_t attempt = 0, number = 0;
    if (hf_key_read_decision(key, h->run, &attempt, &number) && attempt == h->attempt &&
        number > h->best) {
        h->best = number;
    }
    return true;
}

static bool see_claim(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    struct hint *h = user;
    uint32_t attempt = hf_key_read_claim(key, h->run);
    if (attempt > h->best) {
        h->best = attempt;
    }
    return true;
}

uint32_t hf_hint_number(const struct hf_run *run, const struct hf_call *c, uint32_t attempt)
{
    struct hint h = {.run = run->name, .attempt = attempt};
    char prefix[HF_KEY_MAX];
    snprintf(prefix, sizeof(prefix), "%s/checkpoints/%06" PRIu32 "-", run->name, attempt);
    return hf_store_list(run->store, c, prefix, see_decision, &h, NULL) == HF_OK ? h.best : 0;
}

uint32_t hf_hint_attempt(const struct hf_run *run, const struct hf_call *c)
{
    struct hint h = {.run = run->name};
    char prefix[HF_KEY_MAX];
    snprintf(prefix, sizeof(prefix), "%s/attempts/", run->name);
    return hf_store_list(run->store, c, prefix, see_claim, &h, NULL) == HF_OK ? h.best : 0;
}
