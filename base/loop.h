/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop and the contract of every asynchronous operation. One loop thread owns every
 * state.
 *
 * 1. `done` fires exactly once, on the loop thread, and never inside the call that started the
 * operation.
 * 2. Cancel is idempotent and does not wait; done still fires, with HF_ECANCELED or the result
 * that won.
 * 3. An operation belongs to a scope; a scope reports "empty" when its last operation has
 * reported.
 * 4. A start function that does not return HF_OK will not call back.
 *
 * Except hf_op_canceled and hf_op_finish every function is for the loop thread alone.
 */
#ifndef HF_BASE_LOOP_H
#define HF_BASE_LOOP_H

#include "base/prelude.h"

#include <stdatomic.h>
#include <uv.h>

#include "base/clock.h"
#include "base/err.h"

struct hf_loop {
    uv_loop_t uv;
    uv_async_t door; /* the one door by which workers report */
    uv_mutex_t lock;
    struct hf_op *reported; /* under lock: finished operations, newest first */
    size_t live;            /* operations that have not yet called done */
};

/* err is NULL on success and owned by the caller of the callback: copy what is kept. */
typedef void hf_done_fn(void *user, const struct hf_err *err);

struct hf_op {
    struct hf_loop *loop;
    struct hf_scope *scope;
    hf_done_fn *done;
    void *user;
    void (*cancel)(struct hf_op *op);  /* asks the owner to hurry; NULL: the flag is enough */
    void (*destroy)(struct hf_op *op); /* after done has returned; NULL: nothing */
    atomic_bool canceled;              /* the only field that a worker reads */
    struct hf_err result;              /* written once by hf_op_finish */
    struct hf_op *next_reported;
    struct hf_op *prev, *next; /* in the scope */
};

struct hf_scope {
    struct hf_op *first;
    void (*empty)(void *user); /* may be NULL; called when the last operation has reported */
    void *user;
};

enum hf_rc hf_loop_init(struct hf_loop *loop, struct hf_err *err) HF_MUST_USE;
/* Runs until hf_loop_stop or until nothing is left to wait for. */
void hf_loop_run(struct hf_loop *loop);
void hf_loop_stop(struct hf_loop *loop);
/* Calls back what is due or closing, without waiting: one round, and up to 100 while operations
 * have not reported. */
void hf_loop_drain(struct hf_loop *loop);
/* Closes; HF_EINTERNAL names the first handle or operation that is still open (the loop then
 * leaks). */
enum hf_rc hf_loop_close(struct hf_loop *loop, struct hf_err *err) HF_MUST_USE;

/* Registers an operation that is about to start. op is owned by the starter until destroy. */
void hf_op_begin(struct hf_op *op, struct hf_loop *loop, struct hf_scope *scope, hf_done_fn *done,
                 void *user);
/* Undoes begin when starting failed (rule 4). */
void hf_op_abandon(struct hf_op *op);
/* Any thread, once: hands the result in; done follows on the loop thread. err == NULL: success. */
void hf_op_finish(struct hf_op *op, const struct hf_err *err);
void hf_op_cancel(struct hf_op *op); /* NULL is fine */
static inline bool hf_op_canceled(const struct hf_op *op)
{
    return atomic_load_explicit(&op->canceled, memory_order_relaxed);
}
void hf_scope_cancel(struct hf_scope *scope); /* every operation in it */

/* A timer. Zero-initialise, then start; it never fires after stop. */
struct hf_timer {
    struct hf_timer_handle *handle; /* NULL: never started, or closed */
    void (*fn)(void *user);
    void *user;
};
/* Fires once after delay_ms; starting again replaces. */
void hf_timer_start(struct hf_timer *t, struct hf_loop *loop, uint64_t delay_ms,
                    void (*fn)(void *user), void *user);
void hf_timer_stop(struct hf_timer *t);
bool hf_timer_active(const struct hf_timer *t);
/* Before the memory of *t goes; it may go at once. Not started: nothing to do. */
void hf_timer_close(struct hf_timer *t);

#endif
