/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/job: the machine itself, run exhaustively, with actions that are doubles. (1) Every
 * state and every event, and all sequences of a depth, for what the mover promises. (2) A model of
 * what surrounds the machine (workers, keeper, timers, people), all of whose reachable
 * configurations are visited: nothing that can happen lacks an edge, the order of actions is right,
 * and once a notice for good or a person has spoken the end follows from timers and from what was
 * asked for alone, whatever the command does.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/sup.h"

/* What the machine calls, in order. */
/* clang-format off */
enum act {
    PREPARE = 1, CANCEL, START, ADOPTED, RUNNING, LEAVE, HURRY, UNLEAVE, HUNG, STOP, SOFTLY, HUNT,
    EXITED, SETTLE, SETTLE_NOW, NEXT, NO_MORE, OVER
};
/* clang-format on */

/* Who may be called in which phase of an attempt. */
enum phase { BEFORE, PREPARING, TREE, SETTLING, BETWEEN, PHASES };
static const uint32_t allowed[PHASES] = {
    [BEFORE] = 1u << PREPARE,
    [PREPARING] = 1u << CANCEL | 1u << START | 1u << ADOPTED | 1u << SETTLE | 1u << OVER,
    [TREE] = 1u << RUNNING | 1u << LEAVE | 1u << HURRY | 1u << UNLEAVE | 1u << HUNG | 1u << STOP |
             1u << SOFTLY | 1u << HUNT | 1u << EXITED | 1u << SETTLE,
    [SETTLING] = 1u << SETTLE_NOW | 1u << NEXT,
    [BETWEEN] = 1u << NO_MORE | 1u << PREPARE | 1u << OVER,
};

/* The world around the machine; one byte each, so that it can be compared as bytes. */
struct world {
    uint8_t state;
    uint8_t begun, ended, attempts;
    uint8_t prep;     /* a worker prepares: 1 claiming, 2 restoring, 3 taking a living one over */
    uint8_t canceled; /* the start */
    uint8_t keeper;   /* enum keeper */
    uint8_t attached; /* taken over: what happened is told again */
    uint8_t hunting;
    uint8_t asked_end;        /* the tree is being ended */
    uint8_t notice, for_good; /* stands; by a signal */
    uint8_t leave_by, soft, pause;
    uint8_t settling; /* shipping what is left, then recording */
    uint8_t forced;   /* a person, or another attempt, has spoken */
    uint8_t phase, stopped, saved;
    uint8_t choice; /* what an action that has two ways does next */
};

enum keeper { NO_KEEPER, SPAWNING, LIVES, OUT, EXEC_FAILED };

static struct hf_sup *sup;
static struct world w;
static bool inert; /* actions only take note */
static int log_of[64];
static size_t logged;
static size_t told; /* hf_sup_status_changed */
static enum hf_job_state told_state;
static size_t acts_when_told;

static void fire(enum hf_job_event ev);

static void note(enum act a)
{
    if (logged < HF_COUNT(log_of)) {
        log_of[logged++] = (int)a;
    }
    if (inert) {
        return;
    }
    if ((allowed[w.phase] & 1u << a) == 0) {
        fail_msg("action %d in phase %d, state %s", (int)a, w.phase, hf_job_state_name(sup->state));
    }
}

void hf_sup_status_changed(struct hf_sup *s)
{
    told++;
    told_state = s->state;
    acts_when_told = logged;
}

#define ACTION(name, id)          \
    void name(struct hf_sup *s)   \
    {                             \
        assert_ptr_equal(s, sup); \
        note(id);                 \
        if (!inert) {             \
            do_##id();            \
        }                         \
    }

static void do_PREPARE(void)
{
    uint8_t attempts = (uint8_t)(w.attempts + 1);
    assert_int_equal(w.keeper, NO_KEEPER);
    assert_int_equal(w.hunting, 0);
    w.phase = PREPARING;
    w.prep = 1;
    w.attempts = attempts;
    w.stopped = w.saved = w.attached = w.asked_end = 0;
}

