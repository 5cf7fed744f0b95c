# SPDX-License-Identifier: Apache-2.0
#
#   make            build/holdfast, the C client and its example: all that a user needs
#   make demo       a training program, preempted twice, finishes with nothing lost
#   make check      all tests that fit in 20 minutes on 2 cores (installs what it needs)
#   make help       the other targets
#
# Variables: DEV=1 (warnings are errors), SAN=1 (ASan and UBSan), FAULTS=1 (fault points compiled
# in), FUZZ=1 (instrumented for libFuzzer, needs CC=clang), COVER=1 (for gcov, with fault points),
# CC, PYTHON, PREFIX, DESTDIR.

ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
PYTHON ?= python3

ifdef COVER
FAULTS := 1
endif
FLAVOUR := $(if $(FUZZ),fuzz,$(if $(COVER),cover,$(if $(SAN),san,rel)$(if $(FAULTS),-faults)$(if $(filter clang%,$(CC)),-clang)))
B       := build/$(FLAVOUR)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla \
	-Wundef -Wformat=2 -Wnull-dereference -Wimplicit-fallthrough -Wdouble-promotion \
	-Wredundant-decls -Wenum-conversion
ifeq ($(filter clang%,$(CC)),)
WARN += -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init -Wformat-signedness \
	-Walloc-zero
endif
ifdef DEV
WARN += -Werror
endif
ifdef FUZZ
WARN := -w
endif

, := ,
SANITIZE := $(if $(SAN)$(FUZZ),-fsanitize=address$(,)undefined)
ifdef SANITIZE
OPT := -O1 -g $(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(FUZZ),-fsanitize=fuzzer-no-link)
else ifdef COVER
OPT := -O0 -g -std=gnu17 --coverage -fprofile-update=atomic
else
OPT := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection
endif
PKGS := libuv libcurl libcrypto libcjson yaml-0.1 libmicrohttpd libzstd expat
LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null || echo -luv -lcurl -lcrypto -lcjson -lyaml -lmicrohttpd -lzstd -lexpat) -lm -lpthread
CPPFLAGS_ALL = -I. $(if $(FAULTS),-DHF_TEST_FAULTS) $(CPPFLAGS)
CFLAGS_ALL   = -std=c17 $(PIC) $(OPT) $(WARN) $(CFLAGS)
LDFLAGS_ALL  = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SANITIZE) $(if $(COVER),--coverage) $(LDFLAGS)
PIC := -fPIE

# One archive a layer; arrows run downwards only.
LAYERS := supervisor checkpoint hooks cloud base
$(foreach l,$(LAYERS),$(eval $(l)_SRC := $(filter-out supervisor/main.c,$(wildcard $(l)/*.c))))
ARCHIVES := $(foreach l,$(LAYERS),$(B)/lib$(l).a)
CLIENT   := $(patsubst %.c,$(B)/%.o,$(wildcard hooks/c/*.c))

ifeq ($(B),build/rel)
all: build/holdfast client
else
all: $(B)/holdfast $(B)/libholdfast.a
endif

build/holdfast: $(B)/holdfast
	@cp -f $< $@

$(B)/holdfast: $(B)/supervisor/main.o $(ARCHIVES)
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

# The member list is a prerequisite, so that a removed source leaves the archive as well.
define archive
$(B)/lib$(1).a: $(patsubst %.c,$(B)/%.o,$($(1)_SRC)) $(B)/lib$(1).list
	@rm -f $$@
	@ar rcs $$@ $$(filter %.o,$$^)
$(B)/lib$(1).list: FORCE
	@mkdir -p $$(@D)
	@echo '$($(1)_SRC)' | cmp -s - $$@ || echo '$($(1)_SRC)' >$$@
endef
$(foreach l,$(LAYERS),$(eval $(call archive,$(l))))

# The client for training programs: no library of ours or of others below it.
client: build/libholdfast.a build/libholdfast.so build/include/holdfast.h build/charlm
$(B)/hooks/c/%.o: PIC := -fPIC
$(B)/hooks/c/%.o: CFLAGS_ALL += -fvisibility=hidden
$(B)/libholdfast.a: $(CLIENT)
	@rm -f $@
	@ar rcs $@ $^
build/libholdfast.a: $(B)/libholdfast.a
	@cp -f $< $@
build/libholdfast.so: $(CLIENT)
	$(CC) -shared $(LDFLAGS) -Wl,-z,relro,-z,now -Wl,-soname,libholdfast.so.1 -o $@.1 $^
	@ln -sf libholdfast.so.1 $@
build/include/holdfast.h: hooks/c/holdfast.h
	@mkdir -p $(@D)
	@cp -f $< $@
$(B)/hooks/examples/%.o: CPPFLAGS_ALL += -Ihooks/c
build/charlm: $(B)/hooks/examples/charlm.o $(B)/libholdfast.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ -lm

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

# Test programs: tests/unit/test_X.c and tests/faults/test_X.c, one program each, linked with what
# they need of tests/unit/support_*.c and of every archive; tests/fuzz/fuzz_X.c, with libFuzzer or
# a main that replays the corpus.
$(B)/tests/%.o: CFLAGS_ALL += -Wno-write-strings
support_SRC := $(wildcard tests/unit/support_*.c)
$(eval $(call archive,support))
UNIT_BIN   := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
FAULTS_BIN := $(patsubst tests/faults/%.c,$(B)/faults/%,$(wildcard tests/faults/test_*.c))
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN   := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ_SRC))
REPLAY_BIN := $(patsubst tests/fuzz/fuzz_%.c,$(B)/replay/replay_%,$(FUZZ_SRC))
unit-bins: $(UNIT_BIN)
faults-bins: $(FAULTS_BIN)
fuzz-bins: $(FUZZ_BIN)
replay-bins: $(REPLAY_BIN)
LINK_TEST = @mkdir -p $(@D); echo LD $@; $(CC) $(LDFLAGS_ALL) -o $@ $^
$(UNIT_BIN): $(B)/unit/%: $(B)/tests/unit/%.o $(B)/libsupport.a $(ARCHIVES) $(CLIENT)
	$(LINK_TEST) -lcmocka $(LIBS)
$(FAULTS_BIN): $(B)/faults/%: $(B)/tests/faults/%.o $(B)/libsupport.a $(ARCHIVES) $(CLIENT)
	$(LINK_TEST) -lcmocka $(LIBS)
# The suite of stores against a real one, started by tests/e2e/test_stores.py.
build/conform: $(B)/tests/e2e/conform.o $(B)/libsupport.a $(ARCHIVES) $(CLIENT)
	$(LINK_TEST) -lcmocka $(LIBS)
# The crash layer stands between the file store and the C library.
$(B)/faults/test_powercut: $(B)/tests/faults/powercut.o
$(B)/faults/test_powercut: LDFLAGS += $(foreach f,openat close write fsync linkat renameat unlinkat mkdirat,-Wl$(,)--wrap=$(f))
$(FUZZ_BIN): $(B)/fuzz/%: $(B)/tests/fuzz/%.o $(ARCHIVES) $(CLIENT)
	$(LINK_TEST) -fsanitize=fuzzer $(LIBS)
$(REPLAY_BIN): $(B)/replay/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(ARCHIVES) $(CLIENT)
	$(LINK_TEST) $(LIBS)

-include $(shell find build -name '*.d' 2>/dev/null)
FORCE:
.SECONDARY:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
.PHONY: all client unit-bins faults-bins fuzz-bins replay-bins FORCE

include tests/targets.mk
