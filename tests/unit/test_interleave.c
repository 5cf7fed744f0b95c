/* SPDX-License-Identifier: Apache-2.0
 *
 * Every interleaving of three ranks, five steps and a supervisor: the ranks run
 * hooks/c/agree_step.h, the supervisor hooks/agree.c, one access to shared memory at a time. Time
 * is not modelled: "the hold limit has passed" and "the lock is not to be had" may happen whenever
 * they can, the deadline passes when nothing else can happen. What is asked of every run: all ranks
 * save at one step or none does, no rank passes the target, nobody is stuck, and the supervisor
 * reports no save that was not made.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "hooks/agree.h"
#include "hooks/c/agree_step.h"

#define RANKS 3
#define STEPS 5
#define ID    7

enum phase { WORKING, PEEKED, STEPPING, AFTER, OUT, DIED };
enum pending { NOTHING, WAITS, WANTS_LOCK };

struct rank_state {
    uint8_t phase, at, step, pending;
    uint8_t id, given_up;
    uint8_t saved_at; /* truth: where it saved, 0: nowhere */
    /* its slot */
    uint8_t pub, hold, saved, done, gave_up;
    uint8_t peek_state, peek_step; /* what it read before its store was visible */
};

enum sup_pc { CALM, READING, LOCKING, DECIDING, UNLOCKING, WATCHING, FINISHED, SUP_DEAD };

struct sup_state {
    uint8_t pc, next; /* READING: which read comes next, two a rank */
    uint8_t step[RANKS], hold[RANKS], done[RANKS];
    uint8_t target; /* 0: cancel */
    uint8_t said_saved;
};

/* The whole world; no padding, since it is compared as bytes. */
struct world {
    struct rank_state r[RANKS];
    struct sup_state sup;
    uint8_t word_state, word_step;
    uint8_t lock; /* 0: free, 1 + rank, 9: supervisor */
};

struct setting {
    const char *name;
    bool coupled;   /* a collective in every step */
    bool late_pub;  /* stores become visible after the look: no fence at all */
    bool fenced;    /* what the supervisor believes about that */
    bool crash;     /* rank 0 may die anywhere */
    bool sup_dies;  /* anywhere */
    bool leave;     /* ranks wait for the answer after the save */
    bool knows_end; /* the last step is declared */
    uint8_t steps;  /* 0: STEPS */
};

struct explorer {
    const struct setting *set;
    uint8_t steps;
    uint64_t random; /* not 0: one random walk instead of all */
    struct world picked;
    struct world *seen; /* open addressing */
    uint32_t *queue;
    size_t cap, n, head;
    const char *broken; /* the first property that did not hold */
    struct world from;  /* being expanded */
    size_t moves;       /* that lead elsewhere; a poll that changes nothing does not */
    size_t saves, cancels, ends;
};

static uint64_t word_of(const struct world *w)
{
    return hfw_pack((enum hfw_state)w->word_state, w->word_state == HFW_IDLE ? 0 : ID,
                    w->word_step);
}

static void set_word(struct world *w, uint64_t word)
{
    w->word_state = (uint8_t)hfw_state(word);
    w->word_step = (uint8_t)hfw_step(word);
}

/* Makes one of states that differ in nothing that anybody will read: a rank that cannot be asked
 * any more is taken to the end at once. */
static struct world settle(const struct explorer *x, const struct world *from)
{
    struct world w = *from;
    bool decided = w.word_state == HFW_CANCEL || w.sup.pc >= UNLOCKING;
    bool over = w.word_state == HFW_CANCEL || (decided && w.word_state == HFW_IDLE);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct rank_state *r = &w.r[i];
        if (r->phase == WORKING || r->phase >= OUT) {
            r->at = 0;
        }
        if (decided) {
            r->hold = 0; /* read before deciding only */
        }
        if (r->phase == WORKING && (over || r->saved_at)) {
            r->phase = OUT;
            r->done = 1;
            r->step = r->pub = x->steps;
        }
    }
    return w;
}

