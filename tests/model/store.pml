/* SPDX-License-Identifier: Apache-2.0
 *
 * Claim, seal, choose, commit, retire (docs/formats.md; checkpoint/lineage.c): A attempts with K
 * numbers each over a store whose only primitive is create-only put. One statement is one request
 * as the store carries it out. tests/model/run.sh runs it with the flags below and says what must
 * hold and what must not.
 *
 * What may happen:
 *   (always)      an attempt ends, is taken away before any statement that matters, or is judged
 *                 dead though it lives and goes on as a zombie
 *   NOFALSEDEATH  only what has ended or is gone is judged dead
 *   TRAINERS      count the trainers (to be used with NOFALSEDEATH)
 *   LOST          a reply gets lost and the same bytes are put again; a put whose sender has died
 *                 stays on its way and arrives at any later time, or never
 *   SUPDIES       the supervisor of an attempt dies once and comes back to the living command
 *   CONTEND       two machines claim attempt 1 (a replacement, and a person)
 *   COLL          a collector retires, aborts what was abandoned, and deletes blocks
 * What may be done wrongly, to see that the properties notice:
 *   LISTING       choose by listing, then claim with that base, seal nothing
 *   END_FIRST     the end is recorded before the command is gone
 *   HOPEFUL       a claim whose reply was lost counts as won
 *   NOREADBACK    a claim that "exists" after a lost reply counts as lost
 *   ANYREF        a manifest may name blocks of any older live one, not of its parent alone
 *   DELDEC        a retired decision is deleted in the end
 *   ABORT_LIVE    the collector aborts numbers of an attempt that is the newest and has not ended
 *   STALEPARENT   after its number was used up by an earlier put of its own, the owner goes on to
 *                 the next one with the parent that it had chosen before
 *   REACH         nothing wrong, but claims that the last attempt never restores what was told durable
 */
#ifndef A
#define A 3
#endif
#define K    2
#define NN   (A * K)
#define NONE 9
#define IX(a, k) ((a) * K + (k))
#define B(i)     (1 << (i))
#define B2(i)    (1 << ((i) + NN)) /* blocks by the supervisor that came back: other nonce */
#define BOTH(i)  (B(i) | B2(i))

#define MANIFEST 1
#define SEAL     2 /* or an abort mark */

byte claim[A] = 0;   /* nonce of the winner */
byte hi = 0;         /* the highest claim */
byte dec[NN];        /* the decision objects */
byte by[NN];         /* nonce of a manifest's writer: 0 first supervisor, 1 the one that came back */
short names[NN];     /* the blocks that a manifest names */
short data = 0;      /* the blocks that are there */
byte retired = 0;    /* retired.json marks */
byte told = 0;       /* numbers reported durable while no higher claim was there */
bool ended[A], gone[A];
byte base[A] = NONE;
byte trainers = 0;

/* A put on its way whose sender has died. */
bool flying = false;
byte fly_at = 0;
short fly_names = 0;

#define LIVE(i)   (dec[i] == MANIFEST && !(retired & B(i)))
#define INTACT(i) ((names[i] & ~data) == 0)

inline newest(a, r)
{
    if
    :: LIVE(IX(a, 1)) -> r = IX(a, 1)
    :: else -> if :: LIVE(IX(a, 0)) -> r = IX(a, 0) :: else -> r = NONE fi
    fi
}

/* The newest manifest of the highest attempt up to h that has one. */
inline choose(h, r)
{
    newest(h, r);
#ifdef LISTING
    if :: r == NONE -> r = base[h] :: else fi
#else
    if :: r == NONE && h > 0 -> newest(h - 1, r) :: else fi;
    if :: r == NONE && h > 1 -> newest(h - 2, r) :: else fi
#endif
}

#ifdef LISTING
#define PROTECTED !(base[h] == j && h > 0)
#else
#define PROTECTED true
#endif

inline seal_attempt(a)
{
    j = 0;
    do
    :: j < K ->
        atomic {
            if
            :: dec[IX(a, j)] == 0 -> dec[IX(a, j)] = SEAL; j = K
            :: dec[IX(a, j)] == SEAL -> j = K
            :: dec[IX(a, j)] == MANIFEST -> j++
            fi
        }
    :: else -> break
    od;
    j = 0
}

