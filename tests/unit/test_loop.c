/* SPDX-License-Identifier: Apache-2.0
 *
 * base/loop: the four rules of every operation, timers, draining, and a close that names what was
 * forgotten. Operations are finished by the test or by threads of its own.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/support_loop.h"

#define WAIT_MS 20000

struct probe {
    struct hf_op op;
    struct hf_loop *loop;
    struct hf_scope *scope;
    int done, destroyed, cancels;
    enum hf_rc code;
    char msg[64];
    pthread_t on;
    struct probe *then; /* started by done */
    char order[2];      /* its letter */
    char *story;        /* what happened, in order */
};

static void tell(struct probe *p, char what)
{
    size_t n = strlen(p->story);
    p->story[n] = what;
    p->story[n + 1] = p->order[0];
    p->story[n + 2] = '\0';
}

static void probe_begin(struct probe *p);

static void probe_done(void *user, const struct hf_err *err)
{
    struct probe *p = user;
    p->done++;
    p->code = err != NULL ? err->code : HF_OK;
    snprintf(p->msg, sizeof(p->msg), "%.60s", err != NULL ? err->msg : "");
    p->on = pthread_self();
    tell(p, 'd');
    if (p->then != NULL) {
        probe_begin(p->then);
        hf_op_finish(&p->then->op, NULL);
    }
}

static void probe_destroy(struct hf_op *op)
{
    struct probe *p = (struct probe *)op;
    assert_int_equal(p->done, 1);
    p->destroyed++;
    tell(p, 'x');
}

static void probe_cancel(struct hf_op *op)
{
    struct probe *p = (struct probe *)op;
    p->cancels++;
}

static void probe_begin(struct probe *p)
{
    p->op.destroy = probe_destroy;
    p->op.cancel = probe_cancel;
    hf_op_begin(&p->op, p->loop, p->scope, probe_done, p);
}

struct stage {
    struct hf_loop loop;
    struct hf_scope scope;
    char story[512];
    int empties;
    struct probe p[8];
};

static void stage_empty(void *user)
{
    struct stage *s = user;
    s->empties++;
    snprintf(s->story + strlen(s->story), 3, "E.");
}

static int setup(void **state)
{
    struct hf_err err;
    struct stage *s = HF_NEW(struct stage);
    assert_int_equal(hf_loop_init(&s->loop, &err), HF_OK);
    s->scope = (struct hf_scope){.empty = stage_empty, .user = s};
    for (size_t i = 0; i < HF_COUNT(s->p); i++) {
        s->p[i].loop = &s->loop;
        s->p[i].scope = &s->scope;
        s->p[i].order[0] = (char)('0' + i);
        s->p[i].story = s->story;
    }
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    hf_test_loop_close(&s->loop);
    hf_free(s);
    return 0;
}

/* Rule 1: done comes once, on the loop thread, and not inside the call; in the order in which
 * operations were finished. */
static void done_comes_later_and_once(void **state)
{
    struct stage *s = *state;
    for (size_t i = 0; i < 3; i++) {
        probe_begin(&s->p[i]);
    }
    hf_op_finish(&s->p[1].op, NULL);
    struct hf_err err;
    hf_fail(&err, HF_EIO, "broke");
    hf_op_finish(&s->p[0].op, &err);
    memset(&err, 0, sizeof(err)); /* the finisher's copy may go at once */
    assert_string_equal(s->story, "");
    hf_loop_drain(&s->loop);
    assert_string_equal(s->story, "d1x1d0x0");
    assert_int_equal(s->p[0].code, HF_EIO);
    assert_string_equal(s->p[0].msg, "broke");
    assert_int_equal(s->p[1].code, HF_OK);
    assert_int_equal(s->empties, 0);
    hf_op_finish(&s->p[2].op, NULL);
    hf_loop_run(&s->loop); /* ends by itself: nothing is left to wait for */
    assert_string_equal(s->story, "d1x1d0x0d2x2E.");
    hf_loop_run(&s->loop);
    assert_int_equal(s->p[2].done, 1);
}

/* Rule 2: cancel only asks; it asks once; the result that wins is reported. */
static void cancel_is_idempotent(void **state)
{
    struct stage *s = *state;
    struct hf_err err;
    hf_fail(&err, HF_ECANCELED, "stopped");
    probe_begin(&s->p[0]);
    probe_begin(&s->p[1]);
    assert_false(hf_op_canceled(&s->p[0].op));
    for (int i = 0; i < 3; i++) {
        hf_op_cancel(&s->p[0].op);
        hf_op_cancel(&s->p[1].op);
    }
    hf_op_cancel(NULL);
    assert_true(hf_op_canceled(&s->p[0].op));
    assert_int_equal(s->p[0].cancels, 1);
    assert_int_equal(s->p[0].done, 0);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->p[0].done, 0);
    hf_op_finish(&s->p[0].op, &err);
    hf_op_finish(&s->p[1].op, NULL); /* it was ready all the same */
    hf_op_cancel(&s->p[1].op);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->p[0].code, HF_ECANCELED);
    assert_int_equal(s->p[1].code, HF_OK);
    /* The same struct may be begun again, uncancelled. */
    s->p[0].done = 0;
    probe_begin(&s->p[0]);
    assert_false(hf_op_canceled(&s->p[0].op));
    hf_op_finish(&s->p[0].op, NULL);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->p[0].code, HF_OK);
    /* Without a cancel function the flag is enough. */
    s->p[2].op.cancel = NULL;
    hf_op_begin(&s->p[2].op, &s->loop, NULL, probe_done, &s->p[2]);
    hf_op_cancel(&s->p[2].op);
    assert_true(hf_op_canceled(&s->p[2].op));
    hf_op_finish(&s->p[2].op, NULL);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->p[2].done, 1);
}

