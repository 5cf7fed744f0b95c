/* SPDX-License-Identifier: Apache-2.0
 *
 * Named worker pools: own threads, a bounded queue that refuses, a cancel flag. Work that takes
 * time (reading, hashing, storing, launching) is plain blocking code here, never on libuv's
 * shared threads. A worker gets an input that does not change, writes only its own output, and
 * looks at the cancel flag between chunks. Pool functions are for the loop thread.
 */
#ifndef HF_BASE_WORK_H
#define HF_BASE_WORK_H

#include "base/loop.h"

struct hf_pool;

/* Runs on a worker thread. `op` is for hf_op_canceled alone. */
typedef enum hf_rc hf_work_fn(void *arg, const struct hf_op *op, struct hf_err *err);

/* Threads are started on the first submit. name: at most 15 bytes, shown by ps -T. */
struct hf_pool *hf_pool_new(struct hf_loop *loop, const char *name, unsigned threads,
                            size_t queue_max);

/* Starts fn(arg) on the pool; done(user) follows on the loop thread. HF_EFULL: the queue is
 * full. A cancelled item that is still queued never runs and reports HF_ECANCELED. *ret_op (may
 * be NULL) is valid until done returns. */
enum hf_rc hf_pool_submit(struct hf_pool *pool, struct hf_scope *scope, hf_work_fn *fn, void *arg,
                          hf_done_fn *done, void *user, struct hf_op **ret_op,
                          struct hf_err *err) HF_MUST_USE;

/* Waits for running items to end (cancel their scope first), joins the threads, frees. NULL is
 * fine. Items still queued report HF_ECANCELED: run the loop once more. */
void hf_pool_free(struct hf_pool *pool);

#endif