proctype Attempt(byte a; byte nonce)
{
    byte k = 0, prev = NONE, j = 0, q = 0;
    short pm = 0;
    bool exists = false, came_back = false, trains = false;

    if
    :: a > 0 ->
end_idle: /* the attempt before it may never be claimed, or never end */
        claim[a - 1] != 0;
#ifdef NOFALSEDEATH
end_waits:
        ended[a - 1] || gone[a - 1];
#endif
#ifdef LISTING
        d_step { choose(a - 1, prev) };
        d_step { claim[a] = nonce; base[a] = prev; hi = a };
#else
        if :: goto away :: true fi;
        /* The put arrives; its reply, or nothing, comes back. */
        atomic {
            if
            :: claim[a] == 0 -> claim[a] = nonce; hi = (a > hi -> a : hi)
            :: else -> exists = true
            fi
        };
#ifdef LOST
        if
        :: true /* the reply came */
        :: true -> /* it got lost: the same again, which finds what stands */
#ifdef HOPEFUL
            exists = false;
#else
            exists = true;
#endif
#ifdef NOREADBACK
            goto loser;
#endif
        fi;
#endif
#ifdef HOPEFUL
        if :: exists && claim[a] != nonce -> goto loser :: else fi;
#else
        if :: claim[a] != nonce -> goto loser :: else fi; /* read back */
#endif
        exists = false;
        if :: goto away :: true fi; /* taken between claim and seal */
        seal_attempt(a - 1);
        if :: a > 1 -> seal_attempt(a - 2) :: else fi;
        d_step { choose(a, prev); base[a] = prev };
#endif
        d_step {
            j = 0;
            do
            :: j < IX(a, 0) ->
                /* What was told durable is not passed over. */
                assert(!(told & B(j)) || (prev != NONE && j <= prev));
                j++
            :: else -> break
            od;
            j = 0
        };
#ifdef REACH
        assert(a != A - 1 || prev == NONE || !(told & B(prev)));
#endif
        if :: goto away :: true fi;
        assert(prev == NONE || INTACT(prev) || hi > a) /* the restore finds every block */
    :: else -> claim[0] = nonce
    fi;
    atomic {
        trains = true;
        trainers++;
#ifdef TRAINERS
        assert(trainers == 1);
#endif
    };
    do
    :: k < K ->
        /* A zombie may have looked for a higher claim long ago: it may see it or not. */
        if :: hi > a -> goto stop :: true fi;
pick:
        skip;
        d_step { pm = 0; if :: prev != NONE && !(retired & B(prev)) -> pm = names[prev] :: else fi };
#ifdef ANYREF
        if
        :: true
        :: d_step {
               q = 0;
               do :: q < NN && !(LIVE(q) && q < IX(a, k)) -> q++ :: else -> break od;
               if :: q < NN -> pm = names[q] :: else fi;
               q = 0
           }
        fi;
#endif
        if :: pm = 0 :: true fi; /* all content is new, or some is the parent's */
#ifdef STALEPARENT
again:
        skip;
#endif
        d_step {
            pm = pm | (came_back -> B2(IX(a, k)) : B(IX(a, k)));
            data = data | (came_back -> B2(IX(a, k)) : B(IX(a, k)))
        };
        if :: goto away :: true fi; /* dies between upload and commit */
#ifdef LOST
        /* Dies with the put on its way: alone or, with SUPDIES, below a command that lives. */
        if
        :: true
        :: !flying && !came_back ->
            d_step { flying = true; fly_at = IX(a, k); fly_names = pm };
#ifdef SUPDIES
            if :: goto back :: goto away fi
#else
            goto away
#endif
        fi;
#endif
        atomic {
            if
            :: dec[IX(a, k)] == 0 ->
                dec[IX(a, k)] = MANIFEST; by[IX(a, k)] = came_back; names[IX(a, k)] = pm
            :: dec[IX(a, k)] == SEAL ->
                assert(hi > a); /* only one that took the run over stops its owner */
                goto stop
            :: dec[IX(a, k)] == MANIFEST && by[IX(a, k)] == came_back -> skip /* ours, repeated */
            :: dec[IX(a, k)] == MANIFEST && by[IX(a, k)] != came_back -> exists = true
            fi
        };
        if
        :: exists -> /* our attempt's earlier put got there first, with other bytes */
            exists = false;
#ifdef STALEPARENT
            k++;
            if :: k < K -> goto again :: else -> goto stop fi
#else
            prev = IX(a, k); k++;
            if :: k < K -> goto pick :: else -> goto stop fi
#endif
        :: else
        fi;
#ifdef DELDEC
        if /* the reply got lost: the same bytes again */
        :: true
        :: atomic {
               if
               :: dec[IX(a, k)] == 0 ->
                   dec[IX(a, k)] = MANIFEST; names[IX(a, k)] = pm; retired = retired & ~B(IX(a, k))
               :: else
               fi
           }
        fi;
#endif
        atomic { if :: hi <= a -> told = told | B(IX(a, k)) :: else fi };
        prev = IX(a, k); pm = 0; k++
#if defined(SUPDIES)
    :: k < K && !came_back -> goto back
#endif
    :: k >= K -> break
    od;
    goto stop;
#ifdef SUPDIES
back:
    /* A new supervisor, the same attempt: the first undecided number, by GET. */
    came_back = true; pm = 0; exists = false; k = 0;
    do
    :: k < K && dec[IX(a, k)] == MANIFEST -> k++
    :: k < K && dec[IX(a, k)] == SEAL -> goto stop
    :: k == K || dec[IX(a, k)] == 0 -> break
    od;
    skip;
    d_step { if :: k > 0 -> newest(a, prev) :: else -> prev = base[a] fi };
    if :: k < K -> goto pick :: else fi;
#endif
stop:
#ifdef END_FIRST
    ended[a] = true;
    trainers--;
#else
    trainers--;
    ended[a] = true;
#endif
    goto out;
loser:
    /* It must not be that nobody trains for a claim that stands. */
    assert(claim[a] != nonce);
    goto out;
away:
    atomic {
        if :: trains -> trainers-- :: else fi;
        gone[a] = true
    };
out:
    atomic { k = 0; prev = 0; pm = 0; j = 0; q = 0; exists = false; came_back = false; trains = false }
}