/* Rule 3: a scope is empty when its last operation has reported, and only then. */
static void scopes(void **state)
{
    struct stage *s = *state;
    struct hf_scope other = {0};
    s->p[3].scope = &other;
    for (size_t i = 0; i < 4; i++) {
        probe_begin(&s->p[i]);
    }
    hf_scope_cancel(&s->scope);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(s->p[i].cancels, 1);
    }
    assert_int_equal(s->p[3].cancels, 0);
    hf_op_finish(&s->p[1].op, NULL);
    hf_op_finish(&s->p[0].op, NULL);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->empties, 0);
    /* The last one starts a new one from done: not empty yet. */
    s->p[2].then = &s->p[4];
    hf_op_finish(&s->p[2].op, NULL);
    hf_loop_drain(&s->loop);
    assert_int_equal(s->empties, 1);
    assert_string_equal(s->story, "d1x1d0x0d2x2d4x4E.");
    assert_ptr_equal(other.first, &s->p[3].op);
    hf_op_finish(&s->p[3].op, NULL);
    hf_loop_drain(&s->loop);
    assert_null(other.first);
    assert_int_equal(s->empties, 1);
    hf_scope_cancel(&other); /* empty: nothing to do */
}

/* Rule 4: what was abandoned never calls back, and the loop does not wait for it. */
static void abandoned(void **state)
{
    struct stage *s = *state;
    for (size_t i = 0; i < 3; i++) {
        probe_begin(&s->p[i]);
    }
    hf_op_abandon(&s->p[1].op); /* from the middle of the scope */
    hf_scope_cancel(&s->scope);
    assert_int_equal(s->p[1].cancels, 0);
    hf_op_finish(&s->p[0].op, NULL);
    hf_op_finish(&s->p[2].op, NULL);
    hf_loop_run(&s->loop);
    assert_int_equal(s->p[1].done + s->p[1].destroyed, 0);
    assert_int_equal(s->empties, 1);
    probe_begin(&s->p[3]);
    hf_op_abandon(&s->p[3].op);
    hf_loop_run(&s->loop);
    assert_int_equal(s->p[3].done, 0);
    assert_int_equal(s->empties, 1);
}

#define THREADS 4
#define OPS     500

struct crowd {
    struct hf_loop *loop;
    struct hf_op ops[THREADS][OPS];
    pthread_t loop_thread;
    int done, wrong;
    pthread_barrier_t start;
};

static void crowd_done(void *user, const struct hf_err *err)
{
    struct crowd *c = user;
    c->done++;
    bool right =
        err != NULL && err->code == HF_EAGAIN && pthread_equal(pthread_self(), c->loop_thread);
    c->wrong += right ? 0 : 1;
}

struct one_of_crowd {
    struct crowd *crowd;
    size_t row;
};

static void *finish_row(void *arg)
{
    struct one_of_crowd *o = arg;
    pthread_barrier_wait(&o->crowd->start);
    for (size_t i = 0; i < OPS; i++) {
        struct hf_err err;
        hf_fail(&err, HF_EAGAIN, "from thread %zu", o->row);
        hf_op_finish(&o->crowd->ops[o->row][i], &err);
    }
    return NULL;
}

/* Many threads hand in at once: none is lost, all report on the loop thread. */
static void from_many_threads(void **state)
{
    struct stage *s = *state;
    struct crowd *c = HF_NEW(struct crowd);
    c->loop = &s->loop;
    c->loop_thread = pthread_self();
    pthread_barrier_init(&c->start, NULL, THREADS);
    pthread_t threads[THREADS];
    struct one_of_crowd rows[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < OPS; i++) {
            hf_op_begin(&c->ops[t][i], &s->loop, &s->scope, crowd_done, c);
        }
    }
    for (size_t t = 0; t < THREADS; t++) {
        rows[t] = (struct one_of_crowd){c, t};
        assert_int_equal(pthread_create(&threads[t], NULL, finish_row, &rows[t]), 0);
    }
    hf_loop_run(&s->loop); /* the open operations keep it running */
    assert_int_equal(c->done, THREADS * OPS);
    assert_int_equal(c->wrong, 0);
    assert_int_equal(s->empties, 1);
    for (size_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
    }
    pthread_barrier_destroy(&c->start);
    hf_free(c);
}

