#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing: `deps.sh build` for building and the demo, `deps.sh all` for tests and
# lint as well. As root, or by sudo without a password, it shows the list and installs; otherwise
# it prints the one command and exits 1. When all is there it only looks and says nothing.
set -eu
cd "$(dirname "$0")/.."
mode=${1:-all}

# "how:what:package": a program in PATH, a pkg-config module, or a header; and Debian's name for it.
build="cmd:gcc:gcc cmd:make:make cmd:pkg-config:pkg-config h:stdio.h:libc6-dev
    pc:libuv:libuv1-dev pc:libcurl:libcurl4-openssl-dev pc:libcrypto:libssl-dev
    pc:libcjson:libcjson-dev pc:yaml-0.1:libyaml-dev pc:libmicrohttpd:libmicrohttpd-dev
    pc:libzstd:libzstd-dev pc:expat:libexpat1-dev"
tests="h:cmocka.h:libcmocka-dev cmd:clang:clang clang:fuzzer:libclang-rt-dev
    cmd:clang-format:clang-format cmd:clang-tidy:clang-tidy cmd:cppcheck:cppcheck
    cmd:ctags:universal-ctags cmd:git:git cmd:ip:iproute2 cmd:mkfs.ext4:e2fsprogs cmd:spin:spin
    cmd:python3:python3 venv:python3:python3-venv"

here() {
    case $1 in
    cmd) command -v "$2" >/dev/null ;;
    pc) pkg-config --exists "$2" 2>/dev/null ;;
    h) echo "#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <$2>" | gcc -E -x c - >/dev/null 2>&1 ;;
    clang) clang --print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null | grep -q / ||
        ls "$(clang --print-runtime-dir 2>/dev/null)"/libclang_rt.fuzzer* >/dev/null 2>&1 ;;
    venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ;;
    esac
}

wanted=$build
[ "$mode" = all ] && wanted="$build $tests"
missing=
for item in $wanted; do
    IFS=: read -r how what package <<<"$item"
    here "$how" "$what" || missing="$missing $package"
done

if [ -n "$missing" ]; then
    command="apt-get install -y --no-install-recommends$missing"
    if ! command -v apt-get >/dev/null; then
        echo "holdfast needs (by Debian's names):$missing" >&2
        echo "Install them with this system's package manager, then run make again." >&2
        exit 1
    fi
    sudo=
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "holdfast needs packages that are not installed. Run this, then make again:" >&2
            echo "    sudo $command" >&2
            exit 1
        fi
        sudo=sudo
    fi
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -q >/dev/null
    $sudo env DEBIAN_FRONTEND=noninteractive $command -q >/dev/null
    for item in $wanted; do
        IFS=: read -r how what package <<<"$item"
        here "$how" "$what" || { echo "still missing after the installation: $what" >&2; exit 1; }
    done
fi

# The tests' Python packages, pinned, in a folder of their own.
if [ "$mode" = all ] && ! cmp -s tests/requirements.txt .venv/installed.txt; then
    echo "installing into .venv: $(tr '\n' ' ' <tests/requirements.txt)"
    [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt .venv/installed.txt
fi

# The frameworks that the tests take checkpoints from (docs/frameworks.md); DeepSpeed without
# compiling anything.
frameworks=tests/requirements-frameworks.txt
apart=tests/requirements-apart.txt
if [ "$mode" = all ] && ! cat $frameworks $apart | cmp -s - .venv/frameworks.txt; then
    echo "installing into .venv: the training frameworks of $frameworks and $apart"
    pip="env DS_BUILD_OPS=0 .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps"
    $pip -r $frameworks
    rm -rf .venv/apart
    $pip --target .venv/apart -r $apart
    cat $frameworks $apart >.venv/frameworks.txt
fi

stores=tests/requirements-stores.txt
if [ "$mode" = all ] && ! cmp -s $stores .venv/stores.txt; then
    echo "installing into .venv: the object stores of $stores"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -r $stores
    cp $stores .venv/stores.txt
fi
