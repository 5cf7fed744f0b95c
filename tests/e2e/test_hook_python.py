# SPDX-License-Identifier: Apache-2.0
"""The Python client alone: against a small scripted supervisor that this file plays itself.

The supervisor is a control file and a socket in a temporary folder; the trainers are processes,
except where one process and no waiting is enough.
"""
import fcntl
import json
import mmap
import os
import random
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "hooks" / "python"
sys.path.insert(0, str(PACKAGE))

import holdfast  # noqa: E402

MAGIC, SIZE, HEAD, SLOT = 0x31303066646C6F68, 8192 + 128 * 128, 8192, 128
IDLE, RAISED, TARGET, CANCEL, LEAVE = range(5)
PATIENT = 20.0


def pack(state, request, step):
    return state << 61 | request << 45 | step


def until(condition, seconds=PATIENT):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.002)
    raise AssertionError("it did not come true")


class Supervisor:
    """Answers every hello with `reply`, keeps every message."""

    def __init__(self, folder):
        self.folder = folder
        self.messages = []
        self.resume = None
        self.save_dir = str(folder / "saves")
        self.refuse = False
        self.slot_of = lambda rank: rank
        self.control = folder / "c"
        with open(self.control, "wb") as f:
            f.write(bytes(SIZE))
        with open(self.control, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), SIZE)
        struct.pack_into("<QIIIIIIII", self.map, 0, MAGIC, 1, SIZE, 128, 4, 0, 1, 1, 2000)
        for i in range(128):
            struct.pack_into("<q", self.map, HEAD + i * SLOT + 64, -1)
        self.word = pack(IDLE, 0, 1)
        self.listener = None
        self.listen()

    def listen(self):
        path = str(self.folder / "s")
        if os.path.exists(path):
            os.unlink(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        self.open = []
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            for line in sock.makefile("rb"):
                message = json.loads(line)
                if message["msg"] == "hello":
                    sock.sendall(json.dumps(self._answer(message)).encode() + b"\n")
                self.messages.append(message)
        except OSError:
            return

    def _answer(self, hello):
        if self.refuse:
            return {"msg": "refused", "why": "no"}
        return {
            "msg": "welcome", "protocol": 1, "run": "r", "attempt": 4, "life": 2,
            "slot": self.slot_of(hello["rank"]), "save_dir": self.save_dir,
            "resume": self.resume, "new": {"field": []},
        }

    def die(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.open:
            sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def come_back(self):
        self.epoch += 1
        self.word = pack(IDLE, self.word >> 45 & 0xFFFF, self.epoch)
        self.listen()

    def field(offset, code):
        def get(self):
            return struct.unpack_from("<" + code, self.map, offset)[0]

        def put(self, value):
            struct.pack_into("<" + code, self.map, offset, value)

        return property(get, put)

    epoch = field(32, "I")
    hold_limit_ms = field(36, "I")
    word = field(64, "Q")
    deadline_ns = field(72, "Q")
    leave = field(80, "Q")

    def slot(self, index):
        """step, hold, saved, last, gave_up, done of a slot."""
        return struct.unpack_from("<qQQqII", self.map, HEAD + index * SLOT + 64)

    def told(self, name):
        return [m for m in self.messages if m["msg"] == name]

    def env(self):
        return {
            "HOLDFAST_CONTROL": str(self.control),
            "HOLDFAST_SOCKET": str(self.folder / "s"),
            "HOLDFAST_SAVE_DIR": self.save_dir,
        }


@pytest.fixture
def sup(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("HOLDFAST_") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    supervisor = Supervisor(tmp_path)
    yield supervisor
    supervisor.die()


@pytest.fixture
def run(sup, monkeypatch):
    for name, value in sup.env().items():
        monkeypatch.setenv(name, value)
    run = holdfast.init()
    assert run.active
    yield run
    run.close()


TRAINER = """
    import holdfast, os, sys, time
    run = holdfast.init()
    start = run.resume(lambda path: print("load", path, flush=True))
    print("start", start, flush=True)
    for step in range(start, int(sys.argv[1])):
        time.sleep(0.002)
        if run.step(step):
            path = run.path(step)
            open(os.path.join(path, "rank%d" % run.rank), "w").close()
            run.saved()
            print("saved", step, run.leaving, flush=True)
    run.done()
    print("after", flush=True)
"""


def trainer(sup, steps, rank=0, world=1, code=TRAINER, **env):
    full = dict(os.environ, PYTHONPATH=str(PACKAGE), RANK=str(rank), WORLD_SIZE=str(world))
    full.update(sup.env(), **env)
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(code), str(steps)],
        env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


# --- outside -----------------------------------------------------------------


def test_outside(tmp_path, monkeypatch):
    for name in ("CONTROL", "SOCKET", "SAVE_DIR", "RESUME", "RESUME_STEP"):
        monkeypatch.delenv("HOLDFAST_" + name, raising=False)
    monkeypatch.chdir(tmp_path)
    run = holdfast.init()
    assert not run.active
    assert run.resume(lambda path: pytest.fail("nothing to load")) == 0
    assert run.step(3) is False
    assert run.step("no number") is False
    assert run.path(3) == str(tmp_path / "checkpoints" / "step-3")
    assert os.path.isdir(run.path(3))
    run.saved()
    assert run.path(3) == str(tmp_path / "checkpoints" / "step-3-1")
    run.saved("some file")
    run.done()
    run.close()


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(SIZE)])
def test_unusable_control_file(tmp_path, monkeypatch, content):
    (tmp_path / "c").write_bytes(content)
    monkeypatch.setenv("HOLDFAST_CONTROL", str(tmp_path / "c"))
    monkeypatch.setenv("HOLDFAST_SOCKET", str(tmp_path / "s"))
    run = holdfast.init()
    assert not run.active
    assert run.step(1) is False