static void add(struct explorer *x, const struct world *raw)
{
    struct world settled = settle(x, raw);
    const struct world *w = &settled;
    bool moved = memcmp(&x->from, w, sizeof *w) != 0;
    x->moves += moved;
    if (x->random) {
        x->random = x->random * 6364136223846793005u + 1442695040888963407u;
        if (moved && (x->random >> 33) % x->moves == 0) {
            x->picked = *w;
        }
        return;
    }
    uint64_t h = 1469598103934665603u;
    const unsigned char *p = (const unsigned char *)w;
    for (size_t i = 0; i < sizeof *w; i++) {
        h = (h ^ p[i]) * 1099511628211u;
    }
    size_t at = (h ^ (h >> 29)) & (x->cap - 1);
    while (x->seen[at].r[0].step != 0) {
        if (memcmp(&x->seen[at], w, sizeof *w) == 0) {
            return;
        }
        at = (at + 1) & (x->cap - 1);
    }
    assert_true(x->n < x->cap / 4 * 3);
    x->seen[at] = *w;
    x->queue[x->n++] = (uint32_t)at;
}

static void leave_boundary(const struct explorer *x, struct rank_state *r)
{
    r->pending = NOTHING;
    if (r->step == x->steps) {
        r->phase = OUT;
        r->done = 1;
        return;
    }
    r->step++;
    r->phase = WORKING;
}

static bool may_finish_step(const struct explorer *x, const struct world *w, uint32_t i)
{
    for (uint32_t j = 0; x->set->coupled && j < RANKS; j++) {
        if (w->r[j].step < w->r[i].step) { /* it has not started this step */
            return false;
        }
    }
    return true;
}

/* What the program does with the library's answer. */
static void obey(struct explorer *x, struct world *w, uint32_t i, enum hfw_order order)
{
    struct rank_state *r = &w->r[i];
    switch (order) {
    case HFW_AGAIN:
        r->pending = NOTHING;
        break;
    case HFW_WAIT:
        r->pending = WAITS;
        break;
    case HFW_TRY_LOCK:
        r->pending = WANTS_LOCK;
        break;
    case HFW_UNLOCK:
        w->lock = 0;
        r->pending = NOTHING;
        break;
    case HFW_GO_ON:
        if (w->word_state == HFW_TARGET && r->step > w->word_step && !r->saved_at &&
            r->given_up != ID) {
            x->broken = "a rank has passed the target";
        }
        leave_boundary(x, r);
        break;
    case HFW_SAVE:
        r->saved_at = r->step;
        r->saved = r->step;
        r->pending = NOTHING;
        r->phase = AFTER;
        break;
    case HFW_LEAVE_NOW:
        r->pending = NOTHING;
        r->phase = OUT;
        break;
    }
}

/* One call of the real function on real structures. */
static void call_rank(struct explorer *x, const struct world *from, uint32_t i, enum hfw_event ev)
{
    static struct hfw_head head;
    struct world w = *from;
    struct rank_state *r = &w.r[i];
    struct hfw_rank real = {
        .at = (enum hfw_at)r->at, .id = r->id, .given_up = r->given_up, .step = r->step};
    struct hfw_slot slot = {.step = r->pub,
                            .hold = r->hold ? hfw_pack(HFW_RAISED, ID, r->hold) : 0,
                            .gave_up = r->gave_up};
    head.word = word_of(&w);
    if (ev == HFW_EV_LOCKED) {
        w.lock = (uint8_t)(1 + i);
    }
    enum hfw_order order;
    if (r->phase == PEEKED) { /* the store is visible now; judged is what was read before it */
        hfw_publish(&slot, r->step);
        order = hfw_judge(&real, hfw_pack((enum hfw_state)r->peek_state,
                                          r->peek_state == HFW_IDLE ? 0 : ID, r->peek_step));
        r->phase = STEPPING;
        r->peek_state = r->peek_step = 0;
    } else {
        order = hfw_rank_next(&real, &head, &slot, ev);
    }
    set_word(&w, head.word);
    r->at = (uint8_t)real.at;
    r->id = (uint8_t)real.id;
    r->given_up = (uint8_t)real.given_up;
    r->pub = (uint8_t)slot.step;
    r->hold = (uint8_t)hfw_step(slot.hold);
    r->gave_up = (uint8_t)slot.gave_up;
    obey(x, &w, i, order);
    add(x, &w);
}

