# SPDX-License-Identifier: Apache-2.0
"""The control file as a rank sees it: layout and words (docs/protocols.md), mapped memory.

Words are written and read by single aligned 8-byte accesses of a memoryview. Python has no memory
fence: the supervisor's membarrier serves both sides.
"""

import fcntl
import mmap
import os

MAGIC = 0x31303066646C6F68
VERSION = 1
SLOTS = 128
HEAD_BYTES = 8192
SLOT_BYTES = 128
SIZE = HEAD_BYTES + SLOTS * SLOT_BYTES
STEP_MAX = (1 << 45) - 2

IDLE, RAISED, TARGET, CANCEL, LEAVE = range(5)

# Indexes into the header: 4-byte and 8-byte units.
_VERSION_4, _SLOTS_4, _EPOCH_4, _LIMIT_4 = 2, 4, 8, 9
WORD, DEADLINE, LEAVE_ID = 8, 9, 10
# Indexes into the rank's line of a slot, 8-byte units; gave_up and done share one.
STEP, HOLD, SAVED, LAST, _FLAGS = 0, 1, 2, 3, 4


def pack(state, request, step):
    return (state << 61) | ((request & 0xFFFF) << 45) | (step & ((1 << 45) - 1))


def state_of(word):
    return word >> 61


def id_of(word):
    return (word >> 45) & 0xFFFF


def step_of(word):
    return word & ((1 << 45) - 1)


class Control:
    """The mapped file. Raises OSError or ValueError if it is not one of this version."""

    def __init__(self, path):
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != SIZE:
                raise ValueError("control file of another size")
            self._map = mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        view = memoryview(self._map)
        self.head = view[:HEAD_BYTES].cast("Q")
        self._head4 = view[:HEAD_BYTES].cast("I")
        self._view = view
        if (
            self.head[0] != MAGIC
            or self._head4[_VERSION_4] != VERSION
            or self._head4[_SLOTS_4] != SLOTS
        ):
            raise ValueError("control file of another version")

    def epoch(self):
        return self._head4[_EPOCH_4]

    def hold_limit_s(self):
        return self._head4[_LIMIT_4] / 1000.0

    def slot(self, index):
        """The rank's line of a slot: signed for steps, unsigned for words, 4-byte for flags."""
        start = HEAD_BYTES + index * SLOT_BYTES + 64
        line = self._view[start : start + 64]
        return line.cast("q"), line.cast("Q"), line.cast("I")

    def cancel(self, request):
        """RAISED -> CANCEL under flock. False: another process has the lock."""
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)  # flock belongs to the open file
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            word = self.head[WORD]
            if state_of(word) == RAISED and id_of(word) == request:
                self.head[WORD] = pack(CANCEL, request, 0)
            return True
        finally:
            os.close(fd)
