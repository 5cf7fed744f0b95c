/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker pools. One lock and one condition a pool; items run in the order they came. A
 * cancelled item that is still queued is taken by a worker as usual, but not run.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "base/work.h"

struct item {
    struct hf_op op; /* first member: an op is its item */
    hf_work_fn *fn;
    void *arg;
    struct item *next;
};

struct hf_pool {
    struct hf_loop *loop;
    char name[16];
    unsigned threads, started;
    size_t queue_max;
    pthread_t *ids;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    /* under lock */
    struct item *head, *tail;
    size_t queued;
    bool closing;
};

struct hf_pool *hf_pool_new(struct hf_loop *loop, const char *name, unsigned threads,
                            size_t queue_max)
{
    struct hf_pool *p = HF_NEW(struct hf_pool);
    p->loop = loop;
    memcpy(p->name, name, strnlen(name, sizeof(p->name) - 1));
    p->threads = threads > 0 ? threads : 1;
    p->queue_max = queue_max;
    p->ids = hf_calloc(p->threads, sizeof(pthread_t));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->cond, NULL);
    return p;
}

static struct item *take(struct hf_pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->head == NULL && !p->closing) {
        pthread_cond_wait(&p->cond, &p->lock);
    }
    struct item *it = p->head;
    if (it != NULL) {
        p->head = it->next;
        p->tail = p->head == NULL ? NULL : p->tail;
        p->queued--;
    }
    pthread_mutex_unlock(&p->lock);
    return it;
}

static void *worker(void *arg)
{
    struct hf_pool *p = arg;
    pthread_setname_np(pthread_self(), p->name);
    for (struct item *it = take(p); it != NULL; it = take(p)) {
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = hf_op_canceled(&it->op)
                            ? hf_fail(&err, HF_ECANCELED, "canceled before it started")
                            : it->fn(it->arg, &it->op, &err);
        if (rc != HF_OK && err.code == HF_OK) {
            hf_fail(&err, rc, "failed without a reason (%s)", hf_rc_name(rc));
        }
        hf_op_finish(&it->op, rc == HF_OK ? NULL : &err);
    }
    return NULL;
}

/* Signals are the loop thread's: workers are born with all of them blocked. */
static enum hf_rc start_threads(struct hf_pool *p, struct hf_err *err)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int num = 0;
    while (p->started < p->threads && num == 0) {
        num = pthread_create(&p->ids[p->started], NULL, worker, p);
        p->started += num == 0 ? 1 : 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    /* One thread is enough to make progress. */
    return p->started > 0 ? HF_OK : hf_fail_errno(err, num, "start a thread of pool '%s'", p->name);
}

static void destroy_item(struct hf_op *op)
{
    hf_free(op);
}

enum hf_rc hf_pool_submit(struct hf_pool *p, struct hf_scope *scope, hf_work_fn *fn, void *arg,
                          hf_done_fn *done, void *user, struct hf_op **ret_op, struct hf_err *err)
{
    if (p->started == 0) {
        HF_TRY(start_threads(p, err));
    }
    pthread_mutex_lock(&p->lock);
    bool full = p->queued >= p->queue_max;
    pthread_mutex_unlock(&p->lock);
    if (full) {
        return hf_fail(err, HF_EFULL, "the queue of pool '%s' is full (%zu)", p->name,
                       p->queue_max);
    }
    struct item *it = HF_NEW(struct item);
    it->fn = fn;
    it->arg = arg;
    hf_op_begin(&it->op, p->loop, scope, done, user);
    it->op.destroy = destroy_item;
    pthread_mutex_lock(&p->lock);
    if (p->tail != NULL) {
        p->tail->next = it;
    } else {
        p->head = it;
    }
    p->tail = it;
    p->queued++;
    pthread_cond_signal(&p->cond);
    pthread_mutex_unlock(&p->lock);
    if (ret_op != NULL) {
        *ret_op = &it->op;
    }
    return HF_OK;
}

void hf_pool_free(struct hf_pool *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    for (struct item *it = p->head; it != NULL; it = it->next) {
        hf_op_cancel(&it->op);
    }
    p->closing = true;
    pthread_cond_broadcast(&p->cond);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++) {
        pthread_join(p->ids[i], NULL);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->cond);
    hf_free(p->ids);
    hf_free(p);
}
