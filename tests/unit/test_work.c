/* SPDX-License-Identifier: Apache-2.0
 *
 * base/work: order, the bound of the queue, cancelling before and while an item runs, and the end
 * of a pool with items in its queue. Workers are held at a gate, so that nothing depends on time.
 */
#include "base/prelude.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/work.h"
#include "tests/unit/support_loop.h"

#define WAIT_MS 20000
#define ITEMS   16

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool open;
    int arrived;
};

struct item {
    struct stage *stage;
    size_t nr;
    enum hf_rc give; /* what the work returns */
    bool silent;     /* without a text */
    int ran, done;
    enum hf_rc code;
    char msg[96];
    struct hf_op *op;
};

struct stage {
    struct hf_loop loop;
    struct hf_scope scope;
    struct hf_pool *pool;
    struct gate gate;
    pthread_t loop_thread;
    struct item items[ITEMS];
    size_t ran_order[ITEMS], done_order[ITEMS];
    size_t n_ran, n_done;
    int empties;
    bool wrong_thread;
};

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

/* Waits for the gate, or for the cancel flag. */
static bool gate_pass(struct gate *g, const struct hf_op *op)
{
    pthread_mutex_lock(&g->lock);
    g->arrived++;
    while (!g->open && !hf_op_canceled(op)) {
        pthread_mutex_unlock(&g->lock);
        (void)poll(NULL, 0, 1);
        pthread_mutex_lock(&g->lock);
    }
    bool open = g->open;
    pthread_mutex_unlock(&g->lock);
    return open;
}

static bool has_arrived(void *user)
{
    struct gate *g = user;
    pthread_mutex_lock(&g->lock);
    bool yes = g->arrived > 0;
    pthread_mutex_unlock(&g->lock);
    return yes;
}

static enum hf_rc work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct item *it = arg;
    struct stage *s = it->stage;
    it->ran++;
    bool passed = gate_pass(&s->gate, op);
    pthread_mutex_lock(&s->gate.lock);
    s->ran_order[s->n_ran++] = it->nr;
    s->wrong_thread = s->wrong_thread || pthread_equal(pthread_self(), s->loop_thread);
    pthread_mutex_unlock(&s->gate.lock);
    if (!passed) {
        return hf_fail(err, HF_ECANCELED, "stopped while running");
    }
    if (it->give == HF_OK || it->silent) {
        return it->give;
    }
    return hf_fail(err, it->give, "item %zu failed", it->nr);
}

static void done(void *user, const struct hf_err *err)
{
    struct item *it = user;
    struct stage *s = it->stage;
    it->done++;
    it->code = err != NULL ? err->code : HF_OK;
    snprintf(it->msg, sizeof(it->msg), "%.90s", err != NULL ? err->msg : "");
    s->done_order[s->n_done++] = it->nr;
    s->wrong_thread = s->wrong_thread || !pthread_equal(pthread_self(), s->loop_thread);
}

static void empty(void *user)
{
    ((struct stage *)user)->empties++;
}

static struct stage *stage_new(unsigned threads, size_t queue_max)
{
    struct stage *s = HF_NEW(struct stage);
    struct hf_err err;
    assert_int_equal(hf_loop_init(&s->loop, &err), HF_OK);
    s->scope = (struct hf_scope){.empty = empty, .user = s};
    s->pool = hf_pool_new(&s->loop, "a-name-too-long-for-a-thread", threads, queue_max);
    pthread_mutex_init(&s->gate.lock, NULL);
    pthread_cond_init(&s->gate.cond, NULL);
    s->loop_thread = pthread_self();
    for (size_t i = 0; i < ITEMS; i++) {
        s->items[i] = (struct item){.stage = s, .nr = i, .code = HF_EINTERNAL};
    }
    return s;
}

static void stage_free(struct stage *s)
{
    hf_pool_free(s->pool);
    hf_loop_run(&s->loop);
    hf_test_loop_close(&s->loop);
    assert_false(s->wrong_thread);
    pthread_mutex_destroy(&s->gate.lock);
    pthread_cond_destroy(&s->gate.cond);
    hf_free(s);
}

static enum hf_rc submit(struct stage *s, size_t nr, struct hf_err *err)
{
    struct item *it = &s->items[nr];
    return hf_pool_submit(s->pool, &s->scope, work, it, done, it, &it->op, err);
}

static void must_submit(struct stage *s, size_t nr)
{
    struct hf_err err;
    if (submit(s, nr, &err) != HF_OK) {
        fail_msg("item %zu: %s", nr, err.msg);
    }
    assert_int_equal(s->items[nr].done, 0);
}

/* Submits item 0 and waits until the only worker holds it. */
static void hold_the_worker(struct stage *s)
{
    must_submit(s, 0);
    assert_true(hf_test_run_until(&s->loop, has_arrived, &s->gate, WAIT_MS));
}

static void runs_in_order(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, ITEMS);
    gate_open(&s->gate);
    for (size_t i = 0; i < ITEMS; i++) {
        must_submit(s, i);
    }
    hf_loop_run(&s->loop); /* open operations keep it running */
    assert_int_equal(s->n_done, ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(s->ran_order[i], i);
        assert_int_equal(s->done_order[i], i);
        assert_int_equal(s->items[i].code, HF_OK);
    }
    assert_int_equal(s->empties, 1);
    stage_free(s);
}

static void several_threads(void **state)
{
    (void)state;
    struct stage *s = stage_new(3, ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        must_submit(s, i);
    }
    gate_open(&s->gate);
    hf_loop_run(&s->loop);
    assert_int_equal(s->n_done, ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(s->items[i].ran, 1);
        assert_int_equal(s->items[i].done, 1);
    }
    stage_free(s);
}

