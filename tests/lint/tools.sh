#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The checkers that come from elsewhere: headers that stand alone, clang-format, clang-tidy,
# cppcheck. Each says what it found; the exit status is 1 when any did. With file names it looks
# at those alone.
set -u
cd "$(dirname "$0")/../.."
status=0
jobs=$(nproc)
if [ $# -gt 0 ]; then
    files=$(printf '%s\n' "$@")
else
    files=$(find base cloud checkpoint hooks supervisor tests -name '*.[ch]' \
        ! -path 'tests/data/*' ! -path 'tests/fuzz/corpus/*' | sort)
fi
headers=$(grep '\.h$' <<<"$files")
product=$(grep '\.c$' <<<"$files" | grep -v '^tests/')
all_c=$(grep '\.c$' <<<"$files")
flags="-std=c17 -I. -Ihooks/c"

verdict() {
    if [ "$2" = 0 ]; then
        echo "lint: $1: clean"
    else
        echo "lint: $1: FAILED"
        status=1
    fi
}

if [ -n "$headers" ]; then
    xargs -P "$jobs" -n 1 "${CC:-gcc}" $flags -Wall -Wextra -Werror -fsyntax-only -x c <<<"$headers"
    verdict "headers stand alone" $?
    if grep -qx hooks/c/holdfast.h <<<"$headers"; then
        clang -x c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only hooks/c/holdfast.h
        verdict "holdfast.h is C++ too" $?
    fi
fi

xargs -P "$jobs" -n 8 clang-format --dry-run -Werror <<<"$files"
verdict "clang-format (make format puts it right)" $?

if [ -n "$product" ]; then
    # One line a finding, without the notes that trail it: clang-tidy FILE -- -std=c17 -I. shows all.
    xargs -P "$jobs" -n 1 sh -c 'out=$(clang-tidy --quiet "$1" -- '"$flags"' 2>/dev/null) ||
        { grep -E "(error|warning): " <<END
$out
END
        exit 1; }' sh <<<"$product"
    verdict "clang-tidy" $?
fi

if [ -n "$all_c" ]; then
    cppcheck --quiet --std=c11 --language=c -I. -Ihooks/c -j "$jobs" --error-exitcode=1 \
        --enable=warning,performance,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
        --template='{file}:{line}: {id}: {message}' $all_c
    verdict "cppcheck" $?
fi
exit $status
