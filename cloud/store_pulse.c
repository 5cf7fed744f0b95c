/* SPDX-License-Identifier: Apache-2.0
 *
 * A decorator that keeps account of the calls under way in the store inside it, so that another
 * thread can tell how long the oldest of them has gone unanswered. Any worker thread calls; any
 * thread looks. It changes nothing and waits for nothing but its own short lock.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloud/store.h"

#define CALLS_MAX 128 /* lanes are at most 64; a call beyond this many is not accounted for */

struct hf_pulse {
    pthread_mutex_t lock;
    /* Under the lock; since_ns 0: a free place. */
    struct hf_pulse_look calls[CALLS_MAX];
};

struct hf_pulse *hf_pulse_new(void)
{
    struct hf_pulse *p = HF_NEW(struct hf_pulse);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void hf_pulse_free(struct hf_pulse *p)
{
    if (p != NULL) {
        pthread_mutex_destroy(&p->lock);
        hf_free(p);
    }
}

size_t hf_pulse_begin(struct hf_pulse *p, const char *what, const char *key)
{
    size_t place = 0;
    pthread_mutex_lock(&p->lock);
    while (place < CALLS_MAX && p->calls[place].since_ns != 0) {
        place++;
    }
    if (place < CALLS_MAX) {
        struct hf_pulse_look *l = &p->calls[place];
        l->since_ns = hf_now_ns();
        l->what = what;
        snprintf(l->key, sizeof(l->key), "%s", key);
    }
    pthread_mutex_unlock(&p->lock);
    return place;
}

void hf_pulse_end(struct hf_pulse *p, size_t place)
{
    if (place < CALLS_MAX) {
        pthread_mutex_lock(&p->lock);
        p->calls[place].since_ns = 0;
        pthread_mutex_unlock(&p->lock);
    }
}

bool hf_pulse_oldest(struct hf_pulse *p, struct hf_pulse_look *ret)
{
    *ret = (struct hf_pulse_look){.what = ""};
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        uint64_t since = p->calls[i].since_ns;
        if (since != 0 && (ret->since_ns == 0 || since < ret->since_ns)) {
            *ret = p->calls[i];
        }
    }
    pthread_mutex_unlock(&p->lock);
    return ret->since_ns != 0;
}

struct pulse_store {
    struct hf_store store;
    struct hf_store *inner;
    struct hf_pulse *pulse;
};

static struct pulse_store *pulse_of(struct hf_store *s)
{
    return (struct pulse_store *)s;
}

static enum hf_rc pulse_get(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_buf *ret, struct hf_err *err)
{
    struct pulse_store *t = pulse_of(s);
    size_t place = hf_pulse_begin(t->pulse, "get", key);
    enum hf_rc rc = hf_store_get(t->inner, c, key, ret, err);
    hf_pulse_end(t->pulse, place);
    return rc;
}

static enum hf_rc pulse_put(struct hf_store *s, const struct hf_call *c, const char *key,
                            struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct pulse_store *t = pulse_of(s);
    size_t place = hf_pulse_begin(t->pulse, "put", key);
    enum hf_rc rc = hf_store_put(t->inner, c, key, data, flags, err);
    hf_pulse_end(t->pulse, place);
    return rc;
}

static enum hf_rc pulse_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                             hf_list_fn *each, void *user, struct hf_err *err)
{
    struct pulse_store *t = pulse_of(s);
    size_t place = hf_pulse_begin(t->pulse, "list", prefix);
    enum hf_rc rc = hf_store_list(t->inner, c, prefix, each, user, err);
    hf_pulse_end(t->pulse, place);
    return rc;
}

static enum hf_rc pulse_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                               struct hf_err *err)
{
    struct pulse_store *t = pulse_of(s);
    size_t place = hf_pulse_begin(t->pulse, "remove", key);
    enum hf_rc rc = hf_store_remove(t->inner, c, key, err);
    hf_pulse_end(t->pulse, place);
    return rc;
}

static void pulse_close(struct hf_store *s)
{
    hf_store_close(pulse_of(s)->inner);
    hf_free(s);
}

static const struct hf_store_ops pulse_ops = {.size = sizeof(struct hf_store_ops),
                                              .scheme = "pulse",
                                              .close = pulse_close,
                                              .get = pulse_get,
                                              .put = pulse_put,
                                              .list = pulse_list,
                                              .remove = pulse_remove};

struct hf_store *hf_store_pulse(struct hf_store *inner_taken, struct hf_pulse *pulse)
{
    struct pulse_store *t = HF_NEW(struct pulse_store);
    t->store = (struct hf_store){
        .ops = &pulse_ops, .uri = hf_strdup(inner_taken->uri), .caps = inner_taken->caps};
    t->inner = inner_taken;
    t->pulse = pulse;
    return &t->store;
}
