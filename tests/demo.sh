#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The README's demo: a training program is preempted twice by a drill and runs to its end; its final
# weights must equal those of an undisturbed run, which is made here too. Run by `make demo` after the
# build.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=${DEMO_STEPS:-2400}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOLDFAST_STATE_DIR="$work/state"
text=(README.md docs/*.md)

printf '1. An undisturbed run of a small character model, %s steps on this project'\''s own text.\n' "$steps"
build/charlm --steps "$steps" "${text[@]}" | tee "$work/undisturbed.txt"
plain=$(sed -n 's/^digest: //p' "$work/undisturbed.txt")

printf '\n2. The same, preempted twice: notice, save, kill, a fresh machine.\n'
status=0
# All but the table and the last line is shown as it comes: these follow the digests' comparison.
build/holdfast drill --no-use-window --notice 10s --at-step $((steps / 3)) --times 2 --until finished -- \
    build/charlm --steps "$steps" "${text[@]}" | tee "$work/drill.txt" |
    sed -u '/^preemption /,$d' || status=$?
drilled=$(sed -n 's/^digest: //p' "$work/drill.txt")

printf '\n'
sed -n '/^preemption /,$p' "$work/drill.txt" | sed '/^drill: /d'
printf 'digest of the undisturbed run  %s\n' "$plain"
printf 'digest of the preempted run    %s\n' "$drilled"
if [ "$status" -ne 0 ]; then
    tail -n 1 "$work/drill.txt"
    exit 1
fi
if [ -z "$plain" ] || [ "$plain" != "$drilled" ]; then
    printf 'drill: FAIL: the weights differ from those of the undisturbed run\n'
    exit 1
fi
printf 'drill: PASS\n'
