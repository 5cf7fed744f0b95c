/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers against a list: at every call the one that fires is the first of those that are due, by
 * time and then by the order in which they were started, whatever callbacks start, stop and close
 * meanwhile, and however late the loop comes round. And operations against counters: each reports
 * once, and each scope is told once that it is empty.
 */
#include "base/prelude.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/mem.h"
#include "support_loop.h"
#include "support_seed.h"

#define TIMERS  12
#define FIRINGS 2500

struct stage;

struct entry {
    struct stage *stage;
    struct hf_timer timer;
    bool active;
    uint64_t due_ms; /* by the loop's own clock */
    uint64_t order;
};

struct stage {
    struct hf_loop loop;
    uint64_t random;
    struct entry entries[TIMERS];
    uint64_t orders, fired, late;
};

static void fired(void *user);

static const struct entry *first_due(const struct stage *s)
{
    const struct entry *first = NULL;
    for (size_t i = 0; i < TIMERS; i++) {
        const struct entry *e = &s->entries[i];
        bool sooner = first == NULL || e->due_ms < first->due_ms ||
                      (e->due_ms == first->due_ms && e->order < first->order);
        first = e->active && sooner ? e : first;
    }
    return first;
}

static void start(struct entry *e, uint64_t delay_ms)
{
    struct stage *s = e->stage;
    hf_timer_start(&e->timer, &s->loop, delay_ms, fired, e);
    e->active = true;
    e->due_ms = uv_now(&s->loop.uv) + delay_ms;
    e->order = s->orders++;
}

static void act(struct stage *s)
{
    struct entry *e = &s->entries[hf_test_below(&s->random, TIMERS)];
    switch (hf_test_below(&s->random, 8)) {
    case 0:
        hf_timer_stop(&e->timer);
        e->active = false;
        break;
    case 1:
        hf_timer_close(&e->timer);
        e->active = false;
        break;
    case 2:
        start(e, 3600000); /* as good as never, until it is replaced */
        break;
    default:
        start(e, hf_test_below(&s->random, 7));
    }
    assert_int_equal(hf_timer_active(&e->timer), e->active);
}

static void fired(void *user)
{
    struct entry *e = user;
    struct stage *s = e->stage;
    s->fired++;
    assert_true(e->active);
    assert_ptr_equal(first_due(s), e);
    assert_true(uv_now(&s->loop.uv) >= e->due_ms);
    e->active = false;
    assert_false(hf_timer_active(&e->timer));
    if (hf_test_below(&s->random, 40) == 0) {
        s->late++;
        (void)poll(NULL, 0, 9); /* all of the short ones are overdue when this returns */
    }
    for (size_t n = hf_test_below(&s->random, 4); n > 0; n--) {
        act(s);
    }
    if (hf_test_below(&s->random, 3) > 0) {
        start(e, 1 + hf_test_below(&s->random, 5)); /* itself, from inside */
    }
    if (s->fired >= FIRINGS) {
        hf_loop_stop(&s->loop);
    }
}

static void timers_fire_in_order(void **state)
{
    (void)state;
    struct stage *s = HF_NEW(struct stage);
    s->random = hf_test_seed();
    assert_int_equal(hf_loop_init(&s->loop, NULL), HF_OK);
    for (size_t i = 0; i < TIMERS; i++) {
        s->entries[i].stage = s;
    }
    while (s->fired < FIRINGS) {
        start(&s->entries[0], 0); /* they may all have stopped each other */
        for (size_t i = 1; i < TIMERS; i++) {
            act(s);
        }
        for (size_t i = 0; i < TIMERS; i++) { /* none may keep this from returning */
            if (s->entries[i].active && s->entries[i].due_ms > uv_now(&s->loop.uv) + 1000) {
                start(&s->entries[i], 2);
            }
        }
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    }
    assert_true(s->late > 0);
    /* What is closed never fires, and its memory may go at once. */
    for (size_t i = 0; i < TIMERS; i++) {
        start(&s->entries[i], 0);
        hf_timer_close(&s->entries[i].timer);
    }
    memset(s->entries, 0xff, sizeof(s->entries));
    for (int i = 0; i < 3; i++) {
        uv_run(&s->loop.uv, UV_RUN_NOWAIT);
    }
    hf_test_loop_close(&s->loop);
    hf_free(s);
}

/* Operations */

#define SCOPES 3
#define OPS    10

struct bench;

struct job {
    struct hf_op op; /* first: destroy gets back here */
    struct bench *bench;
    size_t scope; /* SCOPES: none */
    bool open, finished, canceled, starting;
    enum hf_rc result;
    unsigned cancels; /* calls of its cancel function */
};

struct bench {
    struct hf_loop loop;
    uint64_t random;
    struct hf_scope scopes[SCOPES];
    struct job *jobs[OPS]; /* NULL: free */
    size_t live[SCOPES + 1], open;
    uint64_t begun, done, destroyed, empties, emptied[SCOPES]; /* emptied: what empties has to be */
};

static void move(struct bench *b);

static void on_cancel(struct hf_op *op)
{
    ((struct job *)op)->cancels++;
}

