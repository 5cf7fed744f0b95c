/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/handoff, the claim: who may follow whom, on this machine and elsewhere. Real stores,
 * real processes; what is recovered and restored is in test_handoff_restore.c.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "supervisor/tree.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_handoff.h"

/* ---- what the store alone tells ---- */

static void the_first_attempt(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_int_equal(s.out.last.attempt, 0);
    struct hf_claim stored = {.attempt = 0};
    struct hf_err err;
    expect_rc(hf_lineage_get_claim(&s.bench.run, NULL, 1, &stored, &err), HF_OK, &err);
    assert_string_equal(stored.nonce, s.out.claim.nonce);
    assert_int_equal(stored.kind, HF_CLAIM_RUN);
    assert_int_equal(stored.command.len, 2);
    assert_string_equal(stored.command.items[1], "--lr=1");
    assert_string_equal(stored.folder, "/home/someone");
    assert_string_equal(stored.boot_id, s.boot_id);
    assert_int_equal(stored.pid, getpid());
    assert_int_equal(stored.pid_start, hf_proc_start(getpid()));
    assert_false(stored.fresh);
    hf_claim_release(&stored);
    handoff_close(&s);
}

static void after_an_end(void **state)
{
    (void)state;
    static const enum origin origins[] = {HERE, REBOOTED, ELSEWHERE};
    for (size_t i = 0; i < HF_COUNT(origins); i++) {
        struct handoff_scene s;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, origins[i]);
        handoff_end_as(&s, "preempted");
        uint64_t from = hf_now_ns();
        handoff_expect(&s, HF_HANDOFF_CLAIMED);
        assert_true(hf_now_ns() - from < HANDOFF_DEAD_MS * HF_MS); /* nothing to wait for */
        assert_int_equal(s.out.claim.attempt, 2);
        assert_int_equal(s.out.last.attempt, 1);
        handoff_close(&s);
    }
}

static void another_command(void **state)
{
    (void)state;
    static const char *const others[][4] = {
        {"train", NULL}, {"train", "--lr=1", "more", NULL}, {"train", "--lr=2", NULL}, {NULL}};
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        struct handoff_scene s;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, HERE);
        handoff_end_as(&s, "preempted");
        s.in.argv = others[i];
        handoff_expect(&s, HF_HANDOFF_DIFFERS);
        assert_string_equal(s.out.last.command.items[1], "--lr=1");
        assert_int_equal(handoff_highest(&s), 1);
        s.in.resume = i % 2 == 0;
        s.in.fresh = !s.in.resume;
        handoff_expect(&s, HF_HANDOFF_CLAIMED);
        assert_int_equal(s.out.claim.fresh, s.in.fresh);
        assert_int_equal(handoff_highest(&s), 2);
        handoff_close(&s);
    }
}

/* What ended before it got anywhere binds nobody to its command; what saved something does. */
static void commands_that_got_nowhere(void **state)
{
    (void)state;
    static const char *const other[] = {"train", "--lr=2", NULL};
    static const struct {
        const char *outcome;
        bool saved;
        enum hf_handoff_verdict verdict;
    } table[] = {
        {"not-started", false, HF_HANDOFF_CLAIMED}, {"failed", false, HF_HANDOFF_CLAIMED},
        {"failed", true, HF_HANDOFF_DIFFERS},       {"preempted", false, HF_HANDOFF_DIFFERS},
        {"vanished", false, HF_HANDOFF_DIFFERS},
    };
    for (size_t i = 0; i < HF_COUNT(table); i++) {
        struct handoff_scene s;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, HERE);
        if (table[i].saved) {
            must_commit(&s.bench, &s.last, 1);
        }
        handoff_end_as(&s, table[i].outcome);
        s.in.argv = other;
        handoff_expect(&s, table[i].verdict);
        handoff_close(&s);
    }
}