static void results(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, ITEMS);
    gate_open(&s->gate);
    s->items[0].give = HF_EFULL;
    s->items[1].give = HF_EIO;
    s->items[1].silent = true;
    for (size_t i = 0; i < 3; i++) {
        must_submit(s, i);
    }
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[0].code, HF_EFULL);
    assert_string_equal(s->items[0].msg, "item 0 failed");
    assert_int_equal(s->items[1].code, HF_EIO);
    assert_non_null(strstr(s->items[1].msg, "io"));
    assert_int_equal(s->items[2].code, HF_OK);
    stage_free(s);
}

/* What runs is not counted: one runs, two wait, the next is refused and never calls back. */
static void a_full_queue_refuses(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, 2);
    struct hf_err err;
    hold_the_worker(s);
    must_submit(s, 1);
    must_submit(s, 2);
    for (size_t i = 3; i < 5; i++) {
        assert_int_equal(submit(s, i, &err), HF_EFULL);
        assert_non_null(strstr(err.msg, "(2)"));
        assert_null(s->items[i].op);
    }
    gate_open(&s->gate);
    hf_loop_run(&s->loop);
    assert_int_equal(s->n_done, 3);
    assert_int_equal(s->items[3].ran + s->items[3].done, 0);
    must_submit(s, 3); /* there is room again */
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[3].done, 1);
    stage_free(s);
}

static void canceled_before_it_started(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, ITEMS);
    hold_the_worker(s);
    must_submit(s, 1);
    must_submit(s, 2);
    hf_op_cancel(s->items[1].op);
    hf_op_cancel(s->items[1].op);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->items[1].done, 0); /* its turn comes first */
    gate_open(&s->gate);
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[1].ran, 0);
    assert_int_equal(s->items[1].done, 1);
    assert_int_equal(s->items[1].code, HF_ECANCELED);
    assert_int_equal(s->items[2].code, HF_OK);
    assert_int_equal(s->items[0].code, HF_OK);
    stage_free(s);
}

static size_t ran_so_far(struct stage *s)
{
    pthread_mutex_lock(&s->gate.lock);
    size_t n = s->n_ran;
    pthread_mutex_unlock(&s->gate.lock);
    return n;
}

static void canceled_while_running(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, ITEMS);
    hold_the_worker(s);
    must_submit(s, 1);
    hf_scope_cancel(&s->scope);
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[0].ran, 1);
    assert_int_equal(s->items[0].code, HF_ECANCELED);
    assert_string_equal(s->items[0].msg, "stopped while running");
    assert_int_equal(s->items[1].ran, 0);
    assert_int_equal(s->items[1].code, HF_ECANCELED);
    assert_int_equal(s->empties, 1);
    /* A cancel that comes too late changes nothing. */
    gate_open(&s->gate);
    must_submit(s, 2);
    while (ran_so_far(s) < 2) {
        (void)poll(NULL, 0, 1);
    }
    hf_op_cancel(s->items[2].op);
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[2].code, HF_OK);
    stage_free(s);
}

/* Waiting items report that they were cancelled; the running one ends first. */
static void freed_with_items_queued(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, ITEMS);
    hold_the_worker(s);
    for (size_t i = 1; i < 5; i++) {
        must_submit(s, i);
    }
    hf_op_cancel(s->items[0].op);
    hf_pool_free(s->pool);
    s->pool = NULL;
    assert_int_equal(s->n_done, 0); /* not inside the call */
    hf_loop_run(&s->loop);
    assert_int_equal(s->n_done, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(s->items[i].ran, i == 0 ? 1 : 0);
        assert_int_equal(s->items[i].done, 1);
        assert_int_equal(s->items[i].code, HF_ECANCELED);
    }
    assert_int_equal(s->empties, 1);
    stage_free(s);
}

static void never_used(void **state)
{
    (void)state;
    struct stage *s = stage_new(0, 1); /* no threads asked for: one is started all the same */
    struct stage *unused = stage_new(4, 4);
    gate_open(&s->gate);
    must_submit(s, 0);
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[0].code, HF_OK);
    stage_free(s);
    stage_free(unused);
    hf_pool_free(NULL);
}

static enum hf_rc look_at_thread(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    (void)err;
    sigset_t *blocked = arg;
    char name[32] = "";
    pthread_sigmask(SIG_SETMASK, NULL, blocked);
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return strcmp(name, "a-name-too-long") == 0 ? HF_OK : HF_EINTERNAL;
}

/* Signals are the loop thread's: a worker never takes one. */
static void threads_block_signals(void **state)
{
    (void)state;
    struct stage *s = stage_new(1, 1);
    sigset_t blocked;
    sigset_t mine;
    sigemptyset(&blocked);
    struct hf_err err;
    assert_int_equal(hf_pool_submit(s->pool, &s->scope, look_at_thread, &blocked, done,
                                    &s->items[0], NULL, &err),
                     HF_OK);
    hf_loop_run(&s->loop);
    assert_int_equal(s->items[0].code, HF_OK);
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGWINCH, SIGHUP};
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    for (size_t i = 0; i < HF_COUNT(signals); i++) {
        assert_int_equal(sigismember(&blocked, signals[i]), 1);
        assert_int_equal(sigismember(&mine, signals[i]), 0);
    }
    stage_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_order),
        cmocka_unit_test(several_threads),
        cmocka_unit_test(results),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(canceled_before_it_started),
        cmocka_unit_test(canceled_while_running),
        cmocka_unit_test(freed_with_items_queued),
        cmocka_unit_test(never_used),
        cmocka_unit_test(threads_block_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