def test_no_supervisor_costs_a_second_at_most(sup):
    sup.die()
    started = time.monotonic()
    child = trainer(sup, 5)
    out, err = child.communicate(timeout=PATIENT)
    assert (out, err, child.returncode) == ("start 0\nafter\n", "", 0)
    assert time.monotonic() - started < 10
    sup.listen()


# --- the handshake -----------------------------------------------------------


def test_hello(sup, monkeypatch):
    for name, value in sup.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = holdfast.init(steps=10, framework="torch")
    hello = sup.told("hello")[0]
    token = hello.pop("token")
    assert len(token) == 16 and int(token, 16) >= 0
    assert hello == {
        "msg": "hello", "protocol": 1, "client": "python", "framework": "torch",
        "rank": 1, "world": 2, "pid": os.getpid(), "last": 9,
    }
    run.step(4)
    assert sup.slot(1)[0] == 4 and sup.slot(0)[0] == -1
    run.done()
    assert sup.slot(1)[5] == 1
    until(lambda: sup.told("done"))
    run.close()
    until(lambda: sup.told("bye"))


@pytest.mark.parametrize(
    "names",
    [
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "3", "PMI_SIZE": "4"},
        {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"},
        {"RANK": "3", "WORLD_SIZE": "4", "PMI_RANK": "0", "PMI_SIZE": "1"},
        {"RANK": "7", "WORLD_SIZE": "4", "PMI_RANK": "3", "PMI_SIZE": "4"},
    ],
)
def test_rank_comes_from_the_launcher(monkeypatch, names):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    run = holdfast.init()
    assert (run.rank, run.world) == (3, 4)
    assert holdfast.init(rank=1, world=2).rank == 1


def test_refused_is_silent(sup):
    sup.refuse = True
    child = trainer(sup, 20)
    out, err = child.communicate(timeout=PATIENT)
    assert (out, err, child.returncode) == ("start 0\nafter\n", "", 0)
    assert len(sup.told("hello")) == 1
    assert sup.slot(0)[0] == -1


@pytest.mark.parametrize("slot", ["x", None, 1000])
def test_broken_welcome_is_survived(sup, slot):
    sup.slot_of = lambda rank: slot
    child = trainer(sup, 5)
    out, err = child.communicate(timeout=PATIENT)
    assert (err, child.returncode) == ("", 0)
    assert out.endswith("after\n")


def test_reply_wins_over_the_environment(sup):
    env = {"HOLDFAST_RESUME": "/env", "HOLDFAST_RESUME_STEP": "5"}
    sup.resume = {"path": {"hex": b"/r\xff".hex()}, "step": 11}
    child = trainer(sup, 13, **env, PYTHONIOENCODING="utf-8:surrogateescape")
    child.stdout.reconfigure(errors="surrogateescape")
    out, _ = child.communicate(timeout=PATIENT)
    assert out == "load /r\udcff\nstart 12\nafter\n"
    assert sup.told("resumed")[0]["step"] == 12
    sup.resume = None
    out, _ = trainer(sup, 2, **env).communicate(timeout=PATIENT)
    assert out == "start 0\nafter\n"


def test_environment_without_a_reply(sup):
    sup.refuse = True
    env = {"HOLDFAST_RESUME": "/env", "HOLDFAST_RESUME_STEP": "5"}
    out, _ = trainer(sup, 7, **env).communicate(timeout=PATIENT)
    assert out == "load /env\nstart 6\nafter\n"