static void finished_and_stopped(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct hf_err err;
    handoff_open(&s, NULL);
    handoff_claim_as(&s, 1, HERE);
    handoff_end_as(&s, "finished");
    expect_rc(hf_handoff_close_run(&s.bench.run, NULL, &s.last, HF_CLAIM_FINISHED, &err), HF_OK,
              &err);
    expect_rc(hf_handoff_close_run(&s.bench.run, NULL, &s.last, HF_CLAIM_STOPPED, &err), HF_EEXISTS,
              &err);
    handoff_expect(&s, HF_HANDOFF_FINISHED);
    assert_int_equal(s.out.last.kind, HF_CLAIM_FINISHED);
    s.in.resume = true;
    handoff_expect(&s, HF_HANDOFF_FINISHED);
    s.in.resume = false;
    s.in.fresh = true;
    s.in.argv = (const char *const[]){"other", NULL};
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_int_equal(s.out.claim.attempt, 3);
    assert_true(s.out.claim.fresh);
    handoff_close(&s);
    /* Stopped by a person: the same command goes on, another one is shown what was. */
    handoff_open(&s, NULL);
    handoff_claim_as(&s, 1, HERE);
    handoff_end_as(&s, "stopped");
    expect_rc(hf_handoff_close_run(&s.bench.run, NULL, &s.last, HF_CLAIM_STOPPED, &err), HF_OK,
              &err);
    s.in.argv = (const char *const[]){"other", NULL};
    handoff_expect(&s, HF_HANDOFF_DIFFERS);
    assert_int_equal(s.out.last.attempt, 1);
    s.in.argv = s.argv;
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_int_equal(s.out.claim.attempt, 3);
    handoff_close(&s);
}

/* ---- other machines ---- */

struct other {
    struct handoff_scene *s;
    atomic_bool stop;
    bool ends; /* records its end instead of beating on */
    pthread_t thread;
};

static void *beat(void *arg)
{
    struct other *o = arg;
    for (uint64_t n = 1; !atomic_load(&o->stop); n++) {
        bool superseded = false;
        if (o->ends && n > 5) {
            handoff_end_as(o->s, "preempted");
            return NULL;
        }
        if (!o->ends && hf_lineage_beat(&o->s->bench.run, NULL, &o->s->last,
                                        &(struct hf_beat){.counter = n, .step = -1}, &superseded,
                                        NULL) != HF_OK) {
            abort();
        }
        (void)poll(NULL, 0, 10);
    }
    return NULL;
}

static void other_start(struct other *o, struct handoff_scene *s, bool ends)
{
    *o = (struct other){.s = s, .ends = ends};
    assert_int_equal(pthread_create(&o->thread, NULL, beat, o), 0);
}

static void other_stop(struct other *o)
{
    atomic_store(&o->stop, true);
    pthread_join(o->thread, NULL);
}

/* With and without its local folder here, as with a home that several machines share. */
static void on_another_machine(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct handoff_scene s;
        struct other o;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, ELSEWHERE);
        if (shared == 1) {
            hf_free(handoff_journal(&s));
        }
        other_start(&o, &s, false);
        handoff_expect(&s, HF_HANDOFF_BUSY);
        other_stop(&o);
        assert_non_null(strstr(s.out.why, "attempt 1"));
        assert_non_null(strstr(s.out.why, "'there'"));
        assert_non_null(strstr(s.out.why, "heartbeat moves"));
        assert_int_equal(handoff_highest(&s), 1);
        uint64_t from = hf_now_ns();
        handoff_expect(&s, HF_HANDOFF_CLAIMED); /* it stands still now */
        assert_true(hf_now_ns() - from >= HANDOFF_DEAD_MS * HF_MS);
        handoff_close(&s);
    }
}

/* It ends while its heartbeat is being watched. */
static void an_end_ends_the_watching(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct other o;
    handoff_open(&s, NULL);
    s.in.dead_after_ms = 20000;
    handoff_claim_as(&s, 1, ELSEWHERE);
    other_start(&o, &s, true);
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    other_stop(&o);
    handoff_expect_end(&s, 1, "preempted", 1);
    handoff_close(&s);
}

/* ---- this machine ---- */

static pid_t child_with_token(const char *token)
{
    HF_CLEANUP(hf_freep) char *entry = hf_asprintf("HOLDFAST_TOKEN=%s", token);
    char name[] = "sleep";
    char time[] = "600";
    char *argv[] = {name, time, NULL};
    char *env[] = {entry, NULL};
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execve("/bin/sleep", argv, env);
        _exit(127);
    }
    close(fds[1]);
    char c;
    assert_int_equal(read(fds[0], &c, 1), 0); /* closed by the exec */
    close(fds[0]);
    return pid;
}

