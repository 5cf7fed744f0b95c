/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank agreement (docs/protocols.md; hooks/c/agree_step.h, hooks/agree.c): N ranks, steps 1..L,
 * requests raised at any time, one word, one lock. One statement is one access to shared memory.
 * tests/model/run.sh runs it with the flags below and says what must hold and what must not.
 *
 * What may happen:
 *   D=n        COUPLED ranks: a step ends only when every rank has started step - n. Uncoupled: free
 *   HOLDLIMIT  a rank that holds may cancel, at any time
 *   SUPDIES    the supervisor dies anywhere (its lock goes with it) and comes back once
 *   CRASH      one rank dies anywhere; its peers die too, each when it likes, or end; all come back
 *              in life 1 from the newest commit, each when its old self is gone
 *   FROZEN     somebody keeps the lock: ranks give up on the request and go on
 *   R=n        requests in all; the next may follow before the last was answered (it expired)
 * What may be done wrongly, to see that the properties notice:
 *   NOFENCE    a rank's look at the word overtakes its publishing (right with PLUS=2)
 *   NOLOCK     a decision is a look and a write, with no lock around the two
 *   NOHOLD     a rank that sees an undecided request goes on
 *   MIXLIFE    a save counts whatever the life of the rank that made it
 *   ANYID      a save counts whatever the request that it was made for
 *   REACH      nothing wrong, but claims that no commit is ever reached (in life 1, with CRASH)
 */
#ifndef N
#define N 3
#endif
#ifndef L
#define L 4
#endif
#ifndef R
#define R 1
#endif
#ifndef D
#define D 0
#endif
#ifndef PLUS
#define PLUS 1
#endif
#ifdef CRASH
#define LIVES 2
#else
#define LIVES 1
#endif
#define IX(life, rank) ((life) * N + (rank))

#define IDLE   0
#define RAISED 1
#define TARGET 2
#define CANCEL 3

/* The word is read and written as a whole. */
byte word_state = IDLE, word_id = 0, word_step = 0;
byte lock = 0;
byte decided[R + 1]; /* how often a request was decided */
byte base = 0;       /* the newest commit's step: where life 1 begins */
byte life = 0;       /* the highest that a rank has joined */
bool sup_gone = false;

/* A rank's line, by life and rank. */
byte pub[N * LIVES], started[N * LIVES];
byte hold_id[N * LIVES], hold_step[N * LIVES];
byte saved_id[N * LIVES], saved_step[N * LIVES];
byte gave_up[N * LIVES];
bool used[N * LIVES], over[N * LIVES], died[N * LIVES];
bool crashed = false;

inline decide(id, to, step)
{
    word_state = to; word_id = id; word_step = step;
    decided[id]++;
    assert(decided[id] == 1) /* target or cancel is written once per request */
}

#ifdef COUPLED
#if N == 3
#define PEERS_STARTED(s) (started[IX(l, 0)] + D >= s && started[IX(l, 1)] + D >= s && started[IX(l, 2)] + D >= s)
#define PEER_DIED        (died[IX(l, 0)] || died[IX(l, 1)] || died[IX(l, 2)])
#else
#define PEERS_STARTED(s) (started[IX(l, 0)] + D >= s && started[IX(l, 1)] + D >= s)
#define PEER_DIED        (died[IX(l, 0)] || died[IX(l, 1)])
#endif
#else
#define PEERS_STARTED(s) true
#define PEER_DIED        crashed
#endif

proctype Rank(byte i; byte l)
{
    byte s, st, id, step, given_up = 0;
    byte me = IX(l, i);

    d_step {
        s = (l == 0 -> 0 : base);
        used[me] = true;
        if :: l > life -> life = l :: else fi
    }
    do
    :: s < L ->
        s++;
        started[me] = s;
        if
        :: PEERS_STARTED(s)
#ifdef CRASH
        :: l == 0 && PEER_DIED -> goto dies
#endif
        fi;
#ifdef CRASH
        if
        :: l == 0 && i == 0 && !crashed -> crashed = true; goto dies
        :: l == 0 && PEER_DIED -> goto dies
        :: true
        fi;
#endif
        /* The boundary: publish, fence, look. */
#ifdef NOFENCE
        d_step { st = word_state; id = word_id; step = word_step };
        pub[me] = s;
#else
        pub[me] = s;
        d_step { st = word_state; id = word_id; step = word_step };
#endif
judge:
        if
        :: id == given_up && id != 0
        :: else ->
            if
            :: st == RAISED ->
#ifdef NOHOLD
                skip
#else
                d_step { hold_id[me] = id; hold_step[me] = s };
                do
                :: d_step { !(word_state == RAISED && word_id == id) ->
                            st = word_state; id = word_id; step = word_step };
                    goto judge
#ifdef HOLDLIMIT
#ifdef NOLOCK
                :: word_state == RAISED && word_id == id ->
#else
                :: atomic { word_state == RAISED && word_id == id && lock == 0 -> lock = 1 + me };
#endif
                    if
                    :: word_state == RAISED && word_id == id ->
                        d_step { decide(id, CANCEL, 0) }
                    :: else
                    fi;
#ifndef NOLOCK
                    lock = 0
#endif
#endif
#ifdef FROZEN
                :: word_state == RAISED && word_id == id && lock != 0 ->
                    given_up = id;
                    gave_up[me] = id;
                    break
#endif
#ifdef CRASH
                :: l == 0 && PEER_DIED -> goto dies
#endif
                od
#endif
            :: st == TARGET && step == s -> d_step { saved_id[me] = id; saved_step[me] = s }
            :: st == TARGET && step != s ->
                /* Nobody has passed the target without its save. A life that began later may. */
                assert(l > 0 || s < step || saved_id[me] == id)
            :: st == IDLE || st == CANCEL
            fi
        fi;
        atomic { st = 0; id = 0; step = 0 }
    :: else -> break
    od;
    over[me] = true;
    goto out;
dies:
    died[me] = true;
out:
    atomic { s = 0; st = 0; id = 0; step = 0; given_up = 0 }
}

