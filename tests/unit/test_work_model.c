/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker pools under random use: jobs of several tempers are handed in, cancelled at every stage,
 * one by one and by scope, from outside and from each other's callbacks, and pools are freed with
 * all of that under way. Each job that was taken reports once, on the loop thread, with what its
 * function returned or, if it never ran, as cancelled.
 */
#include "base/prelude.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/work.h"
#include "support_loop.h"
#include "support_seed.h"

#define SCOPES 3
#define JOBS   64
#define ROUNDS 60

enum temper {
    QUICK,    /* returns at once */
    FAILS,    /* with an error */
    SILENT,   /* with a code and no reason */
    PATIENT,  /* until it is cancelled, and says so */
    STUBBORN, /* until it is cancelled, and succeeds all the same */
    GATED,    /* until the test opens its gate */
    TEMPERS
};

struct stage;

struct job {
    struct stage *stage;
    enum temper temper;
    size_t scope;
    struct hf_op *op;
    bool used, reported, canceled, starting;
    uint64_t number;
    atomic_bool gate;
    /* Of the worker, read after it has reported. */
    atomic_bool ran;
    uint64_t started; /* the how manieth of the pool */
};

struct stage {
    struct hf_loop loop;
    pthread_t thread;
    uint64_t random;
    struct hf_pool *pool;
    unsigned threads;
    size_t queue_max;
    struct hf_scope scopes[SCOPES];
    struct job jobs[JOBS];
    size_t n, open, live[SCOPES];
    unsigned empties[SCOPES], emptied[SCOPES];
    bool closing;
    atomic_uint_fast64_t starts;
    uint64_t last_started; /* with one thread */
    /* Over all rounds. */
    uint64_t refused, never_ran, ran_canceled;
};

static enum hf_rc work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct job *j = arg;
    j->started = atomic_fetch_add(&j->stage->starts, 1) + 1;
    atomic_store(&j->ran, true);
    switch (j->temper) {
    case PATIENT:
    case STUBBORN:
        while (!hf_op_canceled(op)) {
            (void)poll(NULL, 0, 1);
        }
        return j->temper == STUBBORN ? HF_OK : hf_fail(err, HF_ECANCELED, "was told to stop");
    case GATED:
        while (!atomic_load(&j->gate)) {
            (void)poll(NULL, 0, 1);
        }
        return HF_OK;
    case FAILS:
        return hf_fail(err, HF_EDENIED, "job %llu", (unsigned long long)j->number);
    case SILENT:
        return HF_ENOTSUP;
    case QUICK:
    case TEMPERS:
    default:
        return HF_OK;
    }
}

static void move(struct stage *s);

static void judge(struct stage *s, struct job *j, const struct hf_err *err)
{
    static const enum hf_rc codes[] = {HF_OK, HF_EDENIED, HF_ENOTSUP, HF_ECANCELED, HF_OK, HF_OK};
    enum hf_rc got = err != NULL ? err->code : HF_OK;
    if (!atomic_load(&j->ran)) {
        assert_true(j->canceled || s->closing);
        assert_int_equal(got, HF_ECANCELED);
        assert_string_equal(err->msg, "canceled before it started");
        s->never_ran++;
        return;
    }
    s->ran_canceled += j->canceled;
    assert_int_equal(got, codes[j->temper]);
    char want[32];
    snprintf(want, sizeof(want), "job %llu", (unsigned long long)j->number);
    assert_true(j->temper != FAILS || strcmp(err->msg, want) == 0);
    assert_true(j->temper != SILENT || strstr(err->msg, hf_rc_name(HF_ENOTSUP)) != NULL);
    if (s->threads == 1) { /* in the order in which they came */
        assert_true(j->started > s->last_started);
        s->last_started = j->started;
    }
}

static void done(void *user, const struct hf_err *err)
{
    struct job *j = user;
    struct stage *s = j->stage;
    assert_true(pthread_equal(pthread_self(), s->thread));
    assert_true(j->used && !j->reported && !j->starting);
    j->reported = true;
    j->op = NULL;
    judge(s, j, err);
    s->open--;
    s->live[j->scope]--;
    if (!s->closing && hf_test_below(&s->random, 3) == 0) {
        move(s);
    }
    s->emptied[j->scope] += s->live[j->scope] == 0;
}

static void submit(struct stage *s)
{
    if (s->n == JOBS || s->closing) {
        return;
    }
    struct job *j = &s->jobs[s->n];
    memset(j, 0, sizeof(*j));
    j->stage = s;
    j->number = s->n;
    j->temper = (enum temper)hf_test_below(&s->random, TEMPERS);
    j->scope = hf_test_below(&s->random, SCOPES);
    j->used = j->starting = true;
    struct hf_err err = {.code = HF_OK};
    enum hf_rc rc = hf_pool_submit(s->pool, &s->scopes[j->scope], work, j, done, j, &j->op, &err);
    j->starting = false;
    if (rc != HF_OK) {
        assert_int_equal(rc, HF_EFULL);
        assert_non_null(strstr(err.msg, "the queue of pool 'model' is full"));
        assert_true(s->open >= s->queue_max);
        assert_null(j->op);
        j->used = false;
        s->refused++;
        return;
    }
    s->n++;
    s->open++;
    s->live[j->scope]++;
    assert_non_null(j->op);
    assert_false(hf_op_canceled(j->op));
}

static void cancel_scope(struct stage *s, size_t scope)
{
    for (size_t i = 0; i < s->n; i++) {
        struct job *j = &s->jobs[i];
        j->canceled = j->canceled || (j->op != NULL && j->scope == scope);
    }
    hf_scope_cancel(&s->scopes[scope]);
}

