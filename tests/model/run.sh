#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every configuration of the models by spin and compares with what must come out. `holds`:
# the search is complete and finds nothing. `breaks`: a rule is left out, and the search must find
# the fault, which proves that the properties can fail. One line each, "ok" or "not ok"; the exit
# status is 1 if any is not ok. With a model's name, that one alone.
set -u
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
memory_mb=4000
seconds=600
failed=0
only=${1:-}

check() { # MODEL holds|breaks WHAT FLAGS...
    model=$1 want=$2 what=$3
    shift 3
    [ -z "$only" ] || [ "$only" = "$model" ] || return
    begun=$SECONDS
    (
        cd "$work" && cp "$OLDPWD/$model.pml" . && rm -f pan* ./*.trail &&
            spin -a "$@" "$model.pml" >spin.out 2>&1 &&
            gcc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=$memory_mb -o pan pan.c &&
            timeout $seconds ./pan -m500000 >pan.out 2>&1
    )
    got=unknown
    if grep -q 'errors: [1-9]' "$work/pan.out"; then
        got=breaks
    elif grep -q 'errors: 0' "$work/pan.out" && ! grep -q 'not completed' "$work/pan.out"; then
        got=holds
    fi
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/pan.out")
    line="$model $want: $what ($*) [${states:-?} states, $((SECONDS - begun)) s]"
    if [ "$got" = "$want" ]; then
        echo "ok $line"
    else
        failed=1
        echo "not ok $line, but it $got"
        grep -E '^pan:|Error|error' "$work/spin.out" "$work/pan.out" | sed 's/^/# /' | head -5
    fi
    rm -f "$work"/*.out
}

check store holds "zombies and false death" -DA=3
check store holds "lost replies, late puts, 3 attempts" -DA=3 -DLOST
check store holds "the supervisor dies and comes back, late puts" -DA=2 -DLOST -DSUPDIES
check store holds "two machines claim one attempt" -DA=2 -DLOST -DCONTEND -DNOFALSEDEATH -DTRAINERS
check store holds "the same, and the supervisor dies" -DA=2 -DLOST -DCONTEND -DSUPDIES \
    -DNOFALSEDEATH -DTRAINERS
check store holds "never two trainers" -DA=3 -DNOFALSEDEATH -DTRAINERS
check store holds "a collector" -DA=2 -DCOLL
check store holds "a collector, late puts" -DA=2 -DCOLL -DLOST -DROUNDS=1
check store holds "a collector, late puts, the supervisor dies" -DA=2 -DCOLL -DLOST -DSUPDIES \
    -DROUNDS=1
check store breaks "choose by listing, seal nothing" -DLISTING
check store breaks "end recorded before the command is gone" -DA=2 -DNOFALSEDEATH -DTRAINERS \
    -DEND_FIRST
check store breaks "a claim without a reply counts as won" -DA=2 -DLOST -DCONTEND -DNOFALSEDEATH \
    -DTRAINERS -DHOPEFUL
check store breaks "a repeated claim that exists counts as lost" -DA=2 -DLOST -DCONTEND \
    -DNOREADBACK
check store breaks "blocks of any older manifest may be named" -DA=2 -DCOLL -DANYREF
check store breaks "a retired decision is deleted" -DA=2 -DCOLL -DDELDEC
check store breaks "the collector aborts a living attempt's number" -DA=2 -DCOLL -DABORT_LIVE
check store breaks "after a used-up number the old parent is kept" -DA=2 -DCOLL -DLOST -DSUPDIES \
    -DROUNDS=1 -DSTALEPARENT
check store breaks "a claim that restores never happen" -DA=3 -DLOST -DREACH

check rank holds "3 ranks, no collective at all, hold limit" -DHOLDLIMIT -DL=3
check rank holds "the supervisor dies anywhere" -DHOLDLIMIT -DSUPDIES -DL=2
check rank holds "a collective in every step" -DHOLDLIMIT -DCOUPLED -DL=3 -DSUPDIES
check rank holds "CPUs run one step ahead" -DHOLDLIMIT -DCOUPLED -DD=1 -DL=3 -DSUPDIES
check rank holds "two requests, the supervisor dies" -DHOLDLIMIT -DN=2 -DL=3 -DR=2 -DSUPDIES
check rank holds "no fence, and one step of reserve" -DNOFENCE -DPLUS=2 -DL=3
check rank holds "ranks restart in a new life" -DHOLDLIMIT -DCRASH -DCOUPLED -DN=2 -DL=3
check rank holds "the same, two requests, the supervisor dies" -DHOLDLIMIT -DCRASH -DCOUPLED \
    -DN=2 -DL=2 -DR=2 -DSUPDIES
check rank holds "a frozen process has the lock" -DHOLDLIMIT -DFROZEN -DN=2 -DL=3 -DSUPDIES
check rank holds "the same, 3 ranks" -DHOLDLIMIT -DFROZEN -DN=3 -DL=2
check rank breaks "no hold limit and a dead supervisor" -DSUPDIES -DL=3
check rank breaks "no lock around a decision" -DHOLDLIMIT -DNOLOCK -DL=3
check rank breaks "nobody holds" -DNOHOLD -DL=3
check rank breaks "no fence and no reserve" -DNOFENCE -DL=3
check rank breaks "a save counts in any life" -DHOLDLIMIT -DCRASH -DCOUPLED -DN=2 -DL=3 -DR=2 \
    -DMIXLIFE
check rank breaks "a claim that commits never happen" -DHOLDLIMIT -DSUPDIES -DL=3 -DREACH
check rank breaks "a claim that restarted ranks never commit" -DHOLDLIMIT -DCRASH -DCOUPLED -DN=2 \
    -DL=3 -DREACH
check rank breaks "a save counts for any request" -DHOLDLIMIT -DN=2 -DL=3 -DR=2 -DANYID
exit $failed
