# SPDX-License-Identifier: Apache-2.0
"""A rank's side of hook protocol 1, written from docs/protocols.md alone: shares no code with
hooks/. Tests use it to speak; as a program it trains like trainers/loop.py (the same digests), with
--nproc as a launcher that restarts all its ranks when one dies, as torchrun does.
"""
import argparse
import fcntl
import hashlib
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import time

IDLE, RAISED, TARGET, CANCEL, LEAVE = range(5)
HEAD = {  # of the control file: offset and struct code
    "magic": (0, "Q"), "version": (8, "I"), "size": (12, "I"), "slots": (16, "I"),
    "attempt": (20, "I"), "life": (24, "I"), "world": (28, "I"), "epoch": (32, "I"),
    "hold_limit_ms": (36, "I"), "word": (64, "Q"), "deadline_ns": (72, "Q"), "leave": (80, "Q"),
    "reason": (128, "64s"), "resume_step": (192, "q"), "resume_path": (256, "4096s"),
}
SLOT = {
    "token": (0, "Q"), "rank": (8, "I"), "pid": (12, "i"), "life": (16, "I"), "joined": (20, "I"),
    "step": (64, "q"), "hold": (72, "Q"), "saved": (80, "Q"), "last": (88, "q"),
    "gave_up": (96, "I"), "done": (100, "I"),
}
MAGIC, SIZE, SLOTS_AT, SLOT_BYTES, SLOTS = 0x31303066646C6F68, 24576, 8192, 128, 128
STEP_MAX = 2 ** 45 - 2
LINE_MAX = 65536
PATIENT = 20.0


def pack(state, request, step):
    return state << 61 | request << 45 | step


def unpack(word):
    """state, id, step of a word."""
    return word >> 61, word >> 45 & 0xFFFF, word & (1 << 45) - 1


class Fields:
    """Numbers at fixed offsets of mapped memory, as attributes."""

    def __init__(self, memory, table, base):
        self.__dict__.update(_memory=memory, _table=table, _base=base)

    def __getattr__(self, name):
        offset, code = self._table[name]
        return struct.unpack_from("<" + code, self._memory, self._base + offset)[0]

    def __setattr__(self, name, value):
        offset, code = self._table[name]
        struct.pack_into("<" + code, self._memory, self._base + offset, value)


class Control:
    def __init__(self, path):
        self.path = path
        with open(path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), SIZE)
        self.head = Fields(self.memory, HEAD, 0)
        head = self.head
        if (head.magic, head.version, head.size, head.slots) != (MAGIC, 1, SIZE, SLOTS):
            raise ValueError(f"'{path}' is no control file of version 1")

    def slot(self, index):
        if not 0 <= index < SLOTS:
            raise ValueError(f"no slot {index}")
        return Fields(self.memory, SLOT, SLOTS_AT + index * SLOT_BYTES)

    def text(self, name):
        return getattr(self.head, name).split(b"\0")[0]


def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    if len(os.fsencode(path)) <= 107:
        sock.connect(path)
        return sock
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)
    return sock


def line(message):
    return json.dumps(message).encode() + b"\n"