#ifdef SUPDIES
#define MAY_DIE if :: sup_may_die -> sup_may_die = false; goto dead :: true fi
#else
#define MAY_DIE skip
#endif

/* The supervisor tries for a while; a frozen holder makes it leave the request undecided. */
#ifdef NOLOCK
#define TAKE_LOCK skip
#define HAS_LOCK  true
#define GIVE_LOCK skip
#else
#define TAKE_LOCK if :: atomic { lock == 0 -> lock = 100 } :: lock == 200 fi
#define HAS_LOCK  lock == 100
#define GIVE_LOCK if :: lock == 100 -> lock = 0 :: else fi
#endif

proctype Supervisor()
{
    byte next_id = 1, id, m, i, cur, n;
    bool all_hold, off, whole;
    bool sup_may_die = true;

back:
    /* What an earlier one left undecided is cancelled. */
    if
    :: word_state == RAISED ->
        TAKE_LOCK;
        if
        :: HAS_LOCK && word_state == RAISED -> d_step { decide(word_id, CANCEL, 0) }
        :: else
        fi;
        GIVE_LOCK
    :: else
    fi;
    do
    :: next_id <= R ->
        id = next_id;
        next_id++;
        MAY_DIE;
        d_step { word_state = RAISED; word_id = id; word_step = 0 };
        MAY_DIE;
        /* All ranks have passed a fence. Read them one by one; wait for none. */
        m = 0; all_hold = true; off = false; i = 0;
        cur = life;
        do
        :: i < N ->
            off = off || !used[IX(cur, i)] || over[IX(cur, i)] || died[IX(cur, i)];
            if :: pub[IX(cur, i)] > m -> m = pub[IX(cur, i)] :: else fi;
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < N ->
            all_hold = all_hold && hold_id[IX(cur, i)] == id && hold_step[IX(cur, i)] == m;
            i++
        :: else -> break
        od;
        off = off || m == 0;
        if :: !all_hold -> m = m + PLUS :: else fi;
        MAY_DIE;
        TAKE_LOCK;
        MAY_DIE;
        if
        :: HAS_LOCK && word_state == RAISED && word_id == id ->
            if
            :: off || m > L -> d_step { decide(id, CANCEL, 0) }
            :: else -> d_step { decide(id, TARGET, m) }
            fi
        :: else
        fi;
        GIVE_LOCK;
        /* Every rank's save, or none: the commit. It may also run out of time. */
        do
        :: word_state == TARGET && word_id == id ->
            MAY_DIE;
            n = 0; i = 0; whole = true;
#ifndef MIXLIFE
            cur = life;
#endif
            do
            :: i < N ->
#ifdef MIXLIFE
                cur = (used[IX(LIVES - 1, i)] -> LIVES - 1 : 0);
#endif
#ifdef ANYID
                whole = whole && saved_step[IX(cur, i)] != 0;
#else
                whole = whole && saved_id[IX(cur, i)] == id && saved_step[IX(cur, i)] == m;
#endif
                n = n + (whole -> 1 + cur : 0);
                i++
            :: else -> break
            od;
            if
            :: whole ->
                /* One life, one step, one request, and no rank missing. */
                assert(n == N || n == 2 * N);
                assert(saved_step[IX(cur, 0)] == saved_step[IX(cur, 1)]);
                assert(saved_step[IX(cur, N - 1)] == saved_step[IX(cur, 0)]);
                assert(saved_step[IX(cur, 0)] == m && gave_up[IX(cur, 0)] != id);
#ifdef REACH
                assert(cur != LIVES - 1);
#endif
                base = m;
                break
            :: else
            fi
        :: word_state == TARGET && word_id == id -> break
        :: !(word_state == TARGET && word_id == id) -> break
        od;
        m = 0; n = 0; i = 0; cur = 0; all_hold = false; off = false; whole = false
    :: next_id > R -> break
    od;
    goto fin;
dead:
    GIVE_LOCK;
    m = 0; n = 0; i = 0; cur = 0; all_hold = false; off = false; whole = false;
    if
    :: goto back
    :: goto fin /* it never comes back */
    fi;
fin:
    sup_gone = true
}

#ifdef CRASH
proctype Restarter(byte i)
{
end_wait:
    crashed && (died[IX(0, i)] || over[IX(0, i)]);
    run Rank(i, 1)
}
#endif

#ifdef FROZEN
proctype Frozen()
{
    atomic { lock == 0 -> lock = 200 }; /* for ever, or for a while */
    if :: true :: lock = 0 fi
}
#endif

/* With one request, no crash and nobody frozen: all ranks saved at one step, or none did. */
#if !defined(CRASH) && !defined(FROZEN) && R == 1
proctype Check()
{
end_wait:
    sup_gone && over[0] && over[1] && over[N - 1];
    assert(saved_step[0] == saved_step[1] && saved_step[1] == saved_step[N - 1]);
    assert(saved_step[0] == 0 || word_state == TARGET)
}
#endif

init
{
    atomic {
        run Rank(0, 0);
        run Rank(1, 0);
#if N == 3
        run Rank(2, 0);
#endif
        run Supervisor();
#if !defined(CRASH) && !defined(FROZEN) && R == 1
        run Check();
#endif
#ifdef CRASH
        run Restarter(0);
        run Restarter(1);
#if N == 3
        run Restarter(2);
#endif
#endif
#ifdef FROZEN
        run Frozen();
#endif
    }
}