static void do_CANCEL(void)
{
    w.canceled = 1;
}

static void do_START(void)
{
    w.phase = TREE;
    if (w.choice) {
        fire(HF_EV_GONE); /* no keeper could be started */
        return;
    }
    w.keeper = SPAWNING;
}

static void do_RUNNING(void)
{
    if (w.notice) {
        fire(HF_EV_NOTICE);
    }
}

static void do_ADOPTED(void)
{
    w.phase = TREE;
    if (w.choice) {
        fire(HF_EV_LOST); /* its keeper is gone meanwhile */
        return;
    }
    w.keeper = SPAWNING;
    w.attached = 1;
    do_RUNNING();
    if (w.forced) {
        fire(HF_EV_FORCE);
    }
}

static void do_LEAVE(void)
{
    assert_true(w.notice);
    assert_int_equal(w.stopped, 0);
    w.soft = 0;
    w.leave_by = 1; /* it may have fired before a living attempt was taken over */
}

static void do_HURRY(void)
{
    assert_true(w.notice);
}

static void do_UNLEAVE(void)
{
    assert_false(w.notice);
    assert_int_equal(w.asked_end, 0);
}

static void do_HUNG(void)
{
    w.soft = 1;
}

static void do_HUNT(void)
{
    w.hunting = 1;
}

static void do_STOP(void)
{
    w.soft = 0;
    w.stopped = 1;
    if (w.keeper == NO_KEEPER) {
        do_HUNT();
        return;
    }
    w.asked_end = 1;
}

static void do_SOFTLY(void)
{
    assert_int_equal(w.stopped, 0); /* safe comes before stop, never after it */
    w.saved = 1;
    w.asked_end = w.choice ? 1 : w.asked_end;
    w.soft = w.choice ? 0 : 1;
}

static void do_EXITED(void)
{
    w.soft = 0;
}

static void do_SETTLE(void)
{
    assert_int_equal(w.keeper, NO_KEEPER);
    w.phase = SETTLING;
    w.soft = w.leave_by = w.asked_end = 0;
    w.settling = 1;
}

static void do_SETTLE_NOW(void)
{
    assert_int_equal(w.settling, 1);
}

static void do_NEXT(void)
{
    assert_int_equal(w.settling, 0); /* recorded before anything follows */
    w.phase = BETWEEN;
    if (w.choice && !w.notice && !w.forced && w.attempts < 2) {
        w.pause = 1;
        return;
    }
    fire(HF_EV_OVER);
}

static void do_NO_MORE(void)
{
    w.pause = 0;
    fire(HF_EV_OVER);
}

static void do_OVER(void)
{
    assert_int_equal(w.ended, 0);
    assert_int_equal(w.keeper, NO_KEEPER);
    assert_int_equal(w.hunting + w.settling + w.prep + w.pause, 0);
    w.ended = 1;
}

ACTION(hf_act_prepare, PREPARE)
ACTION(hf_act_prepare_cancel, CANCEL)
ACTION(hf_act_start, START)
ACTION(hf_act_adopted, ADOPTED)
ACTION(hf_act_running, RUNNING)
ACTION(hf_act_leave, LEAVE)
ACTION(hf_act_hurry, HURRY)
ACTION(hf_act_unleave, UNLEAVE)
ACTION(hf_act_hung, HUNG)
ACTION(hf_act_stop, STOP)
ACTION(hf_act_stop_softly, SOFTLY)
ACTION(hf_act_hunt, HUNT)
ACTION(hf_act_exited, EXITED)
ACTION(hf_act_settle, SETTLE)
ACTION(hf_act_settle_now, SETTLE_NOW)
ACTION(hf_act_next, NEXT)
ACTION(hf_act_no_more, NO_MORE)
ACTION(hf_act_over, OVER)

/* ---- the mover ---- */