def test_load_may_name_the_step(sup, run):
    run._resume_path, run._resume_step = "/x", 5
    assert run.resume() == 6
    assert run.resume(lambda path: 40) == 40
    assert run.resume(lambda path: True) == 6
    with pytest.raises(OSError):
        run.resume(lambda path: open(path + "/missing"))
    until(lambda: [m["step"] for m in sup.told("resumed")] == [6, 40, 6])


# --- requests ----------------------------------------------------------------


def test_save_at_the_target(sup, run):
    assert run.step(1) is False
    sup.word = pack(TARGET, 7, 3)
    assert run.step(2) is False
    assert run.step(3) is True
    assert not run.leaving
    path = run.path(3)
    assert path == sup.save_dir + "/4-2-3" and os.path.isdir(path)
    run.saved()
    until(lambda: sup.told("saved"))
    assert sup.told("saved") == [
        {"msg": "saved", "id": 7, "step": 3, "turn": 0, "paths": [path]}
    ]
    assert sup.slot(0)[2] == pack(TARGET, 7, 3)
    assert run.step(4) is False


def test_past_the_target_goes_on(sup, run):
    sup.word = pack(TARGET, 7, 3)
    assert run.step(4) is False
    assert run.step(5) is False


def test_holds_until_decided(sup):
    child = trainer(sup, 10**6)
    until(lambda: sup.slot(0)[0] > 3)
    sup.word = pack(RAISED, 9, 0)
    until(lambda: sup.slot(0)[1] >> 45 & 0xFFFF == 9)
    step = sup.slot(0)[0]
    assert sup.slot(0)[1] == pack(RAISED, 9, step)
    time.sleep(0.1)  # a rank that did not hold would be 20 steps further
    assert sup.slot(0)[0] == step
    sup.word = pack(TARGET, 9, step)
    until(lambda: sup.told("saved"))
    assert sup.told("saved")[0]["step"] == step
    sup.word = pack(LEAVE, 9, 0)
    out, err = child.communicate(timeout=PATIENT)
    assert child.returncode == 75 and err == "" and "after" not in out


def test_dead_supervisor_holds_nobody(sup):
    sup.hold_limit_ms = 200
    child = trainer(sup, 150)
    until(lambda: sup.slot(0)[0] > 3)
    sup.word = pack(RAISED, 9, 0)
    out, err = child.communicate(timeout=PATIENT)
    assert (child.returncode, err, out) == (0, "", "start 0\nafter\n")
    assert sup.word == pack(CANCEL, 9, 0)


def test_frozen_lock_holder_holds_nobody(sup):
    sup.hold_limit_ms = 200
    child = trainer(sup, 150)
    until(lambda: sup.slot(0)[0] > 3)
    with open(sup.control) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        sup.word = pack(RAISED, 9, 0)
        out, err = child.communicate(timeout=PATIENT)
    assert (child.returncode, err) == (0, "")
    assert sup.word == pack(RAISED, 9, 0) and sup.slot(0)[4] == 9


def test_waits_to_leave(sup):
    child = trainer(sup, 10**6)
    until(lambda: sup.slot(0)[0] > 3)
    sup.deadline_ns = 1 << 62
    sup.leave = 9
    step = sup.slot(0)[0] + 20
    sup.word = pack(TARGET, 9, step)
    until(lambda: sup.told("saved"))
    time.sleep(0.1)
    assert child.poll() is None and sup.slot(0)[0] == step
    sup.word = pack(LEAVE, 9, 0)
    out, err = child.communicate(timeout=PATIENT)
    assert (child.returncode, err, out) == (75, "", "start 0\n")


@pytest.mark.parametrize("how", ["released", "deadline", "gone", "withdrawn"])
def test_waits_to_leave_and_goes_on(sup, how):
    sup.hold_limit_ms = 300
    child = trainer(sup, 10**6)
    until(lambda: sup.slot(0)[0] > 3)
    sup.deadline_ns = 1 << 62
    sup.leave = 9
    step = sup.slot(0)[0] + 20
    sup.word = pack(TARGET, 9, step)
    until(lambda: sup.told("saved"))
    if how == "released":
        sup.word = pack(IDLE, 9, 1)
    elif how == "deadline":
        sup.deadline_ns = 1
    elif how == "withdrawn":
        sup.leave = 0
    else:
        sup.die()
    until(lambda: sup.slot(0)[0] > step + 3)
    child.kill()
    child.communicate()
    if how == "gone":
        sup.listen()


def test_leave_without_a_save(sup, run):
    sup.word = pack(LEAVE, 1, 0)
    with pytest.raises(SystemExit) as leaving:
        run.step(1)
    assert leaving.value.code == holdfast.EXIT_LEAVE == 75