static void here_with_another_state_folder(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    handoff_claim_as(&s, 1, HERE);
    pid_t pid = child_with_token(s.last.nonce);
    handoff_expect(&s, HF_HANDOFF_BUSY);
    assert_non_null(strstr(s.out.why, "another state folder"));
    s.in.fresh = true;
    handoff_expect(&s, HF_HANDOFF_BUSY);
    s.in.fresh = false;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    uint64_t from = hf_now_ns();
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_true(hf_now_ns() - from < HANDOFF_DEAD_MS * HF_MS); /* proved, not waited for */
    /* Claimed by a living supervisor, whose command does not run yet: that is this test. */
    handoff_expect(&s, HF_HANDOFF_BUSY);
    assert_int_equal(handoff_highest(&s), 2);
    handoff_close(&s);
}

static void put_keeper(const char *dir, pid_t pid, uint64_t start)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/keeper.json", dir);
    HF_CLEANUP(hf_freep)
    char *text = hf_asprintf("{\"pid\":%d,\"start\":%ju}", (int)pid, (uintmax_t)start);
    put_text(path, text);
}

static void a_living_keeper_is_adopted(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    handoff_claim_as(&s, 1, HERE);
    HF_CLEANUP(hf_freep) char *dir = handoff_journal(&s);
    pid_t pid = child_with_token(s.last.nonce);
    put_keeper(dir, pid, hf_proc_start(pid));
    handoff_expect(&s, HF_HANDOFF_ADOPT);
    assert_string_equal(s.out.last.nonce, s.last.nonce);
    assert_int_equal(kill(pid, 0), 0);
    s.in.argv = (const char *const[]){"other", NULL};
    handoff_expect(&s, HF_HANDOFF_DIFFERS);
    s.in.fresh = true;
    handoff_expect(&s, HF_HANDOFF_BUSY);
    assert_int_equal(handoff_highest(&s), 1);
    /* A pid that was used again is not the keeper. */
    s.in.fresh = false;
    s.in.argv = s.argv;
    put_keeper(dir, pid, hf_proc_start(pid) + 1);
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid); /* what bore the token was ended first */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    handoff_expect_end(&s, 1, "vanished", -1);
    handoff_close(&s);
}

/* Another boot of this very machine: nothing of it can live, nothing is waited for. */
static void after_a_reboot(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    handoff_claim_as(&s, 1, REBOOTED);
    hf_free(handoff_journal(&s));
    uint64_t from = hf_now_ns();
    handoff_expect(&s, HF_HANDOFF_CLAIMED);
    assert_true(hf_now_ns() - from < HANDOFF_DEAD_MS * HF_MS);
    handoff_expect_end(&s, 1, "vanished", -1);
    handoff_close(&s);
}

/* The command ended while no supervisor was there: what it left says how. */
static void ended_alone(void **state)
{
    (void)state;
    static const struct {
        const char *exit;
        bool leaving;
        enum hf_handoff_verdict verdict;
        const char *outcome;
        int64_t code;
    } rows[] = {
        {"{\"status\":0}", false, HF_HANDOFF_FINISHED, "finished", 0},
        {"{\"status\":0}", true, HF_HANDOFF_CLAIMED, "vanished", 0},
        {"{\"status\":256}", false, HF_HANDOFF_CLAIMED, "vanished", 1},
        {"{\"status\":9}", false, HF_HANDOFF_CLAIMED, "vanished", -1},
        {"{}", false, HF_HANDOFF_CLAIMED, "vanished", -1},
        {"{\"status\":0", false, HF_HANDOFF_CLAIMED, "vanished", -1},
        {NULL, false, HF_HANDOFF_CLAIMED, "vanished", -1},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct handoff_scene s;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, HERE);
        HF_CLEANUP(hf_freep) char *dir = handoff_journal(&s);
        HF_CLEANUP(hf_freep) char *exit = hf_asprintf("%s/exit", dir);
        HF_CLEANUP(hf_freep) char *leaving = hf_asprintf("%s/leaving", dir);
        if (rows[i].exit != NULL) {
            put_text(exit, rows[i].exit);
        }
        if (rows[i].leaving) {
            put_text(leaving, "1\n");
        }
        handoff_expect(&s, rows[i].verdict);
        handoff_expect_end(&s, 1, rows[i].outcome, rows[i].code);
        assert_int_equal(handoff_highest(&s), 2); /* as finished, or as the next attempt */
        if (rows[i].verdict == HF_HANDOFF_FINISHED) {
            handoff_expect(&s, HF_HANDOFF_FINISHED);
            s.in.fresh = true;
            handoff_expect(&s, HF_HANDOFF_CLAIMED);
            assert_int_equal(s.out.claim.attempt, 3);
        }
        handoff_close(&s);
    }
}