static void one_step(enum hf_job_state from, enum hf_job_event ev)
{
    const struct hf_job_edge *edge = &hf_job_edges[from][ev];
    sup->state = from;
    sup->state_since_ns = 1;
    sup->state_since_wall_ms = 1;
    uint64_t illegal = sup->illegal_edges;
    logged = told = 0;
    hf_job_event(sup, ev);
    bool moved = edge->to != HF_JOB_NONE && edge->to != from;
    bool right = sup->state == (edge->to == HF_JOB_NONE ? from : edge->to) &&
                 sup->illegal_edges == illegal + (edge->to == HF_JOB_NONE) &&
                 logged == (size_t)(edge->act != NULL) && told == (size_t)moved &&
                 (sup->state_since_ns != 1) == moved && (sup->state_since_wall_ms != 1) == moved;
    if (!right) {
        fail_msg("%s on %s: %s, %zu actions, told %zu times", hf_job_state_name(from),
                 hf_job_event_name(ev), hf_job_state_name(sup->state), logged, told);
    }
    if (moved) { /* who looks at the status sees the new state, before anything is done in it */
        assert_int_equal(told_state, edge->to);
        assert_int_equal(acts_when_told, 0);
    }
}

static size_t sequences(enum hf_job_state from, int depth)
{
    if (depth == 0) {
        return 1;
    }
    size_t n = 0;
    for (int e = 0; e < HF_JOB_EVENTS; e++) {
        one_step(from, (enum hf_job_event)e);
        n += sequences(sup->state, depth - 1);
    }
    return n;
}

static void every_sequence_moves_as_the_table_says(void **state)
{
    (void)state;
    inert = true;
    assert_int_equal(sequences(HF_JOB_NONE, 4), 18 * 18 * 18 * 18);
    for (int s = 0; s < HF_JOB_STATES; s++) {
        sequences((enum hf_job_state)s, 3);
    }
    inert = false;
}

/* A state further on is never left for an earlier one, but for the three ways back that exist. */
static void the_only_ways_back(void **state)
{
    (void)state;
    static const int order[HF_JOB_STATES] = {
        [HF_JOB_NONE] = 0,     [HF_JOB_PREPARING] = 1, [HF_JOB_STARTING] = 2, [HF_JOB_RUNNING] = 3,
        [HF_JOB_HUNG] = 4,     [HF_JOB_LEAVING] = 5,   [HF_JOB_STOPPING] = 6, [HF_JOB_DRAINING] = 7,
        [HF_JOB_SETTLING] = 8, [HF_JOB_PAUSING] = 9,   [HF_JOB_ENDED] = 10,
    };
    for (int s = 0; s < HF_JOB_STATES; s++) {
        for (int e = 0; e < HF_JOB_EVENTS; e++) {
            enum hf_job_state to = hf_job_edges[s][e].to;
            if (to == HF_JOB_NONE || order[to] >= order[s]) {
                continue;
            }
            bool known = (s == HF_JOB_LEAVING && e == HF_EV_WITHDRAWN && to == HF_JOB_RUNNING) ||
                         (s == HF_JOB_PAUSING && e == HF_EV_AGAIN && to == HF_JOB_PREPARING) ||
                         (s == HF_JOB_DRAINING && to == HF_JOB_STOPPING &&
                          (e == HF_EV_OVERTIME || e == HF_EV_FORCE || e == HF_EV_LOST));
            if (!known) {
                fail_msg("back from %s on %s", hf_job_state_name((enum hf_job_state)s),
                         hf_job_event_name((enum hf_job_event)e));
            }
        }
    }
}

