# SPDX-License-Identifier: Apache-2.0
#
# Everything that is not the product itself. Each test target builds what it runs; T=NAME picks
# programs (unit, faults, replay), K=EXPRESSION picks end-to-end tests (pytest -k).

define HELP
  make deps         install what building and testing need (as root or by sudo; lists it first)
  make unit         unit tests under ASan and UBSan          T=settings: one program
  make faults       fault loops: every call fails in turn    T=save
  make replay       fuzz corpora, each input once            T=manifest
  make e2e          the real binary, driven by pytest        K=reclaim
  make check        all of these, after make deps
  make check-long   spin models and longer loops
  make fuzz         libFuzzer, FUZZ_SECONDS=30 a target
  make cover        line coverage of unit, faults and e2e tests, by file and by layer
  make bench        overheads against bare exec              T=startup
  make asan         build/san/holdfast
  make lint         layers, sizes, names, format, clang-tidy, cppcheck
  make format       clang-format over the tree
  make manual       manual pages and shell completion, from the program's own tables
  make install      PREFIX=/usr/local DESTDIR=
  make clean        removes build/
endef
export HELP

SUB := $(MAKE) --no-print-directory -s
RUN := $(PYTHON) tests/run.py $(if $(T),-t '$(T)') $(if $(K),-k '$(K)')
FUZZ_SECONDS ?= 30
SHARE = $(PREFIX)/share

help:
	@sed -n '3,6s/^# \{1,3\}/  /p' Makefile
	@echo "$$HELP"

deps:
	@PYTHON='$(PYTHON)' bash tests/deps.sh all
deps-build:
	@bash tests/deps.sh build

unit-build:
	@$(SUB) DEV=1 SAN=1 unit-bins
faults-build:
	@$(SUB) DEV=1 SAN=1 FAULTS=1 faults-bins
replay-build:
	@$(SUB) DEV=1 SAN=1 replay-bins
e2e-build:
	@$(SUB) DEV=1 all build/conform

unit: unit-build
	@$(RUN) unit
faults: faults-build
	@$(RUN) faults
replay: replay-build
	@$(RUN) replay
e2e: e2e-build
	@$(RUN) e2e

# One part after the other: each may use both cores.
check: deps
	@$(SUB) e2e-build
	@$(SUB) unit-build
	@$(SUB) faults-build
	@$(SUB) replay-build
	@$(RUN) unit faults replay e2e

check-long: deps
	@$(SUB) e2e-build
	@$(SUB) unit-build
	@$(SUB) faults-build
	@$(SUB) replay-build
	@HOLDFAST_TEST_LONG=1 $(RUN) models unit faults replay e2e

fuzz:
	@$(SUB) CC=clang FUZZ=1 fuzz-bins
	@bash tests/fuzz/run.sh $(FUZZ_SECONDS) $(T)

# What a killed process had run is not counted: gcov writes at the exit.
cover: deps
	@$(SUB) DEV=1 all
	@$(SUB) DEV=1 COVER=1 all unit-bins faults-bins
	@find build/cover -name '*.gcda' -delete
	@HOLDFAST_TEST_FLAVOUR=cover HOLDFAST_BIN=build/cover/holdfast $(RUN) unit faults e2e || true
	@$(PYTHON) tests/cover.py

build/bench/%: tests/bench/%.c build/libholdfast.a
	@mkdir -p $(@D)
	@$(CC) -std=c17 -O2 -I. -Ihooks/c -o $@ $^
bench: e2e-build
	@$(SUB) build/bench/stamp build/bench/steps
	@$(PYTHON) tests/bench/bench.py $(T)

demo: deps-build
	@$(SUB) all
	@bash tests/demo.sh

asan:
	@$(SUB) SAN=1 all

lint: deps
	@$(PYTHON) tests/lint/check_src.py
	@CC='$(CC)' bash tests/lint/tools.sh

format:
	@find base cloud checkpoint hooks supervisor tests -name '*.[ch]' -print0 | xargs -0 clang-format -i

# Made by the program itself; which commands it has, holdfast(1) says.
manual: build/man/holdfast.1
build/man/holdfast.1: build/holdfast
	@mkdir -p build/man build/completion
	@for c in $$(build/holdfast help man | sed -n 's/^\.BR holdfast\\-\([a-z]*\) .*/\1/p' | sort -u); do \
		build/holdfast help man $$c >build/man/holdfast-$$c.1 || exit 1; done
	@for s in bash zsh fish; do build/holdfast help completion $$s >build/completion/$$s || exit 1; done
	@build/holdfast help man >$@

install: all manual
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 build/holdfast $(DESTDIR)$(PREFIX)/bin/
	install -m 644 build/libholdfast.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 build/libholdfast.so.1 $(DESTDIR)$(PREFIX)/lib/
	ln -sf libholdfast.so.1 $(DESTDIR)$(PREFIX)/lib/libholdfast.so
	install -m 644 build/include/holdfast.h $(DESTDIR)$(PREFIX)/include/
	install -d $(DESTDIR)$(SHARE)/man/man1 $(DESTDIR)$(SHARE)/bash-completion/completions \
		$(DESTDIR)$(SHARE)/zsh/site-functions $(DESTDIR)$(SHARE)/fish/vendor_completions.d
	install -m 644 build/man/*.1 $(DESTDIR)$(SHARE)/man/man1/
	install -m 644 build/completion/bash $(DESTDIR)$(SHARE)/bash-completion/completions/holdfast
	install -m 644 build/completion/zsh $(DESTDIR)$(SHARE)/zsh/site-functions/_holdfast
	install -m 644 build/completion/fish $(DESTDIR)$(SHARE)/fish/vendor_completions.d/holdfast.fish

clean:
	rm -rf build

.PHONY: help deps deps-build unit-build faults-build replay-build e2e-build unit faults replay e2e \
	check check-long fuzz cover bench demo asan lint format manual install clean