static void move(struct stage *s)
{
    struct job *j = s->n > 0 ? &s->jobs[hf_test_below(&s->random, s->n)] : NULL;
    switch (hf_test_below(&s->random, 8)) {
    case 0:
        if (j != NULL && j->op != NULL) {
            hf_op_cancel(j->op);
            hf_op_cancel(j->op);
            j->canceled = true;
        }
        break;
    case 1:
        if (hf_test_below(&s->random, 4) == 0) {
            cancel_scope(s, hf_test_below(&s->random, SCOPES));
        }
        break;
    case 2:
    case 3:
        if (j != NULL) {
            atomic_store(&j->gate, true);
        }
        break;
    default:
        submit(s);
    }
}

static void empty(void *user)
{
    struct stage *s = ((struct job *)user)->stage; /* a job stands for each scope */
    size_t scope = ((struct job *)user)->scope;
    s->empties[scope]++;
    assert_int_equal(s->live[scope], 0);
    assert_int_equal(s->empties[scope], s->emptied[scope]);
}

static bool all_reported(void *user)
{
    return ((struct stage *)user)->open == 0;
}

/* The end in one of three ways: everything is waited for, cancelled and waited for, or the pool
 * goes while jobs run and others are queued. */
static void finish(struct stage *s, int way)
{
    s->closing = true;
    for (size_t i = 0; i < s->n; i++) {
        atomic_store(&s->jobs[i].gate, true);
        bool waits = s->jobs[i].temper == PATIENT || s->jobs[i].temper == STUBBORN;
        if (s->jobs[i].op != NULL && (waits || way == 1)) {
            hf_op_cancel(s->jobs[i].op);
            s->jobs[i].canceled = true;
        }
    }
    if (way == 2) {
        hf_pool_free(s->pool);
        s->pool = NULL;
    }
    assert_true(hf_test_run_until(&s->loop, all_reported, s, 20000));
    hf_pool_free(s->pool);
}

static void random_use(void **state)
{
    (void)state;
    struct stage *s = HF_NEW(struct stage);
    struct job doors[SCOPES];
    s->random = hf_test_seed();
    s->thread = pthread_self();
    assert_int_equal(hf_loop_init(&s->loop, NULL), HF_OK);
    for (size_t i = 0; i < SCOPES; i++) {
        doors[i] = (struct job){.stage = s, .scope = i};
        s->scopes[i] = (struct hf_scope){.empty = empty, .user = &doors[i]};
    }
    for (int round = 0; round < ROUNDS; round++) {
        s->threads = 1 + (unsigned)hf_test_below(&s->random, 3);
        s->queue_max = 1 + hf_test_below(&s->random, 8);
        s->pool = hf_pool_new(&s->loop, "model", s->threads, s->queue_max);
        s->n = 0;
        s->closing = false;
        s->last_started = 0;
        atomic_store(&s->starts, 0);
        for (size_t moves = 20 + hf_test_below(&s->random, 150); moves > 0; moves--) {
            move(s);
            if (hf_test_below(&s->random, 3) == 0) {
                (void)poll(NULL, 0, (int)hf_test_below(&s->random, 2));
                uv_run(&s->loop.uv, UV_RUN_NOWAIT);
            }
        }
        finish(s, round % 3);
        for (size_t i = 0; i < s->n; i++) {
            assert_true(s->jobs[i].reported);
        }
        for (size_t i = 0; i < SCOPES; i++) {
            assert_null(s->scopes[i].first);
            assert_int_equal(s->empties[i], s->emptied[i]);
        }
        assert_int_equal(s->loop.live, 0);
    }
    assert_true(s->refused > 10 && s->never_ran > 10 && s->ran_canceled > 10);
    hf_test_loop_close(&s->loop);
    hf_free(s);
}

/* A cancel that races with the start of the job, many times over: run or not, one report, and the
 * report is true. */
static enum hf_rc touch(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    (void)err;
    atomic_store((atomic_bool *)arg, true);
    return HF_OK;
}

struct race {
    atomic_bool ran;
    unsigned reports;
    enum hf_rc code;
};

static void race_done(void *user, const struct hf_err *err)
{
    struct race *r = user;
    r->reports++;
    r->code = err != NULL ? err->code : HF_OK;
}

static bool race_over(void *user)
{
    return ((struct race *)user)->reports > 0;
}

static void cancel_against_start(void **state)
{
    (void)state;
    struct hf_loop loop;
    uint64_t random = hf_test_seed();
    assert_int_equal(hf_loop_init(&loop, NULL), HF_OK);
    struct hf_pool *pool = hf_pool_new(&loop, "race", 1, 4);
    for (int round = 0; round < 1500; round++) {
        struct race r = {.reports = 0};
        struct hf_op *op = NULL;
        assert_int_equal(hf_pool_submit(pool, NULL, touch, &r.ran, race_done, &r, &op, NULL),
                         HF_OK);
        for (volatile size_t spin = hf_test_below(&random, 4000); spin > 0;) {
            spin = spin - 1;
        }
        hf_op_cancel(op);
        while (!race_over(&r)) {
            uv_run(&loop.uv, UV_RUN_ONCE);
        }
        assert_int_equal(r.reports, 1);
        assert_int_equal(r.code, atomic_load(&r.ran) ? HF_OK : HF_ECANCELED);
    }
    hf_pool_free(pool);
    hf_test_loop_close(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use),
        cmocka_unit_test(cancel_against_start),
    };
    return cmocka_run_group_tests_name("work_model", tests, NULL, NULL);
}