/* An event means the same everywhere: where it moves the job on, it moves it to one state. */
static void an_event_leads_to_one_place(void **state)
{
    (void)state;
    static const struct {
        enum hf_job_event ev;
        enum hf_job_state to;
    } rows[] = {
        {HF_EV_BEGIN, HF_JOB_PREPARING},   {HF_EV_PREPARED, HF_JOB_STARTING},
        {HF_EV_ADOPTED, HF_JOB_RUNNING},   {HF_EV_REFUSED, HF_JOB_ENDED},
        {HF_EV_STARTED, HF_JOB_RUNNING},   {HF_EV_NO_EXEC, HF_JOB_DRAINING},
        {HF_EV_NOTICE, HF_JOB_LEAVING},    {HF_EV_WITHDRAWN, HF_JOB_RUNNING},
        {HF_EV_HUNG, HF_JOB_HUNG},         {HF_EV_SAFE, HF_JOB_STOPPING},
        {HF_EV_OVERTIME, HF_JOB_STOPPING}, {HF_EV_FORCE, HF_JOB_STOPPING},
        {HF_EV_EXITED, HF_JOB_DRAINING},   {HF_EV_GONE, HF_JOB_SETTLING},
        {HF_EV_LOST, HF_JOB_STOPPING},     {HF_EV_SETTLED, HF_JOB_PAUSING},
        {HF_EV_AGAIN, HF_JOB_PREPARING},   {HF_EV_OVER, HF_JOB_ENDED},
    };
    assert_int_equal(HF_COUNT(rows), HF_JOB_EVENTS);
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        for (int s = 0; s < HF_JOB_STATES; s++) {
            enum hf_job_state to = hf_job_edges[s][rows[i].ev].to;
            if (to != HF_JOB_NONE && (int)to != s && to != rows[i].to) {
                fail_msg("%s leads from %s to %s", hf_job_event_name(rows[i].ev),
                         hf_job_state_name((enum hf_job_state)s), hf_job_state_name(to));
            }
        }
    }
}

/* ---- the world ---- */

static void fire(enum hf_job_event ev)
{
    if (hf_job_edges[sup->state][ev].to == HF_JOB_NONE) {
        fail_msg("%s cannot take '%s', which can happen in it (attempt %d, keeper %d, prep %d, "
                 "notice %d, forced %d, taken over %d)",
                 hf_job_state_name(sup->state), hf_job_event_name(ev), w.attempts, w.keeper, w.prep,
                 w.notice, w.forced, w.attached);
    }
    hf_job_event(sup, ev);
    w.state = (uint8_t)sup->state;
}

/* What may happen next. Those up to OUTSIDE happen by themselves, sooner or later, once they can;
 * nobody may count on the others. */
/* clang-format off */
enum happening {
    /* the claim is ours, now the restore; or a living attempt was found */
    CLAIMS, CLAIMS_LIVING, REFUSES, PREPARES, FAILS, TAKES_OVER,
    TREE_ENDED /* by us */, HUNTED, TIME_OVER, SOFT_OVER, RECORDED, PAUSE_OVER, OUTSIDE,
    SPAWNS = OUTSIDE, EXEC_FAILS, IS_SAFE, EXITS, ENDS, KEEPER_DIES, HANGS, NOTICE, SIGNAL,
    WITHDRAWN, FORCE, HAPPENINGS
};
/* clang-format on */

static bool can(enum happening h)
{
    bool tree = w.keeper != NO_KEEPER;
    switch (h) {
    case CLAIMS:
    case CLAIMS_LIVING:
    case REFUSES:
        return w.prep == 1;
    case PREPARES:
        return w.prep == 2 && !w.canceled;
    case FAILS:
        return w.prep == 2;
    case TAKES_OVER:
        return w.prep == 3;
    case TREE_ENDED:
        return tree && (w.asked_end || w.keeper == OUT || w.keeper == EXEC_FAILED);
    case HUNTED:
        return w.hunting;
    case TIME_OVER:
        return w.leave_by;
    case SOFT_OVER:
        return w.soft;
    case RECORDED:
        return w.settling;
    case PAUSE_OVER:
        return w.pause;
    case SPAWNS:
    case EXEC_FAILS:
        return w.keeper == SPAWNING;
    case IS_SAFE:
        return sup->state == HF_JOB_LEAVING || sup->state == HF_JOB_HUNG;
    case EXITS:
        return w.keeper == LIVES;
    case ENDS:
        return w.keeper == OUT;
    case KEEPER_DIES:
        return tree;
    case HANGS:
        return sup->state == HF_JOB_RUNNING && w.keeper == LIVES;
    case WITHDRAWN:
        return w.notice && !w.for_good;
    case NOTICE:
    case SIGNAL:
    case FORCE:
        return !w.ended;
    case HAPPENINGS:
        break;
    }
    return false;
}

