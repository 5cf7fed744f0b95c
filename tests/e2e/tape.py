# SPDX-License-Identifier: Apache-2.0
"""Records how a program changes a folder (disk_tape.c, preloaded), and lays the folder out again as
a kill at any moment of it would have left it: real bytes in their real order, at every change and
in the middle of every write, from one run of the program."""
import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support import TOP

HEADER = struct.Struct("<IIIIQQ")


def library(folder):
    """Builds the recorder."""
    source, made = TOP / "tests" / "e2e" / "disk_tape.c", folder / "disk_tape.so"
    if not made.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", TOP, "-o", made, source],
                       check=True)
    return made


@dataclass
class Change:
    op: str
    name: str
    other: str
    mode: int
    off: int
    len: int
    data: bytes


class Tape:
    def __init__(self, path, below):
        self.below = Path(below)
        self.changes = []
        blob, at = Path(path).read_bytes(), 0
        while at < len(blob):
            op, name_len, other_len, mode, off, length = HEADER.unpack_from(blob, at)
            at += HEADER.size
            name = os.fsdecode(blob[at:at + name_len])
            at += name_len
            other = os.fsdecode(blob[at:at + other_len])
            at += other_len
            data = blob[at:at + length] if chr(op) in "wi" else b""
            at += len(data)
            self.changes.append(Change(chr(op), name, other, mode, off, length, data))

    def moments(self):
        """(change, bytes of it that were done): after each, and in the middle of each write that
        has a middle. Opening, and taking a folder apart, are moments as well."""
        for i, change in enumerate(self.changes):
            if change.op == "w" and len(change.data) > 1:
                yield i, len(change.data) // 2
            yield i, None

    def play(self, folder):
        return Player(self, Path(folder))


class Player:
    """The folder as it was at one moment after the other."""

    def __init__(self, tape, folder):
        self.tape, self.folder, self.next, self.half = tape, folder, 0, False
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def path(self, name):
        return self.folder / Path(os.path.normpath(name)).relative_to(self.tape.below)

    def to(self, change, done):
        """Up to and with this change, or its first `done` bytes."""
        while self.next < change or (self.next == change and done is None):
            self.apply(self.tape.changes[self.next], None)
            self.next += 1
        if done is not None:
            self.apply(self.tape.changes[change], done)

    def apply(self, c, done):
        path = self.path(c.name) if c.op != "r" or self.inside(c.name) else Path(c.name)
        if c.op == "o":
            with open(path, "wb" if c.mode else "ab"):
                pass
        elif c.op == "w":
            with open(path, "r+b") as f:
                f.seek(c.off)
                f.write(c.data if done is None else c.data[:done])
        elif c.op == "i":  # moved in from outside, whole
            path.write_bytes(c.data)
        elif c.op == "t":
            os.truncate(path, c.len)
        elif c.op == "r":
            self.rename(path, c)
        elif c.op == "u":
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        elif c.op == "m":
            path.mkdir()
        elif c.op == "s":
            target = self.path(c.other) if self.inside(c.other) else c.other
            path.symlink_to(target)
        elif c.op == "l":
            os.link(self.path(c.other), path)
        else:
            raise AssertionError(f"no such change: {c.op}")

    def inside(self, name):
        return os.path.normpath(name).startswith(f"{self.tape.below}/")

    def rename(self, path, c):
        if not self.inside(c.name) or not self.inside(c.other):
            raise AssertionError(f"moved over the folder's edge: {c.name} -> {c.other}")
        os.rename(path, self.path(c.other))


def content(folder):
    """{relative name: bytes, link or None for a folder}"""
    found = {}
    for root, dirs, files in os.walk(folder):
        for name in dirs + files:
            path = Path(root, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                target = os.readlink(path)
                found[key] = "-> " + os.path.basename(target)
            else:
                found[key] = None if path.is_dir() else path.read_bytes()
    return found