/* ---- trouble ---- */

struct rival {
    struct handoff_scene *s;
    struct hf_handoff_out out;
    enum hf_rc rc;
    pthread_barrier_t *start;
    pthread_t thread;
};

static void *claim_at_once(void *arg)
{
    struct rival *r = arg;
    pthread_barrier_wait(r->start);
    r->rc = hf_handoff_claim(&r->s->in, &handoff_no_limit, &r->out, NULL);
    return NULL;
}

static void of_rivals_one_wins(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct handoff_scene s;
        handoff_open(&s, NULL);
        handoff_claim_as(&s, 1, ELSEWHERE);
        handoff_end_as(&s, "preempted");
        struct rival rivals[4];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, HF_COUNT(rivals));
        for (size_t i = 0; i < HF_COUNT(rivals); i++) {
            rivals[i] = (struct rival){.s = &s, .start = &start};
            assert_int_equal(pthread_create(&rivals[i].thread, NULL, claim_at_once, &rivals[i]), 0);
        }
        int won = 0;
        for (size_t i = 0; i < HF_COUNT(rivals); i++) {
            pthread_join(rivals[i].thread, NULL);
            assert_int_equal(rivals[i].rc, HF_OK);
            won += rivals[i].out.verdict == HF_HANDOFF_CLAIMED;
            assert_true(rivals[i].out.verdict == HF_HANDOFF_CLAIMED ||
                        rivals[i].out.verdict == HF_HANDOFF_BUSY);
            hf_handoff_out_release(&rivals[i].out);
        }
        assert_int_equal(won, 1);
        assert_int_equal(handoff_highest(&s), 2);
        pthread_barrier_destroy(&start);
        handoff_close(&s);
    }
}

/* Each store call fails in turn, or its reply is lost: the claim is made all the same, once. */
static void every_single_fault_is_survived(void **state)
{
    (void)state;
    for (int kind = HF_SFAULT_FAIL; kind <= HF_SFAULT_LOST_REPLY; kind++) {
        for (uint64_t nth = 1;; nth++) {
            struct handoff_scene s;
            struct hf_err err;
            struct hf_store *store = NULL;
            expect_rc(hf_store_open("mem:x", NULL, &store, &err), HF_OK, &err);
            handoff_open(&s, hf_store_faulty(store));
            handoff_claim_as(&s, 1, HERE);
            hf_free(handoff_journal(&s));
            hf_store_fault_set(s.bench.store, (enum hf_store_fault_kind)kind, nth, false);
            handoff_expect(&s, HF_HANDOFF_CLAIMED);
            uint64_t calls = hf_store_fault_calls(s.bench.store);
            hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
            assert_int_equal(handoff_highest(&s), 2);
            handoff_expect_end(&s, 1, "vanished", -1);
            handoff_close(&s);
            if (calls < nth) {
                assert_true(nth > 4);
                break;
            }
        }
    }
}

static void a_dead_store_claims_nothing(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct hf_err err;
    struct hf_store *store = NULL;
    expect_rc(hf_store_open("mem:x", NULL, &store, &err), HF_OK, &err);
    handoff_open(&s, hf_store_faulty(store));
    handoff_claim_as(&s, 1, ELSEWHERE);
    hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 1, true);
    expect_rc(hf_handoff_claim(&s.in, &handoff_no_limit, &s.out, &err), HF_EIO, &err);
    hf_store_fault_set(s.bench.store, HF_SFAULT_FAIL, 0, false);
    assert_int_equal(handoff_highest(&s), 1);
    handoff_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_attempt),
        cmocka_unit_test(after_an_end),
        cmocka_unit_test(another_command),
        cmocka_unit_test(commands_that_got_nowhere),
        cmocka_unit_test(finished_and_stopped),
        cmocka_unit_test(on_another_machine),
        cmocka_unit_test(an_end_ends_the_watching),
        cmocka_unit_test(here_with_another_state_folder),
        cmocka_unit_test(a_living_keeper_is_adopted),
        cmocka_unit_test(after_a_reboot),
        cmocka_unit_test(ended_alone),
        cmocka_unit_test(of_rivals_one_wins),
        cmocka_unit_test(every_single_fault_is_survived),
        cmocka_unit_test(a_dead_store_claims_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