static void begin_boundary(struct explorer *x, const struct world *from, uint32_t i)
{
    struct world w = *from;
    struct hfw_rank real = {0};
    hfw_rank_begin(&real, w.r[i].step);
    w.r[i].at = (uint8_t)real.at;
    w.r[i].phase = STEPPING;
    if (x->set->late_pub) {
        w.r[i].phase = PEEKED;
        w.r[i].peek_state = w.word_state;
        w.r[i].peek_step = w.word_step;
        w.r[i].at = HFW_AT_LOOK;
        add(x, &w);
        return;
    }
    call_rank(x, &w, i, HFW_EV_NONE); /* publishing is the first access */
}

static void after_save(struct explorer *x, const struct world *from, uint32_t i)
{
    struct world w = *from;
    enum hfw_order order = hfw_after_save(word_of(&w), x->set->leave ? ID : 0, ID);
    if (order == HFW_LEAVE_NOW) {
        w.r[i].phase = OUT;
    } else if (order == HFW_GO_ON || w.sup.pc == SUP_DEAD) {
        leave_boundary(x, &w.r[i]);
    } else {
        return; /* waits */
    }
    add(x, &w);
}

static void move_rank(struct explorer *x, const struct world *w, uint32_t i)
{
    const struct rank_state *r = &w->r[i];
    if (x->set->crash && i == 0 && r->phase < OUT) {
        struct world dead = *w;
        dead.r[i].phase = DIED;
        dead.r[i].pending = NOTHING;
        dead.lock = dead.lock == 1 + i ? 0 : dead.lock; /* the kernel gives the lock back */
        add(x, &dead);
    }
    switch (r->phase) {
    case WORKING:
        if (may_finish_step(x, w, i)) {
            begin_boundary(x, w, i);
        }
        break;
    case PEEKED:
        call_rank(x, w, i, HFW_EV_NONE);
        break;
    case STEPPING:
        if (r->pending == WAITS) {
            call_rank(x, w, i, HFW_EV_LATE);
            call_rank(x, w, i, HFW_EV_NONE);
        } else if (r->pending == WANTS_LOCK && w->lock == 0) {
            call_rank(x, w, i, HFW_EV_LOCKED);
        } else if (r->pending == WANTS_LOCK) {
            call_rank(x, w, i, HFW_EV_BUSY);
            call_rank(x, w, i, HFW_EV_HOPELESS);
        } else {
            call_rank(x, w, i, HFW_EV_NONE);
        }
        break;
    case AFTER:
        after_save(x, w, i);
        break;
    default:
        break;
    }
}

/* --- the supervisor --- */

static void fill_view(const struct explorer *x, const struct world *w, bool now,
                      struct hf_agree_rank *ranks, struct hf_agree_view *ret)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        const struct rank_state *r = &w->r[i];
        uint8_t step = now ? r->pub : w->sup.step[i];
        uint8_t hold = now ? r->hold : w->sup.hold[i];
        ranks[i] = (struct hf_agree_rank){.rank = i, .step = step ? step : -1};
        ranks[i].hold = hold ? hfw_pack(HFW_RAISED, ID, hold) : 0;
        ranks[i].done = now ? r->done : w->sup.done[i];
        ranks[i].alive = r->phase < OUT || r->done; /* a finished one may still exit */
        ranks[i].last = x->set->knows_end ? x->steps : -1;
        ranks[i].saved = r->saved ? hfw_pack(HFW_TARGET, ID, r->saved) : 0;
        ranks[i].named_files = r->saved != 0;
        ranks[i].gave_up = r->gave_up;
    }
    *ret = (struct hf_agree_view){
        .ranks = ranks, .n_ranks = RANKS, .world = RANKS, .fenced = x->set->fenced};
}

static void finish_request(struct explorer *x, struct world *w, enum hf_rc rc)
{
    if (rc == HF_OK) {
        x->saves++;
        w->sup.said_saved = w->sup.target;
        for (uint32_t i = 0; i < RANKS; i++) {
            if (w->r[i].saved_at != w->sup.target) {
                x->broken = "told of a save that a rank has not made";
            }
        }
    } else {
        x->cancels++;
    }
    w->sup.pc = FINISHED;
    w->sup.target = 0;
    enum hfw_state end = rc == HF_OK && x->set->leave ? HFW_LEAVE : HFW_IDLE;
    set_word(w, hfw_pack(end, ID, 0));
}