def test_leaving_is_known_while_saving(sup, run):
    sup.leave, sup.deadline_ns = 3, 1
    sup.word = pack(TARGET, 3, 5)
    assert run.step(5) and run.leaving
    run.saved()  # the deadline has passed: goes on


# --- folders and paths -------------------------------------------------------


def test_folders_are_never_handed_out_twice(sup, run):
    seen = [run.path(7)]
    assert run.path(7) == seen[0]  # still the same save
    run.saved()
    for step in (7, 9, 8, 8, 20):
        seen.append(run.path(step))
        run.saved()
    assert [os.path.basename(p) for p in seen] == [
        "4-2-7", "4-2-7-1", "4-2-9-1", "4-2-8-2", "4-2-8-3", "4-2-20-3",
    ]
    until(lambda: len(sup.told("saved")) == 6)
    assert [m["turn"] for m in sup.told("saved")] == [0, 1, 1, 2, 3, 3]
    assert {m["id"] for m in sup.told("saved")} == {0}


def test_named_paths(sup, run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run.step(3)
    run.saved(["a b", b"/x\xff", Path("/y")])
    run.step(4)
    run.saved("/one")
    run.step(5)
    run.saved(17)  # no path: not reported, not raised
    until(lambda: len(sup.told("saved")) == 2)
    assert sup.told("saved")[0]["paths"] == [
        str(tmp_path / "a b"), {"hex": b"/x\xff".hex()}, "/y",
    ]
    assert sup.told("saved")[1] == {
        "msg": "saved", "id": 0, "step": 4, "turn": 0, "paths": ["/one"],
    }


# --- troubles ----------------------------------------------------------------


def test_supervisor_comes_back(sup, run):
    run.resume()
    run.step(1)
    run.path(1)
    run.saved()
    run.done()
    until(lambda: sup.told("done"))
    first = sup.told("hello")[0]
    sup.die()
    assert run.step(2) is False
    sup.messages.clear()
    sup.come_back()

    def back():
        run.step(3)
        return sup.told("done")

    until(back)
    assert sup.told("hello") == [first]  # the same incarnation
    assert [m["msg"] for m in sup.messages] == ["hello", "resumed", "saved", "done"]
    assert sup.told("saved")[0]["step"] == 1


def test_save_while_the_supervisor_is_away(sup, run):
    run.step(1)
    sup.die()
    run.step(2)
    run.path(2)
    run.saved()
    sup.messages.clear()
    sup.come_back()

    def back():
        run.step(3)
        return sup.told("saved")

    until(back)
    assert sup.told("saved")[0]["step"] == 2


def test_forked_child_is_dead(sup, run):
    run.step(5)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        calm = not run.active and run.step(9) is False
        run.saved("/x")
        run.done()
        run.close()
        os.write(write_end, b"1" if calm else b"0")
        os._exit(0)
    assert os.read(read_end, 1) == b"1"
    os.waitpid(pid, 0)
    os.close(read_end)
    os.close(write_end)
    assert sup.slot(0)[0] == 5 and sup.slot(0)[5] == 0
    run.path(6)
    run.saved()  # the parent's connection is untouched
    until(lambda: sup.told("saved"))
    assert not sup.told("bye") and sup.told("saved")[0]["paths"][0].endswith("/4-2-6")


def test_silent_in_development_mode(sup):
    """-X dev shows what is left open; nothing may be."""
    code = TRAINER.replace("run.done()", "pass")
    child = trainer(sup, 5, code=code)
    out, err = child.communicate(timeout=PATIENT)
    assert (err, child.returncode) == ("", 0)


def test_odd_step_numbers(run):
    for step in (-1, 1 << 60, 1 << 70, None, 2.5, "x"):
        assert run.step(step) is False
    assert run.step(True) is False


# --- cost and random states --------------------------------------------------


def test_cost(run):
    run.step(0)
    step, n = run.step, 200000
    best = 1e9
    for _ in range(5):
        started = time.perf_counter()
        for s in range(n):
            step(s)
        best = min(best, (time.perf_counter() - started) / n)
    assert best < 1e-6, "%.0f ns" % (best * 1e9)


def test_rng_state():
    random.seed(4)
    state = holdfast.rng_state()
    first = random.random()
    holdfast.set_rng_state(state)
    assert random.random() == first
    holdfast.set_rng_state(json.loads(json.dumps({"python": state["python"]})))
    assert random.random() == first


def test_rng_state_of_numpy():
    import numpy

    numpy.random.seed(4)
    state = holdfast.rng_state()
    first = numpy.random.rand()
    holdfast.set_rng_state(state)
    assert numpy.random.rand() == first
