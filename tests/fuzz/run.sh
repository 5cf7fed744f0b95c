#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh SECONDS [NAME]: each libFuzzer target for that long, one after the other, from the
# corpus in the tree. New inputs go to build/fuzz/found/NAME; copy those worth keeping into
# tests/fuzz/corpus/NAME.
set -eu
cd "$(dirname "$0")/../.."
seconds=$1
only=${2:-}
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    [ -z "$only" ] || [ "$only" = "$name" ] || continue
    found=build/fuzz/found/$name
    mkdir -p "$found" build/fuzz/crashes
    echo "fuzz: $name for $seconds s"
    build/fuzz/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$name-" \
        "$found" tests/fuzz/corpus/"$name" 2>build/fuzz/"$name".log || {
        tail -40 build/fuzz/"$name".log
        echo "fuzz: $name FAILED; the input is in build/fuzz/crashes" >&2
        exit 1
    }
    sed -n 's/^stat::number_of_executed_units: */  executions: /p' build/fuzz/"$name".log
done