static void watch(struct explorer *x, struct world *w)
{
    struct hf_agree_rank ranks[RANKS];
    struct hf_agree_view view;
    fill_view(x, w, true, ranks, &view);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].alive = w->r[i].phase < OUT;
        ranks[i].connected = ranks[i].alive;
    }
    enum hf_rc rc = hf_agree_watch(&view, ID, w->sup.target, NULL);
    if (rc != HF_EAGAIN) {
        finish_request(x, w, rc);
        add(x, w);
    }
}

static void decide(struct explorer *x, struct world *w)
{
    struct hf_agree_rank ranks[RANKS];
    struct hf_agree_view view;
    int64_t target = 0;
    fill_view(x, w, false, ranks, &view);
    enum hf_rc rc = hf_agree_decide(&view, ID, &target, NULL);
    w->sup.pc = UNLOCKING;
    memset(w->sup.step, 0, RANKS);
    memset(w->sup.hold, 0, RANKS);
    memset(w->sup.done, 0, RANKS);
    if (w->word_state != HFW_RAISED) {
        w->sup.target = 0; /* a rank was first */
    } else if (rc == HF_OK) {
        w->sup.target = (uint8_t)target;
        set_word(w, hfw_pack(HFW_TARGET, ID, target));
    } else {
        set_word(w, hfw_pack(HFW_CANCEL, ID, 0));
    }
}

static void read_one(struct world *w)
{
    uint32_t i = w->sup.next / 2;
    if (w->sup.next % 2 == 0) {
        w->sup.step[i] = w->r[i].pub;
    } else {
        w->sup.hold[i] = w->r[i].hold;
        w->sup.done[i] = w->r[i].done;
    }
    if (++w->sup.next == 2 * RANKS) {
        w->sup.pc = LOCKING;
        w->sup.next = 0;
    }
}

static void move_sup(struct explorer *x, const struct world *from)
{
    struct world w = *from;
    if (x->set->sup_dies && w.sup.pc != SUP_DEAD && w.sup.pc != FINISHED) {
        struct world dead = w;
        memset(&dead.sup, 0, sizeof dead.sup);
        dead.sup.pc = SUP_DEAD;
        dead.lock = dead.lock == 9 ? 0 : dead.lock;
        add(x, &dead);
    }
    switch (w.sup.pc) {
    case CALM:
        set_word(&w, hfw_pack(HFW_RAISED, ID, 0));
        w.sup.pc = READING; /* the fence is between the raise and the first read */
        break;
    case READING:
        read_one(&w);
        break;
    case LOCKING:
        if (w.lock != 0) {
            return;
        }
        w.lock = 9;
        w.sup.pc = DECIDING;
        break;
    case DECIDING:
        decide(x, &w);
        break;
    case UNLOCKING:
        w.lock = 0;
        if (w.sup.target) {
            w.sup.pc = WATCHING;
        } else {
            finish_request(x, &w, HF_ECANCELED);
        }
        break;
    case WATCHING:
        watch(x, &w);
        return;
    default:
        return;
    }
    add(x, &w);
}

/* Nothing can move any more. */
static void check_end(struct explorer *x, const struct world *w)
{
    x->ends++;
    uint32_t saved = 0;
    bool excused = false; /* a crash, or a rank that gave up */
    uint8_t where = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        const struct rank_state *r = &w->r[i];
        bool stuck_by_crash = x->set->coupled && w->r[0].phase == DIED && r->phase == WORKING;
        if (r->phase < OUT && !stuck_by_crash) {
            x->broken = "a rank is stuck";
        }
        excused |= r->phase == DIED || r->given_up == ID;
        saved += r->saved_at != 0;
        if (r->saved_at && where && r->saved_at != where) {
            x->broken = "ranks have saved at different steps";
        }
        where = r->saved_at ? r->saved_at : where;
    }
    if (saved != 0 && saved != RANKS && !excused) {
        x->broken = "some ranks have saved, others not";
    }
}