struct tick {
    struct hf_loop *loop;
    struct hf_timer timer;
    struct hf_timer *to_stop;
    int fired, again;
    uint64_t at_ns;
};

static void tick_fired(void *user)
{
    struct tick *t = user;
    t->fired++;
    t->at_ns = hf_now_ns();
    if (t->to_stop != NULL) {
        hf_timer_stop(t->to_stop);
    }
    if (t->again > 0) {
        t->again--;
        hf_timer_start(&t->timer, t->loop, 1, tick_fired, t);
    }
}

static bool has_fired(void *user)
{
    return ((struct tick *)user)->fired > 0;
}

static void timers(void **state)
{
    struct stage *s = *state;
    struct tick t = {.loop = &s->loop};
    assert_false(hf_timer_active(&t.timer));
    hf_timer_stop(&t.timer); /* never started */
    hf_timer_close(&t.timer);
    uint64_t from = hf_now_ns();
    hf_timer_start(&t.timer, &s->loop, 20, tick_fired, &t);
    assert_true(hf_timer_active(&t.timer));
    hf_loop_run(&s->loop);
    assert_int_equal(t.fired, 1);
    assert_true(t.at_ns - from >= 19 * HF_MS);
    assert_false(hf_timer_active(&t.timer));
    /* Started again from inside. */
    t.again = 3;
    hf_timer_start(&t.timer, &s->loop, 0, tick_fired, &t);
    hf_loop_run(&s->loop);
    assert_int_equal(t.fired, 5);
    /* Starting again replaces the time: an hour never passes here. */
    t.fired = 0;
    hf_timer_start(&t.timer, &s->loop, 3600000, tick_fired, &t);
    hf_timer_start(&t.timer, &s->loop, 1, tick_fired, &t);
    assert_true(hf_test_run_until(&s->loop, has_fired, &t, WAIT_MS));
    assert_int_equal(t.fired, 1);
    hf_timer_close(&t.timer);
    hf_timer_close(&t.timer);
    assert_false(hf_timer_active(&t.timer));
    /* After close it may be started anew. */
    hf_timer_start(&t.timer, &s->loop, 0, tick_fired, &t);
    hf_loop_run(&s->loop);
    assert_int_equal(t.fired, 2);
    hf_timer_close(&t.timer);
}

/* Two timers that are due at once: the first one stops or closes the other, which never fires. */
static void stopped_timers_never_fire(void **state)
{
    struct stage *s = *state;
    struct tick a = {.loop = &s->loop};
    struct tick b = {.loop = &s->loop};
    a.to_stop = &b.timer;
    b.to_stop = &a.timer;
    hf_timer_start(&a.timer, &s->loop, 1, tick_fired, &a);
    hf_timer_start(&b.timer, &s->loop, 1, tick_fired, &b);
    hf_loop_run(&s->loop);
    assert_int_equal(a.fired + b.fired, 1);
    struct tick *gone = HF_NEW(struct tick);
    gone->loop = &s->loop;
    hf_timer_start(&gone->timer, &s->loop, 0, tick_fired, gone);
    hf_timer_close(&gone->timer);
    hf_free(gone); /* at once: the loop has not run yet */
    hf_timer_close(&a.timer);
    hf_timer_close(&b.timer);
    hf_loop_run(&s->loop);
}

static void stop_and_drain(void **state)
{
    struct stage *s = *state;
    struct tick t = {.loop = &s->loop};
    hf_timer_start(&t.timer, &s->loop, 3600000, tick_fired, &t);
    hf_loop_drain(&s->loop); /* does not wait for it */
    assert_int_equal(t.fired, 0);
    hf_loop_stop(&s->loop);
    hf_loop_run(&s->loop); /* returns at once */
    assert_int_equal(t.fired, 0);
    hf_timer_close(&t.timer);
}

static void close_names_what_is_open(void **state)
{
    (void)state;
    struct hf_loop loop;
    struct hf_err err;
    struct tick t = {.loop = &loop};
    struct probe p = {.loop = &loop, .story = (char[16]){0}};
    assert_int_equal(hf_loop_init(&loop, &err), HF_OK);
    probe_begin(&p);
    assert_int_equal(hf_loop_close(&loop, &err), HF_EINTERNAL);
    assert_non_null(strstr(err.msg, "1 operation"));
    hf_op_finish(&p.op, NULL);
    hf_loop_run(&loop);
    hf_timer_start(&t.timer, &loop, 3600000, tick_fired, &t);
    assert_int_equal(hf_loop_close(&loop, &err), HF_EINTERNAL);
    assert_non_null(strstr(err.msg, "timer"));
    hf_timer_close(&t.timer);
    assert_int_equal(hf_loop_close(&loop, &err), HF_OK);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(done_comes_later_and_once),
        CASE(cancel_is_idempotent),
        CASE(scopes),
        CASE(abandoned),
        CASE(from_many_threads),
        CASE(timers),
        CASE(stopped_timers_never_fire),
        CASE(stop_and_drain),
        cmocka_unit_test(close_names_what_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