static void happens_to_tree(enum happening h)
{
    switch ((int)h) {
    case TREE_ENDED:
    case ENDS:
        w.keeper = NO_KEEPER;
        fire(HF_EV_GONE);
        return;
    case HUNTED:
        w.hunting = 0;
        w.keeper = NO_KEEPER;
        fire(HF_EV_GONE);
        return;
    case SPAWNS:
        w.keeper = LIVES;
        fire(HF_EV_STARTED);
        return;
    case EXEC_FAILS:
        w.keeper = EXEC_FAILED;
        fire(HF_EV_NO_EXEC);
        return;
    case EXITS:
        w.keeper = OUT;
        fire(HF_EV_EXITED);
        return;
    case KEEPER_DIES:
        w.keeper = NO_KEEPER;
        fire(HF_EV_LOST);
        return;
    }
    fail_msg("no happening %d", (int)h);
}

static void happens(enum happening h)
{
    switch (h) {
    case CLAIMS:
    case CLAIMS_LIVING:
        w.prep = h == CLAIMS ? 2 : 3;
        return;
    case REFUSES:
        w.prep = 0;
        fire(HF_EV_REFUSED);
        return;
    case PREPARES:
    case FAILS:
    case TAKES_OVER:
        w.prep = 0;
        fire(h == PREPARES ? HF_EV_PREPARED : h == FAILS ? HF_EV_GONE : HF_EV_ADOPTED);
        return;
    case TIME_OVER:
    case SOFT_OVER:
        w.leave_by = h == TIME_OVER ? 0 : w.leave_by;
        w.soft = h == SOFT_OVER ? 0 : w.soft;
        fire(HF_EV_OVERTIME);
        return;
    case RECORDED:
        w.settling = 0;
        fire(HF_EV_SETTLED);
        return;
    case PAUSE_OVER:
        w.pause = 0;
        fire(HF_EV_AGAIN);
        return;
    case IS_SAFE:
    case HANGS:
        fire(h == IS_SAFE ? HF_EV_SAFE : HF_EV_HUNG);
        assert_true(w.asked_end || w.soft); /* something follows, and soon */
        return;
    case NOTICE:
    case SIGNAL:
        w.notice = 1;
        w.for_good = w.for_good || h == SIGNAL;
        w.leave_by = 1;
        fire(HF_EV_NOTICE);
        return;
    case WITHDRAWN:
        w.notice = w.leave_by = 0;
        fire(HF_EV_WITHDRAWN);
        return;
    case FORCE:
        w.forced = 1;
        fire(HF_EV_FORCE);
        return;
    case HAPPENINGS:
        return;
    default:
        happens_to_tree(h);
    }
}

/* ---- all configurations ---- */

#define ROOM (1u << 20)

static struct world *seen; /* begun 0: a free place */
static struct world *queue;
static size_t n_queue;

static bool is_new(const struct world *x)
{
    const uint8_t *b = (const uint8_t *)x;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof(*x); i++) {
        h = (h ^ b[i]) * 1099511628211u;
    }
    size_t at = (size_t)(h ^ h >> 32) % ROOM;
    while (seen[at].begun != 0) {
        if (memcmp(&seen[at], x, sizeof(*x)) == 0) {
            return false;
        }
        at = (at + 1) % ROOM;
    }
    seen[at] = *x;
    return true;
}

static void add_world(void)
{
    w.choice = 0;
    if (is_new(&w)) {
        assert_true(n_queue < ROOM / 2);
        queue[n_queue++] = w;
    }
}