static void expand(struct explorer *x, const struct world *from)
{
    struct world w = *from;
    x->from = w;
    x->moves = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        move_rank(x, &w, i);
    }
    move_sup(x, &w);
    if (x->moves == 0 && w.sup.pc == WATCHING) { /* then the deadline passes */
        finish_request(x, &w, HF_ETIMEOUT);
        add(x, &w);
    } else if (x->moves == 0) {
        check_end(x, &w);
    }
}

static struct world first_world(void)
{
    struct world first = {0};
    for (uint32_t i = 0; i < RANKS; i++) {
        first.r[i].step = 1;
    }
    return first;
}

static void report(const struct explorer *x, size_t n, const char *unit)
{
    print_message("  %-26s %8zu %s, %zu ends%s%s\n", x->set->name, n, unit, x->ends,
                  x->broken ? ": " : "", x->broken ? x->broken : "");
    if (!x->broken && !x->set->sup_dies) { /* both ends of a request were reached */
        assert_true(x->saves > 0);
        assert_true(x->cancels > 0);
    }
}

static const char *explore(const struct setting *set)
{
    struct explorer x = {.set = set, .steps = set->steps ? set->steps : STEPS};
    x.cap = (size_t)1 << 23;
    size_t seen_len = x.cap * sizeof(struct world);
    size_t queue_len = x.cap * sizeof(uint32_t);
    x.seen = hf_big_new(seen_len);
    x.queue = hf_big_new(queue_len);
    assert_non_null(x.seen);
    assert_non_null(x.queue);
    struct world first = first_world();
    add(&x, &first);
    while (x.head < x.n && !x.broken) {
        expand(&x, &x.seen[x.queue[x.head++]]);
    }
    report(&x, x.n, "states");
    hf_big_free(x.seen, seen_len);
    hf_big_free(x.queue, queue_len);
    return x.broken;
}

static const char *walk(const struct setting *set, size_t walks, uint64_t seed)
{
    struct explorer x = {.set = set, .steps = STEPS, .random = seed};
    size_t moves = 0;
    for (size_t i = 0; i < walks && !x.broken; i++) {
        x.picked = first_world();
        do {
            struct world w = x.picked;
            expand(&x, &w);
            moves++;
        } while (x.moves > 0 && !x.broken);
    }
    report(&x, moves, "moves");
    return x.broken;
}

static const struct setting good[] = {
    {"free, 3 steps", .fenced = true, .steps = 3},
    {"coupled", .coupled = true, .fenced = true},
    {"coupled, leaving", .coupled = true, .fenced = true, .leave = true},
    {"last step known", .coupled = true, .fenced = true, .knows_end = true},
    {"no fence, + 2", .coupled = true, .late_pub = true},
    {"supervisor dies", .coupled = true, .fenced = true, .sup_dies = true},
    {"supervisor dies, leaving", .coupled = true, .fenced = true, .sup_dies = true, .leave = true},
    {"rank crashes", .coupled = true, .fenced = true, .crash = true},
    {"both die, leaving", .coupled = true, .fenced = true, .crash = true, .sup_dies = true,
     .leave = true},
};

static void test_every_interleaving(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(good); i++) {
        const char *broken = explore(&good[i]);
        if (broken) {
            fail_msg("%s: %s", good[i].name, broken);
        }
    }
}

/* Ranks without any collective between them have too many states for five steps. */
static void test_random_walks(void **state)
{
    (void)state;
    static const struct setting free_ranks[] = {
        {"free", .fenced = true},
        {"free, leaving", .fenced = true, .leave = true},
        {"free, rank crashes", .fenced = true, .crash = true},
    };
    for (size_t i = 0; i < HF_COUNT(free_ranks); i++) {
        const char *broken = walk(&free_ranks[i], 20000, 20260101 + i);
        if (broken) {
            fail_msg("%s: %s", free_ranks[i].name, broken);
        }
    }
}

/* The explorer finds what it is for: + 1 with stores that become visible too late. */
static void test_missing_fence_is_found(void **state)
{
    (void)state;
    const struct setting bad = {"no fence, + 1", .coupled = true, .late_pub = true, .fenced = true};
    assert_non_null(explore(&bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_interleaving),
        cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_missing_fence_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
