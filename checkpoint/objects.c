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

enum hf_rc hf_obj_get(const struct hf_run *run, const struct hf_call *c, const char *key,
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
    enum hf_rc rc = hf_obj_get(run, c, key, &b, &why);
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
    enum hf_rc rc = hf_obj_get(run, c, key, ret, &why);
    if (rc == HF_ENOTFOUND) {
        rc = hf_obj_get(run, c, key, ret, &why);
    }
    if (rc == HF_ENOTFOUND) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is missing from the store", key);
    }
    return rc == HF_OK ? rc : hf_err_give(err, &why);
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
    char id[HF_ID_STRLEN];
    hf_sha256_hex(hf_buf_span(ret), id);
    *ret_right = ret->len == b->len && strcmp(id, b->id) == 0;
    return HF_OK;
}

enum hf_rc hf_block_check_zero(const struct hf_block *b, struct hf_err *err)
{
    char id[HF_ID_STRLEN];
    hf_sha256_zeros(b->len, id);
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