static void on_destroy(struct hf_op *op)
{
    struct job *j = (struct job *)op;
    assert_false(j->open);
    j->bench->destroyed++;
    hf_free(j);
}

static void on_done(void *user, const struct hf_err *err)
{
    struct job *j = user;
    struct bench *b = j->bench;
    assert_true(j->open && j->finished && !j->starting);
    assert_int_equal(err != NULL ? err->code : HF_OK, j->result);
    assert_int_equal(j->cancels, j->canceled ? 1 : 0);
    j->open = false;
    b->done++;
    b->open--;
    b->live[j->scope]--;
    for (size_t i = 0; i < OPS; i++) {
        b->jobs[i] = b->jobs[i] == j ? NULL : b->jobs[i];
    }
    if (hf_test_below(&b->random, 3) == 0) {
        move(b); /* may begin another in the same scope, which is then not empty */
    }
    if (j->scope < SCOPES && b->live[j->scope] == 0) {
        b->emptied[j->scope]++;
    }
}

static void on_empty(void *user)
{
    struct bench *b = user;
    b->empties++;
    uint64_t want = 0;
    for (size_t i = 0; i < SCOPES; i++) {
        want += b->emptied[i];
    }
    assert_int_equal(b->empties, want);
}

static void begin(struct bench *b, size_t at)
{
    struct job *j = HF_NEW(struct job);
    j->bench = b;
    j->scope = hf_test_below(&b->random, SCOPES + 1);
    j->op.cancel = on_cancel;
    j->op.destroy = on_destroy;
    j->starting = true;
    hf_op_begin(&j->op, &b->loop, j->scope < SCOPES ? &b->scopes[j->scope] : NULL, on_done, j);
    if (hf_test_below(&b->random, 8) == 0) {
        hf_op_abandon(&j->op); /* no call follows, and nobody destroys it */
        hf_free(j);
        return;
    }
    j->starting = false;
    j->open = true;
    b->jobs[at] = j;
    b->live[j->scope]++;
    b->open++;
    b->begun++;
}

static void finish(struct bench *b, struct job *j)
{
    static const enum hf_rc codes[] = {HF_OK, HF_EIO, HF_ECANCELED};
    if (j->finished) {
        return;
    }
    struct hf_err err = {.code = HF_OK};
    j->result = codes[hf_test_below(&b->random, HF_COUNT(codes))];
    if (j->result != HF_OK) {
        hf_fail(&err, j->result, "on purpose");
    }
    j->finished = true;
    hf_op_finish(&j->op, j->result == HF_OK ? NULL : &err);
}

static void cancel_scope(struct bench *b, size_t scope)
{
    for (size_t i = 0; i < OPS; i++) {
        if (b->jobs[i] != NULL && b->jobs[i]->scope == scope) {
            b->jobs[i]->canceled = true;
        }
    }
    hf_scope_cancel(&b->scopes[scope]);
}

static void move(struct bench *b)
{
    size_t at = hf_test_below(&b->random, OPS);
    struct job *j = b->jobs[at];
    if (j == NULL) {
        begin(b, at);
    } else if (hf_test_below(&b->random, 4) == 0) {
        j->canceled = true;
        hf_op_cancel(&j->op);
        assert_true(hf_op_canceled(&j->op));
    } else if (hf_test_below(&b->random, 30) == 0) {
        cancel_scope(b, hf_test_below(&b->random, SCOPES));
    } else {
        finish(b, j);
    }
    assert_int_equal(b->loop.live, b->open);
}

static void operations_report_once(void **state)
{
    (void)state;
    struct bench *b = HF_NEW(struct bench);
    b->random = hf_test_seed();
    assert_int_equal(hf_loop_init(&b->loop, NULL), HF_OK);
    for (size_t i = 0; i < SCOPES; i++) {
        b->scopes[i] = (struct hf_scope){.empty = on_empty, .user = b};
    }
    for (int round = 0; round < 60000; round++) {
        uint64_t done = b->done;
        move(b);
        assert_int_equal(b->done, done); /* never inside the call */
        if (hf_test_below(&b->random, 5) == 0) {
            uv_run(&b->loop.uv, UV_RUN_NOWAIT);
        }
    }
    /* The loop ends by itself when the last one has reported, and not before. */
    while (b->open > 0) {
        for (size_t i = 0; i < OPS; i++) {
            if (b->jobs[i] != NULL) {
                finish(b, b->jobs[i]);
            }
        }
        hf_loop_drain(&b->loop);
    }
    hf_loop_run(&b->loop);
    assert_true(b->begun > 5000);
    assert_int_equal(b->done, b->begun);
    assert_int_equal(b->destroyed, b->begun);
    assert_int_equal(b->empties, b->emptied[0] + b->emptied[1] + b->emptied[2]);
    for (size_t i = 0; i < SCOPES; i++) {
        assert_null(b->scopes[i].first);
        assert_true(b->emptied[i] > 100);
    }
    hf_test_loop_close(&b->loop);
    hf_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order),
        cmocka_unit_test(operations_report_once),
    };
    return cmocka_run_group_tests_name("loop_model", tests, NULL, NULL);
}