#ifdef LOST
/* What is on its way arrives, or does not. */
proctype Net()
{
end_wait:
    atomic {
        flying ->
        if
        :: dec[fly_at] == 0 -> dec[fly_at] = MANIFEST; by[fly_at] = 0; names[fly_at] = fly_names
        :: else
        fi;
        fly_names = 0
    }
}
#endif

#ifdef COLL
#ifndef ROUNDS
#define ROUNDS 2
#endif
inline find_live()
{
    d_step {
        live = 0; q = 0;
        do
        :: q < NN -> if :: LIVE(q) -> live = live | names[q] :: else fi; q++
        :: else -> break
        od;
        q = 0
    }
}
proctype Collector()
{
    byte r = 0, h, c, j, q, may;
    short live, spare;
    do
    :: r < ROUNDS ->
        if
        :: /* retire a manifest that is not the last good one */
            d_step {
                h = hi; choose(h, c); may = 0; j = 0;
                do
                :: j < NN -> if :: LIVE(j) && j != c -> may = may | B(j) :: else fi; j++
                :: else -> break
                od
            };
            j = 0;
            do :: j < NN - 1 -> j++ :: break od;
            if
            :: (may & B(j)) && c != NONE && j < c && PROTECTED ->
                retired = retired | B(j);
                find_live();
                d_step {
                    spare = 0; q = 0;
                    do
                    :: q < NN -> if :: retired & B(q) -> spare = spare | BOTH(q) :: else fi; q++
                    :: else -> break
                    od;
                    q = 0
                };
                data = data & ~(spare & ~live); /* a pause may lie before this */
#ifdef DELDEC
                atomic { if :: retired & B(j) -> dec[j] = 0 :: else fi }
#endif
            :: else
            fi
        :: /* abort an abandoned number, then delete its blocks */
            j = 0;
            do :: j < NN - 1 -> j++ :: break od;
            if
#ifdef ABORT_LIVE
            :: dec[j] == 0 && (data & BOTH(j)) ->
#else
            :: dec[j] == 0 && (data & BOTH(j)) && (j / K < hi || ended[j / K]) ->
#endif
                atomic { if :: dec[j] == 0 -> dec[j] = SEAL :: else -> goto next fi };
                find_live();
                data = data & ~(BOTH(j) & ~live)
            :: else
            fi;
next:       skip
        fi;
        r++;
        j = 0; live = 0; may = 0; c = 0; h = 0; spare = 0
    :: break
    od
}
#endif

/* Looked at in any one moment. */
proctype Monitor()
{
    byte c, j = 0;
    d_step {
        choose(hi, c);
        if :: c != NONE -> assert(INTACT(c)) :: else fi; /* what would be restored now is whole */
        do
        :: j < NN -> assert(!LIVE(j) || INTACT(j)); j++ /* durable means durable */
        :: else -> break
        od
    }
}

init
{
    atomic {
        run Attempt(0, 1);
        run Attempt(1, 1);
#ifdef CONTEND
        run Attempt(1, 2);
#endif
#if A == 3
        run Attempt(2, 1);
#endif
#ifdef LOST
        run Net();
#endif
#ifdef COLL
        run Collector();
#endif
        run Monitor()
    }
}