def as_bytes(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


class Gone(Exception):
    """The supervisor has closed the connection."""


class Line:
    """One connection: lines out, lines in, and how it ends."""

    def __init__(self, path):
        self.sock = connect(path)
        self.sock.settimeout(PATIENT)
        self.buffer = b""

    def send(self, *messages):
        """All in one packet."""
        self.raw(b"".join(map(line, messages)))

    def raw(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None

    def next(self):
        while b"\n" not in self.buffer:
            try:
                data = self.sock.recv(LINE_MAX)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Gone
            self.buffer += data
        first, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(first.decode("utf-8", "strict"))

    def arrived(self):
        """What has come so far, without waiting."""
        self.sock.setblocking(False)
        try:
            while True:
                data = self.sock.recv(LINE_MAX)
                if not data:
                    raise Gone
                self.buffer += data
        except BlockingIOError:
            pass
        except ConnectionResetError:
            raise Gone from None
        finally:
            self.sock.settimeout(PATIENT)
        found = []
        while b"\n" in self.buffer:
            found.append(self.next())
        return found

    def sync(self):
        """Returns once all that was sent before has been taken; what came meanwhile."""
        self.send({"msg": "sync?"})
        came = []
        while True:
            message = self.next()
            if message == {"msg": "unsupported", "what": "sync?"}:
                return came
            came.append(message)

    def is_dropped(self):
        try:
            while True:
                self.next()
        except Gone:
            return True

    def close(self):
        self.sock.close()


class Rank:
    """A rank that does what the document says."""

    def __init__(self, env, rank=0, world=1, last=-1, token=None, framework="wire"):
        self.env = env
        self.rank, self.world, self.last, self.framework = rank, world, last, framework
        self.token = token or os.urandom(8).hex()
        self.control = Control(env["HOLDFAST_CONTROL"])
        self.line = self.slot = self.welcome = None
        self.epoch = -1
        self.told = {}  # what is repeated after coming back
        self.given_up = 0
        self.retry_at = 0.0

    def hello(self):
        return {"msg": "hello", "protocol": 1, "client": "wire", "framework": self.framework,
                "rank": self.rank, "world": self.world, "pid": os.getpid(), "last": self.last,
                "token": self.token}

    def join(self):
        """Says hello and waits for the answer, which it returns."""
        self.epoch = self.control.head.epoch
        self.line = Line(self.env["HOLDFAST_SOCKET"])
        self.line.send(self.hello())
        answer = self.line.next()
        if answer["msg"] == "welcome":
            self.welcome = answer
            self.slot = self.control.slot(answer["slot"])
            for name in ("resumed", "saved", "done"):
                if name in self.told:
                    self.line.send(self.told[name])
        return answer

    def service(self):
        """Comes back after an end of file or a new epoch, at most every 20 ms."""
        try:
            if self.line is not None and self.epoch == self.control.head.epoch:
                self.line.arrived()
                return
        except Gone:
            pass
        if time.monotonic() < self.retry_at:
            return
        self.retry_at = time.monotonic() + 0.02
        if self.line is not None:
            self.line.close()
            self.line = None
        try:
            self.join()
        except (Gone, OSError):
            self.line = None

    def tell(self, **message):
        self.told[message["msg"]] = message
        try:
            if self.line is not None:
                self.line.send(message)
        except Gone:
            self.line = None

    def boundary(self, step):
        """'go', 'leave', or the id of the request to save for, at the boundary after `step`."""
        head, slot = self.control.head, self.slot
        slot.step = step
        held, since = 0, 0.0
        while True:
            state, request, at = unpack(head.word)
            if state == IDLE and at != self.epoch:
                self.service()
            if state == LEAVE:
                return "leave"
            if state == TARGET and at == step and request != self.given_up:
                return request
            if state != RAISED or request == self.given_up:
                return "go"
            if held != request:
                held, since = request, time.monotonic()
                slot.hold = pack(RAISED, request, step)
            waited = time.monotonic() - since
            limit = head.hold_limit_ms / 1000
            if waited >= limit and not self.cancel(request) and waited >= 2 * limit:
                self.given_up = request
                slot.gave_up = request
            time.sleep(0.001)

    def cancel(self, request):
        with open(self.control.path, "r+b") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if unpack(self.control.head.word)[:2] == (RAISED, request):
                self.control.head.word = pack(CANCEL, request, 0)
            return True

    def save(self, request, step, paths, turn=0):
        """Reports a save; True: leave now."""
        head = self.control.head
        if request:
            self.slot.saved = pack(TARGET, request, step)
        self.tell(msg="saved", id=request, step=step, turn=turn, paths=paths)
        since = time.monotonic()
        while request and head.leave == request:
            state, now, _ = unpack(head.word)
            if state == LEAVE:
                return True
            if state != TARGET or now != request or (
                    time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= head.deadline_ns):
                break
            self.service()
            if self.line is not None:
                since = time.monotonic()
            elif time.monotonic() - since > head.hold_limit_ms / 1000:
                break
            time.sleep(0.001)
        return unpack(head.word)[0] == LEAVE

    def folder(self, step, turn=0):
        w = self.welcome
        name = f"{w['attempt']}-{w['life']}-{step}" + (f"-{turn}" if turn else "")
        path = os.path.join(os.fsdecode(as_bytes(w["save_dir"])), name)
        os.makedirs(path, exist_ok=True)
        return path

    def finish(self):
        self.slot.done = 1
        self.tell(msg="done")


# --- as a program ---------------------------------------------------------------------------------


def load(rank, number):
    resume = rank.welcome["resume"]
    if resume is None:
        return 0, hashlib.sha256(b"rank %d" % number).hexdigest()
    path = os.path.join(os.fsdecode(as_bytes(resume["path"])), "rank%d.json" % number)
    with open(path) as f:
        digest = json.load(f)["digest"]
    return resume["step"] + 1, digest


def say(text):
    """One write: the lines of several ranks stay whole."""
    os.write(1, (text + "\n").encode())


def train(a):
    number = int(os.environ.get("RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    time.sleep(a.late_s if number else 0)
    rank = Rank(os.environ, number, world, a.steps - 1)
    answer = rank.join()
    if answer["msg"] != "welcome":
        raise SystemExit(f"refused: {answer}")
    start, digest = load(rank, number)
    rank.tell(msg="resumed", step=start)
    say(f"rank {number} life {rank.welcome['life']} start {start}")
    for step in range(start, a.steps):
        time.sleep(a.step_ms / 1000)
        digest = hashlib.sha256(f"{digest}:{step}".encode()).hexdigest()
        if number and step == a.crash_at and not os.path.exists(a.crash_once):
            open(a.crash_once, "w").close()
            os._exit(7)
        if number and step == a.bye_at:
            rank.tell(msg="bye")
            rank.told.clear()
        request = rank.boundary(step)
        if request == "leave":
            return 75
        if request != "go" or (a.own_every and step % a.own_every == a.own_every - 1):
            path = rank.folder(step)
            with open(os.path.join(path, "rank%d.json" % number), "w") as f:
                json.dump({"digest": digest}, f)
            if rank.save(request if request != "go" else 0, step, [path]):
                return 75
    rank.finish()
    say(f"rank {number} digest {digest}")
    return 0


def launch(n, restarts):
    """All ranks anew when one has died, as an elastic launcher does it; else their status."""
    for turn in range(restarts + 1):
        ranks = [subprocess.Popen([sys.executable, *sys.argv],
                                  env=dict(os.environ, RANK=str(i), WORLD_SIZE=str(n)))
                 for i in range(n)]
        while any(p.poll() is None for p in ranks) and not any(p.poll() for p in ranks):
            time.sleep(0.005)
        if not any(p.poll() for p in ranks):
            return 0
        leaving = any(p.poll() == 75 for p in ranks)
        for p in ranks:
            if not leaving:
                p.kill()
            p.wait()
        if leaving or turn == restarts:
            return max(p.returncode for p in ranks)
    return 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--step-ms", type=float, default=5)
    p.add_argument("--own-every", type=int, default=0)
    p.add_argument("--nproc", type=int, default=0)
    p.add_argument("--late-s", type=float, default=0, help="ranks but 0 join later")
    p.add_argument("--crash-at", type=int, default=-1, help="ranks but 0, once")
    p.add_argument("--crash-once", default="", help="not if this file is there")
    p.add_argument("--bye-at", type=int, default=-1, help="ranks but 0 take no part from here")
    a = p.parse_args()
    return launch(a.nproc, 2) if a.nproc and "RANK" not in os.environ else train(a)


if __name__ == "__main__":
    sys.exit(main())
