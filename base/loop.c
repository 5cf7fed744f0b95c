/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop, its operations and timers. Workers report through one uv_async: they push the
 * operation on a list under a lock and ring; the loop thread takes the whole list and calls
 * each `done`.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/loop.h"
#include "base/mem.h"

static void unlink_op(struct hf_op *op)
{
    struct hf_scope *scope = op->scope;
    if (scope == NULL) {
        return;
    }
    if (op->prev != NULL) {
        op->prev->next = op->next;
    } else {
        scope->first = op->next;
    }
    if (op->next != NULL) {
        op->next->prev = op->prev;
    }
    op->prev = op->next = NULL;
    op->scope = NULL;
}

static void leave(struct hf_loop *loop)
{
    if (loop->live == 0) {
        uv_unref((uv_handle_t *)&loop->door);
    }
}

static void report(struct hf_op *op)
{
    struct hf_scope *scope = op->scope;
    struct hf_err result = op->result;
    unlink_op(op);
    op->loop->live--;
    leave(op->loop);
    op->done(op->user, result.code == HF_OK ? NULL : &result);
    if (op->destroy != NULL) {
        op->destroy(op);
    }
    if (scope != NULL && scope->first == NULL && scope->empty != NULL) {
        scope->empty(scope->user);
    }
}

static void door_rang(uv_async_t *door)
{
    struct hf_loop *loop = door->data;
    uv_mutex_lock(&loop->lock);
    struct hf_op *newest = loop->reported;
    loop->reported = NULL;
    uv_mutex_unlock(&loop->lock);
    struct hf_op *oldest = NULL;
    while (newest != NULL) {
        struct hf_op *next = newest->next_reported;
        newest->next_reported = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct hf_op *op = oldest;
        oldest = op->next_reported;
        report(op);
    }
}

enum hf_rc hf_loop_init(struct hf_loop *loop, struct hf_err *err)
{
    memset(loop, 0, sizeof(*loop));
    int n = uv_loop_init(&loop->uv);
    if (n != 0) {
        return hf_fail(err, HF_EIO, "event loop: %s", uv_strerror(n));
    }
    n = uv_async_init(&loop->uv, &loop->door, door_rang);
    if (n != 0 || uv_mutex_init(&loop->lock) != 0) {
        return hf_fail(err, HF_EIO, "event loop: %s", n != 0 ? uv_strerror(n) : "no lock");
    }
    loop->door.data = loop;
    uv_unref((uv_handle_t *)&loop->door);
    return HF_OK;
}

void hf_loop_run(struct hf_loop *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void hf_loop_stop(struct hf_loop *loop)
{
    uv_stop(&loop->uv);
}

void hf_loop_drain(struct hf_loop *loop)
{
    int rounds = 0;
    do {
        uv_run(&loop->uv, UV_RUN_NOWAIT);
    } while (loop->live > 0 && ++rounds < 100);
}

static void name_handle(uv_handle_t *handle, void *ret_name)
{
    const char **name = ret_name;
    if (!uv_is_closing(handle)) {
        *name = uv_handle_type_name(uv_handle_get_type(handle));
    }
}

enum hf_rc hf_loop_close(struct hf_loop *loop, struct hf_err *err)
{
    if (loop->live > 0) {
        return hf_fail(err, HF_EINTERNAL, "%zu operations have not reported", loop->live);
    }
    if (!uv_is_closing((uv_handle_t *)&loop->door)) {
        uv_close((uv_handle_t *)&loop->door, NULL);
    }
    uv_run(&loop->uv, UV_RUN_NOWAIT);
    if (uv_loop_close(&loop->uv) != 0) {
        const char *name = "closing handle";
        uv_walk(&loop->uv, name_handle, &name);
        return hf_fail(err, HF_EINTERNAL, "a %s is still open on the event loop", name);
    }
    uv_mutex_destroy(&loop->lock);
    return HF_OK;
}

void hf_op_begin(struct hf_op *op, struct hf_loop *loop, struct hf_scope *scope, hf_done_fn *done,
                 void *user)
{
    op->loop = loop;
    op->scope = scope;
    op->done = done;
    op->user = user;
    op->result.code = HF_OK;
    atomic_store(&op->canceled, false);
    op->prev = NULL;
    op->next = NULL;
    if (scope != NULL) {
        op->next = scope->first;
        if (scope->first != NULL) {
            scope->first->prev = op;
        }
        scope->first = op;
    }
    /* The door keeps the loop alive exactly while somebody is to report. */
    if (loop->live++ == 0) {
        uv_ref((uv_handle_t *)&loop->door);
    }
}

void hf_op_abandon(struct hf_op *op)
{
    unlink_op(op);
    op->loop->live--;
    leave(op->loop);
}

void hf_op_finish(struct hf_op *op, const struct hf_err *err)
{
    struct hf_loop *loop = op->loop;
    if (err != NULL) {
        op->result = *err;
    }
    uv_mutex_lock(&loop->lock);
    op->next_reported = loop->reported;
    loop->reported = op;
    uv_mutex_unlock(&loop->lock);
    uv_async_send(&loop->door);
}

void hf_op_cancel(struct hf_op *op)
{
    if (op == NULL || atomic_exchange(&op->canceled, true)) {
        return;
    }
    if (op->cancel != NULL) {
        op->cancel(op);
    }
}

void hf_scope_cancel(struct hf_scope *scope)
{
    for (struct hf_op *op = scope->first; op != NULL; op = op->next) {
        hf_op_cancel(op);
    }
}

/* The handle outlives its owner until libuv has closed it. */
struct hf_timer_handle {
    uv_timer_t uv;
    struct hf_timer *owner;
};

static void timer_fired(uv_timer_t *uv)
{
    struct hf_timer_handle *h = uv->data;
    h->owner->fn(h->owner->user);
}

static void timer_closed(uv_handle_t *uv)
{
    hf_free(uv->data);
}

void hf_timer_start(struct hf_timer *t, struct hf_loop *loop, uint64_t delay_ms,
                    void (*fn)(void *user), void *user)
{
    if (t->handle == NULL) {
        t->handle = HF_NEW(struct hf_timer_handle);
        uv_timer_init(&loop->uv, &t->handle->uv);
        t->handle->uv.data = t->handle;
        t->handle->owner = t;
    }
    t->fn = fn;
    t->user = user;
    uv_update_time(&loop->uv);
    uv_timer_start(&t->handle->uv, timer_fired, delay_ms, 0);
}

void hf_timer_stop(struct hf_timer *t)
{
    if (t->handle != NULL) {
        uv_timer_stop(&t->handle->uv);
    }
}

bool hf_timer_active(const struct hf_timer *t)
{
    return t->handle != NULL && uv_is_active((const uv_handle_t *)&t->handle->uv) != 0;
}

void hf_timer_close(struct hf_timer *t)
{
    if (t->handle != NULL) {
        uv_close((uv_handle_t *)&t->handle->uv, timer_closed);
        t->handle = NULL;
    }
}
