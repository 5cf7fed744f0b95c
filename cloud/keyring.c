/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys that are kept and found again. Two locks: one over what is kept, never held while anything
 * waits, and one that makes looking for new ones the work of one thread. Worker threads.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloud/keyring.h"

#define AHEAD_MS     (10 * 60 * INT64_C(1000))
#define HOLDS_MS     INT64_C(5000) /* what ends sooner is not worth a request */
#define ASK_AGAIN_NS (60 * HF_SEC) /* after a look that failed or brought the same */

struct hf_keyring {
    hf_creds_fn *find;
    pthread_mutex_t finding;
    pthread_mutex_t lock;
    struct hf_creds now;    /* under lock; generation 0: none yet */
    uint64_t not_before_ns; /* under lock: no look ahead of the end before this */
};

struct hf_keyring *hf_keyring_new(hf_creds_fn *find)
{
    struct hf_keyring *k = HF_NEW(struct hf_keyring);
    k->find = find;
    pthread_mutex_init(&k->finding, NULL);
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void hf_keyring_free(struct hf_keyring *k)
{
    if (k != NULL) {
        hf_creds_release(&k->now);
        pthread_mutex_destroy(&k->finding);
        pthread_mutex_destroy(&k->lock);
        hf_free(k);
    }
}

static void copy(const struct hf_creds *from, struct hf_creds *ret)
{
    *ret = (struct hf_creds){.access_key = hf_strdup(from->access_key),
                             .secret_key = hf_strdup(from->secret_key),
                             .token = hf_strdup(from->token),
                             .expires_wall_ms = from->expires_wall_ms,
                             .generation = from->generation};
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

enum state { GOOD, ENDING, USELESS };

/* What is kept; copied to *ret unless it is useless. */
static enum state look(struct hf_keyring *k, int64_t now_ms, uint64_t refused, struct hf_creds *ret)
{
    pthread_mutex_lock(&k->lock);
    int64_t left_ms = k->now.expires_wall_ms == 0 ? INT64_MAX : k->now.expires_wall_ms - now_ms;
    enum state state = GOOD;
    if (k->now.generation == 0 || k->now.generation == refused || left_ms <= HOLDS_MS) {
        state = USELESS;
    } else if (left_ms <= AHEAD_MS && hf_now_ns() >= k->not_before_ns) {
        state = ENDING;
    }
    if (state != USELESS) {
        copy(&k->now, ret);
    }
    pthread_mutex_unlock(&k->lock);
    return state;
}

static void put_off(struct hf_keyring *k)
{
    pthread_mutex_lock(&k->lock);
    k->not_before_ns = hf_now_ns() + ASK_AGAIN_NS;
    pthread_mutex_unlock(&k->lock);
}

/* Takes what was found, and copies it to *ret. */
static void keep(struct hf_keyring *k, struct hf_creds *found_taken, struct hf_creds *ret)
{
    pthread_mutex_lock(&k->lock);
    bool same = k->now.generation > 0 && same_text(k->now.access_key, found_taken->access_key) &&
                same_text(k->now.secret_key, found_taken->secret_key) &&
                same_text(k->now.token, found_taken->token);
    found_taken->generation = k->now.generation + (same ? 0 : 1);
    k->not_before_ns = same ? hf_now_ns() + ASK_AGAIN_NS : 0;
    hf_creds_release(&k->now);
    k->now = *found_taken;
    copy(&k->now, ret);
    pthread_mutex_unlock(&k->lock);
}

/* With the lock `finding`. `old` are the ones that still hold, NULL: none do. */
static enum hf_rc find_others(struct hf_keyring *k, const struct hf_call *c, struct hf_creds *old,
                              struct hf_creds *ret, struct hf_err *err)
{
    struct hf_creds found = {.generation = 0};
    struct hf_err why = {.code = HF_OK};
    enum hf_rc rc = k->find(c, &found, &why);
    if (rc == HF_OK) {
        keep(k, &found, ret);
        return HF_OK;
    }
    hf_creds_release(&found);
    if (old != NULL) {
        put_off(k);
        copy(old, ret);
        return HF_OK;
    }
    pthread_mutex_lock(&k->lock);
    bool had = k->now.generation > 0;
    pthread_mutex_unlock(&k->lock);
    if (had && rc != HF_ECANCELED) {
        return hf_fail(err, HF_EAGAIN, "the access keys have ended, and there are no others: %s",
                       why.msg);
    }
    if (err != NULL) {
        *err = why;
    }
    return rc;
}

enum hf_rc hf_keyring_get(struct hf_keyring *k, const struct hf_call *c, int64_t now_wall_ms,
                          uint64_t refused, struct hf_creds *ret, struct hf_err *err)
{
    *ret = (struct hf_creds){.generation = 0};
    struct hf_creds old = {.generation = 0};
    enum state state = look(k, now_wall_ms, refused, &old);
    if (state == GOOD || (state == ENDING && pthread_mutex_trylock(&k->finding) != 0)) {
        *ret = old; /* also while another thread is looking: these hold meanwhile */
        return HF_OK;
    }
    if (state == USELESS) {
        pthread_mutex_lock(&k->finding);
        state = look(k, now_wall_ms, refused, &old); /* another may have found them meanwhile */
    }
    enum hf_rc rc =
        state == GOOD ? HF_OK : find_others(k, c, state == ENDING ? &old : NULL, ret, err);
    pthread_mutex_unlock(&k->finding);
    if (state == GOOD) {
        *ret = old;
    } else {
        hf_creds_release(&old);
    }
    return rc;
}