static void set_world(const struct world *x, uint8_t choice)
{
    w = *x;
    w.choice = choice;
    sup->state = (enum hf_job_state)w.state;
}

/* All that is reachable from the start. */
static void explore(void)
{
    seen = hf_calloc(ROOM, sizeof(*seen));
    queue = hf_calloc(ROOM / 2, sizeof(*queue));
    n_queue = 0;
    w = (struct world){.begun = 1};
    sup->state = HF_JOB_NONE;
    fire(HF_EV_BEGIN);
    add_world();
    for (size_t i = 0; i < n_queue; i++) {
        for (int h = 0; h < HAPPENINGS; h++) {
            for (uint8_t choice = 0; choice < 2; choice++) {
                set_world(&queue[i], choice);
                if (can((enum happening)h)) {
                    happens((enum happening)h);
                    add_world();
                }
            }
        }
    }
}

static void forget(void)
{
    hf_free(seen);
    hf_free(queue);
}

static void whatever_can_happen_has_an_edge(void **state)
{
    (void)state;
    sup->illegal_edges = 0;
    explore();
    bool states[HF_JOB_STATES] = {false};
    size_t ends = 0;
    for (size_t i = 0; i < n_queue; i++) {
        states[queue[i].state] = true;
        ends += queue[i].ended;
        assert_true(queue[i].ended == (queue[i].state == HF_JOB_ENDED));
        bool waits = queue[i].ended;
        set_world(&queue[i], 0);
        for (int h = 0; h < NOTICE; h++) {
            waits = waits || can((enum happening)h);
        }
        if (!waits) {
            fail_msg("%s waits for nothing", hf_job_state_name(queue[i].state));
        }
    }
    for (int s = HF_JOB_PREPARING; s < HF_JOB_STATES; s++) {
        assert_true(states[s]); /* or the model would prove nothing of it */
    }
    assert_true(ends > 0 && sup->illegal_edges == 0);
    print_message("%zu configurations, %zu of them an end\n", n_queue, ends);
    forget();
}

/* Once told to go, and with a command, a store and ranks that do nothing more: is there an end? The
 * sure happenings in any order, all of them tried. */
static void ends_by_itself(const struct world *from, int depth)
{
    bool any = from->ended;
    if (depth > 24) {
        fail_msg("no end after 24 steps from %s", hf_job_state_name(from->state));
    }
    for (int h = 0; h < OUTSIDE && !from->ended; h++) {
        set_world(from, 0);
        if (!can((enum happening)h)) {
            continue;
        }
        any = true;
        happens((enum happening)h);
        struct world next = w;
        ends_by_itself(&next, depth + 1);
    }
    if (!any) {
        fail_msg("%s waits for nothing and does not end (keeper %d, notice %d, forced %d, taken "
                 "over %d, attempt %d)",
                 hf_job_state_name(from->state), from->keeper, from->notice, from->forced,
                 from->attached, from->attempts);
    }
}

static void who_was_told_to_go_ends_by_itself(void **state)
{
    (void)state;
    explore();
    size_t looked = 0;
    for (size_t i = 0; i < n_queue; i++) {
        struct world from = queue[i];
        if (from.for_good || from.forced) {
            ends_by_itself(&from, 0);
            looked++;
        }
    }
    assert_true(looked > 100);
    forget();
}

static int make(void **state)
{
    (void)state;
    sup = HF_NEW(struct hf_sup);
    sup->log = (struct hf_log){.fd = 2, .min = HF_LOG_ERROR, .prefix = ""};
    return 0;
}

static int end(void **state)
{
    (void)state;
    hf_free(sup);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_moves_as_the_table_says),
        cmocka_unit_test(the_only_ways_back),
        cmocka_unit_test(an_event_leads_to_one_place),
        cmocka_unit_test(whatever_can_happen_has_an_edge),
        cmocka_unit_test(who_was_told_to_go_ends_by_itself),
    };
    return cmocka_run_group_tests(tests, make, end);
}
